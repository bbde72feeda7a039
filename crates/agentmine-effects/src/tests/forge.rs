//! A forge in memory, with one item that tasks are about, its pull requests, and an issue of AgentMine. It keeps what it was asked
//! to write.

use std::sync::{Arc, Mutex, MutexGuard};

use agentmine_domain::{ItemKind, ItemRef, RepositoryRef, TrackerKind};
use agentmine_runtime::config::has_label;
use agentmine_runtime::permit::Permit;
use agentmine_trackers::{
    BranchRemoval, Branches, Candidate, Comment, CommentKind, GitSource, Item, LabelRequest,
    Marker, Moved, NewIssue, NewPullRequest, OurIssue, Person, PullRequest, Repository, Tracker,
    TrackerError,
};
use async_trait::async_trait;
use chrono::{DateTime, TimeDelta, Utc};
use tokio::sync::Notify;

/// The number of the first pull request that is opened.
pub(super) const PULL: u64 = 21;
/// The number of the issue that AgentMine opens for itself.
pub(super) const OURS: u64 = 31;

/// A comment of AgentMine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Posted {
    /// See [`named`].
    pub(super) on: String,
    /// The hidden marker below the text.
    pub(super) marker: String,
    pub(super) body: String,
}

/// A reply to a thread of a review.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) thread: String,
    pub(super) marker: String,
    pub(super) body: String,
}

/// The content of the forge, and the requests to change it.
#[derive(Debug, Default)]
pub(super) struct Forge {
    pub(super) labels: Vec<String>,
    /// What put the request label on the item.
    pub(super) trigger: String,
    pub(super) since: Option<DateTime<Utc>>,
    pub(super) comments: Vec<Posted>,
    /// What is found when the comments are listed, instead of those that were posted.
    pub(super) found: Vec<Comment>,
    pub(super) replies: Vec<Reply>,
    pub(super) pulls: Vec<(PullRequest, NewPullRequest)>,
    /// Pull requests cannot be listed.
    pub(super) hides_pulls: bool,
    /// Where the item is now, if not in its place.
    pub(super) moved: Option<Moved>,
    /// The paths of the repositories that are scanned.
    pub(super) scanned: Vec<String>,
    /// What becomes of a branch that is to be removed.
    pub(super) removal: Option<BranchRemoval>,
    /// The text of the issue of AgentMine.
    pub(super) ours: Option<String>,
    /// Whether a person closed that issue.
    pub(super) is_ours_closed: bool,
    /// Who opened the other issues; `None`: a person.
    pub(super) author: Option<String>,
    /// The text of the other issues.
    pub(super) text: String,
    /// Minutes that have passed.
    pub(super) clock: i64,
    /// The requests that would change something, in order, also those that failed.
    pub(super) requests: Vec<String>,
    /// Errors that the next requests return which would change something, the last one first.
    pub(super) refusals: Vec<TrackerError>,
    /// Errors of the next call of an operation.
    pub(super) faults: Vec<(&'static str, TrackerError)>,
    /// Operations whose next answer is lost: they were carried out.
    pub(super) lost: Vec<&'static str>,
    /// The next write of labels is slow.
    pub(super) slow: Option<Slow>,
}

/// A write of labels that signals that it has arrived, and waits until it may continue.
#[derive(Debug, Clone, Default)]
pub(super) struct Slow {
    pub(super) arrived: Arc<Notify>,
    pub(super) may_go_on: Arc<Notify>,
}

impl Forge {
    fn fault(&mut self, operation: &str) -> Result<(), TrackerError> {
        match self.faults.iter().position(|(of, _)| *of == operation) {
            Some(at) => Err(self.faults.remove(at).1),
            None => Ok(()),
        }
    }

    /// The answer to a request that was carried out.
    fn answer<T>(&mut self, operation: &str, answer: T) -> Result<T, TrackerError> {
        match self.lost.iter().position(|of| *of == operation) {
            Some(at) => {
                self.lost.remove(at);
                Err(unavailable())
            }
            None => Ok(answer),
        }
    }

    fn time(&self) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + TimeDelta::days(20_000) + TimeDelta::minutes(self.clock)
    }
}

#[derive(Debug, Default)]
pub(super) struct FakeTracker(Mutex<Forge>);

impl FakeTracker {
    pub(super) fn forge(&self) -> MutexGuard<'_, Forge> {
        self.0.lock().unwrap()
    }

    /// `request` begins with the name of the operation.
    fn write(
        &self,
        request: String,
        permit: &Permit,
    ) -> Result<MutexGuard<'_, Forge>, TrackerError> {
        let tracker = self.kind();
        permit
            .check()
            .map_err(|lapsed| TrackerError::NotPermitted { tracker, lapsed })?;
        let mut forge = self.forge();
        let operation = request.split(' ').next().unwrap().to_owned();
        forge.requests.push(request);
        forge.clock += 1;
        forge.fault(&operation)?;
        match forge.refusals.pop() {
            Some(refusal) => Err(refusal),
            None => Ok(forge),
        }
    }

    fn read(&self, operation: &str) -> Result<MutexGuard<'_, Forge>, TrackerError> {
        let mut forge = self.forge();
        forge.fault(operation)?;
        Ok(forge)
    }
}

/// An item by its kind and number.
pub(super) fn named(item: &ItemRef) -> String {
    format!("{} {}", item.kind.as_str(), item.number)
}

/// A comment with the marker of a task, by us or by somebody else.
pub(super) fn comment(ours: bool, body: &str, created_at: DateTime<Utc>) -> Comment {
    let login = match ours {
        true => "bot",
        false => "ann",
    };
    Comment {
        id: "1".into(),
        author: Person {
            login: login.into(),
            id: None,
            is_bot: false,
        },
        ours,
        kind: CommentKind::Plain,
        body: body.into(),
        created_at,
    }
}

pub(super) fn unavailable() -> TrackerError {
    TrackerError::Unavailable {
        tracker: TrackerKind::GitHub,
        detail: "503".into(),
        until: None,
    }
}

pub(super) fn refused() -> TrackerError {
    TrackerError::Refused {
        tracker: TrackerKind::GitHub,
        detail: "locked".into(),
    }
}

pub(super) fn not_found() -> TrackerError {
    TrackerError::NotFound {
        tracker: TrackerKind::GitHub,
        what: "octo/demo#7".into(),
    }
}

pub(super) fn unauthorized() -> TrackerError {
    TrackerError::Unauthorized {
        tracker: TrackerKind::GitHub,
        detail: "401".into(),
        hint: "renew the token".into(),
    }
}

#[async_trait]
impl Tracker for FakeTracker {
    fn kind(&self) -> TrackerKind {
        TrackerKind::GitHub
    }

    fn host(&self) -> &str {
        "forge.example"
    }

    async fn find(&self, _: &str) -> Result<Option<ItemRef>, TrackerError> {
        Ok(None)
    }

    async fn find_repository(&self, _: &str) -> Result<Option<RepositoryRef>, TrackerError> {
        Ok(None)
    }

    async fn candidates(&self, _: &str) -> Result<Vec<Candidate>, TrackerError> {
        Ok(Vec::new())
    }

    fn scans(&self, path: &str) -> bool {
        self.forge().scanned.iter().any(|scanned| scanned == path)
    }

    async fn label_request(&self, _: &ItemRef, label: &str) -> Result<LabelRequest, TrackerError> {
        let forge = self.read("label_request")?;
        Ok(match has_label(&forge.labels, label) {
            true => LabelRequest::By {
                trigger: forge.trigger.clone(),
                since: forge.since,
            },
            false => LabelRequest::Absent,
        })
    }

    async fn item(&self, item: &ItemRef) -> Result<Item, TrackerError> {
        let forge = self.read("item")?;
        let ours = forge.ours.clone().filter(|_| item.number == OURS);
        let author = match &ours {
            Some(_) => Some("bot".to_owned()),
            None => forge.author.clone(),
        };
        let found = Item {
            item: item.clone(),
            title: String::new(),
            open: ours.is_none() || !forge.is_ours_closed,
            body: ours.unwrap_or_else(|| forge.text.clone()),
            author: author.unwrap_or_else(|| "ann".into()),
            withdrawn: None,
            labels: forge.labels.clone(),
            assignees: Vec::new(),
            url: String::new(),
            branches: None,
        };
        let mut pulls = forge.pulls.iter();
        let pull = pulls.find(|(pull, _)| pull.number == item.number);
        Ok(match pull.filter(|_| item.kind == ItemKind::PullRequest) {
            Some((pull, new)) => Item {
                title: new.title.clone(),
                open: pull.open,
                body: new.body.clone(),
                branches: Some(Branches {
                    source: new.head.clone(),
                    target: new.base.clone(),
                }),
                ..found
            },
            None => found,
        })
    }

    async fn moved_to(&self, _: &ItemRef) -> Result<Moved, TrackerError> {
        let forge = self.read("moved_to")?;
        Ok(forge.moved.clone().unwrap_or(Moved::No))
    }

    async fn comments(&self, item: &ItemRef) -> Result<Vec<Comment>, TrackerError> {
        let forge = self.read("comments")?;
        let on = named(item);
        let written = forge.comments.iter().filter(|it| it.on == on);
        let written = written.map(|Posted { marker, body, .. }| {
            comment(true, &format!("{body}\n\n{marker}"), Utc::now())
        });
        Ok(match forge.found.as_slice() {
            [] => written.collect(),
            found => found.to_vec(),
        })
    }

    async fn react(
        &self,
        item: &ItemRef,
        comment: &Comment,
        permit: &Permit,
    ) -> Result<(), TrackerError> {
        let request = format!("react {}, comment {}", named(item), comment.id);
        let mut forge = self.write(request, permit)?;
        forge.answer("react", ())
    }

    async fn set_labels(
        &self,
        item: &ItemRef,
        add: &[String],
        remove: &[String],
        permit: &Permit,
    ) -> Result<(), TrackerError> {
        let slow = self.forge().slow.take();
        if let Some(slow) = slow {
            slow.arrived.notify_one();
            slow.may_go_on.notified().await;
        }
        let request = format!("set_labels {}: {}", named(item), add.join(", "));
        let mut forge = self.write(request, permit)?;
        // As GitHub: names that differ by case alone are one label, and a removal comes after the additions.
        forge.labels.retain(|label| !has_label(add, label));
        forge.labels.extend_from_slice(add);
        forge.labels.retain(|label| !has_label(remove, label));
        forge.answer("set_labels", ())
    }

    async fn write_comment(
        &self,
        item: &ItemRef,
        marker: &Marker,
        body: &str,
        permit: &Permit,
    ) -> Result<String, TrackerError> {
        let on = named(item);
        let mut forge = self.write(format!("write_comment {on}"), permit)?;
        let is_on = |it: &Posted| it.on == on;
        if forge
            .comments
            .iter()
            .any(|it| is_on(it) && marker.yields_to(&it.marker))
        {
            return Ok("1".into());
        }
        forge
            .comments
            .retain(|it| !is_on(it) || !marker.is_in(&it.marker));
        let text = marker.append("").trim().to_owned();
        forge.comments.push(Posted {
            on,
            marker: text,
            body: body.to_owned(),
        });
        forge.answer("write_comment", "1".into())
    }

    async fn repository(&self, _: &ItemRef) -> Result<Repository, TrackerError> {
        Ok(Repository {
            default_branch: "main".into(),
            source: GitSource::Path("demo.git".into()),
        })
    }

    async fn file(&self, _: &ItemRef, _: &str, _: &str) -> Result<Option<String>, TrackerError> {
        Ok(None)
    }

    async fn find_pull_request(
        &self,
        _: &ItemRef,
        head: &str,
    ) -> Result<Option<PullRequest>, TrackerError> {
        let forge = self.read("find_pull_request")?;
        if forge.hides_pulls {
            return Err(unavailable());
        }
        let found = forge.pulls.iter().find(|(_, new)| new.head == head);
        Ok(found.map(|(pull, _)| pull.clone()))
    }

    async fn create_pull_request(
        &self,
        _: &ItemRef,
        new: &NewPullRequest,
        permit: &Permit,
    ) -> Result<PullRequest, TrackerError> {
        let mut forge = self.write("create_pull_request".to_owned(), permit)?;
        let number = forge.pulls.len() as u64 + PULL;
        let pull = PullRequest {
            number,
            url: format!("https://forge.example/pull/{number}"),
            open: true,
            merged: false,
            head_sha: String::new(),
        };
        forge.pulls.push((pull.clone(), new.clone()));
        forge.answer("create_pull_request", pull)
    }

    async fn update_pull_request(
        &self,
        _: &ItemRef,
        number: u64,
        new: &NewPullRequest,
        permit: &Permit,
    ) -> Result<(), TrackerError> {
        let mut forge = self.write(format!("update_pull_request {number}"), permit)?;
        for (_, known) in forge
            .pulls
            .iter_mut()
            .filter(|(pull, _)| pull.number == number)
        {
            known.body.clone_from(&new.body);
        }
        forge.answer("update_pull_request", ())
    }

    async fn mark_ready(
        &self,
        _: &ItemRef,
        number: u64,
        permit: &Permit,
    ) -> Result<(), TrackerError> {
        let mut forge = self.write(format!("mark_ready {number}"), permit)?;
        forge.answer("mark_ready", ())
    }

    async fn remove_branch(
        &self,
        _: &ItemRef,
        branch: &str,
        commit: &str,
        permit: &Permit,
    ) -> Result<BranchRemoval, TrackerError> {
        let request = format!("remove_branch {branch} at {commit}");
        let mut forge = self.write(request, permit)?;
        let removal = forge.removal.unwrap_or(BranchRemoval::Removed);
        forge.answer("remove_branch", removal)
    }

    async fn issue_of_ours(
        &self,
        _: &ItemRef,
        new: &NewIssue<'_>,
        permit: &Permit,
    ) -> Result<OurIssue, TrackerError> {
        let known = self.forge().ours.clone();
        if known.is_some_and(|text| text.contains(new.marker)) {
            return Ok(OurIssue::Found(OURS));
        }
        let mut forge = self.write(format!("issue_of_ours {}", new.title), permit)?;
        forge.ours = Some(new.body.to_owned());
        let at = forge.time();
        forge.answer("issue_of_ours", OurIssue::Opened { number: OURS, at })
    }

    async fn edit_issue(
        &self,
        item: &ItemRef,
        body: &str,
        permit: &Permit,
    ) -> Result<DateTime<Utc>, TrackerError> {
        let mut forge = self.write(format!("edit_issue {}", named(item)), permit)?;
        forge.ours = Some(body.to_owned());
        let at = forge.time();
        forge.answer("edit_issue", at)
    }

    async fn reply_to_thread(
        &self,
        pull: &ItemRef,
        thread: &str,
        marker: &str,
        body: &str,
        permit: &Permit,
    ) -> Result<(), TrackerError> {
        let request = format!("reply_to_thread {}, {thread}", named(pull));
        let mut forge = self.write(request, permit)?;
        if !forge.replies.iter().any(|it| it.marker == marker) {
            forge.replies.push(Reply {
                thread: thread.to_owned(),
                marker: marker.to_owned(),
                body: body.to_owned(),
            });
        }
        forge.answer("reply_to_thread", ())
    }

    async fn resolve_thread(
        &self,
        pull: &ItemRef,
        thread: &str,
        permit: &Permit,
    ) -> Result<(), TrackerError> {
        let request = format!("resolve_thread {}, {thread}", named(pull));
        let mut forge = self.write(request, permit)?;
        forge.answer("resolve_thread", ())
    }

    async fn login(&self) -> Result<String, TrackerError> {
        Ok("bot".into())
    }
}

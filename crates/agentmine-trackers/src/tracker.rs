//! The seam: what the rest of the program asks of a tracker, in no tracker's own shapes.

use std::path::PathBuf;

use agentmine_domain::{ItemRef, RepositoryRef, TrackerKind};
use agentmine_runtime::live_secret::LiveSecret;
use agentmine_runtime::permit::Permit;
use agentmine_runtime::tls::Authority;
use async_trait::async_trait;
use chrono::{DateTime, Utc};
use url::Url;

use crate::error::TrackerError;
use crate::marker::{FLEET_MARKER, Marker};
use crate::people::{Admission, Edit, Person, Requested};
use crate::rounds::{Checks, OpenPulls, Thread};

/// An item that asks for work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Which item.
    pub item: ItemRef,
    /// What asked for work: the newest event that added the request label (GitHub: the id of the
    /// `labeled` event), or a digest of the file and of how often the label was removed from it.
    pub trigger: String,
    /// Who asked, and when.
    pub requested: Requested,
    /// Title.
    pub title: String,
    /// Its address for people.
    pub url: String,
    /// Names of its labels.
    pub labels: Vec<String>,
}

/// An open pull request of anybody.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenPullRequest {
    /// Its number.
    pub number: u64,
    /// Its address for people.
    pub url: String,
    /// The numbers of the issues of the same repository that it closes, as its text says.
    pub closes: Vec<u64>,
}

/// An open item that another one waits for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Blocker {
    /// Its number, if it is an issue of the same repository.
    pub number: Option<u64>,
    /// How people name it.
    pub name: String,
}

impl Blocker {
    pub(crate) fn here(number: u64) -> Self {
        Self {
            number: Some(number),
            name: format!("#{number}"),
        }
    }

    pub(crate) fn elsewhere(name: String) -> Self {
        Self { number: None, name }
    }

    /// Both a text and the tracker may name one.
    pub(crate) fn each_once(mut all: Vec<Self>) -> Vec<Self> {
        all.sort();
        all.dedup();
        all
    }
}

/// An item as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Which item; `repo_path` is the current one.
    pub item: ItemRef,
    /// Title.
    pub title: String,
    /// Text, Markdown.
    pub body: String,
    /// The login of who opened it.
    pub author: String,
    /// Whether it is open.
    pub open: bool,
    /// Why nobody is to work on it, whether it is open or not: it was moved, locked or deleted.
    pub withdrawn: Option<&'static str>,
    /// Names of its labels.
    pub labels: Vec<String>,
    /// The logins of its assignees.
    pub assignees: Vec<String>,
    /// Its address for people.
    pub url: String,
    /// For a pull request: its source and target branches.
    pub branches: Option<Branches>,
}

impl Item {
    /// Whether somebody is among its assignees.
    #[must_use]
    pub fn is_assigned_to(&self, login: &str) -> bool {
        let mut assignees = self.assignees.iter();
        assignees.any(|assignee| assignee.eq_ignore_ascii_case(login))
    }

    /// Why nobody is to work on it; `None` if it is open and in its place.
    #[must_use]
    pub fn closed(&self) -> Option<&'static str> {
        self.withdrawn
            .or((!self.open).then_some("the item was closed"))
    }
}

/// Why nobody is to work on an item that was looked at. An error leaves it open, unless it says that only some people may
/// read the item.
#[must_use]
pub fn closed(looked: &Result<Item, TrackerError>) -> Option<&'static str> {
    match looked {
        Ok(item) => item.closed(),
        Err(TrackerError::Confidential { .. }) => {
            Some("the issue is confidential, and its merge request would publish what it says")
        }
        Err(_) => None,
    }
}

/// What the scans of a tracker cannot read at present: a repository, a group, or a search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// Its name.
    pub what: String,
    /// Why, and where known what to do.
    pub reason: String,
}

/// Whether an item asks for work by its label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LabelRequest {
    /// It does not carry the label.
    Absent,
    /// It carries the label.
    By {
        /// What put it there: see [`Candidate::trigger`].
        trigger: String,
        /// When, in whole seconds at most and by the tracker's clock; `None` if the tracker does not know.
        since: Option<DateTime<Utc>>,
    },
    /// It carries the label, and the tracker does not report yet what put it there.
    Unknown,
}

/// The branches of a pull request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Branches {
    /// Where the changes are.
    pub source: String,
    /// Where they would go.
    pub target: String,
}

/// A comment on an item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Comment {
    /// The tracker's id of it.
    pub id: String,
    /// Who wrote it.
    pub author: Person,
    /// Whether it was written with our own credentials.
    pub ours: bool,
    /// What it is.
    pub kind: CommentKind,
    /// Text, Markdown.
    pub body: String,
    /// When.
    pub created_at: DateTime<Utc>,
}

impl Comment {
    /// Names it among all comments of its item: each kind has numbers of its own.
    #[must_use]
    pub fn remark_id(&self) -> String {
        match &self.kind {
            CommentKind::Plain => self.id.clone(),
            CommentKind::Review { .. } => format!("review-{}", self.id),
            CommentKind::OnLine { .. } => format!("line-{}", self.id),
        }
    }

    /// Whether the fleet wrote it: with our credentials, and with a marker. A person's own token may be
    /// the fleet's, and such a person's comments are not.
    #[must_use]
    pub fn is_of_the_fleet(&self) -> bool {
        self.ours && self.body.contains(FLEET_MARKER)
    }
}

/// A comment of a repository's newest ones, and the item that it is on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecentComment {
    /// On which item.
    pub item: ItemRef,
    /// The comment.
    pub comment: Comment,
}

/// What a comment is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommentKind {
    /// A comment on the item.
    Plain,
    /// A review of a pull request.
    Review {
        /// What it decided, in lower case: `approved`, `changes requested`, `commented`.
        verdict: String,
    },
    /// A comment on a line of a pull request's diff.
    OnLine {
        /// The file.
        path: String,
        /// The line, if the diff still has it.
        line: Option<u64>,
    },
}

impl CommentKind {
    /// Whether trackers have reactions to it.
    #[must_use]
    pub fn takes_reactions(&self) -> bool {
        match self {
            Self::Plain | Self::OnLine { .. } => true,
            Self::Review { .. } => false,
        }
    }
}

/// Where the gateway fetches a repository from. Never given to a sandbox.
#[derive(Debug, Clone)]
pub enum GitSource {
    /// Smart HTTP with basic authentication.
    Http {
        /// The repository's address, without credentials.
        url: Url,
        /// User name.
        user: String,
        /// Password or token.
        password: Option<LiveSecret>,
        /// A certificate authority that is trusted in addition to the system's.
        authority: Option<Authority>,
    },
    /// A repository on the worker's own disk.
    Path(PathBuf),
}

/// A repository as the worker needs it.
#[derive(Debug, Clone)]
pub struct Repository {
    /// Where work on an issue starts.
    pub default_branch: String,
    /// Where the gateway fetches it from.
    pub source: GitSource,
}

/// A pull request (merge request).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullRequest {
    /// Its number.
    pub number: u64,
    /// Its address for people.
    pub url: String,
    /// Whether it is open; closed and merged ones are found too.
    pub open: bool,
    /// Whether it was merged.
    pub merged: bool,
}

impl PullRequest {
    /// Whether somebody closed it without merging it.
    #[must_use]
    pub fn is_rejected(&self) -> bool {
        !self.open && !self.merged
    }
}

/// A pull request to open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewPullRequest {
    /// Source branch, in the same repository.
    pub head: String,
    /// Target branch.
    pub base: String,
    /// Title.
    pub title: String,
    /// Text, Markdown.
    pub body: String,
    /// Not ready to merge: a partial result.
    pub draft: bool,
}

/// An issue to open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewIssue<'a> {
    /// Title.
    pub title: &'a str,
    /// Text, Markdown. It carries `marker`.
    pub body: &'a str,
    /// By this part of its text it is found again.
    pub marker: &'a str,
}

/// An issue of ours that was found by its marker, or opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OurIssue {
    /// It was there, with this number.
    Found(u64),
    /// It was opened now.
    Opened {
        /// Its number.
        number: u64,
        /// When, by the tracker's clock.
        at: DateTime<Utc>,
    },
}

/// What became of a branch that was to be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BranchRemoval {
    /// It was removed.
    Removed,
    /// It was not there.
    Gone,
    /// It is at another commit, and stays.
    Moved,
}

/// What a tracker says about its credentials, for a person who sets the fleet up.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Access {
    /// Our own login name.
    pub login: String,
    /// The scopes of the token, where the tracker names them.
    pub scopes: Option<Vec<String>>,
    /// What the fleet needs and the token does not allow, each with what to do about it.
    pub missing: Vec<String>,
    /// The server's time.
    pub server_time: Option<DateTime<Utc>>,
}

/// One tracker, with its credentials. Whatever writes takes a permit, which is checked right before each request.
#[async_trait]
pub trait Tracker: Send + Sync + 'static {
    /// Which adapter.
    fn kind(&self) -> TrackerKind;
    /// The host part of its items' identity.
    fn host(&self) -> &str;
    /// Whether this tracker is the one that an item belongs to.
    fn serves(&self, item: &ItemRef) -> bool {
        item.tracker == self.kind() && item.host == self.host()
    }

    /// The item that a person names: by path and number (`owner/name#7`, `group/project!7`), or by its address for
    /// people. `None`: it is not of this tracker. One that does not exist is [`TrackerError::NotFound`].
    async fn find(&self, name: &str) -> Result<Option<ItemRef>, TrackerError>;
    /// The repository that a person names, by its path or its address for people. `None`: it is not of this tracker. One
    /// that does not exist is [`TrackerError::NotFound`].
    async fn find_repository(&self, name: &str) -> Result<Option<RepositoryRef>, TrackerError>;
    /// Open items that carry the label `label`, in the configured repositories. All pages. What cannot be read is
    /// left out, and is in [`Self::skipped`]; an error means that nothing could be read.
    async fn candidates(&self, label: &str) -> Result<Vec<Candidate>, TrackerError>;
    /// Whether a repository is one of those that are scanned, by its path.
    fn scans(&self, _path: &str) -> bool {
        false
    }
    /// The path by which the repository with this id was scanned, which may have another name by now. `None`: it was not
    /// scanned yet, or is none of those that are.
    fn scanned_as(&self, _repo_id: &str) -> Option<String> {
        None
    }
    /// Whether a search may find items of other repositories too.
    fn searches(&self) -> bool {
        false
    }
    /// The same as [`Self::candidates`] for one of the repositories that are scanned.
    async fn candidates_in(&self, path: &str, label: &str) -> Result<Vec<Candidate>, TrackerError> {
        let mut found = self.candidates(label).await?;
        found.retain(|candidate| candidate.item.repo_path == path);
        Ok(found)
    }
    /// What the latest scans could not read.
    fn skipped(&self) -> Vec<Skipped> {
        Vec::new()
    }
    /// Whether an item carries the label `label`, and since which event.
    async fn label_request(
        &self,
        item: &ItemRef,
        label: &str,
    ) -> Result<LabelRequest, TrackerError>;
    /// Whether people request and withdraw work on items by labels. `false`: the item asks for work
    /// whatever its labels are, so their absence says nothing.
    fn requests_by_label(&self) -> bool {
        true
    }
    /// Whether a person may start work on an item, by the configuration. By default everybody may who can write to
    /// the tracker.
    async fn may_start(
        &self,
        _item: &ItemRef,
        _person: &Person,
    ) -> Result<Admission, TrackerError> {
        Ok(Admission::Granted)
    }
    /// Who asked for work by `trigger` (see [`Candidate::trigger`]), and when; `None` if the tracker knows no such
    /// event.
    async fn requested(
        &self,
        _item: &ItemRef,
        _trigger: &str,
    ) -> Result<Option<Requested>, TrackerError> {
        Ok(None)
    }
    /// The changes of an item's title and text since a moment, that moment included, oldest first; none where the
    /// tracker does not record them.
    async fn edits(
        &self,
        _item: &ItemRef,
        _since: DateTime<Utc>,
    ) -> Result<Vec<Edit>, TrackerError> {
        Ok(Vec::new())
    }
    /// One item.
    async fn item(&self, item: &ItemRef) -> Result<Item, TrackerError>;
    /// Comments, oldest first; on a pull request its reviews and the comments on its lines too. All pages.
    async fn comments(&self, item: &ItemRef) -> Result<Vec<Comment>, TrackerError>;
    /// Of these repositories, each by one of its items, those in which somebody may have written since the latest call.
    /// All of them where it costs nothing to look.
    async fn with_news(&self, places: Vec<ItemRef>) -> Result<Vec<ItemRef>, TrackerError> {
        Ok(places)
    }
    /// Of the newest hundred comments on all items of the repository of `of`, those that address the fleet: one request,
    /// which costs nothing where nobody wrote since. None where commands are not given by comments.
    async fn recent_comments(&self, _of: &ItemRef) -> Result<Vec<RecentComment>, TrackerError> {
        Ok(Vec::new())
    }
    /// Of the reviews of these open pull requests of one repository, and of the comments on their lines, those that address
    /// the fleet: one request, which costs nothing where nobody wrote since, and two for each on which somebody did. None
    /// where [`Self::recent_comments`] has them.
    async fn recent_reviews(&self, _pulls: &[ItemRef]) -> Result<Vec<RecentComment>, TrackerError> {
        Ok(Vec::new())
    }
    /// Acknowledges a comment by a reaction of ours, once. A review can have none: [`CommentKind::takes_reactions`].
    async fn react(
        &self,
        item: &ItemRef,
        comment: &Comment,
        _permit: &Permit,
    ) -> Result<(), TrackerError> {
        let what = format!("comment {} on {item}", comment.id);
        Err(TrackerError::NotFound {
            tracker: self.kind(),
            what,
        })
    }
    /// Adds and removes labels. Other labels are not touched; removing an absent one is no error.
    async fn set_labels(
        &self,
        item: &ItemRef,
        add: &[String],
        remove: &[String],
        permit: &Permit,
    ) -> Result<(), TrackerError>;
    /// Edits the one comment of ours that carries `marker` (a hidden HTML comment that this call
    /// appends), or creates it. If two writers created it at the same time, or one did twice because an
    /// answer was lost, the first one stays and the later ones are removed. One that shows a newer task stays as it
    /// is. Returns its id.
    async fn write_comment(
        &self,
        item: &ItemRef,
        marker: &Marker,
        body: &str,
        permit: &Permit,
    ) -> Result<String, TrackerError>;
    /// The same with the text of a marker.
    async fn upsert_comment(
        &self,
        item: &ItemRef,
        marker: &str,
        body: &str,
        permit: &Permit,
    ) -> Result<String, TrackerError> {
        let marker = Marker::new(self.kind(), marker)?;
        self.write_comment(item, &marker, body, permit).await
    }
    /// The repository of an item.
    async fn repository(&self, item: &ItemRef) -> Result<Repository, TrackerError>;
    /// A text file at a branch, at most 256 KiB; `None` if there is none.
    async fn file(
        &self,
        item: &ItemRef,
        branch: &str,
        path: &str,
    ) -> Result<Option<String>, TrackerError>;
    /// The newest pull request from this branch: an open one if there is any, else a closed one.
    async fn find_pull_request(
        &self,
        item: &ItemRef,
        head: &str,
    ) -> Result<Option<PullRequest>, TrackerError>;
    /// All open pull requests of the item's repository. None where no limits apply to repositories.
    async fn open_pull_requests(
        &self,
        _item: &ItemRef,
    ) -> Result<Vec<OpenPullRequest>, TrackerError> {
        Ok(Vec::new())
    }
    /// The open items that an item waits for: by its text ("Blocked by #1", of the same repository), and by the tracker's
    /// own dependencies. None where no limits apply to repositories.
    async fn blockers(&self, _item: &Item) -> Result<Vec<Blocker>, TrackerError> {
        Ok(Vec::new())
    }
    /// Opens a pull request, or returns the open one that exists already.
    async fn create_pull_request(
        &self,
        item: &ItemRef,
        new: &NewPullRequest,
        permit: &Permit,
    ) -> Result<PullRequest, TrackerError>;
    /// Changes title and text of an open pull request of ours, but not whether it is a draft.
    async fn update_pull_request(
        &self,
        item: &ItemRef,
        number: u64,
        new: &NewPullRequest,
        permit: &Permit,
    ) -> Result<(), TrackerError>;
    /// Why a push of ours to a branch of the item's repository would be refused, as the end of a sentence: a rule of the
    /// forge protects it. The branch need not exist. `None`: nothing is known to refuse it.
    async fn push_objection(
        &self,
        _item: &ItemRef,
        _branch: &str,
    ) -> Result<Option<String>, TrackerError> {
        Ok(None)
    }
    /// A person as git names people, `LOGIN <ADDRESS>`, with the address that the forge gives to accounts and that reaches
    /// nobody. It has no character that a shell or a commit's trailer would read.
    async fn noreply(&self, _person: &Person) -> Result<Option<String>, TrackerError> {
        Ok(None)
    }
    /// Whether an issue is kept in each repository that shows its tasks.
    fn keeps_dashboards(&self) -> bool {
        false
    }
    /// The first issue of ours in the repository of `of` whose text carries the marker, whether it is open or not, else a new
    /// one. Nobody else opens one meanwhile.
    async fn issue_of_ours(
        &self,
        of: &ItemRef,
        _new: &NewIssue<'_>,
        _permit: &Permit,
    ) -> Result<OurIssue, TrackerError> {
        let what = format!("the issues of {}", of.repo_path);
        Err(TrackerError::NotFound {
            tracker: self.kind(),
            what,
        })
    }
    /// Replaces the text of an issue of ours. Returns when, by the tracker's clock.
    async fn edit_issue(
        &self,
        item: &ItemRef,
        _body: &str,
        _permit: &Permit,
    ) -> Result<DateTime<Utc>, TrackerError> {
        Err(TrackerError::NotFound {
            tracker: self.kind(),
            what: item.to_string(),
        })
    }
    /// Which of these issues of the repository of `of` not everybody may read who sees the repository.
    async fn confidential(
        &self,
        _of: &ItemRef,
        _numbers: &[u64],
    ) -> Result<Vec<u64>, TrackerError> {
        Ok(Vec::new())
    }
    /// Whether this is the account that we write with, or wrote with before.
    async fn is_us(&self, person: &Person) -> Result<bool, TrackerError> {
        Ok(self.login().await?.eq_ignore_ascii_case(&person.login))
    }
    /// Removes a branch of the item's repository, if it is still at `commit`. A push between the look and the removal is
    /// lost: forges remove whatever a branch is at.
    async fn remove_branch(
        &self,
        _item: &ItemRef,
        _branch: &str,
        _commit: &str,
        _permit: &Permit,
    ) -> Result<BranchRemoval, TrackerError> {
        Ok(BranchRemoval::Moved)
    }
    /// Marks an open pull request of ours as ready for review; one that is no draft stays as it is.
    async fn mark_ready(
        &self,
        _item: &ItemRef,
        _number: u64,
        _permit: &Permit,
    ) -> Result<(), TrackerError> {
        Ok(())
    }
    /// The open pull requests of the repositories of these items; of a tracker that has one account for all, perhaps
    /// only our own. None where nobody reviews.
    async fn open_pulls(&self, _repos: &[ItemRef]) -> Result<OpenPulls, TrackerError> {
        Ok(OpenPulls::default())
    }
    /// How the checks of a commit of a pull request stand.
    async fn checks(&self, _pull: &ItemRef, _commit: &str) -> Result<Checks, TrackerError> {
        Ok(Checks::default())
    }
    /// The same of the commit that a branch is at.
    async fn checks_of_branch(
        &self,
        _pull: &ItemRef,
        _branch: &str,
    ) -> Result<Checks, TrackerError> {
        Ok(Checks::default())
    }
    /// The end of a failed check's log, 256 KiB at most: see [`agentmine_domain::RedCheck::log`].
    async fn check_log(&self, _pull: &ItemRef, _log: &str) -> Result<Option<String>, TrackerError> {
        Ok(None)
    }
    /// The commit that a branch of the item's repository is at; `None` if there is no such branch.
    async fn branch_commit(
        &self,
        _of: &ItemRef,
        _branch: &str,
    ) -> Result<Option<String>, TrackerError> {
        Ok(None)
    }
    /// Whether the target branch has changes that conflict with a pull request; `None` while the tracker finds out.
    async fn conflicts(&self, _pull: &ItemRef) -> Result<Option<bool>, TrackerError> {
        Ok(None)
    }
    /// The threads of reviews on a pull request.
    async fn threads(&self, _pull: &ItemRef) -> Result<Vec<Thread>, TrackerError> {
        Ok(Vec::new())
    }
    /// Replies to a thread, once for each marker: see [`Self::upsert_comment`].
    async fn reply_to_thread(
        &self,
        pull: &ItemRef,
        thread: &str,
        _marker: &str,
        _body: &str,
        _permit: &Permit,
    ) -> Result<(), TrackerError> {
        let what = format!("thread {thread} of {pull}");
        Err(TrackerError::NotFound {
            tracker: self.kind(),
            what,
        })
    }
    /// Marks a thread as resolved.
    async fn resolve_thread(
        &self,
        pull: &ItemRef,
        thread: &str,
        _permit: &Permit,
    ) -> Result<(), TrackerError> {
        let what = format!("thread {thread} of {pull}");
        Err(TrackerError::NotFound {
            tracker: self.kind(),
            what,
        })
    }
    /// Checks the credentials, at start-up. Returns our own login name.
    async fn login(&self) -> Result<String, TrackerError>;
    /// The same, as it was when it was first asked for.
    ///
    /// # Errors
    /// As of `login`.
    async fn own_login(&self) -> Result<String, TrackerError> {
        self.login().await
    }
    /// Gives up what was asked for with the credentials, as minted tokens. At the end of the process.
    async fn close(&self) {}
    /// Checks the credentials and what they allow. Writes nothing.
    async fn access(&self) -> Result<Access, TrackerError> {
        Ok(Access {
            login: self.login().await?,
            ..Access::default()
        })
    }
}

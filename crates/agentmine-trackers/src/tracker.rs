//! The seam: what the rest of the program asks of a tracker, in no tracker's own shapes.

use agentmine_domain::{ItemRef, RepositoryRef, TrackerKind};
use agentmine_runtime::permit::Permit;
use async_trait::async_trait;
use chrono::{DateTime, Utc};

use crate::error::TrackerError;
use crate::item::{
    Access, Blocker, BranchRemoval, Candidate, Comment, Item, LabelRequest, Moved, NewIssue,
    NewPullRequest, OpenPullRequest, OurIssue, PullRequest, RecentComment, Repository, Skipped,
};
use crate::marker::Marker;
use crate::people::{Admission, Edit, Person, Requested};
use crate::rounds::{CheckMarks, Checks, OpenPulls, Thread};

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
    /// omitted, and is in [`Self::skipped`]; an error means that nothing could be read.
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
    /// Whether an item has the label `label`, and since which event.
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
    /// Where an issue is now that was moved to another repository. One of another owner that is not configured is out of
    /// reach, and so is one that more people can read.
    async fn moved_to(&self, _item: &ItemRef) -> Result<Moved, TrackerError> {
        Ok(Moved::No)
    }
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
    /// Acknowledges a comment by a reaction of AgentMine, once. A review can have none: [`crate::CommentKind::takes_reactions`].
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
    /// Edits AgentMine's one comment that carries `marker` (a hidden HTML comment that this call
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
    /// Changes the text of an open pull request of AgentMine. People may change its title, so it stays; on a forge, so does whether
    /// it is a draft.
    async fn update_pull_request(
        &self,
        item: &ItemRef,
        number: u64,
        new: &NewPullRequest,
        permit: &Permit,
    ) -> Result<(), TrackerError>;
    /// Why a push of AgentMine to a branch of the item's repository would be refused, as the end of a sentence: a rule of the
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
    /// The first issue of AgentMine in the repository of `of` whose text carries the marker, whether it is open or not, else a new
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
    /// Replaces the text of an issue of AgentMine. Returns when, by the tracker's clock.
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
    /// Marks an open pull request of AgentMine as ready for review; one that is no draft stays as it is.
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
    /// Marks that show, without a look at each, which of our open pull requests have the same checks and conflicts as
    /// before. None where such looks do not count.
    async fn check_marks(&self) -> Result<CheckMarks, TrackerError> {
        Ok(CheckMarks::default())
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
    /// Gives up what was requested with the credentials, as minted tokens. At the end of the process.
    async fn close(&self) {}
    /// Checks the credentials and what they allow. Writes nothing.
    async fn access(&self) -> Result<Access, TrackerError> {
        Ok(Access {
            login: self.login().await?,
            ..Access::default()
        })
    }
}

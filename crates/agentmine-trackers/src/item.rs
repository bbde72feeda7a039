//! What a tracker speaks of, in no tracker's own shapes: items, comments, branches and pull requests.

use std::path::PathBuf;

use agentmine_domain::ItemRef;
use agentmine_runtime::live_secret::LiveSecret;
use agentmine_runtime::tls::Authority;
use chrono::{DateTime, Utc};
use url::Url;

use crate::error::TrackerError;
use crate::marker::FLEET_MARKER;
use crate::people::{Person, Requested};

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
    /// How people name it, or what it is if not everybody may learn its name who reads of it.
    pub name: String,
}

impl Blocker {
    pub(crate) fn here(number: u64) -> Self {
        Self {
            number: Some(number),
            name: format!("#{number}"),
        }
    }

    /// In another repository that everybody may read.
    pub(crate) fn elsewhere(name: String) -> Self {
        Self { number: None, name }
    }

    /// In another repository. Its name is not for everybody who reads of it.
    pub(crate) fn unnamed() -> Self {
        Self::elsewhere("an item in another repository".to_owned())
    }

    /// A confidential issue of the same repository.
    pub(crate) fn confidential() -> Self {
        Self::elsewhere("a confidential issue".to_owned())
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

/// Where an item is that a task was made for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Moved {
    /// In its place, or nobody knows where.
    No,
    /// In another repository, where we may write.
    To(ItemRef),
    /// In another repository, where nothing is written, and why.
    OutOfReach(String),
}

/// Why nobody is to work on an item that was checked. An error leaves it open, unless it says that only some people may
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
    /// It has the label.
    By {
        /// What put it there: see [`Candidate::trigger`].
        trigger: String,
        /// When, in whole seconds at most and by the tracker's clock; `None` if the tracker does not know.
        since: Option<DateTime<Utc>>,
    },
    /// It has the label, and the tracker does not report yet what put it there.
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
    /// Names it among all comments of its item: each kind has its own numbers.
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
    /// A comment on a pull request's diff.
    OnLine {
        /// The file.
        path: String,
        /// Where in the file.
        place: LinePlace,
    },
}

/// Where in a file of a diff a comment is. A `hunk` is the part of the diff that it was written on, up to its line; empty if
/// the tracker does not give it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinePlace {
    /// On the whole file.
    File,
    /// On these lines of the file, as it is after the change.
    Lines {
        /// The first one.
        first: u64,
        /// The last one.
        last: u64,
    },
    /// On a line that the change removes.
    Removed {
        /// Its number before the change.
        line: u64,
        /// The part of the diff.
        hunk: String,
    },
    /// On a line that the diff no longer has.
    Outdated {
        /// The part of the diff as it was.
        hunk: String,
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
    /// The commit of its branch, of a merged one that which was merged; empty if the tracker does not say.
    pub head_sha: String,
}

impl PullRequest {
    /// Whether somebody closed it without merging it.
    #[must_use]
    pub fn is_rejected(&self) -> bool {
        !self.open && !self.merged
    }

    /// Whether somebody merged it while its branch was at another commit.
    #[must_use]
    pub fn was_merged_without(&self, commit: &str) -> bool {
        self.merged && !self.head_sha.is_empty() && self.head_sha != commit
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

/// An issue of AgentMine that was found by its marker, or opened.
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

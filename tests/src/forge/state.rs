//! The forge's state.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use chrono::{DateTime, Utc};
use serde_json::Value;

use super::apps::{App, Grant};
use super::checks::{CheckView, InvalidPipeline};
use super::fault::Fault;
use super::git;
use super::graphql::AskedGraphql;
use super::hooks::Hooks;
use super::people::EditView;

/// A user, known by a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// The login name.
    pub login: String,
    /// Whether it may write, over REST and git.
    pub may_write: bool,
    /// Whether `GET /user` is refused, as for an App's installation token.
    pub is_app: bool,
    /// The program that has the token, for the records; empty if nobody asked for one of its own.
    pub client: String,
    /// What a token of an App's installation is limited to.
    pub grant: Option<Grant>,
}

impl Account {
    /// Of a request that is not a user's.
    pub(super) fn nobody() -> Self {
        Self {
            login: String::new(),
            may_write: false,
            is_app: true,
            client: String::new(),
            grant: None,
        }
    }
}

/// A push over HTTP that changed a ref.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Push {
    /// When it was accepted.
    pub at: DateTime<Utc>,
    /// The [`Account::client`] that sent it.
    pub client: String,
    /// The branch.
    pub branch: String,
    /// The commit before; zeros for a new branch.
    pub old: String,
    /// The commit after; zeros for a removed branch.
    pub new: String,
}

/// How the network between one client and the forge is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Partition {
    /// Requests get no answer, and are never acted on.
    Silence,
    /// Connections break before anything is done.
    Reset,
    /// Requests are acted on, and the answers are lost.
    AnswersLost,
}

/// What GitLab does with `pagination=keyset` where issues of a project are listed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Keyset {
    /// Nothing, as before 18.3.
    #[default]
    Ignored,
    /// It refuses the request.
    Refused,
    /// It serves such pages.
    Served,
}

/// One write that arrived over REST, in order.
#[derive(Debug, Clone, PartialEq)]
pub struct Write {
    /// When it arrived.
    pub at: DateTime<Utc>,
    /// Who sent it.
    pub login: String,
    /// The [`Account::client`] that sent it.
    pub client: String,
    /// `POST`, `PATCH`, `PUT` or `DELETE`.
    pub method: String,
    /// The path below the API's base, unescaped, e.g. `/repos/octo/demo/pulls`.
    pub path: String,
    /// The JSON body; null without one.
    pub body: Value,
    /// The answer's status, even if the answer was dropped.
    pub status: u16,
}

/// One request of any kind, in the order in which they finished.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// When it was answered.
    pub at: DateTime<Utc>,
    /// The method.
    pub method: String,
    /// The whole path with its query, unchanged.
    pub target: String,
    /// What was answered.
    pub status: u16,
}

/// A label that was added or removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelEvent {
    /// The event's id.
    pub id: u64,
    /// `labeled` or `unlabeled`.
    pub event: String,
    /// Which label.
    pub label: String,
    /// Who did it.
    pub actor: String,
    /// When.
    pub at: DateTime<Utc>,
}

/// A comment as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommentView {
    /// Its id.
    pub id: u64,
    /// Who wrote it.
    pub author: String,
    /// Its text.
    pub body: String,
    /// How often it was edited.
    pub edits: u32,
    /// When it was written.
    pub created_at: DateTime<Utc>,
    /// When it was last edited.
    pub updated_at: DateTime<Utc>,
    /// Whether members of the project alone see it: GitLab's internal notes.
    pub internal: bool,
}

/// A pull request as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullView {
    /// Its number here.
    pub number: u64,
    /// Its number on GitLab, where merge requests are numbered apart.
    pub iid: u64,
    /// Source branch.
    pub head: String,
    /// The commit that the source branch is at; empty once the branch is gone.
    pub head_sha: String,
    /// Target branch.
    pub base: String,
    /// Title.
    pub title: String,
    /// Text.
    pub body: String,
    /// Whether it is open.
    pub open: bool,
    /// Whether it is a draft.
    pub draft: bool,
    /// Who opened it.
    pub author: String,
    /// Its web address.
    pub url: String,
}

/// A review of a pull request, or a comment on one of its lines.
#[derive(Debug, Clone)]
pub(super) struct ReviewView {
    pub(super) id: u64,
    pub(super) author: String,
    pub(super) body: String,
    /// `CHANGES_REQUESTED` and the like; of a comment on a line, its file and line.
    pub(super) of: ReviewOf,
    pub(super) at: DateTime<Utc>,
    /// The comment that began the thread, of a reply in it.
    pub(super) in_reply_to: Option<u64>,
}

#[derive(Debug, Clone)]
pub(super) enum ReviewOf {
    Verdict(String),
    Line(String, u64),
}

#[derive(Debug, Clone)]
pub(super) struct Pull {
    pub(super) head: String,
    pub(super) base: String,
    pub(super) draft: bool,
    pub(super) merged: bool,
    /// Its head whatever is pushed to its branch: the commit that was merged, or one that it is late to replace.
    pub(super) shown_head: Option<String>,
    pub(super) reviews: Vec<ReviewView>,
    /// The threads that are resolved, by the comment that began them.
    pub(super) resolved: HashSet<u64>,
}

impl Pull {
    /// One that nobody has reviewed.
    pub(super) fn new(head: &str, base: &str, draft: bool) -> Self {
        Self {
            head: head.to_owned(),
            base: base.to_owned(),
            draft,
            merged: false,
            shown_head: None,
            reviews: Vec::new(),
            resolved: HashSet::new(),
        }
    }

    /// Its head is at this commit from now on.
    pub(super) fn merge(&mut self, head: Option<String>) {
        self.merged = true;
        self.shown_head = head;
    }
}

#[derive(Debug, Clone)]
pub(super) struct Issue {
    pub(super) id: u64,
    /// Its number here and on GitHub: issues and pull requests are numbered together.
    pub(super) number: u64,
    /// Its number on GitLab: issues and merge requests are numbered apart.
    pub(super) iid: u64,
    pub(super) title: String,
    pub(super) body: String,
    pub(super) author: String,
    pub(super) open: bool,
    pub(super) labels: Vec<String>,
    pub(super) assignees: Vec<String>,
    pub(super) comments: Vec<CommentView>,
    pub(super) events: Vec<LabelEvent>,
    pub(super) edits: Vec<EditView>,
    pub(super) created_at: DateTime<Utc>,
    pub(super) updated_at: DateTime<Utc>,
    pub(super) pull: Option<Pull>,
    /// GitLab's: members of the project alone see it.
    pub(super) confidential: bool,
    /// The conversation is locked.
    pub(super) locked: bool,
    /// The repository and the number that it was moved to.
    pub(super) moved: Option<(String, u64)>,
    /// GitHub shows that there was one.
    pub(super) deleted: bool,
}

#[derive(Debug)]
pub(super) struct Repo {
    pub(super) id: u64,
    pub(super) full_name: String,
    pub(super) former_names: Vec<String>,
    pub(super) default_branch: String,
    pub(super) git_dir: PathBuf,
    pub(super) issues: Vec<Issue>,
    pub(super) allows_drafts: bool,
    pub(super) checks: Vec<CheckView>,
    /// Pipelines of GitLab without a job.
    pub(super) invalid: Vec<InvalidPipeline>,
    /// See [`super::Forge::protect`].
    pub(super) protected: Vec<String>,
    /// It takes no writes.
    pub(super) archived: bool,
    /// Nobody sees it.
    pub(super) hidden: bool,
    /// Everybody may read it.
    pub(super) public: bool,
}

impl Repo {
    pub(super) fn issue(&self, number: u64) -> Option<&Issue> {
        self.issues.iter().find(|issue| issue.number == number)
    }

    pub(super) fn issue_mut(&mut self, number: u64) -> Option<&mut Issue> {
        self.issues.iter_mut().find(|issue| issue.number == number)
    }

    pub(super) fn owner(&self) -> &str {
        self.full_name.split('/').next().unwrap_or_default()
    }

    pub(super) fn sha(&self, branch: &str) -> Option<String> {
        git::branch_sha(&self.git_dir, branch)
    }
}

/// The whole state, guarded by one mutex. Nothing is awaited while it is locked.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) accounts: HashMap<String, Account>,
    /// By repository and number: what blocks it, in the same way.
    pub(super) blocked: HashMap<(String, u64), Vec<(String, u64)>>,
    pub(super) apps: Vec<App>,
    /// Tokens of installations, with what was requested.
    pub(super) minted: Vec<(String, Value)>,
    pub(super) revoked: Vec<String>,
    pub(super) graphql: Vec<AskedGraphql>,
    pub(super) repos: Vec<Repo>,
    pub(super) writes: Vec<Write>,
    pub(super) seen: Vec<Seen>,
    pub(super) leaks: Vec<String>,
    pub(super) faults: Vec<Fault>,
    /// By client.
    pub(super) partitions: HashMap<String, Partition>,
    /// Requests left until the limit, and when it is reset; `None` means unlimited.
    pub(super) rate: Option<(u64, DateTime<Utc>)>,
    /// The same of an App's installations, each of which has its own.
    pub(super) rates: HashMap<u64, (u64, DateTime<Utc>)>,
    /// GitLab's quick actions that ran: `LOGIN /close`.
    pub(super) quick_actions: Vec<String>,
    /// The first note of the discussion that a note belongs to.
    pub(super) threads: HashMap<u64, u64>,
    /// What was asked before of pull requests as they are, if the answer is known only then: see
    /// [`super::Forge::find_conflicts_late`].
    pub(super) asked_conflicts: Option<HashSet<String>>,
    /// What becomes of GitLab's `pagination=keyset`.
    pub(super) keyset: Keyset,
    /// Namespaces that belong to users, and are no groups.
    pub(super) users: HashSet<String>,
    /// By repository and login.
    pub(super) permissions: HashMap<(String, String), String>,
    /// Reactions to comments.
    pub(super) reactions: Vec<super::reactions::Reaction>,
    /// Teams and groups, with their members.
    pub(super) teams: HashMap<String, Vec<String>>,
    pub(super) hooks: Hooks,
    next_id: u64,
}

impl State {
    /// What is left of a token's limit, by whose it is, and when it is reset.
    pub(super) fn rate_of(
        &mut self,
        installation: Option<u64>,
    ) -> Option<&mut (u64, DateTime<Utc>)> {
        let own = installation.and_then(|id| self.rates.get_mut(&id));
        own.or(self.rate.as_mut())
    }

    pub(super) fn id(&mut self) -> u64 {
        self.next_id += 1;
        1000 + self.next_id
    }

    /// The first of as many ids.
    pub(super) fn ids(&mut self, count: u64) -> u64 {
        let first = self.id();
        self.next_id += count;
        first
    }

    pub(super) fn repo(&self, full_name: &str) -> Option<&Repo> {
        let same = |repo: &&Repo| repo.full_name.eq_ignore_ascii_case(full_name);
        self.repos.iter().find(same)
    }

    pub(super) fn repo_mut(&mut self, full_name: &str) -> Option<&mut Repo> {
        let same = |repo: &&mut Repo| repo.full_name.eq_ignore_ascii_case(full_name);
        self.repos.iter_mut().find(same)
    }

    /// The repository that once had this name and has another one now.
    pub(super) fn renamed(&self, full_name: &str) -> Option<&Repo> {
        let was = |repo: &&Repo| repo.former_names.iter().any(|name| name == full_name);
        self.repos.iter().find(was)
    }

    pub(super) fn add_repo(&mut self, full_name: &str, root: &Path, branch: &str) -> PathBuf {
        let id = self.id();
        let git_dir = root.join(format!("{id}.git"));
        self.repos.push(Repo {
            id,
            full_name: full_name.to_owned(),
            former_names: Vec::new(),
            default_branch: branch.to_owned(),
            git_dir: git_dir.clone(),
            issues: Vec::new(),
            allows_drafts: true,
            checks: Vec::new(),
            invalid: Vec::new(),
            protected: Vec::new(),
            archived: false,
            hidden: false,
            public: false,
        });
        git_dir
    }

    /// The issues that block another one.
    pub(super) fn blockers(&self, repo: &str, number: u64) -> Vec<(&Repo, &Issue)> {
        let by = self.blocked.get(&(repo.to_owned(), number));
        let found = |(name, number): &(String, u64)| {
            let repo = self.repo(name)?;
            Some((repo, repo.issue(*number)?))
        };
        by.into_iter().flatten().filter_map(found).collect()
    }

    /// Makes an issue or, with `pull`, a pull request; labels come with their events.
    pub(super) fn add_issue(
        &mut self,
        repo: &str,
        author: &str,
        text: (&str, &str),
        labels: &[String],
        pull: Option<Pull>,
    ) -> Option<u64> {
        self.repo(repo)?;
        let id = self.id();
        let now = Utc::now();
        let repo_mut = self.repo_mut(repo)?;
        let number = repo_mut.issues.len() as u64 + 1;
        let of_kind = |it: &&Issue| it.pull.is_some() == pull.is_some();
        let iid = repo_mut.issues.iter().filter(of_kind).count() as u64 + 1;
        repo_mut.issues.push(Issue {
            id,
            number,
            iid,
            title: text.0.to_owned(),
            body: text.1.to_owned(),
            author: author.to_owned(),
            open: true,
            labels: Vec::new(),
            assignees: Vec::new(),
            comments: Vec::new(),
            events: Vec::new(),
            edits: Vec::new(),
            created_at: now,
            updated_at: now,
            pull,
            confidential: false,
            locked: false,
            moved: None,
            deleted: false,
        });
        for label in labels {
            self.label(repo, number, label, author, true);
        }
        Some(number)
    }

    /// Puts a label on or takes it off; `false` if that changed nothing.
    pub(super) fn label(
        &mut self,
        repo: &str,
        number: u64,
        label: &str,
        actor: &str,
        on: bool,
    ) -> bool {
        let id = self.id();
        let Some(issue) = self.repo_mut(repo).and_then(|repo| repo.issue_mut(number)) else {
            return false;
        };
        let at = issue
            .labels
            .iter()
            .position(|own| own.eq_ignore_ascii_case(label));
        match (at, on) {
            (None, true) => issue.labels.push(label.to_owned()),
            (Some(at), false) => drop(issue.labels.remove(at)),
            (Some(_), true) | (None, false) => return false,
        }
        issue.updated_at = Utc::now();
        issue.events.push(LabelEvent {
            id,
            event: if on { "labeled" } else { "unlabeled" }.to_owned(),
            label: label.to_owned(),
            actor: actor.to_owned(),
            at: issue.updated_at,
        });
        true
    }

    pub(super) fn comment(
        &mut self,
        repo: &str,
        number: u64,
        author: &str,
        body: &str,
    ) -> Option<CommentView> {
        let id = self.id();
        let issue = self.repo_mut(repo)?.issue_mut(number)?;
        let now = Utc::now();
        let comment = CommentView {
            id,
            author: author.to_owned(),
            body: body.to_owned(),
            edits: 0,
            created_at: now,
            updated_at: now,
            internal: false,
        };
        issue.updated_at = now;
        issue.comments.push(comment.clone());
        Some(comment)
    }
}

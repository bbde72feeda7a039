//! A folder of Markdown issues beside a git repository.
//!
//! Issues are `NNN-some-title.md` (or any `.md`) with front matter: `labels`, `state`, `title`,
//! `assignees`, `number`. Labels are written back into the front matter and nothing else is changed;
//! comments are in `NNN-some-title.comments/`, pull requests in `.agentmine/pulls/`. Writes are atomic
//! and under a lock, so several processes may work on one folder. Accepted race: if an editor saves an
//! issue at the moment its labels change, one of the two versions of the file is lost.

mod error;
mod files;
mod front_matter;
mod issues;
mod links;
mod records;
mod repo;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use agentmine_domain::{ItemKind, ItemRef, RepositoryRef, TrackerKind};
use agentmine_runtime::config;
use agentmine_runtime::permit::Permit;
use async_trait::async_trait;
use url::Url;

use crate::error::TrackerError;
use crate::item::{
    Candidate, Comment, GitSource, Item, LabelRequest, NewPullRequest, PullRequest, Repository,
};
use crate::marker::Marker;
use crate::people::{Person, Requested};
use crate::tracker::Tracker;
use error::unavailable;
use files::{Folders, Locked};
use issues::{Given, Issue, Single, Source};
use repo::Repo;

const HOST: &str = "localhost";

/// A request by anybody who can write to the folder.
fn by_operator() -> Requested {
    let person = Person {
        login: "user".to_owned(),
        id: None,
        is_bot: false,
    };
    Requested {
        by: Some(person),
        at: None,
    }
}

/// A local folder and its repository.
#[derive(Debug, Clone)]
pub struct LocalTracker(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    repo: Repo,
    folders: Folders,
    source: Source,
}

impl LocalTracker {
    /// A folder of issues.
    ///
    /// # Errors
    /// [`TrackerError::Invalid`] if the folder is not a git repository, or has no commit.
    pub fn new(config: &config::LocalTrackerConfig) -> Result<Self, TrackerError> {
        let repo = Repo::open(&config.repository)?;
        let folders = Folders::new(&repo.path, config.issues.clone());
        let source = Source::Folder(folders.issues());
        Ok(Self(Arc::new(Inner {
            repo,
            folders,
            source,
        })))
    }

    /// One issue file, in any folder, which asks for work whatever its labels are. The file is never
    /// written to: labels are kept as long as this tracker exists, comments under `.agentmine/local/`
    /// in the repository. Each new tracker is a new request for work.
    ///
    /// # Errors
    /// [`TrackerError::Invalid`] if the folder is not a git repository or has no commit, or if the file
    /// does not exist; [`TrackerError::Refused`] if it cannot be parsed.
    pub fn single(repository: &Path, issue_file: &Path) -> Result<Self, TrackerError> {
        let repo = Repo::open(repository)?;
        let single = Single::new(issue_file)?;
        let tracker = Self(Arc::new(Inner {
            folders: Folders::new(&repo.path, None),
            repo,
            source: Source::Single(single),
        }));
        // A malformed file is reported now, not when the fleet runs.
        let inner = &tracker.0;
        inner.source.issues(&inner.folders.lock()?, |_| true)?;
        Ok(tracker)
    }

    /// A task that a person made, which is in no file: its item, title and text are given. It asks for work whatever its
    /// labels are, which are kept as long as this tracker exists, as for [`Self::single`].
    ///
    /// # Errors
    /// [`TrackerError::Invalid`] if the folder is not a git repository or has no commit.
    pub fn given(
        repository: &Path,
        item: ItemRef,
        title: String,
        body: String,
    ) -> Result<Self, TrackerError> {
        let repo = Repo::open(repository)?;
        Ok(Self(Arc::new(Inner {
            folders: Folders::new(&repo.path, None),
            repo,
            source: Source::Given(Given::new(item, title, body)),
        })))
    }

    /// Checks that a branch is checked out, since work starts from it.
    ///
    /// # Errors
    /// [`TrackerError::Invalid`] if none is.
    pub fn require_branch(&self) -> Result<(), TrackerError> {
        self.0.repo.require_branch()
    }

    /// Why files in the folder of issues cannot be read, one line each. Such a file is skipped.
    ///
    /// # Errors
    /// If the folder itself cannot be read.
    pub fn unreadable(&self) -> Result<Vec<String>, TrackerError> {
        self.0.source.unreadable()
    }

    /// Runs file operations on a thread where blocking is allowed.
    async fn run<T, F>(&self, work: F) -> Result<T, TrackerError>
    where
        T: Send + 'static,
        F: FnOnce(&Inner) -> Result<T, TrackerError> + Send + 'static,
    {
        let inner = self.0.clone();
        let done = tokio::task::spawn_blocking(move || work(&inner)).await;
        done.unwrap_or_else(|error| Err(unavailable(format!("a file operation crashed: {error}"))))
    }
}

impl Inner {
    /// The lock, if `permit` still holds once it is had.
    fn lock_to_write(&self, permit: &Permit) -> Result<Locked<'_>, TrackerError> {
        let locked = self.folders.lock()?;
        let tracker = TrackerKind::Local;
        match permit.check() {
            Ok(()) => Ok(locked),
            Err(lapsed) => Err(TrackerError::NotPermitted { tracker, lapsed }),
        }
    }

    fn item_ref(&self, number: u64) -> ItemRef {
        ItemRef {
            tracker: TrackerKind::Local,
            host: HOST.to_owned(),
            repo_id: self.repo.id.clone(),
            repo_path: self.repo.path.to_string_lossy().into_owned(),
            kind: ItemKind::Issue,
            number,
        }
    }

    /// The item of this repository that a person names: by the folder and its number, or by its file.
    fn find(&self, name: &str) -> Result<Option<ItemRef>, TrackerError> {
        if let Source::Given(_) = self.source {
            return Ok(None);
        }
        let file = match Url::parse(name) {
            Ok(url) if url.scheme() == "file" => url.to_file_path().unwrap_or_default(),
            Ok(_) | Err(_) => PathBuf::from(name),
        };
        let locked = self.folders.lock()?;
        let named = file.canonicalize().ok();
        let by_file = |issue: &Issue| named.is_some() && issue.file.canonicalize().ok() == named;
        let issues = self.source.issues(&locked, |_| true)?;
        if let Some(issue) = issues.iter().find(|issue| by_file(issue)) {
            return Ok(Some(self.item_ref(issue.number)));
        }
        let Some((folder, number)) = name.rsplit_once('#') else {
            return Ok(None);
        };
        let is_here = Path::new(folder).canonicalize();
        let is_here = is_here.is_ok_and(|folder| folder == self.repo.path);
        let Some(number) = number.parse().ok().filter(|_| is_here) else {
            return Ok(None);
        };
        match issues.iter().any(|issue| issue.number == number) {
            true => Ok(Some(self.item_ref(number))),
            false => Err(TrackerError::NotFound {
                tracker: TrackerKind::Local,
                what: name.to_owned(),
            }),
        }
    }

    /// Whether there is an issue with this number. An unreadable one does not count.
    fn has(&self, number: u64) -> bool {
        let found = self
            .folders
            .lock()
            .and_then(|locked| self.source.issues(&locked, |_| true));
        found.is_ok_and(|issues| issues.iter().any(|issue| issue.number == number))
    }

    /// The number of an item, if the item is of this repository.
    fn number(&self, item: &ItemRef) -> Result<u64, TrackerError> {
        let is_ours = match &self.source {
            Source::Folder(_) | Source::Single(_) => {
                // A task of a person asks for its repository alone.
                item.repo_id == self.repo.id
                    && matches!(item.kind, ItemKind::Issue | ItemKind::Task)
            }
            Source::Given(given) => is_same(item, &given.item),
        };
        if is_ours {
            Ok(item.number)
        } else {
            Err(TrackerError::NotFound {
                tracker: TrackerKind::Local,
                what: item.to_string(),
            })
        }
    }

    fn candidates(&self, label: &str) -> Result<Vec<Candidate>, TrackerError> {
        if let Source::Given(_) = self.source {
            // It is in the store already.
            return Ok(Vec::new());
        }
        let locked = self.folders.lock()?;
        let asks = |document: &_| self.source.asks(document, label);
        let mut all = self.source.issues(&locked, asks)?;
        all.retain(|issue| open(issue) && self.source.asks(&issue.document, label));
        all.sort_by_key(|issue| issue.number);
        let ledger = locked.ledger()?;
        Ok(all
            .into_iter()
            .map(|issue| Candidate {
                item: self.item_ref(issue.number),
                trigger: self.source.trigger(&issue, label, &ledger),
                requested: by_operator(),
                title: title(&issue),
                url: records::address(&issue.file),
                labels: self.source.labels(&issue),
            })
            .collect())
    }

    fn label_request(&self, number: u64, label: &str) -> Result<LabelRequest, TrackerError> {
        let locked = self.folders.lock()?;
        let issue = self.source.issue(&locked, number)?;
        if !self.source.asks(&issue.document, label) {
            return Ok(LabelRequest::Absent);
        }
        let trigger = self.source.trigger(&issue, label, &locked.ledger()?);
        // The file may have changed since for another reason.
        let changed = std::fs::metadata(&issue.file).and_then(|file| file.modified());
        Ok(LabelRequest::By {
            trigger,
            since: changed.ok().map(Into::into),
        })
    }

    fn item(&self, number: u64) -> Result<Item, TrackerError> {
        let issue = self.source.issue(&self.folders.lock()?, number)?;
        let (item, url) = match &self.source {
            Source::Folder(_) | Source::Single(_) => {
                (self.item_ref(number), records::address(&issue.file))
            }
            Source::Given(given) => {
                let repo_path = self.repo.path.to_string_lossy().into_owned();
                let item = ItemRef {
                    repo_path,
                    ..given.item.clone()
                };
                (item, format!("task://{number}"))
            }
        };
        Ok(Item {
            item,
            title: title(&issue),
            author: issue
                .document
                .head
                .author
                .clone()
                .unwrap_or_else(|| "user".to_owned()),
            open: open(&issue),
            withdrawn: None,
            labels: self.source.labels(&issue),
            assignees: issue.document.head.assignees.clone(),
            url,
            branches: None,
            body: issue.document.body,
        })
    }

    fn comments(&self, number: u64) -> Result<Vec<Comment>, TrackerError> {
        let issue = self.source.issue(&self.folders.lock()?, number)?;
        records::comments(&self.source.comments(&issue, &self.folders))
    }

    fn upsert(
        &self,
        number: u64,
        marker: &Marker,
        body: &str,
        permit: &Permit,
    ) -> Result<String, TrackerError> {
        let locked = self.lock_to_write(permit)?;
        let issue = self.source.issue(&locked, number)?;
        let folder = self.source.comments(&issue, &self.folders);
        records::upsert(&locked, &folder, marker, body)
    }
}

/// Whether it is this item. Its repository may have moved.
fn is_same(item: &ItemRef, given: &ItemRef) -> bool {
    let identity = |it: &ItemRef| (it.tracker, it.host.clone(), it.repo_id.clone(), it.number);
    identity(item) == identity(given)
}

fn open(issue: &Issue) -> bool {
    issue.document.head.state == front_matter::State::Open
}

fn title(issue: &Issue) -> String {
    front_matter::title(&issue.document, &files::stem(&issue.file))
}

#[async_trait]
impl Tracker for LocalTracker {
    fn kind(&self) -> TrackerKind {
        TrackerKind::Local
    }

    fn host(&self) -> &str {
        HOST
    }

    /// All local trackers share a host: the repository distinguishes them, and the number says whether a
    /// tracker of a single file is meant.
    fn serves(&self, item: &ItemRef) -> bool {
        let inner = &self.0;
        if let Source::Given(given) = &inner.source {
            return is_same(item, &given.item);
        }
        item.tracker == TrackerKind::Local
            && item.host == HOST
            && item.repo_id == inner.repo.id
            && (item.kind == ItemKind::Task || inner.has(item.number))
    }

    async fn find_repository(&self, name: &str) -> Result<Option<RepositoryRef>, TrackerError> {
        let repo = &self.0.repo;
        let named = Path::new(name).canonicalize();
        let is_here = named.is_ok_and(|folder| folder == repo.path);
        Ok(is_here.then(|| RepositoryRef {
            tracker: TrackerKind::Local,
            host: HOST.to_owned(),
            repo_id: repo.id.clone(),
            repo_path: repo.path.to_string_lossy().into_owned(),
        }))
    }

    async fn find(&self, name: &str) -> Result<Option<ItemRef>, TrackerError> {
        let name = name.to_owned();
        self.run(move |inner| inner.find(&name)).await
    }

    fn scans(&self, path: &str) -> bool {
        Path::new(path) == self.0.repo.path
    }

    async fn candidates(&self, label: &str) -> Result<Vec<Candidate>, TrackerError> {
        let label = label.to_owned();
        self.run(move |inner| inner.candidates(&label)).await
    }

    async fn label_request(
        &self,
        item: &ItemRef,
        label: &str,
    ) -> Result<LabelRequest, TrackerError> {
        let number = self.0.number(item)?;
        let label = label.to_owned();
        self.run(move |inner| inner.label_request(number, &label))
            .await
    }

    async fn requested(
        &self,
        _item: &ItemRef,
        _trigger: &str,
    ) -> Result<Option<Requested>, TrackerError> {
        Ok(Some(by_operator()))
    }

    fn requests_by_label(&self) -> bool {
        match &self.0.source {
            Source::Folder(_) => true,
            Source::Single(_) | Source::Given(_) => false,
        }
    }

    async fn item(&self, item: &ItemRef) -> Result<Item, TrackerError> {
        let number = self.0.number(item)?;
        self.run(move |inner| inner.item(number)).await
    }

    async fn comments(&self, item: &ItemRef) -> Result<Vec<Comment>, TrackerError> {
        let number = self.0.number(item)?;
        self.run(move |inner| inner.comments(number)).await
    }

    async fn set_labels(
        &self,
        item: &ItemRef,
        add: &[String],
        remove: &[String],
        permit: &Permit,
    ) -> Result<(), TrackerError> {
        let permit = permit.clone();
        let number = self.0.number(item)?;
        let (add, remove) = (add.to_vec(), remove.to_vec());
        self.run(move |inner| {
            let locked = inner.lock_to_write(&permit)?;
            inner.source.set_labels(&locked, number, &add, &remove)
        })
        .await
    }

    async fn write_comment(
        &self,
        item: &ItemRef,
        marker: &Marker,
        body: &str,
        permit: &Permit,
    ) -> Result<String, TrackerError> {
        let permit = permit.clone();
        let number = self.0.number(item)?;
        let (marker, body) = (marker.clone(), body.to_owned());
        self.run(move |inner| inner.upsert(number, &marker, &body, &permit))
            .await
    }

    async fn repository(&self, item: &ItemRef) -> Result<Repository, TrackerError> {
        self.0.number(item)?;
        self.run(|inner| {
            Ok(Repository {
                default_branch: inner.repo.default_branch()?,
                source: GitSource::Path(inner.repo.path.clone()),
            })
        })
        .await
    }

    async fn file(
        &self,
        item: &ItemRef,
        branch: &str,
        path: &str,
    ) -> Result<Option<String>, TrackerError> {
        self.0.number(item)?;
        let (branch, path) = (branch.to_owned(), path.to_owned());
        self.run(move |inner| inner.repo.file(&branch, &path)).await
    }

    async fn find_pull_request(
        &self,
        item: &ItemRef,
        head: &str,
    ) -> Result<Option<PullRequest>, TrackerError> {
        self.0.number(item)?;
        let head = head.to_owned();
        self.run(move |inner| records::find_pull(&inner.folders.pulls(), &head))
            .await
    }

    async fn create_pull_request(
        &self,
        item: &ItemRef,
        new: &NewPullRequest,
        permit: &Permit,
    ) -> Result<PullRequest, TrackerError> {
        let permit = permit.clone();
        self.0.number(item)?;
        let new = new.clone();
        self.run(move |inner| {
            let locked = inner.lock_to_write(&permit)?;
            records::create_pull(&locked, &inner.folders.pulls(), &new)
        })
        .await
    }

    async fn update_pull_request(
        &self,
        item: &ItemRef,
        number: u64,
        new: &NewPullRequest,
        permit: &Permit,
    ) -> Result<(), TrackerError> {
        let permit = permit.clone();
        self.0.number(item)?;
        let new = new.clone();
        self.run(move |inner| {
            let _locked = inner.lock_to_write(&permit)?;
            records::update_pull(&inner.folders.pulls(), number, new)
        })
        .await
    }

    async fn login(&self) -> Result<String, TrackerError> {
        Ok(records::LOGIN.to_owned())
    }
}

//! Issues as Markdown files: found, numbered, labelled.
//!
//! An issue's number is in its front matter or at the start of the file's name; a file without one gets
//! a number once, kept in the ledger. The trigger of a task is a digest of the file's name, its text
//! below the front matter, and how often the label was removed: an unchanged file asks for work once,
//! and a label that is added again is a new request.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use agentmine_domain::{ItemRef, TrackerKind};
use agentmine_runtime::config::same_label;
use sha2::{Digest, Sha256};

use super::error::invalid;
use super::files::{self, Folders, Ledger, Locked};
use super::front_matter::{self, Document, Head};
use crate::error::TrackerError;

/// Where the issues are.
#[derive(Debug)]
pub(super) enum Source {
    /// A folder of issue files; labels are written into the files.
    Folder(PathBuf),
    /// One file, which asks for work whatever its labels are, and is never written to.
    Single(Single),
    /// A task that is in no file, likewise.
    Given(Given),
}

/// What a person asks for in the repository, as the store has it.
#[derive(Debug)]
pub(super) struct Given {
    pub(super) item: ItemRef,
    title: String,
    body: String,
    labels: Mutex<Overlay>,
}

/// The one issue of `agentmine run --issue`.
#[derive(Debug)]
pub(super) struct Single {
    pub(super) file: PathBuf,
    /// Makes each run a separate task.
    nonce: String,
    labels: Mutex<Overlay>,
}

/// Changes to the labels of the file, kept in this process.
#[derive(Debug, Default)]
struct Overlay {
    added: BTreeSet<String>,
    removed: BTreeSet<String>,
}

/// An issue that was read.
#[derive(Debug, Clone)]
pub(super) struct Issue {
    pub(super) file: PathBuf,
    pub(super) number: u64,
    pub(super) document: Document,
    pub(super) text: String,
}

impl Single {
    pub(super) fn new(file: &Path) -> Result<Self, TrackerError> {
        let path = file.canonicalize().map_err(|error| {
            invalid(format!(
                "{}: {error}. hint: name an issue's Markdown file",
                file.display()
            ))
        })?;
        if !path.is_file() {
            return Err(invalid(format!("{} is not a file", file.display())));
        }
        let nonce = format!("{:016x}", rand::random::<u64>());
        Ok(Self {
            file: path,
            nonce,
            labels: Mutex::default(),
        })
    }
}

impl Overlay {
    /// The labels as this process sees them.
    fn over(&self, own: &[String]) -> Vec<String> {
        let all: BTreeSet<&String> = own.iter().chain(&self.added).collect();
        let left = all
            .into_iter()
            .filter(|label| !self.removed.contains(*label));
        left.cloned().collect()
    }

    fn asks(&self, label: &str) -> bool {
        !self.removed.contains(label)
    }

    fn set(&mut self, add: &[String], remove: &[String]) {
        for label in add {
            self.removed.remove(label);
            self.added.insert(label.clone());
        }
        for label in remove {
            self.added.remove(label);
            self.removed.insert(label.clone());
        }
    }
}

impl Given {
    pub(super) fn new(item: ItemRef, title: String, body: String) -> Self {
        Self {
            item,
            title,
            body,
            labels: Mutex::default(),
        }
    }

    fn issue(&self) -> Issue {
        let head = Head {
            title: Some(self.title.clone()),
            ..Head::default()
        };
        Issue {
            // The name, for what is kept of its comments.
            file: PathBuf::from(format!("task-{}.md", self.item.number)),
            number: self.item.number,
            document: Document {
                head,
                body: self.body.clone(),
            },
            text: String::new(),
        }
    }
}

impl Source {
    fn files(&self) -> Result<Vec<PathBuf>, TrackerError> {
        match self {
            Self::Folder(folder) => files::markdown(folder),
            Self::Single(single) => Ok(vec![single.file.clone()]),
            Self::Given(_) => Ok(Vec::new()),
        }
    }

    /// All issues that can be read. A malformed one is logged and left out. A file without a number
    /// gets one if `numbered` returns true for it.
    pub(super) fn issues(
        &self,
        locked: &Locked<'_>,
        numbered: impl Fn(&Document) -> bool,
    ) -> Result<Vec<Issue>, TrackerError> {
        if let Self::Given(given) = self {
            return Ok(vec![given.issue()]);
        }
        let mut ledger = locked.ledger()?;
        let mut taken: BTreeSet<u64> = BTreeSet::new();
        let mut found = Vec::new();
        let mut unnumbered = Vec::new();
        for file in self.files()? {
            match read(&file) {
                Ok(Some((document, text))) => match self.number(&file, &document, &ledger) {
                    Some(number) if taken.insert(number) => found.push(Issue {
                        file,
                        number,
                        document,
                        text,
                    }),
                    Some(number) => tracing::warn!(
                        file = %file.display(), number, "an issue is skipped: another one has its number"
                    ),
                    None => unnumbered.push((file, document, text)),
                },
                Ok(None) => {}
                Err(error) if matches!(self, Self::Single(_)) => return Err(error),
                Err(error) => tracing::warn!(%error, "an issue is skipped"),
            }
        }
        for (file, document, text) in unnumbered {
            if !numbered(&document) {
                continue;
            }
            let last = taken.last().max(ledger.numbers.values().max());
            let number = last.copied().unwrap_or_default() + 1;
            ledger.numbers.insert(self.key(&file), number);
            locked.put_ledger(&ledger)?;
            taken.insert(number);
            found.push(Issue {
                file,
                number,
                document,
                text,
            });
        }
        Ok(found)
    }

    /// Why files cannot be read.
    pub(super) fn unreadable(&self) -> Result<Vec<String>, TrackerError> {
        let files = self.files()?.into_iter();
        let faults = files.filter_map(|file| read(&file).err());
        Ok(faults.map(|error| error.to_string()).collect())
    }

    pub(super) fn issue(&self, locked: &Locked<'_>, number: u64) -> Result<Issue, TrackerError> {
        let all = self.issues(locked, |_| false)?;
        let found = all.into_iter().find(|issue| issue.number == number);
        found.ok_or_else(|| TrackerError::NotFound {
            tracker: TrackerKind::Local,
            what: format!("issue {number}"),
        })
    }

    /// The key of a file in the ledger.
    fn key(&self, file: &Path) -> String {
        match self {
            Self::Folder(_) => files::file_name(file),
            Self::Single(_) | Self::Given(_) => file.to_string_lossy().into_owned(),
        }
    }

    fn number(&self, file: &Path, document: &Document, ledger: &Ledger) -> Option<u64> {
        let name = files::file_name(file);
        let digits: String = name.chars().take_while(char::is_ascii_digit).collect();
        let named = digits.parse().ok().filter(|number| *number > 0);
        let own = document.head.number.filter(|number| *number > 0);
        // The store keeps numbers as signed 64-bit integers.
        own.or(named)
            .filter(|number| i64::try_from(*number).is_ok())
            .or_else(|| ledger.numbers.get(&self.key(file)).copied())
    }

    pub(super) fn asks(&self, document: &Document, label: &str) -> bool {
        match self {
            Self::Folder(_) => has(&document.head.labels, label),
            Self::Single(Single { labels, .. }) | Self::Given(Given { labels, .. }) => {
                overlay(labels).asks(label)
            }
        }
    }

    pub(super) fn labels(&self, issue: &Issue) -> Vec<String> {
        match self {
            Self::Folder(_) => issue.document.head.labels.clone(),
            Self::Single(Single { labels, .. }) | Self::Given(Given { labels, .. }) => {
                overlay(labels).over(&issue.document.head.labels)
            }
        }
    }

    pub(super) fn trigger(&self, issue: &Issue, label: &str, ledger: &Ledger) -> String {
        let removals = ledger.removals.get(&issue.number);
        let count = removals
            .and_then(|labels| labels.get(label))
            .copied()
            .unwrap_or(0);
        let mut digest = Sha256::new();
        let mut add = |part: &[u8]| {
            digest.update((part.len() as u64).to_le_bytes());
            digest.update(part);
        };
        add(files::file_name(&issue.file).as_bytes());
        add(issue.document.body.as_bytes());
        add(&count.to_le_bytes());
        if let Self::Single(single) = self {
            add(single.nonce.as_bytes());
        }
        hex::encode(&digest.finalize()[..16])
    }

    pub(super) fn set_labels(
        &self,
        locked: &Locked<'_>,
        number: u64,
        add: &[String],
        remove: &[String],
    ) -> Result<(), TrackerError> {
        let issue = self.issue(locked, number)?;
        match self {
            Self::Single(Single { labels, .. }) | Self::Given(Given { labels, .. }) => {
                overlay(labels).set(add, remove);
                return Ok(());
            }
            Self::Folder(_) => {}
        }
        let mut labels = issue.document.head.labels.clone();
        let gone: Vec<&String> = remove.iter().filter(|label| has(&labels, label)).collect();
        labels.retain(|own| !remove.iter().any(|label| same(own, label)));
        for label in add {
            if !has(&labels, label) {
                labels.push(label.clone());
            }
        }
        if labels == issue.document.head.labels {
            return Ok(());
        }
        let edited = front_matter::with_labels(&name(&issue.file), &issue.text, &labels)?;
        // Counted before the label is removed: a crash between the two changes the trigger of an item
        // whose task is still open, which creates no second task. In the other order, a label that is
        // added again later could have no effect.
        if !gone.is_empty() {
            let mut ledger = locked.ledger()?;
            let counts = ledger.removals.entry(number).or_default();
            for label in gone {
                *counts.entry(label.clone()).or_default() += 1;
            }
            locked.put_ledger(&ledger)?;
        }
        files::write(&issue.file, &edited)
    }

    /// The folder with an issue's comments.
    pub(super) fn comments(&self, issue: &Issue, folders: &Folders) -> PathBuf {
        let stem = files::stem(&issue.file);
        match self {
            Self::Folder(folder) => folder.join(format!("{stem}.comments")),
            Self::Single(single) => {
                let digest = Sha256::digest(single.file.as_os_str().as_encoded_bytes());
                let digest = hex::encode(&digest[..6]);
                folders.own().join(format!("{stem}-{digest}.comments"))
            }
            Self::Given(_) => folders.own().join(format!("{stem}.comments")),
        }
    }
}

fn overlay(labels: &Mutex<Overlay>) -> MutexGuard<'_, Overlay> {
    labels.lock().unwrap_or_else(PoisonError::into_inner)
}

fn read(file: &Path) -> Result<Option<(Document, String)>, TrackerError> {
    let Some(text) = files::read(file)? else {
        return Ok(None);
    };
    let document = front_matter::parse(&name(file), &text)?;
    Ok(Some((document, text)))
}

fn name(file: &Path) -> String {
    file.display().to_string()
}

fn has(labels: &[String], label: &str) -> bool {
    labels.iter().any(|own| same(own, label))
}

fn same(a: &str, b: &str) -> bool {
    same_label(a.trim(), b.trim())
}

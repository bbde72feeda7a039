//! The tracker's own files under `.agentmine/`.
//!
//! Guaranteed: files are changed under a lock between processes, and replaced atomically. No link in these folders leads
//! out of the repository while they are used.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;

use super::error::{io, refused, unavailable};
use super::links;
use crate::error::TrackerError;

/// Bytes of an issue file at most.
pub(super) const MAX_FILE: u64 = 1 << 20;
const LOCK_WAIT: Duration = Duration::from_secs(10);

/// What the issue files do not hold: the numbers of files without one, and how often each label was
/// removed from each item.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Ledger {
    /// By file name.
    pub(super) numbers: BTreeMap<String, u64>,
    /// By item number, then label.
    pub(super) removals: BTreeMap<u64, BTreeMap<String, u64>>,
    /// The lowest number that no pull request ever had. The number of a deleted one is not used again.
    pub(super) next_pull: u64,
}

/// The folders under `.agentmine/`.
#[derive(Debug, Clone)]
pub(super) struct Folders {
    repository: PathBuf,
    root: PathBuf,
    /// The folder of issues that the operator names.
    named: Option<PathBuf>,
}

/// The lock. The operating system releases it when the process dies.
#[derive(Debug)]
pub(super) struct Locked<'a> {
    folders: &'a Folders,
    _file: File,
}

impl Folders {
    pub(super) fn new(repository: &Path, named: Option<PathBuf>) -> Self {
        Self {
            repository: repository.to_owned(),
            root: repository.join(".agentmine"),
            named,
        }
    }

    pub(super) fn issues(&self) -> PathBuf {
        let named = self.named.clone();
        named.unwrap_or_else(|| self.root.join("issues"))
    }

    pub(super) fn pulls(&self) -> PathBuf {
        self.root.join("pulls")
    }

    /// Where the ledger is, and the comments on an issue outside the issues folder.
    pub(super) fn own(&self) -> PathBuf {
        self.root.join("local")
    }

    /// No folder of the tracker leads out of the repository and the folder that the operator names.
    fn refuse_links(&self) -> Result<(), TrackerError> {
        let within: Vec<PathBuf> = [&self.repository]
            .into_iter()
            .chain(&self.named)
            .cloned()
            .collect();
        links::refuse_leading_out(&self.root, &within)?;
        let mut named = self.named.iter();
        named.try_for_each(|folder| links::refuse_leading_out(folder, &within))
    }

    /// Waits for the lock, at most [`LOCK_WAIT`].
    pub(super) fn lock(&self) -> Result<Locked<'_>, TrackerError> {
        self.refuse_links()?;
        make_private(&self.own())?;
        let path = self.own().join("lock");
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(|error| io(&path, &error))?;
        let begin = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(std::fs::TryLockError::WouldBlock) if begin.elapsed() < LOCK_WAIT => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(std::fs::TryLockError::WouldBlock) => {
                    let path = path.display();
                    return Err(unavailable(format!(
                        "another process holds {path}. hint: wait until it has finished, then repeat the command"
                    )));
                }
                Err(std::fs::TryLockError::Error(error)) => return Err(io(&path, &error)),
            }
        }
        Ok(Locked {
            folders: self,
            _file: file,
        })
    }
}

impl Locked<'_> {
    pub(super) fn ledger(&self) -> Result<Ledger, TrackerError> {
        let path = self.ledger_path();
        match read(&path)? {
            None => Ok(Ledger::default()),
            Some(text) => serde_json::from_str(&text).map_err(|error| {
                let path = path.display();
                refused(format!(
                    "{path}: {error}. hint: remove the file; issue numbers may change"
                ))
            }),
        }
    }

    pub(super) fn put_ledger(&self, ledger: &Ledger) -> Result<(), TrackerError> {
        let text = serde_json::to_string_pretty(ledger)
            .map_err(|error| refused(format!("the ledger cannot be written: {error}")))?;
        write(&self.ledger_path(), &text)
    }

    fn ledger_path(&self) -> PathBuf {
        self.folders.own().join("ledger.json")
    }
}

/// Creates a folder that git ignores: its content is not part of the project.
pub(super) fn make_private(folder: &Path) -> Result<(), TrackerError> {
    std::fs::create_dir_all(folder).map_err(|error| io(folder, &error))?;
    let ignore = folder.join(".gitignore");
    if ignore.exists() {
        return Ok(());
    }
    write(&ignore, "*\n")
}

/// A file's text, at most [`MAX_FILE`]; `None` if there is none.
pub(super) fn read(path: &Path) -> Result<Option<String>, TrackerError> {
    let size = match path.metadata() {
        Ok(data) if data.is_file() => data.len(),
        Ok(_) => return Ok(None),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io(path, &error)),
    };
    if size > MAX_FILE {
        let path = path.display();
        return Err(refused(format!("{path} is larger than {MAX_FILE} bytes")));
    }
    let bytes = std::fs::read(path).map_err(|error| io(path, &error))?;
    String::from_utf8(bytes)
        .map(Some)
        .map_err(|error| refused(format!("{}: not UTF-8: {error}", path.display())))
}

/// Replaces a file atomically: a reader sees the old text or the new one. Its mode is kept.
pub(super) fn write(path: &Path, text: &str) -> Result<(), TrackerError> {
    // A link is followed: the file it points to is replaced, not the link.
    let path = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let folder = path.parent().unwrap_or(Path::new("."));
    let attempt = || {
        let mut file = NamedTempFile::new_in(folder)?;
        file.write_all(text.as_bytes())?;
        let mode = match path.metadata() {
            Ok(data) => data.permissions(),
            Err(_) => std::os::unix::fs::PermissionsExt::from_mode(0o644),
        };
        file.as_file().set_permissions(mode)?;
        file.as_file().sync_all()?;
        file.persist(&path).map_err(|error| error.error)?;
        Ok(())
    };
    attempt().map_err(|error: std::io::Error| io(&path, &error))
}

/// The Markdown files of a folder, by name. A folder that does not exist has none.
pub(super) fn markdown(folder: &Path) -> Result<Vec<PathBuf>, TrackerError> {
    let entries = match folder.read_dir() {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(io(folder, &error)),
    };
    let mut files: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            path.extension()
                .is_some_and(|ext| ext.eq_ignore_ascii_case("md"))
        })
        .filter(|path| !file_name(path).starts_with('.') && path.is_file())
        .collect();
    files.sort();
    Ok(files)
}

pub(super) fn file_name(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

pub(super) fn stem(path: &Path) -> String {
    path.file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

//! Watching the files of servers' programs.
//!
//! The folders are watched and not the files, since a file is mostly replaced and not written; of a
//! link, every folder on its way. What counts is content: a file that is only touched, or is gone for a
//! moment, has not changed. One watcher serves all servers of a manager, as the system has few.
//! Accepted: a link that stands for a whole folder is followed only to where it leads at the start.

use std::collections::{BTreeSet, HashMap};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use sha2::{Digest as _, Sha256};
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::lock;

/// It is quiet this long before a file is looked at: programs are written in pieces.
const QUIET: Duration = Duration::from_millis(300);
/// A larger file is told by its size, time and number.
const MAX_HASHED: u64 = 1024 * 1024;
/// Links that are followed.
const MAX_LINKS: usize = 16;

type Folders = Arc<Mutex<HashMap<PathBuf, Vec<Weak<Notify>>>>>;

/// Watches for all servers of a manager.
pub(crate) struct Watcher {
    system: Mutex<RecommendedWatcher>,
    folders: Folders,
}

/// The files of one server.
pub(crate) struct Watched {
    files: Vec<(PathBuf, Option<Print>)>,
    stirred: Arc<Notify>,
    _watcher: Arc<Watcher>,
}

impl Watcher {
    /// `None` where the system cannot watch; servers are not started again by themselves then.
    pub(crate) fn new() -> Option<Arc<Self>> {
        let folders = Folders::default();
        let known = folders.clone();
        let system = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            match event {
                // Every start of a program opens it.
                Ok(event) if event.kind.is_access() && !written(&event.kind) => {}
                Ok(event) => stir(&known, &event.paths),
                // Events were lost: all look.
                Err(_) => lock(&known).values().flatten().for_each(wake),
            }
        });
        match system {
            Ok(system) => Some(Arc::new(Self {
                system: Mutex::new(system),
                folders,
            })),
            Err(error) => {
                tracing::warn!(%error, "programs of MCP servers cannot be watched for changes");
                None
            }
        }
    }

    pub(crate) fn watch(self: &Arc<Self>, files: Vec<PathBuf>) -> Option<Watched> {
        let stirred = Arc::new(Notify::new());
        let folders: BTreeSet<PathBuf> = files.iter().flat_map(|file| folders_of(file)).collect();
        for folder in &folders {
            let mut known = lock(&self.folders);
            let watchers = known.entry(folder.clone()).or_default();
            let first = watchers.is_empty();
            watchers.retain(|watcher| watcher.strong_count() > 0);
            watchers.push(Arc::downgrade(&stirred));
            drop(known);
            if !first {
                continue;
            }
            let watched = lock(&self.system).watch(folder, RecursiveMode::NonRecursive);
            if let Err(error) = watched {
                tracing::warn!(%error, "a folder with an MCP server's program cannot be watched");
            }
        }
        (!folders.is_empty()).then(|| Watched {
            files: files
                .into_iter()
                .map(|file| {
                    let print = Print::of(&file);
                    (file, print)
                })
                .collect(),
            stirred,
            _watcher: self.clone(),
        })
    }
}

impl Watched {
    /// Resolves when a file has changed since the last one was told, with which. May be dropped and
    /// asked again: what happens in between is seen by looking first.
    pub(crate) async fn changed(&mut self) -> PathBuf {
        loop {
            if let Some(file) = self.look().await {
                return file;
            }
            self.stirred.notified().await;
            while timeout(QUIET, self.stirred.notified()).await.is_ok() {}
        }
    }
}

impl Watched {
    /// A file that is not what it was.
    async fn look(&mut self) -> Option<PathBuf> {
        for (file, before) in &mut self.files {
            let path = file.clone();
            let print = tokio::task::spawn_blocking(move || Print::of(&path)).await;
            let Some(now) = print.ok().flatten() else {
                continue;
            };
            if before.as_ref().is_none_or(|before| before.differs(&now)) {
                *before = Some(now);
                return Some(file.clone());
            }
        }
        None
    }
}

/// What a file is known by.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Print {
    meta: (u64, i64, i64, u64),
    digest: Option<[u8; 32]>,
}

impl Print {
    fn of(file: &Path) -> Option<Self> {
        let meta = std::fs::metadata(file)
            .ok()
            .filter(std::fs::Metadata::is_file)?;
        let digest = (meta.len() <= MAX_HASHED)
            .then(|| std::fs::read(file).ok())
            .flatten()
            .map(|content| Sha256::digest(content).into());
        Some(Self {
            meta: (meta.len(), meta.mtime(), meta.mtime_nsec(), meta.ino()),
            digest,
        })
    }

    fn differs(&self, other: &Self) -> bool {
        match (self.digest, other.digest) {
            (Some(one), Some(other)) => one != other,
            _ => self.meta != other.meta,
        }
    }
}

/// The files of a command: the program, and the script where the program is an interpreter of scripts
/// and an argument is a file.
pub(crate) fn files_of(program: &Path, args: &[String], cwd: &Path) -> Vec<PathBuf> {
    const INTERPRETERS: &[&str] = &[
        "python", "pypy", "node", "nodejs", "deno", "bun", "tsx", "ts-node", "uv", "ruby", "perl",
        "php", "lua", "sh", "bash", "dash", "zsh", "env",
    ];
    let name = program
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    // `python3.11` is a python.
    let name = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    let script = INTERPRETERS
        .contains(&name)
        .then(|| args.iter().filter(|arg| !arg.starts_with('-')))
        .and_then(|mut args| {
            args.find_map(|arg| Some(cwd.join(arg)).filter(|file| file.is_file()))
        });
    std::iter::once(program.to_owned()).chain(script).collect()
}

/// Where a change of the file would be seen: its folder, and those of the files that it is a link to.
fn folders_of(file: &Path) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    let mut file = file.to_owned();
    for _ in 0..MAX_LINKS {
        let Some(folder) = file.parent().and_then(|folder| folder.canonicalize().ok()) else {
            break;
        };
        let next = std::fs::read_link(&file).map(|target| folder.join(target));
        folders.push(folder);
        match next {
            Ok(next) => file = next,
            Err(_) => break,
        }
    }
    folders
}

fn written(kind: &notify::EventKind) -> bool {
    use notify::event::{AccessKind, AccessMode, EventKind};
    matches!(
        kind,
        EventKind::Access(AccessKind::Close(AccessMode::Write))
    )
}

fn stir(folders: &Folders, paths: &[PathBuf]) {
    let folders = lock(folders);
    for path in paths {
        let places = [path.parent(), Some(path.as_path())];
        places
            .into_iter()
            .flatten()
            .filter_map(|place| folders.get(place))
            .flatten()
            .for_each(wake);
    }
}

fn wake(watcher: &Weak<Notify>) {
    if let Some(watcher) = watcher.upgrade() {
        watcher.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watched(files: &[&Path]) -> Watched {
        let files = files.iter().map(|file| (*file).to_owned()).collect();
        Watcher::new().unwrap().watch(files).unwrap()
    }

    /// What is told of something that happens while it is waited for.
    async fn change(watched: &mut Watched, happens: impl FnOnce()) -> PathBuf {
        assert_eq!(watched.look().await, None, "nothing has happened yet");
        happens();
        let seen = timeout(Duration::from_secs(10), watched.changed()).await;
        seen.expect("the change was not seen")
    }

    #[tokio::test]
    async fn written_and_replaced_files_are_seen_and_touched_ones_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let [file, other, new] = ["file", "other", "new"].map(|name| folder.path().join(name));
        for file in [&file, &other] {
            std::fs::write(file, "one").unwrap();
        }
        let mut watched = watched(&[&file, &other]);
        let write = || std::fs::write(&file, "two").unwrap();
        assert_eq!(change(&mut watched, write).await, file);
        let replace = || {
            std::fs::write(&new, "three").unwrap();
            std::fs::rename(&new, &file).unwrap();
        };
        assert_eq!(change(&mut watched, replace).await, file);
        // The same content again, and a neighbour; then the other, which comes alone.
        let touch = || {
            std::fs::write(&file, "three").unwrap();
            std::fs::write(&new, "four").unwrap();
            std::fs::write(&other, "two").unwrap();
        };
        assert_eq!(change(&mut watched, touch).await, other);
    }

    #[tokio::test]
    async fn file_that_is_gone_for_a_moment_has_changed_only_if_it_comes_back_so() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "one").unwrap();
        let mut watched = watched(&[&file]);
        std::fs::remove_file(&file).unwrap();
        let early = timeout(Duration::from_secs(1), watched.changed()).await;
        assert!(early.is_err(), "its absence is no change");
        let write = || std::fs::write(&file, "two").unwrap();
        assert_eq!(change(&mut watched, write).await, file);
    }

    #[tokio::test]
    async fn target_of_a_link_and_the_link_itself_are_watched() {
        let folder = tempfile::tempdir().unwrap();
        let [a, b, bin] = ["a", "b", "bin"].map(|name| folder.path().join(name));
        for (folder, content) in [(&a, "one"), (&b, "two"), (&bin, "")] {
            std::fs::create_dir(folder).unwrap();
            std::fs::write(folder.join("tool"), content).unwrap();
        }
        let link = bin.join("link");
        std::os::unix::fs::symlink("../a/tool", &link).unwrap();
        let mut watched = watched(&[&link]);
        let target = || std::fs::write(a.join("tool"), "three").unwrap();
        assert_eq!(change(&mut watched, target).await, link);
        let turn = || {
            std::fs::remove_file(&link).unwrap();
            std::os::unix::fs::symlink("../b/tool", &link).unwrap();
        };
        assert_eq!(change(&mut watched, turn).await, link);
    }

    #[test]
    fn script_of_an_interpreter_belongs_to_the_program() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("server.py"), "").unwrap();
        let files = |program: &str, args: &[&str]| {
            let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
            files_of(Path::new(program), &args, folder.path())
        };
        let script = folder.path().join("server.py");
        assert_eq!(
            files("/usr/bin/python3.11", &["-u", "server.py", "--port", "1"])[1..],
            std::slice::from_ref(&script)[..]
        );
        assert_eq!(files("/usr/bin/uv", &["run", "server.py"])[1..], [script]);
        assert_eq!(files("/usr/bin/python3", &["-m", "server"]).len(), 1);
        assert_eq!(files("/usr/bin/npx", &["server.py"]).len(), 1);
    }
}

//! Watches the files of a server's program.
//!
//! Their metadata is read every second, through links, on any file system. Only changes of the content count,
//! not of the times, nor that a file is missing for a moment. Accepted: of a file larger than [`MAX_HASHED`]
//! only size, time and inode are compared.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use sha2::{Digest as _, Sha256};
use tokio::time::sleep;

/// Between two checks.
const INTERVAL: Duration = Duration::from_secs(1);
/// A file must be unchanged for this long before it is read: programs are written in pieces.
const QUIET: Duration = Duration::from_millis(300);
/// A change within this time of another may not change a file's times.
const COARSE: Duration = Duration::from_secs(2);
const MAX_HASHED: u64 = 1024 * 1024;

/// The files of one server.
pub(crate) struct Watched(Vec<(PathBuf, Option<Print>)>);

impl Watched {
    pub(crate) async fn new(files: Vec<PathBuf>) -> Self {
        let mut watched = Vec::new();
        for file in files {
            let print = match Meta::of(&file).await {
                Some(meta) => Some(Print::of(&file, meta).await),
                None => None,
            };
            watched.push((file, print));
        }
        Self(watched)
    }

    /// Resolves when a file has changed since it was last returned. May be dropped and called again.
    pub(crate) async fn changed(&mut self) -> PathBuf {
        loop {
            for (file, known) in &mut self.0 {
                if differs(file, known).await {
                    return file.clone();
                }
            }
            sleep(INTERVAL).await;
        }
    }
}

/// Whether a file has changed since it was last checked.
async fn differs(file: &Path, known: &mut Option<Print>) -> bool {
    let Some(meta) = Meta::of(file).await else {
        return false;
    };
    if known.as_ref().is_some_and(|known| known.meta == meta) && !meta.is_recent() {
        return false;
    }
    sleep(QUIET).await;
    if Meta::of(file).await != Some(meta) {
        // It is still being written.
        return false;
    }
    let now = Print::of(file, meta).await;
    let same = match (known.as_ref().map(|known| known.digest), now.digest) {
        (Some(Some(known)), Some(now)) => known == now,
        _ => known.as_ref().is_some_and(|known| known.meta == now.meta),
    };
    *known = Some(now);
    !same
}

/// The state of a file.
struct Print {
    meta: Meta,
    /// `None`: it is too large, or cannot be read.
    digest: Option<[u8; 32]>,
}

impl Print {
    async fn of(file: &Path, meta: Meta) -> Self {
        let content = match meta.size <= MAX_HASHED {
            true => tokio::fs::read(file).await.ok(),
            false => None,
        };
        let digest = content.map(|content| Sha256::digest(content).into());
        Self { meta, digest }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Meta {
    size: u64,
    modified: Option<SystemTime>,
    inode: u64,
}

impl Meta {
    async fn of(file: &Path) -> Option<Self> {
        let meta = tokio::fs::metadata(file).await.ok()?;
        meta.is_file().then(|| Self {
            size: meta.len(),
            modified: meta.modified().ok(),
            inode: meta.ino(),
        })
    }

    fn is_recent(&self) -> bool {
        let age = self.modified.and_then(|modified| modified.elapsed().ok());
        age.is_none_or(|age| age < COARSE)
    }
}

/// The files of a command: the program and, where the program is an interpreter and an argument is a file,
/// the script.
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

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    async fn watched(files: &[&Path]) -> Watched {
        Watched::new(files.iter().map(|file| (*file).to_owned()).collect()).await
    }

    /// What is seen of something that happens while it is waited for.
    async fn change(watched: &mut Watched, happens: impl FnOnce()) -> PathBuf {
        let early = timeout(QUIET * 2, watched.changed()).await;
        assert!(early.is_err(), "nothing has happened yet: {early:?}");
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
        let mut watched = watched(&[&file, &other]).await;
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
        let mut watched = watched(&[&file]).await;
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
        let mut watched = watched(&[&link]).await;
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

//! Commands whose result is evidence: the project's checks on what an agent wrote.
//!
//! The result of such a command is the exit status that the kernel reports to the guest. What the command starts
//! is hostile and runs as the same user, so:
//!
//! - What earlier commands left running is killed first; a start fails if that is not possible.
//! - Its shell is a copy that nobody may read. The kernel lets no other process of this user trace such a
//!   process or open its memory and files, so a test cannot patch the shell above it. A program that is not
//!   named by its full path, or is a script itself, is started as it is.
//! - A program that an earlier check put into the home folder does not take the place of one of the system:
//!   once a new one has the name of another on the search path, the folders in the home folder come last.
//!
//! What remains: a check runs files of the commit that it checks, and of what its set-up installed, and anybody who
//! wrote those decides about its exit code. An earlier check can change files that a later one reads, e.g.
//! `node_modules`, a build folder or settings in the home folder.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agentmine_process::descendants;
use anyhow::{Result, bail};

use crate::home;

/// The largest shell that is copied, in bytes.
const MAX_SHELL: u64 = 32 << 20;
/// How often the kill is repeated, and the pause after each.
const KILLS: u32 = 400;
const KILL_PAUSE: Duration = Duration::from_millis(5);

/// What is remembered between commands.
#[derive(Debug, Default)]
pub(crate) struct Evidence(Mutex<Memory>);

#[derive(Debug, Default)]
struct Memory {
    shells: BTreeMap<PathBuf, Arc<OwnedFd>>,
    /// The programs in the home folder when the first check began.
    programs: Option<HashSet<Installed>>,
}

/// A program in the home folder, and what distinguishes it from another of its name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Installed {
    name: OsString,
    /// Inode and time of change, of the entry and of what it refers to.
    entry: [i64; 3],
    target: Option<[i64; 3]>,
}

/// A shell that nobody may read, as long as this lives.
#[derive(Debug)]
pub(crate) struct UnreadableShell(Arc<OwnedFd>);

impl UnreadableShell {
    /// The path for a program that this process starts.
    pub(crate) fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.0.as_raw_fd()).into()
    }
}

impl Evidence {
    /// The shell of this name, if it can be copied.
    pub(crate) fn shell(&self, program: &str) -> Option<UnreadableShell> {
        let path = Path::new(program);
        if !path.is_absolute() {
            return None;
        }
        let mut memory = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = memory.shells.get(path) {
            return Some(UnreadableShell(known.clone()));
        }
        let copy = Arc::new(unreadable_copy(path).ok()?);
        memory.shells.insert(path.to_owned(), copy.clone());
        Some(UnreadableShell(copy))
    }

    /// The search path of the next check.
    pub(crate) fn search_path(&self, root: &Path, path: &str) -> String {
        let folders = home::program_folders(&home::of(root));
        let in_home = |folder: &&str| folders.iter().any(|it| it == Path::new(*folder));
        let (own, system): (Vec<&str>, Vec<&str>) = path.split(':').partition(in_home);
        let now: HashSet<Installed> = folders.iter().flat_map(|it| installed(it)).collect();
        let mut memory = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = memory.programs.get_or_insert_with(|| now.clone());
        let is_elsewhere = |new: &&Installed| {
            let named = |folder: &&str| Path::new(*folder).join(&new.name).exists();
            system.iter().any(named)
        };
        match now.difference(before).find(is_elsewhere) {
            Some(_) => [system, own].concat().join(":"),
            None => path.to_owned(),
        }
    }
}

/// Kills all that earlier commands left running.
pub(crate) async fn end_leftovers() -> Result<()> {
    let own = std::process::id().cast_signed();
    for _ in 0..KILLS {
        let alive: Vec<_> = descendants(own)
            .into_iter()
            .filter(|process| !process.tree().is_empty())
            .collect();
        if alive.is_empty() {
            return Ok(());
        }
        for process in alive {
            process.signal(libc::SIGKILL);
        }
        // There is no event for the end of all of them.
        tokio::time::sleep(KILL_PAUSE).await;
    }
    bail!("what an earlier command started cannot be ended")
}

/// The programs in a folder.
fn installed(folder: &Path) -> Vec<Installed> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let all = entries.filter_map(|entry| {
        let seen = |it: std::fs::Metadata| [it.ino().cast_signed(), it.ctime(), it.ctime_nsec()];
        Some(Installed {
            name: entry.file_name(),
            entry: seen(entry.metadata().ok()?),
            target: std::fs::metadata(entry.path()).ok().map(seen),
        })
    });
    all.collect()
}

/// A copy in memory that may be executed and not be read.
fn unreadable_copy(path: &Path) -> io::Result<OwnedFd> {
    let mut content = Vec::new();
    let program = std::fs::File::open(path)?;
    program.take(MAX_SHELL + 1).read_to_end(&mut content)?;
    // The kernel would give a script's interpreter a path that it cannot open.
    if content.len() as u64 > MAX_SHELL || !content.starts_with(b"\x7fELF") {
        return Err(io::ErrorKind::Unsupported.into());
    }
    // SAFETY: the name ends in NUL; the kernel has opened the descriptor for us alone.
    let copy = unsafe {
        match libc::memfd_create(c"shell".as_ptr(), libc::MFD_CLOEXEC) {
            fd if fd >= 0 => std::fs::File::from_raw_fd(fd),
            _ => return Err(io::Error::last_os_error()),
        }
    };
    (&copy).write_all(&content)?;
    copy.set_permissions(std::fs::Permissions::from_mode(0o111))?;
    Ok(copy.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_program_in_the_home_folder_does_not_replace_one_of_the_system() {
        let root = tempfile::tempdir().unwrap();
        let system = tempfile::tempdir().unwrap();
        let [local, _, cargo] = home::program_folders(&home::of(root.path()));
        std::fs::create_dir_all(&local).unwrap();
        std::fs::create_dir_all(&cargo).unwrap();
        std::fs::write(system.path().join("cargo"), "").unwrap();
        std::fs::write(cargo.join("cargo"), "installed by the set-up").unwrap();
        let path = [&cargo, &local, &system.path().to_owned()]
            .map(|folder| folder.display().to_string())
            .join(":");
        let evidence = Evidence::default();
        assert_eq!(evidence.search_path(root.path(), &path), path);
        // A tool that the system does not have.
        std::fs::write(local.join("pytest"), "").unwrap();
        assert_eq!(evidence.search_path(root.path(), &path), path);
        std::fs::write(cargo.join("cargo"), "exit 0").unwrap();
        let last = evidence.search_path(root.path(), &path);
        assert!(last.starts_with(system.path().to_str().unwrap()), "{last}");
        assert!(last.contains(cargo.to_str().unwrap()), "{last}");
    }

    #[test]
    fn a_copy_of_a_shell_runs_and_cannot_be_read() {
        let evidence = Evidence::default();
        let shell = evidence.shell("/bin/sh").unwrap();
        let run = std::process::Command::new(shell.path())
            .args(["-c", "exit 7"])
            .status();
        assert_eq!(run.unwrap().code(), Some(7));
        let mode = std::fs::metadata(shell.path()).unwrap().permissions();
        assert_eq!(mode.mode() & 0o777, 0o111);
        assert!(evidence.shell("sh").is_none());
        assert!(evidence.shell("/nowhere/sh").is_none());
    }
}

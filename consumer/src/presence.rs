//! Which workers of this machine are alive.
//!
//! A process holds a lock on a file for as long as it lives. The kernel ends the lock with the process, so anybody who
//! finds a file without its lock knows that the process is gone and writes nothing more; it need not wait until the
//! leases run out. What another kernel locks is not judged: only files with the same boot id count. A folder that cannot
//! be written, or that other workers do not share, leaves the leases to their end.

use std::fs::{File, TryLockError};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agentmine_domain::WorkerId;
use agentmine_runtime::config::Config;
use agentmine_runtime::own_folder;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// What was not removed by those that it concerns is removed after this time.
const FORGOTTEN: Duration = Duration::from_secs(24 * 3600);
/// The end of a file's name that is not locked yet.
const PART: &str = ".part";

/// This process, as others see it.
pub(crate) struct Presence {
    process: String,
    held: Option<Held>,
}

/// The locked file. The lock ends when this is dropped.
struct Held {
    path: PathBuf,
    mark: Mark,
    _lock: File,
}

/// The content of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Mark {
    /// The kernel's, since its start.
    boot: String,
    /// Which database the process works for.
    database: u64,
    /// `host/pid-salt`, with which its workers' names begin.
    process: String,
}

/// A process that is gone.
pub(crate) struct Gone {
    pub(crate) process: String,
    path: PathBuf,
}

impl Gone {
    /// Its leases are taken care of.
    pub(crate) fn forget(self) {
        let _ = std::fs::remove_file(self.path);
    }
}

impl Presence {
    /// Makes this process known to the others of the machine, from now on until it ends.
    pub(crate) fn announce(config: &Config) -> Self {
        let folder = agentmine_sandbox::local::default_state_dir().with_file_name("workers");
        Self::in_folder(&folder, config.store.url.expose())
    }

    fn in_folder(folder: &Path, database: &str) -> Self {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        // A restarted container has the same host name and pid.
        let salt = &Uuid::new_v4().simple().to_string()[..6];
        let process = format!("{}/{}-{salt}", host.trim(), std::process::id());
        let held = hold(folder, database, &process);
        if let Err(error) = &held {
            tracing::info!(%error, folder = %folder.display(), "other workers on this machine will not notice at once if this one dies");
        }
        Self {
            process,
            held: held.ok(),
        }
    }

    /// Ends it without a trace, as no lease is left open. Otherwise the file stays, and another worker of the
    /// machine, or the next one, takes care of the leases.
    pub(crate) fn withdraw(&self) {
        if let Some(held) = &self.held {
            let _ = std::fs::remove_file(&held.path);
        }
    }

    /// The name of a slot: `host/pid-salt/slot`.
    pub(crate) fn worker(&self, slot: usize) -> WorkerId {
        WorkerId(format!("{}/{slot}", self.process))
    }

    /// The processes of this machine that worked for the same database and are gone.
    pub(crate) fn gone(&self) -> Vec<Gone> {
        let Some(held) = &self.held else {
            return Vec::new();
        };
        let folder = held.path.parent().map(std::fs::read_dir);
        let entries = folder.and_then(Result::ok).into_iter().flatten().flatten();
        let others = entries.map(|entry| entry.path());
        let found = others.filter(|path| *path != held.path && is_whole(path));
        found.filter_map(|path| held.judge(path)).collect()
    }
}

impl Held {
    fn judge(&self, path: PathBuf) -> Option<Gone> {
        let file = File::open(&path).ok()?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock | TryLockError::Error(_)) => return None,
        }
        // `from_reader` makes a system call for each byte.
        let mark: Mark = serde_json::from_str(&io::read_to_string(&file).ok()?).ok()?;
        let is_of_ours = mark.boot == self.mark.boot && mark.database == self.mark.database;
        if is_of_ours {
            let process = mark.process;
            return Some(Gone { process, path });
        }
        let age = file.metadata().ok()?.modified().ok()?.elapsed().ok()?;
        if age > FORGOTTEN {
            let _ = std::fs::remove_file(path);
        }
        None
    }
}

fn is_whole(path: &Path) -> bool {
    !path.to_string_lossy().ends_with(PART)
}

fn hold(folder: &Path, database: &str, process: &str) -> io::Result<Held> {
    // Anybody who could write into it could end the leases of workers that live.
    own_folder::create(folder)?;
    let mark = Mark {
        boot: std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?,
        database: fingerprint(database),
        process: process.to_owned(),
    };
    let name = process.rsplit('/').next().unwrap_or(process);
    let path = folder.join(name);
    let part = folder.join(format!("{name}{PART}"));
    let lock = File::create_new(&part)?;
    serde_json::to_writer(&lock, &mark)?;
    // Locked before it has its name, since it counts from then on.
    lock.lock()?;
    std::fs::rename(part, &path)?;
    Ok(Held {
        path,
        mark,
        _lock: lock,
    })
}

/// Of the database's address, without user and password.
fn fingerprint(url: &str) -> u64 {
    let address = url.rsplit('@').next().unwrap_or(url);
    // A relative path means another file in another folder.
    let file = address
        .strip_prefix("sqlite:")
        .and_then(|path| std::fs::canonicalize(path).ok());
    let address = file
        .as_deref()
        .map_or(address.into(), Path::to_string_lossy);
    let mut hasher = DefaultHasher::new();
    address.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATABASE: &str = "postgres://user:password@host/fleet";

    /// As a kill does it: the lock is gone, and the file stays.
    fn kill(presence: Presence) -> String {
        presence.process
    }

    fn seen(by: &Presence) -> Vec<String> {
        by.gone().into_iter().map(|gone| gone.process).collect()
    }

    #[test]
    fn a_process_that_was_killed_is_gone_and_one_that_lives_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let judge = Presence::in_folder(folder.path(), DATABASE);
        let killed = Presence::in_folder(folder.path(), DATABASE);
        let _lives = Presence::in_folder(folder.path(), DATABASE);
        assert!(seen(&judge).is_empty());
        let killed = kill(killed);
        assert_eq!(seen(&judge), [killed]);
        assert!(judge.worker(0).0.starts_with(&judge.process));
        for gone in judge.gone() {
            gone.forget();
        }
        assert!(seen(&judge).is_empty());
    }

    #[test]
    fn a_process_that_left_no_lease_open_leaves_no_file() {
        let folder = tempfile::tempdir().unwrap();
        Presence::in_folder(folder.path(), DATABASE).withdraw();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn processes_of_another_fleet_or_another_kernel_are_not_judged() {
        let folder = tempfile::tempdir().unwrap();
        let judge = Presence::in_folder(folder.path(), DATABASE);
        let other = "postgres://user:password@host/other";
        kill(Presence::in_folder(folder.path(), other));
        let mut elsewhere = Presence::in_folder(folder.path(), DATABASE);
        let held = elsewhere.held.as_mut().unwrap();
        held.mark.boot = "of another machine".into();
        std::fs::write(&held.path, serde_json::to_vec(&held.mark).unwrap()).unwrap();
        kill(elsewhere);
        assert!(seen(&judge).is_empty());
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_no_obstacle() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let presence = Presence::in_folder(&file.path().join("workers"), DATABASE);
        assert!(presence.gone().is_empty());
    }
}

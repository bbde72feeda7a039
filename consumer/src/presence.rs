//! Which workers of this machine are alive.
//!
//! A process holds a lock on a file for as long as it lives, so anybody who finds the file without its lock knows that
//! the process is gone and writes nothing more; it need not wait until the leases run out. A folder that cannot be
//! written, or that other workers do not share, leaves the leases to their end.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agentmine_domain::WorkerId;
use agentmine_runtime::config::Config;
use agentmine_runtime::own_folder;
use agentmine_runtime::process_lock::{self, Holder, ProcessLock};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// What was not removed by those that it concerns is removed after this time.
const FORGOTTEN: Duration = Duration::from_secs(24 * 3600);

/// This process, as others see it.
pub(crate) struct Presence {
    process: String,
    held: Option<Held>,
}

/// The locked file.
struct Held {
    path: PathBuf,
    note: Note,
    _lock: ProcessLock,
}

/// What a file says of its process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Note {
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
        let found = others.filter(|path| *path != held.path);
        found.filter_map(|path| held.judge(path)).collect()
    }
}

impl Held {
    fn judge(&self, path: PathBuf) -> Option<Gone> {
        let (holder, note) = process_lock::look(&path).ok()?;
        if holder == Holder::Alive {
            return None;
        }
        if holder == Holder::Gone
            && let Ok(note) = serde_json::from_str::<Note>(&note)
            && note.database == self.note.database
        {
            let process = note.process;
            return Some(Gone { process, path });
        }
        let age = path.metadata().ok()?.modified().ok()?.elapsed().ok()?;
        if age > FORGOTTEN {
            let _ = std::fs::remove_file(path);
        }
        None
    }
}

fn hold(folder: &Path, database: &str, process: &str) -> io::Result<Held> {
    // Anybody who could write into it could end the leases of workers that live.
    own_folder::create(folder)?;
    let note = Note {
        database: fingerprint(database),
        process: process.to_owned(),
    };
    let path = folder.join(process.rsplit('/').next().unwrap_or(process));
    let lock = ProcessLock::hold(&path, &serde_json::to_string(&note)?)?;
    Ok(Held {
        path,
        note,
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
        let elsewhere = Presence::in_folder(folder.path(), DATABASE);
        let path = &elsewhere.held.as_ref().unwrap().path;
        let content = std::fs::read_to_string(path).unwrap();
        let (_, note) = content.split_once('\n').unwrap();
        std::fs::write(path, format!("of another kernel\n{note}")).unwrap();
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

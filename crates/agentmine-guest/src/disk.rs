//! The disk limit, where the engine has none.
//!
//! A walk of the whole root is too dear to repeat all the time, so the file system's free space is
//! watched instead: it can shrink by no less than the root grows. A walk follows when it shrank by a
//! good part of what is left, and now and then in any case. Accepted race: a command can go over the
//! limit by what it writes between two looks.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::process;
use crate::serve::State;

const LOOK: Duration = Duration::from_millis(500);
const WALK_AT_LEAST: Duration = Duration::from_secs(30);
/// How long killed processes may take to be gone.
const DYING: Duration = Duration::from_millis(200);

/// Watches the root's size.
#[derive(Debug, Clone)]
pub(crate) struct Disk {
    root: PathBuf,
    limit: u64,
    running: Arc<AtomicUsize>,
    exceeded: watch::Sender<Option<String>>,
}

/// A command that is killed when the limit is exceeded.
#[derive(Debug)]
pub(crate) struct Watched {
    running: Arc<AtomicUsize>,
    exceeded: watch::Receiver<Option<String>>,
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.running.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Watched {
    /// Resolves when the limit is exceeded, with the text to tell.
    pub(crate) async fn exceeded(mut self: Watched) -> String {
        while self.exceeded.changed().await.is_ok() {
            if let Some(why) = self.exceeded.borrow_and_update().clone() {
                return why;
            }
        }
        std::future::pending().await
    }
}

impl Disk {
    /// A `limit` of 0 is none.
    pub(crate) fn new(root: PathBuf, limit: u64) -> Self {
        let exceeded = watch::Sender::new(None);
        Self {
            root,
            limit,
            running: Arc::default(),
            exceeded,
        }
    }

    pub(crate) fn command(&self) -> Watched {
        self.running.fetch_add(1, Ordering::Relaxed);
        Watched {
            running: self.running.clone(),
            exceeded: self.exceeded.subscribe(),
        }
    }

    /// Bytes under the root.
    pub(crate) async fn measure(&self) -> u64 {
        let root = self.root.clone();
        tokio::task::spawn_blocking(move || size(&root))
            .await
            .unwrap_or(0)
    }

    /// Never ends. Once over the limit, commands may go on as long as they free space.
    pub(crate) async fn watch(self, state: Arc<State>) {
        if self.limit == 0 {
            return;
        }
        let mut used = self.measure().await;
        let mut free = free_space(&self.root);
        let mut walked = Instant::now();
        loop {
            tokio::time::sleep(LOOK).await;
            if self.running.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let headroom = self.limit.saturating_sub(used);
            let shrunk = free.saturating_sub(free_space(&self.root));
            if shrunk <= headroom / 8 && walked.elapsed() < WALK_AT_LEAST {
                continue;
            }
            let before = used;
            let began = Instant::now();
            free = free_space(&self.root);
            used = self.measure().await;
            if used > self.limit && (before <= self.limit || used > before) {
                self.kill_all(used, &state);
                // What they wrote between the look and their end is not the next command's doing.
                tokio::time::sleep(DYING).await;
                free = free_space(&self.root);
                used = self.measure().await;
            }
            // A slow walk must not become all that the guest does.
            tokio::time::sleep(began.elapsed() * 10).await;
            walked = Instant::now();
        }
    }

    fn kill_all(&self, used: u64, state: &State) {
        let limit = self.limit;
        self.exceeded.send_replace(Some(format!(
            "\n[killed: /workspace holds {used} bytes, the limit is {limit}; delete something]\n"
        )));
        let spared = state.programs.processes();
        let own = std::process::id().cast_signed();
        for pid in process::descendants(own) {
            if !spared.contains(&pid) {
                process::kill(pid);
            }
        }
    }
}

fn free_space(path: &Path) -> u64 {
    use std::os::unix::ffi::OsStrExt as _;
    let Ok(path) = std::ffi::CString::new(path.as_os_str().as_bytes()) else {
        return 0;
    };
    // SAFETY: the path ends in NUL, and the struct is plain data that the call fills.
    unsafe {
        let mut stat: libc::statvfs = std::mem::zeroed();
        if libc::statvfs(path.as_ptr(), &raw mut stat) == 0 {
            stat.f_bavail.saturating_mul(stat.f_frsize)
        } else {
            0
        }
    }
}

/// Bytes that the files under `path` take. Links are not followed; what cannot be read counts nothing.
fn size(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    let mut total = 0;
    let mut folders = vec![path.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let Ok(metadata) = entry.metadata() else {
                continue;
            };
            // A file of several names is counted once for each, shared out.
            total += metadata.blocks() * 512
                / if metadata.is_dir() {
                    1
                } else {
                    metadata.nlink().max(1)
                };
            if metadata.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_counts_what_it_takes() {
        let folder = tempfile::tempdir().unwrap();
        let before = size(folder.path());
        std::fs::create_dir(folder.path().join("sub")).unwrap();
        std::fs::write(folder.path().join("sub/file"), vec![1; 100_000]).unwrap();
        assert!(size(folder.path()) >= before + 100_000);
    }
}

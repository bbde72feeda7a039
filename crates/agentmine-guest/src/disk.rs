//! The disk limit, for backends that do not enforce one.
//!
//! Walking the whole root is too expensive to do all the time, so the guest polls the file system's free
//! space, which shrinks by at least as much as the root grows. It walks the root when the free space has
//! shrunk by a good part of what is left under the limit, and every [`WALK_AT_LEAST`] in any case. Accepted
//! race: a command can exceed the limit by what it writes between two polls.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use agentmine_process::descendants;
use tokio::sync::watch;

use crate::programs::Programs;

const POLL: Duration = Duration::from_millis(500);
const WALK_AT_LEAST: Duration = Duration::from_secs(30);
/// How long killed processes may take to end.
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
    /// Resolves when the limit is exceeded, with the note for the command's stderr.
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
    /// A `limit` of 0 means no limit.
    pub(crate) fn new(root: PathBuf, limit: u64) -> Self {
        let exceeded = watch::Sender::new(None);
        Self {
            root,
            limit,
            running: Arc::default(),
            exceeded,
        }
    }

    /// Registers a command, which is running until the result is dropped.
    pub(crate) fn command(&self) -> Watched {
        self.running.fetch_add(1, Ordering::Relaxed);
        Watched {
            running: self.running.clone(),
            exceeded: self.exceeded.subscribe(),
        }
    }

    /// Bytes under the root.
    async fn measure(&self) -> u64 {
        let root = self.root.clone();
        tokio::task::spawn_blocking(move || size(&root))
            .await
            .unwrap_or(0)
    }

    /// Never returns, unless there is no limit. Above the limit, commands may run as long as they free space.
    pub(crate) async fn watch(self, programs: Arc<Programs>) {
        if self.limit == 0 {
            return;
        }
        let mut used = self.measure().await;
        let mut free = free_space(&self.root);
        let mut walked = Instant::now();
        loop {
            tokio::time::sleep(POLL).await;
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
                let limit = self.limit;
                let why = format!(
                    "/workspace uses {used} bytes and the limit is {limit}; delete something"
                );
                self.kill_commands(&why, &programs);
                // What they wrote until they ended must not be blamed on the next command.
                tokio::time::sleep(DYING).await;
                free = free_space(&self.root);
                used = self.measure().await;
            }
            // A slow walk must not take up all of the guest's time.
            tokio::time::sleep(began.elapsed() * 10).await;
            walked = Instant::now();
        }
    }

    /// Kills everything but the stdio programs.
    pub(crate) fn kill_commands(&self, why: &str, programs: &Programs) {
        self.exceeded
            .send_replace(Some(format!("\n[killed: {why}]\n")));
        let spared = programs.pids();
        for process in descendants(std::process::id().cast_signed()) {
            if !spared.contains(&process.pid()) {
                process.signal(libc::SIGKILL);
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

/// The bytes that the files under `path` occupy. Links are not followed; what cannot be read is not counted.
fn size(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    let mut total = 0;
    let mut folders = vec![path.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let Ok(metadata) = entry.metadata() else {
                continue;
            };
            // Each name of a file with several names counts for its share.
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
    fn a_file_counts_what_it_occupies() {
        let folder = tempfile::tempdir().unwrap();
        let before = size(folder.path());
        std::fs::create_dir(folder.path().join("sub")).unwrap();
        std::fs::write(folder.path().join("sub/file"), vec![1; 100_000]).unwrap();
        assert!(size(folder.path()) >= before + 100_000);
    }
}

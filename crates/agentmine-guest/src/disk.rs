//! The disk limit, for backends where the kernel does not enforce one.
//!
//! Walking the whole root is too expensive to do all the time, so the guest polls the file system's free
//! space, which shrinks by at least as much as the root grows. It walks the root when the free space has
//! shrunk by a good part of what is left under the limit. Others that delete files on the same file system hide the
//! growth from this, so it also walks regularly: the cheaper the last walk was, the sooner. Where a part of
//! the sandbox cannot be counted ([`usage`](crate::usage)), all that the file system has lost since everything
//! could be counted is taken to be the sandbox's. Independently of the limit, a sandbox that still grows when the
//! file system is nearly full is stopped.
//!
//! Accepted race: a command can exceed the limit by what it writes between two polls.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use agentmine_guest::protocol::BYTES_FOR_A_FILE;
use agentmine_process::descendants;
use tokio::sync::watch;

use crate::programs::Programs;
use crate::usage::{self, Free, Usage};

const POLL: Duration = Duration::from_millis(500);
/// The time between two walks, as a multiple of what the last one took, and its bounds.
const WALK_AFTER: u32 = 100;
const WALK_SOONEST: Duration = Duration::from_secs(2);
const WALK_LATEST: Duration = Duration::from_secs(30);
/// After how many milliseconds what was hidden is counted again. A process between fork and exec has the guest's own protection
/// and cannot be looked into, and folders may go while they are counted; neither lasts.
const AGAIN: [u64; 4] = [5, 20, 50, 100];
/// How long killed processes may take to end.
const DYING: Duration = Duration::from_millis(200);

/// Watches the root's size.
#[derive(Debug, Clone)]
pub(crate) struct Disk {
    root: PathBuf,
    limit: u64,
    exceeded: watch::Sender<Option<String>>,
    /// Processes of the guest's own that let nobody look into them.
    unreadable: Arc<Mutex<Vec<i32>>>,
    /// Bytes at the last walk.
    walked: Arc<AtomicU64>,
}

/// A command that is killed when the limit is exceeded.
#[derive(Debug)]
pub(crate) struct Watched(watch::Receiver<Option<String>>);

impl Watched {
    /// Resolves when the limit is exceeded, with the note for the command's stderr.
    pub(crate) async fn exceeded(mut self: Watched) -> String {
        while self.0.changed().await.is_ok() {
            if let Some(why) = self.0.borrow_and_update().clone() {
                return why;
            }
        }
        std::future::pending().await
    }
}

/// A process of the guest's own that lets nobody look into it, as long as this lives.
#[derive(Debug)]
pub(crate) struct Unreadable {
    pid: i32,
    all: Arc<Mutex<Vec<i32>>>,
}

impl Drop for Unreadable {
    fn drop(&mut self) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|&pid| pid != self.pid);
    }
}

/// What the last look saw.
#[derive(Debug, Clone, Copy)]
struct Look {
    free: Free,
    used: Usage,
    /// Free and used bytes when everything could be counted for the last time.
    visible: (u64, u64),
}

impl Look {
    /// The look after this one. What is hidden is at most what the file system has lost otherwise.
    fn next(self, free: Free, counted: Usage) -> Self {
        let mut used = counted;
        if counted.hidden {
            let (free_then, used_then) = self.visible;
            let lost = free_then.saturating_sub(free.bytes);
            used.bytes += lost.saturating_sub(counted.bytes.saturating_sub(used_then));
        }
        let visible = match counted.hidden {
            true => self.visible,
            false => (free.bytes, counted.bytes),
        };
        Self {
            free,
            used,
            visible,
        }
    }

    /// Why the sandbox must not continue, if it has grown since `before`.
    fn fault(&self, limit: u64, before: &Self) -> Option<String> {
        let Usage { bytes, files, .. } = self.used;
        let (was, had) = (before.used.bytes, before.used.files);
        let max_files = limit / BYTES_FOR_A_FILE;
        if bytes > limit && (was <= limit || bytes > was) {
            let hidden = match self.used.hidden {
                true => ", with what it hides",
                false => "",
            };
            return Some(format!(
                "/workspace uses {bytes} bytes{hidden} and the limit is {limit}; delete something"
            ));
        }
        if files > max_files && (had <= max_files || files > had) {
            return Some(format!(
                "/workspace has {files} files and the limit is {max_files}; delete something"
            ));
        }
        let has_grown = bytes > was || files > had;
        (self.free.is_scarce() && has_grown).then(|| {
            let free = self.free.bytes;
            format!("the file system of /workspace is nearly full: {free} bytes are free; delete something")
        })
    }

    /// Whether the free space has shrunk so much that the sandbox must be checked again.
    fn is_outdated(&self, limit: u64, free: &Free) -> bool {
        let headroom = limit.saturating_sub(self.used.bytes);
        let shrunk = self.free.bytes.saturating_sub(free.bytes);
        let files = (limit / BYTES_FOR_A_FILE).saturating_sub(self.used.files);
        let taken = match (self.free.files, free.files) {
            (Some(before), Some(now)) => before.saturating_sub(now),
            _ => 0,
        };
        shrunk > headroom / 8 || taken > files / 8 || (free.is_scarce() && shrunk > 0)
    }
}

/// The count, repeated while a part of the sandbox is hidden.
async fn settled<C: Future<Output = Usage>>(count: impl Fn() -> C) -> Usage {
    let mut counted = count().await;
    for millis in AGAIN {
        if !counted.hidden {
            break;
        }
        tokio::time::sleep(Duration::from_millis(millis)).await;
        counted = count().await;
    }
    counted
}

/// How long after a walk the next one begins, whatever the free space says.
fn until_next_walk(took: Duration) -> Duration {
    took.saturating_mul(WALK_AFTER)
        .clamp(WALK_SOONEST, WALK_LATEST)
}

impl Disk {
    /// A `limit` of 0 means that the kernel holds it, or that there is none.
    pub(crate) fn new(root: PathBuf, limit: u64) -> Self {
        let exceeded = watch::Sender::new(None);
        Self {
            root,
            limit,
            exceeded,
            unreadable: Arc::default(),
            walked: Arc::default(),
        }
    }

    /// Bytes that the root takes. Where the kernel holds the limit, the root has its own file system.
    pub(crate) fn used(&self) -> u64 {
        if self.limit > 0 {
            return self.walked.load(Ordering::Relaxed);
        }
        let free = Free::of(&self.root);
        free.total.saturating_sub(free.bytes)
    }

    /// Registers a command.
    pub(crate) fn command(&self) -> Watched {
        Watched(self.exceeded.subscribe())
    }

    /// Registers a process that the guest itself made unreadable.
    pub(crate) fn expect_unreadable(&self, pid: i32) -> Unreadable {
        let all = self.unreadable.clone();
        let mut pids = all.lock().unwrap_or_else(PoisonError::into_inner);
        pids.push(pid);
        drop(pids);
        Unreadable { pid, all }
    }

    async fn measure(&self) -> Usage {
        let root = self.root.clone();
        let trusted = {
            let pids = self.unreadable.lock();
            pids.unwrap_or_else(PoisonError::into_inner).clone()
        };
        let counted = settled(|| {
            let (root, trusted) = (root.clone(), trusted.clone());
            let counted = tokio::task::spawn_blocking(move || usage::of(&root, &trusted));
            async { counted.await.unwrap_or_default() }
        })
        .await;
        self.walked.store(counted.bytes, Ordering::Relaxed);
        counted
    }

    /// Never returns, unless there is nothing to watch. Above the limit, commands may run as long as they free space.
    pub(crate) async fn watch(self, programs: Arc<Programs>) {
        if self.limit == 0 {
            return self.watch_machine(&programs).await;
        }
        let (free, used) = (Free::of(&self.root), self.measure().await);
        let mut last = Look {
            free,
            used,
            visible: (free.bytes, used.bytes),
        };
        let mut walked = Instant::now();
        let mut pause = WALK_SOONEST;
        loop {
            tokio::time::sleep(POLL).await;
            let free = Free::of(&self.root);
            let is_outdated = last.is_outdated(self.limit, &free);
            if !is_outdated && walked.elapsed() < pause {
                continue;
            }
            // What nobody runs cannot grow.
            if descendants(std::process::id().cast_signed()).is_empty() {
                continue;
            }
            let began = Instant::now();
            let mut look = last.next(free, self.measure().await);
            pause = until_next_walk(began.elapsed());
            if let Some(why) = look.fault(self.limit, &last) {
                self.kill_commands(&why, &programs);
                // What they wrote until they ended must not be blamed on the next command.
                tokio::time::sleep(DYING).await;
                look = look.next(Free::of(&self.root), self.measure().await);
            }
            last = look;
            // A slow walk must not take up all of the guest's time.
            tokio::time::sleep(began.elapsed() * 10).await;
            walked = Instant::now();
        }
    }

    /// Where the kernel holds the limit of the workspace, commands may still fill the machine's disk through the
    /// rest of a root that they can write. Kills them as long as it shrinks when it is nearly full.
    async fn watch_machine(&self, programs: &Programs) {
        let root = Path::new("/");
        let mut last = Free::of(root);
        while last.is_writable {
            tokio::time::sleep(POLL).await;
            let free = Free::of(root);
            if free.is_scarce() && free.bytes < last.bytes {
                let bytes = free.bytes;
                let why =
                    format!("the disk of this machine is nearly full: {bytes} bytes are free");
                self.kill_commands(&why, programs);
            }
            last = free;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cheap_walk_is_repeated_soon_and_a_slow_one_seldom() {
        let after = |millis| until_next_walk(Duration::from_millis(millis));
        assert_eq!(after(1), Duration::from_secs(2));
        assert_eq!(after(100), Duration::from_secs(10));
        assert_eq!(after(5_000), Duration::from_secs(30));
    }

    const LIMIT: u64 = 1 << 30;

    fn look(free: u64, bytes: u64) -> Look {
        let free = Free {
            bytes: free,
            ..Free::default()
        };
        let used = Usage {
            bytes,
            ..Usage::default()
        };
        Look {
            free,
            used,
            visible: (free.bytes, bytes),
        }
    }

    #[test]
    fn what_is_hidden_counts_as_what_the_file_system_lost() {
        let start = look(100 << 30, 1 << 20);
        let free = |bytes| look(bytes, 0).free;
        let counted = |bytes, hidden| Usage {
            bytes,
            hidden,
            ..Usage::default()
        };
        // A neighbour uses the file system too.
        let open = start.next(free(90 << 30), counted(2 << 20, false));
        assert_eq!(open.fault(LIMIT, &start), None);
        let hiding = open.next(free(88 << 30), counted(2 << 20, true));
        let why = hiding.fault(LIMIT, &open).unwrap();
        assert!(why.contains("with what it hides"), "{why}");
        assert_eq!(hiding.used.bytes, (2 << 30) + (2 << 20));
        // It frees space again.
        let less = hiding.next(free(89 << 30), counted(2 << 20, true));
        assert_eq!(less.fault(LIMIT, &hiding), None);
    }

    #[tokio::test]
    async fn what_is_hidden_for_a_moment_is_counted_again() {
        let hidden_for = async |times: u64| {
            let counts = AtomicU64::new(0);
            let counted = settled(|| {
                let bytes = counts.fetch_add(1, Ordering::Relaxed);
                let hidden = bytes < times;
                std::future::ready(Usage {
                    bytes,
                    hidden,
                    ..Usage::default()
                })
            });
            let counted = counted.await;
            (counted.bytes, counted.hidden)
        };
        assert_eq!(hidden_for(0).await, (0, false));
        assert_eq!(hidden_for(2).await, (2, false));
        assert_eq!(hidden_for(100).await, (4, true));
    }

    #[test]
    fn many_files_exceed_the_limit_too() {
        let start = look(100 << 30, 0);
        let files = |files| {
            let mut all = start;
            all.used.files = files;
            all
        };
        assert_eq!(files(LIMIT / BYTES_FOR_A_FILE).fault(LIMIT, &start), None);
        let many = files(LIMIT / BYTES_FOR_A_FILE + 1);
        assert!(many.fault(LIMIT, &start).unwrap().contains("131073 files"));
        assert_eq!(many.fault(LIMIT, &many), None);
    }
}

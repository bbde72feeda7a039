//! Processes: starting them, finding their descendants, killing and reaping them.
//!
//! The guest is a subreaper, so whatever a command leaves behind becomes the guest's child and is found
//! again. Accepted race: a process that forks while its tree is read is missed in that round; the end of
//! the tunnel repeats until nothing is left.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::process::{Child, Command};

/// Children that tokio waits for; all others are adopted.
#[derive(Debug, Clone, Default)]
pub(crate) struct Own(Arc<Mutex<HashSet<i32>>>);

/// A process that was started as leader of its own group.
#[derive(Debug)]
pub(crate) struct Leader {
    pub(crate) child: Child,
    pub(crate) pid: i32,
    _mark: Mark,
}

/// Somebody waits for this child.
#[derive(Debug)]
pub(crate) struct Mark {
    pid: i32,
    own: Own,
}

impl Drop for Mark {
    fn drop(&mut self) {
        self.own.lock().remove(&self.pid);
    }
}

impl Own {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashSet<i32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a program with all three standard streams piped.
    pub(crate) fn spawn(
        &self,
        argv: &[String],
        cwd: &Path,
        env: &BTreeMap<String, String>,
    ) -> io::Result<Leader> {
        let program = argv.first().map_or("", String::as_str);
        let child = Command::new(program)
            .args(argv.iter().skip(1))
            .env_clear()
            .envs(env)
            .current_dir(cwd)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let mark = self.mark(&child);
        Ok(Leader {
            child,
            pid: mark.pid,
            _mark: mark,
        })
    }

    /// Marks a child as one that somebody waits for, as long as the mark lives.
    pub(crate) fn mark(&self, child: &Child) -> Mark {
        let pid = child.id().map_or(0, u32::cast_signed);
        self.lock().insert(pid);
        Mark {
            pid,
            own: self.clone(),
        }
    }

    /// Collects adopted processes that have ended. Never ends.
    pub(crate) async fn reap_adopted(self) {
        let kind = tokio::signal::unix::SignalKind::child();
        let Ok(mut signals) = tokio::signal::unix::signal(kind) else {
            return;
        };
        while signals.recv().await.is_some() {
            // Ends come in bursts, and none of them is urgent.
            tokio::time::sleep(Duration::from_millis(50)).await;
            for pid in children(std::process::id().cast_signed()) {
                if !self.lock().contains(&pid) {
                    reap(pid);
                }
            }
        }
    }
}

impl Leader {
    /// Kills the group and all descendants that left the group.
    pub(crate) fn kill(&self) {
        let descendants = descendants(self.pid);
        kill_group(self.pid);
        for pid in descendants {
            kill(pid);
        }
    }

    /// Asks the group to end.
    pub(crate) fn terminate(&self) {
        signal_group(self.pid, libc::SIGTERM);
    }

    /// Waits for its end: the exit code, or 128 + the signal.
    pub(crate) async fn wait(&mut self) -> i32 {
        use std::os::unix::process::ExitStatusExt as _;
        match self.child.wait().await {
            Ok(status) => status
                .code()
                .unwrap_or_else(|| 128 + status.signal().unwrap_or(0)),
            Err(_) => -1,
        }
    }
}

/// Makes the calling process the parent of orphans below it.
pub(crate) fn become_subreaper() {
    // SAFETY: takes plain integers and changes only a flag of this process.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
}

/// Kills every descendant of this process, until there is none.
pub(crate) fn kill_all_descendants() {
    let own = std::process::id().cast_signed();
    for _ in 0..200 {
        let left = descendants(own);
        if left.is_empty() {
            return;
        }
        for &pid in &left {
            kill(pid);
        }
        for pid in left {
            reap(pid);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Kills one process. Without effect if it is gone.
pub(crate) fn kill(pid: i32) {
    if pid > 1 {
        // SAFETY: takes plain integers; a positive pid names one process.
        unsafe { libc::kill(pid, libc::SIGKILL) };
    }
}

fn kill_group(pgid: i32) {
    signal_group(pgid, libc::SIGKILL);
}

/// Whether the group had a member to be signalled; 0 only asks.
fn signal_group(pgid: i32, signal: i32) -> bool {
    // SAFETY: takes plain integers; the group was made by us for this child.
    pgid > 1 && unsafe { libc::kill(-pgid, signal) } == 0
}

/// All that a leader started, as far as it was seen: what has left the group is found by its parents
/// while they live. Accepted race: a process that leaves the group and whose parent ends before it was
/// seen is not found here; it ends with the sandbox.
#[derive(Debug, Default)]
pub(crate) struct Family(HashSet<Seen>);

/// A process, told from a later one of the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Seen {
    pid: i32,
    started: u64,
}

impl Seen {
    fn of(pid: i32) -> Option<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name may hold anything; the fields after its `)` are numbers. The start is the 22nd.
        let (_, fields) = stat.rsplit_once(')')?;
        let mut fields = fields.split_whitespace();
        let zombie = fields.next()? == "Z";
        let started = fields.nth(18)?.parse().ok()?;
        (!zombie).then_some(Self { pid, started })
    }

    fn lives(self) -> bool {
        Self::of(self.pid) == Some(self)
    }
}

impl Family {
    /// Takes in what is below `pid` now.
    pub(crate) fn look(&mut self, pid: i32) {
        self.0
            .extend(descendants(pid).into_iter().filter_map(Seen::of));
    }

    /// Kills all of it and the group of `leader`, which has ended, and waits until nothing is left.
    pub(crate) async fn kill(&self, leader: i32) {
        for _ in 0..100 {
            let grouped = signal_group(leader, libc::SIGKILL);
            let left: Vec<Seen> = self.0.iter().copied().filter(|p| p.lives()).collect();
            if !grouped && left.is_empty() {
                return;
            }
            for process in left {
                kill(process.pid);
            }
            // Ends are collected in rounds of their own; there is no event for "collected".
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

fn reap(pid: i32) {
    // SAFETY: a null status pointer is allowed; WNOHANG does not block.
    unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::WNOHANG) };
}

/// All processes below `pid`, children first.
pub(crate) fn descendants(pid: i32) -> Vec<i32> {
    let mut found = children(pid);
    let mut next = 0;
    while next < found.len() {
        found.extend(children(found[next]));
        next += 1;
    }
    found
}

fn children(pid: i32) -> Vec<i32> {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    let lists = tasks
        .flatten()
        .filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    lists
        .flat_map(|list| {
            list.split_whitespace()
                .filter_map(|word| word.parse().ok())
                .collect::<Vec<_>>()
        })
        .collect()
}

//! The table of stdio programs: those that are running, and the last that ended.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agentmine_guest::protocol::{STDERR_RING, StdioEnd};
use agentmine_process::{Process, Tail, descendants};
use tokio::sync::watch;

/// How many programs are kept in the table. Running ones always are.
const REMEMBERED: usize = 32;

/// The end of a program's stderr.
pub(crate) type Stderr = Arc<Mutex<Tail>>;

/// The stdio programs of a guest.
#[derive(Debug, Default)]
pub(crate) struct Programs(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    next: u64,
    entries: VecDeque<Entry>,
}

/// A program that is running or has ended.
#[derive(Debug)]
pub(crate) struct Entry {
    id: u64,
    /// 0 once it has ended.
    pid: i32,
    pub(crate) stderr: Stderr,
    pub(crate) stop: watch::Sender<Option<Duration>>,
    pub(crate) end: watch::Receiver<Option<StdioEnd>>,
}

/// What the task that runs a program needs of its entry.
pub(crate) struct Program {
    pub(crate) id: u64,
    pub(crate) stderr: Stderr,
    pub(crate) stop: watch::Receiver<Option<Duration>>,
    pub(crate) end: watch::Sender<Option<StdioEnd>>,
}

impl Programs {
    fn lock(&self) -> std::sync::MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a program that was just started.
    pub(crate) fn add(&self, pid: i32) -> Program {
        let mut table = self.lock();
        table.next += 1;
        let id = table.next;
        if table.entries.len() >= REMEMBERED
            && let Some(old) = table.entries.iter().position(|entry| entry.pid == 0)
        {
            table.entries.remove(old);
        }
        let stderr = Stderr::new(Mutex::new(Tail::new(STDERR_RING)));
        let (stop, stopped) = watch::channel(None);
        let (end, ended) = watch::channel(None);
        table.entries.push_back(Entry {
            id,
            pid,
            stderr: stderr.clone(),
            stop,
            end: ended,
        });
        Program {
            id,
            stderr,
            stop: stopped,
            end,
        }
    }

    /// Records the end of a program.
    pub(crate) fn ended(&self, id: u64) {
        if let Some(entry) = self.lock().entries.iter_mut().find(|entry| entry.id == id) {
            entry.pid = 0;
        }
    }

    /// Reads the entry of a program, if it has one.
    pub(crate) fn with<T>(&self, id: u64, take: impl FnOnce(&Entry) -> T) -> Option<T> {
        let table = self.lock();
        table.entries.iter().find(|entry| entry.id == id).map(take)
    }

    /// The pids of all running programs and of their descendants.
    pub(crate) fn pids(&self) -> Vec<i32> {
        let leaders: Vec<i32> = self.lock().entries.iter().map(|entry| entry.pid).collect();
        let mut all = Vec::new();
        for pid in leaders.into_iter().filter(|&pid| pid != 0) {
            all.push(pid);
            all.extend(descendants(pid).into_iter().map(Process::pid));
        }
        all
    }
}

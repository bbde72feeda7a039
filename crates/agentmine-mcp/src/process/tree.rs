//! Finding what a server started.

use std::collections::{HashMap, HashSet};
use std::io::Read as _;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a process's environment that are looked through.
const MAX_ENVIRONMENT: u64 = 1024 * 1024;

/// What the environment of a server's processes is marked with. It is inherited by all it starts, and
/// stays when their parents end.
#[derive(Debug, Clone)]
pub(super) struct Mark(String);

impl Mark {
    pub(super) const VARIABLE: &str = "AGENTMINE_MCP_RUN";

    pub(super) fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let own = std::process::id();
        let began = stat(own.cast_signed()).map_or(0, |stat| stat.started);
        // Process ids come again; with the time of start they do not.
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        Self(format!("{own}-{began}-{number}"))
    }

    pub(super) fn value(&self) -> &str {
        &self.0
    }

    fn is_on(&self, pid: i32) -> bool {
        let Ok(file) = std::fs::File::open(format!("/proc/{pid}/environ")) else {
            return false;
        };
        let mut environment = Vec::new();
        let _ = file.take(MAX_ENVIRONMENT).read_to_end(&mut environment);
        let wanted = format!("{}={}", Self::VARIABLE, self.0);
        environment
            .split(|byte| *byte == 0)
            .any(|variable| variable == wanted.as_bytes())
    }
}

/// A process, told from a later one that has the same id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Found {
    pub(super) pid: i32,
    started: u64,
}

impl Found {
    pub(super) fn of(pid: i32) -> Option<Self> {
        let started = stat(pid)?.started;
        Some(Self { pid, started })
    }

    /// Signals it, and never a later process of the same id: a handle is had before it is looked whose.
    pub(super) fn signal(self, signal: i32) {
        if self.pid <= 1 {
            return;
        }
        let handle = handle(self.pid);
        if Self::of(self.pid) != Some(self) {
            return;
        }
        match handle {
            Ok(handle) => {
                let none = std::ptr::null::<libc::siginfo_t>();
                // SAFETY: the handle is open, and no information is handed over.
                unsafe {
                    libc::syscall(
                        libc::SYS_pidfd_send_signal,
                        handle.as_raw_fd(),
                        signal,
                        none,
                        0,
                    )
                };
            }
            // Where the kernel has no handles.
            Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => {
                // SAFETY: takes plain integers; a positive id names one process.
                unsafe { libc::kill(self.pid, signal) };
            }
            Err(_) => {}
        }
    }
}

/// A handle of a process, which becomes readable when it has ended.
pub(super) fn handle(pid: i32) -> std::io::Result<OwnedFd> {
    // SAFETY: takes plain integers.
    let handle = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    match i32::try_from(handle) {
        // SAFETY: the kernel has just made it, for us alone; it closes on exec.
        Ok(handle) if handle >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(handle) }),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Signals a whole group at once, so that none of it can fork away meanwhile.
pub(super) fn signal_group(leader: i32, signal: i32) {
    if leader > 1 {
        // SAFETY: takes plain integers; the group is one that we made.
        unsafe { libc::kill(-leader, signal) };
    }
}

/// Whether a group or session of the leader's number is still the leader's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Group {
    Ours,
    /// The leader was collected, so its number may be another's by now.
    MayBeAnothers,
}

/// The processes of a server that live: `leader`, what is in its group or session, its descendants,
/// those that were `known` before, and whatever bears the mark, each with its descendants.
pub(super) fn members(
    leader: Found,
    group: Group,
    mark: &Mark,
    known: &HashSet<Found>,
) -> HashSet<Found> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return HashSet::new();
    };
    let ours = std::process::id().cast_signed();
    let ids = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    // Whatever it started is younger than itself.
    let mut others: Vec<(Found, Stat)> = ids
        .filter(|pid| *pid != ours)
        .filter_map(|pid| {
            let stat = stat(pid)?;
            let started = stat.started;
            Some((Found { pid, started }, stat))
        })
        .filter(|(process, _)| process.started >= leader.started)
        .collect();
    let mut family: HashMap<i32, (Found, Stat)> = HashMap::new();
    let grouped = |stat: &Stat| {
        group == Group::Ours && (stat.group == leader.pid || stat.session == leader.pid)
    };
    take(&mut others, &mut family, |process, stat, _| {
        *process == leader || known.contains(process) || grouped(stat)
    });
    descend(&mut others, &mut family);
    // Only of what is left, since it is the most work.
    take(&mut others, &mut family, |process, _, _| {
        mark.is_on(process.pid)
    });
    descend(&mut others, &mut family);
    family
        .into_values()
        .filter_map(|(process, stat)| (!stat.dead).then_some(process))
        .collect()
}

fn descend(others: &mut Vec<(Found, Stat)>, family: &mut HashMap<i32, (Found, Stat)>) {
    loop {
        let before = others.len();
        take(others, family, |_, stat, family| {
            family.contains_key(&stat.parent)
        });
        if others.len() == before {
            return;
        }
    }
}

fn take(
    others: &mut Vec<(Found, Stat)>,
    family: &mut HashMap<i32, (Found, Stat)>,
    belongs: impl Fn(&Found, &Stat, &HashMap<i32, (Found, Stat)>) -> bool,
) {
    let (taken, left) = std::mem::take(others)
        .into_iter()
        .partition(|(process, stat)| belongs(process, stat, family));
    *others = left;
    let taken: Vec<(Found, Stat)> = taken;
    family.extend(taken.into_iter().map(|entry| (entry.0.pid, entry)));
}

struct Stat {
    /// It has ended, and waits for its parent to look.
    dead: bool,
    parent: i32,
    group: i32,
    session: i32,
    /// In ticks since the machine's start.
    started: u64,
}

fn stat(pid: i32) -> Option<Stat> {
    let line = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    // The name before it may hold anything, parentheses and spaces included.
    let rest = line.get(line.iter().rposition(|byte| *byte == b')')? + 1..)?;
    let fields: Vec<&str> = std::str::from_utf8(rest)
        .ok()?
        .split_ascii_whitespace()
        .collect();
    let number = |at: usize| fields.get(at)?.parse().ok();
    Some(Stat {
        dead: matches!(*fields.first()?, "Z" | "X" | "x"),
        parent: number(1)?,
        group: number(2)?,
        session: number(3)?,
        started: fields.get(19)?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends_within(pid: i32, milliseconds: i32) -> bool {
        let handle = handle(pid).unwrap();
        let mut poll = libc::pollfd {
            fd: handle.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one entry, which lives.
        unsafe { libc::poll(&raw mut poll, 1, milliseconds) == 1 }
    }

    #[test]
    fn later_process_of_the_same_id_is_not_signalled() {
        let mut child = std::process::Command::new("sleep")
            .arg("1000")
            .spawn()
            .unwrap();
        let found = Found::of(child.id().cast_signed()).unwrap();
        let earlier = Found {
            started: found.started - 1,
            ..found
        };
        earlier.signal(libc::SIGKILL);
        assert!(!ends_within(found.pid, 300), "it was killed");
        assert!(Found::of(found.pid).is_some_and(|now| now == found));
        found.signal(libc::SIGKILL);
        child.wait().unwrap();
        // Nobody now, or somebody else.
        found.signal(libc::SIGKILL);
    }

    #[test]
    fn dead_process_that_nobody_collects_counts_as_gone() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let found = Found::of(child.id().cast_signed()).unwrap();
        assert!(ends_within(found.pid, 10_000));
        let living = members(found, Group::Ours, &Mark::new(), &HashSet::from([found]));
        assert!(living.is_empty(), "{living:?}");
        assert!(Found::of(found.pid).is_some(), "it is still to be seen");
        child.wait().unwrap();
    }
}

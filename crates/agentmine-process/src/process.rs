//! One process: its identity, its descendants, its signals.

use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::time::Duration;

/// A process, distinguished from a later one with the same pid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Process {
    pid: i32,
    /// Clock ticks from the machine's boot to the start of the process.
    started: u64,
}

impl Process {
    /// The process with a pid, if there is one. It may be a zombie.
    #[must_use]
    pub fn of(pid: i32) -> Option<Self> {
        Some(Stat::of(pid)?.process)
    }

    /// Its pid.
    #[must_use]
    pub fn pid(self) -> i32 {
        self.pid
    }

    /// Its start, in clock ticks since the machine's boot.
    pub(crate) fn started(self) -> u64 {
        self.started
    }

    /// Whether it is running. A zombie is not.
    #[must_use]
    pub(crate) fn is_alive(self) -> bool {
        Stat::of(self.pid).is_some_and(|stat| stat.process == self && !stat.dead)
    }

    /// Sends a signal, unless the process is gone.
    pub fn signal(self, signal: i32) {
        if self.pid <= 1 {
            return;
        }
        // Opened before the check, so that it refers to the process that is checked.
        let handle = exit_handle(self.pid);
        if Self::of(self.pid) != Some(self) {
            return;
        }
        let sent = handle.and_then(|handle| {
            let none = std::ptr::null::<libc::siginfo_t>();
            let (call, fd) = (libc::SYS_pidfd_send_signal, handle.as_raw_fd());
            // SAFETY: the descriptor is open, and no information is passed.
            match unsafe { libc::syscall(call, fd, signal, none, 0) } {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        });
        // The kernel or a system call filter refuses pidfds. ESRCH means that the process is gone.
        if sent.is_err_and(|error| error.raw_os_error() != Some(libc::ESRCH)) {
            // SAFETY: takes plain integers; a positive pid names one process.
            unsafe { libc::kill(self.pid, signal) };
        }
    }

    /// The process, if it is alive, and all its descendants, parents first.
    #[must_use]
    pub fn tree(self) -> Vec<Self> {
        match self.is_alive() {
            true => [self].into_iter().chain(descendants(self.pid)).collect(),
            false => Vec::new(),
        }
    }
}

/// The fields of `/proc/PID/stat` that are used here.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stat {
    pub(crate) process: Process,
    /// It has ended, and its parent has not reaped it yet.
    pub(crate) dead: bool,
    pub(crate) parent: i32,
    pub(crate) group: i32,
    pub(crate) session: i32,
    /// Where its environment begins and ends in its memory. Unknown while it executes another program, and where this
    /// process may not know.
    pub(crate) environment: Option<(u64, u64)>,
}

/// `PF_KTHREAD` of the kernel's `include/linux/sched.h`: a thread of the kernel, which has no memory of its own.
const KERNEL_THREAD: u32 = 0x0020_0000;

impl Stat {
    pub(crate) fn of(pid: i32) -> Option<Self> {
        let line = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
        // The name before it may contain anything, even parentheses and spaces.
        let rest = line.get(line.iter().rposition(|byte| *byte == b')')? + 1..)?;
        let rest = std::str::from_utf8(rest).ok()?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let address = |at: usize| fields.get(at)?.parse().ok().filter(|&it| it != 0);
        let number = |at: usize| fields.get(at)?.parse().ok();
        let started = fields.get(19)?.parse().ok()?;
        let flags: u32 = fields.get(6)?.parse().ok()?;
        Some(Self {
            process: Process { pid, started },
            dead: matches!(*fields.first()?, "Z" | "X" | "x"),
            environment: match flags & KERNEL_THREAD {
                // While the kernel sets up a program (`create_elf_tables` in `fs/binfmt_elf.c`), its environment looks
                // empty, or ends too early. The end of its code is written afterwards.
                0 => address(24).and_then(|_| address(47).zip(address(48))),
                _ => Some((0, 0)),
            },
            parent: number(1)?,
            group: number(2)?,
            session: number(3)?,
        })
    }

    /// Every process of the machine, or of this pid namespace.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter_map(Self::of)
    }
}

/// The children of a process, zombies included.
#[must_use]
pub fn children(pid: i32) -> Vec<i32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
    let lists = tasks
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    let mut found = Vec::new();
    for list in lists {
        found.extend(
            list.split_whitespace()
                .filter_map(|word| word.parse::<i32>().ok()),
        );
    }
    found
}

/// All descendants of a process, zombies included, parents first.
#[must_use]
pub fn descendants(pid: i32) -> Vec<Process> {
    let mut found = Vec::new();
    let mut parents = vec![pid];
    while let Some(parent) = parents.pop() {
        let below: Vec<Process> = children(parent)
            .into_iter()
            .filter_map(Process::of)
            .collect();
        parents.extend(below.iter().map(|process| process.pid));
        found.extend(below);
    }
    found
}

/// Kills and reaps every descendant of this process, until none is left or about a second has passed.
pub fn kill_all_descendants() {
    let own = std::process::id().cast_signed();
    for _ in 0..200 {
        let left = descendants(own);
        if left.is_empty() {
            return;
        }
        for process in &left {
            process.signal(libc::SIGKILL);
        }
        for process in left {
            reap(process.pid);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Signals a process group at once, so that no member can fork away meanwhile, and returns whether the group
/// has members. Signal 0 is not delivered. The caller must have created the group.
pub fn signal_group(leader: i32, signal: i32) -> bool {
    // SAFETY: takes plain integers.
    leader > 1 && unsafe { libc::kill(-leader, signal) } == 0
}

/// Reaps a child that has ended, without waiting.
pub fn reap(pid: i32) {
    // SAFETY: a null status pointer is allowed; WNOHANG does not block.
    unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::WNOHANG) };
}

/// A descriptor that becomes readable when the process has ended.
///
/// # Errors
/// When there is no such process, or the kernel has no pidfds.
pub fn exit_handle(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: takes plain integers.
    let handle = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    match i32::try_from(handle) {
        // SAFETY: the kernel has just opened it for us alone; it closes on exec.
        Ok(handle) if handle >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(handle) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Makes this process the parent of its orphaned descendants.
pub fn become_subreaper() {
    // SAFETY: takes plain integers and changes only a flag of this process.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
}

/// To be called between fork and exec: the kernel then kills this process when the thread of `parent` that
/// started it ends. Async-signal-safe.
///
/// # Errors
/// When the parent has ended already.
pub fn die_with_parent(parent: i32) -> io::Result<()> {
    // SAFETY: takes plain integers.
    let (set, now) = unsafe {
        let set = libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        (set, libc::getppid())
    };
    match (set, now == parent) {
        (-1, _) => Err(io::Error::last_os_error()),
        (_, true) => Ok(()),
        (_, false) => Err(io::Error::from_raw_os_error(libc::ESRCH)),
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;

    fn sleeper() -> (Child, Process) {
        let child = Command::new("sleep").arg("1000").spawn().unwrap();
        let process = Process::of(child.id().cast_signed()).unwrap();
        (child, process)
    }

    fn ends_within(pid: i32, milliseconds: i32) -> bool {
        let handle = exit_handle(pid).unwrap();
        let mut poll = libc::pollfd {
            fd: handle.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one entry, which lives.
        unsafe { libc::poll(&raw mut poll, 1, milliseconds) == 1 }
    }

    #[test]
    fn later_process_with_the_same_pid_is_not_signalled() {
        let (mut child, process) = sleeper();
        let earlier = Process {
            started: process.started - 1,
            ..process
        };
        earlier.signal(libc::SIGKILL);
        assert!(!ends_within(process.pid, 300), "it was killed");
        assert!(process.is_alive() && !earlier.is_alive());
        process.signal(libc::SIGKILL);
        child.wait().unwrap();
        // Nobody now, or somebody else.
        process.signal(libc::SIGKILL);
        assert!(!process.is_alive());
    }

    #[test]
    fn zombie_is_not_alive() {
        let mut child = Command::new("true").spawn().unwrap();
        let process = Process::of(child.id().cast_signed()).unwrap();
        assert!(ends_within(process.pid, 10_000));
        assert!(Process::of(process.pid).is_some(), "it is still listed");
        assert!(!process.is_alive() && process.tree().is_empty());
        child.wait().unwrap();
    }

    #[test]
    fn tree_lists_parents_before_children() {
        let mut child = Command::new("sh")
            .args(["-c", "sh -c 'sleep 1000; true'; true"])
            .spawn()
            .unwrap();
        let leader = Process::of(child.id().cast_signed()).unwrap();
        let patience = std::time::Instant::now() + Duration::from_secs(10);
        while leader.tree().len() < 3 {
            assert!(std::time::Instant::now() < patience);
            std::thread::yield_now();
        }
        let tree = leader.tree();
        assert_eq!(tree[0], leader);
        let parent = |process: &Process| Stat::of(process.pid).unwrap().parent;
        assert_eq!(parent(&tree[1]), leader.pid);
        assert_eq!(parent(&tree[2]), tree[1].pid);
        for process in tree.into_iter().rev() {
            process.signal(libc::SIGKILL);
        }
        child.wait().unwrap();
    }
}

//! The limits of memory and processes, for jails without a cgroup that holds them.
//!
//! The guest adds up what all processes use that it started; memory that they share counts once. The
//! kernel's own limit of each process (`RLIMIT_DATA`) is not set: it counts what is mapped, and programs with
//! sanitizers map terabytes that they never touch. Accepted race: a command can exceed a limit by what it takes
//! between two looks. The less memory is left, the sooner the next look follows. Not counted is what the kernel
//! holds for the processes, such as the buffers of sockets: when the machine's memory runs out, the kernel ends
//! these processes first.

use std::sync::Arc;
use std::sync::LazyLock;
use std::time::Duration;

use agentmine_process::{Process, descendants};

use crate::args::Confinement;
use crate::disk::Disk;
use crate::programs::Programs;

/// The time between two looks where much is left.
const LOOK: Duration = Duration::from_millis(500);
/// The time between two looks where nothing is left.
const SOON: Duration = Duration::from_millis(25);
/// What a core takes at most, in bytes per millisecond: one to two GB in a second.
const FASTEST: u64 = 2 << 20;

/// The limits; 0 means no limit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    /// Bytes of memory of all processes together.
    pub(crate) memory: u64,
    pub(crate) processes: u64,
    /// Decides which shared memory is the sandbox's own.
    pub(crate) confinement: Confinement,
}

impl Load {
    /// Never returns, unless there is no limit. Above a limit, all commands are killed.
    pub(crate) async fn watch(self, disk: Disk, programs: Arc<Programs>) {
        if self.memory == 0 && self.processes == 0 {
            return;
        }
        let mut used = 0;
        loop {
            tokio::time::sleep(self.pause(used)).await;
            let running = descendants(std::process::id().cast_signed());
            used = self.used(&running);
            if let Some(why) = self.exceeded(&running, used) {
                disk.kill_commands(&why, &programs);
            }
        }
    }

    /// The time until the next look, with this much memory in use.
    fn pause(self, used: u64) -> Duration {
        static CORES: LazyLock<u64> = LazyLock::new(|| {
            let cores = std::thread::available_parallelism();
            cores.map_or(1, |cores| cores.get() as u64)
        });
        if self.memory == 0 {
            return LOOK;
        }
        let left = self.memory.saturating_sub(used);
        Duration::from_millis(left / (FASTEST * *CORES)).clamp(SOON, LOOK)
    }

    /// Bytes of memory of these processes together. What they share is checked closely only if the limit may be
    /// exceeded: that takes long, and on a loaded machine the look would be late.
    fn used(self, running: &[Process]) -> u64 {
        let by_key = match self.confinement {
            Confinement::Namespaces => segments(&read("/proc/sysvipc/shm")),
            // No command can make one; those that are listed are the machine's.
            Confinement::Alone | Confinement::Container => 0,
        };
        let all = running.iter().map(|process| Memory::of(*process));
        let all: Vec<Memory> = all.collect();
        let own = by_key + all.iter().map(|memory| memory.own).sum::<u64>();
        let most = own + all.iter().map(|memory| memory.shared).sum::<u64>();
        if own > self.memory || most <= self.memory {
            return own;
        }
        let shares = running.iter().map(|process| share(*process));
        own + shares.sum::<u64>()
    }

    /// Which limit is exceeded, and by what.
    fn exceeded(self, running: &[Process], used: u64) -> Option<String> {
        let count = running.len() as u64;
        if self.processes > 0 && count > self.processes {
            let limit = self.processes;
            return Some(format!(
                "{count} processes run in the sandbox and the limit is {limit}"
            ));
        }
        let limit = self.memory;
        (limit > 0 && used > limit).then(|| {
            format!("the sandbox's processes use {used} bytes of memory and the limit is {limit}")
        })
    }
}

/// Bytes of memory of these processes together, without what they share with others.
pub(crate) fn own_memory(running: &[Process]) -> u64 {
    let own = running.iter().map(|process| Memory::of(*process).own);
    own.sum()
}

/// What a process has in memory, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Memory {
    own: u64,
    /// Files too, which others may have as well.
    shared: u64,
}

impl Memory {
    fn of(process: Process) -> Self {
        Self::parse(&read(&format!("/proc/{}/statm", process.pid())))
    }

    fn parse(statm: &str) -> Self {
        static PAGE: LazyLock<u64> = LazyLock::new(|| {
            // SAFETY: takes a plain integer.
            u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
        });
        let pages = statm.split_whitespace().map(|field| field.parse::<u64>());
        let pages: Vec<u64> = pages.filter_map(Result::ok).collect();
        match pages.as_slice() {
            [_, resident, shared, ..] => Self {
                own: resident.saturating_sub(*shared) * *PAGE,
                shared: shared * *PAGE,
            },
            _ => Self::default(),
        }
    }
}

/// The share of a process in memory that is shared and no file: exactly, if the process lets that be seen.
fn share(process: Process) -> u64 {
    let of = |name: &str| read(&format!("/proc/{}/{name}", process.pid()));
    let whole = field(&of("status"), "RssShmem:").unwrap_or(0);
    match whole {
        0 => 0,
        _ => field(&of("smaps_rollup"), "Pss_Shmem:").unwrap_or(whole),
    }
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// A line such as `RssShmem:  12 kB`, in bytes.
fn field(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kilobytes: u64 = rest.split_whitespace().next()?.parse().ok()?;
    Some(kilobytes << 10)
}

/// The bytes of all segments in a list of `/proc/sysvipc/shm`, in memory and in swap. One that is mapped counts with
/// its process too.
fn segments(list: &str) -> u64 {
    let mut lines = list
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    let names = lines.next().unwrap_or_default();
    let at = |name| names.iter().position(|it| *it == name);
    let columns: Vec<usize> = ["rss", "swap"].into_iter().filter_map(at).collect();
    let sizes = lines.flat_map(|line| {
        let sizes = columns
            .iter()
            .filter_map(|&at| line.get(at)?.parse::<u64>().ok());
        sizes.collect::<Vec<_>>()
    });
    sizes.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_is_reported_with_what_is_used() {
        let own = Process::of(std::process::id().cast_signed()).unwrap();
        let held = vec![1_u8; 50 << 20];
        let load = |memory, processes| {
            let load = Load {
                memory,
                processes,
                confinement: Confinement::Namespaces,
            };
            load.exceeded(&[own, own], load.used(&[own, own]))
        };
        assert_eq!(load(1 << 40, 2), None);
        assert_eq!(load(0, 0), None);
        let many = load(0, 1).unwrap();
        assert_eq!(many, "2 processes run in the sandbox and the limit is 1");
        let much = load(50 << 20, 2).unwrap();
        assert!(
            much.contains("bytes of memory and the limit is 52428800"),
            "{much}"
        );
        assert_eq!(held.len(), 50 << 20);
    }

    #[test]
    fn the_less_memory_is_left_the_sooner_is_the_next_look() {
        let load = |memory| Load {
            memory,
            processes: 9,
            confinement: Confinement::Alone,
        };
        assert_eq!(load(0).pause(7 << 30), LOOK);
        assert_eq!(load(8 << 30).pause(1 << 30), LOOK);
        let half = load(1 << 30).pause(512 << 20);
        assert!(SOON < half && half < LOOK, "{half:?}");
        assert_eq!(load(1 << 30).pause(1 << 30), SOON);
        assert_eq!(load(1 << 30).pause(2 << 30), SOON);
    }

    #[test]
    fn what_processes_share_counts_once() {
        let expected = Memory {
            own: 60 * 4096,
            shared: 40 * 4096,
        };
        assert_eq!(Memory::parse("900 100 40 1 0 50 0\n"), expected);
        assert_eq!(Memory::parse(""), Memory::default());
        let smaps = "Rss: 1040 kB\nPss_Anon: 50 kB\nPss_Shmem:     10 kB\n";
        assert_eq!(field(smaps, "Pss_Shmem:"), Some(10 << 10));
        assert_eq!(field(smaps, "RssShmem:"), None);
        let list = "key shmid perms size cpid lpid nattch uid gid cuid cgid atime dtime ctime rss swap\n\
                    0 1 1600 4096 1 1 0 0 0 0 0 0 0 0 8192 4096\n1 2 600 9 1 1 1 0 0 0 0 0 0 0 4096 0\n";
        assert_eq!(segments(list), 16384);
        assert_eq!(segments(""), 0);
    }
}

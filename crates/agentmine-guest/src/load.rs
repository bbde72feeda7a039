//! The limits of memory and processes, for jails without a cgroup that holds them.
//!
//! The guest adds up what all processes use that it started. Accepted race: a command can exceed a limit by
//! what it takes between two looks. The less memory is left, the sooner the next look follows.

use std::sync::Arc;
use std::sync::LazyLock;
use std::time::Duration;

use agentmine_process::{Process, descendants};

use crate::disk::Disk;
use crate::programs::Programs;

/// The time between two looks where much is left.
const LOOK: Duration = Duration::from_millis(500);
/// The time between two looks where nothing is left.
const SOON: Duration = Duration::from_millis(25);
/// What processes are expected to take at most, in bytes per millisecond: a core fills one to two GB in a second.
const FASTEST: u64 = 4 << 20;

/// The limits; 0 means no limit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    /// Bytes of memory of all processes together.
    pub(crate) memory: u64,
    pub(crate) processes: u64,
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
            used = running.iter().map(|process| memory(*process)).sum();
            if let Some(why) = self.exceeded(&running, used) {
                disk.kill_commands(&why, &programs);
            }
        }
    }

    /// The time until the next look, with this much memory in use.
    fn pause(self, used: u64) -> Duration {
        if self.memory == 0 {
            return LOOK;
        }
        let left = self.memory.saturating_sub(used);
        Duration::from_millis(left / FASTEST).clamp(SOON, LOOK)
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

/// Bytes of memory that only this process uses.
fn memory(process: Process) -> u64 {
    static PAGE: LazyLock<u64> = LazyLock::new(|| {
        // SAFETY: takes a plain integer.
        u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
    });
    let pages = std::fs::read_to_string(format!("/proc/{}/statm", process.pid()));
    let pages: Vec<u64> = pages
        .unwrap_or_default()
        .split_whitespace()
        .filter_map(|field| field.parse().ok())
        .collect();
    match pages.as_slice() {
        [_, resident, shared, ..] => resident.saturating_sub(*shared) * *PAGE,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_is_reported_with_what_is_used() {
        let own = Process::of(std::process::id().cast_signed()).unwrap();
        let held = vec![1_u8; 50 << 20];
        let used = 2 * memory(own);
        let load = |memory, processes| Load { memory, processes }.exceeded(&[own, own], used);
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
        };
        assert_eq!(load(0).pause(7 << 30), LOOK);
        assert_eq!(load(8 << 30).pause(1 << 30), LOOK);
        let half = load(1 << 30).pause(512 << 20);
        assert!(SOON < half && half < LOOK, "{half:?}");
        assert_eq!(load(1 << 30).pause(1 << 30), SOON);
        assert_eq!(load(1 << 30).pause(2 << 30), SOON);
    }
}

//! The limits of memory and processes, for jails without a cgroup that holds them.
//!
//! The guest adds up what all processes use that it started. Accepted race: a command can exceed a limit by
//! what it takes between two looks.

use std::sync::Arc;
use std::sync::LazyLock;
use std::time::Duration;

use agentmine_process::{Process, descendants};

use crate::disk::Disk;
use crate::programs::Programs;

const LOOK: Duration = Duration::from_millis(500);

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
        loop {
            tokio::time::sleep(LOOK).await;
            if let Some(why) = self.exceeded(&descendants(std::process::id().cast_signed())) {
                disk.kill_commands(&why, &programs);
            }
        }
    }

    /// Which limit is exceeded, and by what.
    fn exceeded(self, running: &[Process]) -> Option<String> {
        let count = running.len() as u64;
        if self.processes > 0 && count > self.processes {
            let limit = self.processes;
            return Some(format!(
                "{count} processes run in the sandbox and the limit is {limit}"
            ));
        }
        if self.memory == 0 {
            return None;
        }
        let used: u64 = running.iter().map(|process| memory(*process)).sum();
        let limit = self.memory;
        (used > limit).then(|| {
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
        let load = |memory, processes| Load { memory, processes }.exceeded(&[own, own]);
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
}

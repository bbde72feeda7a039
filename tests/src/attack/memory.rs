//! What an attack costs the worker in memory.

/// What the worker's memory may grow by during one attack, in bytes.
const LIMIT: u64 = 150 << 20;

/// The highest memory use of this process, which is the worker.
pub(super) struct Memory {
    at_start: u64,
}

impl Memory {
    pub(super) fn watch() -> Self {
        // Sets the highest use back to the present one. Without rights for it, the growth is that since the start.
        let _ = std::fs::write("/proc/self/clear_refs", "5");
        Self {
            at_start: Self::highest(),
        }
    }

    fn highest() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kilobytes =
            line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
        kilobytes.unwrap_or(0) << 10
    }

    /// How much it grew, if that is more than an attack may cost.
    pub(super) fn too_much(&self) -> Option<String> {
        let grown = Self::highest().saturating_sub(self.at_start);
        (grown > LIMIT).then(|| format!("the worker's memory grew by {} MB", grown >> 20))
    }
}

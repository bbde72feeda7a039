//! What servers leave behind, found by a variable that all that they start inherits.

use std::time::{Duration, Instant};

use agentmine_mcp::config::ServerConfig;
use uuid::Uuid;

use super::with_env;

const NAME: &str = "AGENTMINE_TEST_MARK";

/// A value that only the processes of one test have in their environment.
#[derive(Debug, Clone)]
pub struct Mark(String);

impl Default for Mark {
    fn default() -> Self {
        Self(Uuid::new_v4().simple().to_string())
    }
}

impl Mark {
    /// Has the server marked, with all that it starts.
    #[must_use]
    pub fn on(&self, server: ServerConfig) -> ServerConfig {
        with_env(server, NAME, &self.0)
    }

    /// A shell line that prints the command lines of what is marked; for sandboxes, from inside.
    #[must_use]
    pub fn shell_line(&self) -> String {
        let Self(value) = self;
        format!(
            "for p in /proc/[0-9]*; do if tr '\\0' '\\n' <$p/environ 2>/dev/null | grep -qx {NAME}={value}; \
             then tr '\\0' ' ' <$p/cmdline; echo; fi; done 2>/dev/null"
        )
    }

    /// The marked processes of this machine, as id and command line. A zombie is none: it is only
    /// waiting to be read by whoever inherited it.
    #[must_use]
    pub fn processes(&self) -> Vec<(u32, String)> {
        let wanted = format!("{NAME}={}", self.0);
        let folders = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let marked = folders.filter_map(|folder| {
            let pid: u32 = folder.file_name().to_str()?.parse().ok()?;
            let environment = std::fs::read(folder.path().join("environ")).ok()?;
            let mut variables = environment.split(|byte| *byte == 0);
            variables.find(|variable| *variable == wanted.as_bytes())?;
            let line = std::fs::read(folder.path().join("cmdline")).ok()?;
            Some((pid, String::from_utf8_lossy(&line).replace('\0', " ")))
        });
        marked.collect()
    }

    /// Waits until nothing is left; `Err` with what is, after a time.
    ///
    /// # Errors
    /// The processes that live on.
    pub async fn gone_within(&self, limit: Duration) -> Result<(), Vec<(u32, String)>> {
        let began = Instant::now();
        loop {
            let left = self.processes();
            if left.is_empty() {
                return Ok(());
            }
            if began.elapsed() > limit {
                return Err(left);
            }
            // The end of a stranger's child has no event.
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// Resident memory of a process in KiB: `VmRSS`, or `VmHWM` for its highest since it was reset.
#[must_use]
pub fn resident_kib(pid: u32, field: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    line.trim_start_matches(':')
        .split_whitespace()
        .next()?
        .parse()
        .ok()
}

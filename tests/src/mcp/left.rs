//! Finds processes that servers leave behind, by a variable that all their children inherit.

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
    /// Marks the server and everything it starts.
    #[must_use]
    pub fn on(&self, server: ServerConfig) -> ServerConfig {
        with_env(server, NAME, &self.0)
    }

    /// A shell line that prints the command lines of marked processes, to run inside a sandbox.
    #[must_use]
    pub fn shell_line(&self) -> String {
        let Self(value) = self;
        format!(
            "for p in /proc/[0-9]*; do if tr '\\0' '\\n' <$p/environ 2>/dev/null | grep -qx {NAME}={value}; \
             then tr '\\0' ' ' <$p/cmdline; echo; fi; done 2>/dev/null"
        )
    }

    /// The marked processes of this machine, as id and command line. Zombies do not count: they are only
    /// waiting for their parent to reap them.
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

    /// Waits until no process is left, up to a time limit.
    ///
    /// # Errors
    /// The processes that are still running.
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
            // The exit of another process's child cannot be awaited.
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

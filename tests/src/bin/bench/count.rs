//! Programs started and system calls of running processes and of all that they start, as `strace` counts them.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(20);

/// What was counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Successful calls of `execve`.
    pub(crate) programs: u64,
    pub(crate) calls: u64,
}

/// A running count. What it counts is several times slower meanwhile.
pub(crate) struct Counter {
    strace: Child,
    folder: TempDir,
}

impl Counter {
    /// Counts from now on.
    pub(crate) async fn attach(pids: &[i32]) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let mut command = Command::new("strace");
        command
            .args(["-f", "-c", "-o"])
            .arg(folder.path().join("counts"));
        for pid in pids {
            command.args(["-p", &pid.to_string()]);
        }
        let mut strace = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("strace does not start. hint: install it, or omit --count")?;
        let stderr = strace.stderr.take().context("no stderr")?;
        let mut lines = BufReader::new(stderr).lines();
        let mut attached = 0;
        while attached < pids.len() {
            match timeout(PATIENCE, lines.next_line()).await?? {
                Some(line) if line.contains(" attached") => attached += 1,
                Some(line) => bail!("{line}. hint: strace needs root here"),
                None => bail!("strace has ended"),
            }
        }
        // A full pipe would block it.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Ok(Self { strace, folder })
    }

    /// What was counted until now.
    pub(crate) async fn end(mut self) -> anyhow::Result<Counts> {
        let pid = self.strace.id().context("strace has ended")?;
        // SAFETY: `kill` takes two numbers and touches no memory of this program.
        let sent = unsafe { libc::kill(pid.cast_signed(), libc::SIGINT) };
        ensure!(sent == 0, "strace has ended by itself");
        timeout(PATIENCE, self.strace.wait()).await??;
        read(&std::fs::read_to_string(self.folder.path().join("counts"))?)
    }
}

/// Of a table with the columns `% time`, `seconds`, `usecs/call`, `calls`, `errors` (which may be empty) and `syscall`.
fn read(table: &str) -> anyhow::Result<Counts> {
    let successes = |name: &str| {
        let fields = table
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>());
        let mut rows = fields.filter(|fields| fields.last() == Some(&name));
        let row = rows.next()?;
        let number = |at: usize| row.get(at)?.parse::<u64>().ok();
        let errors = number(4).unwrap_or(0);
        Some((number(3)?, errors))
    };
    let (calls, _) = successes("total").with_context(|| format!("no total in {table:?}"))?;
    let (execs, failed) = successes("execve").unwrap_or_default();
    Ok(Counts {
        programs: execs.saturating_sub(failed),
        calls,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_calls_start_no_program() {
        let table = "\
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 90.00    0.000432           2       203           read
  5.00    0.000032           2         7         5 execve
------ ----------- ----------- --------- --------- ----------------
100.00    0.000464           2       210         5 total
";
        let counts = read(table).unwrap();
        assert_eq!((counts.programs, counts.calls), (2, 210));
        assert!(read("").is_err());
    }
}

//! Git of `agentmine-git` as the gateway runs it: a time limit and a cap on its output.
//!
//! The token is passed in an environment variable of the git process only, never in its arguments, and
//! never on disk.

use std::ffi::OsStr;
use std::io;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;

/// Bytes of stderr kept.
const MAX_STDERR: usize = 16 * 1024;

/// What a git process printed.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: Vec<u8>,
    /// Whether stdout exceeded the cap. The process was then killed.
    pub(crate) cut: bool,
    pub(crate) stderr: String,
}

/// A command that ends when it is dropped.
pub(crate) fn command(git: std::process::Command) -> Command {
    let mut command = Command::from(git);
    command.kill_on_drop(true);
    command
}

/// Runs `command` to its end. It is killed at the time limit, or when it prints more than `cap` bytes.
pub(crate) async fn run(mut command: Command, limit: Duration, cap: usize) -> io::Result<Output> {
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let missing = || io::Error::other("git was started without pipes");
    let stdout = child.stdout.take().ok_or_else(missing)?;
    let stderr = child.stderr.take().ok_or_else(missing)?;
    let work = async {
        let out = async {
            let (bytes, cut) = capped(stdout, cap).await?;
            if cut {
                child.start_kill()?;
            }
            let status = child.wait().await?;
            io::Result::Ok((bytes, cut, status))
        };
        tokio::try_join!(out, drained(stderr))
    };
    let ended = tokio::time::timeout(limit, work).await;
    let Ok(ended) = ended else {
        return Err(io::Error::new(
            io::ErrorKind::TimedOut,
            format!("git did not finish within {} seconds", limit.as_secs()),
        ));
    };
    let ((stdout, cut, status), stderr) = ended?;
    Ok(Output {
        status,
        stdout,
        cut,
        stderr: String::from_utf8_lossy(&stderr).into_owned(),
    })
}

/// The first `cap` bytes, and whether there were more.
async fn capped(reader: impl AsyncRead + Unpin, cap: usize) -> io::Result<(Vec<u8>, bool)> {
    let mut bytes = Vec::new();
    let mut limited = reader.take(cap as u64 + 1);
    limited.read_to_end(&mut bytes).await?;
    let cut = bytes.len() > cap;
    bytes.truncate(cap);
    Ok((bytes, cut))
}

/// Reads to the end, so that the writer never blocks; keeps the first [`MAX_STDERR`] bytes.
async fn drained(mut reader: impl AsyncRead + Unpin) -> io::Result<Vec<u8>> {
    let mut kept = Vec::new();
    let mut buffer = vec![0; 8192];
    loop {
        let n = reader.read(&mut buffer).await?;
        if n == 0 {
            return Ok(kept);
        }
        let room = MAX_STDERR.saturating_sub(kept.len());
        kept.extend_from_slice(&buffer[..n.min(room)]);
    }
}

/// Adds configuration through the environment.
pub(crate) fn configure<V: AsRef<OsStr>>(command: &mut Command, pairs: &[(&str, V)]) {
    command.env("GIT_CONFIG_COUNT", pairs.len().to_string());
    for (at, (key, value)) in pairs.iter().enumerate() {
        command.env(format!("GIT_CONFIG_KEY_{at}"), key);
        command.env(format!("GIT_CONFIG_VALUE_{at}"), value);
    }
}

#[cfg(test)]
mod tests {
    use agentmine_git::{Errand, GitHome};

    use super::*;

    #[tokio::test]
    async fn every_git_process_is_limited_and_killed_before_the_worker() {
        let home = GitHome::new().unwrap();
        for (errand, expected) in [
            (Errand::Untrusted, "786432 300 0 134217728 1000\n"),
            (Errand::Trusted, "4194304 1800 0 134217728 1000\n"),
        ] {
            let mut git = command(home.git(errand));
            let shown = "alias.limits=!echo $(ulimit -v) $(ulimit -t) $(ulimit -c) \
                         $GIT_ALLOC_LIMIT $(cat /proc/self/oom_score_adj)";
            git.args(["-c", shown, "limits"]);
            let output = run(git, Duration::from_secs(10), 1000).await.unwrap();
            let printed = String::from_utf8_lossy(&output.stdout);
            assert_eq!(printed, expected, "{}", output.stderr);
        }
        let mut git = command(home.git(Errand::Untrusted));
        git.args(["config", "--get", "core.bigFileThreshold"]);
        let output = run(git, Duration::from_secs(10), 1000).await.unwrap();
        assert_eq!(output.stdout, b"32m\n");
    }
}

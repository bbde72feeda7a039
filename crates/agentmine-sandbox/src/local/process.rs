//! The processes of a jail, controlled from outside.

use std::io;
use std::sync::OnceLock;
use std::sync::mpsc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt as _;
use tokio::process::{Child, ChildStderr};
use tokio::sync::oneshot;

use crate::error::SandboxError;

const STDERR_KEPT: usize = 4096;

/// A process, distinguished from a later one with the same pid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    pid: i32,
    /// Clock ticks from the machine's boot to the start of the process.
    started: u64,
}

/// The identity of a running process.
pub(crate) fn identity(pid: Option<u32>) -> Option<Identity> {
    let pid = i32::try_from(pid?).ok()?;
    Some(Identity {
        pid,
        started: start_time(pid)?,
    })
}

impl Identity {
    fn is_alive(self) -> bool {
        start_time(self.pid) == Some(self.started)
    }

    /// Kills the process and all its descendants, and waits briefly for their end.
    pub(crate) async fn kill_tree(self) {
        for _ in 0..100 {
            if !self.is_alive() {
                return;
            }
            // Descendants first: an orphan would no longer be found.
            for pid in self.tree().into_iter().rev() {
                signal(pid, libc::SIGKILL);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Stops the process and all its descendants. Repeats until a round finds no new one: a stopped
    /// process cannot fork.
    pub(crate) fn stop_tree(self) -> Result<(), SandboxError> {
        let mut stopped = Vec::new();
        for _ in 0..50 {
            let running: Vec<i32> = self
                .tree()
                .into_iter()
                .filter(|pid| !stopped.contains(pid))
                .collect();
            if running.is_empty() {
                return Ok(());
            }
            for &pid in &running {
                signal(pid, libc::SIGSTOP);
            }
            stopped.extend(running);
        }
        Err(SandboxError::Failed(
            "the sandbox starts processes faster than they can be paused".into(),
        ))
    }

    /// Lets all of them continue.
    pub(crate) fn continue_tree(self) {
        for pid in self.tree() {
            signal(pid, libc::SIGCONT);
        }
    }

    fn tree(self) -> Vec<i32> {
        if !self.is_alive() {
            return Vec::new();
        }
        let mut found = vec![self.pid];
        let mut next = 0;
        while next < found.len() {
            found.extend(children(found[next]));
            next += 1;
        }
        found
    }
}

fn children(pid: i32) -> Vec<i32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    let mut found = Vec::new();
    for task in tasks {
        let list = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        found.extend(
            list.split_whitespace()
                .filter_map(|word| word.parse::<i32>().ok()),
        );
    }
    found
}

/// Field 22 of `/proc/PID/stat`; `None` for a process that is gone or a zombie.
fn start_time(pid: i32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before it may contain anything, even parentheses.
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    let state = fields.next()?;
    let started = fields.nth(18)?.parse().ok()?;
    (state != "Z" && state != "X").then_some(started)
}

fn signal(pid: i32, signal: i32) {
    if pid > 1 {
        // SAFETY: takes plain integers; a positive pid names one process.
        unsafe { libc::kill(pid, signal) };
    }
}

type SpawnRequest = (
    std::process::Command,
    tokio::runtime::Handle,
    oneshot::Sender<io::Result<Child>>,
);

/// Starts a process from a thread that lives as long as the worker: bubblewrap's `--die-with-parent` acts
/// when the thread that started it ends, and a runtime's threads come and go.
pub(crate) async fn spawn(command: std::process::Command) -> Result<Child, SandboxError> {
    static SPAWNER: OnceLock<mpsc::Sender<SpawnRequest>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (tx, rx) = mpsc::channel::<SpawnRequest>();
        std::thread::spawn(move || {
            for (command, runtime, reply) in rx {
                let _entered = runtime.enter();
                let mut command = tokio::process::Command::from(command);
                // If the caller is gone, dropping the child kills it.
                let _ = reply.send(command.kill_on_drop(true).spawn());
            }
        });
        tx
    });
    let (reply, spawned) = oneshot::channel();
    let program = command.get_program().to_string_lossy().into_owned();
    let request = (command, tokio::runtime::Handle::current(), reply);
    let failed = |err: String| SandboxError::Refused(format!("{program}: {err}"));
    spawner
        .send(request)
        .map_err(|err| failed(err.to_string()))?;
    let child = spawned.await.map_err(|err| failed(err.to_string()))?;
    child.map_err(|err| failed(err.to_string()))
}

/// The last part of a jail's stderr.
pub(crate) struct Stderr(tokio::task::JoinHandle<Vec<u8>>);

impl Stderr {
    /// To be called after the jail has ended.
    pub(crate) async fn text(self) -> String {
        let said = tokio::time::timeout(Duration::from_secs(1), self.0).await;
        let said = said.ok().and_then(Result::ok).unwrap_or_default();
        String::from_utf8_lossy(&said).trim().to_owned()
    }
}

pub(crate) fn keep_stderr(stderr: Option<ChildStderr>) -> Stderr {
    Stderr(tokio::spawn(async move {
        let mut kept = Vec::new();
        let Some(mut stderr) = stderr else {
            return kept;
        };
        let mut buffer = vec![0; 1024];
        while let Ok(n @ 1..) = stderr.read(&mut buffer).await {
            kept.extend_from_slice(&buffer[..n]);
            let over = kept.len().saturating_sub(STDERR_KEPT);
            kept.drain(..over);
        }
        kept
    }))
}

//! The processes of a jail, controlled from outside.

use std::time::Duration;

use agentmine_process::{Mark, Process, Tail, run_on_spawner_thread};
use tokio::io::AsyncReadExt as _;
use tokio::process::{Child, ChildStderr};
use tokio::sync::oneshot;

use crate::error::SandboxError;

/// How much of a jail's stderr is kept, in bytes.
const STDERR_KEPT: usize = 4096;
/// How often a kill is repeated, and the pause after each one.
const KILLS: usize = 100;
const KILL_PAUSE: Duration = Duration::from_millis(5);
/// How often newly started processes are stopped.
const STOPS: usize = 50;

/// Kills a process and all its descendants, and waits briefly for their end.
pub(crate) async fn kill_tree(process: Process) {
    for _ in 0..KILLS {
        let tree = process.tree();
        if tree.is_empty() {
            return;
        }
        // Descendants first: an orphan would no longer be found.
        for process in tree.into_iter().rev() {
            process.signal(libc::SIGKILL);
        }
        tokio::time::sleep(KILL_PAUSE).await;
    }
}

/// Kills the processes with this mark, and waits briefly for their end. They are looked for on a blocking thread: the
/// processes of a jail can make each look take half a second.
pub(crate) async fn kill_marked(mark: &Mark) {
    for _ in 0..KILLS {
        let mark = mark.clone();
        let looked = tokio::task::spawn_blocking(move || mark.processes());
        let marked = looked.await.unwrap_or_default();
        if marked.is_empty() {
            return;
        }
        for process in marked {
            process.signal(libc::SIGKILL);
        }
        tokio::time::sleep(KILL_PAUSE).await;
    }
}

/// Stops a process and all its descendants. Repeats until a round finds no new one: a stopped process cannot
/// fork.
pub(crate) fn stop_tree(process: Process) -> Result<(), SandboxError> {
    let mut stopped = Vec::new();
    for _ in 0..STOPS {
        let tree = process.tree().into_iter();
        let running: Vec<Process> = tree.filter(|found| !stopped.contains(found)).collect();
        if running.is_empty() {
            return Ok(());
        }
        for process in &running {
            process.signal(libc::SIGSTOP);
        }
        stopped.extend(running);
    }
    Err(SandboxError::Failed(
        "the sandbox starts processes faster than they can be paused".into(),
    ))
}

/// Lets all of them continue.
pub(crate) fn continue_tree(process: Process) {
    for process in process.tree() {
        process.signal(libc::SIGCONT);
    }
}

/// Starts a process from a thread that lives as long as the worker, since bubblewrap's `--die-with-parent`
/// acts when that thread ends. It has a process group of its own: Ctrl-C in a terminal ends the worker, which then removes
/// its sandboxes.
pub(crate) async fn spawn(command: std::process::Command) -> Result<Child, SandboxError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let failed = |err: &dyn std::fmt::Display| SandboxError::Refused(format!("{program}: {err}"));
    let (reply, spawned) = oneshot::channel();
    let runtime = tokio::runtime::Handle::current();
    run_on_spawner_thread(move || {
        let _entered = runtime.enter();
        let mut command = tokio::process::Command::from(command);
        command.process_group(0);
        // If the caller is gone, dropping the child kills it.
        let _ = reply.send(command.kill_on_drop(true).spawn());
    })
    .map_err(|err| failed(&err))?;
    let child = spawned.await.map_err(|err| failed(&err))?;
    child.map_err(|err| SandboxError::of_machine(&program, &err))
}

/// The end of a jail's stderr.
pub(crate) struct Stderr(tokio::task::JoinHandle<Vec<u8>>);

impl Stderr {
    /// To be called after the jail has ended.
    pub(crate) async fn text(self) -> String {
        let text = tokio::time::timeout(Duration::from_secs(1), self.0).await;
        let text = text.ok().and_then(Result::ok).unwrap_or_default();
        String::from_utf8_lossy(&text).trim().to_owned()
    }
}

pub(crate) fn keep_stderr(stderr: Option<ChildStderr>) -> Stderr {
    Stderr(tokio::spawn(async move {
        let mut kept = Tail::new(STDERR_KEPT);
        let Some(mut stderr) = stderr else {
            return Vec::new();
        };
        let mut buffer = vec![0; 1024];
        while let Ok(n @ 1..) = stderr.read(&mut buffer).await {
            kept.push(&buffer[..n]);
        }
        kept.to_vec()
    }))
}

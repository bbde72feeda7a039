//! Runs one command in its own process group.
//!
//! Guaranteed: nothing that the command has started outlives the call, however it ends: the command exits, its
//! time is up, the client cancels, or the server ends. Output beyond the limits is read and dropped, so that a
//! command never waits for a reader.
//!
//! Accepted: a process survives if it leaves the group, loses its parent and changes its environment, all three
//! ([`Family`]). If the server itself is killed with SIGKILL, the kernel kills the command, but not what the
//! command has started.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use agentmine_process::{Family, Mark, Process, die_with_parent, exit_handle};
use rustix::process::Signal;
use tokio::io::unix::AsyncFd;
use tokio::net::unix::pipe::Receiver;
use tokio_util::sync::CancellationToken;

use super::capture::Capture;
use super::environment::is_passed_on;

/// The variable that marks a command and all processes that it starts.
const MARK: &str = "AGENTMINE_COMMAND";
/// How often the kill is repeated: members may have started others since the last look.
const KILL_ROUNDS: usize = 8;
/// How long output is still read after the kill: a process outside the family may hold the pipe open.
const AFTERMATH: Duration = Duration::from_millis(500);

/// What to run.
pub(super) struct Job {
    pub(super) program: OsString,
    pub(super) args: Vec<OsString>,
    pub(super) cwd: OwnedFd,
    pub(super) timeout: Duration,
}

/// How a command ended, and its output.
pub(super) struct JobResult {
    pub(super) end: JobEnd,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

/// How a command ended.
pub(super) enum JobEnd {
    /// It exited: its exit code, or 128 and the signal that killed it.
    Exited(i32),
    /// Killed because of its time limit.
    TimedOut,
    /// Killed because nobody waits for it any more.
    Cancelled,
}

/// Runs a command.
///
/// # Errors
/// When it cannot be started.
pub(super) async fn run(
    job: Job,
    cancelled: &CancellationToken,
    ended: &CancellationToken,
) -> io::Result<JobResult> {
    let mut running = Running::start(&job)?;
    let exited = running.exited()?;
    let (mut stdout, mut stderr) = running.outputs()?;
    let end = {
        let drained = async {
            tokio::join!(stdout.drain(), stderr.drain());
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            () = cancelled.cancelled() => None,
            () = ended.cancelled() => None,
            _ = exited.readable() => Some(true),
            () = tokio::time::sleep(job.timeout) => Some(false),
            () = drained => None,
        }
    };
    let status = running.end(&exited).await?;
    // The last output may still be in the pipes.
    let _ = tokio::time::timeout(AFTERMATH, async {
        tokio::join!(stdout.drain(), stderr.drain())
    })
    .await;
    let end = match end {
        Some(true) => JobEnd::Exited(exit_code(status)),
        Some(false) => JobEnd::TimedOut,
        None => JobEnd::Cancelled,
    };
    Ok(JobResult {
        end,
        stdout: stdout.into_text(),
        stderr: stderr.into_text(),
    })
}

fn exit_code(status: ExitStatus) -> i32 {
    status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal))
        .unwrap_or(-1)
}

/// A running command, killed with its family and reaped when this is dropped.
struct Running {
    child: Child,
    family: Family,
    over: bool,
}

impl Running {
    fn start(job: &Job) -> io::Result<Self> {
        let mark = Mark::new(MARK);
        let (variable, value) = mark.variable();
        let server = std::process::id().cast_signed();
        let mut command = Command::new(&job.program);
        command
            .args(&job.args)
            // By its descriptor, so that the folder that was checked is the one that is used.
            .current_dir(Path::new(&format!("/proc/self/fd/{}", job.cwd.as_raw_fd())))
            .env_clear()
            .envs(std::env::vars_os().filter(|(name, _)| is_passed_on(name)))
            .env(variable, value)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        // SAFETY: between fork and exec the closure makes two system calls and allocates nothing.
        unsafe { command.pre_exec(move || die_with_parent(server)) };
        let mut child = command.spawn()?;
        let Some(leader) = Process::of(child.id().cast_signed()) else {
            let _ = child.kill();
            let _ = child.wait();
            return Err(io::Error::other("it is not listed in /proc"));
        };
        Ok(Self {
            child,
            family: Family::new(leader, Some(mark)),
            over: false,
        })
    }

    /// Readable once the command has exited. It is not reaped until then, so its pid is not reused.
    fn exited(&self) -> io::Result<AsyncFd<OwnedFd>> {
        let handle = exit_handle(self.family.leader().pid())?;
        // SAFETY: an `OwnedFd` refers to the same open descriptor until it is dropped, and the `AsyncFd`
        // owns it.
        Ok(unsafe { AsyncFd::register(handle) }?)
    }

    fn outputs(&mut self) -> io::Result<(Capture<Receiver>, Capture<Receiver>)> {
        let pipe = |fd: Option<OwnedFd>| {
            let fd = fd.ok_or(io::ErrorKind::BrokenPipe)?;
            Receiver::from_owned_fd(fd).map(Capture::new)
        };
        let stdout = self.child.stdout.take().map(OwnedFd::from);
        let stderr = self.child.stderr.take().map(OwnedFd::from);
        Ok((pipe(stdout)?, pipe(stderr)?))
    }

    fn kill(&mut self) {
        for _ in 0..KILL_ROUNDS {
            if !self.family.signal(Signal::KILL.as_raw()) {
                return;
            }
        }
    }

    /// Kills what is left of the family, and returns how the command ended.
    async fn end(mut self, exited: &AsyncFd<OwnedFd>) -> io::Result<ExitStatus> {
        self.kill();
        let _ = exited.readable().await;
        self.over = true;
        self.child.wait()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.over {
            self.kill();
            // It was killed, so this returns at once.
            let _ = self.child.wait();
        }
    }
}

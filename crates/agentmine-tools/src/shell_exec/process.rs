//! Runs one command in a process group of its own.
//!
//! It promises: nothing that the command has started outlives the call, however that ends: the command is
//! done, the time is up, the client cancels, or the server ends. Output beyond the caps is read and
//! dropped, so that a command never waits for a reader.
//!
//! It accepts: a process that leaves the group, loses its parent and changes its environment, all three,
//! lives on ([`relatives`]). Where the server itself is killed with SIGKILL, the kernel kills the command,
//! and what the command has started lives on.

use std::ffi::OsString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{
    Pid, PidfdFlags, Signal, getppid, kill_process_group, pidfd_open,
    set_parent_process_death_signal,
};
use tokio::io::unix::AsyncFd;
use tokio::net::unix::pipe::Receiver;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::capture::{Capture, Captured};
use super::relatives;

/// How long output is still read after the group is gone: something outside of it may hold the pipe.
const AFTERMATH: Duration = Duration::from_millis(500);

/// What is run.
pub(super) struct Job {
    pub(super) program: OsString,
    pub(super) args: Vec<OsString>,
    pub(super) cwd: OwnedFd,
    pub(super) timeout: Duration,
}

/// What came of it.
pub(super) struct Outcome {
    pub(super) end: End,
    pub(super) stdout: Captured,
    pub(super) stderr: Captured,
}

/// How a command ended.
pub(super) enum End {
    /// By itself: its exit code, or 128 and the signal that ended it.
    Exited(i32),
    /// Killed, since its time was up.
    TimedOut,
    /// Killed, since nobody waits for it any more.
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
) -> std::io::Result<Outcome> {
    let mut group = Group::start(&job)?;
    let exited = group.exited()?;
    let (mut stdout, mut stderr) = group.outputs()?;
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
    let status = group.end(&exited).await?;
    // Without a reader's patience the last of the output would be lost.
    let _ = tokio::time::timeout(AFTERMATH, async {
        tokio::join!(stdout.drain(), stderr.drain())
    })
    .await;
    let end = match end {
        Some(true) => End::Exited(exit_code(status)),
        Some(false) => End::TimedOut,
        None => End::Cancelled,
    };
    Ok(Outcome {
        end,
        stdout: stdout.finish(),
        stderr: stderr.finish(),
    })
}

fn exit_code(status: ExitStatus) -> i32 {
    status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal))
        .unwrap_or(-1)
}

/// A process group, killed and reaped when this is dropped.
struct Group {
    child: Child,
    pid: Option<Pid>,
    mark: String,
    over: bool,
}

impl Group {
    fn start(job: &Job) -> std::io::Result<Self> {
        let mark = Uuid::new_v4().to_string();
        let server = i32::try_from(std::process::id())
            .ok()
            .and_then(Pid::from_raw);
        let mut command = Command::new(&job.program);
        command
            .args(&job.args)
            // By its descriptor, so that what was checked is what is used.
            .current_dir(Path::new(&format!("/proc/self/fd/{}", job.cwd.as_raw_fd())))
            .env_clear()
            .envs(std::env::vars_os().filter(|(name, _)| is_passed_on(name)))
            .env(relatives::MARK, &mark)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        // SAFETY: between fork and exec the closure makes two system calls and allocates nothing.
        unsafe {
            command.pre_exec(move || {
                set_parent_process_death_signal(Some(Signal::KILL))?;
                // The server may have ended before that.
                match getppid() == server {
                    true => Ok(()),
                    false => Err(std::io::ErrorKind::BrokenPipe.into()),
                }
            });
        }
        let child = command.spawn()?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        Ok(Self {
            child,
            pid,
            mark,
            over: false,
        })
    }

    /// Readable once the command is done. It stays unreaped until then, so its number stays its own.
    fn exited(&self) -> std::io::Result<AsyncFd<OwnedFd>> {
        let pid = self.pid.ok_or(std::io::ErrorKind::NotFound)?;
        let fd = pidfd_open(pid, PidfdFlags::empty())?;
        // SAFETY: an `OwnedFd` names the same open descriptor until it is dropped, and the `AsyncFd`
        // owns it.
        Ok(unsafe { AsyncFd::register(fd) }?)
    }

    fn outputs(&mut self) -> std::io::Result<(Capture<Receiver>, Capture<Receiver>)> {
        let pipe = |fd: Option<OwnedFd>| {
            let fd = fd.ok_or(std::io::ErrorKind::BrokenPipe)?;
            Receiver::from_owned_fd(fd).map(Capture::new)
        };
        let stdout = self.child.stdout.take().map(OwnedFd::from);
        let stderr = self.child.stderr.take().map(OwnedFd::from);
        Ok((pipe(stdout)?, pipe(stderr)?))
    }

    fn kill(&self) {
        if let Some(pid) = self.pid {
            let started = relatives::find(pid, &self.mark);
            // Fails only where nothing is left to kill.
            let _ = kill_process_group(pid, Signal::KILL);
            relatives::kill(started, &self.mark);
        }
    }

    /// Kills what is left of the group and tells how the command ended.
    async fn end(mut self, exited: &AsyncFd<OwnedFd>) -> std::io::Result<ExitStatus> {
        self.kill();
        let _ = exited.readable().await;
        self.over = true;
        self.child.wait()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.over {
            self.kill();
            // It was killed, so this is a moment.
            let _ = self.child.wait();
        }
    }
}

/// The environment that a command gets: where programs are, who and where the user is, and how text is
/// written. No tokens. [`relatives::MARK`] comes to it.
pub(crate) fn is_passed_on(name: &std::ffi::OsStr) -> bool {
    const NAMES: [&str; 10] = [
        "PATH", "HOME", "LANG", "LANGUAGE", "TERM", "TZ", "USER", "LOGNAME", "SHELL", "TMPDIR",
    ];
    name.to_str()
        .is_some_and(|name| NAMES.contains(&name) || name.starts_with("LC_"))
}

//! Starts processes, and reaps those that the guest adopts.
//!
//! The guest is a subreaper, so whatever a command leaves behind becomes a child of the guest and is found.
//! Accepted: a process that forks while its tree is read is missed in that round. When the tunnel ends, the
//! kill is repeated until nothing is left.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agentmine_process::{children, descendants, reap, signal_group};
use tokio::process::{Child, Command};

/// Children that tokio waits for; all others were adopted.
#[derive(Debug, Clone, Default)]
pub(crate) struct OwnChildren(Arc<Mutex<HashSet<i32>>>);

/// A process that was started as the leader of its own group.
#[derive(Debug)]
pub(crate) struct Leader {
    pub(crate) child: Child,
    pub(crate) pid: i32,
    _awaited: Awaited,
}

/// A child that is waited for as long as this lives.
#[derive(Debug)]
pub(crate) struct Awaited {
    pid: i32,
    own: OwnChildren,
}

impl Drop for Awaited {
    fn drop(&mut self) {
        self.own.lock().remove(&self.pid);
    }
}

impl OwnChildren {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashSet<i32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a program with all three standard streams piped. `image` is what is executed in its place.
    pub(crate) fn spawn(
        &self,
        argv: &[String],
        image: Option<&Path>,
        cwd: &Path,
        env: &BTreeMap<String, String>,
    ) -> io::Result<Leader> {
        let program = argv.first().map_or("", String::as_str);
        let mut command = Command::new(image.unwrap_or(Path::new(program)));
        if image.is_some() {
            command.arg0(program);
        }
        let child = command
            .args(argv.iter().skip(1))
            .env_clear()
            .envs(env)
            .current_dir(cwd)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let awaited = self.awaits(&child);
        Ok(Leader {
            child,
            pid: awaited.pid,
            _awaited: awaited,
        })
    }

    /// Keeps a child from being reaped as an adopted one.
    pub(crate) fn awaits(&self, child: &Child) -> Awaited {
        let pid = child.id().map_or(0, u32::cast_signed);
        self.lock().insert(pid);
        Awaited {
            pid,
            own: self.clone(),
        }
    }

    /// Reaps adopted processes that have ended. Never returns.
    pub(crate) async fn reap_adopted(self) {
        let kind = tokio::signal::unix::SignalKind::child();
        let Ok(mut signals) = tokio::signal::unix::signal(kind) else {
            return;
        };
        while signals.recv().await.is_some() {
            // Processes end in bursts, and reaping them is not urgent.
            tokio::time::sleep(Duration::from_millis(50)).await;
            for pid in children(std::process::id().cast_signed()) {
                if !self.lock().contains(&pid) {
                    reap(pid);
                }
            }
        }
    }
}

/// The group of a process, which is killed with all descendants when this is dropped before [`Family::ended`].
#[derive(Debug)]
pub(crate) struct Family(Option<i32>);

impl Family {
    /// The child must have been started as the leader of its own group.
    pub(crate) fn of(child: &Child) -> Self {
        Self(child.id().map(u32::cast_signed))
    }

    /// The process has ended, so its number may be another one's.
    pub(crate) fn ended(mut self) {
        self.0 = None;
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        if let Some(leader) = self.0 {
            kill_family(leader);
        }
    }
}

fn kill_family(leader: i32) {
    let descendants = descendants(leader);
    signal_group(leader, libc::SIGKILL);
    for process in descendants {
        process.signal(libc::SIGKILL);
    }
}

impl Leader {
    /// Kills the group and all descendants that left the group.
    pub(crate) fn kill(&self) {
        kill_family(self.pid);
    }

    /// Sends SIGTERM to the group.
    pub(crate) fn terminate(&self) {
        signal_group(self.pid, libc::SIGTERM);
    }

    /// Waits for its end, and returns the exit code, or 128 + the signal.
    pub(crate) async fn wait(&mut self) -> i32 {
        use std::os::unix::process::ExitStatusExt as _;
        match self.child.wait().await {
            Ok(status) => status
                .code()
                .unwrap_or_else(|| 128 + status.signal().unwrap_or(0)),
            Err(_) => -1,
        }
    }
}

//! The process of a server and all that it started, until the last of them has ended.

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agentmine_process::{Family, Mark, Process, exit_handle};
use agentmine_runtime::config::Secret;
use async_trait::async_trait;
use tokio::io::unix::AsyncFd;
use tokio::process::Child;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::stderr::Stderr;
use super::stream::{Pipes, Stdin};
use crate::lock::lock;
use crate::{Launched, ServerProcess};

/// How often the rest of the family is polled once the server itself has ended.
const POLL: Duration = Duration::from_millis(20);
/// How often the kill is repeated, and the pause after each one.
const KILLS: usize = 100;
const KILL_PAUSE: Duration = Duration::from_millis(5);

pub(super) struct WorkerProcess {
    server: String,
    family: Arc<ServerFamily>,
    stdin: Stdin,
    stderr: Stderr,
    ended: watch::Receiver<Option<String>>,
}

impl WorkerProcess {
    pub(super) fn adopt(
        server: &str,
        mut child: Child,
        mark: Mark,
        secrets: Vec<Secret>,
    ) -> Result<Launched, String> {
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(stdin), Some(stdout), Some(stderr), Some(pid)) =
            (pipes.0, pipes.1, pipes.2, child.id())
        else {
            return Err("its pipes could not be created".into());
        };
        // It may have ended already. Its pid is not reused before it is reaped.
        let leader = Process::of(pid.cast_signed()).ok_or("it is not listed in /proc")?;
        let family = Arc::new(ServerFamily {
            leader,
            family: Mutex::new(Family::new(leader, Some(mark))),
            stopping: AtomicBool::new(false),
            over: AtomicBool::new(false),
        });
        let (report, ended) = watch::channel(None);
        tokio::spawn(wait(child, family.clone(), report));
        let stdin = Stdin::new(stdin);
        let stderr = Stderr::read(server, stderr, secrets);
        let stream = Pipes {
            stdout,
            stdin: stdin.clone(),
        };
        Ok(Launched {
            stream: Box::new(stream),
            process: Box::new(Self {
                server: server.to_owned(),
                family,
                stdin,
                stderr,
                ended,
            }),
        })
    }

    /// Waits until nothing is left, at most for `limit`.
    async fn gone_within(&self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        if timeout(limit, self.ended()).await.is_err() {
            return false;
        }
        loop {
            if self.family.with(Family::look).await == 0 {
                self.family.over.store(true, Ordering::SeqCst);
                return true;
            }
            if Instant::now() >= deadline {
                return false;
            }
            sleep(POLL).await;
        }
    }
}

/// Waits for the server's process, reaps it and reports how it ended.
async fn wait(mut child: Child, family: Arc<ServerFamily>, report: watch::Sender<Option<String>>) {
    // Readable when the process has ended. It is not reaped yet, so its pid still belongs to its group.
    let handle = exit_handle(family.leader.pid()).and_then(|handle| {
        // SAFETY: it is owned, so it stays open and the same as long as it is registered.
        unsafe { AsyncFd::register(handle) }.map_err(std::io::Error::from)
    });
    let mut status = None;
    match handle {
        Ok(handle) => drop(handle.readable().await),
        // A kernel without pidfds. Accepted: the pid may be reused until the next statement.
        Err(_) => status = Some(child.wait().await),
    }
    family.with(Family::before_reaping_leader).await;
    let status = match status {
        Some(status) => status,
        None => child.wait().await,
    };
    let how = match status {
        Ok(status) => described(status),
        Err(error) => format!("it cannot be waited for: {error}"),
    };
    report.send_replace(Some(how));
    // A server that ended by itself no longer serves, so what it left behind is killed too.
    if !family.stopping.load(Ordering::SeqCst) {
        family.kill_until_gone().await;
    }
}

fn described(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => status.to_string(),
    }
}

#[async_trait]
impl ServerProcess for WorkerProcess {
    async fn stderr(&self) -> String {
        if self.ended.borrow().is_some() {
            self.stderr.last_words().await;
        }
        self.stderr.text()
    }

    async fn ended(&self) -> String {
        let mut ended = self.ended.clone();
        match ended.wait_for(Option::is_some).await {
            Ok(how) => how.clone().unwrap_or_default(),
            Err(_) => "it is no longer watched".to_owned(),
        }
    }

    async fn stop(&self, grace: Duration) {
        self.family.stopping.store(true, Ordering::SeqCst);
        // Before anything ends, so that processes whose parents end are known.
        self.family.with(Family::look).await;
        self.stdin.close();
        if self.gone_within(grace).await {
            return;
        }
        self.family
            .with(|family| family.signal(libc::SIGTERM))
            .await;
        if self.gone_within(grace).await {
            return;
        }
        if !self.family.kill_until_gone().await {
            tracing::error!(
                mcp.server = self.server,
                "processes of an MCP server do not end after SIGKILL"
            );
        }
        let _ = timeout(Duration::from_secs(1), self.ended()).await;
    }

    fn kill(&self) {
        self.stdin.close();
        self.family.kill();
    }

    fn pid(&self) -> Option<u32> {
        let alive = self.ended.borrow().is_none();
        alive.then_some(self.family.leader.pid().cast_unsigned())
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The family of a server, shared by those who wait for it and those who kill it.
struct ServerFamily {
    leader: Process,
    /// Held while signals are sent, so that the leader is not reaped meanwhile.
    family: Mutex<Family>,
    /// `stop` kills what is left.
    stopping: AtomicBool,
    /// Nothing is left.
    over: AtomicBool,
}

impl ServerFamily {
    /// Runs `work` on a blocking thread, since reading `/proc` takes milliseconds on a busy machine.
    async fn with<T: Default + Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&mut Family) -> T + Send + 'static,
    ) -> T {
        let shared = self.clone();
        tokio::task::spawn_blocking(move || work(&mut lock(&shared.family)))
            .await
            .unwrap_or_default()
    }

    /// Repeats the kill, since processes may fork meanwhile. Returns whether nothing is left.
    async fn kill_until_gone(self: &Arc<Self>) -> bool {
        for _ in 0..KILLS {
            let gone =
                |family: &mut Family| !family.signal(libc::SIGKILL) && family.is_leader_reaped();
            if self.with(gone).await {
                self.over.store(true, Ordering::SeqCst);
                return true;
            }
            sleep(KILL_PAUSE).await;
        }
        false
    }

    /// Kills without waiting, when there is no time or no runtime. Twice, since processes may fork during the
    /// first look.
    fn kill(&self) {
        if self.over.load(Ordering::SeqCst) {
            return;
        }
        for _ in 0..2 {
            if !lock(&self.family).signal(libc::SIGKILL) {
                return;
            }
        }
    }
}

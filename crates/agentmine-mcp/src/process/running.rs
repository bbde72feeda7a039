//! A server's process and all that it started, from its start to the end of the last of them.

use std::collections::HashSet;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agentmine_runtime::config::Secret;
use async_trait::async_trait;
use tokio::io::unix::AsyncFd;
use tokio::process::Child;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::stderr::Stderr;
use super::stream::{Pipes, Stdin};
use super::tree::{self, Found, Group, Mark};
use crate::{Launched, ServerProcess, lock};

/// How often it is looked whether something is left once the server itself has ended.
const LOOK: Duration = Duration::from_millis(20);
/// How often what is left is killed before it is told that it would not go.
const KILLS: usize = 100;

pub(super) struct WorkerProcess {
    server: String,
    family: Arc<Family>,
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
            return Err("its pipes could not be made".into());
        };
        // It may have ended already; until it is waited for, its id is its own.
        let leader = Found::of(pid.cast_signed()).ok_or("it cannot be seen in /proc")?;
        let family = Arc::new(Family {
            leader,
            mark,
            known: Mutex::default(),
            reaped: Mutex::default(),
            stopping: AtomicBool::new(false),
            over: AtomicBool::new(false),
        });
        let (tell, ended) = watch::channel(None);
        tokio::spawn(wait(child, family.clone(), tell));
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

    /// Waits until nothing is left, at most so long.
    async fn gone_within(&self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        if timeout(limit, self.ended()).await.is_err() {
            return false;
        }
        loop {
            if self.family.living().await.is_empty() {
                self.family.over.store(true, Ordering::SeqCst);
                return true;
            }
            if Instant::now() >= deadline {
                return false;
            }
            sleep(LOOK).await;
        }
    }
}

/// Waits for the process itself; without this nobody would collect it.
async fn wait(mut child: Child, family: Arc<Family>, tell: watch::Sender<Option<String>>) {
    // It has ended, and is not collected yet: as long as it is not, its number is its group's alone.
    let handle = tree::handle(family.leader.pid).and_then(|handle| {
        // SAFETY: it is owned, so it stays open and the same for as long as it is registered.
        unsafe { AsyncFd::register(handle) }.map_err(std::io::Error::from)
    });
    let mut status = None;
    match handle {
        Ok(handle) => drop(handle.readable().await),
        // A kernel without them. Accepted: the number might be another's in the moment until below.
        Err(_) => status = Some(child.wait().await),
    }
    family.living().await;
    *lock(&family.reaped) = true;
    let status = match status {
        Some(status) => status,
        None => child.wait().await,
    };
    let how = match status {
        Ok(status) => described(status),
        Err(error) => format!("it cannot be waited for: {error}"),
    };
    tell.send_replace(Some(how));
    // A server that ended by itself is no server any more, so what it left behind goes too.
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
        // Before anything can end, so that those whose parents end are known.
        self.family.living().await;
        self.stdin.close();
        if self.gone_within(grace).await {
            return;
        }
        self.family.signal(libc::SIGTERM).await;
        if self.gone_within(grace).await {
            return;
        }
        if !self.family.kill_until_gone().await {
            tracing::error!(
                mcp.server = self.server,
                "processes of an MCP server do not end"
            );
        }
        let _ = timeout(Duration::from_secs(1), self.ended()).await;
    }

    fn kill(&self) {
        self.stdin.close();
        self.family.kill();
    }

    fn pid(&self) -> Option<u32> {
        let lives = self.ended.borrow().is_none();
        lives.then_some(self.family.leader.pid.cast_unsigned())
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A server's process and all that it started.
struct Family {
    leader: Found,
    mark: Mark,
    /// All that were ever seen: one whose parents have ended is no descendant any more.
    known: Mutex<HashSet<Found>>,
    /// The leader's id may be another's by now.
    reaped: Mutex<bool>,
    /// Somebody else ends what is left.
    stopping: AtomicBool,
    /// Nothing is left.
    over: AtomicBool,
}

impl Family {
    /// Those that live.
    async fn living(self: &Arc<Self>) -> HashSet<Found> {
        let family = self.clone();
        // Reading /proc takes milliseconds on a busy machine.
        tokio::task::spawn_blocking(move || family.look())
            .await
            .unwrap_or_default()
    }

    fn look(&self) -> HashSet<Found> {
        let known = lock(&self.known).clone();
        let group = match *lock(&self.reaped) {
            true => Group::MayBeAnothers,
            false => Group::Ours,
        };
        let living = tree::members(self.leader, group, &self.mark, &known);
        // The dead need not be remembered.
        lock(&self.known).clone_from(&living);
        living
    }

    async fn signal(self: &Arc<Self>, signal: i32) {
        let living = self.living().await;
        self.send(&living, signal);
    }

    fn send(&self, living: &HashSet<Found>, signal: i32) {
        {
            // Held, so that it is not collected before the signal is sent.
            let reaped = lock(&self.reaped);
            if !*reaped {
                tree::signal_group(self.leader.pid, signal);
            }
        }
        for process in living {
            process.signal(signal);
        }
    }

    /// Kills what lives, again and again, since it may fork meanwhile. Whether nothing is left.
    async fn kill_until_gone(self: &Arc<Self>) -> bool {
        for _ in 0..KILLS {
            let living = self.living().await;
            if living.is_empty() && *lock(&self.reaped) {
                self.over.store(true, Ordering::SeqCst);
                return true;
            }
            self.send(&living, libc::SIGKILL);
            sleep(LOOK / 4).await;
        }
        false
    }

    /// The same without waiting, for when there is no time or no runtime: twice, for what was forked
    /// while the first look was under way.
    fn kill(&self) {
        if self.over.load(Ordering::SeqCst) {
            return;
        }
        for _ in 0..2 {
            let living = self.look();
            if living.is_empty() {
                return;
            }
            self.send(&living, libc::SIGKILL);
        }
    }
}

//! One program of the fleet: a producer or a consumer, which is started again whenever it is gone.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use chrono::{DateTime, TimeDelta, Utc};
use serde_json::Value;

use super::link::{Link, Weather};

/// What a program talks to, besides the forge, which distinguishes programs by their tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Peer {
    Database,
    Broker,
    Model,
    Forge,
    Engine,
}

impl Peer {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Database => "database",
            Self::Broker => "broker",
            Self::Model => "model",
            Self::Forge => "forge",
            Self::Engine => "engine",
        }
    }
}

/// The links of one program.
pub(super) struct Links(pub(super) Vec<(Peer, Link)>);

impl Links {
    pub(super) fn port(&self, peer: Peer) -> Option<u16> {
        let (_, link) = self.0.iter().find(|(at, _)| *at == peer)?;
        Some(link.port())
    }

    pub(super) fn set(&self, peer: Peer, weather: Weather) {
        for (_, link) in self.0.iter().filter(|(at, _)| *at == peer) {
            link.set(weather);
        }
    }

    pub(super) fn heal(&self) {
        for (_, link) in &self.0 {
            link.set(Weather::Fair);
        }
    }
}

/// A process that was gone, for the time until its work was resumed.
#[derive(Debug, Clone)]
pub(super) struct Death {
    pub(super) pid: u32,
    pub(super) at: DateTime<Utc>,
}

/// The same for every start of a program.
pub(super) struct Recipe {
    /// `producer` or `consumer`.
    pub(super) binary: PathBuf,
    pub(super) config: Value,
    pub(super) folder: PathBuf,
    /// Variables of every program of the fleet.
    pub(super) environment: Vec<(String, String)>,
}

/// A program that is kept running.
pub(super) struct Program {
    /// `consumer-1`; also the name of the forge's client.
    pub(super) name: String,
    pub(super) links: Links,
    recipe: Recipe,
    child: Option<Child>,
    starts: u32,
    /// The failpoints of the next starts, in order.
    pub(super) plans: VecDeque<String>,
    pub(super) deaths: Vec<Death>,
    /// Every process that it was.
    pub(super) pids: Vec<u32>,
    /// When each of them was started.
    pub(super) starts_at: Vec<DateTime<Utc>>,
    /// Those with failpoints.
    tampered: Vec<u32>,
    /// From when until when it may have been unable to extend a lease.
    troubles: Vec<(DateTime<Utc>, DateTime<Utc>)>,
    /// When to continue it, if a failpoint stopped it or the suite did.
    pub(super) continue_at: Option<Instant>,
    start_at: Instant,
}

/// How late the end of a program may be noticed: meanwhile a service may be started.
const LATE: TimeDelta = TimeDelta::seconds(60);

/// Time from the end of a program to its next start.
const PAUSE: Duration = Duration::from_millis(300);

impl Program {
    pub(super) fn new(name: String, links: Links, recipe: Recipe) -> Self {
        Self {
            name,
            links,
            recipe,
            child: None,
            starts: 0,
            plans: VecDeque::new(),
            deaths: Vec::new(),
            pids: Vec::new(),
            starts_at: Vec::new(),
            tampered: Vec::new(),
            troubles: Vec::new(),
            continue_at: None,
            start_at: Instant::now(),
        }
    }

    /// The process, while it runs.
    pub(super) fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    fn start(&mut self) -> anyhow::Result<()> {
        self.starts += 1;
        let log = format!("{}.{}.log", self.name, self.starts);
        let log = std::fs::File::create(self.recipe.folder.join(log))?;
        let config = self.recipe.folder.join(format!("{}.json", self.name));
        std::fs::write(&config, serde_json::to_vec_pretty(&self.recipe.config)?)?;
        let plan = self.plans.pop_front().unwrap_or_default();
        let is_tampered = !plan.is_empty();
        let child = Command::new(&self.recipe.binary)
            .arg("--config")
            .arg(&config)
            .envs(
                self.recipe
                    .environment
                    .iter()
                    .map(|(name, value)| (name, value)),
            )
            .env("AGENTMINE_FAILPOINTS", plan)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .with_context(|| format!("{} is not built", self.recipe.binary.display()))?;
        self.pids.push(child.id());
        self.starts_at.push(Utc::now());
        if is_tampered {
            self.tampered.push(child.id());
        }
        self.child = Some(child);
        Ok(())
    }

    /// Starts it if it is gone, and continues it if it is time to. To be called often.
    pub(super) fn tend(&mut self, continue_after: Duration) -> anyhow::Result<()> {
        let Some(child) = &mut self.child else {
            if Instant::now() >= self.start_at {
                self.start()?;
            }
            return Ok(());
        };
        let pid = child.id();
        if child.try_wait()?.is_some() {
            self.child = None;
            self.continue_at = None;
            self.deaths.push(Death {
                pid,
                at: Utc::now(),
            });
            self.start_at = Instant::now() + PAUSE;
            return Ok(());
        }
        match self.continue_at {
            Some(at) if Instant::now() >= at => {
                self.continue_at = None;
                signal(pid, libc::SIGCONT);
                self.trouble(Duration::ZERO);
            }
            None if is_stopped(pid) => {
                self.continue_at = Some(Instant::now() + continue_after);
                self.trouble(continue_after);
            }
            Some(_) | None => {}
        }
        Ok(())
    }

    pub(super) fn kill(&self) {
        if let Some(pid) = self.pid() {
            signal(pid, libc::SIGKILL);
        }
    }

    pub(super) fn stop_for(&mut self, time: Duration) {
        if let Some(pid) = self.pid() {
            signal(pid, libc::SIGSTOP);
            self.continue_at = Some(Instant::now() + time);
            self.trouble(time);
        }
    }

    /// Something keeps it from extending its leases from now on for this time.
    pub(super) fn trouble(&mut self, time: Duration) {
        let now = Utc::now();
        self.troubles.push((now, now + time));
    }

    /// Whether anything happened to one of its processes in this time.
    pub(super) fn had_trouble(&self, pid: u32, from: DateTime<Utc>, to: DateTime<Utc>) -> bool {
        // An end may be noticed later than the task is taken.
        let to_notice = to + LATE;
        let mut ends = self.deaths.iter().filter(|death| death.pid == pid);
        self.tampered.contains(&pid)
            || ends.any(|death| death.at <= to_notice)
            || self
                .troubles
                .iter()
                .any(|(begun, ended)| *begun <= to && *ended >= from)
    }

    /// Asks it to end, as an operator would; it is not started again.
    pub(super) async fn terminate(&mut self, limit: Duration) -> anyhow::Result<Duration> {
        let Some(mut child) = self.child.take() else {
            return Ok(Duration::ZERO);
        };
        let begun = Instant::now();
        signal(child.id(), libc::SIGCONT);
        signal(child.id(), libc::SIGTERM);
        while child.try_wait()?.is_none() {
            if begun.elapsed() > limit {
                let _ = child.kill();
                let _ = child.wait();
                anyhow::bail!("{} did not end within {limit:?} of SIGTERM", self.name);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(begun.elapsed())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn signal(pid: u32, signal: i32) {
    if let Ok(pid) = i32::try_from(pid) {
        // SAFETY: `kill` takes two numbers and touches no memory of this program. The process is a child that was not
        // waited for, so the number is still its own.
        unsafe {
            libc::kill(pid, signal);
        }
    }
}

fn is_stopped(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name in parentheses may contain anything; the state follows it.
    stat.rsplit_once(") ")
        .is_some_and(|(_, rest)| rest.starts_with('T'))
}

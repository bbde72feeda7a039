//! AgentMine beside agents of others, in one run: the same scripted model, which answers at once, plays the same steps
//! to each, in its own API and with its own tools. So all time is the agent's own.
//!
//! Each task is a separate process, as these agents work: of AgentMine it is `agentmine run`, which also clones,
//! checkpoints, commits, pushes and verifies. The tasks of an agent share a home folder; the first one, which fills it,
//! is not measured. Every edit is looked for afterwards.

mod agents;
mod api;
mod server;
mod task;

use std::io::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures::StreamExt as _;
use tempfile::TempDir;

pub(crate) use agents::Agent;

use self::agents::Place;
use self::server::ModelServer;
use self::task::{Look, Ran, git};
use crate::step::write_files;
use crate::table::Samples;

/// Files of the repository.
const FILES: u32 = 100;
/// What installs the agents of others.
const INSTALL: &str =
    "cp tests/services/peers/package*.json FOLDER && npm install --prefix FOLDER --ignore-scripts";

/// How much is measured.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Size {
    /// Where the agents of others are installed
    #[arg(long, default_value = "/var/tmp/peers")]
    installed: PathBuf,
    /// Which agents
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "least,local,docker,pi,claude-code,codex,opencode"
    )]
    agents: Vec<Agent>,
    /// Steps of a task
    #[arg(long, default_value_t = 50)]
    steps: usize,
    /// Tasks one after another, for time and CPU
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Tasks with several at once
    #[arg(long, default_value_t = 24)]
    tasks: usize,
    /// How many at once
    #[arg(long, default_value_t = 8)]
    at_once: usize,
}

pub(crate) async fn run(size: &Size) -> anyhow::Result<()> {
    let mut out = std::io::stdout();
    let head = [
        "step median",
        "of least",
        "CPU a step",
        "start",
        "peak PSS",
        "tasks a minute",
    ];
    writeln!(out, "{}", row("", head))?;
    let mut least = None;
    for &agent in &size.agents {
        let bench = Bench::new(agent, size).await?;
        match bench.measure().await {
            Ok(row_of) => {
                let step = row_of.step();
                if agent == Agent::Least {
                    least = Some(step);
                }
                writeln!(out, "{}", row_of.print(agent, size, least))?;
            }
            Err(error) => writeln!(out, "{:<42} left out: {error:#}", agent.title())?,
        }
    }
    writeln!(
        out,
        "\n{} steps a task; tasks a minute with {} at once\n",
        size.steps, size.at_once
    )?;
    Ok(())
}

fn row(title: &str, cells: [&str; 6]) -> String {
    let mut line = format!("{title:<42}");
    for cell in cells {
        line += &format!("  {cell:>14}");
    }
    line
}

/// One agent.
struct Bench<'a> {
    agent: Agent,
    size: &'a Size,
    server: ModelServer,
    folder: TempDir,
}

/// What one agent showed.
struct Measured {
    alone: Vec<Ran>,
    peak: u64,
    /// The tasks at once.
    took: Duration,
}

impl<'a> Bench<'a> {
    async fn new(agent: Agent, size: &'a Size) -> anyhow::Result<Self> {
        // Not in /tmp, where codex makes none of its helpers.
        let folder = tempfile::Builder::new()
            .prefix("agentmine-bench")
            .tempdir_in("/var/tmp")?;
        std::fs::create_dir(folder.path().join("home"))?;
        let template = folder.path().join("template");
        std::fs::create_dir(&template)?;
        write_files(&template, FILES);
        git(&template, &["init", "-q", "-b", "main"]).await?;
        git(&template, &["add", "."]).await?;
        let commit = [
            "-c",
            "user.name=bench",
            "-c",
            "user.email=bench@localhost",
            "commit",
            "-qm",
            "Files",
        ];
        git(&template, &commit).await?;
        Ok(Self {
            agent,
            size,
            server: ModelServer::start().await?,
            folder,
        })
    }

    async fn measure(&self) -> anyhow::Result<Measured> {
        let program = self.agent.program(&self.size.installed)?;
        let hint = match self.agent {
            Agent::Least | Agent::Local | Agent::Docker => {
                "cargo build --release --workspace --bins"
            }
            Agent::Pi | Agent::ClaudeCode | Agent::Codex | Agent::Opencode => INSTALL,
        };
        anyhow::ensure!(
            program.exists(),
            "{} is not there. hint: {hint}",
            program.display()
        );
        self.task(Look::Nothing).await?;
        let mut alone = Vec::new();
        for _ in 0..self.size.rounds {
            alone.push(self.task(Look::Cpu).await?);
        }
        let peak = self.task(Look::Memory).await?.peak;
        Ok(Measured {
            alone,
            peak,
            took: self.at_once().await?,
        })
    }

    /// How long it takes until all tasks are done.
    async fn at_once(&self) -> anyhow::Result<Duration> {
        let mut places = Vec::new();
        for _ in 0..self.size.tasks {
            places.push(self.place().await?);
        }
        let begun = Instant::now();
        let tasks = futures::stream::iter(places)
            .map(|opened| self.run(opened, Look::Nothing))
            .buffer_unordered(self.size.at_once);
        let ran: Vec<_> = tasks.collect().await;
        let took = begun.elapsed();
        ran.into_iter()
            .collect::<anyhow::Result<Vec<_>>>()
            .context("with several at once")?;
        Ok(took)
    }

    async fn task(&self, look: Look) -> anyhow::Result<Ran> {
        let opened = self.place().await?;
        self.run(opened, look).await
    }

    async fn run(&self, (place, requests): Opened, look: Look) -> anyhow::Result<Ran> {
        task::run(self.agent, &place, requests, self.size.steps, look).await
    }

    /// A fresh repository, and a conversation.
    async fn place(&self) -> anyhow::Result<Opened> {
        let (model, requests) = self.server.open();
        let own = tempfile::Builder::new()
            .prefix("task")
            .tempdir_in(self.folder.path())?
            .keep();
        let project = own.join("project");
        let template = self.folder.path().join("template").display().to_string();
        git(
            &own,
            &["clone", "-q", "--no-hardlinks", &template, "project"],
        )
        .await?;
        let place = Place {
            home: self.folder.path().join("home"),
            own,
            project,
            installed: self.size.installed.clone(),
            model,
        };
        Ok((place, requests))
    }
}

type Opened = (Place, tokio::sync::mpsc::UnboundedReceiver<server::Asked>);

impl Measured {
    fn step(&self) -> Duration {
        let all: Samples = self
            .alone
            .iter()
            .flat_map(|ran| ran.steps.iter().copied())
            .collect();
        all.median()
    }

    fn print(&self, agent: Agent, size: &Size, least: Option<Duration>) -> String {
        let millis = |time: Duration| time.as_secs_f64() * 1e3;
        let start: Samples = self.alone.iter().map(|ran| ran.start).collect();
        let cpu: Duration = self.alone.iter().map(|ran| ran.cpu).sum();
        let steps = self.alone.len() * size.steps;
        let ratio = least.map(|least| self.step().as_secs_f64() / least.as_secs_f64());
        let minute = size.tasks as f64 * 60.0 / self.took.as_secs_f64();
        row(
            agent.title(),
            [
                &format!("{:.2} ms", millis(self.step())),
                &ratio.map_or_else(String::new, |ratio| format!("{ratio:.1}x")),
                &format!("{:.1} ms", millis(cpu) / steps as f64),
                &format!("{:.0} ms", millis(start.median())),
                &format!("{:.1} MB", self.peak as f64 * 1024.0 / 1e6),
                &format!("{minute:.0}"),
            ],
        )
    }
}

//! A fleet under test: a forge, a model, a database, and programs with a link to each.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use agentmine_domain::{Session, Task};
use agentmine_runtime::config::{Secret, StoreConfig};
use agentmine_runtime::failpoint::Guard;
use agentmine_store::Store;
use chrono::TimeDelta;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::clock::Clock;
use super::engine::{Access, Engine};
use super::link::{Link, Target};
use super::program::{Links, Peer, Program, Recipe};
use super::services::{Postgres, RabbitMq};
use crate::forge::{DEMO, Forge, write_demo};
use crate::model::{
    Fault, Scenario, ScriptedModel, commit_and_push, edit_create, edit_replace, say, shell,
};
use crate::on_disk;

/// Which store the fleet uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum StoreKind {
    /// Postgres, with RabbitMQ.
    Postgres,
    /// One SQLite file for all processes, and a queue in each of them.
    Sqlite,
}

/// Which forge the fleet works on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum ForgeKind {
    /// GitHub.
    Github,
    /// GitLab.
    Gitlab,
}

impl ForgeKind {
    /// The variable from which the programs have their token.
    pub(super) fn token_variable(self) -> &'static str {
        match self {
            Self::Github => "GITHUB_PERSONAL_ACCESS_TOKEN",
            Self::Gitlab => "GITLAB_PERSONAL_ACCESS_TOKEN",
        }
    }
}

/// Which sandboxes the fleet uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum SandboxKind {
    /// Local jails.
    Local,
    /// Docker containers.
    Docker,
}

/// The times of a lease, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rhythm {
    pub(super) lease: u64,
    pub(super) heartbeat: u64,
    pub(super) silence: u64,
    pub(super) sweep: u64,
    pub(super) wakeup: u64,
}

impl Rhythm {
    /// Short, so that a run sees many leases end.
    pub const FAST: Self = Self {
        lease: 6,
        heartbeat: 1,
        silence: 3,
        sweep: 1,
        wakeup: 4,
    };
    /// The defaults of the configuration.
    pub const DEFAULT: Self = Self {
        lease: 60,
        heartbeat: 10,
        silence: 40,
        sweep: 15,
        wakeup: 60,
    };

    pub(super) fn lease(self) -> Duration {
        Duration::from_secs(self.lease)
    }
}

/// What a fleet is made of.
#[derive(Debug, Clone)]
pub struct Setup {
    /// The forge.
    pub forge: ForgeKind,
    /// The store.
    pub store: StoreKind,
    /// The sandboxes.
    pub sandbox: SandboxKind,
    /// The times.
    pub rhythm: Rhythm,
    /// Number of consumers.
    pub consumers: usize,
    /// Tasks that each of them runs at once.
    pub concurrency: usize,
    /// Protections that are switched off.
    pub without: Vec<Guard>,
    /// Where the programs are.
    pub binaries: PathBuf,
}

impl Setup {
    /// The same with protections switched off. Rows without a recent wake-up are polled and woken again, which
    /// makes up for every wake-up that the outbox or the confirm would have kept: with those goes this one too.
    #[must_use]
    pub fn without(self, guards: &[Guard]) -> Self {
        let mut without = guards.to_vec();
        if guards.contains(&Guard::Outbox) || guards.contains(&Guard::Confirm) {
            without.push(Guard::SecondNet);
        }
        Self { without, ..self }
    }
}

/// The services that all fleets of a run share.
pub struct Services {
    pub(super) postgres: Option<Postgres>,
    pub(super) broker: Option<RabbitMq>,
    pub(super) engine: Option<Engine>,
    pub(super) folder: TempDir,
    /// For jails and the engine, whose sandboxes have file systems of their own there.
    disk: TempDir,
}

impl Services {
    /// Starts what the store and the sandboxes need.
    ///
    /// # Errors
    /// If a service does not start.
    pub async fn start(store: StoreKind, sandbox: SandboxKind) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("agentmine-chaos-")
            .tempdir()?;
        let disk = on_disk::folder()?;
        // For the user `postgres`.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(folder.path(), open)?;
        let (postgres, broker) = match store {
            StoreKind::Sqlite => (None, None),
            StoreKind::Postgres => {
                let (postgres, broker) = tokio::try_join!(
                    Postgres::start(folder.path()),
                    RabbitMq::start(folder.path())
                )?;
                (Some(postgres), Some(broker))
            }
        };
        let engine = match sandbox {
            SandboxKind::Local => None,
            SandboxKind::Docker => Some(Engine::start(disk.path()).await?),
        };
        Ok(Self {
            postgres,
            broker,
            engine,
            folder,
            disk,
        })
    }
}

impl Services {
    /// Keeps the folders with all logs, and returns them: that of the fleets, and that of jails and engine.
    pub fn keep(self) -> [PathBuf; 2] {
        [self.folder.keep(), self.disk.keep()]
    }
}

/// A running fleet.
pub(super) struct Fleet {
    /// The name of its database, and the prefix of its queues.
    pub(super) name: String,
    pub(super) setup: Setup,
    pub(super) forge: Forge,
    pub(super) model: ScriptedModel,
    /// The suite's own connection.
    pub(super) store: Arc<dyn Store>,
    /// Its URL.
    pub(super) store_url: String,
    /// The broker, for the suite itself.
    pub(super) queue_url: Option<String>,
    /// The first is the producer.
    pub(super) programs: Vec<Program>,
    pub(super) folder: PathBuf,
    /// The home folder of its programs, with the jails.
    pub(super) state: PathBuf,
    /// Its database's clock.
    clock: Option<Clock>,
    /// Where its containers are.
    pub(super) engine: Option<Access>,
}

impl Fleet {
    /// Prepares everything; the programs start with the first `tend`.
    pub(super) async fn new(
        setup: &Setup,
        services: &Services,
        name: &str,
    ) -> anyhow::Result<Self> {
        let folder = services.folder.path().join(name);
        let state = services.disk.path().join(name);
        for part in ["tmp", "points", "logs"] {
            std::fs::create_dir_all(folder.join(part))?;
        }
        std::fs::create_dir_all(&state)?;
        if let Some(postgres) = &services.postgres {
            postgres.clock.set_right()?;
        }
        let forge = Forge::start().await;
        forge.add_repo(DEMO, write_demo);
        let model = ScriptedModel::start(scenario()).await;
        let store_url = match &services.postgres {
            Some(postgres) => postgres.own_url(name),
            None => format!("sqlite:{}", folder.join("fleet.db").display()),
        };
        let store = agentmine_store::connect(&StoreConfig {
            url: Secret::new(&store_url),
            max_connections: 3,
            ..StoreConfig::default()
        })
        .await?;
        let mut fleet = Self {
            name: name.to_owned(),
            setup: setup.clone(),
            forge,
            model,
            store,
            store_url,
            queue_url: services
                .broker
                .as_ref()
                .map(|it| RabbitMq::url(it.address().port())),
            programs: Vec::new(),
            folder,
            state,
            clock: services.postgres.as_ref().map(|it| it.clock.clone()),
            engine: services.engine.as_ref().map(Engine::access),
        };
        fleet.add_program("producer", services, name).await?;
        for n in 1..=setup.consumers {
            fleet
                .add_program(&format!("consumer-{n}"), services, name)
                .await?;
        }
        Ok(fleet)
    }

    async fn add_program(
        &mut self,
        program: &str,
        services: &Services,
        name: &str,
    ) -> anyhow::Result<()> {
        let mut links = Vec::new();
        let model: SocketAddr = self.model.address();
        links.push((Peer::Model, Link::to(Target::Tcp(model)).await?));
        if let (Some(postgres), Some(broker)) = (&services.postgres, &services.broker) {
            links.push((
                Peer::Database,
                Link::to(Target::Tcp(postgres.address())).await?,
            ));
            links.push((Peer::Broker, Link::to(Target::Tcp(broker.address())).await?));
        }
        if let Some(engine) = &self.engine {
            let link = Link::to(Target::Unix(engine.socket.clone())).await?;
            links.push((Peer::Engine, link));
        }
        let links = Links(links);
        let kind = program.split('-').next().unwrap_or(program);
        let recipe = Recipe {
            binary: self.setup.binaries.join(kind),
            config: self.config(&links, name),
            folder: self.folder.join("logs"),
            environment: self.environment(program),
        };
        self.programs
            .push(Program::new(program.to_owned(), links, recipe));
        Ok(())
    }

    fn config(&self, links: &Links, name: &str) -> Value {
        let store = match links.port(Peer::Database) {
            Some(port) => Postgres::url(port, name),
            None => self.store_url.clone(),
        };
        let queue = match links.port(Peer::Broker) {
            Some(port) => RabbitMq::url(port),
            None => "inproc:".to_owned(),
        };
        let model = links.port(Peer::Model).unwrap_or_default();
        let backend = match self.setup.sandbox {
            SandboxKind::Local => "local",
            SandboxKind::Docker => "docker",
        };
        let port = links.port(Peer::Engine).unwrap_or_default();
        let docker = self.engine.as_ref().map(|at| {
            json!({ "host": format!("tcp://127.0.0.1:{port}"), "base_image": at.image, "resources": { "memory_limit": "512m", "disk_limit": "512m" } })
        });
        let Rhythm {
            lease,
            heartbeat,
            silence,
            sweep,
            wakeup,
        } = self.setup.rhythm;
        json!({
            "capacity": { "running_tasks": 8, "open_pull_requests": 0, "pull_requests_per_day": 0 },
            "trackers": self.trackers(),
            "queue": { "url": queue, "prefix": name, "retry_seconds": [1, 2] },
            "store": { "url": store, "max_connections": 8 },
            "model": { "base_url": format!("http://127.0.0.1:{model}/v1"), "name": "scripted", "max_tries": 3, "retry_seconds": 0 },
            "command_executor": { "enabled": true, "backend": backend, "docker": docker.unwrap_or_else(|| json!({ "resources": { "disk_limit": "512m" } })) },
            "consumer": { "concurrency": self.setup.concurrency, "heartbeat_seconds": heartbeat, "heartbeat_loss_seconds": silence, "lease_seconds": lease, "item_check_seconds": 1, "sweep_seconds": sweep, "wakeup_after_seconds": wakeup, "drain_seconds": 20, "warm_sandboxes": 1 },
            "producer": { "interval_seconds": 1, "cleanup": false },
            "log": { "level": "info,agentmine_consumer=debug,agentmine_store=debug" }
        })
    }

    /// The section of the configuration that is about the forge.
    pub(super) fn trackers(&self) -> Value {
        let forge = &self.forge;
        match self.setup.forge {
            ForgeKind::Github => {
                json!({ "github": { "api_url": forge.api_url(), "repositories": [DEMO] } })
            }
            ForgeKind::Gitlab => {
                json!({ "gitlab": { "api_url": forge.gitlab_url(), "projects": [DEMO] } })
            }
        }
    }

    /// The number of a task's item in the calls of the forge.
    pub(super) fn number(&self, task: &Task) -> u64 {
        self.forge.number_of(&task.item)
    }

    fn environment(&self, program: &str) -> Vec<(String, String)> {
        let path = |part: &str| self.folder.join(part).display().to_string();
        let state = self.state.display().to_string();
        let off: Vec<_> = self
            .setup
            .without
            .iter()
            .map(|guard| guard.as_str())
            .collect();
        [
            (
                self.setup.forge.token_variable(),
                self.forge.add_client(program),
            ),
            ("AGENTMINE_FAILPOINTS_DIR", path("points")),
            ("AGENTMINE_GUARDS_OFF", off.join(",")),
            ("XDG_STATE_HOME", state.clone()),
            ("TMPDIR", path("tmp")),
            ("HOME", state),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
    }

    /// Starts what is gone, and continues what has been stopped for long enough. To be called often.
    pub(super) fn tend(&mut self) -> anyhow::Result<()> {
        let continue_after = self.setup.rhythm.lease() * 5 / 2;
        for program in &mut self.programs {
            program.tend(continue_after)?;
        }
        Ok(())
    }

    /// All sessions, with the times of the machine's clock.
    pub(super) async fn sessions(&self) -> anyhow::Result<Vec<Session>> {
        let mut sessions = self.store.sessions(None, 0).await?;
        if let Some(clock) = &self.clock {
            clock.correct(&mut sessions);
        }
        Ok(sessions)
    }

    /// By how much the database's clock is behind the machine's.
    pub(super) fn clock_behind(&self) -> TimeDelta {
        self.clock.as_ref().map_or(TimeDelta::zero(), Clock::behind)
    }

    /// The folder in which failpoints record what they did.
    pub(super) fn points(&self) -> PathBuf {
        self.folder.join("points")
    }

    pub(super) fn issue(&self, n: usize) -> u64 {
        let title = format!("greet.sh greets nobody ({n})");
        self.forge
            .add_issue(DEMO, &title, "It should greet.", &["coding agent"])
    }
}

/// The files that the model edits, and a part of each edit, free of quotes.
pub(super) const EDITS: [(&str, &str); 2] = [
    ("greet.sh", "${1:-world}"),
    ("NOTES.md", "It greets the person named."),
];

/// Eight turns of a third of a second each, with two pushes: long enough to be interrupted anywhere.
fn scenario() -> Scenario {
    let replies = [
        shell("ls && sh test.sh"),
        edit_replace("greet.sh", "name=\"\"", "name=\"${1:-world}\""),
        shell("sh test.sh"),
        commit_and_push("Greet the person named"),
        edit_create("NOTES.md", "It greets the person named.\n"),
        shell("cat NOTES.md"),
        commit_and_push("Describe the greeting"),
        say("`greet.sh` now greets its argument, and the world without one. `sh test.sh` passes."),
    ];
    let turns = replies.len();
    let scenario = Scenario::new("greets").replies(replies);
    (0..turns).fold(scenario, |scenario, turn| {
        scenario.fault_at(turn, Fault::Delay(Duration::from_millis(300)), usize::MAX)
    })
}

/// The folder of the programs, next to that of this one.
pub fn binaries() -> PathBuf {
    let own = std::env::current_exe().unwrap_or_default();
    let folder = own.parent().unwrap_or(Path::new("."));
    match folder.ends_with("deps") {
        true => folder.parent().unwrap_or(folder).to_owned(),
        false => folder.to_owned(),
    }
}

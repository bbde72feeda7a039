//! The whole fleet in one process, without any services: in-process queue, SQLite, local jail. The code is
//! the fleet's own; only the adapters differ.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use agentmine_consumer as consumer;
use agentmine_consumer::{Progress, RunOne};
use agentmine_control::fleet::Fleet;
use agentmine_control::worker::Place;
use agentmine_domain::Task;
use agentmine_llm::Model;
use agentmine_producer as producer;
use agentmine_queue::Queue;
use agentmine_runtime::config::{self, BackendKind, Config, Log, ModelConfig, Secret, Sources};
use agentmine_runtime::exit::{Exit, Failure};
use agentmine_runtime::shutdown::Shutdown;
use agentmine_sandbox::Backend;
use agentmine_store::{Store, StoreError};
use agentmine_trackers::Tracker;
use anyhow::{Context as _, Result};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinHandle;

use crate::again;
use crate::paths::{database_url, state_path};
use crate::print;

/// From an interruption to the end of a session that does not stop by itself.
const DRAIN: Duration = Duration::from_secs(2);

/// How much a run did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ran {
    /// Items with the request label.
    pub(crate) found: u64,
    /// Sessions that ran.
    pub(crate) sessions: u64,
}

/// What runs in this process, and its progress.
pub(crate) struct Embedded<T = Ran> {
    pub(crate) progress: UnboundedReceiver<Progress>,
    pub(crate) fleet: JoinHandle<Result<T>>,
}

/// What becomes of a task whose session is interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unfinished {
    /// The same command continues with it.
    Continued,
    /// No command does.
    Abandoned,
}

impl Unfinished {
    /// What a person should know and do.
    pub(crate) fn hint(self) -> &'static str {
        match self {
            Self::Continued => {
                "The work so far is kept. hint: run the same command again to continue"
            }
            Self::Abandoned => "hint: start another demo, which begins with a new repository",
        }
    }

    fn interrupted(self) -> &'static str {
        match self {
            Self::Continued => "interrupted; the next run continues with the task",
            Self::Abandoned => "interrupted",
        }
    }
}

/// How long a model server that was never reached is tried, unless `model.retry_seconds` is set: a person waits, and its
/// address is probably wrong.
const UNREACHED_SECONDS: u64 = 30;

/// The embedded mode's defaults.
pub(crate) fn configure(config: &mut Config, backend: BackendKind) -> Result<()> {
    match kind(config) {
        Kind::Embedded => {}
        // What a fleet keeps is in its own configuration, which may not be this one.
        Kind::Fleet => config.store.retention.enabled = false,
    }
    default_store(config)?;
    require_store_url(config)?;
    config.command_executor.enabled = true;
    config.command_executor.backend = backend;
    config.consumer.concurrency = 1;
    // A person who stops or pauses a task is waiting for it.
    config.consumer.heartbeat_seconds = 1;
    config.consumer.item_check_seconds = 2;
    if config.model.retry_seconds == ModelConfig::default().retry_seconds {
        config.model.unreached_seconds = Some(UNREACHED_SECONDS);
    }
    Ok(())
}

/// What a configuration is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It names no store: commands use the embedded mode's.
    Embedded,
    /// It names the store of producers and consumers.
    Fleet,
}

/// What this configuration is for, before [`default_store`].
pub(crate) fn kind(config: &Config) -> Kind {
    match config.store.url.is_default() {
        true => Kind::Embedded,
        false => Kind::Fleet,
    }
}

/// The store of the embedded mode, unless the configuration names one.
pub(crate) fn default_store(config: &mut Config) -> Result<()> {
    match kind(config) {
        Kind::Embedded => config.store.url = Secret::new(database_url()?),
        Kind::Fleet => {}
    }
    Ok(())
}

/// Checks the URL of the store. It connects to nothing.
///
/// # Errors
/// [`Exit::Config`] for one that no store can have.
fn require_store_url(config: &Config) -> Result<(), Failure> {
    agentmine_store::check(&config.store)
        .map_err(|error| Failure::new(Exit::Config, "the configuration is invalid").because(error))
}

/// The broker. There is none beside SQLite, unless the configuration names one.
///
/// # Errors
/// [`Exit::Config`] for a section that cannot work. It connects to nothing.
pub(crate) fn broker(config: &Config) -> Result<Option<Arc<dyn Queue>>> {
    let is_named = !config.queue.url.is_default();
    let in_process = config.queue.url.expose().starts_with("inproc:");
    let in_file =
        config.store.url.expose().starts_with("sqlite:") || kind(config) == Kind::Embedded;
    if in_process || (in_file && !is_named) {
        return Ok(None);
    }
    let queue = agentmine_queue::connect(&config.queue);
    let queue = queue.map_err(|error| Failure::new(Exit::Config, "queue").because(error))?;
    Ok(Some(queue))
}

/// The store that a configuration names, or that of the embedded mode.
pub(crate) async fn open_configured(config: &mut Config) -> Result<Arc<dyn Store>> {
    default_store(config)?;
    require_store_url(config)?;
    agentmine_store::connect(&config.store)
        .await
        .map_err(|error| match &error {
            StoreError::Unavailable(why) if why.contains("hint: ") => error.into(),
            StoreError::Unavailable(_) => Failure::new(Exit::Other, "the tasks cannot be read")
                .hint(format!(
                    "{}; `{} doctor` checks all of the set-up",
                    remedy(config.store.url.expose()),
                    print::program()
                ))
                .because(error)
                .into(),
            StoreError::Busy(_)
            | StoreError::Fenced(_)
            | StoreError::Expired(_)
            | StoreError::Fault(_) => error.into(),
        })
}

/// What to do about a store that does not answer.
fn remedy(url: &str) -> &'static str {
    match url.starts_with("sqlite:") {
        true => "check that the disk has room, and the permissions of the file and its folder",
        false => "start the database, or correct store.url (AGENTMINE_STORE_URL)",
    }
}

/// The project that a folder is in, with what the operator defines of it.
pub(crate) fn place(project: PathBuf, config: &Config, file: Option<PathBuf>) -> Result<Place> {
    Ok(Place {
        project,
        config: file.map(|file| std::path::absolute(&file).unwrap_or(file)),
        worktrees: state_path()?.join("worktrees"),
        operator_agents: config.agent.folder.clone(),
        allowed_images: config.command_executor.docker.allowed_images.clone(),
    })
}

/// What commands over tasks work with.
pub(crate) struct Here {
    /// The store.
    pub(crate) store: Arc<dyn Store>,
    /// The project that the current folder is in.
    pub(crate) place: Place,
    /// The fleet that the configuration describes.
    pub(crate) fleet: Fleet,
}

/// The store, the project that the current folder is in, and the fleet.
pub(crate) async fn open_here(file: Option<PathBuf>) -> Result<Here> {
    let mut config = config::load(&Sources::from_process(file.clone()))?;
    let fleet = fleet(&config);
    let store = open_configured(&mut config).await?;
    let here = std::env::current_dir().context("the current folder cannot be found")?;
    let place = place(here, &config, file)?;
    Ok(Here {
        store,
        place,
        fleet,
    })
}

/// The fleet that a configuration describes, before [`default_store`]. The embedded mode uses the jail, unless a flag
/// says otherwise.
pub(crate) fn fleet(config: &Config) -> Fleet {
    let mut config = config.clone();
    match kind(&config) {
        Kind::Embedded => config.command_executor.backend = BackendKind::Local,
        Kind::Fleet => {}
    }
    Fleet::new(config)
}

/// The live view shows what happens, so logs are off unless a level is configured.
pub(crate) fn quiet(log: &Log) -> Log {
    let level = if log.level == Log::default().level {
        "off".to_owned()
    } else {
        log.level.clone()
    };
    Log {
        format: log.format,
        level,
    }
}

/// Scans once, then works until no task is waiting. Ctrl-C gives the running task back, with its files.
///
/// The fleet fails if it was interrupted before any session began.
pub(crate) async fn start(
    config: Config,
    tracker: Arc<dyn Tracker>,
    model: Arc<dyn Model>,
    unfinished: Unfinished,
) -> Result<Embedded> {
    // Before anything is printed: a reader may then press Ctrl-C.
    let shutdown = Shutdown::on_signals(DRAIN)?;
    let connecting = async {
        let store = agentmine_store::connect(&config.store).await?;
        again::skip_delays(store.as_ref(), tracker.as_ref()).await?;
        let heartbeat = agentmine_store::connect_heartbeat(&config.store).await?;
        let backend = ready_backend(&config).await?;
        anyhow::Ok((store, heartbeat, backend))
    };
    let (store, heartbeat, backend) = unless_interrupted(&shutdown, Box::pin(connecting)).await?;
    let queue = agentmine_queue::inproc();
    let (watch, progress) = tokio::sync::mpsc::unbounded_channel();
    let producer = Arc::new(producer::ProducerDeps {
        config: config.clone(),
        store: Arc::clone(&store),
        queue: Arc::clone(&queue),
        trackers: vec![Arc::clone(&tracker)],
        backend: Some(Arc::clone(&backend)),
        pulls: producer::SeenPulls::default(),
        commands: producer::SeenCommands::default(),
        dashboards: producer::SeenDashboards::default(),
    });
    let consumer = Arc::new(consumer::ConsumerDeps {
        config,
        store,
        heartbeat,
        queue,
        trackers: vec![tracker],
        backend,
        model,
        watch: Some(watch),
        templates: Arc::default(),
    });
    let fleet = tokio::spawn(async move {
        let scan = producer::run(producer, producer::ProducerMode::Once, shutdown.clone()).await?;
        let sessions =
            consumer::run(consumer, consumer::ConsumerMode::Once, shutdown.clone()).await;
        if shutdown.is_draining() {
            begun_before_interruption(sessions)?;
            print::line(unfinished.interrupted());
        }
        Ok(Ran {
            found: scan.found,
            sessions,
        })
    });
    Ok(Embedded { progress, fleet })
}

/// Works on one task, which a person asked for. Ctrl-C gives it back, with its files.
pub(crate) async fn start_one(
    config: Config,
    store: Arc<dyn Store>,
    tracker: Arc<dyn Tracker>,
    model: Arc<dyn Model>,
    task: Task,
) -> Result<Embedded<RunOne>> {
    // Before anything is printed: a reader may then press Ctrl-C.
    let shutdown = Shutdown::on_signals(DRAIN)?;
    let connecting = async {
        let heartbeat = agentmine_store::connect_heartbeat(&config.store).await?;
        anyhow::Ok((heartbeat, ready_backend(&config).await?))
    };
    let (heartbeat, backend) = unless_interrupted(&shutdown, Box::pin(connecting)).await?;
    let (watch, progress) = tokio::sync::mpsc::unbounded_channel();
    let deps = Arc::new(consumer::ConsumerDeps {
        config,
        store,
        heartbeat,
        // Nobody publishes to it: the fleet's outbox is left to the fleet.
        queue: agentmine_queue::inproc(),
        trackers: vec![tracker],
        backend,
        model,
        watch: Some(watch),
        templates: Arc::default(),
    });
    let fleet = tokio::spawn(async move {
        let ran = consumer::run_one(deps, &task, shutdown.clone()).await?;
        if shutdown.is_draining() {
            print::line(Unfinished::Continued.interrupted());
        }
        Ok(ran)
    });
    Ok(Embedded { progress, fleet })
}

/// The configured backend, which has been checked. Prints what limits a sandbox's disk.
async fn ready_backend(config: &Config) -> Result<Arc<dyn Backend>> {
    let backend = agentmine_sandbox::from_config(&config.command_executor).await?;
    backend.check().await?;
    print::line(format!("disk        {}", backend.disk_limit().await));
    Ok(backend)
}

/// What comes before any work, which a signal ends at once.
async fn unless_interrupted<T>(
    shutdown: &Shutdown,
    connecting: impl Future<Output = Result<T>>,
) -> Result<T> {
    let draining = shutdown.draining();
    let connected = draining.run_until_cancelled(connecting).await;
    connected.unwrap_or_else(|| Err(interrupted_early()))
}

fn interrupted_early() -> anyhow::Error {
    Failure::new(Exit::Other, "interrupted before any work began").into()
}

/// Without any session there is nothing to summarize, and what was not looked for was not missing.
fn begun_before_interruption(sessions: u64) -> Result<()> {
    match sessions {
        0 => Err(interrupted_early()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_file_that_cannot_be_opened_is_no_database_to_start() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tasks.db");
        // Not even root can write to it.
        std::fs::create_dir(&file).unwrap();
        let mut config = Config::default();
        config.store.url = Secret::new(format!("sqlite:{}", file.display()));
        let error = open_configured(&mut config).await.err().unwrap();
        let text = agentmine_runtime::exit::render(&error);
        assert!(
            text.contains("hint: check that the disk has room"),
            "{text}"
        );
        assert!(!text.contains("start the database"), "{text}");
        assert!(remedy("postgres://localhost/agentmine").contains("start the database"));
    }

    #[test]
    fn a_store_that_is_written_with_the_default_value_is_the_fleets() {
        let of = |text: &str| config::load(&Sources::from_text("config.yaml", text)).unwrap();
        let default = Config::default();
        let written = format!(
            "store: {{url: '{}'}}\nqueue: {{url: '{}'}}\n",
            default.store.url.expose(),
            default.queue.url.expose()
        );
        for (text, expected) in [("", Kind::Embedded), (written.as_str(), Kind::Fleet)] {
            let config = of(text);
            assert_eq!(kind(&config), expected, "{text}");
            assert_eq!(config.queue.url.is_default(), expected == Kind::Embedded);
        }
        let mut config = of(&written);
        default_store(&mut config).unwrap();
        assert_eq!(config.store.url.expose(), default.store.url.expose());
    }

    #[tokio::test]
    async fn a_url_that_no_store_can_have_is_a_fault_of_the_configuration() {
        let mut config = Config::default();
        config.store.url = Secret::new("postgres://u:hunter2/x@h/db");
        let opened = open_configured(&mut config).await.err().unwrap();
        let configured = configure(&mut config, BackendKind::Local).unwrap_err();
        for error in [opened, configured] {
            assert_eq!(Exit::of(&error), Exit::Config, "{error:#}");
            assert!(!format!("{error:#}").contains("hunter2"), "{error:#}");
        }
    }

    #[test]
    fn an_interruption_before_any_session_is_an_error() {
        let error = begun_before_interruption(0).unwrap_err();
        assert_eq!(Exit::of(&error), Exit::Other);
        assert!(begun_before_interruption(1).is_ok());
    }

    #[test]
    fn a_model_server_that_was_never_reached_is_tried_for_a_short_time_unless_configured() {
        for (configured, expected) in [(300, Some(30)), (600, None)] {
            let mut config = Config::default();
            config.store.url = Secret::new("sqlite::memory:");
            config.model.retry_seconds = configured;
            configure(&mut config, BackendKind::Local).unwrap();
            assert_eq!(config.model.unreached_seconds, expected, "{configured}");
        }
    }
}

//! Shared by the benchmarks of whole sessions: a forge, a store, an in-process queue, and the real
//! consumer on top of them.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use agentmine_consumer::{ConsumerDeps, ConsumerMode, Progress};
use agentmine_domain::{Epoch, NewTask, Priority, TaskId};
use agentmine_llm::Model;
use agentmine_runtime::config::{self, CommandExecutor, Config, Secret};
use agentmine_runtime::shutdown::Shutdown;
use agentmine_sandbox::{Command, Sandbox, SandboxRole, SandboxSpec, from_config};
use agentmine_store::{Enqueued, Store};
use agentmine_tests::forge::{DEMO, Forge, write_demo};
use agentmine_trackers::{GitHubTracker, Tracker};
use anyhow::Context as _;
use sqlx::Connection as _;
use tempfile::TempDir;
use tokio::sync::mpsc::UnboundedSender;
use uuid::Uuid;

use crate::Backend;

/// A forge with the sample repository, and a database.
pub(crate) struct Fleet {
    pub(crate) forge: Forge,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) config: Config,
    pub(crate) tracker: Arc<dyn Tracker>,
    _folder: TempDir,
}

impl Fleet {
    /// With the store at `url`, or SQLite in a temporary folder.
    pub(crate) async fn new(url: Option<&str>) -> anyhow::Result<Self> {
        Self::with(url, write_demo).await
    }

    /// The same with another repository.
    pub(crate) async fn with(
        url: Option<&str>,
        seed: impl FnOnce(&Path) + Send + 'static,
    ) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let forge = Forge::start().await;
        forge.add_repo(DEMO, seed);
        let sqlite = format!("sqlite:{}", folder.path().join("bench.db").display());
        let mut config = Config::default();
        config.store.url = Secret::new(url.unwrap_or(&sqlite));
        config.consumer.concurrency = 1;
        config.consumer.max_attempts = 1;
        config.agent.max_steps = u32::MAX;
        config.consumer.mirrors.folder = Some(folder.path().join("state/mirrors"));
        Ok(Self {
            store: agentmine_store::connect(&config.store)
                .await
                .context("the store is not available; run tests/run --services")?,
            tracker: Arc::new(GitHubTracker::new(&forge.config(&[DEMO]))?),
            forge,
            config,
            _folder: folder,
        })
    }

    /// Waits until the repository's mirror is filled.
    pub(crate) async fn until_mirrored(&self) -> anyhow::Result<()> {
        let folder = self.config.consumer.mirrors.folder.as_ref();
        let folder = folder.context("the mirrors have no folder")?;
        for _ in 0..1200 {
            let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
            if entries
                .map(|entry| entry.path().join("whole"))
                .any(|whole| whole.exists())
            {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        anyhow::bail!("the repository was not mirrored within a minute")
    }

    /// Opens an issue and records its task, as a producer would.
    pub(crate) async fn enqueue(&self) -> anyhow::Result<TaskId> {
        let label = self.config.labels.request.as_str();
        let number = self.forge.add_issue(DEMO, "An issue", "Do it.", &[label]);
        let found = self.tracker.candidates(label).await?;
        let found = found.into_iter().find(|c| c.item.number == number);
        let found = found.context("the forge does not list the issue that it has just created")?;
        let new = NewTask {
            item: found.item,
            trigger: found.trigger,
            title: found.title,
            url: found.url,
            priority: Priority::Medium,
        };
        let (Enqueued::Created(task) | Enqueued::Known(task)) = self.store.enqueue(&new).await?;
        Ok(task.id)
    }

    /// The consumer's dependencies, as configured here.
    pub(crate) async fn deps(
        &self,
        backend: Arc<dyn agentmine_sandbox::Backend>,
        model: Arc<dyn Model>,
        watch: Option<UnboundedSender<Progress>>,
    ) -> anyhow::Result<Arc<ConsumerDeps>> {
        Ok(Arc::new(ConsumerDeps {
            config: self.config.clone(),
            store: Arc::clone(&self.store),
            heartbeat: agentmine_store::connect_heartbeat(&self.config.store).await?,
            queue: agentmine_queue::inproc(),
            trackers: vec![Arc::clone(&self.tracker)],
            backend,
            model,
            watch,
            templates: Arc::default(),
        }))
    }
}

/// Works until nothing is waiting.
pub(crate) async fn work(deps: Arc<ConsumerDeps>) -> u64 {
    let stop = Shutdown::new(Duration::from_secs(1));
    agentmine_consumer::run(deps, ConsumerMode::Once, stop).await
}

/// The developer's sandboxes: the test image, on the engine at `DOCKER_HOST`.
pub(crate) fn executor(backend: Backend) -> CommandExecutor {
    let mut executor = CommandExecutor {
        enabled: true,
        backend: match backend {
            Backend::Docker => config::BackendKind::Docker,
            Backend::Local => config::BackendKind::Local,
        },
        ..CommandExecutor::default()
    };
    executor.docker.host = std::env::var("DOCKER_HOST").ok();
    executor.docker.base_image = image();
    executor
}

/// The image of the sandboxes.
pub(crate) fn image() -> String {
    std::env::var("AGENTMINE_TEST_IMAGE").unwrap_or_else(|_| "coding-agent-executor:latest".into())
}

/// A sandbox that belongs to no task. The caller removes it.
pub(crate) async fn sandbox(backend: Backend) -> anyhow::Result<Arc<dyn Sandbox>> {
    let spec = SandboxSpec {
        task: TaskId::new(),
        epoch: Epoch(0),
        role: SandboxRole::Main,
        image: None,
        template: None,
    };
    let backend = from_config(&executor(backend)).await?;
    Ok(Arc::from(backend.start(&spec).await?))
}

/// Writes a file in a sandbox.
pub(crate) async fn put_file(
    sandbox: &dyn Sandbox,
    path: &str,
    content: Vec<u8>,
) -> anyhow::Result<()> {
    let command = Command {
        argv: ["/bin/sh", "-c", "cat > \"$0\"", path]
            .map(String::from)
            .into(),
        cwd: "/workspace/project".into(),
        env: BTreeMap::new(),
        stdin: content,
        timeout: Duration::from_secs(10),
        max_output: 1000,
    };
    let done = sandbox.run(command).await?;
    anyhow::ensure!(done.exit_code == 0, "{path} could not be written");
    Ok(())
}

/// A separate database on a Postgres server.
pub(crate) struct Database {
    server: String,
    pub(crate) name: String,
}

impl Database {
    /// Only chooses the name; the store creates the database when it connects.
    pub(crate) fn new(server: &str) -> Self {
        Self {
            server: server.to_owned(),
            name: format!("bench_{}", Uuid::new_v4().simple()),
        }
    }

    pub(crate) fn url(&self) -> anyhow::Result<String> {
        let mut url: url::Url = self.server.parse().context("the Postgres URL is invalid")?;
        url.set_path(&self.name);
        Ok(url.into())
    }

    pub(crate) async fn drop(self) -> anyhow::Result<()> {
        let mut server = sqlx::PgConnection::connect(&self.server).await?;
        let drop = format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name);
        sqlx::query(sqlx::AssertSqlSafe(drop))
            .execute(&mut server)
            .await?;
        Ok(())
    }
}

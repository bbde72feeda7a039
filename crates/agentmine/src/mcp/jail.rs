//! A local jail for servers that may not run as they are: a repository's own, and those with
//! `"sandbox": true`.
//!
//! It holds a copy of the project's files, so nothing that a server does reaches the project itself,
//! and it goes away with the command. The web is reached as in the fleet: through the gateway, by
//! `command_executor.docker.network`. There is no git remote in it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use agentmine_domain::{Epoch, TaskId};
use agentmine_gateway::{Fence, Gateway, GatewayConfig, Upstream};
use agentmine_mcp::Launcher;
use agentmine_runtime::config::{self, Sources};
use agentmine_sandbox::{
    Backend as _, Command, LocalBackend, OutboundKind, Sandbox, SandboxSpec, local,
};
use anyhow::{Context as _, Result, ensure};
use async_trait::async_trait;
use tokio::task::{JoinHandle, JoinSet};

use super::files;

const WORKSPACE: &str = "/workspace";
const UNPACK_TIMEOUT: Duration = Duration::from_secs(120);
/// Connections out of the jail at once.
const MAX_CONNECTIONS: usize = 64;

/// A jail that runs.
pub(super) struct Jail {
    sandbox: Arc<dyn Sandbox>,
    traffic: JoinHandle<()>,
}

/// No push leaves this jail.
struct NoPush;

#[async_trait]
impl Fence for NoPush {
    async fn check(&self) -> Result<(), String> {
        Err("nothing is pushed from here".into())
    }
}

impl Jail {
    /// Makes a jail with a copy of `project` in it. The error is why there is none.
    pub(super) async fn start(file: Option<PathBuf>, project: Option<&Path>) -> Result<Self> {
        let config = config::load(&Sources::from_process(file).without_working_folder())?;
        let archive = match project {
            Some(project) => Some(files::archive(project)?),
            None => None,
        };
        let empty = std::env::temp_dir();
        let gateway = Gateway::new(GatewayConfig {
            upstream: Upstream::Path(empty),
            branch: "none".into(),
            max_push_bytes: 0,
            network: config.command_executor.docker.network.clone(),
            fence: Arc::new(NoPush),
        })?;
        let backend = LocalBackend::new(&config.command_executor, &local::default_state_dir())?;
        let spec = SandboxSpec {
            task: TaskId::new(),
            epoch: Epoch(0),
            role: "mcp".into(),
            image: None,
        };
        let sandbox: Arc<dyn Sandbox> = Arc::from(backend.start(&spec).await?);
        let traffic = tokio::spawn(serve(Arc::clone(&sandbox), gateway));
        let jail = Self { sandbox, traffic };
        let filled = jail.fill(archive).await;
        if let Err(error) = filled {
            jail.remove().await?;
            return Err(error.context("the project's files could not be put into the jail"));
        }
        Ok(jail)
    }

    /// Starts servers in it.
    pub(super) fn launcher(&self) -> Arc<dyn Launcher> {
        Arc::new(agentmine_consumer::SandboxLauncher::new(Arc::clone(
            &self.sandbox,
        )))
    }

    /// What a person should know of it.
    pub(super) fn warnings(&self) -> Vec<String> {
        self.sandbox.warnings()
    }

    /// The project's folder as servers see it.
    pub(super) fn project(&self) -> PathBuf {
        Path::new(self.sandbox.workspace_root()).join("project")
    }

    /// Ends all that runs in it, and removes its files.
    pub(super) async fn remove(self) -> Result<()> {
        self.traffic.abort();
        self.sandbox.remove().await?;
        Ok(())
    }

    /// Unpacks the project, as a repository with one commit: that is what a task's clone looks like.
    async fn fill(&self, archive: Option<Vec<u8>>) -> Result<()> {
        self.run("mkdir -p project", Vec::new()).await?;
        if let Some(archive) = archive {
            self.run("tar -x -C project -f -", archive).await?;
        }
        let commit = "cd project && git init --quiet . && git add -A && \
            git -c user.name=agentmine -c user.email=agentmine@localhost \
            commit --quiet --no-verify --allow-empty -m 'The project as it is'";
        // Only servers for git would miss it.
        let _ = self.run(commit, Vec::new()).await;
        Ok(())
    }

    async fn run(&self, line: &str, stdin: Vec<u8>) -> Result<()> {
        let command = Command {
            argv: vec!["/bin/sh".into(), "-c".into(), line.to_owned()],
            cwd: WORKSPACE.into(),
            env: BTreeMap::new(),
            stdin,
            timeout: UNPACK_TIMEOUT,
            max_output: 4096,
        };
        let done = self.sandbox.run(command).await.context("the jail")?;
        let said = String::from_utf8_lossy(&done.stderr);
        ensure!(
            done.exit_code == 0,
            "{} (exit code {})",
            said.trim(),
            done.exit_code
        );
        Ok(())
    }
}

/// Hands each connection to the web to the gateway.
async fn serve(sandbox: Arc<dyn Sandbox>, gateway: Gateway) {
    let mut connections = JoinSet::new();
    while let Some(outbound) = sandbox.next_outbound().await {
        while connections.len() >= MAX_CONNECTIONS {
            connections.join_next().await;
        }
        while connections.try_join_next().is_some() {}
        let gateway = gateway.clone();
        connections.spawn(async move {
            match outbound.kind {
                OutboundKind::Web => gateway.serve_web(outbound.stream).await,
                OutboundKind::Git => drop(outbound.stream),
            }
        });
    }
}

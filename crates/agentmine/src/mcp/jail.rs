//! A local jail for servers that may not run directly on this machine: a repository's, and those with
//! `"sandbox": true`.
//!
//! It contains a copy of the project's files, so a server cannot change the project itself, and it is removed
//! with the command. As in the fleet, the web is reached through the gateway, as
//! `command_executor.docker.network` allows. It has no git remote.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use agentmine_consumer::Traffic;
use agentmine_domain::{Epoch, TaskId};
use agentmine_gateway::{Gateway, GatewayConfig, GitAccess};
use agentmine_mcp::Launcher;
use agentmine_runtime::config::{self, Config, Sources};
use agentmine_sandbox::{
    Backend as _, Command, LocalBackend, Sandbox, SandboxRole, SandboxSpec, local, trust,
    with_presets,
};
use anyhow::{Context as _, Result, ensure};

use super::files;

const WORKSPACE: &str = "/workspace";
const UNPACK_TIMEOUT: Duration = Duration::from_secs(120);

/// A running jail.
pub(super) struct Jail {
    sandbox: Arc<dyn Sandbox>,
    traffic: Traffic,
}

impl Jail {
    /// Creates a jail with a copy of `project`; `None` if `stop` came first. Then, and after an error, nothing
    /// is left behind.
    pub(super) async fn start(
        file: Option<PathBuf>,
        project: Option<PathBuf>,
        stop: impl Future<Output = ()>,
    ) -> Result<Option<Self>> {
        let config = config::load(&Sources::from_process(file).without_working_folder())?;
        Self::start_in(&local::default_state_dir(), &config, project, stop).await
    }

    async fn start_in(
        state_dir: &Path,
        config: &Config,
        project: Option<PathBuf>,
        stop: impl Future<Output = ()>,
    ) -> Result<Option<Self>> {
        let backend = LocalBackend::new(&config.command_executor, state_dir)?;
        let spec = SandboxSpec {
            task: TaskId::new(),
            epoch: Epoch(0),
            role: SandboxRole::Mcp,
            image: None,
            template: None,
        };
        let made = tokio::select! {
            made = Self::make(&backend, &spec, config, project) => made.map(Some),
            () = stop => Ok(None),
        };
        if !matches!(made, Ok(Some(_))) {
            for found in backend.list().await? {
                if found.task == Some(spec.task) {
                    backend.remove(&found).await?;
                }
            }
        }
        made
    }

    /// If it fails or is dropped, an incomplete sandbox may be left.
    async fn make(
        backend: &LocalBackend,
        spec: &SandboxSpec,
        config: &Config,
        project: Option<PathBuf>,
    ) -> Result<Self> {
        let archive = match project {
            Some(project) => Some(files::archive(project).await?),
            None => None,
        };
        let sandbox: Arc<dyn Sandbox> = Arc::from(backend.start(spec).await?);
        let network = config.command_executor.docker.network.clone();
        let gateway = Gateway::new(GatewayConfig {
            git: GitAccess::None,
            network: with_presets(sandbox.as_ref(), network).await?,
        })?;
        if let Some(authority) = gateway.authority() {
            trust(sandbox.as_ref(), &authority).await?;
        }
        let traffic = Traffic::serve(Arc::clone(&sandbox), gateway);
        let jail = Self { sandbox, traffic };
        let filled = jail.fill(archive).await;
        filled.context("the project's files could not be put into the jail")?;
        Ok(jail)
    }

    /// Starts servers in it.
    pub(super) fn launcher(&self) -> Arc<dyn Launcher> {
        Arc::new(agentmine_consumer::SandboxLauncher::new(Arc::clone(
            &self.sandbox,
        )))
    }

    /// Warnings about its isolation, for a person.
    pub(super) fn warnings(&self) -> Vec<String> {
        self.sandbox.warnings()
    }

    /// The project's folder as servers see it.
    pub(super) fn project(&self) -> PathBuf {
        Path::new(self.sandbox.workspace_root()).join("project")
    }

    /// Stops everything in it, and removes its files.
    pub(super) async fn remove(self) -> Result<()> {
        self.traffic.stop().await;
        self.sandbox.remove().await?;
        Ok(())
    }

    /// Unpacks the project as a repository with one commit, similar to a task's clone.
    async fn fill(&self, archive: Option<Vec<u8>>) -> Result<()> {
        self.run("mkdir -p project", Vec::new()).await?;
        if let Some(archive) = archive {
            self.run("tar -x -C project -f -", archive).await?;
        }
        let commit = "cd project && git init --quiet . && git add -A && \
            git -c user.name=agentmine -c user.email=agentmine@localhost \
            commit --quiet --no-verify --allow-empty -m 'The project as it is'";
        // Only servers for git need it.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_jail_that_is_interrupted_while_it_is_made_leaves_nothing() {
        let state = tempfile::tempdir().unwrap();
        let sandboxes = || {
            let entries = std::fs::read_dir(state.path()).unwrap().flatten();
            entries
                .filter(|it| it.path().join("sandbox.json").exists())
                .count()
        };
        // There is no event for half of a start; each turn looks whether it has come.
        let half_made = async {
            while sandboxes() == 0 {
                tokio::task::yield_now().await;
            }
        };
        let config = Config::default();
        let made = Jail::start_in(state.path(), &config, None, half_made).await;
        assert!(made.unwrap().is_none());
        assert_eq!(sandboxes(), 0);
    }
}

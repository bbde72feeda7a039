//! Where a task works: in a sandbox behind a gateway, in a plain container, or in a plain folder.

use std::sync::Arc;
use std::time::Duration;

use agentmine_consumer::Traffic;
use agentmine_gateway::{Gateway, GatewayConfig, GitAccess, Upstream};
use agentmine_runtime::config::{Network, Secret};
use agentmine_sandbox::{Backend, Sandbox};
use anyhow::ensure;
use base64::Engine as _;
use bollard::Docker;
use bollard::exec::{CreateExecOptions, StartExecResults};
use bollard::models::{ContainerCreateBody, HostConfig};
use bollard::query_parameters::{CreateContainerOptions, RemoveContainerOptions};
use futures::StreamExt as _;

use crate::attack::arena::{shell, spec};
use crate::attack::bait::scratch;
use crate::attack::cell::Cell;
use crate::attack::fence::Held;
use crate::forge::Forge;

/// The one branch.
const BRANCH: &str = "work";

/// A place, and git's arguments with which the forge is reached from it.
pub(super) struct Place {
    kind: Kind,
    git: String,
    remote: String,
}

enum Kind {
    Sandbox {
        sandbox: Arc<dyn Sandbox>,
        _traffic: Traffic,
    },
    Container {
        engine: Docker,
        id: String,
    },
    Folder(tempfile::TempDir),
}

impl Place {
    /// A sandbox as a consumer starts it.
    pub(super) async fn hardened(
        backend: &dyn Backend,
        forge: &Forge,
        repository: &str,
    ) -> anyhow::Result<Self> {
        let sandbox: Arc<dyn Sandbox> = Arc::from(backend.start(&spec()).await?);
        let gateway = Gateway::new(GatewayConfig {
            git: GitAccess::ReadWrite {
                upstream: Upstream::Http {
                    url: forge.git_url(repository),
                    user: "x-access-token".into(),
                    password: Some(Secret::new(forge.token()).into()),
                    authority: None,
                },
                branch: BRANCH.into(),
                max_push_bytes: 32 << 20,
                fence: Arc::new(Held),
            },
            network: Network::default(),
        })?;
        let path = gateway.remote_path().unwrap_or_default();
        let remote = format!("http://127.0.0.1:{}{path}", sandbox.ports().git);
        let traffic = Traffic::serve(Arc::clone(&sandbox), gateway);
        Ok(Self {
            kind: Kind::Sandbox {
                sandbox,
                _traffic: traffic,
            },
            git: String::new(),
            remote,
        })
    }

    /// What a runner without any of it would use.
    pub(super) async fn plain(cell: Cell, forge: &Forge, repository: &str) -> anyhow::Result<Self> {
        let kind = match cell {
            Cell::Docker => {
                let engine = Docker::connect_with_defaults()?;
                let id = create_and_start(&engine).await?;
                Kind::Container { engine, id }
            }
            Cell::Bubblewrap
            | Cell::BubblewrapUnprivileged
            | Cell::Landlock
            | Cell::LandlockUnprivileged => Kind::Folder(tempfile::tempdir_in(scratch())?),
        };
        let basic = format!("x-access-token:{}", forge.token());
        let basic = base64::engine::general_purpose::STANDARD.encode(basic);
        Ok(Self {
            kind,
            git: format!("-c http.extraHeader='Authorization: Basic {basic}'"),
            remote: forge.git_url(repository).to_string(),
        })
    }

    pub(super) async fn clone_project(&self) -> anyhow::Result<()> {
        let Self { git, remote, .. } = self;
        self.run(&format!(
            "git {git} clone -q {remote} project && cd project && git checkout -q -b {BRANCH} && \
             git config user.name a && git config user.email a@example.org"
        ))
        .await
    }

    pub(super) async fn push(&self) -> anyhow::Result<()> {
        let git = &self.git;
        self.run(&format!("cd project && git {git} push -q origin {BRANCH}"))
            .await
    }

    /// Runs a command, which must succeed.
    pub(super) async fn run(&self, line: &str) -> anyhow::Result<()> {
        match &self.kind {
            Kind::Sandbox { sandbox, .. } => {
                let done = sandbox.run(shell(line, Duration::from_secs(120))).await?;
                ensure!(done.exit_code == 0, "{line}: {done:?}");
            }
            Kind::Container { engine, id } => exec(engine, id, line).await?,
            Kind::Folder(folder) => {
                let done = tokio::process::Command::new("/bin/bash")
                    .args(["-c", line])
                    .current_dir(folder.path())
                    .output()
                    .await?;
                ensure!(done.status.success(), "{line}: {done:?}");
            }
        }
        Ok(())
    }

    pub(super) async fn remove(self) -> anyhow::Result<()> {
        match self.kind {
            Kind::Sandbox { sandbox, .. } => sandbox.remove().await?,
            Kind::Container { engine, id } => remove(&engine, &id).await?,
            Kind::Folder(folder) => folder.close()?,
        }
        Ok(())
    }
}

async fn create_and_start(engine: &Docker) -> anyhow::Result<String> {
    let image = std::env::var("AGENTMINE_TEST_IMAGE");
    let body = ContainerCreateBody {
        image: Some(image.unwrap_or_else(|_| "coding-agent-executor:latest".into())),
        user: Some("1000:1000".into()),
        working_dir: Some("/tmp".into()),
        entrypoint: Some(vec!["sleep".into(), "infinity".into()]),
        host_config: Some(HostConfig {
            network_mode: Some("host".into()),
            ..HostConfig::default()
        }),
        ..ContainerCreateBody::default()
    };
    let options = None::<CreateContainerOptions>;
    let id = engine.create_container(options, body).await?.id;
    if let Err(error) = engine.start_container(&id, None).await {
        remove(engine, &id).await?;
        return Err(error.into());
    }
    Ok(id)
}

async fn remove(engine: &Docker, id: &str) -> anyhow::Result<()> {
    let options = RemoveContainerOptions {
        v: true,
        force: true,
        link: false,
    };
    Ok(engine.remove_container(id, Some(options)).await?)
}

async fn exec(engine: &Docker, id: &str, line: &str) -> anyhow::Result<()> {
    let options = CreateExecOptions {
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        cmd: Some(["/bin/bash", "-c", line].map(str::to_owned).into()),
        ..CreateExecOptions::default()
    };
    let exec = engine.create_exec(id, options).await?;
    let mut text = String::new();
    let started = engine.start_exec(&exec.id, None).await?;
    if let StartExecResults::Attached { mut output, .. } = started {
        while let Some(part) = output.next().await {
            text.push_str(&part?.to_string());
        }
    }
    let done = engine.inspect_exec(&exec.id).await?;
    ensure!(done.exit_code == Some(0), "{line}: {text}");
    Ok(())
}

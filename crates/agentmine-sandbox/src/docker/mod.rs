//! Sandboxes as Docker containers.
//!
//! Nothing is bind-mounted and nothing assumes one file system with the engine: the programs go into an
//! anonymous volume as a tar stream before the start. The container's main process is an idle guest; the
//! tunnel is one exec of the same program. A container outlives its worker: whoever sweeps removes it.

mod engine;
mod io;
mod profile;
mod upload;

pub(crate) use self::profile::parse_size;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use agentmine_runtime::config::{CommandExecutor, Docker};
use async_trait::async_trait;
use bollard::exec::{CreateExecOptions, StartExecOptions, StartExecResults};
use bollard::query_parameters::{CreateContainerOptions, StartContainerOptions};
use chrono::DateTime;
use futures::StreamExt as _;

use self::engine::Engine;
use self::profile::Profile;
use crate::assets::FOLDER;
use crate::client::{Control, Running};
use crate::name::{PREFIX, is_valid_role, sandbox_name, task_of};
use crate::tunnel::Tunnel;
use crate::{Backend, FoundSandbox, Sandbox, SandboxError, SandboxSpec};

const PULL_LIMIT: Duration = Duration::from_secs(900);

/// Makes Docker containers.
#[derive(Debug, Clone)]
pub struct DockerBackend {
    engine: Engine,
    config: Arc<Docker>,
    profile: Arc<Profile>,
}

impl DockerBackend {
    /// Connects to the engine and reads what it can do.
    ///
    /// # Errors
    /// `Unavailable` when it does not answer, `Refused` when the configuration asks for what it does not
    /// have.
    pub async fn connect(config: &CommandExecutor) -> Result<Self, SandboxError> {
        let engine = Engine::connect(&config.docker).await?;
        let profile = Profile::new(&config.docker, &engine.info().await?)?;
        Ok(Self {
            engine,
            config: Arc::new(config.docker.clone()),
            profile: Arc::new(profile),
        })
    }

    /// Makes the container and gives its id. All that follows goes by the id: the name may pass to
    /// the container of a later lease.
    async fn create_container(
        &self,
        spec: &SandboxSpec,
        name: &str,
    ) -> Result<(String, Image), SandboxError> {
        let image_name = spec.image.as_deref().unwrap_or(&self.config.base_image);
        let image = self.engine.image(image_name).await?;
        let body = self
            .profile
            .container(spec, image_name, image.read_only_root);
        let options = CreateContainerOptions {
            name: Some(name.to_owned()),
            ..CreateContainerOptions::default()
        };
        let created = self
            .engine
            .call("creating the container", |docker| {
                let (options, body) = (options.clone(), body.clone());
                async move { docker.create_container(Some(options), body).await }
            })
            .await?;
        Ok((created.id, image))
    }

    /// From a container to the tunnel. The container is removed by the caller if this fails.
    async fn start_container(&self, id: &str, image: &Image) -> Result<Tunnel, SandboxError> {
        upload::programs(&self.engine, id, &self.profile, image.read_only_root).await?;
        self.engine
            .call("starting the container", |docker| {
                let id = id.to_owned();
                async move {
                    docker
                        .start_container(&id, None::<StartContainerOptions>)
                        .await
                }
            })
            .await?;
        self.open_tunnel(id).await
    }

    async fn open_tunnel(&self, id: &str) -> Result<Tunnel, SandboxError> {
        let options = CreateExecOptions {
            attach_stdin: Some(true),
            attach_stdout: Some(true),
            attach_stderr: Some(true),
            cmd: Some(self.profile.guest_command()),
            ..CreateExecOptions::default()
        };
        let exec = self
            .engine
            .call("preparing the guest", |docker| {
                let (id, options) = (id.to_owned(), options.clone());
                async move { docker.create_exec(&id, options).await }
            })
            .await?;
        let attached = self
            .engine
            .call("starting the guest", |docker| {
                let options = StartExecOptions {
                    output_capacity: Some(64 * 1024),
                    ..StartExecOptions::default()
                };
                let id = exec.id.clone();
                async move { docker.start_exec(&id, Some(options)).await }
            })
            .await?;
        match attached {
            StartExecResults::Attached { output, input } => {
                Tunnel::open(io::ExecIo::new(output, input)).await
            }
            StartExecResults::Detached => Err(SandboxError::Unavailable(
                "the engine detached the guest".into(),
            )),
        }
    }
}

#[async_trait]
impl Backend for DockerBackend {
    async fn check(&self) -> Result<(), SandboxError> {
        Profile::new(&self.config, &self.engine.info().await?)?;
        self.engine.image(&self.config.base_image).await.map(drop)
    }

    async fn start(&self, spec: &SandboxSpec) -> Result<Box<dyn Sandbox>, SandboxError> {
        if !is_valid_role(&spec.role) {
            return Err(SandboxError::Refused(format!("{:?} is no role", spec.role)));
        }
        let began = Instant::now();
        let name = sandbox_name(spec);
        self.engine.remove(&name).await?;
        let (id, image) = self.create_container(spec, &name).await?;
        let tunnel = match self.start_container(&id, &image).await {
            Ok(tunnel) => tunnel,
            Err(err) => {
                if let Err(left) = self.engine.remove(&id).await {
                    tracing::warn!(sandbox.name = %name, error = %left, "a sandbox that failed to start is left behind");
                }
                return Err(err);
            }
        };
        metrics::histogram!("agentmine_sandbox_start_seconds", "backend" => "docker")
            .record(began.elapsed().as_secs_f64());
        let control = Container {
            name,
            id,
            engine: self.engine.clone(),
            warnings: self.profile.warnings.clone(),
        };
        Ok(Box::new(Running { control, tunnel }))
    }

    async fn list(&self) -> Result<Vec<FoundSandbox>, SandboxError> {
        let options = bollard::query_parameters::ListContainersOptions {
            all: true,
            filters: Some(HashMap::from([(
                "name".to_owned(),
                vec![PREFIX.to_owned()],
            )])),
            ..Default::default()
        };
        let containers = self
            .engine
            .call("listing containers", |docker| {
                let options = options.clone();
                async move { docker.list_containers(Some(options)).await }
            })
            .await?;
        Ok(containers.into_iter().filter_map(found).collect())
    }

    async fn remove(&self, found: &FoundSandbox) -> Result<(), SandboxError> {
        if !found.name.starts_with(PREFIX) || found.instance.is_empty() {
            return Err(SandboxError::Refused(format!(
                "{:?} is no sandbox of ours",
                found.name
            )));
        }
        self.engine.remove(&found.instance).await
    }
}

/// The engine's filter finds the prefix anywhere in a name; ours is at its start.
fn found(container: bollard::models::ContainerSummary) -> Option<FoundSandbox> {
    let names = container.names.unwrap_or_default();
    let name = names
        .iter()
        .filter_map(|name| name.strip_prefix('/'))
        .find(|name| name.starts_with(PREFIX))?
        .to_owned();
    let labels = container.labels.unwrap_or_default();
    let label = |key: &str| labels.get(key).map(String::as_str);
    Some(FoundSandbox {
        task: label("agentmine.task")
            .and_then(|task| task.parse().ok())
            .or_else(|| task_of(&name)),
        epoch: label("agentmine.epoch").and_then(|epoch| epoch.parse().ok()),
        created_at: DateTime::from_timestamp(container.created.unwrap_or(0), 0)?,
        instance: container.id?,
        name,
    })
}

/// One container.
struct Container {
    name: String,
    id: String,
    engine: Engine,
    warnings: Vec<String>,
}

#[async_trait]
impl Control for Container {
    fn name(&self) -> &str {
        &self.name
    }

    fn warnings(&self) -> Vec<String> {
        self.warnings.clone()
    }

    async fn pause(&self) -> Result<(), SandboxError> {
        self.engine
            .call("pausing the container", |docker| {
                let id = self.id.clone();
                async move { docker.pause_container(&id).await }
            })
            .await
    }

    async fn unpause(&self) -> Result<(), SandboxError> {
        self.engine
            .call("unpausing the container", |docker| {
                let id = self.id.clone();
                async move { docker.unpause_container(&id).await }
            })
            .await
    }

    async fn remove(&self) -> Result<(), SandboxError> {
        self.engine.remove(&self.id).await
    }
}

impl Engine {
    /// The image, pulled once if it is not there.
    async fn image(&self, name: &str) -> Result<Image, SandboxError> {
        let inspect = || {
            self.call("looking at the image", |docker| {
                let name = name.to_owned();
                async move { docker.inspect_image(&name).await }
            })
        };
        let inspected = match inspect().await {
            Ok(inspected) => inspected,
            Err(SandboxError::Unavailable(why)) => return Err(SandboxError::Unavailable(why)),
            Err(_) => {
                self.pull(name).await?;
                inspect().await?
            }
        };
        let labels = inspected
            .config
            .and_then(|config| config.labels)
            .unwrap_or_default();
        let read_only_root = labels
            .get("agentmine.readonly-root")
            .is_some_and(|v| v == "true");
        Ok(Image { read_only_root })
    }

    async fn pull(&self, name: &str) -> Result<(), SandboxError> {
        tracing::info!(image = name, "pulling the sandbox image");
        // Without a tag the engine would take every one of them.
        let last = name.rsplit('/').next().unwrap_or(name);
        let tagged = last.contains(':') || last.contains('@');
        let options = bollard::query_parameters::CreateImageOptions {
            from_image: Some(if tagged {
                name.to_owned()
            } else {
                format!("{name}:latest")
            }),
            ..Default::default()
        };
        let docker = self.docker();
        let mut progress = std::pin::pin!(docker.create_image(Some(options), None, None));
        let mut failed = None;
        let pulled = async {
            while let Some(step) = progress.next().await {
                let said = match step {
                    Ok(info) => info.error_detail.and_then(|detail| detail.message),
                    Err(err) => Some(err.to_string()),
                };
                failed = said.or(failed.take());
            }
        };
        if tokio::time::timeout(PULL_LIMIT, pulled).await.is_err() {
            failed = Some(format!("not done after {} s", PULL_LIMIT.as_secs()));
        }
        match failed {
            None => Ok(()),
            Some(why) => Err(SandboxError::Refused(format!(
                "the image {name:?} is not there and could not be pulled: {why}. \
                 hint: build it from docker/executor-default, or name another in \
                 command_executor.docker.base_image"
            ))),
        }
    }
}

/// What matters of an image.
struct Image {
    read_only_root: bool,
}

/// The guest's path in a container.
fn guest_path() -> String {
    format!("{FOLDER}/agentmine-guest")
}

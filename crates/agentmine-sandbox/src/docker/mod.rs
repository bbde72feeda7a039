//! Sandboxes as Docker containers.
//!
//! Nothing is bind-mounted, and the engine may be on another machine: the programs are in a volume of the engine
//! ([`programs`]). The container's main process is the guest, and its input and output are the tunnel. It ends when
//! the worker's connection does; [`crate::remove_stale`] removes what is left.

mod address;
mod causes;
mod container;
mod container_io;
mod engine;
mod holder;
mod identity;
mod image;
mod profile;
mod programs;
mod ssh;
mod tls;
mod transport;
mod upload;
mod versions;
mod volumes;

use std::sync::Arc;
use std::time::{Duration, Instant};

use agentmine_runtime::config::{BackendKind, CommandExecutor, Docker};
use agentmine_runtime::failpoint::around;
use async_trait::async_trait;
use bollard::query_parameters::{
    AttachContainerOptions, CreateContainerOptions, StartContainerOptions,
};

use self::container::Container;
use self::container_io::ContainerIo;
use self::engine::Engine;
use self::identity::{Identity, make_way};
use self::image::{Image, Workspaces};
use self::profile::{MountedVolumes, Profile, WorkspaceOf};
use self::programs::Programs;
use crate::backend::{Backend, FoundSandbox};
use crate::client::Running;
use crate::error::SandboxError;
use crate::name::PREFIX;
use crate::sandbox::Sandbox;
use crate::sealed::open_tunnel;
use crate::spare::Spare;
use crate::spec::SandboxSpec;
use crate::template::{OwnVolume, WorkspaceTemplate};
use crate::tunnel::Tunnel;
use crate::volume::Volume;

/// Makes Docker containers.
#[derive(Debug, Clone)]
pub struct DockerBackend {
    engine: Engine,
    config: Arc<Docker>,
    profile: Arc<Profile>,
    programs: Programs,
    workspaces: Workspaces,
}

impl DockerBackend {
    /// Connects to the engine and reads its capabilities.
    ///
    /// # Errors
    /// `Unavailable` when it does not answer, `Refused` when the configuration asks for something it does
    /// not have.
    pub async fn connect(config: &CommandExecutor) -> Result<Self, SandboxError> {
        let engine = Engine::connect(&config.docker).await?;
        let info = engine.info().await?;
        let mut profile = Profile::new(&config.docker, &info)?;
        let volumes = volumes::find(&engine, &info, profile.disk_size());
        profile.volumes = volumes.await;
        for outdated in versions::outdated(&engine.versions().await?) {
            tracing::warn!("{outdated}");
        }
        Ok(Self {
            engine,
            config: Arc::new(config.docker.clone()),
            profile: Arc::new(profile),
            programs: Programs::default(),
            workspaces: Workspaces::default(),
        })
    }

    /// The same with other volumes of programs.
    #[cfg(test)]
    pub(crate) fn with_programs(mut self, family: &str) -> Self {
        self.programs = Programs::of_family(family);
        self
    }

    /// Creates the container and returns its id.
    async fn create_container(
        &self,
        identity: &Identity,
        image: (&str, &Image),
        volumes: MountedVolumes<'_>,
    ) -> Result<String, SandboxError> {
        let (image_name, image) = image;
        let body = self
            .profile
            .container(identity, image_name, image.read_only_root, volumes);
        let options = CreateContainerOptions {
            name: Some(identity.name.clone()),
            ..CreateContainerOptions::default()
        };
        let created = self
            .engine
            .call("creating the container", |docker| {
                let (options, body) = (options.clone(), body.clone());
                async move { docker.create_container(Some(options), body).await }
            })
            .await?;
        Ok(created.id)
    }

    /// Starts a created container and opens the tunnel. The caller removes the container if this fails.
    async fn start_container(
        &self,
        id: &str,
        image: &Image,
        workspace: WorkspaceOf<'_>,
    ) -> Result<Tunnel, SandboxError> {
        match workspace {
            WorkspaceOf::Upload => {
                upload::workspace(
                    &self.engine,
                    id,
                    (self.profile.uid, self.profile.gid),
                    image.read_only_root,
                )
                .await?;
            }
            // It belongs to the guest's user, and the guest makes the folders in it.
            WorkspaceOf::FileSystem(_) | WorkspaceOf::Image => {}
        }
        // Before the start: the guest's first words would be lost.
        let streams = self.attach(id).await?;
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
        match open_tunnel(streams).await {
            // Nothing of the task has run in it.
            Err(SandboxError::Gone(why)) if self.engine.ended_from_outside(id).await => Err(
                SandboxError::Unavailable(format!("the container did not start: {why}")),
            ),
            opened => opened,
        }
    }

    /// Creates and starts a container, and removes it again if that fails.
    async fn create_and_start(
        &self,
        identity: &Identity,
        image_name: &str,
        template: Option<WorkspaceTemplate>,
    ) -> Result<Running<Container>, SandboxError> {
        let image = image::find(&self.engine, image_name).await?;
        // That of an older image with the same name is of other programs.
        let template = template.filter(|it| it.is_of(&image.id));
        // The container's own mount keeps the workspace's volume from here on.
        let (volume, programs) = tokio::join!(
            self.profile.volume(template.as_ref()),
            Box::pin(self.programs.volume(&self.engine, image_name))
        );
        let programs = programs?;
        let workspace = self.workspace(image_name, &image, volume.as_ref());
        let workspace = Box::pin(workspace).await?;
        let volumes = MountedVolumes {
            workspace,
            programs: &programs,
        };
        let created = self.create_container(identity, (image_name, &image), volumes);
        let id = around("sandbox.create", created).await?;
        let started = self.start_container(&id, &image, workspace);
        match around("sandbox.start", started).await {
            Ok(tunnel) => {
                let control = Container {
                    name: identity.name.clone(),
                    id,
                    image: (image_name.to_owned(), image.id.clone()),
                    engine: self.engine.clone(),
                    warnings: self.profile.warnings.clone(),
                };
                let own = volume
                    .as_ref()
                    .map(|volume| OwnVolume::of(volume, template, image.id.clone()));
                let own = own.unwrap_or_default();
                Ok(Running::new(BackendKind::Docker, control, tunnel, own))
            }
            Err(err) => {
                self.programs.doubt(&programs).await;
                if let Err(left) = self.engine.remove(&id).await {
                    tracing::warn!(sandbox.name = identity.name, error = %left, "a sandbox that failed to start could not be removed");
                }
                Err(err)
            }
        }
    }

    /// Creates and starts a container, once more where the first try showed what this engine lacks.
    async fn launch(
        &self,
        identity: &Identity,
        image: Option<&str>,
        template: Option<WorkspaceTemplate>,
    ) -> Result<Running<Container>, SandboxError> {
        let began = Instant::now();
        let image = image.unwrap_or(&self.config.base_image);
        let again = || self.create_and_start(identity, image, template.clone());
        let used = self.profile.uses();
        let running = match again().await {
            // The volume was removed and came back empty; another one is found or made.
            Err(error) if programs::are_missing(&error) => again().await?,
            Err(error) if self.profile.lacks_v6(used, &error) => again().await?,
            Err(error) if self.profile.lacks_volumes(used, &error) => {
                tracing::warn!(%error, "the engine does not mount file systems for workspaces; the guest watches the disk limit");
                again().await?
            }
            done => done?,
        };
        metrics::histogram!("agentmine_sandbox_start_seconds", "backend" => "docker")
            .record(began.elapsed().as_secs_f64());
        Ok(running)
    }

    async fn workspace<'a>(
        &self,
        name: &str,
        image: &Image,
        volume: Option<&'a Volume>,
    ) -> Result<WorkspaceOf<'a>, SandboxError> {
        if let Some(volume) = volume {
            return Ok(WorkspaceOf::FileSystem(volume));
        }
        let owner = (self.profile.uid, self.profile.gid);
        let has = self.workspaces.has(&self.engine, name, image, owner);
        Ok(match has.await? {
            true => WorkspaceOf::Image,
            false => WorkspaceOf::Upload,
        })
    }

    /// The input and output of a container's main process.
    async fn attach(&self, id: &str) -> Result<ContainerIo, SandboxError> {
        let attached = self
            .engine
            .call("attaching to the guest", |docker| {
                let id = id.to_owned();
                let options = AttachContainerOptions {
                    stream: true,
                    stdin: true,
                    stdout: true,
                    stderr: true,
                    ..AttachContainerOptions::default()
                };
                async move { docker.attach_container(&id, Some(options)).await }
            })
            .await?;
        Ok(ContainerIo::new(attached.output, attached.input))
    }
}

#[async_trait]
impl Backend for DockerBackend {
    async fn check(&self) -> Result<(), SandboxError> {
        // At once: over ssh each call is a connection of its own, and readiness is known within two seconds or not at all.
        let capabilities = async {
            let info = self.engine.info().await?;
            Profile::new(&self.config, &info).map(drop)
        };
        let image = Box::pin(async {
            let found = image::find(&self.engine, &self.config.base_image).await;
            found.map(drop)
        });
        futures::future::try_join(capabilities, image)
            .await
            .map(drop)
    }

    async fn weaknesses(&self) -> Vec<String> {
        let versions = self.engine.versions().await.unwrap_or_default();
        let outdated = versions::outdated(&versions);
        self.profile
            .warnings
            .iter()
            .cloned()
            .chain(outdated)
            .collect()
    }

    async fn disk_limit(&self) -> String {
        self.profile.disk_limit()
    }

    async fn start(&self, spec: &SandboxSpec) -> Result<Box<dyn Sandbox>, SandboxError> {
        let identity = Identity::of(spec);
        make_way(&self.engine, &identity.name, spec.epoch).await?;
        Ok(Box::new(
            self.launch(&identity, spec.image.as_deref(), spec.template.clone())
                .await?,
        ))
    }

    async fn start_spare(
        &self,
        template: Option<WorkspaceTemplate>,
    ) -> Result<Box<dyn Spare>, SandboxError> {
        let identity = Identity::spare();
        Ok(Box::new(self.launch(&identity, None, template).await?))
    }

    async fn list(&self) -> Result<Vec<FoundSandbox>, SandboxError> {
        identity::list(&self.engine, PREFIX).await
    }

    async fn remove(&self, found: &FoundSandbox) -> Result<(), SandboxError> {
        if !found.name.starts_with(PREFIX) || found.instance.is_empty() {
            return Err(SandboxError::Refused(format!(
                "{:?} is not an AgentMine sandbox",
                found.name
            )));
        }
        self.engine.remove(&found.instance).await
    }

    async fn remove_unused(&self, max_age: Duration) -> Result<(), SandboxError> {
        self.programs.remove_unused(&self.engine, max_age).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::sync::Barrier;

    use super::*;

    /// An engine that answers the two calls of a check only while both wait.
    struct Distant {
        is_checked: AtomicBool,
        both: Barrier,
    }

    async fn serve(stream: TcpStream, engine: Arc<Distant>) {
        let (read, mut write) = stream.into_split();
        let mut lines = BufReader::new(read).lines();
        let mut request = String::new();
        while let Ok(Some(line)) = lines.next_line().await {
            if request.is_empty() {
                request = line;
            } else if line.is_empty() {
                let body = match request.contains("/version") {
                    true => r#"{"ApiVersion":"1.41"}"#,
                    false => "{}",
                };
                if engine.is_checked.load(Ordering::SeqCst) {
                    engine.both.wait().await;
                }
                let answer = engine::played_answer(200, body);
                if write.write_all(&answer).await.is_err() {
                    return;
                }
                request.clear();
            }
        }
    }

    #[tokio::test]
    async fn a_check_waits_for_a_distant_engine_once() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let host = format!("tcp://{}", listener.local_addr().unwrap());
        let engine = Arc::new(Distant {
            is_checked: AtomicBool::new(false),
            both: Barrier::new(2),
        });
        let served = Arc::clone(&engine);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&served)));
            }
        });
        let config = CommandExecutor {
            docker: Docker {
                host: Some(host),
                ..Docker::default()
            },
            ..CommandExecutor::default()
        };
        let backend = DockerBackend::connect(&config).await.unwrap();
        engine.is_checked.store(true, Ordering::SeqCst);
        let checked = tokio::time::timeout(Duration::from_secs(10), backend.check()).await;
        checked.expect("both calls at once").unwrap();
    }
}

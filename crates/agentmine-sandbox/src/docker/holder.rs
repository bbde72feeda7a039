//! A container that never starts: through it, what is in an image or a volume is read and written.

use bollard::models::{ContainerCreateBody, HostConfig, Mount};
use bollard::query_parameters::{CreateContainerOptions, DownloadFromContainerOptions};
use futures::TryStreamExt as _;

use super::engine::{Engine, is_missing};
use crate::error::SandboxError;
use crate::name::PREFIX;

/// A container that never starts. The process that made it removes it.
pub(super) struct Holder<'a> {
    engine: &'a Engine,
    pub(super) id: String,
}

impl<'a> Holder<'a> {
    pub(super) async fn create(
        engine: &'a Engine,
        image: &str,
        mount: Option<Mount>,
    ) -> Result<Self, SandboxError> {
        // Named like a sandbox of no task, so that the sweep removes it if this worker dies.
        let options = CreateContainerOptions {
            name: Some(format!("{PREFIX}holder-{}", uuid::Uuid::new_v4().simple())),
            ..CreateContainerOptions::default()
        };
        let body = ContainerCreateBody {
            image: Some(image.to_owned()),
            entrypoint: Some(vec!["/none".into()]),
            host_config: Some(HostConfig {
                network_mode: Some("none".into()),
                mounts: Some(mount.into_iter().collect()),
                ..HostConfig::default()
            }),
            ..ContainerCreateBody::default()
        };
        let created = engine
            .call("creating a container to read from", |docker| {
                let (options, body) = (options.clone(), body.clone());
                async move { docker.create_container(Some(options), body).await }
            })
            .await?;
        Ok(Self {
            engine,
            id: created.id,
        })
    }

    /// A folder as a tar archive; `None` if there is none, or if the archive is larger than `most` bytes.
    pub(super) async fn archive(
        &self,
        folder: &str,
        most: usize,
    ) -> Result<Option<Vec<u8>>, SandboxError> {
        let options = DownloadFromContainerOptions {
            path: folder.to_owned(),
        };
        let docker = self.engine.docker();
        let read = async {
            let mut stream =
                std::pin::pin!(docker.download_from_container(&self.id, Some(options)));
            let mut archive = Vec::new();
            while let Some(part) = stream.try_next().await? {
                archive.extend_from_slice(&part);
                if archive.len() > most {
                    return Ok(None);
                }
            }
            Ok(Some(archive))
        };
        match self.engine.in_time(read).await {
            Err(error) if is_missing(&error) => Ok(None),
            read => read.map_err(|error| self.engine.error("reading from a container", &error)),
        }
    }

    /// What is left is removed by the sweep.
    pub(super) async fn remove(self) {
        if let Err(error) = self.engine.remove(&self.id).await {
            tracing::warn!(%error, "a container to read from is left to the sweep");
        }
    }
}

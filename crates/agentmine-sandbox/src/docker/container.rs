//! One running container.

use agentmine_runtime::failpoint::around;
use async_trait::async_trait;
use bollard::query_parameters::RenameContainerOptions;

use super::engine::Engine;
use super::identity::make_way;
use super::image;
use crate::client::Control;
use crate::error::SandboxError;
use crate::name::{sandbox_name, with_epoch};
use crate::spec::SandboxSpec;

/// One container.
pub(super) struct Container {
    pub(super) name: String,
    /// Everything goes by the id: the name may pass to the container of a later lease.
    pub(super) id: String,
    /// The name and the id of the image that it was made from.
    pub(super) image: (String, String),
    pub(super) engine: Engine,
    pub(super) warnings: Vec<String>,
}

impl Container {
    /// Fails if its image's name belongs to another image by now.
    async fn has_current_image(&self) -> Result<(), SandboxError> {
        let (name, id) = &self.image;
        match image::find(&self.engine, name).await?.id == *id {
            true => Ok(()),
            false => Err(SandboxError::Refused(format!(
                "the image {name:?} is another one by now"
            ))),
        }
    }
}

#[async_trait]
impl Control for Container {
    fn name(&self) -> &str {
        &self.name
    }

    fn warnings(&self) -> Vec<String> {
        self.warnings.clone()
    }

    async fn assign(&mut self, spec: &SandboxSpec) -> Result<(), SandboxError> {
        let name = sandbox_name(spec);
        tokio::try_join!(
            self.has_current_image(),
            make_way(&self.engine, &name, spec.epoch)
        )?;
        let renamed = self.engine.call("naming the container", |docker| {
            let id = self.id.clone();
            let options = RenameContainerOptions {
                name: with_epoch(&name, spec.epoch),
            };
            async move { docker.rename_container(&id, options).await }
        });
        around("sandbox.assign", renamed).await?;
        self.name = name;
        Ok(())
    }

    async fn pause(&self) -> Result<(), SandboxError> {
        self.engine.pause(&self.id).await
    }

    async fn unpause(&self) -> Result<(), SandboxError> {
        self.engine
            .call("unpausing the container", |docker| {
                let id = self.id.clone();
                async move { docker.unpause_container(&id).await }
            })
            .await
    }

    async fn ended_from_outside(&self) -> bool {
        self.engine.ended_from_outside(&self.id).await
    }

    async fn remove(&self) -> Result<(), SandboxError> {
        around("sandbox.remove", self.engine.remove(&self.id)).await
    }
}

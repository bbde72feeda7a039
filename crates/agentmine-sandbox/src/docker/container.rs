//! One running container.

use agentmine_runtime::failpoint::around;
use async_trait::async_trait;

use super::engine::Engine;
use crate::client::Control;
use crate::error::SandboxError;

/// One container.
pub(super) struct Container {
    pub(super) name: String,
    /// Everything goes by the id: the name may pass to the container of a later lease.
    pub(super) id: String,
    pub(super) engine: Engine,
    pub(super) warnings: Vec<String>,
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
        around("sandbox.remove", self.engine.remove(&self.id)).await
    }
}

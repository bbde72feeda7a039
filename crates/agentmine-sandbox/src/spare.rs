//! A spare sandbox: started ahead, for no task yet.

use async_trait::async_trait;

use crate::client::{Control, Running};
use crate::error::SandboxError;
use crate::sandbox::Sandbox;
use crate::spec::SandboxSpec;

/// A running sandbox that belongs to no task, and in which nothing of one ever ran.
#[async_trait]
pub trait Spare: Send + Sync + 'static {
    /// Whether it has ended by itself.
    fn has_ended(&self) -> bool;
    /// Gives it to a task, under the name that [`crate::Backend::start`] would have given; an existing sandbox of that
    /// name is removed first, unless it belongs to a later epoch: then this fails. From then on it is found with
    /// the task and its epoch. After a failure it is of no use, and has to be removed.
    async fn assign(&mut self, spec: &SandboxSpec) -> Result<(), SandboxError>;
    /// The sandbox of the task that it was assigned to.
    fn into_sandbox(self: Box<Self>) -> Box<dyn Sandbox>;
    /// As [`Sandbox::remove`].
    async fn remove(&self) -> Result<(), SandboxError>;
}

/// What cannot be removed is left to the sweep.
pub(crate) async fn remove(spare: &dyn Spare) {
    if let Err(error) = spare.remove().await {
        tracing::debug!(%error, "a sandbox that was started ahead is left to the sweep");
    }
}

#[async_trait]
impl<C: Control> Spare for Running<C> {
    fn has_ended(&self) -> bool {
        self.tunnel.has_ended()
    }

    async fn assign(&mut self, spec: &SandboxSpec) -> Result<(), SandboxError> {
        self.control.assign(spec).await
    }

    fn into_sandbox(self: Box<Self>) -> Box<dyn Sandbox> {
        self
    }

    async fn remove(&self) -> Result<(), SandboxError> {
        self.volume.release();
        self.control.remove().await
    }
}

//! A way of making sandboxes.

use std::time::Duration;

use agentmine_domain::{Epoch, TaskId};
use agentmine_guest::protocol::BYTES_FOR_A_FILE;
use async_trait::async_trait;
use chrono::{DateTime, Utc};

use crate::error::SandboxError;
use crate::sandbox::Sandbox;
use crate::spare::Spare;
use crate::spec::SandboxSpec;
use crate::template::WorkspaceTemplate;

/// A sandbox found on the engine, perhaps left behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundSandbox {
    /// Its name.
    pub name: String,
    /// Distinguishes it from an earlier or later one of the same name: Docker's container id, or the name of the
    /// jail's own folder.
    pub instance: String,
    /// From its labels, or its name.
    pub task: Option<TaskId>,
    /// From its labels.
    pub epoch: Option<Epoch>,
    /// Whether it was started ahead, and no task has taken it.
    pub is_spare: bool,
    /// Whether the worker that started it still has it, whatever fleet that worker belongs to.
    pub worker: WorkerState,
    /// When it was created.
    pub created_at: DateTime<Utc>,
}

/// Whether the worker that started a sandbox still has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkerState {
    /// Perhaps it is still starting the sandbox.
    Starting,
    /// Nothing shows it.
    Unknown,
    /// It does.
    Alive,
    /// It has ended, or gave the sandbox up without removing it.
    Gone,
}

/// How the guest enforces a disk limit of so many bytes, and why the kernel does not.
pub(crate) fn watched_disk_limit(bytes: u64, why: &str) -> String {
    format!(
        "{} MiB and {} files in /workspace, watched by the guest every half second together with the free space \
         (the kernel holds no limit here: {why})",
        bytes >> 20,
        bytes / BYTES_FOR_A_FILE
    )
}

/// A way of making sandboxes.
#[async_trait]
pub trait Backend: Send + Sync + 'static {
    /// Checks that the engine answers and has what the configuration names (image, runtime). The error
    /// says what is missing and what to do about it.
    async fn check(&self) -> Result<(), SandboxError>;
    /// In what its sandboxes are weaker than they can be, for people; nothing if in nothing. Call [`Backend::check`]
    /// first.
    async fn weaknesses(&self) -> Vec<String> {
        Vec::new()
    }
    /// The limit of the space that a sandbox takes, and who enforces it, for people.
    async fn disk_limit(&self) -> String;
    /// Creates and starts one; an existing one of the same name is removed first, unless it belongs to a later
    /// epoch: then the start fails.
    async fn start(&self, spec: &SandboxSpec) -> Result<Box<dyn Sandbox>, SandboxError>;
    /// Creates and starts one of the configured image, to be taken by a task later. For the template see
    /// [`SandboxSpec::template`].
    async fn start_spare(
        &self,
        _template: Option<WorkspaceTemplate>,
    ) -> Result<Box<dyn Spare>, SandboxError> {
        Err(SandboxError::Refused(
            "this kind of sandbox cannot be started ahead".into(),
        ))
    }
    /// Every AgentMine sandbox on the engine.
    async fn list(&self) -> Result<Vec<FoundSandbox>, SandboxError>;
    /// Removes exactly this one, as [`Sandbox::remove`] does; another that has taken its name since is
    /// left alone.
    async fn remove(&self, found: &FoundSandbox) -> Result<(), SandboxError>;
    /// Removes what the engine keeps for starts of sandboxes and nothing has used since `max_age`.
    async fn remove_unused(&self, _max_age: Duration) -> Result<(), SandboxError> {
        Ok(())
    }
}

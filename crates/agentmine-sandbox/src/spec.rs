//! The specification of a sandbox, the same for all backends.

use agentmine_domain::{Epoch, TaskId};

use crate::role::SandboxRole;
use crate::template::WorkspaceTemplate;

/// Upper limit in bytes of each temporary file system of a sandbox that is in memory.
pub(crate) const MAX_IN_MEMORY: i64 = 1 << 30;

/// What to create.
#[derive(Debug, Clone)]
pub struct SandboxSpec {
    /// For the name and labels.
    pub task: TaskId,
    /// For the labels.
    pub epoch: Epoch,
    /// What it is for. Each role of a task has its own sandbox.
    pub role: SandboxRole,
    /// Replaces the configured image (Docker only).
    pub image: Option<String>,
    /// What the workspace begins as, where sandboxes have file systems of their own; otherwise it is empty. A template belongs to
    /// the backend that saved it.
    pub template: Option<WorkspaceTemplate>,
}

//! Where a task's commands run: a Docker container or a local jail, with no network but the tunnel.
//!
//! Both backends start a sandbox, start the guest in it, and talk to it over the guest's stdin and
//! stdout. Everything that comes out of a sandbox is hostile: every frame is checked for its length and
//! every field is treated as data.

mod assets;
mod backend;
mod backend_label;
mod client;
#[cfg(test)]
mod contract;
mod docker;
mod early;
mod error;
mod held_stream;
pub mod local;
mod metrics;
mod name;
mod pool;
mod registries;
mod role;
mod sandbox;
mod sealed;
mod spare;
mod spec;
mod stale;
mod template;
mod trust;
mod tunnel;
mod volume;
mod workspace_path;

use std::sync::Arc;

pub use agentmine_guest::protocol::{INSTALLED, OutboundKind, StdioEnd};
use agentmine_runtime::config::{BackendKind, CommandExecutor};

pub use backend::{Backend, FoundSandbox, WorkerState};
pub use docker::DockerBackend;
pub use early::EarlySandbox;
pub use error::SandboxError;
pub use local::LocalBackend;
pub use metrics::show_stale;
pub use pool::{WarmPool, WarmSettings};
pub use registries::with_presets;
pub use role::SandboxRole;
pub use sandbox::{
    Command, CommandOutput, CommandResult, GuestPorts, Outbound, Sandbox, Snapshot, StdioProgram,
    TunnelStream,
};
pub use spare::Spare;
pub use spec::SandboxSpec;
pub use stale::remove_stale;
pub use template::WorkspaceTemplate;
pub use trust::trust;

/// The backend that the configuration names.
///
/// # Errors
/// What is missing, and what to do about it.
pub async fn from_config(config: &CommandExecutor) -> Result<Arc<dyn Backend>, SandboxError> {
    metrics::describe();
    let backend: Arc<dyn Backend> = match config.backend {
        BackendKind::Docker => Arc::new(DockerBackend::connect(config).await?),
        BackendKind::Local => Arc::new(LocalBackend::new(config, &local::default_state_dir())?),
    };
    tracing::info!(
        limit = backend.disk_limit().await,
        "the disk limit of each sandbox"
    );
    Ok(backend)
}

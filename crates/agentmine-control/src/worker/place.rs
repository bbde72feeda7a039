//! The project and the folders that the operations of a worker use.

use std::path::PathBuf;

use super::blocking::blocking;
use crate::ControlError;
use crate::agents::AgentSources;

/// The project that operations are about, where its work trees are made, and who defines its agents.
#[derive(Debug, Clone, Default)]
pub struct Place {
    /// A folder of the project.
    pub project: PathBuf,
    /// The folder with the work trees of all repositories.
    pub worktrees: PathBuf,
    /// The operator's folder of agents.
    pub operator_agents: Option<PathBuf>,
    /// The configuration file that was named, for commands that others are to run.
    pub config: Option<PathBuf>,
    /// Images that a project's own agent may choose.
    pub allowed_images: Vec<String>,
}

impl Place {
    /// Does something with the project's agents, on a thread that may block.
    pub(crate) async fn with_agents<T: Send + 'static>(
        &self,
        work: impl FnOnce(&AgentSources<'_>) -> Result<T, ControlError> + Send + 'static,
    ) -> Result<T, ControlError> {
        let place = self.clone();
        blocking(move || {
            let project = crate::project(&place.project)?.top;
            work(&AgentSources {
                operator: place.operator_agents.as_deref(),
                project: &project,
                allowed_images: &place.allowed_images,
            })
        })
        .await
    }
}

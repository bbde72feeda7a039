//! Starting work: the fleet's own workers, and clients outside of the fleet in work trees of their own.

mod client;
mod run;
mod trees;

pub use client::{Approval, Client, command_line};
pub use run::{TaskRef, WorkerCommand, WorkerStart, start};
pub use trees::{WorkerList, WorkerPage, WorkerRemove, WorkerView, list, remove};

use std::path::PathBuf;

/// Where work trees are made, and of which repository.
#[derive(Debug, Clone)]
pub struct Place {
    /// A folder of the repository.
    pub project: PathBuf,
    /// The folder with the work trees of all repositories.
    pub worktrees: PathBuf,
}

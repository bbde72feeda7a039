//! Git on the worker: the only place that starts it.
//!
//! Git reads no configuration that was not written here. More than thirty keys of a repository's own
//! configuration name programs, and each release of git adds some; so a repository on the worker's disk is
//! used through a [`View`]: a folder with our configuration and with links to the objects and refs.
//! Every process has limits on memory and CPU time, and is the first that a host without memory kills.

mod home;
mod launcher;
mod layout;
mod limits;
mod owner;
mod temporary;
mod view;
mod worktree;

pub use home::GitHome;
pub use limits::{Errand, Limits};
pub use temporary::remove_abandoned_folders;
pub use view::{RepositoryOrigin, View, ViewError, origin};
pub use worktree::{Force, Worktree, WorktreeError};

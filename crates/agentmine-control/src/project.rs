//! Which project a command is about.

use std::path::{Path, PathBuf};

use agentmine_domain::ProjectName;

use crate::ControlError;

/// A project on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalProject {
    /// The name under which its memory is kept.
    pub name: ProjectName,
    /// The top of the work tree, where `.agentmine/` is.
    pub top: PathBuf,
}

/// The project that `folder` is in: that of its git repository, else the folder itself. Every work tree and clone of a
/// forge's repository is the same project. Starts git; call it from a thread that may block.
///
/// # Errors
/// [`ControlError::Git`] if the folder or the repository's configuration cannot be read.
pub fn project(folder: &Path) -> Result<LocalProject, ControlError> {
    match agentmine_git::origin(folder) {
        Ok(origin) => Ok(LocalProject {
            name: ProjectName::of_folder(&origin.main, origin.remote.as_deref()),
            top: origin.top,
        }),
        Err(agentmine_git::ViewError::NoRepository(_)) => {
            let top = folder
                .canonicalize()
                .map_err(|error| ControlError::Git(format!("{}: {error}", folder.display())))?;
            Ok(LocalProject {
                name: ProjectName::of_folder(&top, None),
                top,
            })
        }
        Err(error) => {
            let failed = ControlError::Git(format!("{}: {error}", folder.display()));
            Err(match error.hint() {
                Some(hint) => failed.hint(hint),
                None => failed,
            })
        }
    }
}

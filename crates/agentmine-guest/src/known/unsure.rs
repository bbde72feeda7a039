//! Why the guest leaves a snapshot to git.

use std::io;

/// The guest is not certain that it would do what git does, so git does it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unsure {
    /// Something that only git handles.
    #[error("{0}")]
    OnlyGit(&'static str),
    /// It would take too long, or too much memory.
    #[error("too much at once")]
    TooMuch,
    /// A file could not be read or written.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The error that leaves it to git.
pub(crate) fn only_git<T>(why: &'static str) -> Result<T, Unsure> {
    Err(Unsure::OnlyGit(why))
}

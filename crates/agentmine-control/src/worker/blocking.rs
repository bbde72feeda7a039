//! Runs work with git and files on threads that may block, so that it delays no other operation.

use crate::ControlError;

/// Does it on a thread that may block.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ControlError> + Send + 'static,
) -> Result<T, ControlError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(ControlError::Git(format!("git did not end: {error}"))))
}

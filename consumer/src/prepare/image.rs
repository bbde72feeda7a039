//! The sandbox image that a repository requests.

use agentmine_runtime::config::{PROJECT_FILE, ProjectFile, is_allowed_image};

use crate::error::SessionError;
use crate::session::context::SessionContext;

/// The image that the repository requests, if the operator allows it.
pub(super) async fn chosen_image(
    ctx: &SessionContext,
    branch: &str,
) -> Result<Option<String>, SessionError> {
    let allowed = &ctx.deps.config.command_executor.docker.allowed_images;
    if allowed.is_empty() {
        return Ok(None);
    }
    let tracker = ctx.effects.tracker();
    let text = tracker.file(&ctx.task.item, branch, PROJECT_FILE).await?;
    let Some(image) = text
        .and_then(|t| ProjectFile::parse(&t).ok())
        .and_then(|f| f.image)
    else {
        return Ok(None);
    };
    // `project::inspect` reports an image that does not fit.
    Ok(is_allowed_image(allowed, &image).then_some(image))
}

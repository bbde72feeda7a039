//! Images, as far as starting a container needs them.

use std::time::Duration;

use futures::StreamExt as _;

use super::engine::Engine;
use crate::error::SandboxError;

const PULL_LIMIT: Duration = Duration::from_secs(900);

/// What starting a container needs to know about an image.
pub(super) struct Image {
    /// Whether it works with a read-only root, by its label.
    pub(super) read_only_root: bool,
}

/// The image, pulled if the engine does not have it.
pub(super) async fn find(engine: &Engine, name: &str) -> Result<Image, SandboxError> {
    let inspect = || {
        engine.call("inspecting the image", |docker| {
            let name = name.to_owned();
            async move { docker.inspect_image(&name).await }
        })
    };
    let inspected = match inspect().await {
        Ok(inspected) => inspected,
        Err(SandboxError::Unavailable(why)) => return Err(SandboxError::Unavailable(why)),
        Err(_) => {
            pull(engine, name).await?;
            inspect().await?
        }
    };
    let labels = inspected
        .config
        .and_then(|config| config.labels)
        .unwrap_or_default();
    let read_only_root = labels
        .get("agentmine.readonly-root")
        .is_some_and(|v| v == "true");
    Ok(Image { read_only_root })
}

async fn pull(engine: &Engine, name: &str) -> Result<(), SandboxError> {
    tracing::info!(image = name, "pulling the sandbox image");
    // Without a tag the engine would pull all of them.
    let last = name.rsplit('/').next().unwrap_or(name);
    let tagged = last.contains(':') || last.contains('@');
    let options = bollard::query_parameters::CreateImageOptions {
        from_image: Some(if tagged {
            name.to_owned()
        } else {
            format!("{name}:latest")
        }),
        ..Default::default()
    };
    let docker = engine.docker();
    let mut progress = std::pin::pin!(docker.create_image(Some(options), None, None));
    let mut failed = None;
    let pulled = async {
        while let Some(step) = progress.next().await {
            let said = match step {
                Ok(info) => info.error_detail.and_then(|detail| detail.message),
                Err(err) => Some(err.to_string()),
            };
            failed = said.or(failed.take());
        }
    };
    if tokio::time::timeout(PULL_LIMIT, pulled).await.is_err() {
        failed = Some(format!("not finished after {} s", PULL_LIMIT.as_secs()));
    }
    match failed {
        None => Ok(()),
        Some(why) => Err(SandboxError::Refused(format!(
            "the image {name:?} does not exist and could not be pulled: {why}. \
             hint: build it from docker/executor-default, or set another in \
             command_executor.docker.base_image"
        ))),
    }
}

//! Whether this engine can mount file systems that the worker makes: it must be on this machine.

use std::path::Path;

use bollard::models::{SystemInfo, VolumeCreateRequest};
use bollard::query_parameters::RemoveVolumeOptions;

use super::engine::Engine;
use crate::name::PREFIX;
use crate::volume::Volumes;

/// File systems beside the engine's own data. The error says why there are none.
pub(super) async fn find(engine: &Engine, info: &SystemInfo, size: u64) -> Result<Volumes, String> {
    if !engine.has_socket_here() {
        return Err("the engine is not reached over a socket of this machine".into());
    }
    let options = info.security_options.iter().flatten();
    // Such an engine may mount nothing, or has other users than the file system.
    let kinds = ["rootless", "userns"];
    let is_other = |option: &&String| kinds.iter().any(|kind| option.contains(kind));
    if let Some(of) = options.into_iter().find(is_other) {
        return Err(format!(
            "the engine's containers have other users than this machine ({of})"
        ));
    }
    let root = info.docker_root_dir.as_deref().unwrap_or_default();
    if !shares_files(engine).await? {
        return Err(format!(
            "the engine's folder {root:?} is not on this machine"
        ));
    }
    Volumes::find(root.into(), size).await
}

/// Whether the engine's files are those of this machine: a socket may lead to another. Proved by a volume with a
/// random name.
async fn shares_files(engine: &Engine) -> Result<bool, String> {
    let name = format!("{PREFIX}probe-{}", uuid::Uuid::new_v4().simple());
    let request = VolumeCreateRequest {
        name: Some(name.clone()),
        ..VolumeCreateRequest::default()
    };
    let made = engine.call("making a volume", |docker| {
        let request = request.clone();
        async move { docker.create_volume(request).await }
    });
    let made = made.await.map_err(|error| error.to_string())?;
    let shared = made.mountpoint.contains(&name) && Path::new(&made.mountpoint).is_dir();
    let removed = engine.call("removing a volume", |docker| {
        let name = name.clone();
        async move {
            docker
                .remove_volume(&name, None::<RemoveVolumeOptions>)
                .await
        }
    });
    removed.await.map_err(|error| error.to_string())?;
    Ok(shared)
}

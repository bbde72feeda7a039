//! The static programs, in a volume of the engine that every container mounts read-only.
//!
//! A volume is filled once for each engine and release: its name holds the hash of the programs. It is used only after
//! its content was read back and compared, byte for byte, with what this worker would have written, so a volume that
//! another worker left half-filled, or that somebody changed, is passed over. Only the worker that made a name up
//! ever writes to it, and no container of a task can: it is read-only there, and an image cannot fill it.
//!
//! Accepted races: several workers that begin at the same moment on a new engine may fill a volume each; all of them
//! are whole, and the sweep keeps one. A volume that the sweep of another worker removes between the choice and the
//! creation of a container comes back empty, since the engine makes what a container names: then the guest does
//! not start, and [`Programs::doubt`] makes the next start look again.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::Read as _;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bollard::models::{Mount, MountType, MountVolumeOptions, Volume, VolumeCreateRequest};
use bollard::query_parameters::{ListVolumesOptions, RemoveVolumeOptions};
use chrono::{DateTime, Utc};
use sha2::{Digest as _, Sha256};
use tokio::sync::Mutex;

use super::engine::Engine;
use super::holder::Holder;
use super::upload;
use crate::assets::{MOUNT, PROGRAMS, Program, guest_path};
use crate::error::SandboxError;

/// Every volume of programs begins with this.
const VOLUME: &str = "agentmine-programs-";
/// How many volumes of this release are checked before another one is made.
const LOOK_AT: usize = 3;
/// What the archive of a volume has besides the programs: headers and padding, in bytes.
const ARCHIVE_SPARE: usize = 64 * 1024;

/// The hash of the programs: their names, and the lengths and bytes of what is embedded.
static HASH: LazyLock<String> = LazyLock::new(|| {
    let mut hasher = Sha256::new();
    for program in &PROGRAMS {
        hasher.update(program.name.as_bytes());
        hasher.update([0]);
        hasher.update((program.packed.len() as u64).to_be_bytes());
        hasher.update(program.packed);
    }
    let digest = hasher.finalize();
    digest[..16].iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
});

/// The volume of programs that this worker's containers mount. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Programs {
    /// How the names of all releases' volumes begin.
    family: Arc<str>,
    /// Its name, once its content was compared. Locked while one is looked for: others wait for the result.
    chosen: Arc<Mutex<Option<String>>>,
}

impl Default for Programs {
    fn default() -> Self {
        Self::of_family(VOLUME)
    }
}

impl Programs {
    /// Volumes whose names begin like this.
    pub(crate) fn of_family(family: &str) -> Self {
        Self {
            family: family.into(),
            chosen: Arc::default(),
        }
    }

    /// How the names of this release's volumes begin.
    fn release(&self) -> String {
        format!("{}{}-", self.family, *HASH)
    }

    /// The name of a volume whose content was compared. `image` is used for a container that never starts.
    pub(super) async fn volume(
        &self,
        engine: &Engine,
        image: &str,
    ) -> Result<String, SandboxError> {
        let mut chosen = self.chosen.lock().await;
        if let Some(name) = chosen.as_ref() {
            return Ok(name.clone());
        }
        let release = self.release();
        let name = match existing(engine, image, &release).await? {
            Some(name) => name,
            None => fill(engine, image, &release).await?,
        };
        tracing::debug!(
            volume.name = name,
            "the programs of sandboxes are in a volume"
        );
        Ok(chosen.insert(name).clone())
    }

    /// Compares again before the next start: a container with this volume did not start.
    pub(super) async fn doubt(&self, name: &str) {
        let mut chosen = self.chosen.lock().await;
        if chosen.as_deref() == Some(name) {
            *chosen = None;
        }
    }

    /// Removes volumes of programs that no container uses and that are older than `max_age`, except this worker's
    /// own. One that a worker of another release still needs is made again by it. A process that starts no sandboxes
    /// removes none of its own release: it does not know which one the workers use.
    pub(super) async fn remove_unused(
        &self,
        engine: &Engine,
        max_age: Duration,
    ) -> Result<(), SandboxError> {
        let unused = list(engine, &self.family, OfVolumes::Unused).await?;
        let chosen = self.chosen.lock().await.clone();
        for volume in unused {
            let kept = match &chosen {
                Some(chosen) => volume.name == *chosen,
                None => volume.name.starts_with(&self.release()),
            };
            if kept || !is_older(&volume, max_age) {
                continue;
            }
            // The engine refuses if a container was created with it meanwhile.
            match remove(engine, &volume.name).await {
                Ok(()) => {
                    tracing::info!(
                        volume.name = volume.name,
                        "removed an unused volume of programs"
                    );
                }
                Err(error) => {
                    tracing::debug!(volume.name = volume.name, %error, "a volume of programs could not be removed");
                }
            }
        }
        Ok(())
    }
}

/// Whether a container did not start because its volume of programs is empty.
pub(super) fn are_missing(error: &SandboxError) -> bool {
    error.to_string().contains(&guest_path())
}

/// The mount of a volume of programs: read-only for a task, and never filled from the image.
pub(super) fn mount(volume: &str, access: Access) -> Mount {
    Mount {
        target: Some(MOUNT.to_owned()),
        source: Some(volume.to_owned()),
        typ: Some(MountType::VOLUME),
        read_only: Some(access == Access::Read),
        volume_options: Some(MountVolumeOptions {
            no_copy: Some(true),
            ..MountVolumeOptions::default()
        }),
        ..Mount::default()
    }
}

/// What a container may do with the programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    /// Only for the container that fills the volume, which never starts.
    Fill,
}

/// A volume of this release that is whole.
async fn existing(
    engine: &Engine,
    image: &str,
    release: &str,
) -> Result<Option<String>, SandboxError> {
    let mut found = list(engine, release, OfVolumes::All).await?;
    // Workers that look at the same time agree on the oldest.
    found.sort_by(|a, b| (&a.created_at, &a.name).cmp(&(&b.created_at, &b.name)));
    for volume in found.into_iter().take(LOOK_AT) {
        let holder = Holder::create(engine, image, Some(mount(&volume.name, Access::Read))).await?;
        let whole = is_whole(&holder).await;
        holder.remove().await;
        if whole? {
            return Ok(Some(volume.name));
        }
        tracing::warn!(
            volume.name = volume.name,
            "a volume does not hold the programs of this release, or not all of them yet; it is not used"
        );
    }
    Ok(None)
}

/// Makes a volume under a new name, fills it, and compares its content.
async fn fill(engine: &Engine, image: &str, release: &str) -> Result<String, SandboxError> {
    let name = format!("{release}{}", uuid::Uuid::new_v4().simple());
    let request = VolumeCreateRequest {
        name: Some(name.clone()),
        labels: Some(HashMap::from([("agentmine.programs".into(), HASH.clone())])),
        ..VolumeCreateRequest::default()
    };
    engine
        .call("making the volume of programs", |docker| {
            let request = request.clone();
            async move { docker.create_volume(request).await }
        })
        .await?;
    let filled = fill_and_compare(engine, image, &name).await;
    if let Err(error) = filled {
        if let Err(left) = remove(engine, &name).await {
            tracing::warn!(volume.name = name, error = %left, "a volume that was not filled could not be removed");
        }
        return Err(error);
    }
    Ok(name)
}

async fn fill_and_compare(engine: &Engine, image: &str, name: &str) -> Result<(), SandboxError> {
    let holder = Holder::create(engine, image, Some(mount(name, Access::Fill))).await?;
    let whole = match upload::programs(engine, &holder.id).await {
        Ok(()) => is_whole(&holder).await,
        Err(error) => Err(error),
    };
    holder.remove().await;
    match whole? {
        true => Ok(()),
        false => Err(SandboxError::Unavailable(
            "the engine did not store the programs of the sandbox as they were sent. hint: check its disk".into(),
        )),
    }
}

/// Whether the volume of this container holds exactly the programs of this release, for everyone to run.
async fn is_whole(holder: &Holder<'_>) -> Result<bool, SandboxError> {
    let most = PROGRAMS.iter().map(Program::len).sum::<usize>() + ARCHIVE_SPARE;
    let archive = holder.archive(&format!("{MOUNT}/bin"), most).await?;
    Ok(archive.is_some_and(|archive| holds_programs(&archive)))
}

/// Whether an archive of the folder holds the programs and nothing else.
fn holds_programs(archive: &[u8]) -> bool {
    let mut archive = tar::Archive::new(archive);
    let Ok(entries) = archive.entries() else {
        return false;
    };
    let mut found = Vec::new();
    for entry in entries {
        let Ok(mut entry) = entry else { return false };
        let header = entry.header();
        if header.entry_type().is_dir() {
            continue;
        }
        let is_runnable = header.mode().is_ok_and(|mode| mode & 0o7777 == 0o755);
        let is_ours = header.entry_type().is_file() && is_runnable;
        let name = entry
            .path()
            .ok()
            .and_then(|path| path.to_str().map(str::to_owned));
        let program = name.and_then(|name| {
            PROGRAMS
                .iter()
                .find(|program| name == format!("bin/{}", program.name))
        });
        let mut bytes = Vec::new();
        match program {
            Some(program) if is_ours && entry.read_to_end(&mut bytes).is_ok() => {
                if !program.unpack().is_ok_and(|ours| ours == bytes) {
                    return false;
                }
                found.push(program.name);
            }
            Some(_) | None => return false,
        }
    }
    found.sort_unstable();
    let mut expected = PROGRAMS.each_ref().map(|program| program.name);
    expected.sort_unstable();
    found == expected
}

enum OfVolumes {
    All,
    Unused,
}

async fn list(engine: &Engine, prefix: &str, of: OfVolumes) -> Result<Vec<Volume>, SandboxError> {
    let mut filters = HashMap::from([("name".to_owned(), vec![prefix.to_owned()])]);
    if let OfVolumes::Unused = of {
        filters.insert("dangling".to_owned(), vec!["true".to_owned()]);
    }
    let options = ListVolumesOptions {
        filters: Some(filters),
    };
    let listed = engine
        .call("listing volumes", |docker| {
            let options = options.clone();
            async move { docker.list_volumes(Some(options)).await }
        })
        .await?;
    let volumes = listed.volumes.unwrap_or_default();
    // The engine's filter matches anywhere in a name.
    Ok(volumes
        .into_iter()
        .filter(|volume| volume.name.starts_with(prefix))
        .collect())
}

async fn remove(engine: &Engine, name: &str) -> Result<(), SandboxError> {
    engine
        .call("removing a volume", |docker| {
            let name = name.to_owned();
            async move {
                docker
                    .remove_volume(&name, None::<RemoveVolumeOptions>)
                    .await
            }
        })
        .await
}

fn is_older(volume: &Volume, max_age: Duration) -> bool {
    let created: Option<DateTime<Utc>> = volume.created_at.as_ref().and_then(|at| at.parse().ok());
    created.is_some_and(|at| (Utc::now() - at).to_std().is_ok_and(|age| age >= max_age))
}

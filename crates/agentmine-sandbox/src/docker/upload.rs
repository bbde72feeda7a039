//! Copying folders and programs into a container's volumes, as a tar stream.

use bollard::body_full;
use bollard::query_parameters::UploadToContainerOptions;
use tar::{Builder, EntryType, Header};

use super::engine::Engine;
use crate::assets::{MOUNT, PROGRAMS};
use crate::error::SandboxError;

/// Makes the folders of a workspace, before the start. With a read-only root, only uploads directly into a volume
/// are possible.
pub(super) async fn workspace(
    engine: &Engine,
    container: &str,
    owner: (u64, u64),
    read_only_root: bool,
) -> Result<(), SandboxError> {
    let mut archive = Archive::default();
    if read_only_root {
        archive.workspace("", owner)?;
        put(engine, container, "/workspace", archive).await
    } else {
        archive.folder("workspace/", owner)?;
        archive.workspace("workspace/", owner)?;
        put(engine, container, "/", archive).await
    }
}

/// Copies the programs into the volume that they are kept in.
pub(super) async fn programs(engine: &Engine, container: &str) -> Result<(), SandboxError> {
    let mut archive = Archive::default();
    archive.programs()?;
    put(engine, container, MOUNT, archive).await
}

async fn put(
    engine: &Engine,
    container: &str,
    path: &str,
    archive: Archive,
) -> Result<(), SandboxError> {
    let bytes = bytes::Bytes::from(archive.0.into_inner().map_err(failed)?);
    let options = UploadToContainerOptions {
        path: path.to_owned(),
        ..Default::default()
    };
    engine
        .call("copying the guest into the container", |docker| {
            let (options, bytes) = (options.clone(), bytes.clone());
            async move {
                docker
                    .upload_to_container(container, Some(options), body_full(bytes))
                    .await
            }
        })
        .await
}

struct Archive(Builder<Vec<u8>>);

impl Default for Archive {
    fn default() -> Self {
        Self(Builder::new(Vec::new()))
    }
}

impl Archive {
    fn workspace(&mut self, prefix: &str, owner: (u64, u64)) -> Result<(), SandboxError> {
        for folder in ["project/", "tmp/", "tmp/home/"] {
            self.folder(&format!("{prefix}{folder}"), owner)?;
        }
        Ok(())
    }

    fn programs(&mut self) -> Result<(), SandboxError> {
        self.folder("bin/", (0, 0))?;
        for program in &PROGRAMS {
            let path = format!("bin/{}", program.name);
            let bytes = program.unpack().map_err(failed)?;
            self.entry(&path, EntryType::Regular, (0, 0), &bytes)?;
        }
        Ok(())
    }

    fn folder(&mut self, path: &str, owner: (u64, u64)) -> Result<(), SandboxError> {
        self.entry(path, EntryType::Directory, owner, &[])
    }

    fn entry(
        &mut self,
        path: &str,
        kind: EntryType,
        (uid, gid): (u64, u64),
        content: &[u8],
    ) -> Result<(), SandboxError> {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(0o755);
        header.set_uid(uid);
        header.set_gid(gid);
        header.set_size(content.len() as u64);
        self.0
            .append_data(&mut header, path, content)
            .map_err(failed)
    }
}

#[expect(clippy::needless_pass_by_value, reason = "map_err passes it by value")]
fn failed(err: std::io::Error) -> SandboxError {
    SandboxError::Refused(format!("packing the guest: {err}"))
}

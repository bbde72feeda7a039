//! Single files, for the worker's own use. Links are resolved, and nothing outside the root is touched.

use std::io;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use agentmine_guest::mux::MuxStream;
use agentmine_guest::protocol::{Bytes, read_exactly};
use anyhow::{Context as _, Result, bail, ensure};
use tokio::io::AsyncWriteExt as _;

use crate::serve::{State, finish, reply};

pub(crate) async fn put(
    mut stream: MuxStream,
    path: &str,
    mode: u32,
    len: u64,
    state: &State,
) -> io::Result<()> {
    let content = read_exactly(&mut stream, len).await?;
    let done = write(&state.root, &state.resolve(path), &content, mode);
    reply(&mut stream, done.with_context(|| path.to_owned())).await?;
    finish(&mut stream).await
}

pub(crate) async fn get(
    mut stream: MuxStream,
    path: &str,
    max: u64,
    state: &State,
) -> io::Result<()> {
    let read = read(&state.root, &state.resolve(path), max);
    let (done, content) = match read.with_context(|| path.to_owned()) {
        Ok(content) => {
            let len = content.as_ref().map(|content| content.len() as u64);
            (Ok(Bytes { len }), content.unwrap_or_default())
        }
        Err(err) => (Err(err), Vec::new()),
    };
    reply(&mut stream, done).await?;
    stream.write_all(&content).await?;
    finish(&mut stream).await
}

/// Writes beside the target and renames, so that a reader sees the old or the new.
fn write(root: &Path, path: &Path, content: &[u8], mode: u32) -> Result<()> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        bail!("not a file name");
    };
    let root = root.canonicalize()?;
    // The deepest folder that exists decides, before anything is made.
    let existing = folder.ancestors().find(|folder| folder.exists());
    ensure_inside(&root, &existing.unwrap_or(folder).canonicalize()?)?;
    std::fs::create_dir_all(folder)?;
    let folder = folder.canonicalize()?;
    ensure_inside(&root, &folder)?;
    let target = folder.join(name);
    ensure!(!target.is_dir(), "a directory is in the way");
    let mut temporary = name.to_os_string();
    temporary.push(format!(".agentmine-{}", std::process::id()));
    let temporary = folder.join(temporary);
    std::fs::write(&temporary, content)?;
    std::fs::set_permissions(&temporary, std::fs::Permissions::from_mode(mode & 0o7777))?;
    std::fs::rename(&temporary, &target)?;
    Ok(())
}

fn read(root: &Path, path: &Path, max: u64) -> Result<Option<Vec<u8>>> {
    use std::io::Read as _;
    let path = match path.canonicalize() {
        Ok(path) => path,
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(err) => return Err(err.into()),
    };
    ensure_inside(&root.canonicalize()?, &path)?;
    let mut options = std::fs::OpenOptions::new();
    let file = options
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(&path)?;
    let metadata = file.metadata()?;
    ensure!(metadata.is_file(), "not a regular file");
    let mut content = Vec::new();
    file.take(max.saturating_add(1)).read_to_end(&mut content)?;
    ensure!(content.len() as u64 <= max, "longer than {max} bytes");
    Ok(Some(content))
}

fn ensure_inside(root: &Path, path: &Path) -> Result<()> {
    ensure!(path.starts_with(root), "outside /workspace");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_out_of_the_root_is_not_followed() {
        let outside = tempfile::tempdir().unwrap();
        let root = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(outside.path(), root.path().join("link")).unwrap();
        std::fs::write(outside.path().join("secret"), "s").unwrap();
        let path = root.path().join("link/secret");
        assert!(read(root.path(), &path, 10).is_err());
        assert!(write(root.path(), &root.path().join("link/new/x"), b"x", 0o644).is_err());
        assert!(!outside.path().join("new").exists());
    }

    #[test]
    fn what_is_written_can_be_read_up_to_the_limit() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a/b/c");
        assert_eq!(read(root.path(), &path, 10).unwrap(), None);
        write(root.path(), &path, b"hello", 0o755).unwrap();
        assert_eq!(read(root.path(), &path, 5).unwrap().unwrap(), b"hello");
        assert!(read(root.path(), &path, 4).is_err());
    }
}

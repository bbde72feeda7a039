//! Single files that the worker reads. Links are resolved, and nothing outside the root is read.

use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use agentmine_guest::mux::MuxStream;
use agentmine_guest::protocol::Bytes;
use anyhow::{Context as _, Result, ensure};
use tokio::io::AsyncWriteExt as _;

use crate::reply::{finish, reply};
use crate::state::State;

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
    }

    #[test]
    fn a_file_is_read_up_to_the_limit() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("file");
        assert_eq!(read(root.path(), &path, 10).unwrap(), None);
        std::fs::write(&path, "hello").unwrap();
        assert_eq!(read(root.path(), &path, 5).unwrap().unwrap(), b"hello");
        assert!(read(root.path(), &path, 4).is_err());
    }
}

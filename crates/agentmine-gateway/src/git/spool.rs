//! A push on its way in: read whole into a file without a name before anything looks at it.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::io::AsyncWriteExt;

/// Time between two pieces of a push.
const IDLE: Duration = Duration::from_secs(120);
/// Bytes past the limit that are read and thrown away, so that git gets to hear the reason.
const PATIENCE: u64 = 256 * 1024 * 1024;

/// A push in a file.
#[derive(Debug)]
pub(crate) struct Spool {
    file: File,
    /// Bytes that came, those thrown away included.
    pub(crate) length: u64,
    /// Whether there were more than the limit. The file holds only the first of them then.
    pub(crate) over: bool,
}

impl Spool {
    /// Reads `body` to its end and keeps at most `limit` bytes.
    pub(crate) async fn read(mut body: Incoming, limit: u64) -> io::Result<Self> {
        let file = tokio::task::spawn_blocking(tempfile::tempfile)
            .await
            .map_err(io::Error::other)??;
        let mut file = tokio::fs::File::from_std(file);
        let mut length = 0u64;
        loop {
            let frame = tokio::time::timeout(IDLE, body.frame())
                .await
                .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?;
            let Some(frame) = frame else { break };
            let Ok(data) = frame.map_err(io::Error::other)?.into_data() else {
                continue;
            };
            let room = limit.saturating_sub(length);
            length += data.len() as u64;
            if room > 0 {
                let kept = usize::try_from(room).map_or(data.len(), |room| room.min(data.len()));
                file.write_all(&data[..kept]).await?;
            }
            if length > limit.saturating_add(PATIENCE) {
                return Err(io::Error::other("far over the limit"));
            }
        }
        file.flush().await?;
        metrics::counter!("agentmine_gateway_git_bytes_total", "direction" => "pushed")
            .increment(length);
        Ok(Self {
            file: file.into_std().await,
            length,
            over: length > limit,
        })
    }

    /// The first bytes, at most `cap`.
    pub(crate) fn start(&self, cap: usize) -> io::Result<Vec<u8>> {
        self.at(0, cap)
    }

    /// At most `cap` bytes from `offset` on.
    pub(crate) fn at(&self, offset: u64, cap: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; cap];
        let mut filled = 0;
        while filled < cap {
            match self
                .file
                .read_at(&mut bytes[filled..], offset + filled as u64)
            {
                Ok(0) => break,
                Ok(n) => filled += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        bytes.truncate(filled);
        Ok(bytes)
    }

    /// The file, to be read from `offset` on. One reader at a time: they share the position.
    pub(crate) fn from(&self, offset: u64) -> io::Result<File> {
        let mut file = self.file.try_clone()?;
        file.seek(SeekFrom::Start(offset))?;
        Ok(file)
    }
}

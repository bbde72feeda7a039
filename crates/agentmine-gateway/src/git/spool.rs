//! An incoming push, read whole into a file without a name before anything looks at it.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Body;
use tokio::io::{AsyncSeekExt, AsyncWriteExt};

use crate::http::BoxError;

/// Time limit between two chunks of a push.
const IDLE: Duration = Duration::from_secs(120);
/// Time limit for a whole push. One push is read at a time, so a slow one delays the next.
const DEADLINE: Duration = Duration::from_secs(600);
/// Bytes past the limit that are read and discarded: git shows the reason only once it has sent
/// everything.
const MAX_DISCARDED: u64 = 256 * 1024 * 1024;

/// Bytes at the beginning of the file that are left free: the head that goes upstream may be a little longer
/// than the client's.
const RESERVED: u64 = 1024;

/// A push in a file.
#[derive(Debug)]
pub(crate) struct Spool {
    file: File,
    /// Bytes received, including the discarded ones.
    pub(crate) length: u64,
    /// Whether the limit was exceeded. The file then holds only the first bytes.
    pub(crate) over: bool,
}

impl Spool {
    /// Reads `body` to its end and keeps at most `limit` bytes.
    pub(crate) async fn read<B>(body: B, limit: u64) -> io::Result<Self>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: Into<BoxError>,
    {
        tokio::time::timeout(DEADLINE, Self::read_all(body, limit))
            .await
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    async fn read_all<B>(mut body: B, limit: u64) -> io::Result<Self>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: Into<BoxError>,
    {
        let file = tokio::task::spawn_blocking(tempfile::tempfile)
            .await
            .map_err(io::Error::other)??;
        let mut file = tokio::fs::File::from_std(file);
        file.seek(SeekFrom::Start(RESERVED)).await?;
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
            if length > limit.saturating_add(MAX_DISCARDED) {
                return Err(io::Error::other("the push is far over the limit"));
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
                .read_at(&mut bytes[filled..], RESERVED + offset + filled as u64)
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
        file.seek(SeekFrom::Start(RESERVED + offset))?;
        Ok(file)
    }

    /// The push with `head` in place of all before `pack_offset`, and its length. The client's own head is
    /// overwritten.
    pub(crate) fn with_head(&self, head: &[u8], pack_offset: u64) -> io::Result<(File, u64)> {
        let too_long = || io::Error::other("the head of the push is too long");
        let start = (RESERVED + pack_offset).checked_sub(head.len() as u64);
        let start = start.ok_or_else(too_long)?;
        self.file.write_all_at(head, start)?;
        let mut file = self.file.try_clone()?;
        file.seek(SeekFrom::Start(start))?;
        Ok((file, self.length - pack_offset + head.len() as u64))
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http_body_util::StreamBody;
    use hyper::body::Frame;

    use super::*;

    /// A sender that is never idle for long, and never done.
    #[tokio::test(start_paused = true)]
    async fn a_push_that_only_trickles_is_aborted() {
        let drops = Box::pin(futures::stream::unfold((), |()| async {
            tokio::time::sleep(IDLE / 2).await;
            let frame = Frame::data(Bytes::from_static(b"x"));
            Some((Ok::<_, Infallible>(frame), ()))
        }));
        let began = tokio::time::Instant::now();
        let read = Spool::read(StreamBody::new(drops), 1000);
        let read = tokio::time::timeout(DEADLINE * 2, read).await.unwrap();
        assert_eq!(read.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(began.elapsed().as_secs(), DEADLINE.as_secs());
    }
}

//! The words that worker and guest exchange.
//!
//! The guest writes [`MAGIC`] and one [`Hello`] frame; from then on the byte stream is yamux, with the
//! worker as the client. Every stream begins with one frame of JSON: a [`GuestRequest`] on a stream that
//! the worker opened, an [`OutboundHeader`] on one that the guest opened. A request is answered by one
//! [`GuestReply`] frame; raw bytes, whose length the frame before them gives, may follow either.
//!
//! A frame is a length (`u32`, big endian) and that many bytes. The reader states the longest frame
//! that it takes, so that a hostile length costs nothing.

use std::collections::BTreeMap;
use std::{fmt, io};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Raised with every change that the other side would not understand.
pub const VERSION: u32 = 2;
/// The first bytes of a guest's output: anything else is an engine's error text.
pub const MAGIC: [u8; 8] = *b"AGMGUEST";
/// Longest frame that a worker takes from a guest.
pub const MAX_REPLY: usize = 64 * 1024;
/// Longest frame that a guest takes from the worker. One argument of a command has at most 128 KiB
/// on Linux, all together 2 MiB.
pub const MAX_REQUEST: usize = 4 * 1024 * 1024;
/// Most connections out of a sandbox at one time. More wait in the listener's backlog.
pub const MAX_OUTBOUND: usize = 100;
/// Most streams of one tunnel, both directions together.
pub const MAX_STREAMS: usize = 256;
/// Longest note that a guest puts into an output that it cut or a command that it killed.
pub const MAX_NOTE: usize = 256;
/// Bytes of stderr kept of a stdio program.
pub const STDERR_RING: usize = 64 * 1024;

/// What a guest says first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`VERSION`] of the guest.
    pub version: u32,
    /// Port of the git listener on 127.0.0.1.
    pub git_port: u16,
    /// Port of the web proxy listener on 127.0.0.1.
    pub web_port: u16,
    /// Where `/workspace` really is; differs only in the jail without namespaces.
    pub root: String,
    /// What the guest put itself under.
    pub jail: JailReport,
    /// Why it cannot serve. It ends after saying so.
    #[serde(default)]
    pub error: Option<String>,
}

/// What a guest put itself under.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JailReport {
    /// `full`, `partial` or `none`.
    pub landlock: String,
    /// Whether its system call filter is on.
    pub seccomp: bool,
}

/// What a worker asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum GuestRequest {
    /// Run a command; answered by [`RunDone`]. Closing the stream before that kills the group.
    Run {
        /// Program and arguments.
        argv: Vec<String>,
        /// Absolute, or relative to the project.
        cwd: String,
        /// Added to the default environment.
        env: BTreeMap<String, String>,
        /// Bytes of stdin that follow.
        stdin_len: u64,
        /// Milliseconds until the group is killed.
        timeout_ms: u64,
        /// Bytes kept of stdout and of stderr, each.
        max_output: u64,
    },
    /// Start a stdio program; answered by [`Started`], then its stdin and stdout.
    Stdio {
        /// Program and arguments.
        argv: Vec<String>,
        /// Added to the default environment.
        env: BTreeMap<String, String>,
    },
    /// The end of a stdio program's stderr; answered by [`Bytes`].
    StdioStderr {
        /// From [`Started`].
        id: u64,
    },
    /// How a stdio program ended; answered by [`StdioEnd`] once it has, at once for one that has
    /// already.
    StdioEnded {
        /// From [`Started`].
        id: u64,
    },
    /// End a stdio program: its stdin is closed, after the grace its group gets SIGTERM, after
    /// another SIGKILL. Answered by [`StdioEnd`] when nothing of it is left.
    StdioStop {
        /// From [`Started`].
        id: u64,
        /// Milliseconds.
        grace_ms: u64,
    },
    /// Write a file; its bytes follow; answered by `()`.
    PutFile {
        /// Under `/workspace`.
        path: String,
        /// Permission bits.
        mode: u32,
        /// Bytes that follow.
        len: u64,
    },
    /// Read a file; answered by [`Bytes`], `None` if there is none.
    GetFile {
        /// Under `/workspace`.
        path: String,
        /// Most bytes to read.
        max: u64,
    },
    /// Take a snapshot; answered by [`SnapshotDone`].
    Snapshot {
        /// Commit of the snapshot before.
        since: Option<String>,
        /// Most bytes of the bundle.
        max_bundle: u64,
    },
    /// Apply snapshots; the bundles follow; answered by `()`.
    Restore {
        /// Commit of the last snapshot.
        commit: String,
        /// Lengths of the bundles.
        bundles: Vec<u64>,
    },
    /// Answered by [`Used`].
    DiskUsed,
}

/// The answer to a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GuestReply<T> {
    /// Done.
    Ok(T),
    /// Not done, and why.
    Err(String),
}

/// How a command ended. stdout and stderr follow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunDone {
    /// 128 + signal where a signal ended it; 124 on the time limit.
    pub exit_code: i32,
    /// Bytes of stdout that follow.
    pub stdout_len: u64,
    /// Bytes of stderr that follow those.
    pub stderr_len: u64,
    /// Whether anything was cut.
    pub truncated: bool,
    /// Whether the time limit ended it.
    pub timed_out: bool,
    /// Microseconds from start to end.
    pub duration_us: u64,
}

/// A stdio program runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// Names it in [`GuestRequest::StdioStderr`].
    pub id: u64,
}

/// How a stdio program ended; `exit code 1` or `signal 9` in words. Its process group has been killed when this is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StdioEnd {
    /// Its exit code, unless a signal ended it.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
}

impl fmt::Display for StdioEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.code, self.signal) {
            (Some(code), _) => write!(f, "exit code {code}"),
            (None, Some(signal)) => write!(f, "signal {signal}"),
            (None, None) => f.write_str("its exit status is unknown"),
        }
    }
}

/// Bytes that follow, `None` if there are none to be had.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bytes {
    /// How many.
    pub len: Option<u64>,
}

/// A snapshot was taken. The bundle follows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotDone {
    /// The snapshot commit.
    pub commit: String,
    /// Bytes of the bundle, `None` when nothing changed.
    pub bundle_len: Option<u64>,
}

/// Disk use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Used {
    /// Bytes under `/workspace`.
    pub bytes: u64,
}

/// The first frame of a stream that the guest opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutboundHeader {
    /// What the connection is for.
    pub kind: OutboundKind,
}

/// What a connection out of the sandbox is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutboundKind {
    /// Git smart HTTP, to the gateway.
    Git,
    /// A web proxy client (CONNECT or plain HTTP).
    Web,
}

/// Reads one frame of at most `max` bytes.
///
/// # Errors
/// `InvalidData` for a longer one, else what the stream says.
pub async fn read_frame<R: AsyncRead + Unpin>(reader: &mut R, max: usize) -> io::Result<Vec<u8>> {
    let len = reader.read_u32().await? as usize;
    if len > max {
        return Err(invalid(format!(
            "a frame of {len} bytes, at most {max} are taken"
        )));
    }
    read_exactly(reader, len as u64).await
}

/// Reads exactly `len` bytes; memory grows with what arrives, not with what was announced.
///
/// # Errors
/// `UnexpectedEof` when fewer come.
pub async fn read_exactly<R: AsyncRead + Unpin>(reader: &mut R, len: u64) -> io::Result<Vec<u8>> {
    let mut body = Vec::with_capacity(len.min(256 * 1024) as usize);
    reader.take(len).read_to_end(&mut body).await?;
    if body.len() as u64 == len {
        Ok(body)
    } else {
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}

/// Reads one frame of JSON.
///
/// # Errors
/// As [`read_frame`]; `InvalidData` for JSON of another shape.
pub async fn read_json<T, R>(reader: &mut R, max: usize) -> io::Result<T>
where
    T: DeserializeOwned,
    R: AsyncRead + Unpin,
{
    let body = read_frame(reader, max).await?;
    serde_json::from_slice(&body).map_err(|err| invalid(err.to_string()))
}

/// Writes one frame of JSON and flushes.
///
/// # Errors
/// What the stream says.
pub async fn write_json<T, W>(writer: &mut W, value: &T) -> io::Result<()>
where
    T: Serialize + Sync,
    W: AsyncWrite + Unpin,
{
    writer.write_all(&encode_json(value)?).await?;
    writer.flush().await
}

/// One frame of JSON, for whoever has more to send with it.
///
/// # Errors
/// When the value has no JSON form or is too long for a frame.
pub fn encode_json<T: Serialize>(value: &T) -> io::Result<Vec<u8>> {
    let mut frame = vec![0; 4];
    serde_json::to_writer(&mut frame, value)?;
    let len = u32::try_from(frame.len() - 4).map_err(|err| invalid(err.to_string()))?;
    frame[..4].copy_from_slice(&len.to_be_bytes());
    Ok(frame)
}

fn invalid(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_frame_comes_back_as_it_was_written() {
        let (mut a, mut b) = tokio::io::duplex(1024);
        let sent = OutboundHeader {
            kind: OutboundKind::Git,
        };
        write_json(&mut a, &sent).await.unwrap();
        let got: OutboundHeader = read_json(&mut b, 100).await.unwrap();
        assert_eq!(got, sent);
    }

    #[tokio::test]
    async fn a_frame_over_the_limit_is_refused_before_it_is_read() {
        let mut bytes: &[u8] = &[0xff, 0xff, 0xff, 0xff, 1];
        let err = read_frame(&mut bytes, MAX_REPLY).await.unwrap_err();
        assert_eq!(err.kind(), io::ErrorKind::InvalidData);
    }

    #[tokio::test]
    async fn a_short_body_is_an_error() {
        let mut bytes: &[u8] = &[0, 0, 0, 9, 1];
        let err = read_frame(&mut bytes, MAX_REPLY).await.unwrap_err();
        assert_eq!(err.kind(), io::ErrorKind::UnexpectedEof);
    }
}

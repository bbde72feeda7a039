//! The messages between worker and guest.
//!
//! The worker writes the [`seal`](crate::seal)'s key; everything after it is sealed, in both directions. The
//! guest writes [`MAGIC`] and one [`Hello`] frame; from then on the byte stream is yamux, with the
//! worker as the client. Every stream begins with one frame of JSON: a [`GuestRequest`] on a stream that
//! the worker opened, an [`OutboundHeader`] on one that the guest opened. The reply to a request is one
//! [`GuestReply`] frame. Raw bytes may follow either; the frame before them gives their length.
//!
//! A frame is a length (`u32`, big endian) and that many bytes. The reader limits the length of a frame, so
//! that a hostile length costs nothing.

use std::collections::BTreeMap;
use std::{fmt, io};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Incremented with every incompatible change.
pub const VERSION: u32 = 3;
/// The first bytes of a guest's output. Anything else is the engine's error text.
pub const MAGIC: [u8; 8] = *b"AGMGUEST";
/// Maximum length of a frame from a guest, in bytes.
pub const MAX_REPLY: usize = 64 * 1024;
/// Maximum length of a frame from the worker, in bytes. On Linux one argument of a command has at most 128 KiB,
/// and all together have 2 MiB.
pub const MAX_REQUEST: usize = 4 * 1024 * 1024;
/// Maximum number of simultaneous connections out of a sandbox. More wait in the listener's backlog.
pub const MAX_OUTBOUND: usize = 100;
/// Maximum number of streams of one tunnel, both directions together.
pub const MAX_STREAMS: usize = 256;
/// Maximum length of a note that a guest adds to the output of a command, in bytes: that it truncated the
/// output, or that it killed the command.
pub const MAX_NOTE: usize = 256;
/// The disk limit allows one file for this many bytes; an ordinary file system has one for 16 KiB.
pub const BYTES_FOR_A_FILE: u64 = 8192;
/// Maximum number of files and repositories that a snapshot names as omitted.
pub const MAX_LEFT_OUT: usize = 20;
/// Files that are installed or built, as globs of git: no work of the agent's, whether or not the repository ignores them.
pub const INSTALLED: [&str; 10] = [
    "**/node_modules/**",
    "**/__pycache__/**",
    "**/.venv/**",
    "**/venv/**",
    "**/*.egg-info/**",
    "**/target/debug/**",
    "**/target/release/**",
    "**/.gradle/**",
    "**/.tox/**",
    "**/.nox/**",
];
/// How much of a stdio program's stderr is kept, in bytes.
pub const STDERR_RING: usize = 64 * 1024;

/// The first message of a guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`VERSION`] of the guest.
    pub version: u32,
    /// Port of the git listener on 127.0.0.1.
    pub git_port: u16,
    /// Port of the web proxy listener on 127.0.0.1.
    pub web_port: u16,
    /// The real path of `/workspace`; it differs only in the jail without namespaces.
    pub root: String,
    /// The restrictions that the guest has applied to itself.
    pub jail: JailReport,
    /// Why it cannot serve. The guest exits after sending this.
    #[serde(default)]
    pub error: Option<String>,
}

/// The restrictions that a guest has applied to itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JailReport {
    /// `full`, `partial` or `none`.
    pub landlock: String,
    /// Whether its system call filter is installed.
    pub seccomp: bool,
}

/// A request of the worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum GuestRequest {
    /// Run a command; the reply is [`RunDone`]. Closing the stream before that kills the process group.
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
        /// How many bytes of stdout and of stderr are kept, each.
        max_output: u64,
        /// What its result is for.
        purpose: Purpose,
    },
    /// Start a stdio program; the reply is [`Started`], then the stream carries its stdin and stdout.
    Stdio {
        /// Program and arguments.
        argv: Vec<String>,
        /// Added to the default environment.
        env: BTreeMap<String, String>,
    },
    /// Get the end of a stdio program's stderr; the reply is [`Bytes`].
    StdioStderr {
        /// From [`Started`].
        id: u64,
    },
    /// Wait for the end of a stdio program; the reply is [`StdioEnd`].
    StdioEnded {
        /// From [`Started`].
        id: u64,
    },
    /// Stop a stdio program: its stdin is closed; after the grace period its group gets SIGTERM, after another
    /// one SIGKILL. The reply is [`StdioEnd`], when all its processes have ended.
    StdioStop {
        /// From [`Started`].
        id: u64,
        /// Milliseconds.
        grace_ms: u64,
    },
    /// Read a file; the reply is [`Bytes`], `None` if there is no such file.
    GetFile {
        /// Under `/workspace`.
        path: String,
        /// Maximum size of the file, in bytes.
        max: u64,
    },
    /// Take a snapshot; the reply is [`SnapshotDone`].
    Snapshot {
        /// Commit of the previous snapshot.
        since: Option<String>,
        /// Maximum size of the bundle, in bytes.
        max_bundle: u64,
    },
    /// Apply snapshots; the bundles follow; the reply is `()`.
    Restore {
        /// Commit of the last snapshot.
        commit: String,
        /// Lengths of the bundles.
        bundles: Vec<u64>,
    },
    /// What the sandbox uses now; the reply is [`SandboxUse`].
    Use,
}

/// What a command's result is for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// Work: it finds the sandbox as the commands before it left it.
    #[default]
    Work,
    /// Evidence about what an agent wrote. What earlier commands left running is killed before it starts, and what
    /// it starts cannot reach into its shell.
    Evidence,
}

/// The reply to a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GuestReply<T> {
    /// It was done.
    Ok(T),
    /// It was not done, and why.
    Err(String),
}

/// How a command ended. stdout and stderr follow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunDone {
    /// 128 + signal where a signal ended it; 124 on the time limit.
    pub exit_code: i32,
    /// Stdout; its bytes follow.
    pub stdout: OutputDone,
    /// Stderr; its bytes follow those of stdout.
    pub stderr: OutputDone,
    /// Whether it was killed because of its time limit.
    pub timed_out: bool,
    /// Microseconds from start to end.
    pub duration_us: u64,
}

/// What was kept of one output of a command.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputDone {
    /// First bytes that follow.
    pub head_len: u64,
    /// Bytes that were omitted after them.
    pub left_out_bytes: u64,
    /// Line ends among those.
    pub left_out_lines: u64,
    /// Last bytes that follow.
    pub tail_len: u64,
}

/// A stdio program has started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// Identifies it in further requests.
    pub id: u64,
}

/// How a stdio program ended. Displayed as `exit code 1` or `signal 9`. When this is sent, its process group
/// has been killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StdioEnd {
    /// Its exit code, unless it was killed by a signal.
    pub code: Option<i32>,
    /// The signal that killed it.
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

/// Raw bytes that follow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bytes {
    /// How many, or `None` if the request does not apply.
    pub len: Option<u64>,
}

/// A snapshot has been taken. The bundle follows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotDone {
    /// The snapshot commit.
    pub commit: String,
    /// Bytes of the bundle, or `None` if nothing has changed.
    pub bundle_len: Option<u64>,
    /// New or changed files that are too large for a snapshot or cannot be read, and repositories in the project, with a
    /// slash at the end: the first [`MAX_LEFT_OUT`] of them.
    pub left_out: Vec<String>,
}

/// What a sandbox uses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxUse {
    /// Memory of all its processes but the guest, without what they share.
    pub memory_bytes: u64,
    /// Its processes but the guest.
    pub processes: u64,
    /// CPU time since its start in milliseconds, of processes that have ended too.
    pub cpu_ms: u64,
    /// Space taken under `/workspace`, at the last look.
    pub disk_bytes: u64,
}

/// The first frame of a stream that the guest opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutboundHeader {
    /// The purpose of the connection.
    pub kind: OutboundKind,
}

/// The purpose of a connection out of the sandbox.
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
/// `InvalidData` for a longer frame, or the error of the stream.
pub async fn read_frame<R: AsyncRead + Unpin>(reader: &mut R, max: usize) -> io::Result<Vec<u8>> {
    let len = reader.read_u32().await? as usize;
    if len > max {
        return Err(invalid(format!(
            "a frame of {len} bytes; the limit is {max}"
        )));
    }
    read_exactly(reader, len as u64).await
}

/// Reads exactly `len` bytes. Memory grows with what arrives, not with the announced length.
///
/// # Errors
/// `UnexpectedEof` if the stream ends before that.
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
/// Those of [`read_frame`]; `InvalidData` if the JSON is not a `T`.
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
/// The error of the stream.
pub async fn write_json<T, W>(writer: &mut W, value: &T) -> io::Result<()>
where
    T: Serialize + Sync,
    W: AsyncWrite + Unpin,
{
    writer.write_all(&encode_json(value)?).await?;
    writer.flush().await
}

/// Encodes one frame of JSON, to be written together with the bytes that follow it.
///
/// # Errors
/// When the value has no JSON form, or is too long for a frame.
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
    async fn a_frame_is_read_as_it_was_written() {
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

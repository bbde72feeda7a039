//! A sandbox as its users see it: requests through the tunnel, and what only the backend can do.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::time::Duration;

use agentmine_guest::mux::MuxStream;
use agentmine_guest::protocol::{
    Bytes, MAX_NOTE, MAX_REPLY, Reply, Request, RunDone, STDERR_RING, SnapshotDone, Started, Used,
    encode_json, read_exactly, read_json, write_json,
};
use async_trait::async_trait;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWriteExt as _};

use crate::tunnel::Tunnel;
use crate::{
    Command, CommandResult, Outbound, Sandbox, SandboxError, Snapshot, StdioProgram, paths,
};

/// For requests that do one small thing.
const SHORT: Duration = Duration::from_secs(60);
/// For requests that walk the whole project.
const LONG: Duration = Duration::from_secs(900);
/// What a command's answer may take beyond its own time limit.
const MARGIN: Duration = Duration::from_secs(30);
const MAX_STDIN: usize = 64 * 1024 * 1024;

/// What a backend does for a sandbox of its own kind.
#[async_trait]
pub(crate) trait Control: Send + Sync + 'static {
    fn name(&self) -> &str;
    fn warnings(&self) -> Vec<String>;
    async fn pause(&self) -> Result<(), SandboxError>;
    async fn unpause(&self) -> Result<(), SandboxError>;
    async fn remove(&self) -> Result<(), SandboxError>;
}

/// A running sandbox of any backend.
pub(crate) struct Running<C> {
    pub(crate) control: C,
    pub(crate) tunnel: Tunnel,
}

impl<C: Control> Running<C> {
    /// Sends a request with its payload, hands the stream to `answer`, and gives up after `limit`.
    ///
    /// Payload and answer go at the same time: a guest may answer before it has read everything.
    async fn ask<T, F, A>(
        &self,
        request: &Request,
        payload: &[u8],
        limit: Duration,
        answer: F,
    ) -> Result<T, SandboxError>
    where
        F: FnOnce(tokio::io::ReadHalf<MuxStream>) -> A,
        A: Future<Output = io::Result<Result<T, String>>>,
    {
        let stream = self.tunnel.stream().await?;
        let (reader, mut writer) = tokio::io::split(stream);
        let send = async {
            let mut message = encode_json(request)?;
            message.extend_from_slice(payload);
            writer.write_all(&message).await?;
            writer.flush().await?;
            // The stream stays open: its end would mean that nobody waits.
            std::future::pending::<io::Result<()>>().await
        };
        let exchange = async {
            let answer = answer(reader);
            tokio::pin!(answer);
            tokio::select! {
                biased;
                done = &mut answer => done,
                // What cannot be sent may be for a guest that has answered already.
                _ = send => answer.await,
            }
        };
        match tokio::time::timeout(limit, exchange).await {
            Ok(Ok(Ok(value))) => Ok(value),
            Ok(Ok(Err(why))) => Err(SandboxError::Failed(why)),
            Ok(Err(err)) => Err(self.tunnel.error(&err)),
            Err(_) => Err(SandboxError::Gone(format!(
                "no answer for {} s",
                limit.as_secs()
            ))),
        }
    }

    /// Our own text editor works under `/workspace` unless it is told of another root.
    fn with_root(&self, mut argv: Vec<String>) -> Vec<String> {
        let root = &self.tunnel.hello.root;
        let program = argv.first().and_then(|program| program.rsplit('/').next());
        if program == Some("mcp-server-text-editor") && root != "/workspace" && argv.len() == 1 {
            argv.extend(["--root".to_owned(), root.clone()]);
        }
        argv
    }

    /// A request that is answered by one frame.
    async fn ask_short<T: DeserializeOwned>(
        &self,
        request: &Request,
        payload: &[u8],
        limit: Duration,
    ) -> Result<T, SandboxError> {
        let answer = |mut reader| async move { reply(&mut reader).await };
        self.ask(request, payload, limit, answer).await
    }
}

#[async_trait]
impl<C: Control> Sandbox for Running<C> {
    fn name(&self) -> &str {
        self.control.name()
    }

    fn ports(&self) -> (u16, u16) {
        (self.tunnel.hello.git_port, self.tunnel.hello.web_port)
    }

    fn warnings(&self) -> Vec<String> {
        self.control.warnings()
    }

    fn workspace_root(&self) -> &str {
        &self.tunnel.hello.root
    }

    async fn run(&self, command: Command) -> Result<CommandResult, SandboxError> {
        let Command {
            argv,
            cwd,
            env,
            stdin,
            timeout,
            max_output,
        } = command;
        if stdin.len() > MAX_STDIN {
            return Err(SandboxError::Failed(format!(
                "stdin is over {MAX_STDIN} bytes"
            )));
        }
        let request = Request::Run {
            argv,
            cwd,
            env,
            stdin_len: stdin.len() as u64,
            timeout_ms: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
            max_output: max_output as u64,
        };
        let limit = timeout.saturating_add(MARGIN);
        self.ask(&request, &stdin, limit, |reader| {
            run_answer(reader, max_output)
        })
        .await
    }

    async fn start_stdio(
        &self,
        argv: Vec<String>,
        env: BTreeMap<String, String>,
    ) -> Result<StdioProgram, SandboxError> {
        let argv = self.with_root(argv);
        let mut stream = self.tunnel.stream().await?;
        let exchange = async {
            write_json(&mut stream, &Request::Stdio { argv, env }).await?;
            reply::<Started>(&mut stream).await
        };
        let answer = tokio::time::timeout(SHORT, exchange).await;
        let answer = answer.map_err(|_| SandboxError::Gone("no answer to a start".into()))?;
        let started = answer.map_err(|err| self.tunnel.error(&err))?;
        let Started { id } = started.map_err(SandboxError::Failed)?;
        Ok(StdioProgram {
            stream: Box::new(stream),
            id,
        })
    }

    async fn stdio_stderr(&self, id: u64) -> Result<String, SandboxError> {
        let request = Request::StdioStderr { id };
        let bytes = self.ask(&request, &[], SHORT, |reader| {
            bytes_answer(reader, STDERR_RING)
        });
        let bytes = bytes.await?.unwrap_or_default();
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    async fn put_file(&self, path: &str, content: Vec<u8>, mode: u32) -> Result<(), SandboxError> {
        paths::check(path)?;
        let len = content.len() as u64;
        let request = Request::PutFile {
            path: path.to_owned(),
            mode,
            len,
        };
        self.ask_short(&request, &content, SHORT).await
    }

    async fn get_file(&self, path: &str, max: usize) -> Result<Option<Vec<u8>>, SandboxError> {
        paths::check(path)?;
        let request = Request::GetFile {
            path: path.to_owned(),
            max: max as u64,
        };
        self.ask(&request, &[], SHORT, |reader| bytes_answer(reader, max))
            .await
    }

    async fn snapshot(
        &self,
        since: Option<&str>,
        max_bundle: usize,
    ) -> Result<Snapshot, SandboxError> {
        let since = since.map(str::to_owned);
        let request = Request::Snapshot {
            since,
            max_bundle: max_bundle as u64,
        };
        self.ask(&request, &[], LONG, |reader| {
            snapshot_answer(reader, max_bundle)
        })
        .await
    }

    async fn restore(&self, bundles: Vec<Vec<u8>>, commit: &str) -> Result<(), SandboxError> {
        let request = Request::Restore {
            commit: commit.to_owned(),
            bundles: bundles.iter().map(|bundle| bundle.len() as u64).collect(),
        };
        self.ask_short(&request, &bundles.concat(), LONG).await
    }

    async fn disk_used(&self) -> Result<u64, SandboxError> {
        let used: Used = self.ask_short(&Request::DiskUsed, &[], LONG).await?;
        Ok(used.bytes)
    }

    async fn next_outbound(&self) -> Option<Outbound> {
        self.tunnel.next_outbound().await
    }

    async fn gone(&self) -> String {
        self.tunnel.ended().await
    }

    async fn pause(&self) -> Result<(), SandboxError> {
        self.control.pause().await
    }

    async fn unpause(&self) -> Result<(), SandboxError> {
        self.control.unpause().await
    }

    async fn remove(&self) -> Result<(), SandboxError> {
        self.control.remove().await
    }
}

async fn reply<T: DeserializeOwned>(
    reader: &mut (impl AsyncRead + Unpin),
) -> io::Result<Result<T, String>> {
    Ok(match read_json::<Reply<T>, _>(reader, MAX_REPLY).await? {
        Reply::Ok(value) => Ok(value),
        Reply::Err(why) => Err(why),
    })
}

async fn run_answer(
    mut reader: impl AsyncRead + Unpin,
    max_output: usize,
) -> io::Result<Result<CommandResult, String>> {
    let done: RunDone = match reply(&mut reader).await? {
        Ok(done) => done,
        Err(why) => return Ok(Err(why)),
    };
    // Two notes may stand in the text: the cut, and why the command was killed.
    let most = max_output.saturating_add(2 * MAX_NOTE);
    let stdout = limited(&mut reader, done.stdout_len, most).await?;
    let stderr = limited(&mut reader, done.stderr_len, most.max(MAX_REPLY)).await?;
    Ok(Ok(CommandResult {
        exit_code: done.exit_code,
        stdout,
        stderr,
        truncated: done.truncated,
        timed_out: done.timed_out,
        duration: Duration::from_micros(done.duration_us),
    }))
}

async fn bytes_answer(
    mut reader: impl AsyncRead + Unpin,
    max: usize,
) -> io::Result<Result<Option<Vec<u8>>, String>> {
    let bytes: Bytes = match reply(&mut reader).await? {
        Ok(bytes) => bytes,
        Err(why) => return Ok(Err(why)),
    };
    Ok(Ok(match bytes.len {
        Some(len) => Some(limited(&mut reader, len, max).await?),
        None => None,
    }))
}

async fn snapshot_answer(
    mut reader: impl AsyncRead + Unpin,
    max_bundle: usize,
) -> io::Result<Result<Snapshot, String>> {
    let done: SnapshotDone = match reply(&mut reader).await? {
        Ok(done) => done,
        Err(why) => return Ok(Err(why)),
    };
    if !is_object_name(&done.commit) {
        return Err(too_much("a commit that is no object name".to_owned()));
    }
    let bundle = match done.bundle_len {
        Some(len) => Some(limited(&mut reader, len, max_bundle).await?),
        None => None,
    };
    Ok(Ok(Snapshot {
        commit: done.commit,
        bundle,
    }))
}

/// A SHA-1 or SHA-256 object name.
fn is_object_name(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

async fn limited(
    reader: &mut (impl AsyncRead + Unpin),
    len: u64,
    max: usize,
) -> io::Result<Vec<u8>> {
    if len > max as u64 {
        return Err(too_much(format!(
            "{len} bytes where at most {max} were asked for"
        )));
    }
    read_exactly(reader, len).await
}

fn too_much(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn frame(done: &RunDone, body: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        write_json(&mut bytes, &Reply::Ok(done)).await.unwrap();
        bytes.extend(body);
        bytes
    }

    #[tokio::test]
    async fn more_output_than_was_asked_for_is_refused_unread() {
        let mut done = RunDone {
            exit_code: 0,
            stdout_len: u64::MAX,
            stderr_len: 0,
            truncated: false,
            timed_out: false,
            duration_us: 1,
        };
        let bytes = frame(&done, b"").await;
        let err = run_answer(bytes.as_slice(), 100).await.unwrap_err();
        assert_eq!(err.kind(), io::ErrorKind::InvalidData);
        done.stdout_len = 2;
        let bytes = frame(&done, b"ok").await;
        let result = run_answer(bytes.as_slice(), 100).await.unwrap().unwrap();
        assert_eq!(result.stdout, b"ok");
    }

    #[tokio::test]
    async fn a_commit_that_is_no_object_name_is_refused() {
        let mut bytes = Vec::new();
        let done = SnapshotDone {
            commit: "--upload-pack=x".into(),
            bundle_len: None,
        };
        write_json(&mut bytes, &Reply::Ok(done)).await.unwrap();
        assert!(snapshot_answer(bytes.as_slice(), 1).await.is_err());
    }
}

//! A sandbox as its users see it: requests through the tunnel, and what only the backend can do.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::time::Duration;

use agentmine_guest::mux::MuxStream;
use agentmine_guest::protocol::{
    Bytes, GuestReply, GuestRequest, MAX_NOTE, MAX_REPLY, RunDone, STDERR_RING, SnapshotDone,
    Started, Used, encode_json, read_exactly, read_json, write_json,
};
use async_trait::async_trait;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};

use crate::tunnel::Tunnel;
use crate::{
    Command, CommandResult, Outbound, Sandbox, SandboxError, Snapshot, StdioEnd, StdioProgram,
    paths,
};

/// For requests that do one small thing.
const SHORT: Duration = Duration::from_secs(60);
/// For requests that move the whole project.
const LONG: Duration = Duration::from_secs(300);
/// What a command's answer may take beyond its own time limit.
const MARGIN: Duration = Duration::from_secs(30);
/// What the end of a stdio program may take beyond its graces.
const STOP_MARGIN: Duration = Duration::from_secs(5);
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
    /// Sends a request with its payload, hands the stream to `answer`, and gives up after `limit`, all
    /// told: a guest that answers by the drop gains nothing.
    ///
    /// Payload and answer go at the same time: a guest may answer before it has read everything.
    async fn ask<T, F, A>(
        &self,
        request: &GuestRequest,
        payload: Vec<Vec<u8>>,
        limit: Duration,
        answer: F,
    ) -> Result<T, SandboxError>
    where
        F: FnOnce(tokio::io::ReadHalf<MuxStream>) -> A,
        A: Future<Output = io::Result<Result<T, String>>>,
    {
        let exchange = async {
            let (reader, mut writer) = tokio::io::split(self.tunnel.stream().await?);
            let send = async {
                send(&mut writer, request, payload.into_iter()).await?;
                // The stream stays open: its end would mean that nobody waits.
                std::future::pending::<io::Result<()>>().await
            };
            let answer = answer(reader);
            tokio::pin!(answer);
            let answered = tokio::select! {
                biased;
                done = &mut answer => done,
                // What cannot be sent may be for a guest that has answered already.
                _ = send => answer.await,
            };
            answered
                .map_err(|err| self.tunnel.error(&err))?
                .map_err(SandboxError::Failed)
        };
        let answered = tokio::time::timeout(limit, exchange).await;
        answered.unwrap_or_else(|_| Err(no_answer(limit)))
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
        request: &GuestRequest,
        payload: Vec<Vec<u8>>,
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
        let request = GuestRequest::Run {
            argv,
            cwd,
            env,
            stdin_len: stdin.len() as u64,
            timeout_ms: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
            max_output: max_output as u64,
        };
        let limit = timeout.saturating_add(MARGIN);
        self.ask(&request, vec![stdin], limit, |reader| {
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
        let exchange = async {
            let mut stream = self.tunnel.stream().await?;
            let asked = async {
                write_json(&mut stream, &GuestRequest::Stdio { argv, env }).await?;
                reply::<Started>(&mut stream).await
            };
            let started = asked.await.map_err(|err| self.tunnel.error(&err))?;
            let Started { id } = started.map_err(SandboxError::Failed)?;
            Ok(StdioProgram {
                stream: Box::new(stream),
                id,
            })
        };
        let started = tokio::time::timeout(SHORT, exchange).await;
        started.unwrap_or_else(|_| Err(no_answer(SHORT)))
    }

    async fn stdio_stderr(&self, id: u64) -> Result<String, SandboxError> {
        let request = GuestRequest::StdioStderr { id };
        let bytes = self.ask(&request, Vec::new(), SHORT, |reader| {
            bytes_answer(reader, STDERR_RING)
        });
        let bytes = bytes.await?.unwrap_or_default();
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    async fn stdio_ended(&self, id: u64) -> Result<StdioEnd, SandboxError> {
        // As long as the program lives: the tunnel's own end is the limit.
        let answer = |mut reader| async move { reply(&mut reader).await };
        let request = GuestRequest::StdioEnded { id };
        self.ask(&request, Vec::new(), Duration::MAX, answer).await
    }

    async fn stop_stdio(&self, id: u64, grace: Duration) -> Result<(), SandboxError> {
        let request = GuestRequest::StdioStop {
            id,
            grace_ms: u64::try_from(grace.as_millis()).unwrap_or(u64::MAX),
        };
        let limit = grace.saturating_mul(3).saturating_add(STOP_MARGIN);
        let _: StdioEnd = self.ask_short(&request, Vec::new(), limit).await?;
        Ok(())
    }

    async fn put_file(&self, path: &str, content: Vec<u8>, mode: u32) -> Result<(), SandboxError> {
        paths::check(path)?;
        let len = content.len() as u64;
        let request = GuestRequest::PutFile {
            path: path.to_owned(),
            mode,
            len,
        };
        self.ask_short(&request, vec![content], SHORT).await
    }

    async fn get_file(&self, path: &str, max: usize) -> Result<Option<Vec<u8>>, SandboxError> {
        paths::check(path)?;
        let request = GuestRequest::GetFile {
            path: path.to_owned(),
            max: max as u64,
        };
        self.ask(&request, Vec::new(), SHORT, |reader| {
            bytes_answer(reader, max)
        })
        .await
    }

    async fn snapshot(
        &self,
        since: Option<&str>,
        max_bundle: usize,
    ) -> Result<Snapshot, SandboxError> {
        let since = since.map(str::to_owned);
        let request = GuestRequest::Snapshot {
            since,
            max_bundle: max_bundle as u64,
        };
        self.ask(&request, Vec::new(), LONG, |reader| {
            snapshot_answer(reader, max_bundle)
        })
        .await
    }

    async fn restore(&self, bundles: Vec<Vec<u8>>, commit: &str) -> Result<(), SandboxError> {
        let request = GuestRequest::Restore {
            commit: commit.to_owned(),
            bundles: bundles.iter().map(|bundle| bundle.len() as u64).collect(),
        };
        self.ask_short(&request, bundles, LONG).await
    }

    async fn disk_used(&self) -> Result<u64, SandboxError> {
        let used: Used = self
            .ask_short(&GuestRequest::DiskUsed, Vec::new(), SHORT)
            .await?;
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

/// Sends a request and its payload piece by piece; each is dropped before the next is taken.
async fn send<W: AsyncWrite + Unpin>(
    writer: &mut W,
    request: &GuestRequest,
    payload: impl Iterator<Item = Vec<u8>>,
) -> io::Result<()> {
    writer.write_all(&encode_json(request)?).await?;
    for piece in payload {
        writer.write_all(&piece).await?;
    }
    writer.flush().await
}

fn no_answer(limit: Duration) -> SandboxError {
    SandboxError::Gone(format!("no answer for {} s", limit.as_secs()))
}

async fn reply<T: DeserializeOwned>(
    reader: &mut (impl AsyncRead + Unpin),
) -> io::Result<Result<T, String>> {
    Ok(
        match read_json::<GuestReply<T>, _>(reader, MAX_REPLY).await? {
            GuestReply::Ok(value) => Ok(value),
            GuestReply::Err(why) => Err(why),
        },
    )
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
    use std::sync::atomic::{AtomicUsize, Ordering};

    use agentmine_guest::mux::{self, End};
    use agentmine_guest::protocol::{Hello, JailReport, MAGIC, MAX_REQUEST, VERSION};
    use tokio::io::DuplexStream;

    use super::*;

    struct Nothing;

    #[async_trait]
    impl Control for Nothing {
        fn name(&self) -> &str {
            "none"
        }
        fn warnings(&self) -> Vec<String> {
            Vec::new()
        }
        async fn pause(&self) -> Result<(), SandboxError> {
            Ok(())
        }
        async fn unpause(&self) -> Result<(), SandboxError> {
            Ok(())
        }
        async fn remove(&self) -> Result<(), SandboxError> {
            Ok(())
        }
    }

    /// A sandbox over memory, and the guest's end after its hello.
    async fn sandbox() -> (Running<Nothing>, DuplexStream) {
        let (worker, mut guest) = tokio::io::duplex(1 << 16);
        let hello = Hello {
            version: VERSION,
            git_port: 1,
            web_port: 2,
            root: "/workspace".into(),
            jail: JailReport::default(),
            error: None,
        };
        guest.write_all(&MAGIC).await.unwrap();
        write_json(&mut guest, &hello).await.unwrap();
        let tunnel = Tunnel::open(worker).await.unwrap();
        let control = Nothing;
        (Running { control, tunnel }, guest)
    }

    #[track_caller]
    fn assert_gone<T: std::fmt::Debug>(asked: Result<T, SandboxError>) {
        assert!(matches!(asked, Err(SandboxError::Gone(_))), "{asked:?}");
    }

    /// Every request against a guest that lets it hang; the time is virtual.
    async fn every_request_ends(sandbox: &Running<Nothing>) {
        let began = tokio::time::Instant::now();
        let path = "/workspace/project/x";
        assert_gone(sandbox.stdio_stderr(1).await);
        assert_gone(sandbox.put_file(path, vec![0; 1 << 20], 0o644).await);
        assert_gone(sandbox.get_file(path, 10).await);
        assert_gone(sandbox.disk_used().await);
        assert_gone(
            sandbox
                .start_stdio(Vec::new(), BTreeMap::new())
                .await
                .map(drop),
        );
        assert_eq!(began.elapsed().as_secs(), 5 * 60);
        let began = tokio::time::Instant::now();
        assert_gone(sandbox.snapshot(None, 10).await);
        assert_gone(sandbox.restore(vec![vec![0; 1 << 20]; 3], "x").await);
        assert_eq!(began.elapsed().as_secs(), 2 * 300);
        let began = tokio::time::Instant::now();
        let command = Command {
            argv: Vec::new(),
            cwd: String::new(),
            env: BTreeMap::new(),
            stdin: vec![0; 1 << 20],
            timeout: Duration::from_secs(10),
            max_output: 10,
        };
        assert_gone(sandbox.run(command).await);
        assert_eq!(began.elapsed().as_secs(), 40);
    }

    #[tokio::test(start_paused = true)]
    async fn a_guest_that_never_answers_hangs_nobody() {
        let (sandbox, guest) = sandbox().await;
        let mut guest = mux::start(guest, End::Guest);
        let mut held = Vec::new();
        let hold = async {
            while let Some(stream) = guest.inbound.recv().await {
                held.push(stream);
            }
        };
        tokio::select! {
            () = hold => panic!("the tunnel ended"),
            () = every_request_ends(&sandbox) => {}
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_guest_that_never_reads_hangs_nobody() {
        let (sandbox, _guest) = sandbox().await;
        every_request_ends(&sandbox).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_guest_that_answers_by_the_drop_hangs_nobody() {
        let (sandbox, guest) = sandbox().await;
        let mut guest = mux::start(guest, End::Guest);
        let drip = async {
            let mut stream = guest.inbound.recv().await.unwrap();
            read_json::<GuestRequest, _>(&mut stream, MAX_REQUEST)
                .await
                .unwrap();
            let mut frame = encode_json(&GuestReply::Ok(Bytes { len: Some(1 << 20) })).unwrap();
            frame.resize(1 << 20, 0);
            for byte in frame {
                tokio::time::sleep(SHORT / 10).await;
                if stream.write_all(&[byte]).await.is_err() || stream.flush().await.is_err() {
                    break;
                }
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = drip => {}
            asked = sandbox.get_file("/workspace/project/x", 1 << 20) => assert_gone(asked),
        }
    }

    #[tokio::test]
    async fn bundles_arrive_whole_and_in_order() {
        let (sandbox, guest) = sandbox().await;
        let mut guest = mux::start(guest, End::Guest);
        let bundles: Vec<Vec<u8>> = (1..=3).map(|n| vec![n; 300_000]).collect();
        let serve = async {
            let mut stream = guest.inbound.recv().await.unwrap();
            let asked: GuestRequest = read_json(&mut stream, MAX_REQUEST).await.unwrap();
            let GuestRequest::Restore { commit, bundles } = asked else {
                panic!("{asked:?}")
            };
            let mut got = Vec::new();
            for len in bundles {
                got.push(read_exactly(&mut stream, len).await.unwrap());
            }
            write_json(&mut stream, &GuestReply::Ok(())).await.unwrap();
            (commit, got)
        };
        let (done, (commit, got)) = tokio::join!(sandbox.restore(bundles.clone(), "abc"), serve);
        done.unwrap();
        assert_eq!(commit, "abc");
        assert!(got == bundles);
    }

    /// A payload is taken when it is its turn, and not before.
    #[tokio::test]
    async fn each_piece_is_sent_before_the_next_is_taken() {
        struct Counting<'a>(&'a AtomicUsize);
        impl AsyncWrite for Counting<'_> {
            fn poll_write(
                self: std::pin::Pin<&mut Self>,
                _: &mut std::task::Context<'_>,
                bytes: &[u8],
            ) -> std::task::Poll<io::Result<usize>> {
                self.0.fetch_add(bytes.len(), Ordering::SeqCst);
                std::task::Poll::Ready(Ok(bytes.len()))
            }
            fn poll_flush(
                self: std::pin::Pin<&mut Self>,
                _: &mut std::task::Context<'_>,
            ) -> std::task::Poll<io::Result<()>> {
                std::task::Poll::Ready(Ok(()))
            }
            fn poll_shutdown(
                self: std::pin::Pin<&mut Self>,
                _: &mut std::task::Context<'_>,
            ) -> std::task::Poll<io::Result<()>> {
                std::task::Poll::Ready(Ok(()))
            }
        }
        let sent = AtomicUsize::new(0);
        let request = GuestRequest::DiskUsed;
        let head = encode_json(&request).unwrap().len();
        let pieces = (0..3).map(|n| {
            assert_eq!(sent.load(Ordering::SeqCst), head + n * 1000);
            vec![0; 1000]
        });
        send(&mut Counting(&sent), &request, pieces).await.unwrap();
        assert_eq!(sent.load(Ordering::SeqCst), head + 3000);
    }

    async fn frame(done: &RunDone, body: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        write_json(&mut bytes, &GuestReply::Ok(done)).await.unwrap();
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
        write_json(&mut bytes, &GuestReply::Ok(done)).await.unwrap();
        assert!(snapshot_answer(bytes.as_slice(), 1).await.is_err());
    }
}

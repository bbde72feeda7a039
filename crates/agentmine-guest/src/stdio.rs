//! Stdio programs, such as MCP servers: the stream carries their stdin and stdout.
//!
//! The end of the stream, or a [`GuestRequest::StdioStop`], closes stdin. A program that does not end within
//! the grace period gets SIGTERM, after another one SIGKILL, with its group and whatever else it started. When
//! a program ends by itself, what is left of its group is killed too. Its end is reported after that.
//!
//! Accepted: a process that leaves the group and whose parent ends before the first look is not found here; it
//! ends with the sandbox.
//!
//! [`GuestRequest::StdioStop`]: agentmine_guest::protocol::GuestRequest::StdioStop

use std::collections::BTreeMap;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::sync::PoisonError;
use std::time::Duration;

use agentmine_guest::mux::MuxStream;
use agentmine_guest::protocol::{Bytes, Started, StdioEnd};
use agentmine_process::{Family, Process, signal_group};
use anyhow::{Context as _, Result, anyhow};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::environment;
use crate::process::{Input, Leader};
use crate::programs::Stderr;
use crate::reply::{finish, reply};
use crate::state::State;

/// The grace period if the worker has gone without requesting one.
const GRACE: Duration = Duration::from_secs(2);
const MAX_GRACE: Duration = Duration::from_secs(60);
/// How often the kill of what is left is repeated, and the pause before each repetition.
const KILLS: usize = 100;
const KILL_PAUSE: Duration = Duration::from_millis(10);
/// How long output is still forwarded after a program's end, if another process holds the pipe open.
const REST: Duration = Duration::from_millis(300);

/// Starts a program and serves its stream until all its processes have ended.
pub(crate) async fn run(
    mut stream: MuxStream,
    argv: Vec<String>,
    env: BTreeMap<String, String>,
    state: &State,
) -> io::Result<()> {
    let mut leader = match start(&argv, env, state) {
        Ok(leader) => leader,
        Err(err) => {
            reply::<Started>(&mut stream, Err(err)).await?;
            return finish(&mut stream).await;
        }
    };
    let mut program = state.programs.add(leader.pid);
    let replied = reply(&mut stream, Ok(Started { id: program.id })).await;
    if let Some(stderr) = leader.child.stderr.take() {
        tokio::spawn(keep(stderr, program.stderr.clone()));
    }
    let (reader, mut writer) = tokio::io::split(stream);
    let end = live(reader, &mut writer, &mut leader, &mut program.stop).await;
    state.programs.ended(program.id);
    program.end.send_replace(Some(end));
    finish(&mut writer).await?;
    replied
}

fn start(argv: &[String], env: BTreeMap<String, String>, state: &State) -> Result<Leader> {
    let mut whole = state.env.clone();
    environment::trust(&mut whole, &state.root);
    whole.extend(env);
    let project = state.project();
    let cwd = if project.is_dir() {
        &project
    } else {
        &state.root
    };
    state
        .own
        .spawn(argv, None, cwd, &whole, Input::Piped)
        .with_context(|| argv.first().cloned().unwrap_or_default())
}

/// Serves a program until it and all its processes have ended.
async fn live(
    reader: impl AsyncRead + Unpin,
    writer: &mut (impl AsyncWrite + Unpin),
    leader: &mut Leader,
    stop: &mut watch::Receiver<Option<Duration>>,
) -> StdioEnd {
    let mut input = Box::pin(feed(reader, leader.child.stdin.take()));
    let output = carry(leader.child.stdout.take(), writer);
    tokio::pin!(output);
    let mut family = Process::of(leader.pid).map(|leader| Family::new(leader, None));
    let mut carried = false;
    let mut status = tokio::select! {
        status = leader.child.wait() => Some(status),
        () = &mut input => None,
        () = &mut output => { carried = true; None }
        _ = stop.wait_for(Option::is_some) => None,
    };
    // Closes its stdin, unless the end of the stream has done so.
    drop(input);
    for step in [StopStep::CloseStdin, StopStep::Terminate, StopStep::Kill] {
        if status.is_some() {
            break;
        }
        family.as_mut().map(Family::look);
        match step {
            StopStep::CloseStdin => {}
            StopStep::Terminate => leader.terminate(),
            StopStep::Kill => leader.kill(),
        }
        let began = Instant::now();
        while status.is_none() {
            let requested = (*stop.borrow_and_update()).unwrap_or(GRACE).min(MAX_GRACE);
            let grace = match step {
                StopStep::CloseStdin | StopStep::Terminate => requested,
                // It is certain to end, so this waits for its exit status.
                StopStep::Kill => requested.max(GRACE),
            };
            tokio::select! {
                ended = leader.child.wait() => status = Some(ended),
                () = &mut output, if !carried => carried = true,
                () = tokio::time::sleep_until(began + grace) => break,
                // A new grace period, perhaps a shorter one.
                Ok(()) = stop.changed() => {}
            }
        }
    }
    if !carried {
        let _ = tokio::time::timeout(REST, output).await;
    }
    if let Some(family) = &mut family {
        kill_rest(family).await;
    }
    end_of(status)
}

/// The steps of stopping a program, in this order.
#[derive(Debug, Clone, Copy)]
enum StopStep {
    CloseStdin,
    Terminate,
    Kill,
}

/// Kills what is left of a program whose leader has ended, and waits until it is gone and reaped.
async fn kill_rest(family: &mut Family) {
    for _ in 0..KILLS {
        let living = family.signal(libc::SIGKILL);
        // Signal 0 also finds the members that have ended and are not reaped yet.
        if !living && !signal_group(family.leader().pid(), 0) {
            return;
        }
        // There is no event for their end.
        tokio::time::sleep(KILL_PAUSE).await;
    }
}

fn end_of(status: Option<io::Result<ExitStatus>>) -> StdioEnd {
    let status = status.and_then(Result::ok);
    StdioEnd {
        code: status.and_then(|status| status.code()),
        signal: status.and_then(|status| status.signal()),
    }
}

/// Feeds stdin until the worker closes the stream. Keeps reading when the program has closed its stdin, since
/// the end of the stream would otherwise go unnoticed.
async fn feed(mut reader: impl AsyncRead + Unpin, stdin: Option<ChildStdin>) {
    let mut stdin = stdin;
    let mut buffer = vec![0; 32 * 1024];
    while let Ok(n @ 1..) = reader.read(&mut buffer).await {
        if let Some(pipe) = &mut stdin
            && pipe.write_all(&buffer[..n]).await.is_err()
        {
            stdin = None;
        }
    }
}

/// Forwards stdout until its end, or until the worker has gone.
async fn carry(stdout: Option<ChildStdout>, writer: &mut (impl AsyncWrite + Unpin)) {
    let Some(mut stdout) = stdout else { return };
    let mut buffer = vec![0; 32 * 1024];
    while let Ok(n @ 1..) = stdout.read(&mut buffer).await {
        if writer.write_all(&buffer[..n]).await.is_err() || writer.flush().await.is_err() {
            return;
        }
    }
}

/// Keeps the end of stderr.
async fn keep(mut stderr: ChildStderr, kept: Stderr) {
    let mut buffer = vec![0; 4096];
    while let Ok(n @ 1..) = stderr.read(&mut buffer).await {
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push(&buffer[..n]);
    }
}

/// Sends the end of a program's stderr.
pub(crate) async fn stderr(mut stream: MuxStream, id: u64, state: &State) -> io::Result<()> {
    let kept = state.programs.with(id, |entry| entry.stderr.clone());
    let text = kept.map(|kept| {
        let kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.to_vec()
    });
    let len = text.as_ref().map(|text| text.len() as u64);
    reply(&mut stream, Ok(Bytes { len })).await?;
    stream.write_all(&text.unwrap_or_default()).await?;
    finish(&mut stream).await
}

/// Waits for the end of a program and reports it. With a grace period, stops the program.
pub(crate) async fn ended(
    stream: MuxStream,
    id: u64,
    stop: Option<Duration>,
    state: &State,
) -> io::Result<()> {
    let (mut reader, mut writer) = tokio::io::split(stream);
    let entry = state.programs.with(id, |entry| {
        if stop.is_some() {
            entry.stop.send_replace(stop);
        }
        entry.end.clone()
    });
    let end = async {
        let mut end = entry?;
        let end = end.wait_for(Option::is_some).await.ok()?;
        *end
    };
    let mut rest = [0];
    let end = tokio::select! {
        end = end => end.ok_or_else(|| anyhow!("there is no stdio program {id}")),
        // The worker no longer waits.
        _ = reader.read(&mut rest) => return Ok(()),
    };
    reply(&mut writer, end).await?;
    finish(&mut writer).await
}

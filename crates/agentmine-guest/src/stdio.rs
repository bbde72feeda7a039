//! Stdio programs, such as MCP servers: the stream is their stdin and stdout.
//!
//! The end of the stream, or a [`GuestRequest::StdioStop`], closes stdin; a program that has not ended
//! after the grace gets SIGTERM, after another SIGKILL, with its group and whatever else it started.
//! When a program ends by itself, what is left of its group is killed too, and whoever asked how it
//! ended is told after that.
//!
//! [`GuestRequest::StdioStop`]: agentmine_guest::protocol::GuestRequest::StdioStop

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agentmine_guest::mux::MuxStream;
use agentmine_guest::protocol::{Bytes, STDERR_RING, Started, StdioEnd};
use anyhow::{Context as _, Result, anyhow};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::process::{Family, Leader, descendants};
use crate::serve::{State, finish, reply};

/// Where the worker left without naming another.
const GRACE: Duration = Duration::from_secs(2);
const MAX_GRACE: Duration = Duration::from_secs(60);
/// How long output is still carried after a program's end, where something else holds the pipe.
const REST: Duration = Duration::from_millis(300);
/// Programs whose stderr is remembered after their end.
const REMEMBERED: usize = 32;

type Ring = Arc<Mutex<VecDeque<u8>>>;

/// The stdio programs that were started.
#[derive(Debug, Default)]
pub(crate) struct Programs(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    next: u64,
    entries: VecDeque<Entry>,
}

#[derive(Debug)]
struct Entry {
    id: u64,
    pid: i32,
    ring: Ring,
    stop: watch::Sender<Option<Duration>>,
    end: watch::Receiver<Option<StdioEnd>>,
}

/// A program's own side of its entry.
struct Program {
    id: u64,
    ring: Ring,
    stop: watch::Receiver<Option<Duration>>,
    end: watch::Sender<Option<StdioEnd>>,
}

impl Programs {
    fn lock(&self) -> std::sync::MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, pid: i32) -> Program {
        let mut table = self.lock();
        table.next += 1;
        let id = table.next;
        if table.entries.len() >= REMEMBERED
            && let Some(old) = table.entries.iter().position(|entry| entry.pid == 0)
        {
            table.entries.remove(old);
        }
        let ring = Ring::default();
        let (stop, stopped) = watch::channel(None);
        let (end, ended) = watch::channel(None);
        table.entries.push_back(Entry {
            id,
            pid,
            ring: ring.clone(),
            stop,
            end: ended,
        });
        Program {
            id,
            ring,
            stop: stopped,
            end,
        }
    }

    fn ended(&self, id: u64) {
        if let Some(entry) = self.lock().entries.iter_mut().find(|entry| entry.id == id) {
            entry.pid = 0;
        }
    }

    fn with<T>(&self, id: u64, take: impl FnOnce(&Entry) -> T) -> Option<T> {
        let table = self.lock();
        table.entries.iter().find(|entry| entry.id == id).map(take)
    }

    /// The processes of all programs that run.
    pub(crate) fn processes(&self) -> Vec<i32> {
        let leaders: Vec<i32> = self.lock().entries.iter().map(|entry| entry.pid).collect();
        let mut all = Vec::new();
        for pid in leaders.into_iter().filter(|&pid| pid != 0) {
            all.push(pid);
            all.extend(descendants(pid));
        }
        all
    }
}

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
    let told = reply(&mut stream, Ok(Started { id: program.id })).await;
    if let Some(stderr) = leader.child.stderr.take() {
        tokio::spawn(keep(stderr, program.ring.clone()));
    }
    let (reader, mut writer) = tokio::io::split(stream);
    let end = live(reader, &mut writer, &mut leader, &mut program.stop).await;
    state.programs.ended(program.id);
    program.end.send_replace(Some(end));
    finish(&mut writer).await?;
    told
}

fn start(argv: &[String], env: BTreeMap<String, String>, state: &State) -> Result<Leader> {
    let mut whole = state.env.clone();
    whole.extend(env);
    let project = state.project();
    let cwd = if project.is_dir() {
        &project
    } else {
        &state.root
    };
    state
        .own
        .spawn(argv, cwd, &whole)
        .with_context(|| argv.first().cloned().unwrap_or_default())
}

/// Sees a program to its end; nothing of it is left then.
async fn live(
    reader: impl AsyncRead + Unpin,
    writer: &mut (impl AsyncWrite + Unpin),
    leader: &mut Leader,
    stop: &mut watch::Receiver<Option<Duration>>,
) -> StdioEnd {
    let mut input = Box::pin(feed(reader, leader.child.stdin.take()));
    let output = carry(leader.child.stdout.take(), writer);
    tokio::pin!(output);
    let mut family = Family::default();
    let mut carried = false;
    let mut status = tokio::select! {
        status = leader.child.wait() => Some(status),
        () = &mut input => None,
        () = &mut output => { carried = true; None }
        _ = stop.wait_for(Option::is_some) => None,
    };
    // Its stdin goes with this, if the end of the stream has not closed it already.
    drop(input);
    for sign in [Sign::EndOfInput, Sign::Terminate, Sign::Kill] {
        if status.is_some() {
            break;
        }
        family.look(leader.pid);
        match sign {
            Sign::EndOfInput => {}
            Sign::Terminate => leader.terminate(),
            Sign::Kill => leader.kill(),
        }
        let told = Instant::now();
        while status.is_none() {
            let asked = (*stop.borrow_and_update()).unwrap_or(GRACE).min(MAX_GRACE);
            let grace = match sign {
                Sign::EndOfInput | Sign::Terminate => asked,
                // It ends for certain; a moment later it can be seen how.
                Sign::Kill => asked.max(GRACE),
            };
            tokio::select! {
                ended = leader.child.wait() => status = Some(ended),
                () = &mut output, if !carried => carried = true,
                () = tokio::time::sleep_until(told + grace) => break,
                // Another grace, perhaps a shorter one.
                Ok(()) = stop.changed() => {}
            }
        }
    }
    if !carried {
        let _ = tokio::time::timeout(REST, output).await;
    }
    family.kill(leader.pid).await;
    how(status)
}

/// What a program is told, one after the other, until it ends.
#[derive(Debug, Clone, Copy)]
enum Sign {
    EndOfInput,
    Terminate,
    Kill,
}

fn how(status: Option<io::Result<ExitStatus>>) -> StdioEnd {
    let status = status.and_then(Result::ok);
    StdioEnd {
        code: status.and_then(|status| status.code()),
        signal: status.and_then(|status| status.signal()),
    }
}

/// Feeds stdin until the worker has closed the stream. What a program does not take is read all the
/// same, or the end of the stream would not be seen.
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

/// Carries stdout until its end, or until the worker has left.
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
async fn keep(mut stderr: ChildStderr, ring: Ring) {
    let mut buffer = vec![0; 4096];
    while let Ok(n @ 1..) = stderr.read(&mut buffer).await {
        let mut ring = ring.lock().unwrap_or_else(PoisonError::into_inner);
        ring.extend(&buffer[..n]);
        let over = ring.len().saturating_sub(STDERR_RING);
        ring.drain(..over);
    }
}

pub(crate) async fn stderr(mut stream: MuxStream, id: u64, state: &State) -> io::Result<()> {
    let ring = state.programs.with(id, |entry| entry.ring.clone());
    let text: Option<Vec<u8>> = ring.map(|ring| {
        let ring = ring.lock().unwrap_or_else(PoisonError::into_inner);
        ring.iter().copied().collect()
    });
    let len = text.as_ref().map(|text| text.len() as u64);
    reply(&mut stream, Ok(Bytes { len })).await?;
    stream.write_all(&text.unwrap_or_default()).await?;
    finish(&mut stream).await
}

/// Tells how a program ended, once it has; with a grace it is asked to.
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

//! Runs one command.
//!
//! The worker keeps its end of the stream open while it waits; closing it kills the process group. After the
//! leader's exit the guest waits for output only for [`GRACE`], since a process left in the background may
//! hold the pipes open forever.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use agentmine_guest::mux::MuxStream;
use agentmine_guest::protocol::{GuestReply, OutputDone, Purpose, RunDone, encode_json};
use agentmine_process::Kept;
use anyhow::anyhow;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::ChildStdin;

use crate::capture::Capture;
use crate::environment;
use crate::evidence;
use crate::process::{Input, Leader};
use crate::reply::{finish, reply};
use crate::state::State;

const GRACE: Duration = Duration::from_millis(200);
/// How often it is noticed that the sandbox was frozen.
const TURN: Duration = Duration::from_secs(1);
/// How late a timer may be on a busy machine.
const LATE: Duration = Duration::from_secs(1);
const TIMED_OUT: i32 = 124;
const NOT_EXECUTABLE: i32 = 126;
const NOT_FOUND: i32 = 127;

/// What to run.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) argv: Vec<String>,
    pub(crate) cwd: String,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) stdin_len: u64,
    pub(crate) timeout: Duration,
    pub(crate) max_output: usize,
    pub(crate) purpose: Purpose,
}

#[derive(Debug, Default)]
struct Outcome {
    exit_code: i32,
    stdout: Kept,
    stderr: Kept,
    timed_out: bool,
}

pub(crate) async fn run(mut stream: MuxStream, order: Order, state: &State) -> io::Result<()> {
    if order.purpose == Purpose::Evidence
        && let Err(err) = evidence::end_leftovers().await
    {
        reply::<RunDone>(&mut stream, Err(err)).await?;
        return finish(&mut stream).await;
    }
    let start = Instant::now();
    let cwd = state.resolve(&order.cwd);
    if !cwd.is_dir() {
        let err = anyhow!("{}: no such directory", order.cwd);
        reply::<RunDone>(&mut stream, Err(err)).await?;
        return finish(&mut stream).await;
    }
    let (reader, mut writer) = tokio::io::split(stream);
    let outcome = match spawn(&order, &cwd, state) {
        Ok(leader) => conduct(leader, reader, &order, state).await,
        Err(outcome) => Some(*outcome),
    };
    let Some(outcome) = outcome else {
        return Ok(());
    };
    let done = RunDone {
        exit_code: outcome.exit_code,
        stdout: lengths(&outcome.stdout),
        stderr: lengths(&outcome.stderr),
        timed_out: outcome.timed_out,
        duration_us: u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX),
    };
    let mut answer = encode_json(&GuestReply::Ok(done))?;
    for output in [outcome.stdout, outcome.stderr] {
        answer.extend(output.head);
        answer.extend(output.tail);
    }
    writer.write_all(&answer).await?;
    finish(&mut writer).await
}

fn lengths(output: &Kept) -> OutputDone {
    OutputDone {
        head_len: output.head.len() as u64,
        left_out_bytes: output.left_out.bytes,
        left_out_lines: output.left_out.lines,
        tail_len: output.tail.len() as u64,
    }
}

fn spawn(order: &Order, cwd: &Path, state: &State) -> Result<Leader, Box<Outcome>> {
    let mut env = state.env.clone();
    environment::trust(&mut env, &state.root);
    env.extend(order.env.iter().map(|(k, v)| (k.clone(), v.clone())));
    let program = order.argv.first().map_or("", String::as_str);
    let input = match order.stdin_len {
        0 => Input::Empty,
        _ => Input::Piped,
    };
    let start = |image: Option<&Path>, env| state.own.spawn(&order.argv, image, cwd, env, input);
    let started = match order.purpose {
        Purpose::Work => start(None, &env),
        Purpose::Evidence => {
            if let Some(path) = env.get_mut("PATH") {
                *path = state.evidence.search_path(&state.root, path);
            }
            let shell = state.evidence.shell(program);
            let path = shell.as_ref().map(evidence::UnreadableShell::path);
            // Some machines execute nothing that is in memory only.
            start(path.as_deref(), &env).or_else(|_| start(None, &env))
        }
    };
    started.map_err(|err| {
        let missing = err.kind() == io::ErrorKind::NotFound;
        Box::new(Outcome {
            exit_code: if missing { NOT_FOUND } else { NOT_EXECUTABLE },
            stderr: Kept {
                head: format!("{program}: {err}\n").into_bytes(),
                ..Kept::default()
            },
            ..Outcome::default()
        })
    })
}

/// Waits for the end of a command. `None` if the worker stopped waiting for it.
async fn conduct(
    mut leader: Leader,
    worker: impl AsyncRead + Unpin,
    order: &Order,
    state: &State,
) -> Option<Outcome> {
    let stdout = Capture::new(order.max_output);
    let stderr = Capture::new(order.max_output);
    let mut filling = tokio::task::JoinSet::new();
    if let Some(pipe) = leader.child.stdout.take() {
        filling.spawn(stdout.clone().fill(pipe));
    }
    if let Some(pipe) = leader.child.stderr.take() {
        filling.spawn(stderr.clone().fill(pipe));
    }
    let feed = feed(worker, order.stdin_len, leader.child.stdin.take());
    let full = state.disk.command();
    let _shell = match order.purpose {
        Purpose::Evidence => Some(state.disk.expect_unreadable(leader.pid)),
        Purpose::Work => None,
    };
    let mut outcome = Outcome::default();
    let mut note = None;
    tokio::select! {
        code = leader.wait() => outcome.exit_code = code,
        () = feed => {
            leader.kill();
            leader.wait().await;
            return None;
        }
        () = running_for(order.timeout) => {
            leader.kill();
            leader.wait().await;
            outcome.exit_code = TIMED_OUT;
            outcome.timed_out = true;
        }
        why = full.exceeded() => {
            leader.kill();
            outcome.exit_code = leader.wait().await;
            note = Some(why);
        }
    }
    let all = async { while filling.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(GRACE, all).await;
    filling.detach_all();
    outcome.stdout = stdout.take().into_kept();
    outcome.stderr = stderr.take().into_kept();
    if let Some(note) = note {
        outcome.stderr.tail.extend_from_slice(note.as_bytes());
    }
    Some(outcome)
}

/// Waits until the sandbox has run for `limit`. In a frozen one this process is frozen, too: a turn that takes much longer than it
/// should was interrupted by that.
async fn running_for(limit: Duration) {
    let mut left = limit;
    while !left.is_zero() {
        let turn = left.min(TURN);
        let begun = tokio::time::Instant::now();
        tokio::time::sleep(turn).await;
        left = left.saturating_sub(begun.elapsed().min(turn + LATE));
    }
}

/// Feeds stdin, then waits until the worker closes the stream.
async fn feed(mut worker: impl AsyncRead + Unpin, mut left: u64, stdin: Option<ChildStdin>) {
    let mut stdin = stdin.filter(|_| left > 0);
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let Ok(n @ 1..) = worker.read(&mut buffer).await else {
            return;
        };
        let n = (n as u64).min(left);
        left -= n;
        if let Some(pipe) = &mut stdin
            && pipe.write_all(&buffer[..n as usize]).await.is_err()
        {
            // The program has closed its stdin; the rest is dropped.
            stdin = None;
        }
        if left == 0 {
            stdin = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{Instant, advance, sleep};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_command_is_not_ended_for_the_time_in_which_the_sandbox_was_frozen() {
        let wait = tokio::spawn(running_for(Duration::from_secs(10)));
        sleep(Duration::from_millis(4500)).await;
        advance(Duration::from_secs(600)).await;
        let thawed = Instant::now();
        wait.await.unwrap();
        let left = thawed.elapsed();
        assert!(
            left > Duration::from_secs(3) && left < Duration::from_secs(6),
            "{left:?}"
        );
    }
}

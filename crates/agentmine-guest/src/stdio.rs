//! Stdio programs, such as MCP servers: the stream is their stdin and stdout.
//!
//! The end of the stream closes stdin; a program that has not ended [`GRACE`] later is killed with its
//! group.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agentmine_guest::mux::MuxStream;
use agentmine_guest::protocol::{Bytes, STDERR_RING, Started};
use anyhow::{Context as _, Result};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::process::{Leader, descendants};
use crate::serve::{State, finish, reply};

const GRACE: Duration = Duration::from_secs(2);
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
}

impl Programs {
    fn lock(&self) -> std::sync::MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, pid: i32) -> (u64, Ring) {
        let mut table = self.lock();
        table.next += 1;
        let id = table.next;
        if table.entries.len() >= REMEMBERED
            && let Some(old) = table.entries.iter().position(|entry| entry.pid == 0)
        {
            table.entries.remove(old);
        }
        let ring = Ring::default();
        table.entries.push_back(Entry {
            id,
            pid,
            ring: ring.clone(),
        });
        (id, ring)
    }

    fn ended(&self, id: u64) {
        if let Some(entry) = self.lock().entries.iter_mut().find(|entry| entry.id == id) {
            entry.pid = 0;
        }
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
    let (id, ring) = state.programs.add(leader.pid);
    let told = reply(&mut stream, Ok(Started { id })).await;
    if told.is_ok() {
        carry(stream, &mut leader, ring).await;
    }
    leader.kill();
    leader.wait().await;
    state.programs.ended(id);
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

/// Carries bytes both ways until the program has ended, or the worker left and the grace is over.
async fn carry(stream: MuxStream, leader: &mut Leader, ring: Ring) {
    let (mut reader, mut writer) = tokio::io::split(stream);
    let stdin = leader.child.stdin.take();
    let stdout = leader.child.stdout.take();
    if let Some(mut stderr) = leader.child.stderr.take() {
        tokio::spawn(async move {
            let mut buffer = vec![0; 4096];
            while let Ok(n @ 1..) = stderr.read(&mut buffer).await {
                let mut ring = ring.lock().unwrap_or_else(PoisonError::into_inner);
                ring.extend(&buffer[..n]);
                let over = ring.len().saturating_sub(STDERR_RING);
                ring.drain(..over);
            }
        });
    }
    let input = async {
        if let Some(mut stdin) = stdin {
            let mut buffer = vec![0; 32 * 1024];
            while let Ok(n @ 1..) = reader.read(&mut buffer).await {
                if stdin.write_all(&buffer[..n]).await.is_err() {
                    // It closed its stdin; its output may go on.
                    std::future::pending::<()>().await;
                }
            }
        }
        tokio::time::sleep(GRACE).await;
    };
    let output = async {
        if let Some(mut stdout) = stdout {
            let mut buffer = vec![0; 32 * 1024];
            while let Ok(n @ 1..) = stdout.read(&mut buffer).await {
                if writer.write_all(&buffer[..n]).await.is_err() || writer.flush().await.is_err() {
                    return;
                }
            }
        }
        let _ = finish(&mut writer).await;
    };
    tokio::select! {
        () = input => {}
        () = output => {}
    }
}

pub(crate) async fn stderr(mut stream: MuxStream, id: u64, state: &State) -> io::Result<()> {
    let ring = {
        let table = state.programs.lock();
        table
            .entries
            .iter()
            .find(|entry| entry.id == id)
            .map(|entry| entry.ring.clone())
    };
    let text: Option<Vec<u8>> = ring.map(|ring| {
        let ring = ring.lock().unwrap_or_else(PoisonError::into_inner);
        ring.iter().copied().collect()
    });
    let len = text.as_ref().map(|text| text.len() as u64);
    reply(&mut stream, Ok(Bytes { len })).await?;
    stream.write_all(&text.unwrap_or_default()).await?;
    finish(&mut stream).await
}

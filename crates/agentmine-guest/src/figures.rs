//! What the sandbox uses now, for the worker's metrics.
//!
//! Memory and processes are those of all that the guest started. A command can hide what it uses from these figures
//! no better than from the limits: both look at the same files of the kernel.

use std::io;

use agentmine_guest::mux::MuxStream;
use agentmine_guest::protocol::SandboxUse;
use agentmine_process::descendants;

use crate::load;
use crate::reply::{finish, reply};
use crate::state::State;

/// Ticks of `/proc/PID/stat` in a second. The kernel shows 100 to programs, whatever it counts with.
const TICKS: u64 = 100;
/// Places of a process's user and system time in `/proc/PID/stat`, counted after its name, and of those of its
/// children that have ended.
const TIMES: [usize; 4] = [11, 12, 13, 14];

pub(crate) async fn report(mut stream: MuxStream, state: &State) -> io::Result<()> {
    reply(&mut stream, Ok(now(state))).await?;
    finish(&mut stream).await
}

fn now(state: &State) -> SandboxUse {
    let own = std::process::id().cast_signed();
    let running = descendants(own);
    let pids = running.iter().map(|process| process.pid());
    let ticks: u64 = pids.chain([own]).map(ticks_of).sum();
    SandboxUse {
        memory_bytes: load::own_memory(&running),
        processes: running.len() as u64,
        cpu_ms: ticks * (1000 / TICKS),
        disk_bytes: state.disk.used(),
    }
}

/// CPU time of a process and of its children that have ended. A child's own time passes on to it then.
fn ticks_of(pid: i32) -> u64 {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    let stat = String::from_utf8_lossy(&stat);
    // The name may contain anything, so the fields are counted after its parenthesis.
    let Some((_, fields)) = stat.rsplit_once(')') else {
        return 0;
    };
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let ticks = TIMES
        .iter()
        .filter_map(|&at| fields.get(at)?.parse::<u64>().ok());
    ticks.sum()
}

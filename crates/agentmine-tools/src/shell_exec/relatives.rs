//! The processes that a command has started, wherever they went.
//!
//! A process that makes a session of its own leaves the command's group, and one whose parent has ended
//! leaves its family; the mark in its environment stays. Only what does all three (a session of its own,
//! no parent, another environment) is not found.

use std::fs::File;
use std::io::Read;

use rustix::process::{Pid, Signal, kill_process};

/// The variable that every command gets, with a value of its own.
pub(super) const MARK: &str = "AGENTMINE_COMMAND";
/// Most of an environment that is looked at, in bytes.
const MAX_ENVIRONMENT: u64 = 128 * 1024;
/// How often the survivors of a killing are looked for: each time, what they started meanwhile.
const ROUNDS: usize = 8;

/// What a command has started: those below it, and those with its mark. Found before it is killed, since
/// the family falls apart then.
pub(super) fn find(command: Pid, mark: &str) -> Vec<Pid> {
    let all: Vec<(Pid, Option<Pid>)> = processes().map(|pid| (pid, parent(pid))).collect();
    let mut family = vec![command];
    let mut at = 0;
    while let Some(&above) = family.get(at) {
        let below = all.iter().filter(|(_, parent)| *parent == Some(above));
        for (pid, _) in below {
            if !family.contains(pid) {
                family.push(*pid);
            }
        }
        at += 1;
    }
    let marked = all
        .iter()
        .map(|(pid, _)| *pid)
        .filter(|pid| !family.contains(pid) && is_marked(*pid, mark));
    let marked: Vec<Pid> = marked.collect();
    family.into_iter().skip(1).chain(marked).collect()
}

/// Kills them, and what with the mark they have started until then.
pub(super) fn kill(mut found: Vec<Pid>, mark: &str) {
    for _ in 0..ROUNDS {
        if found.is_empty() {
            return;
        }
        for pid in &found {
            // Fails only where it is gone already.
            let _ = kill_process(*pid, Signal::KILL);
        }
        found = processes().filter(|pid| is_marked(*pid, mark)).collect();
    }
}

fn processes() -> impl Iterator<Item = Pid> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?))
}

fn parent(pid: Pid) -> Option<Pid> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    // The name before it may hold anything.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    Pid::from_raw(fields.nth(1)?.parse().ok()?)
}

fn is_marked(pid: Pid, mark: &str) -> bool {
    let Ok(file) = File::open(format!("/proc/{}/environ", pid.as_raw_nonzero())) else {
        return false;
    };
    let mut environment = Vec::new();
    let wanted = format!("{MARK}={mark}");
    // Empty for a process that has ended.
    file.take(MAX_ENVIRONMENT)
        .read_to_end(&mut environment)
        .is_ok()
        && environment
            .split(|byte| *byte == 0)
            .any(|variable| variable == wanted.as_bytes())
}

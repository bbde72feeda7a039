//! What others see of a running program, and what of it they must not see.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::attack::canaries::Canaries;

/// What begins each line and each metric that an attacker writes.
pub(super) const FORGED: &str = "forged_by_an_issue";

/// What was seen of a program and of what it started.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// The secrets that it has.
    pub(super) canaries: Canaries,
    pub(super) listeners: BTreeSet<SocketAddr>,
    /// Unix sockets that it listens on, with their modes.
    pub(super) sockets: BTreeMap<PathBuf, u32>,
    /// Of the program and everything that it started.
    pub(super) command_lines: BTreeSet<Vec<u8>>,
    /// Of what it started.
    pub(super) environments: BTreeSet<Vec<u8>>,
    /// Files below its folders that every user can read.
    pub(super) open_files: Vec<PathBuf>,
    pub(super) log: String,
    /// What the command line printed.
    pub(super) terminal: String,
    /// What it printed of tasks and sessions, but for the transcript, where texts have lines.
    pub(super) listed: String,
    /// `/metrics` and `/ready`.
    pub(super) metrics: String,
    /// Programs of the repository that ran outside of a sandbox.
    pub(super) started: Vec<String>,
    /// What attacks on its listeners achieved.
    pub(super) achieved: BTreeMap<&'static str, Option<String>>,
}

type Check = fn(&Seen) -> Option<String>;

/// Name, aim, and the check, which returns what the attacker got.
pub(super) const CHECKS: &[(&str, &str, Check)] = &[
    (
        "find_a_listener_on_the_network",
        "Connects from another machine",
        |seen| {
            let open = seen.listeners.iter().find(|it| !it.ip().is_loopback());
            open.map(|it| format!("it listens on {it}"))
        },
    ),
    (
        "connect_to_a_unix_socket_of_the_fleet",
        "Connects as another user of the machine",
        |seen| {
            let open = seen.sockets.iter().find(|(_, mode)| *mode & 0o002 != 0);
            open.map(|(path, mode)| format!("{} has mode {mode:o}", path.display()))
        },
    ),
    (
        "read_secrets_in_the_process_list",
        "Reads tokens and passwords in command lines",
        |seen| secret_in(seen, &seen.command_lines),
    ),
    (
        "read_secrets_in_the_environment_of_children",
        "Has a program started, other than git, that prints its environment",
        |seen| secret_in(seen, &seen.environments),
    ),
    (
        "read_the_workers_files",
        "Reads database and state as another user of the machine",
        |seen| {
            let open = seen.open_files.first();
            open.map(|it| format!("every user can read {}", it.display()))
        },
    ),
    (
        "read_secrets_in_a_configuration_that_was_left_open",
        "Reads the configuration as another user, and nobody is warned",
        |seen| {
            let warned = seen.log.contains("every user of this machine can read it");
            (!warned).then(|| "the log does not name the file".to_owned())
        },
    ),
    (
        "forge_a_line_of_the_log",
        "Writes an event by an issue's title",
        |seen| {
            let mut lines = seen.log.lines();
            lines
                .find(|line| line.trim_start().starts_with(FORGED))
                .map(|line| format!("a line of the log is {line:?}"))
        },
    ),
    (
        "steer_the_terminal_by_the_log",
        "Writes escape sequences into the log",
        |seen| control_in(&seen.log),
    ),
    (
        "steer_the_terminal_by_a_title",
        "Writes escape sequences where tasks are listed",
        |seen| control_in(&seen.terminal),
    ),
    (
        "forge_a_line_of_the_task_list",
        "Writes a row of the list of tasks by an issue's title",
        |seen| {
            let mut lines = seen.listed.lines();
            lines
                .find(|line| line.trim_start().starts_with(FORGED))
                .map(|line| format!("a line is {line:?}"))
        },
    ),
    (
        "forge_a_metric",
        "Writes a metric by the name of a tool or an issue",
        |seen| {
            let mut lines = seen.metrics.lines();
            lines
                .find(|line| line.starts_with(FORGED))
                .map(|line| format!("a metric is {line:?}"))
        },
    ),
    (
        "make_series_without_end",
        "Makes a label of a metric from a text that a model or an author chooses",
        |seen| {
            let mut lines = seen.metrics.lines();
            lines
                .find(|line| line.contains(FORGED))
                .map(|line| format!("a series is {line:?}"))
        },
    ),
    (
        "read_secrets_in_metrics_and_health",
        "Reads passwords in the reasons of failed checks",
        |seen| {
            let found = seen.canaries.found_in(seen.metrics.as_bytes());
            found.map(|name| format!("it got {name}"))
        },
    ),
    (
        "read_secrets_in_the_log",
        "Reads passwords in the log of connections that fail",
        |seen| {
            let found = seen.canaries.found_in(seen.log.as_bytes());
            found.map(|name| format!("it got {name}"))
        },
    ),
    (
        "start_programs_by_files_of_a_repository",
        "Has the worker start MCP servers, hooks and tasks that the repository's files name",
        |seen| {
            let first = seen.started.first();
            first.map(|it| format!("outside of a sandbox ran: {it}"))
        },
    ),
];

fn secret_in(seen: &Seen, texts: &BTreeSet<Vec<u8>>) -> Option<String> {
    texts.iter().find_map(|text| {
        let name = seen.canaries.found_in(text)?;
        let program = text.split(|byte| *byte == 0).next().unwrap_or_default();
        let program = String::from_utf8_lossy(program);
        Some(format!("{name} is seen at {program:.60}"))
    })
}

/// A character that steers a terminal or reorders text.
fn control_in(text: &str) -> Option<String> {
    let is_hostile = |c: char| {
        (c.is_control() && !matches!(c, '\n' | '\t'))
            || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let found = text.lines().find(|line| line.contains(is_hostile));
    found.map(|line| format!("a line is {line:?}"))
}

impl Seen {
    /// Adds what is seen of a process and everything below it at this moment.
    pub(super) fn look_at(&mut self, process: u32) {
        let all = with_descendants(process);
        let namespace = |id: u32| std::fs::read_link(format!("/proc/{id}/ns/net")).ok();
        let here = namespace(std::process::id());
        let mut inodes = BTreeSet::new();
        for &id in &all {
            let read = |name: &str| std::fs::read(format!("/proc/{id}/{name}")).ok();
            self.command_lines.extend(read("cmdline"));
            if !may_have_secrets(id, process) {
                self.environments.extend(read("environ"));
            }
            if namespace(id) == here {
                inodes.extend(sockets_of(id));
            }
        }
        for (family, table) in [
            (Family::Four, "/proc/net/tcp"),
            (Family::Six, "/proc/net/tcp6"),
        ] {
            let table = std::fs::read_to_string(table).unwrap_or_default();
            let found = table.lines().filter_map(|line| listening(family, line));
            self.listeners.extend(
                found
                    .filter(|(_, inode)| inodes.contains(inode))
                    .map(|it| it.0),
            );
        }
        let table = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
        let found = table.lines().filter_map(listening_path);
        for (path, _) in found.filter(|(_, inode)| inodes.contains(inode)) {
            if let Ok(data) = std::fs::metadata(&path) {
                self.sockets.insert(path, data.permissions().mode());
            }
        }
    }

    /// Adds the files below a folder that every user can reach and read.
    pub(super) fn look_into(&mut self, folder: &Path) {
        let Ok(entries) = std::fs::read_dir(folder) else {
            return;
        };
        for entry in entries.flatten() {
            let Ok(data) = entry.path().symlink_metadata() else {
                continue;
            };
            let mode = data.permissions().mode();
            if data.is_dir() && mode & 0o001 != 0 {
                self.look_into(&entry.path());
            } else if data.is_file() && mode & 0o004 != 0 {
                self.open_files.push(entry.path());
            }
        }
    }
}

/// Whether it is the program itself, which has its secrets from its operator, a copy of it that has not become another
/// program yet, or git, which gets the token so: no other user can read it there, and it starts nothing else.
fn may_have_secrets(id: u32, program: u32) -> bool {
    let executable = |id: u32| std::fs::read_link(format!("/proc/{id}/exe")).ok();
    let own = executable(id);
    own == executable(program)
        || own.is_none_or(|it| {
            let name = it.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("git")
        })
}

/// A process and all below it.
fn with_descendants(process: u32) -> Vec<u32> {
    let ids = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = ids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let parents: Vec<(u32, u32)> = ids
        .filter_map(|id| {
            let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
            // Behind the name in parentheses: the state and the parent.
            let (_, rest) = stat.rsplit_once(')')?;
            Some((id, rest.split_whitespace().nth(1)?.parse().ok()?))
        })
        .collect();
    let mut found = vec![process];
    let mut at = 0;
    while let Some(&parent) = found.get(at) {
        found.extend(parents.iter().filter(|it| it.1 == parent).map(|it| it.0));
        at += 1;
    }
    found
}

fn sockets_of(process: u32) -> Vec<u64> {
    let files = std::fs::read_dir(format!("/proc/{process}/fd"));
    let links = files.into_iter().flatten().flatten();
    links
        .filter_map(|entry| {
            let link = std::fs::read_link(entry.path()).ok()?;
            let inode = link.to_str()?.strip_prefix("socket:[")?;
            inode.strip_suffix(']')?.parse().ok()
        })
        .collect()
}

#[derive(Debug, Clone, Copy)]
enum Family {
    Four,
    Six,
}

/// Address and inode of a line of `/proc/net/tcp`, if it is of a listener.
fn listening(family: Family, line: &str) -> Option<(SocketAddr, u64)> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    if *fields.get(3)? != "0A" {
        return None;
    }
    let (address, port) = fields.get(1)?.split_once(':')?;
    let words: Option<Vec<u32>> = (0..address.len() / 8)
        .map(|at| u32::from_str_radix(&address[at * 8..at * 8 + 8], 16).ok())
        .collect();
    let bytes: Vec<u8> = words?.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let ip: IpAddr = match family {
        Family::Four => Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?).into(),
        Family::Six => Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).into(),
    };
    let port = u16::from_str_radix(port, 16).ok()?;
    Some((SocketAddr::new(ip, port), fields.get(9)?.parse().ok()?))
}

/// Path and inode of a line of `/proc/net/unix`, if it is of a listener that has a path.
fn listening_path(line: &str) -> Option<(PathBuf, u64)> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    // The flag of a listener, `SO_ACCEPTCON`.
    let listens = *fields.get(3)? == "00010000";
    let path = fields.get(7).filter(|path| path.starts_with('/'))?;
    listens.then_some((PathBuf::from(path), fields.get(6)?.parse().ok()?))
}

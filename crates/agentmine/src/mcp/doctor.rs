//! `agentmine mcp doctor`: every check with how it went and, where it failed, the next step.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use agentmine_mcp::config::{Place, ServerConfig, Transport};
use agentmine_mcp::{Catalog, Notice, ServerState, ServerStatus};
use agentmine_runtime::exit::Exit;
use anyhow::Result;
use console::style;
use serde_json::{Value, json};

use crate::print::{line, one_line};

use super::With;
use super::list::{
    counts, faults_json, name_and_version, nothing, origin, place, protocol, seconds, status_json,
    target,
};
use super::session::{Session, Trouble, further, trouble};
use super::setup::{self, Setup};

/// How a check went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Good,
    /// Nothing that keeps the server from working.
    Note,
    Failed,
    /// It was not to be made.
    Skipped,
}

struct Check {
    name: &'static str,
    outcome: Outcome,
    detail: String,
    /// The end of a server's stderr.
    said: String,
    /// What to do; empty where there is nothing to be done.
    next: String,
}

impl Check {
    fn new(name: &'static str, outcome: Outcome, detail: impl Into<String>) -> Self {
        Self {
            name,
            outcome,
            detail: detail.into(),
            said: String::new(),
            next: String::new(),
        }
    }

    fn next(mut self, next: impl Into<String>) -> Self {
        self.next = next.into();
        self
    }
}

/// Checks all servers, or one.
pub(super) async fn run(with: With, server: Option<String>) -> Result<Exit> {
    let setup = setup::load(&with)?;
    let servers: Vec<ServerConfig> = match &server {
        Some(name) if setup.faults_of(name).is_empty() => vec![setup.named(name)?.clone()],
        // Its faults are what there is to tell.
        Some(_) => Vec::new(),
        None => setup.loaded.servers.values().cloned().collect(),
    };
    let configuration = configuration(&setup, server.as_deref());
    let session = Session::start(&with, &setup, servers).await?;
    let no_jail = session.no_jail.clone();
    let as_json = with.which.json;
    session
        .run(async |manager| {
            let catalog = manager.catalog();
            let mut exit = worst(Exit::Done, &configuration, Exit::Config);
            let mut rows = Vec::new();
            let told = further(manager);
            if !as_json {
                show_configuration(&setup, &configuration);
            }
            for status in manager.status() {
                let trouble = trouble(manager, &status, no_jail.as_deref()).await;
                let checks = checks(&status, &catalog, trouble.as_ref(), &told, &setup.folder);
                exit = worst(exit, &checks, Exit::Other);
                if as_json {
                    let mut row = status_json(&status, &catalog, trouble.as_ref());
                    row["checks"] = checks.iter().map(check_json).collect();
                    rows.push(row);
                } else {
                    show(&status, &checks);
                }
            }
            if as_json {
                let whole = json!({
                    "files": setup.loaded.files,
                    "faults": faults_json(&setup.loaded.faults),
                    "servers": rows,
                });
                line(serde_json::to_string_pretty(&whole)?);
            }
            Ok(exit)
        })
        .await
}

/// A configuration's fault is told before a server's.
fn worst(exit: Exit, checks: &[Check], failed: Exit) -> Exit {
    let any = checks.iter().any(|it| it.outcome == Outcome::Failed);
    if any && exit == Exit::Done {
        failed
    } else {
        exit
    }
}

fn configuration(setup: &Setup, only: Option<&str>) -> Vec<Check> {
    let faults = setup.loaded.faults.iter();
    let meant = faults.filter(|fault| match (only, &fault.server) {
        (None, _) | (_, None) => true,
        (Some(name), Some(server)) => name == server,
    });
    meant
        .map(|fault| {
            let next = match &fault.server {
                Some(name) => format!("correct it; until then '{name}' is left out"),
                None => "correct it; nothing else is left out for it".to_owned(),
            };
            Check::new("config", Outcome::Failed, one_line(&fault.to_string(), 500)).next(next)
        })
        .collect()
}

fn show_configuration(setup: &Setup, faults: &[Check]) {
    line(style("configuration").bold().to_string());
    if setup.loaded.files.is_empty() {
        nothing(setup);
    }
    for file in &setup.loaded.files {
        let here = setup.loaded.servers.values();
        let count = here.filter(|server| server.origin.file == *file).count();
        let words = format!("{}, {count} servers of it", file.display());
        print(&Check::new("file", Outcome::Good, words));
    }
    for fault in faults {
        print(fault);
    }
}

fn checks(
    status: &ServerStatus,
    catalog: &Catalog,
    trouble: Option<&Trouble>,
    told: &[Notice],
    folder: &Path,
) -> Vec<Check> {
    let server = &status.config;
    if status.state == ServerState::Disabled {
        let check = Check::new("start", Outcome::Skipped, "disabled in its entry");
        return vec![check.next("set \"enabled\": true to use it")];
    }
    let mut checks: Vec<Check> = program(server, folder).into_iter().collect();
    if let Some(check) = exposed(server) {
        checks.push(check);
    }
    if let Some(trouble) = trouble {
        let mut failed = Check::new("start", Outcome::Failed, trouble.what.clone());
        failed.said.clone_from(&trouble.stderr);
        checks.push(failed.next(trouble.next.clone()));
        return checks;
    }
    let took = format!("in {} s", seconds(status));
    checks.push(Check::new("start", Outcome::Good, took));
    if let Some(greeting) = &status.greeting {
        let words = format!(
            "{}, says it is {}",
            protocol(greeting),
            name_and_version(greeting)
        );
        checks.push(Check::new("protocol", Outcome::Good, words));
    }
    if let Some(offer) = catalog.servers.get(&server.name) {
        checks.push(Check::new("offer", Outcome::Good, counts(offer)));
        for left_out in &offer.left_out {
            let check = Check::new("offer", Outcome::Note, one_line(left_out, 300));
            checks.push(check.next("tell the server's makers"));
        }
    }
    for notice in told.iter().filter(|it| it.server == server.name) {
        checks.push(Check::new(
            "notice",
            Outcome::Note,
            one_line(&notice.text, 300),
        ));
    }
    checks
}

/// Whether the program is there, for servers on this machine.
fn program(server: &ServerConfig, folder: &Path) -> Option<Check> {
    let Transport::Stdio {
        command,
        env,
        place: Place::Worker,
    } = &server.transport
    else {
        return None;
    };
    let program = command.first()?;
    let path = match env.get("PATH") {
        Some(own) => own.expose().into(),
        None => std::env::var_os("PATH").unwrap_or_default(),
    };
    Some(match find(program, folder, &path) {
        Some(path) => Check::new("program", Outcome::Good, path.display().to_string()),
        None => {
            let package = match program.as_str() {
                "npx" | "node" | "npm" => "install Node.js",
                "uvx" | "uv" => "install uv",
                "python" | "python3" => "install Python",
                "docker" => "install Docker",
                _ => "install it, or write its whole path in `command`",
            };
            let detail = format!("{:?} is not found in PATH", one_line(program, 100));
            Check::new("program", Outcome::Failed, detail).next(package)
        }
    })
}

/// As it is looked up when the server starts: what is relative is relative to `folder`.
fn find(program: &str, folder: &Path, path: &OsStr) -> Option<PathBuf> {
    use std::os::unix::fs::PermissionsExt as _;
    let runs = |path: &PathBuf| {
        std::fs::metadata(path)
            .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    if program.contains('/') {
        return Some(folder.join(program)).filter(runs);
    }
    std::env::split_paths(path)
        .filter(|place| !place.as_os_str().is_empty())
        .map(|place| folder.join(place).join(program))
        .find(runs)
}

/// Headers over plain HTTP can be read on the way.
fn exposed(server: &ServerConfig) -> Option<Check> {
    let Transport::Http { url, headers } = &server.transport else {
        return None;
    };
    let local = matches!(url.host_str(), Some("localhost" | "127.0.0.1" | "[::1]"));
    let open = url.scheme() == "http" && !local && !headers.is_empty();
    open.then(|| {
        let detail = "its headers travel over plain HTTP, where they can be read on the way";
        Check::new("url", Outcome::Note, detail).next("use https://")
    })
}

fn show(status: &ServerStatus, checks: &[Check]) {
    line("");
    line(format!(
        "{}  {} ({})",
        style(&status.config.name).bold(),
        one_line(&target(&status.config), 100),
        place(&status.config)
    ));
    print(&Check::new("config", Outcome::Good, origin(&status.config)));
    for check in checks {
        print(check);
    }
}

fn print(check: &Check) {
    let word = match check.outcome {
        Outcome::Good => style("ok").green(),
        Outcome::Note => style("note").yellow(),
        Outcome::Failed => style("failed").red(),
        Outcome::Skipped => style("skipped"),
    };
    // Padded by hand: colours count as characters.
    let width = match check.outcome {
        Outcome::Good => 6,
        Outcome::Note => 4,
        Outcome::Failed => 2,
        Outcome::Skipped => 1,
    };
    line(format!(
        "  {word}{:width$}{:<10}{}",
        "", check.name, check.detail
    ));
    for said in check.said.lines() {
        line(format!("          | {said}"));
    }
    if !check.next.is_empty() {
        line(format!("          next: {}", check.next));
    }
}

fn check_json(check: &Check) -> Value {
    json!({
        "check": check.name,
        "outcome": match check.outcome {
            Outcome::Good => "ok",
            Outcome::Note => "note",
            Outcome::Failed => "failed",
            Outcome::Skipped => "skipped",
        },
        "detail": check.detail,
        "stderr": check.said,
        "next": check.next,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_looked_up_as_the_system_does() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("data"), "x").unwrap();
        let there = |program: &str| {
            let path = OsStr::new("/nowhere:/bin:/usr/bin");
            find(program, folder.path(), path).is_some()
        };
        assert!(there("sh") && there("/bin/sh"));
        assert!(!there("./data") && !there("no-such-program-anywhere"));
    }

    #[test]
    fn a_faulty_configuration_outranks_a_server_that_fails() {
        let failed = [Check::new("x", Outcome::Failed, "")];
        let exit = worst(Exit::Done, &failed, Exit::Config);
        assert_eq!(worst(exit, &failed, Exit::Other), Exit::Config);
        let noted = [Check::new("x", Outcome::Note, "")];
        assert_eq!(worst(Exit::Done, &noted, Exit::Other), Exit::Done);
    }
}

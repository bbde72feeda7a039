//! `agentmine mcp doctor`: every check with its outcome and, if it failed, the next step.

use agentmine_mcp::config::{ServerConfig, ServerPlace, Transport};
use agentmine_mcp::{Catalog, Launcher as _, ServerState, ServerStatus};
use agentmine_runtime::exit::Exit;
use anyhow::Result;
use console::style;
use serde_json::{Value, json};

use crate::print::{line, one_line};

use super::args::With;
use super::session;
use super::setup::{self, Setup};
use super::show::{
    counts, name_and_version, nothing, origin, place, print_json, protocol, seconds, status_json,
    target,
};
use super::trouble::Trouble;

/// Log messages of a server that are shown.
const MAX_LOGS: usize = 10;

/// The outcome of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Good,
    /// The server works all the same.
    Note,
    Failed,
    /// It was not made.
    Skipped,
}

impl Outcome {
    fn word(self) -> &'static str {
        match self {
            Self::Good => "ok",
            Self::Note => "note",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
        }
    }
}

struct Check {
    name: &'static str,
    outcome: Outcome,
    detail: String,
    /// The end of a server's stderr.
    stderr: String,
    /// The next step; may be empty.
    next: String,
}

impl Check {
    fn new(name: &'static str, outcome: Outcome, detail: impl Into<String>) -> Self {
        Self {
            name,
            outcome,
            detail: detail.into(),
            stderr: String::new(),
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
        // Only its faults can be shown.
        Some(_) => Vec::new(),
        None => setup.loaded.servers.values().cloned().collect(),
    };
    let configuration = configuration(&setup, server.as_deref());
    session::run(&with, &setup, servers, async |servers| {
        let catalog = servers.manager.catalog();
        let mut exit = worst(Exit::Done, &configuration, Exit::Config);
        let mut rows = Vec::new();
        let notices = servers.further();
        if !with.which.json {
            show_configuration(&setup, &configuration);
        }
        for (status, trouble) in servers.statuses().await {
            let mut checks = checks(&status, &catalog, trouble.as_ref(), &setup);
            let own = notices.iter().filter(|it| it.server == status.config.name);
            checks
                .extend(own.map(|it| Check::new("notice", Outcome::Note, one_line(&it.text, 300))));
            exit = worst(exit, &checks, Exit::Other);
            if with.which.json {
                let mut row = status_json(&status, &catalog, trouble.as_ref());
                row["checks"] = checks.iter().map(check_json).collect();
                rows.push(row);
            } else {
                show(&status, &checks);
            }
        }
        if with.which.json {
            print_json(&setup, rows)?;
        }
        Ok(exit)
    })
    .await
}

/// The exit code of a fault of the configuration has precedence over that of a server.
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
    faults
        .filter(|fault| match (only, &fault.server) {
            (None, _) | (_, None) => true,
            (Some(name), Some(server)) => name == server,
        })
        .map(|fault| {
            let next = match &fault.server {
                Some(name) => format!("correct it; until then '{name}' is skipped"),
                None => "correct it; nothing else is affected".to_owned(),
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
        let words = format!("{}, {count} servers", file.display());
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
    setup: &Setup,
) -> Vec<Check> {
    let server = &status.config;
    if status.state == ServerState::Disabled {
        let check = Check::new("start", Outcome::Skipped, "disabled in its entry");
        return vec![check.next("set \"enabled\": true to use it")];
    }
    let program = program(server, setup);
    let mut checks: Vec<Check> = program.into_iter().chain(exposed(server)).collect();
    if let Some(trouble) = trouble {
        let mut failed = Check::new("start", Outcome::Failed, trouble.what.clone());
        failed.stderr.clone_from(&trouble.stderr);
        checks.push(failed.next(trouble.next.clone()));
        checks.extend(log(status));
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
            checks.push(check.next("report it to the server's authors"));
        }
    }
    checks.extend(log(status));
    checks
}

/// The last log messages of a server whose entry asks for them (`capabilities`).
fn log(status: &ServerStatus) -> impl Iterator<Item = Check> {
    let first = status.logs.len().saturating_sub(MAX_LOGS);
    let last = status.logs.iter().skip(first);
    last.map(|message| Check::new("log", Outcome::Note, one_line(message, 300)))
}

/// Whether the program exists, for servers on this machine.
fn program(server: &ServerConfig, setup: &Setup) -> Option<Check> {
    let Transport::Stdio {
        command,
        place: ServerPlace::Worker,
        ..
    } = &server.transport
    else {
        return None;
    };
    let program = command.first()?;
    if let Some(file) = setup.launcher().files(server).first() {
        return Some(Check::new(
            "program",
            Outcome::Good,
            file.display().to_string(),
        ));
    }
    let next = match program.as_str() {
        "npx" | "node" | "npm" => "install Node.js",
        "uvx" | "uv" => "install uv",
        "python" | "python3" => "install Python",
        "docker" => "install Docker",
        _ => "install it, or write its full path in `command`",
    };
    let detail = format!("{:?} is not found in PATH", one_line(program, 100));
    Some(Check::new("program", Outcome::Failed, detail).next(next))
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
    // Padded before it is coloured: colours count as characters.
    let word = style(format!("{:<8}", check.outcome.word()));
    let word = match check.outcome {
        Outcome::Good => word.green(),
        Outcome::Note => word.yellow(),
        Outcome::Failed => word.red(),
        Outcome::Skipped => word,
    };
    line(format!("  {word}{:<10}{}", check.name, check.detail));
    for stderr in check.stderr.lines() {
        line(format!("          | {stderr}"));
    }
    if !check.next.is_empty() {
        line(format!("          next: {}", check.next));
    }
}

fn check_json(check: &Check) -> Value {
    json!({
        "check": check.name,
        "outcome": check.outcome.word(),
        "detail": check.detail,
        "stderr": check.stderr,
        "next": check.next,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use agentmine_mcp::config::{Capabilities, Loaded, Origin, Owner};

    use super::*;

    #[test]
    fn a_program_is_looked_up_as_it_is_started() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("data"), "x").unwrap();
        let setup = Setup {
            loaded: Loaded::default(),
            project: None,
            root: folder.path().to_owned(),
            folder: folder.path().to_owned(),
        };
        let outcome = |program: &str| {
            let server = ServerConfig {
                name: "a".into(),
                origin: Origin {
                    file: "f".into(),
                    line: 1,
                    owner: Owner::Operator,
                },
                transport: Transport::Stdio {
                    command: vec![program.to_owned()],
                    env: BTreeMap::new(),
                    place: ServerPlace::Worker,
                },
                enabled: true,
                capabilities: Capabilities::default(),
                timeout: Duration::from_secs(1),
                max_restarts: None,
            };
            self::program(&server, &setup).unwrap().outcome
        };
        for (program, expected) in [
            ("sh", Outcome::Good),
            ("/bin/sh", Outcome::Good),
            ("./data", Outcome::Failed),
            ("no-such-program-anywhere", Outcome::Failed),
        ] {
            assert_eq!(outcome(program), expected, "{program}");
        }
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

//! The servers of one command: started, used, ended.
//!
//! Ctrl-C and SIGTERM end the command and every server with it; what was asked for is cancelled.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use agentmine_mcp::config::{Place, ServerConfig, Transport};
use agentmine_mcp::{
    Catalog, ClientRoots, Declining, Elicitation, Launchers, Manager, ManagerPolicy, McpError,
    McpLimits, Notice, NoticeKind, ServerState, ServerStatus, Watch, WorkerLauncher,
};
use agentmine_runtime::exit::{Exit, Failure};
use anyhow::Result;
use tokio::signal::unix::{Signal, SignalKind, signal};
use url::Url;

use crate::print::{clean, note, one_line};

use super::With;
use super::args::Which;
use super::ask::Terminal;
use super::jail::Jail;
use super::setup::Setup;

/// The last lines of a server's stderr that are shown.
const STDERR_LINES: usize = 12;

/// Servers that were started.
pub(super) struct Session {
    manager: Manager,
    jail: Option<Jail>,
    /// Why there is no jail, where one was needed.
    pub(super) no_jail: Option<String>,
    signals: Signals,
}

/// Ctrl-C, and the polite way to end a process.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn new() -> Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    async fn any(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

fn interrupted() -> anyhow::Error {
    Failure::new(Exit::Other, "interrupted; the servers were ended").into()
}

impl Session {
    /// Starts the servers, and a jail for those that need one.
    pub(super) async fn start(
        with: &With,
        setup: &Setup,
        servers: Vec<ServerConfig>,
    ) -> Result<Self> {
        let mut signals = Signals::new()?;
        let mut no_jail = None;
        let mut jail = None;
        if servers.iter().any(is_sandboxed) {
            let project = setup.project.clone();
            match Jail::start(with.config.clone(), project, signals.any()).await {
                Ok(Some(made)) => jail = Some(made),
                Ok(None) => return Err(interrupted()),
                Err(error) => no_jail = Some(format!("{error:#}")),
            }
        }
        for warning in jail.iter().flat_map(Jail::warnings) {
            note(format!("note: {}", one_line(&warning, 400)));
        }
        let launchers = Launchers {
            worker: Some(Arc::new(WorkerLauncher::new(
                setup.folder.clone(),
                |name: &str| std::env::var(name).ok(),
            ))),
            sandbox: jail.as_ref().map(Jail::launcher),
        };
        let policy = policy(&with.which, &setup.root, jail.as_ref());
        let started = tokio::select! {
            manager = Manager::start(servers, launchers, policy) => Some(manager),
            () = signals.any() => None,
        };
        let Some(manager) = started else {
            if let Some(jail) = jail {
                jail.remove().await?;
            }
            return Err(interrupted());
        };
        Ok(Self {
            manager,
            jail,
            no_jail,
            signals,
        })
    }

    /// Does the work, and ends the servers whatever comes of it.
    pub(super) async fn run<T>(
        mut self,
        work: impl AsyncFnOnce(&Manager) -> Result<T>,
    ) -> Result<T> {
        let manager = &self.manager;
        let outcome = tokio::select! {
            outcome = work(manager) => outcome,
            () = self.signals.any() => Err(interrupted()),
        };
        self.manager.shutdown().await;
        if let Some(jail) = self.jail
            && let Err(error) = jail.remove().await
        {
            note(format!("the jail could not be removed: {error:#}"));
        }
        outcome
    }
}

/// Whether a server is to run in the jail.
pub(super) fn is_sandboxed(server: &ServerConfig) -> bool {
    match &server.transport {
        Transport::Stdio { place, .. } => *place == Place::Sandbox,
        Transport::Http { .. } => false,
    }
}

fn policy(which: &Which, root: &Path, jail: Option<&Jail>) -> ManagerPolicy {
    let roots = |folder: PathBuf| {
        // Only a path that is not absolute is none.
        let uri = Url::from_file_path(folder).ok();
        let root = uri.map(|uri| (uri.to_string(), "project".to_owned()));
        root.into_iter().collect()
    };
    let roots = ClientRoots {
        worker: roots(root.to_owned()),
        sandbox: jail.map(|jail| roots(jail.project())).unwrap_or_default(),
    };
    let elicitation: Arc<dyn Elicitation> = match Terminal::open() {
        Some(terminal) => Arc::new(terminal),
        None => Arc::new(Declining),
    };
    ManagerPolicy {
        limits: McpLimits {
            start: which.start_timeout,
            ..McpLimits::default()
        },
        roots,
        elicitation,
        watch: Watch::Nothing,
        ..ManagerPolicy::default()
    }
}

/// A server that must be ready for what is asked of it.
pub(super) async fn ready(manager: &Manager, name: &str, no_jail: Option<&str>) -> Result<()> {
    let all = manager.status();
    let Some(status) = all.iter().find(|it| it.config.name == name) else {
        return Err(
            Failure::new(Exit::NotFound, format!("there is no MCP server '{name}'")).into(),
        );
    };
    match trouble(manager, status, no_jail).await {
        None => Ok(()),
        Some(trouble) => {
            let mut message = format!("MCP server '{name}' is not there: {}", trouble.what);
            if !trouble.stderr.is_empty() {
                message.push_str("\nthe end of its stderr:\n");
                message.push_str(&trouble.stderr);
            }
            Err(Failure::new(Exit::Other, message).hint(trouble.next).into())
        }
    }
}

/// Why a server does not run.
pub(super) struct Trouble {
    pub(super) what: String,
    /// The end of its stderr; cleaned, may be empty.
    pub(super) stderr: String,
    /// What to do.
    pub(super) next: String,
}

/// Why a server does not run; `None` where it does.
pub(super) async fn trouble(
    manager: &Manager,
    status: &ServerStatus,
    no_jail: Option<&str>,
) -> Option<Trouble> {
    let (what, next) = match &status.state {
        ServerState::Ready => return None,
        ServerState::Disabled => (
            "it is disabled".to_owned(),
            "set \"enabled\": true in its entry".to_owned(),
        ),
        ServerState::Withheld(why) => match no_jail {
            Some(why) if is_sandboxed(&status.config) => (
                format!("it runs in a jail only, and no jail could be made: {why}"),
                "remove the cause; servers that need no jail are not affected".to_owned(),
            ),
            _ => (why.clone(), "change its entry".to_owned()),
        },
        ServerState::Starting => (
            "it is still being started".to_owned(),
            "give it more time with --start-timeout".to_owned(),
        ),
        ServerState::Restarting { after: error } | ServerState::Failed(error) => {
            (error.to_string(), next_step(status, error))
        }
    };
    let stderr = match &status.state {
        ServerState::Failed(McpError::Process { stderr, .. }) if !stderr.is_empty() => {
            stderr.clone()
        }
        _ => manager.stderr(&status.config.name).await,
    };
    Some(Trouble {
        what: one_line(&what, 600),
        stderr: ending(&stderr),
        next: clean(&next),
    })
}

/// What to do about a server that did not come up. More than the error knows: it names this command
/// itself as the next step.
fn next_step(status: &ServerStatus, error: &McpError) -> String {
    let Transport::Stdio { command, .. } = &status.config.transport else {
        return "check `url` and `headers`, and that the server is up".to_owned();
    };
    let line = one_line(&command.join(" "), 100);
    let origin = &status.config.origin;
    match error {
        McpError::Process { .. } => format!(
            "run `{line}` by hand; its entry is {}:{}",
            origin.file.display(),
            origin.line
        ),
        McpError::Connection { .. } | McpError::Protocol { .. } => format!(
            "does `{line}` speak MCP on stdout, and nothing else? If it only needs time: --start-timeout"
        ),
        McpError::Configuration { .. } | McpError::ToolExecution { .. } => error.hint(),
    }
}

/// What happened to servers beside what [`trouble`] and their offers tell.
pub(super) fn further(manager: &Manager) -> Vec<Notice> {
    let mut notices = manager.notices();
    notices.retain(|notice| match notice.kind {
        NoticeKind::Failed | NoticeKind::LeftOut => false,
        NoticeKind::Crashed
        | NoticeKind::Restarted
        | NoticeKind::GivenUp
        | NoticeKind::Changed
        | NoticeKind::Shadowed => true,
    });
    notices
}

/// The last lines of a hostile text.
fn ending(text: &str) -> String {
    let text = clean(text);
    let lines: Vec<&str> = text.trim().lines().collect();
    let from = lines.len().saturating_sub(STDERR_LINES);
    let lines: Vec<String> = lines[from..]
        .iter()
        .map(|line| one_line(line, 300))
        .collect();
    lines.join("\n")
}

/// Tells on stderr which of the servers do not run, and what was left out of the others. The code to
/// end with: what was asked for is shown all the same, but it is not all.
pub(super) async fn tell_absent(manager: &Manager, no_jail: Option<&str>) -> Exit {
    let mut exit = Exit::Done;
    for status in manager.status() {
        if let Some(trouble) = trouble(manager, &status, no_jail).await {
            exit = Exit::Other;
            note(format!("{}: {}", status.config.name, trouble.what));
            note(format!("hint: {}", trouble.next));
        }
    }
    tell_left_out(&manager.catalog());
    exit
}

/// Tells on stderr which parts of the offers are left out.
pub(super) fn tell_left_out(catalog: &Catalog) {
    for (name, offer) in &catalog.servers {
        for left_out in &offer.left_out {
            note(format!("{name}: left out: {}", one_line(left_out, 300)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_end_of_a_stderr_is_shown() {
        let text: String = (0..40).map(|n| format!("line {n}\x1b[2J\n")).collect();
        let shown = ending(&text);
        assert_eq!(shown.lines().count(), STDERR_LINES);
        assert!(shown.ends_with("line 39\u{fffd}[2J"));
    }
}

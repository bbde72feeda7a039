//! The servers of one command: started, used, stopped.
//!
//! Ctrl-C and SIGTERM end the command and all its servers; an open request is cancelled.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use agentmine_mcp::config::{ServerConfig, ServerPlace};
use agentmine_mcp::{
    ClientRoots, Declining, Elicitation, Launchers, Manager, ManagerPolicy, McpLimits, Watch,
};
use agentmine_runtime::exit::{Exit, Failure};
use anyhow::Result;
use tokio::signal::unix::{Signal, SignalKind, signal};
use url::Url;

use crate::print::{note, one_line};

use super::args::{Which, With};
use super::ask::Terminal;
use super::jail::Jail;
use super::setup::Setup;
use super::trouble::Servers;

/// Ctrl-C and SIGTERM.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    async fn any(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

fn interrupted() -> anyhow::Error {
    Failure::new(Exit::Other, "interrupted; the servers were stopped").into()
}

/// Starts the servers, and a jail for those that need one, does the work, and stops them, also after an error.
pub(super) async fn run<T>(
    with: &With,
    setup: &Setup,
    servers: Vec<ServerConfig>,
    work: impl AsyncFnOnce(&Servers) -> Result<T>,
) -> Result<T> {
    let mut signals = Signals {
        interrupt: signal(SignalKind::interrupt())?,
        terminate: signal(SignalKind::terminate())?,
    };
    let mut jail = None;
    let mut no_jail = None;
    if servers
        .iter()
        .any(|it| it.place() == Some(ServerPlace::Sandbox))
    {
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
        worker: Some(Arc::new(setup.launcher())),
        sandbox: jail.as_ref().map(Jail::launcher),
    };
    let policy = policy(&with.which, &setup.root, jail.as_ref());
    let started = tokio::select! {
        manager = Manager::start(servers, launchers, policy) => Ok(manager),
        () = signals.any() => Err(interrupted()),
    };
    let outcome = match started {
        Ok(manager) => {
            let servers = Servers { manager, no_jail };
            let outcome = tokio::select! {
                outcome = work(&servers) => outcome,
                () = signals.any() => Err(interrupted()),
            };
            servers.manager.shutdown().await;
            outcome
        }
        Err(error) => Err(error),
    };
    if let Some(jail) = jail
        && let Err(error) = jail.remove().await
    {
        note(format!("the jail could not be removed: {error:#}"));
    }
    outcome
}

fn policy(which: &Which, root: &Path, jail: Option<&Jail>) -> ManagerPolicy {
    let roots = |folder: PathBuf| {
        // Fails only for a relative path.
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

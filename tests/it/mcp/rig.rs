//! A manager for one test, and a search for what it leaves behind.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use agentmine_mcp::config::ServerConfig;
use agentmine_mcp::{
    Launcher, Launchers, Manager, ManagerPolicy, McpLimits, ServerState, ServerStatus,
    WorkerLauncher,
};
use agentmine_tests::mcp::Mark;

/// Time limit for anything that has none of its own.
pub(super) const PATIENCE: Duration = Duration::from_secs(70);

/// Short enough for tests, and long enough for a busy machine.
pub(super) fn policy() -> ManagerPolicy {
    ManagerPolicy {
        limits: McpLimits {
            start: Duration::from_secs(60),
            total: Duration::from_secs(20),
            ..McpLimits::default()
        },
        restart_backoff: Duration::from_millis(50),
        ..ManagerPolicy::default()
    }
}

pub(super) fn worker(cwd: &Path) -> Launchers {
    let launcher = WorkerLauncher::new(cwd.to_owned(), |name| std::env::var(name).ok());
    Launchers {
        worker: Some(Arc::new(launcher)),
        sandbox: None,
    }
}

pub(super) fn sandbox(launcher: impl Launcher) -> Launchers {
    Launchers {
        worker: None,
        sandbox: Some(Arc::new(launcher)),
    }
}

pub(super) fn status(manager: &Manager, server: &str) -> ServerStatus {
    let all = manager.status();
    let known = format!("{all:#?}");
    let found = all.into_iter().find(|status| status.config.name == server);
    found.unwrap_or_else(|| panic!("no {server} in {known}"))
}

/// Waits until a server satisfies a condition.
pub(super) async fn wait_for(
    manager: &Manager,
    server: &str,
    what: &str,
    is_so: impl Fn(&ServerStatus) -> bool,
) -> ServerStatus {
    let began = Instant::now();
    loop {
        let status = status(manager, server);
        if is_so(&status) {
            return status;
        }
        assert!(
            began.elapsed() < PATIENCE,
            "waited in vain for {server} to be {what}: {status:#?}"
        );
        // The manager exposes its state, not changes of it.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub(super) fn assert_ready(manager: &Manager, server: &str) {
    let status = status(manager, server);
    assert_eq!(status.state, ServerState::Ready, "{server}: {status:#?}");
}

/// Starts marked servers, all on the worker.
pub(super) async fn start(
    servers: impl IntoIterator<Item = ServerConfig>,
    cwd: &Path,
    policy: ManagerPolicy,
) -> (Manager, Mark) {
    let mark = Mark::default();
    let servers: Vec<_> = servers.into_iter().map(|server| mark.on(server)).collect();
    (Manager::start(servers, worker(cwd), policy).await, mark)
}

/// Shuts it down, and checks that no process is left.
pub(super) async fn end(manager: Manager, mark: &Mark) {
    let ended = tokio::time::timeout(Duration::from_secs(10), manager.shutdown()).await;
    assert!(ended.is_ok(), "the shutdown does not end");
    assert_eq!(mark.gone_within(Duration::from_millis(200)).await, Ok(()));
}

//! The consumer: claims tasks, prepares a sandbox for each, runs the agent in it, measures the result,
//! and reports.
//!
//! A slot holds no message while it works: it takes one, claims the row, acknowledges the message, and
//! only then begins (ARCHITECTURE.md). A session writes to the outside world only through effects, each
//! of which happens once, and records its steps in the journal under its lease.

mod claim;
mod error;
mod metrics;
mod one;
mod prepare;
mod presence;
mod record;
mod report;
mod run;
mod session;
mod sweep;
mod verify;
mod warm;
mod wiring;

use std::sync::Arc;

use agentmine_runtime::config::{Config, warn_of_open_file};
use agentmine_runtime::redact;
use agentmine_runtime::shutdown::Shutdown;

pub use one::{RunOne, run_one};
pub use prepare::traffic::Traffic;
pub use record::live::Progress;
pub use record::secret::operator_secrets;
pub use run::servers::launcher::SandboxLauncher;
pub use session::deps::ConsumerDeps;
pub use wiring::{ConsumerArgs, ConsumerCommand, connect, main};

/// When a consumer ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConsumerMode {
    /// When no task is waiting.
    Once,
    /// On shutdown.
    Continuous,
}

/// The operator's MCP file holds secrets too.
fn keep_operator_secrets(config: &Config) {
    let secrets = operator_secrets(config);
    if let Some(file) = &config.mcp.config_file {
        warn_of_open_file(file, &secrets);
    }
    redact::hide(secrets);
}

/// Runs `config.consumer.concurrency` slots and the background work until `mode` or `stop` ends them.
/// Returns the number of sessions.
pub async fn run(deps: Arc<ConsumerDeps>, mode: ConsumerMode, stop: Shutdown) -> u64 {
    metrics::describe();
    ::metrics::gauge!("agentmine_slots").set(deps.config.consumer.concurrency as f64);
    keep_operator_secrets(&deps.config);
    let (deps, warm) = warm::start(deps, mode, &stop);
    let presence = Arc::new(presence::Presence::announce(&deps.config));
    let sweep = sweep::start(&deps, &presence);
    let mut slots = tokio::task::JoinSet::new();
    for index in 0..deps.config.consumer.concurrency {
        slots.spawn(claim::slot::run(
            Arc::clone(&deps),
            presence.worker(index),
            mode,
            stop.clone(),
        ));
    }
    let (mut sessions, mut is_orderly) = (0, true);
    while let Some(ended) = slots.join_next().await {
        match ended {
            Ok(count) => sessions += count,
            Err(error) => {
                is_orderly = false;
                tracing::error!(%error, "a slot ended unexpectedly");
            }
        }
    }
    sweep.stop().await;
    warm.end(&stop).await;
    if is_orderly && !stop.killed().is_cancelled() {
        presence.withdraw();
    }
    sessions
}

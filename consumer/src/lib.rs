//! The consumer: claims tasks, prepares a sandbox for each, runs the agent in it, has the result
//! measured, and reports.
//!
//! A slot holds no message while it works: it takes one, claims the row, acknowledges, and only then
//! begins (ARCHITECTURE.md). What a session does to the outside world goes through effects, each of
//! which happens once; what it records goes to the journal under its lease.

mod claim;
mod error;
mod metrics;
mod prepare;
mod record;
mod report;
mod run;
mod session;
mod sweep;
mod verify;
mod wiring;

use std::sync::Arc;

use agentmine_runtime::shutdown::Shutdown;

pub use prepare::traffic::Traffic;
pub use record::live::Progress;
pub use run::policy::{Denied, check_command};
pub use run::servers::launcher::SandboxLauncher;
pub use session::deps::ConsumerDeps;
pub use wiring::{ConsumerArgs, connect, main};

/// How long to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConsumerMode {
    /// Until nothing is waiting.
    Once,
    /// Until told to stop.
    Continuous,
}

/// Runs `config.consumer.concurrency` slots and the background work until the mode or `stop` ends
/// it. Returns how many sessions were run.
pub async fn run(deps: Arc<ConsumerDeps>, mode: ConsumerMode, stop: Shutdown) -> u64 {
    metrics::describe();
    let sweep = sweep::start(&deps);
    let mut slots = tokio::task::JoinSet::new();
    for index in 0..deps.config.consumer.concurrency {
        slots.spawn(claim::slot::run(
            Arc::clone(&deps),
            index,
            mode,
            stop.clone(),
        ));
    }
    let mut sessions = 0;
    while let Some(ended) = slots.join_next().await {
        match ended {
            Ok(count) => sessions += count,
            Err(error) => tracing::error!(%error, "a slot ended by itself"),
        }
    }
    sweep.stop().await;
    sessions
}

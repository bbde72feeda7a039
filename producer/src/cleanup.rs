//! Clears sandboxes that were left behind (spec 001 §7.4): by what the store says of each, by age
//! only where no row knows it, and never while the store cannot be read.

use std::time::Duration;

use agentmine_domain::Epoch;
use agentmine_sandbox::FoundSandbox;
use agentmine_store::SandboxFate;
use chrono::Utc;

use crate::ProducerDeps;

/// One pass. What cannot be done now is said and left to the next.
pub(crate) async fn clear(deps: &ProducerDeps) {
    let Some(backend) = &deps.backend else { return };
    let found = match backend.list().await {
        Ok(found) => found,
        Err(error) => {
            tracing::warn!(%error, "left-over sandboxes cannot be listed; set producer.cleanup to false where there is no engine");
            return;
        }
    };
    let old =
        Duration::from_secs(deps.config.command_executor.cleanup.stale_threshold_hours * 3600);
    for sandbox in found {
        if is_stale(deps, &sandbox, old).await {
            match backend.remove(&sandbox).await {
                Ok(()) => tracing::info!(sandbox.name, "a left-over sandbox is removed"),
                Err(error) => {
                    tracing::warn!(sandbox.name, %error, "a left-over sandbox could not be removed")
                }
            }
        }
    }
}

async fn is_stale(deps: &ProducerDeps, sandbox: &FoundSandbox, old: Duration) -> bool {
    let aged = (Utc::now() - sandbox.created_at)
        .to_std()
        .is_ok_and(|age| age >= old);
    let Some(task) = sandbox.task else {
        return aged;
    };
    match deps
        .store
        .sandbox_fate(task, sandbox.epoch.unwrap_or(Epoch(0)))
        .await
    {
        Ok(SandboxFate::Alive) => false,
        Ok(SandboxFate::Dead) => true,
        Ok(SandboxFate::Unknown) => aged,
        Err(error) => {
            tracing::warn!(sandbox.name, %error, "the store cannot be read, so the sandbox stays");
            false
        }
    }
}

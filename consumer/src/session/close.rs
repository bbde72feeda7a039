//! The end of a session: what the tracker is told, and what becomes of the row.

use std::time::Duration;

use agentmine_agent::Halt;
use agentmine_domain::{EndState, TaskLabel};
use agentmine_store::{Attempt, Claim, LeaseEnd};

use crate::Deps;
use crate::record::live::Progress;
use crate::report::Report;
use crate::report::effects::store_halt;
use crate::session::context::Context;

/// Tells the tracker how it ended and closes the lease. A failure here leaves the lease to run out;
/// the next attempt then finds the effects that were done.
pub(crate) async fn close(ctx: &Context, end: Result<Report, Halt>) {
    let last_attempt = ctx.task.attempt >= ctx.deps.config.consumer.max_attempts;
    let (close, told) = match end {
        Ok(report) => {
            let close = LeaseEnd::Finish {
                state: EndState::Done,
                reason: report.missing.map(|m| format!("partial: {m}")),
                pull_request_url: report.url,
            };
            (close, Ok(()))
        }
        Err(Halt::LeaseLost) => {
            tracing::warn!("the lease is lost; nothing more is written");
            return;
        }
        Err(Halt::Draining) => (
            LeaseEnd::Release {
                reason: "the worker was told to end".into(),
                delay: Duration::ZERO,
                attempt: Attempt::Refunded,
            },
            Ok(()),
        ),
        Err(Halt::Cancelled(reason)) => (
            end_as(EndState::Stopped, &reason),
            ctx.effects.tell_stopped(&reason, &ctx.session_name()).await,
        ),
        Err(Halt::Paused(reason)) => (
            LeaseEnd::Pause { reason },
            ctx.effects.label(TaskLabel::Paused).await,
        ),
        Err(Halt::Retry(reason)) if !last_attempt => {
            tracing::warn!(
                reason,
                attempt = ctx.task.attempt,
                "the session failed and will be tried again"
            );
            let _ = ctx
                .note(&format!(
                    "the session ended and will be tried again: {reason}"
                ))
                .await;
            (
                LeaseEnd::Release {
                    reason,
                    delay: retry_delay(ctx),
                    attempt: Attempt::Charged,
                },
                Ok(()),
            )
        }
        Err(Halt::Retry(reason) | Halt::Failed(reason)) => {
            tracing::error!(reason, "the task failed");
            let _ = ctx.note(&format!("the task failed: {reason}")).await;
            (
                end_as(EndState::Failed, &reason),
                ctx.effects.tell_failed(&reason, &ctx.session_name()).await,
            )
        }
    };
    if let Err(halt) = told {
        tracing::warn!(%halt, "the tracker was not told how the task ended; the sweep will");
    }
    let (end, reason) = match &close {
        LeaseEnd::Finish { state, reason, .. } => (Some(*state), reason.clone()),
        LeaseEnd::Release { reason, .. } | LeaseEnd::Pause { reason } => {
            (None, Some(reason.clone()))
        }
    };
    if let Err(error) = ctx
        .journal
        .unless_halted(|| ctx.deps.store.end_lease(&ctx.lease, &close))
        .await
    {
        tracing::error!(%error, "the lease could not be closed and will run out");
    }
    let task = ctx
        .deps
        .store
        .task(ctx.task.id)
        .await
        .ok()
        .flatten()
        .unwrap_or_else(|| ctx.task.clone());
    ctx.journal.tell(Progress::Ended {
        task: Box::new(task),
        end,
        reason,
    });
}

fn end_as(state: EndState, reason: &str) -> LeaseEnd {
    LeaseEnd::Finish {
        state,
        reason: Some(reason.to_owned()),
        pull_request_url: None,
    }
}

fn retry_delay(ctx: &Context) -> Duration {
    let ladder = &ctx.deps.config.queue.retry_seconds;
    let step = (ctx.task.attempt.max(1) as usize - 1).min(ladder.len().saturating_sub(1));
    Duration::from_secs(ladder.get(step).copied().unwrap_or(5))
}

pub(crate) fn halt_name(halt: &Halt) -> &'static str {
    match halt {
        Halt::Cancelled(_) => "stopped",
        Halt::Paused(_) => "paused",
        Halt::LeaseLost => "lease_lost",
        Halt::Draining => "drained",
        Halt::Retry(_) => "retry",
        Halt::Failed(_) => "failed",
    }
}

pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|s| (*s).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".into())
}

/// A task of a tracker that this process is not configured for goes back; another may have it.
pub(crate) async fn refuse_foreign(deps: &Deps, claim: &Claim) {
    let item = &claim.task.item;
    let reason = format!(
        "no tracker {} at {} is configured in this consumer",
        item.tracker, item.host
    );
    tracing::warn!(reason, "the task is given back");
    let close = LeaseEnd::Release {
        reason,
        delay: Duration::from_secs(30),
        attempt: Attempt::Charged,
    };
    if let Err(error) = deps.store.end_lease(&claim.lease, &close).await {
        tracing::error!(error = %store_halt(error), "the lease could not be closed and will run out");
    }
}

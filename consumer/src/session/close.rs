//! The end of a session: the report to the tracker, and the final write to the task's row.

use std::time::Duration;

use agentmine_domain::{EndState, TaskLabel, credentials_reason, partial_reason};
use agentmine_effects::EffectError;
use agentmine_store::{Attempt, Claim, LeaseEnd};
use chrono::{DateTime, Utc};

use super::context::SessionContext;
use super::deps::ConsumerDeps;
use super::outage::{Outage, outage_reason, spread};
use super::verdict::{Verdict, verdict};
use crate::record::live::Progress;
use crate::report::{Report, report_earlier};

/// The longest wait that an external service can request.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// So many times as long as for anything else a task waits to learn whether its pull request was opened. Nothing
/// can be lost by the wait, and little can be won: the sweep looks for the pull request in any case.
const UNSURE: u32 = 2;

/// How a session ended.
pub(crate) enum Ending {
    /// With a result.
    Result(Report),
    /// With an error, and what that means for the task.
    Error(Verdict),
}

impl Ending {
    /// For logs.
    pub(crate) fn as_str(&self) -> &'static str {
        match self {
            Self::Result(_) => "done",
            Self::Error(verdict) => verdict.as_str(),
        }
    }
}

/// Reports how the session ended and closes the lease. If this fails, the lease expires, and the next
/// attempt finds the effects that are already done. Returns the end that was written; `None` if the lease is lost.
pub(crate) async fn close(ctx: &SessionContext, ending: Ending) -> Option<LeaseEnd> {
    let end = match ending {
        Ending::Result(report) => done(report),
        Ending::Error(Verdict::Abandon) => {
            tracing::warn!("the lease is lost; nothing more is written");
            return None;
        }
        Ending::Error(Verdict::GiveBack) => hand_over(ctx),
        Ending::Error(Verdict::Stop(reason)) => stop(ctx, &reason).await,
        Ending::Error(Verdict::Pause(reason)) => pause(ctx, reason).await,
        Ending::Error(Verdict::Credentials(refusal)) => await_credentials(ctx, &refusal).await,
        Ending::Error(Verdict::Wait { reason, until }) => wait(ctx, reason, until).await?,
        Ending::Error(Verdict::Retry(reason)) if attempts_are_left(ctx) => retry(ctx, reason).await,
        Ending::Error(Verdict::Retry(reason) | Verdict::Fail(reason)) => {
            give_up(ctx, reason).await?
        }
    };
    let is_written = end_lease(ctx, &end).await;
    show(ctx, &end).await;
    is_written.then_some(end)
}

/// A reason, and a sentence on the next line. Where both are shown on one line, a full stop is between them.
fn followed_by(reason: &str, sentence: &str) -> String {
    let reason = reason.trim_end();
    let is_complete = reason.ends_with(['.', '!', '?', ':', ';', '…']) || reason.ends_with("```");
    let stop = match is_complete {
        true => "",
        false => ".",
    };
    format!("{reason}{stop}\n{sentence}")
}

fn hand_over(ctx: &SessionContext) -> LeaseEnd {
    let reason = match ctx.deps.watch {
        // A person watches it, who has started it.
        Some(_) => "it was stopped with Ctrl-C or a signal",
        None => "the worker was shut down",
    };
    LeaseEnd::HandOver {
        reason: reason.into(),
    }
}

async fn stop(ctx: &SessionContext, reason: &str) -> LeaseEnd {
    let session = ctx.session_name();
    log_unreported(ctx.effects.report_stopped(reason, &session).await);
    finish(EndState::Stopped, reason)
}

async fn pause(ctx: &SessionContext, reason: String) -> LeaseEnd {
    // A pause that the session itself came to has its comment already.
    let by_people = ctx.deps.store.request_reason(ctx.task.id).await;
    let reported = match by_people.ok().flatten() {
        Some(reason) => {
            let session = ctx.session_name();
            ctx.effects.report_paused(&reason, &session).await
        }
        None => ctx.effects.label(TaskLabel::Paused).await,
    };
    log_unreported(reported);
    LeaseEnd::Pause { reason }
}

/// Pauses the task until the credentials are accepted; a producer looks for that. The report may be refused too.
async fn await_credentials(ctx: &SessionContext, refusal: &str) -> LeaseEnd {
    tracing::error!(
        refusal,
        "the account or its credentials were refused; the task is paused until they are accepted"
    );
    let reason = credentials_reason(refusal);
    let _ = ctx
        .note(&followed_by(&reason, "The task is paused until then."))
        .await;
    let session = ctx.session_name();
    log_unreported(ctx.effects.report_refused(refusal, &session).await);
    LeaseEnd::Pause { reason }
}

fn attempts_are_left(ctx: &SessionContext) -> bool {
    ctx.task.attempt < ctx.deps.config.consumer.max_attempts
}

fn done(report: Report) -> LeaseEnd {
    LeaseEnd::Finish {
        state: EndState::Done,
        reason: report.missing.as_deref().map(partial_reason),
        pull_request_url: report.url,
    }
}

/// The end of a task that is not tried again: done if an earlier attempt opened a pull request, else failed.
/// While nobody knows whether there is a pull request, the task waits for its tracker, for twice as long as for
/// anything else. `None` if the lease is lost.
async fn give_up(ctx: &SessionContext, failure: String) -> Option<LeaseEnd> {
    let error = match report_earlier(ctx, Some(&failure)).await {
        Ok(Some(report)) => {
            tracing::warn!(
                failure,
                "the attempt failed after an earlier one opened the pull request"
            );
            return Some(done(report));
        }
        Ok(None) => return Some(fail(ctx, &failure).await),
        Err(error) => error,
    };
    match verdict(&error) {
        Verdict::Abandon => None,
        Verdict::GiveBack => Some(hand_over(ctx)),
        Verdict::Stop(reason) => Some(stop(ctx, &reason).await),
        Verdict::Pause(reason) => Some(pause(ctx, reason).await),
        Verdict::Credentials(refusal) => Some(await_credentials(ctx, &refusal).await),
        Verdict::Wait { reason, until } => {
            let outage = Outage::of(ctx).await;
            Some(match outage.age() < outage_limit(ctx) * UNSURE {
                true => continue_later(ctx, &outage, reason, until).await,
                false => fail_unsure(ctx, &failure).await,
            })
        }
        // The claim beyond the last attempt reports the pull request, if there is one.
        Verdict::Retry(_) if !ctx.only_reports() => Some(retry(ctx, failure).await),
        Verdict::Retry(why) | Verdict::Fail(why) => {
            Some(fail_unsure(ctx, &followed_by(&failure, &why)).await)
        }
    }
}

/// The end of a task of which nobody knows whether its pull request was opened. It is left to the sweep to report
/// it, which looks for the pull request first: if there is one, the task is done after all.
async fn fail_unsure(ctx: &SessionContext, failure: &str) -> LeaseEnd {
    let branch = ctx.task.branch();
    let name = ctx.task.item.tracker.pull_request();
    let unsure = format!(
        "It is unknown whether the {name} was opened, because the tracker has not been reachable since. If it was, it is the one from the branch `{branch}`. Once the tracker is reachable, AgentMine looks for it; if it exists, the task is done."
    );
    let reason = followed_by(failure, &unsure);
    tracing::error!(reason, "the task failed; its pull request may be open");
    let _ = ctx.note(&format!("the task failed: {reason}")).await;
    finish(EndState::Failed, &reason)
}

async fn fail(ctx: &SessionContext, reason: &str) -> LeaseEnd {
    tracing::error!(reason, "the task failed");
    let _ = ctx.note(&format!("the task failed: {reason}")).await;
    let session = ctx.session_name();
    log_unreported(ctx.effects.report_failed(reason, &session).await);
    finish(EndState::Failed, reason)
}

/// Waits for an external service without counting the attempt, unless outages have delayed the task for
/// `consumer.outage_seconds`. `None` if the lease is lost.
async fn wait(
    ctx: &SessionContext,
    reason: String,
    until: Option<DateTime<Utc>>,
) -> Option<LeaseEnd> {
    let outage = Outage::of(ctx).await;
    let limit = outage_limit(ctx);
    if outage.age() >= limit {
        let waited = format!(
            "The task has been waiting for external services since {}, for more than consumer.outage_seconds ({} s)",
            outage.since.format("%Y-%m-%d %H:%M UTC"),
            limit.as_secs()
        );
        return give_up(ctx, followed_by(&reason, &waited)).await;
    }
    if !outage.may_be_caused_by_the_task(&reason) {
        return Some(continue_later(ctx, &outage, reason, until).await);
    }
    let reason = followed_by(
        &reason,
        "The engine has now stopped during more than one session of this task, so this attempt counts",
    );
    match attempts_are_left(ctx) {
        true => Some(release(ctx, &outage, reason, until, Attempt::Charged).await),
        false => give_up(ctx, reason).await,
    }
}

fn outage_limit(ctx: &SessionContext) -> Duration {
    Duration::from_secs(ctx.deps.config.consumer.outage_seconds)
}

async fn continue_later(
    ctx: &SessionContext,
    outage: &Outage,
    reason: String,
    until: Option<DateTime<Utc>>,
) -> LeaseEnd {
    release(ctx, outage, reason, until, Attempt::Refunded).await
}

async fn release(
    ctx: &SessionContext,
    outage: &Outage,
    reason: String,
    until: Option<DateTime<Utc>>,
    attempt: Attempt,
) -> LeaseEnd {
    let ladder = &ctx.deps.config.queue.retry_seconds;
    let delay = spread(outage.delay(ladder).max(time_left(until)));
    tracing::warn!(
        reason,
        delay_seconds = delay.as_secs(),
        ?attempt,
        "the task cannot be continued now; it is queued again"
    );
    let reason = outage_reason(&reason);
    let _ = ctx
        .note(&followed_by(&reason, "The task will be continued."))
        .await;
    LeaseEnd::Release {
        reason,
        delay,
        attempt,
    }
}

async fn retry(ctx: &SessionContext, reason: String) -> LeaseEnd {
    tracing::warn!(
        reason,
        attempt = ctx.task.attempt,
        "the session failed and will be retried"
    );
    let note = format!("the session failed and will be retried: {reason}");
    let _ = ctx.note(&note).await;
    LeaseEnd::Release {
        reason,
        delay: retry_delay(ctx),
        attempt: Attempt::Charged,
    }
}

fn retry_delay(ctx: &SessionContext) -> Duration {
    let ladder = &ctx.deps.config.queue.retry_seconds;
    let step = (ctx.task.attempt.max(1) as usize - 1).min(ladder.len().saturating_sub(1));
    Duration::from_secs(ladder.get(step).copied().unwrap_or(5))
}

/// The time until `until`, at most [`LONGEST_WAIT`].
fn time_left(until: Option<DateTime<Utc>>) -> Duration {
    let left = until.and_then(|until| (until - Utc::now()).to_std().ok());
    left.unwrap_or_default().min(LONGEST_WAIT)
}

fn finish(state: EndState, reason: &str) -> LeaseEnd {
    LeaseEnd::Finish {
        state,
        reason: Some(reason.to_owned()),
        pull_request_url: None,
    }
}

fn log_unreported(report: Result<(), EffectError>) {
    if let Err(error) = report {
        tracing::warn!(%error, "the end of the task was not reported; the sweep will report it");
    }
}

/// Whether it was written.
async fn end_lease(ctx: &SessionContext, end: &LeaseEnd) -> bool {
    let closed = ctx
        .heartbeat
        .in_any_case(|| ctx.deps.store.end_lease(&ctx.lease, end))
        .await;
    if let Err(error) = closed {
        tracing::error!(%error, "the lease could not be closed and will expire");
        return false;
    }
    true
}

async fn show(ctx: &SessionContext, end: &LeaseEnd) {
    let (state, reason) = match end {
        LeaseEnd::Finish { state, reason, .. } => (Some(*state), reason.clone()),
        LeaseEnd::Release { reason, .. }
        | LeaseEnd::HandOver { reason }
        | LeaseEnd::Pause { reason } => (None, Some(reason.clone())),
    };
    let row = ctx.deps.store.task(ctx.task.id).await.ok().flatten();
    ctx.live.show(Progress::Ended {
        task: Box::new(row.unwrap_or_else(|| ctx.task.clone())),
        end: state,
        reason,
    });
}

/// Gives back a task whose tracker is not configured here; another consumer may have it.
pub(crate) async fn refuse_foreign(deps: &ConsumerDeps, claim: &Claim) {
    let item = &claim.task.item;
    let reason = format!(
        "no tracker {} at {} is configured in this consumer",
        item.tracker, item.host
    );
    tracing::warn!(reason, "the task is returned to the queue");
    let end = LeaseEnd::Release {
        reason,
        delay: Duration::from_secs(30),
        attempt: Attempt::Charged,
    };
    if let Err(error) = deps.store.end_lease(&claim.lease, &end).await {
        tracing::error!(%error, "the lease could not be closed and will expire");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_that_follow_each_other_have_a_full_stop_between_them() {
        for (reason, shown) in [
            (
                "hint: check OPENAI_API_KEY",
                "hint: check OPENAI_API_KEY.\nNext.",
            ),
            ("gave up after 4 s)\n", "gave up after 4 s).\nNext."),
            ("It failed.", "It failed.\nNext."),
            ("It failed:\n```\nx\n```", "It failed:\n```\nx\n```\nNext."),
        ] {
            assert_eq!(followed_by(reason, "Next."), shown);
        }
    }
}

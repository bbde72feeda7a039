//! The progress comment while a session works: the phase, what is done and what comes, and what was used.
//!
//! What it shows is read from the store, so a worker that takes over continues with it. Guaranteed: it is edited once in
//! `consumer.progress_seconds` at most, and no edit is under way when the session reports. What the comment says at the
//! beginning and at the end is not up to this module.
//!
//! The longer a session lasts, the less often it is edited, except for a new phase. Forges limit what an account writes:
//! GitHub, in all repositories and for all sessions, about 500 texts an hour, and one edit in 30 seconds from each of five
//! sessions is more than that. A limit that is reached stops the other requests of the account too.

use std::time::Duration;

use agentmine_domain::{ItemKind, Phase, TaskState};
use agentmine_effects::{EffectError, may_be_of_comments, working_comment};
use chrono::Utc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::context::SessionContext;

/// A tracker that takes longer for one edit gets the next one.
const LIMIT: Duration = Duration::from_secs(10);
/// The time between two edits in one phase is at least this fraction (a fifth) of the session's age.
const AGE_DIVISOR: u32 = 5;
/// It is at most this multiple of `consumer.progress_seconds`.
const RAREST: u32 = 10;

/// Edits the comment again and again, until the session ends or reports.
pub(super) async fn watch(ctx: &SessionContext, ends: &CancellationToken) {
    if ctx.task.item.kind == ItemKind::Task {
        return;
    }
    let period = Duration::from_secs(ctx.deps.config.consumer.progress_seconds);
    let mut pace = Pace::new(period, Instant::now());
    let mut shown = None;
    while ends
        .run_until_cancelled(tokio::time::sleep(period))
        .await
        .is_some()
    {
        let Some(_open) = ctx.progress.while_open().await else {
            return;
        };
        match tokio::time::timeout(LIMIT, edit(ctx, &mut pace, &mut shown)).await {
            Ok(Ok(())) => {}
            Ok(Err(EffectError::Tracker(error))) if may_be_of_comments(&error) => {
                tracing::debug!(%error, "the item accepts no comments; no progress is shown");
                return;
            }
            Ok(Err(error)) => tracing::debug!(%error, "the progress could not be shown"),
            Err(_) => tracing::debug!("the tracker took too long to show the progress"),
        }
    }
}

async fn edit(
    ctx: &SessionContext,
    pace: &mut Pace,
    shown: &mut Option<String>,
) -> Result<(), EffectError> {
    let (store, id) = (&ctx.deps.store, ctx.task.id);
    let Some(task) = store.task(id).await? else {
        return Ok(());
    };
    let TaskState::Leased(phase) = task.state else {
        return Ok(());
    };
    if !pace.is_due(phase, Instant::now()) {
        return Ok(());
    }
    let sessions = store.sessions(Some(id), 0).await?;
    let name = ctx.session_name();
    let text = working_comment(&task, phase, &sessions, (&name, Utc::now()));
    if shown.as_ref() == Some(&text) {
        return Ok(());
    }
    ctx.effects.comment(&text).await?;
    *shown = Some(text);
    pace.edited(phase, Instant::now());
    Ok(())
}

/// When the comment is to be edited again.
#[derive(Debug)]
struct Pace {
    period: Duration,
    began: Instant,
    /// The newest edit: the phase that it shows, and when it was.
    edited: Option<(Phase, Instant)>,
}

impl Pace {
    fn new(period: Duration, began: Instant) -> Self {
        Self {
            period,
            began,
            edited: None,
        }
    }

    fn is_due(&self, phase: Phase, now: Instant) -> bool {
        self.edited.is_none_or(|(shown, at)| {
            let age = at.saturating_duration_since(self.began);
            let rarest = self.period.saturating_mul(RAREST);
            let wait = (age / AGE_DIVISOR).clamp(self.period, rarest);
            shown != phase || now.saturating_duration_since(at) >= wait
        })
    }

    fn edited(&mut self, phase: Phase, now: Instant) {
        self.edited = Some((phase, now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_secs(30);

    /// At which second each edit is, if one is possible in each period and the phase changes at `second`.
    fn edits(seconds: u64, second: u64) -> Vec<u64> {
        let began = Instant::now();
        let mut pace = Pace::new(PERIOD, began);
        let mut edits = Vec::new();
        for at in (30..=seconds).step_by(30) {
            let phase = match at < second {
                true => Phase::Preparing,
                false => Phase::Running,
            };
            let now = began + Duration::from_secs(at);
            if pace.is_due(phase, now) {
                pace.edited(phase, now);
                edits.push(at);
            }
        }
        edits
    }

    #[test]
    fn a_long_session_edits_its_comment_less_often_except_for_a_new_phase() {
        let first = edits(150, 0);
        assert_eq!(first, [30, 60, 90, 120, 150]);
        let hour = edits(3600, 0);
        assert!((15..=30).contains(&hour.len()), "{hour:?}");
        let apart: Vec<u64> = hour.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(apart.iter().all(|it| *it <= 300), "{hour:?}");
        assert_eq!(apart.last(), Some(&300), "{hour:?}");
        let between = hour[hour.len() - 2] + 30;
        assert!(!hour.contains(&between));
        assert!(edits(3600, between).contains(&between));
    }
}

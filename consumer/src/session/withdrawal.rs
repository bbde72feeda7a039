//! Whether people still want the work (spec 001 §7.1): the item is checked while its session runs.
//!
//! Closing the item, making it confidential, removing every label of the fleet from it, and unassigning the bot withdraw
//! the work; the pause label pauses it.
//! A tracker that does not answer changes nothing. That the bot was assigned is recorded, so that a producer or the next
//! session notices when it no longer is.

use std::time::Duration;

use agentmine_domain::{ItemRef, credentials_reason, pause_label_reason};
use agentmine_effects::is_final;
use agentmine_runtime::config::{Labels, has_label};
use agentmine_runtime::permit::BootInstant;
use agentmine_trackers::{Item, Tracker, TrackerError, closed};

use super::context::SessionContext;
use crate::error::{Interrupt, SessionError};

/// How long an item must not be found before it counts as gone. A tracker may lose sight of a repository for
/// minutes: a token that is being replaced, a repository that moves.
pub(super) fn gone_after(ctx: &SessionContext) -> Duration {
    Duration::from_secs(ctx.deps.config.consumer.item_gone_seconds)
}

/// Looks at the item every `consumer.item_check_seconds`, and ends the session if the work was withdrawn.
/// Never resolves.
pub(super) async fn watch(ctx: &SessionContext, item: &Item) -> std::convert::Infallible {
    let tracker = ctx.effects.tracker();
    let was_assigned = ctx.effects.was_assigned().await.unwrap_or_default();
    let mut seen = Seen {
        recorded: was_assigned,
        ..Seen::default()
    };
    let is_assigned = seen.assigned(tracker, item).await;
    seen.assigned = is_assigned || was_assigned;
    seen.record(ctx).await;
    let period = Duration::from_secs(ctx.deps.config.consumer.item_check_seconds);
    loop {
        tokio::time::sleep(period).await;
        let looked = tracker.item(&ctx.task.item).await;
        let Some(interrupt) = seen.judge(ctx, tracker, looked).await else {
            seen.record(ctx).await;
            continue;
        };
        tracing::info!(%interrupt, "a person withdrew the work");
        // In the row as well, so that it outlives this process and an outage of the store.
        let (store, task) = (&ctx.deps.store, ctx.task.id);
        let persist = || async {
            match &interrupt {
                Interrupt::Stopped(reason) => store.request_stop(task, reason).await,
                Interrupt::Paused(reason) => store.request_pause(task, reason).await,
                Interrupt::LeaseLost | Interrupt::Draining => Ok(false),
            }
        };
        if let Err(error) = ctx.heartbeat.patiently(persist).await {
            tracing::debug!(%error, "the request is only in memory");
        }
        ctx.heartbeat.withdraw(interrupt);
        return std::future::pending().await;
    }
}

/// Why the work on an item is not to begin or continue, if its labels ask for a pause.
pub(super) fn paused(item: &Item, labels: &Labels) -> Option<Interrupt> {
    let asks = labels.asks_for_pause(&item.labels);
    asks.then(|| Interrupt::Paused(pause_label_reason(&labels.pause)))
}

/// Why the work on an item is not wanted; `None` if it is. `earlier` are names that the task's labels had before
/// the configuration was changed: what was queued under them is still wanted.
pub(super) fn withdrawn(
    tracker: &dyn Tracker,
    item: &Item,
    labels: &Labels,
    earlier: &[String],
) -> Option<String> {
    if let Some(reason) = item.closed() {
        return Some(reason.to_owned());
    }
    // A move of labels adds the new one first, so that at every moment the item has one of them.
    let current = labels.entries().map(|(_, name)| name);
    let labelled = current
        .into_iter()
        .chain(earlier)
        .any(|name| has_label(&item.labels, name));
    let removed = tracker.requests_by_label() && !labelled;
    removed.then(|| format!("the label `{}` was removed", labels.processing))
}

/// Looks at the item once more before a pull request shows its text to everybody who sees the repository: it may have been
/// closed, or made confidential, since [`watch`] looked.
///
/// # Errors
/// Returns [`Interrupt::Stopped`] for such an item, and the error of a tracker that is away.
pub(crate) async fn may_be_published(ctx: &SessionContext) -> Result<(), SessionError> {
    let looked = ctx.effects.tracker().item(&ctx.task.item).await;
    if let Some(reason) = closed(&looked) {
        return Err(Interrupt::Stopped(reason.to_owned()).into());
    }
    match looked {
        Err(error) if !is_final(&error) => Err(error.into()),
        // An account that may not read the item may not open the pull request either, or the item is gone.
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Whether the whole repository of an item that was not found is not found: it was deleted or hidden, or the token does not
/// reach it any more. The task is paused until it is found again, as after a refusal of the credentials.
pub(super) async fn hidden(tracker: &dyn Tracker, item: &ItemRef) -> Option<Interrupt> {
    let why = match tracker.repository(item).await {
        Err(error @ (TrackerError::NotFound { .. } | TrackerError::Forbidden { .. })) => error,
        Ok(_) | Err(_) => return None,
    };
    let reason =
        format!("{why}; it was hidden or deleted, or the credentials have no access to it");
    Some(Interrupt::Paused(credentials_reason(&reason)))
}

/// What was seen of the item so far.
#[derive(Default)]
struct Seen {
    /// The bot's login, once it was needed.
    login: Option<String>,
    /// Whether the bot was among the assignees.
    assigned: bool,
    /// Whether that is recorded.
    recorded: bool,
    /// Since when the item was not found, each time it was checked.
    gone: Gone,
}

/// Since when an item has not been found.
#[derive(Default)]
struct Gone(Option<BootInstant>);

impl Gone {
    /// The item was not found at `now`, again. Whether it counts as gone.
    fn missed(&mut self, now: BootInstant, after: Duration) -> bool {
        now >= *self.0.get_or_insert(now) + after
    }
}

impl Seen {
    async fn judge(
        &mut self,
        ctx: &SessionContext,
        tracker: &dyn Tracker,
        looked: Result<Item, TrackerError>,
    ) -> Option<Interrupt> {
        if let Some(reason) = closed(&looked) {
            return Some(Interrupt::Stopped(reason.to_owned()));
        }
        match looked {
            Ok(item) => {
                self.gone = Gone::default();
                let unassigned = self.assigned && !self.assigned(tracker, &item).await;
                let labels = &ctx.deps.config.labels;
                // As a producer judges: the pause label counts first, whatever else was removed.
                if let Some(pause) = paused(&item, labels).filter(|_| item.open) {
                    return Some(pause);
                }
                withdrawn(tracker, &item, labels, &[])
                    .or_else(|| unassigned.then(|| "the bot was unassigned".to_owned()))
                    .map(Interrupt::Stopped)
            }
            Err(TrackerError::NotFound { what, .. }) => {
                if let Some(hidden) = hidden(tracker, &ctx.task.item).await {
                    return Some(hidden);
                }
                let is_gone = self.gone.missed(BootInstant::now(), gone_after(ctx));
                is_gone.then(|| Interrupt::Stopped(format!("{what} no longer exists")))
            }
            Err(error) => {
                tracing::debug!(%error, "the item cannot be checked; the work continues");
                None
            }
        }
    }

    /// Whether the bot is assigned; remembered. An unknown login leaves it as it was.
    async fn assigned(&mut self, tracker: &dyn Tracker, item: &Item) -> bool {
        if self.login.is_none() && (self.assigned || !item.assignees.is_empty()) {
            self.login = tracker.login().await.ok();
        }
        if let Some(login) = &self.login {
            self.assigned = item.is_assigned_to(login);
        }
        self.assigned
    }

    /// Records that the bot is assigned. A store that is away is asked after the next look.
    async fn record(&mut self, ctx: &SessionContext) {
        if self.assigned && !self.recorded {
            self.recorded = ctx.effects.note_assignment().await.is_ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_is_gone_after_ten_minutes_and_not_after_two_looks() {
        let mut gone = Gone::default();
        let begin = BootInstant::now();
        let minute = Duration::from_secs(60);
        assert!(!gone.missed(begin, 10 * minute));
        assert!(!gone.missed(begin + minute / 2, 10 * minute));
        assert!(!gone.missed(begin + 9 * minute, 10 * minute));
        assert!(gone.missed(begin + 10 * minute, 10 * minute));
        gone = Gone::default();
        assert!(
            !gone.missed(begin + 11 * minute, 10 * minute),
            "it was seen meanwhile"
        );
    }
}

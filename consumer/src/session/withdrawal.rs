//! Whether people still want the work (spec 001 §7.1): the item is looked at while its session runs.
//!
//! Closing the item, removing every label of the fleet from it, and unassigning the bot withdraw the work.
//! A tracker that does not answer changes nothing. Accepted: the bot that was unassigned while no session
//! ran is not noticed, since nobody remembers that it was assigned.

use std::time::Duration;

use agentmine_runtime::config::Labels;
use agentmine_trackers::{Item, Tracker, TrackerError};

use super::context::SessionContext;

/// How often in a row an item must not be found before it counts as gone.
const GONE_AFTER: u32 = 2;

/// Looks at the item every `consumer.item_check_seconds`, and ends the session if the work was withdrawn.
/// Never resolves.
pub(super) async fn watch(ctx: &SessionContext, item: &Item) -> std::convert::Infallible {
    let tracker = ctx.effects.tracker();
    let mut seen = Seen::default();
    seen.assigned(tracker, item).await;
    let period = Duration::from_secs(ctx.deps.config.consumer.item_check_seconds);
    loop {
        tokio::time::sleep(period).await;
        let looked = tracker.item(&ctx.task.item).await;
        if let Some(reason) = seen.judge(ctx, tracker, looked).await {
            tracing::info!(reason, "the work was withdrawn");
            // In the row as well, so that it outlives this process and an outage of the store.
            let store = &ctx.deps.store;
            let persist = || store.request_stop(ctx.task.id, &reason);
            if let Err(error) = ctx.heartbeat.patiently(persist).await {
                tracing::debug!(%error, "the withdrawal is only in memory");
            }
            ctx.heartbeat.withdraw(reason);
            return std::future::pending().await;
        }
    }
}

/// Why the work on an item is not wanted; `None` if it is.
pub(super) fn withdrawn(tracker: &dyn Tracker, item: &Item, labels: &Labels) -> Option<String> {
    if !item.open {
        return Some("the item was closed".to_owned());
    }
    // A move of labels adds the new one first, so that at every moment the item has one of them.
    let is_ours = |label: &String| {
        let label = label.to_lowercase();
        labels
            .entries()
            .iter()
            .any(|(_, own)| own.to_lowercase() == label)
    };
    let labelled = item.labels.iter().any(is_ours);
    let removed = tracker.requests_by_label() && !labelled;
    removed.then(|| format!("the label `{}` was removed", labels.processing))
}

/// What was seen of the item so far.
#[derive(Default)]
struct Seen {
    /// The bot's login, once it was needed.
    login: Option<String>,
    /// Whether the bot was among the assignees.
    assigned: bool,
    /// How often in a row the item was not found.
    gone: u32,
}

impl Seen {
    async fn judge(
        &mut self,
        ctx: &SessionContext,
        tracker: &dyn Tracker,
        looked: Result<Item, TrackerError>,
    ) -> Option<String> {
        match looked {
            Ok(item) => {
                self.gone = 0;
                let unassigned = self.assigned && !self.assigned(tracker, &item).await;
                withdrawn(tracker, &item, &ctx.deps.config.labels)
                    .or_else(|| unassigned.then(|| "the bot was unassigned".to_owned()))
            }
            Err(TrackerError::NotFound { what, .. }) => {
                self.gone += 1;
                (self.gone >= GONE_AFTER).then(|| format!("{what} no longer exists"))
            }
            Err(error) => {
                tracing::debug!(%error, "the item cannot be looked at; the work goes on");
                None
            }
        }
    }

    /// Whether the bot is assigned; remembered. An unknown login leaves it as it was.
    async fn assigned(&mut self, tracker: &dyn Tracker, item: &Item) -> bool {
        if self.login.is_none() && !item.assignees.is_empty() {
            self.login = tracker.login().await.ok();
        }
        if let Some(login) = &self.login {
            let is_bot = |assignee: &String| assignee.eq_ignore_ascii_case(login);
            self.assigned = item.assignees.iter().any(is_bot);
        }
        self.assigned
    }
}

//! People end the rounds on a pull request: by a command there, or by a tick that stops a task on it.

use std::sync::Arc;

use agentmine_domain::{ItemRef, Task};
use agentmine_effects::Effects;
use agentmine_trackers::Tracker;
use anyhow::Result;

use super::metrics;
use crate::deps::ProducerDeps;

/// No further round begins on this pull request, if it is one of AgentMine with rounds: that is reported there, and counted once.
/// May be repeated. `reason` is the end of a sentence for people.
pub(crate) async fn stop(
    deps: &ProducerDeps,
    tracker: &Arc<dyn Tracker>,
    pull: &ItemRef,
    reason: &str,
) -> Result<()> {
    let store = &deps.store;
    let watched = store.watched_pulls(pull.tracker, &pull.host).await?;
    for origin in watched.iter().filter(|task| opened(task, pull)) {
        let effects = Effects::of_reconciler(
            Arc::clone(store),
            Arc::clone(tracker),
            deps.config.labels.clone(),
            origin.clone(),
        );
        effects.end_rounds(pull, reason).await?;
        if store.unwatch_pull(origin.id, reason).await? {
            metrics::count_ended("stopped");
        }
        deps.pulls.forget(origin.id);
    }
    Ok(())
}

/// Whether a task opened this pull request. They are compared by number: a repository may be renamed.
pub(crate) fn opened(task: &Task, pull: &ItemRef) -> bool {
    let url = task.pull_request_url.as_ref();
    let number = url.and_then(|url| ItemRef::number_at(url));
    task.item.repository() == pull.repository() && number == Some(pull.number)
}

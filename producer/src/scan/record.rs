//! Records the task of each request, and sets the label that answers it.

use std::collections::HashSet;
use std::sync::Arc;

use agentmine_domain::{NewTask, Priority, Task};
use agentmine_effects::{Effects, is_dashboard};
use agentmine_runtime::config::{PriorityLabels, has_label};
use agentmine_runtime::trace::{Span, SpanContext};
use agentmine_store::{Enqueued, HeldRequest, ScanTime};
use agentmine_trackers::{Candidate, Objection, Tracker, TrackerError, objection_to_request};
use anyhow::{Context as _, Result};

use super::totals::Scan;
use super::waiting::Waiting;
use crate::capacity;
use crate::deps::ProducerDeps;
use crate::rounds::Begun;

/// In how many repositories one scan passes over items since the tracker does not say what their requesters may do: each
/// question may take as long as a time limit.
const MOST_UNASKED: usize = 3;

/// A task of an item that has the request label.
pub(super) struct Requested {
    task: Task,
    /// Whether the label was added after the request that made the task, and the task has taken account
    /// of that in this scan: it was paused, or queued.
    again: bool,
    /// The beginning of the task's trace, from the request that was found to the label that answers it. `None`: the task is older.
    span: Option<Span>,
}

impl Requested {
    /// Of a task that was recorded just now, with which its trace begins.
    fn new(task: Task) -> Self {
        let context = SpanContext::of_task(task.id.0.as_u128());
        let mut span = Span::of_task(context, "enqueue_task");
        span.set("agentmine.task.number", task.number.0);
        span.set("agentmine.tracker", task.item.tracker.as_str());
        Self {
            task,
            again: false,
            span: Some(span),
        }
    }

    /// Of a task that was there before.
    pub(super) fn known(task: Task) -> Self {
        Self {
            task,
            again: false,
            span: None,
        }
    }

    /// Of a round's task.
    pub(super) fn of_round(begun: Begun, scan: &mut Scan) -> Self {
        match begun {
            Begun::Before(task) => Self::known(task),
            Begun::Now(task) => {
                scan.enqueued += 1;
                Self::new(task)
            }
        }
    }
}

/// Records a task for each item that requests work, unless the request is held because its author may not start work.
/// Where the item has one that waits, that one is the
/// answer; where a worker holds it, the label stays on the item, and a scan after its end makes another.
pub(super) async fn record(
    deps: &ProducerDeps,
    tracker: &Arc<dyn Tracker>,
    candidates: Vec<Candidate>,
    (began, waiting): (ScanTime, &Waiting),
    scan: &mut Scan,
) -> Result<Vec<Requested>> {
    let mut tasks = Vec::new();
    let mut unasked = HashSet::new();
    // Once the items are listed: a dashboard may have been opened meanwhile.
    let dashboards = deps.store.dashboards().await?;
    for Candidate {
        item,
        trigger,
        requested,
        title,
        url,
        labels,
    } in candidates
    {
        match is_dashboard(&dashboards, tracker.as_ref(), &item).await {
            Ok(false) => {}
            Ok(true) => {
                tracing::debug!(%item, "a dashboard is never a task");
                continue;
            }
            Err(error) => {
                tracing::debug!(%item, %error, "it may be a dashboard; the next scan checks again");
                continue;
            }
        }
        scan.found += 1;
        let by_label = priority(&deps.config.capacity.priority_labels, &labels);
        let new = NewTask {
            item,
            trigger,
            title,
            url,
            priority: by_label.unwrap_or(Priority::Medium),
        };
        if waiting.knows(deps, &new, by_label).await? {
            continue;
        }
        if unasked.contains(&new.item.repo_id) {
            continue;
        }
        let objection = objection_to_request(tracker.as_ref(), &new.item, &requested).await;
        let objection = match objection {
            // One repository whose permissions cannot be read keeps no other one from its tasks.
            Err(error @ TrackerError::Unavailable { .. }) if unasked.len() < MOST_UNASKED => {
                tracing::warn!(item = %new.item, %error, "the person who requested the work cannot be checked; the next scan tries again");
                unasked.insert(new.item.repo_id);
                continue;
            }
            objection => objection?,
        };
        if let Some(objection) = objection {
            hold(deps, new, objection).await?;
            continue;
        }
        let recorded = match capacity::applies(&deps.config.capacity, new.item.tracker) {
            true => deps.store.enqueue_waiting(&new).await?,
            false => deps.store.enqueue(&new).await?,
        };
        let (task, again) = match recorded {
            Enqueued::Created(task) => {
                scan.enqueued += 1;
                let context = SpanContext::of_task(task.id.0.as_u128());
                tracing::info!(task.id = %task.id, task.number = %task.number, item = %task.item, trace.id = context.trace_id(), "task recorded");
                tasks.push(Requested::new(task));
                continue;
            }
            Enqueued::Known(task) => answer(deps, task, &new.trigger, began).await?,
        };
        tasks.push(Requested {
            again,
            ..Requested::known(task)
        });
    }
    Ok(tasks)
}

/// Keeps a request whose maker may not start work.
async fn hold(deps: &ProducerDeps, new: NewTask, objection: Objection) -> Result<()> {
    let Objection { code, message } = objection;
    let NewTask {
        item,
        trigger,
        title,
        url,
        priority: _,
    } = new;
    tracing::info!(%item, code, "a request for work is held");
    let held = HeldRequest {
        item,
        trigger,
        title,
        url,
        code: code.to_owned(),
        message,
    };
    deps.store.hold_request(&held).await?;
    Ok(())
}

/// The priority that the labels of an item give its task: the highest of them.
fn priority(labels: &PriorityLabels, own: &[String]) -> Option<Priority> {
    let PriorityLabels {
        critical,
        high,
        low,
    } = labels;
    let has = |names: &[String]| names.iter().any(|name| has_label(own, name));
    if has(critical) {
        Some(Priority::Critical)
    } else if has(high) {
        Some(Priority::High)
    } else {
        has(low).then_some(Priority::Low)
    }
}

/// Queues a waiting task again whose item was labelled since. Returns the row as it is then.
async fn answer(
    deps: &ProducerDeps,
    task: Task,
    trigger: &str,
    began: ScanTime,
) -> Result<(Task, bool)> {
    if task.answers(trigger) {
        return Ok((task, false));
    }
    let answered = deps.store.answer_request(task.id, trigger, began);
    if !answered.await? {
        return Ok((task, false));
    }
    tracing::info!(task.id = %task.id, task.number = %task.number, item = %task.item, "requested again; the task is queued");
    let row = deps.store.task(task.id).await?;
    Ok((row.unwrap_or(task), true))
}

/// Sets the item's label once, while the task is queued.
pub(super) async fn label(
    deps: &ProducerDeps,
    tracker: Arc<dyn Tracker>,
    requested: Requested,
) -> Result<()> {
    // The span ends with this function.
    let Requested {
        task,
        again,
        span: _span,
    } = requested;
    let (item, labels) = (task.item.clone(), deps.config.labels.clone());
    let effects = Effects::of_reconciler(Arc::clone(&deps.store), tracker, labels, task);
    let labelled = match again {
        true => effects.label_answered().await,
        false => effects.label_queued().await,
    };
    labelled.with_context(|| format!("the labels of {item} could not be changed"))
}

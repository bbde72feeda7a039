//! One scan: finds items, records tasks, announces them, sets labels.

use std::collections::{HashMap, HashSet};
use std::ops::AddAssign;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use agentmine_domain::{ItemRef, NewTask, Priority, Task};
use agentmine_effects::{Effects, announce, is_dashboard};
use agentmine_runtime::config::{PriorityLabels, has_label};
use agentmine_runtime::trace::{Span, SpanContext};
use agentmine_store::{Enqueued, HeldRequest, ScanTime, WaitingRequest};
use agentmine_trackers::{
    Candidate, Objection, Skipped, Tracker, TrackerError, objection_to_request,
};
use anyhow::{Context as _, Result};

use crate::capacity::{self, Turns};
use crate::commands;
use crate::dashboards;
use crate::deps::ProducerDeps;
use crate::items;
use crate::rounds::{self, Begun};
use crate::waits::{self, AskedBy};

/// Items of waiting tasks that one scan looks at because it does not find them any more.
const MOST_WITHDRAWN: usize = 20;
/// In how many repositories one scan passes over items since the tracker does not say what their requesters may do: each
/// question may take as long as a time limit.
const MOST_UNASKED: usize = 3;

/// Totals of one or more scans.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Scan {
    /// Items that request work.
    pub found: u64,
    /// Tasks that were newly recorded.
    pub enqueued: u64,
    /// Wake-ups that were published.
    pub announced: u64,
}

impl AddAssign for Scan {
    fn add_assign(&mut self, other: Self) {
        let Self {
            found,
            enqueued,
            announced,
        } = other;
        self.found += found;
        self.enqueued += enqueued;
        self.announced += announced;
    }
}

/// Describes the metrics of scans and sets them to what they are before the first one. The last success counts from
/// the start of the process, so that a tracker that can never be scanned is noticed too.
pub(crate) fn describe_metrics(trackers: &[Arc<dyn Tracker>]) {
    metrics::describe_counter!("agentmine_scans_total", "Scans of all trackers, by result.");
    for result in ["ok", "error"] {
        metrics::counter!("agentmine_scans_total", "result" => result).increment(0);
    }
    metrics::describe_gauge!(
        "agentmine_scan_last_success_timestamp_seconds",
        "When a tracker was last scanned with success, in seconds since the Unix epoch."
    );
    metrics::describe_gauge!(
        "agentmine_scan_skipped",
        "Repositories, groups and searches of a tracker that its latest scan could not read."
    );
    for tracker in trackers {
        note_success(tracker.as_ref());
        note_skipped(tracker.as_ref());
    }
}

fn note_skipped(tracker: &dyn Tracker) {
    let count = u32::try_from(tracker.skipped().len()).unwrap_or(u32::MAX);
    metrics::gauge!("agentmine_scan_skipped", "host" => tracker.host().to_owned())
        .set(f64::from(count));
}

fn note_success(tracker: &dyn Tracker) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    metrics::gauge!("agentmine_scan_last_success_timestamp_seconds", "host" => tracker.host().to_owned())
        .set(now.unwrap_or_default().as_secs_f64());
}

/// Scans every tracker once. If one fails, the others are still scanned.
///
/// # Errors
/// Returns the first error, after everything else was done.
pub async fn scan(deps: &ProducerDeps) -> Result<Scan> {
    Box::pin(scan_with(deps, &mut Turns::default())).await
}

/// The same by what earlier passes saw of the waiting tasks.
pub(crate) async fn scan_with(deps: &ProducerDeps, turns: &mut Turns) -> Result<Scan> {
    let mut scan = Scan::default();
    let mut first_error = None;
    let mut known = Vec::new();
    let waiting = Waiting::read(deps).await?;
    for tracker in &deps.trackers {
        match scan_tracker(deps, tracker, &waiting, &mut scan).await {
            Ok(tasks) => {
                note_success(tracker.as_ref());
                known.extend(tasks.into_iter().map(|of| (Arc::clone(tracker), of)));
            }
            Err(error) => keep_first(&mut first_error, error),
        }
    }
    match turns.pass(deps).await {
        Ok(admitted) => known.extend(admitted.into_iter().map(Requested::admitted)),
        Err(error) => keep_first(&mut first_error, error),
    }
    let announced = announce(deps.store.as_ref(), deps.queue.as_ref()).await;
    match announced.context(
        "the tasks are recorded but could not be announced; the next scan or a consumer will announce them",
    ) {
        Ok(count) => scan.announced = count,
        Err(error) => keep_first(&mut first_error, error),
    }
    for (tracker, requested) in known {
        if let Err(error) = label(deps, tracker, requested).await {
            keep_first(&mut first_error, error);
        }
    }
    metrics::counter!("agentmine_scans_total", "result" => if first_error.is_none() { "ok" } else { "error" }).increment(1);
    tracing::info!(
        found = scan.found,
        enqueued = scan.enqueued,
        announced = scan.announced,
        "scanned"
    );
    first_error.map_or(Ok(scan), Err)
}

fn keep_first(slot: &mut Option<anyhow::Error>, error: anyhow::Error) {
    match slot {
        None => *slot = Some(error),
        Some(_) => tracing::warn!(
            error = format!("{error:#}"),
            "another error in the same scan"
        ),
    }
}

/// A task of an item that carries the request label.
struct Requested {
    task: Task,
    /// Whether the label was added after the request that made the task, and the task has taken account
    /// of that in this scan: it was paused, or queued.
    again: bool,
    /// The beginning of the task's trace, from the request that was found to the label that answers it. `None`: the task is older.
    span: Option<Span>,
}

impl Requested {
    fn admitted((tracker, task): (Arc<dyn Tracker>, Task)) -> (Arc<dyn Tracker>, Self) {
        let requested = Self {
            task,
            again: false,
            span: None,
        };
        (tracker, requested)
    }
}

/// The requests whose tasks wait for their turn. They need no look, since there may be thousands, and each scan finds them
/// again.
struct Waiting {
    requests: HashMap<String, WaitingRequest>,
}

impl Waiting {
    async fn read(deps: &ProducerDeps) -> Result<Self> {
        let requests = deps.store.waiting_requests().await?.into_iter();
        let known = requests.map(|request| (request.dedup_key.clone(), request));
        Ok(Self {
            requests: known.collect(),
        })
    }

    /// Whether the task of a request waits. A label of a priority that its item got meanwhile counts; what people set
    /// otherwise stays.
    async fn knows(
        &self,
        deps: &ProducerDeps,
        new: &NewTask,
        by_label: Option<Priority>,
    ) -> Result<bool> {
        let Some(request) = self.requests.get(&new.dedup_key()) else {
            return Ok(false);
        };
        if let Some(priority) = by_label.filter(|priority| *priority != request.priority) {
            deps.store.prioritize(request.task, priority).await?;
        }
        Ok(true)
    }

    /// Ends the tasks of items that a whole scan does not find any more, since nobody wants the work: some in each scan,
    /// for each of these items costs a request.
    async fn end_withdrawn(
        &self,
        deps: &ProducerDeps,
        tracker: &Arc<dyn Tracker>,
        found: &HashSet<String>,
    ) -> Result<()> {
        // A scan finds labels. Whether work without one is still wanted is seen at its turn.
        let by_label = |request: &WaitingRequest| AskedBy::of(request.trigger()) == AskedBy::Label;
        // Of what cannot be read at present nothing is known, and asking for each item would take the others' turns.
        let skipped = tracker.skipped();
        let gone = self.requests.values().filter(|request| {
            let found = found.contains(&request.item.key());
            let is_unread = skipped.iter().any(|it| concerns(it, &request.item));
            tracker.serves(&request.item) && !found && !is_unread && by_label(request)
        });
        for request in gone.take(MOST_WITHDRAWN) {
            let Ok(item) = tracker.item(&request.item).await else {
                continue;
            };
            let asked_by = AskedBy::Label;
            if let Some(reason) = waits::withdrawn(deps, tracker.as_ref(), &item, asked_by) {
                deps.store.request_stop(request.task, &reason).await?;
                tracing::info!(task.id = %request.task, item = %request.item, reason, "a task that waited for its turn ends");
            }
        }
        Ok(())
    }
}

/// Whether what cannot be read is the repository of an item, or a group above it.
fn concerns(skipped: &Skipped, item: &ItemRef) -> bool {
    let is_above = |name: &str| {
        let rest = item.repo_path.strip_prefix(name);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    skipped.what.split_whitespace().any(is_above)
}

/// Admits waiting tasks, and announces them.
///
/// # Errors
/// Of the store, the queue or a tracker; the next pass or scan makes up for it.
pub(crate) async fn admit(deps: &ProducerDeps, turns: &mut Turns) -> Result<()> {
    let admitted = turns.pass(deps).await?;
    announce_admitted(deps, admitted).await
}

async fn announce_admitted(
    deps: &ProducerDeps,
    admitted: Vec<(Arc<dyn Tracker>, Task)>,
) -> Result<()> {
    if admitted.is_empty() {
        return Ok(());
    }
    let announced = announce(deps.store.as_ref(), deps.queue.as_ref()).await;
    for (tracker, requested) in admitted.into_iter().map(Requested::admitted) {
        label(deps, tracker, requested).await?;
    }
    announced?;
    Ok(())
}

/// Scans one repository that a webhook names.
///
/// # Errors
/// Of the tracker, the store or the queue; the next scan makes up for it.
pub(crate) async fn look(
    deps: &ProducerDeps,
    tracker: &Arc<dyn Tracker>,
    path: &str,
) -> Result<Scan> {
    let mut scan = Scan::default();
    commands::look(deps, Some(path)).await;
    items::look(deps, tracker, path).await;
    dashboards::look_at_hint(deps, path).await;
    let began = deps.store.scan_time().await?;
    let label_name = &deps.config.labels.request;
    let candidates = tracker.candidates_in(path, label_name).await?;
    let waiting = Waiting::read(deps).await?;
    let mut requested = record(deps, tracker, candidates, (began, &waiting), &mut scan).await?;
    let watched = rounds::read(deps, tracker, Some(path)).await?;
    let begun = Box::pin(rounds::begin(deps, tracker, watched)).await?;
    requested.extend(begun.into_iter().map(|begun| of_round(begun, &mut scan)));
    let admitted = capacity::admit_in(deps, path).await?;
    announce_admitted(deps, admitted).await?;
    let announced = announce(deps.store.as_ref(), deps.queue.as_ref()).await;
    for requested in requested {
        label(deps, Arc::clone(tracker), requested).await?;
    }
    scan.announced = announced?;
    Ok(scan)
}

async fn scan_tracker(
    deps: &ProducerDeps,
    tracker: &Arc<dyn Tracker>,
    waiting: &Waiting,
    scan: &mut Scan,
) -> Result<Vec<Requested>> {
    let watched = rounds::read(deps, tracker, None).await;
    let began = deps.store.scan_time().await?;
    let candidates = tracker.candidates(&deps.config.labels.request).await;
    note_skipped(tracker.as_ref());
    let candidates =
        candidates.with_context(|| format!("{} could not be scanned", tracker.host()))?;
    let found: HashSet<String> = candidates
        .iter()
        .map(|candidate| candidate.item.key())
        .collect();
    waiting.end_withdrawn(deps, tracker, &found).await?;
    let mut requested = record(deps, tracker, candidates, (began, waiting), scan).await?;
    let begun = match watched {
        Ok(watched) => Box::pin(rounds::begin(deps, tracker, watched)).await,
        Err(error) => Err(error),
    };
    match begun {
        Ok(begun) => requested.extend(begun.into_iter().map(|begun| of_round(begun, scan))),
        // The tasks that were recorded are announced all the same.
        Err(error) => {
            let (host, error) = (tracker.host(), format!("{error:#}"));
            tracing::warn!(
                host,
                error,
                "the pull requests cannot be looked at; the next scan looks again"
            );
        }
    }
    Ok(requested)
}

/// The task of a round, which is to be labelled.
fn of_round(begun: Begun, scan: &mut Scan) -> Requested {
    let task = match begun {
        Begun::Now(task) => task,
        Begun::Before(task) => {
            return Requested {
                task,
                again: false,
                span: None,
            };
        }
    };
    scan.enqueued += 1;
    let context = SpanContext::of_task(task.id.0.as_u128());
    let mut span = Span::of_task(context, "enqueue_task");
    span.set("agentmine.task.number", task.number.0);
    span.set("agentmine.tracker", task.item.tracker.as_str());
    Requested {
        task,
        again: false,
        span: Some(span),
    }
}

/// Records a task for each item that requests work, unless the request is held: whoever made it may not start work.
/// Where the item has one that waits, that one is the
/// answer; where a worker holds it, the label stays on the item, and a scan after its end makes another.
async fn record(
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
                tracing::debug!(%item, %error, "it may be a dashboard; the next scan looks again");
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
                tracing::warn!(item = %new.item, %error, "who asked for work cannot be checked; the next scan asks again");
                unasked.insert(new.item.repo_id);
                continue;
            }
            objection => objection?,
        };
        if let Some(Objection { code, message }) = objection {
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
                let mut span = Span::of_task(context, "enqueue_task");
                span.set("agentmine.task.number", task.number.0);
                span.set("agentmine.tracker", task.item.tracker.as_str());
                tasks.push(Requested {
                    task,
                    again: false,
                    span: Some(span),
                });
                continue;
            }
            Enqueued::Known(task) => answer(deps, task, &new.trigger, began).await?,
        };
        tasks.push(Requested {
            task,
            again,
            span: None,
        });
    }
    Ok(tasks)
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
async fn label(deps: &ProducerDeps, tracker: Arc<dyn Tracker>, requested: Requested) -> Result<()> {
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

//! What must be true once a fleet has settled. The forge's own record of writes and the sandboxes on the engine
//! are asked; the fleet's rows only say which tasks there were.

mod files;
mod journal;
mod left;
mod queues;
mod rows;
mod stale;
mod sums;
mod taken;

use std::collections::BTreeMap;
use std::fmt;

use agentmine_domain::{EndState, SessionEnd, Task, TaskLabel, TaskState};
use agentmine_runtime::config::Labels;
use agentmine_store::TaskFilter;
use agentmine_trackers::FLEET_MARKER;
use chrono::{DateTime, Utc};

use super::fault::Act;
use super::fleet::Fleet;
use super::people::REQUEST;
use super::plan::Outcome;
use crate::forge::{BOT, DEMO};

pub(super) use rows::Rows;

/// `consumer.max_attempts`, which is the default.
const MAX_ATTEMPTS: usize = 3;

/// What kind of promise was broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Broken {
    /// Work that was due was not done.
    Lost,
    /// An effect happened twice.
    Doubled,
    /// A worker wrote after another one had taken its task.
    Stale,
    /// A task was taken from a worker that lived.
    Taken,
    /// Something does not settle.
    Stuck,
    /// The tracker shows something else than what happened.
    Wrong,
    /// The journal has a doubled or a missing step, or a model API would refuse the conversation.
    Journal,
    /// A sandbox, process or file is left.
    Left,
    /// A sum of the fleet is not that of its rows.
    Sums,
}

/// A broken promise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Which promise.
    pub broken: Broken,
    /// What was seen.
    pub detail: String,
}

impl Finding {
    fn new(broken: Broken, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        Self { broken, detail }
    }

    pub(super) fn stuck(detail: impl Into<String>) -> Self {
        Self::new(Broken::Stuck, detail)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.broken, self.detail)
    }
}

/// Who added and removed the labels of an issue, in order: for the report of a fleet that is stuck.
fn label_history(fleet: &Fleet, issue: u64) -> String {
    let events = fleet.forge.label_events(DEMO, issue);
    let lines = events.iter().map(|event| {
        format!(
            "\n    {} {} {:?} by {}",
            event.at.format("%H:%M:%S%.3f"),
            event.event,
            event.label,
            event.actor
        )
    });
    lines.collect()
}

/// What people did.
pub(super) struct Expected<'a> {
    pub(super) issues: &'a [u64],
    pub(super) acts: &'a BTreeMap<u64, Vec<Act>>,
    /// When the database went away.
    pub(super) away: &'a [DateTime<Utc>],
}

/// What keeps the fleet from being settled; `None` if nothing does.
pub(super) async fn unsettled(fleet: &Fleet, issues: &[u64]) -> anyhow::Result<Option<String>> {
    let tasks = fleet.store.tasks(&TaskFilter::default()).await?;
    for task in &tasks {
        if !matches!(task.state, TaskState::Ended(_)) {
            let labels = label_history(fleet, fleet.number(task));
            return Ok(Some(format!(
                "task {} of issue {} is {:?} in epoch {}{labels}",
                task.number, task.item.number, task.state, task.epoch
            )));
        }
    }
    for &issue in issues {
        let is_requested = fleet
            .forge
            .labels(DEMO, issue)
            .iter()
            .any(|it| it == REQUEST);
        if is_requested && fleet.forge.is_open(DEMO, issue) {
            let labels = label_history(fleet, issue);
            return Ok(Some(format!(
                "issue {issue} still has the request label{labels}"
            )));
        }
    }
    if let Some(task) = fleet
        .store
        .unreported(
            std::time::Duration::ZERO,
            agentmine_domain::TaskNumber(0),
            1,
        )
        .await?
        .first()
    {
        return Ok(Some(format!(
            "the end of task {} is not reported",
            task.number
        )));
    }
    let rows = Rows::open(fleet).await?;
    if let Some(open) = rows.open_work().await? {
        return Ok(Some(open));
    }
    let sandboxes = left::to_be_swept(fleet, &tasks).await?;
    if let Some(sandbox) = sandboxes.first() {
        return Ok(Some(format!("the sandbox {sandbox} is left")));
    }
    queues::left(fleet).await
}

/// Asks everything, once the programs have ended.
pub(super) async fn judge(
    fleet: &Fleet,
    expected: &Expected<'_>,
    outcome: &mut Outcome,
) -> anyhow::Result<()> {
    let tasks = fleet.store.tasks(&TaskFilter::default()).await?;
    let sessions = fleet.sessions().await?;
    outcome.tasks = tasks.len();
    for &issue in expected.issues {
        let of_issue: Vec<&Task> = tasks
            .iter()
            .filter(|it| fleet.number(it) == issue)
            .collect();
        let acts = expected.acts.get(&issue).map_or(&[][..], Vec::as_slice);
        if of_issue.is_empty() && fleet.forge.is_open(DEMO, issue) {
            let lost = format!("issue {issue} never became a task");
            outcome.findings.push(Finding::new(Broken::Lost, lost));
        }
        for task in &of_issue {
            judge_end(fleet, task, &sessions, acts, outcome);
            judge_writes(fleet, task, outcome);
        }
        if let Some(newest) = of_issue.first() {
            judge_labels(fleet, newest, outcome);
        }
    }
    for task in &tasks {
        journal::judge(fleet, task, &mut outcome.findings).await?;
        let acts = expected.acts.get(&fleet.number(task));
        let acts = acts.map_or(&[][..], Vec::as_slice);
        files::judge(fleet, task, acts, &mut outcome.findings).await?;
    }
    for (_, reason) in fleet.model.refused() {
        let refused = format!("a strict model API refuses the conversation: {reason}");
        outcome
            .findings
            .push(Finding::new(Broken::Journal, refused));
    }
    outcome
        .findings
        .extend(stale::writes(fleet, &tasks, &sessions));
    outcome
        .findings
        .extend(taken::from_the_living(fleet, &sessions, expected.away));
    outcome.findings.extend(left::find(fleet, &tasks).await?);
    outcome
        .findings
        .extend(sums::find(fleet, &tasks, &sessions).await?);
    if let Some(left) = queues::left(fleet).await? {
        outcome.findings.push(Finding::new(Broken::Left, left));
    }
    outcome.points = points(fleet);
    Ok(())
}

/// Whether the task ended as people wanted.
fn judge_end(
    fleet: &Fleet,
    task: &Task,
    sessions: &[agentmine_domain::Session],
    acts: &[Act],
    outcome: &mut Outcome,
) {
    let withdrawn = acts
        .iter()
        .any(|act| matches!(act, Act::Stop | Act::CloseIssue));
    let closed = acts.iter().any(|act| matches!(act, Act::ClosePullRequest));
    let contested = acts.iter().any(|act| matches!(act, Act::PushToBranch));
    let reason = task.reason.as_deref().unwrap_or("no reason");
    let closing = format!("closed the {}", task.item.tracker.pull_request());
    match task.state {
        TaskState::Ended(EndState::Done) => outcome.done += 1,
        TaskState::Ended(EndState::Stopped) if withdrawn => {}
        TaskState::Ended(EndState::Stopped) if closed && reason.contains(&closing) => {}
        TaskState::Ended(EndState::Failed) if contested => {}
        TaskState::Ended(EndState::Failed) => {
            let expired = sessions
                .iter()
                .filter(|it| it.task == task.id && it.end == Some(SessionEnd::Expired))
                .count();
            if expired >= MAX_ATTEMPTS && reason.contains("gave up after") {
                outcome.worn_out += 1;
            } else {
                let lost = format!("task {} failed: {reason}", task.number);
                outcome.findings.push(Finding::new(Broken::Lost, lost));
            }
        }
        state => {
            let labels = label_history(fleet, fleet.number(task));
            let lost = format!("task {} is {state:?}: {reason}{labels}", task.number);
            outcome.findings.push(Finding::new(Broken::Lost, lost));
        }
    }
}

/// Pull requests and comments of the task, as the forge has them.
fn judge_writes(fleet: &Fleet, task: &Task, outcome: &mut Outcome) {
    let branch = task.branch();
    let pulls = fleet.forge.pulls(DEMO);
    let pulls = pulls.iter().filter(|pull| pull.head == branch).count();
    let is_done = task.state == TaskState::Ended(EndState::Done);
    let number = task.number;
    if pulls > 1 {
        let doubled = format!("task {number} has {pulls} pull requests");
        outcome
            .findings
            .push(Finding::new(Broken::Doubled, doubled));
    }
    if is_done && pulls == 0 {
        let lost = format!("task {number} is done and has no pull request");
        outcome.findings.push(Finding::new(Broken::Lost, lost));
    }
    let comments = fleet.forge.comments(DEMO, fleet.number(task));
    let is_status = |body: &str| body.contains(FLEET_MARKER) && body.contains(":progress -->");
    let ours = comments
        .iter()
        .filter(|it| it.author == BOT && is_status(&it.body));
    let texts: Vec<&str> = ours.map(|it| it.body.as_str()).collect();
    if texts.len() > 1 {
        let doubled = format!("the item of task {number} has {} comments", texts.len());
        outcome
            .findings
            .push(Finding::new(Broken::Doubled, doubled));
    }
    let ways = [
        task.id.to_string(),
        format!("- Task {number}: "),
        format!(" (task {number}): "),
    ];
    let is_there = |text: &&str| ways.iter().any(|way| text.contains(way));
    if is_done && !texts.iter().any(is_there) {
        let lost = format!("task {number} is done and no comment says so");
        outcome.findings.push(Finding::new(Broken::Lost, lost));
    }
}

/// The item has the label of its newest task's end, and no other label of AgentMine.
fn judge_labels(fleet: &Fleet, task: &Task, outcome: &mut Outcome) {
    let labels = Labels::default();
    let right = match TaskLabel::of(task.state) {
        TaskLabel::Processing => &labels.processing,
        TaskLabel::Done => &labels.done,
        TaskLabel::Paused => &labels.paused,
        TaskLabel::Stopped => &labels.stopped,
        TaskLabel::Failed => &labels.failed,
    };
    let ours = labels.entries().map(|(_, name)| name);
    let issue = fleet.number(task);
    let seen: Vec<String> = fleet
        .forge
        .labels(DEMO, issue)
        .into_iter()
        .filter(|it| ours.contains(&it))
        // A closed item's request is not scanned.
        .filter(|it| fleet.forge.is_open(DEMO, issue) || *it != labels.request)
        .collect();
    if seen != [right.clone()] {
        let wrong = format!("issue {issue} has the labels {seen:?}, expected {right:?}");
        outcome.findings.push(Finding::new(Broken::Wrong, wrong));
    }
}

/// What failpoints did, from their own record.
fn points(fleet: &Fleet) -> BTreeMap<String, usize> {
    let mut points = BTreeMap::new();
    for entry in std::fs::read_dir(fleet.points())
        .into_iter()
        .flatten()
        .flatten()
    {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(rest) = name.strip_prefix("hit.") else {
            continue;
        };
        // Without the process and the time.
        if let Some(point) = rest.rsplitn(3, '.').nth(2) {
            *points.entry(point.to_owned()).or_default() += 1;
        }
    }
    points
}

//! Rounds on the pull requests that the fleet opened: reviews and mentions, failed checks, and conflicts begin them.
//!
//! A round is recorded before its task, and its number makes the task's trigger, so any number of producers begin it
//! once. What was found is read from the tracker again each time; only what an earlier look of this process found
//! settled is not read again while the pull request stays as it is.

mod ends;
mod failure;
mod fault;
mod marks;
pub(crate) mod metrics;
mod red;
mod requests;
mod results;
mod seen;
mod stop;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use agentmine_domain::{
    EndState, ItemKind, ItemRef, NewTask, Priority, Round, RoundCause, Task, TaskState,
};
use agentmine_effects::{Effects, Pushers, ReportedCommit};
use agentmine_runtime::config::BranchRemovalRule;
use agentmine_store::Enqueued;
use agentmine_trackers::{CheckMarks, OpenPull, OpenPulls, PullRequest, Tracker, TrackerError};
use anyhow::Result;
use chrono::{DateTime, TimeDelta, Utc};

use crate::capacity;
use crate::deps::ProducerDeps;
use ends::Ended;
use fault::Faults;
use marks::pull_of;
use red::Red;
use requests::{Given, Requests};
use results::newest_result;
use seen::Seen;
pub use seen::SeenPulls;
pub(crate) use stop::{opened, stop};

/// How long after one look at a repository that is not shown the next one is due.
const HIDDEN: Duration = Duration::from_secs(600);

/// The pull requests that are watched, and those that are open.
#[derive(Debug)]
pub(crate) struct Watched {
    tasks: Vec<Task>,
    open: OpenPulls,
}

/// Reads a tracker's watched pull requests, or those of one repository. It is read before the labelled items: the lists
/// also name their repositories, whose ids the scan needs. This also runs without rounds: until the end of
/// a pull request is seen here, its effects are kept and commands in its repository are read.
///
/// # Errors
/// Returns errors of the store, and of the tracker if they concern all of it.
pub(crate) async fn read(
    deps: &ProducerDeps,
    tracker: &Arc<dyn Tracker>,
    only: Option<&str>,
) -> Result<Watched> {
    let tasks = deps.store.watched_pulls(tracker.kind(), tracker.host());
    let mut tasks = tasks.await?;
    tasks.retain(|task| only.is_none_or(|only| task.item.repo_path.eq_ignore_ascii_case(only)));
    let mut known = HashSet::new();
    let mut repos: Vec<ItemRef> = Vec::new();
    for task in &tasks {
        if known.insert(&task.item.repo_id) {
            repos.push(task.item.clone());
        }
    }
    let open = match repos.is_empty() {
        true => OpenPulls::default(),
        false => tracker.open_pulls(&repos).await?,
    };
    Ok(Watched { tasks, open })
}

impl Watched {
    /// Something happened in their repository, perhaps a check that ended.
    pub(crate) fn look_again(&self, deps: &ProducerDeps) {
        self.tasks
            .iter()
            .for_each(|task| deps.pulls.look_again(task.id));
    }
}

/// Begins the rounds that are due on these pull requests, and returns their tasks. What concerns one pull request does
/// not stop the others.
///
/// # Errors
/// Returns errors of the store, and of the tracker if they concern all of it.
pub(crate) async fn begin(
    deps: &ProducerDeps,
    tracker: &Arc<dyn Tracker>,
    watched: Watched,
) -> Result<Vec<Begun>> {
    let Watched { tasks, open } = watched;
    let marks = marks::read(deps, tracker, &tasks, &open).await;
    let mut begun = Vec::new();
    let mut faults = Faults::default();
    for origin in tasks {
        if faults.is_limited(&origin.item) {
            continue;
        }
        let look = Look {
            deps,
            tracker,
            origin: &origin,
            marks: &marks,
        };
        match Box::pin(look.at(&open)).await {
            Ok(task) => {
                faults.none();
                begun.extend(task);
            }
            Err(error) if faults.concerns_all(&origin.item, &error) => return Err(error),
            Err(error) => {
                tracing::warn!(task.id = %origin.id, error = format!("{error:#}"), "a pull request cannot be checked; the next scan tries again");
            }
        }
    }
    Ok(begun)
}

/// The task of a round that no worker has claimed yet.
#[derive(Debug)]
pub(crate) enum Begun {
    /// It was recorded just now.
    Now(Task),
    /// It was recorded before; its label may be missing.
    Before(Task),
}

/// A look at the pull request of one task.
struct Look<'a> {
    deps: &'a ProducerDeps,
    tracker: &'a Arc<dyn Tracker>,
    origin: &'a Task,
    marks: &'a CheckMarks,
}

impl Look<'_> {
    /// Begins a round if one is due.
    async fn at(&self, open: &OpenPulls) -> Result<Option<Begun>> {
        if open.unread.contains(&self.origin.item.repo_id) {
            return Ok(None);
        }
        let seen = self.deps.pulls.get(self.origin.id).unwrap_or_default();
        let Some(pull) = pull_of(self.origin, open) else {
            return match seen.hidden.is_some_and(|again| again > Instant::now()) {
                true => Ok(None),
                false => self.not_listed(open).await.map(|()| None),
            };
        };
        if !self.deps.config.rounds.enabled {
            return Ok(None);
        }
        if seen.is_as(pull) && !seen.is_due() {
            return Ok(None);
        }
        let mark = self.marks.of(pull);
        if seen.is_as(pull) && seen.is_marked(mark) {
            let age = seen.since.map_or(Duration::ZERO, |since| since.elapsed());
            let again = Some(Instant::now() + apart(age));
            self.deps.pulls.put(self.origin.id, Seen { again, ..seen });
            return Ok(None);
        }
        let mut now = Seen {
            updated_at: pull.updated_at,
            head: pull.head_sha.clone(),
            mark: mark.map(|mark| (mark.to_owned(), Instant::now())),
            ..Seen::default()
        };
        now.unsure = seen.unsure.filter(|_| seen.head == now.head);
        now.foreign = seen.foreign.filter(|_| seen.head == now.head);
        let since = seen.since.filter(|_| seen.head == now.head);
        now.since = Some(since.unwrap_or_else(Instant::now));
        let task = self.judge(pull, &mut now).await?;
        self.deps.pulls.put(self.origin.id, now);
        Ok(task)
    }

    async fn judge(&self, pull: &OpenPull, seen: &mut Seen) -> Result<Option<Begun>> {
        let store = &self.deps.store;
        let item = ItemRef {
            kind: ItemKind::PullRequest,
            number: pull.number,
            ..self.origin.item.clone()
        };
        let rounds = store.rounds(&item).await?;
        let latest = match rounds.last() {
            Some(last) => match self.task_of(last, &pull.url).await? {
                Work::Begun(begun) => return Ok(Some(*begun)),
                Work::UnderWay => return Ok(None),
                Work::Over(task) => Some(*task),
            },
            None => None,
        };
        // A person may have put the request label on it: that is a separate task.
        let newest = store.latest_task(&item).await?;
        if newest.as_ref().is_some_and(|task| !is_over(task)) {
            return Ok(None);
        }
        if let Some(ended) = ends::of_last_round(latest.as_ref()) {
            return self.end(&item, ended).await;
        }
        let before = rounds.last().map(|round| round.head.as_str());
        match self.whose_head(&item, pull, before, seen).await? {
            Head::Ours => {}
            Head::Unclear => return Ok(None),
            Head::OfOthers(ended) => return self.end(&item, ended).await,
        }
        let result = match &newest {
            Some(task) if task.round().is_none() => self.effects(task).reported_commit().await?,
            Some(_) | None => None,
        };
        let given = Given::to(newest.as_ref(), result.and_then(|it| it.heard));
        let requests = Requests::read(self.tracker.as_ref(), &item, &rounds, &given);
        let requests = requests.await?;
        let red = Red::read(self.tracker.as_ref(), &item, pull).await?;
        seen.conflicts(red.conflict);
        let settle = self.deps.config.rounds.settle_seconds;
        let first = requests.first().into_iter().chain(red.first()).min();
        // A check may never end, as one that waits for a person: what people ask for does not wait for it, and a red one
        // not for ever.
        let age = seen.since.map_or(Duration::ZERO, |since| since.elapsed());
        let is_unclear = red.pending && requests.first().is_none() && age < LONGEST_CHECK;
        if is_unclear || first.is_some_and(|first| is_younger_than(first, settle)) {
            return Ok(None);
        }
        let mut cause = RoundCause {
            requests: requests.ids(),
            checks: red.checks.clone(),
            conflict: red.conflict == Some(true),
            target: None,
        };
        if cause.is_empty() && (seen.is_unsure() || !red.of_base) {
            seen.settle(is_younger_than(pull.updated_at, SAME_TIME), apart(age));
            return Ok(None);
        }
        let max = self.deps.config.rounds.max;
        if cause.is_empty() {
            return self.end(&item, ends::red_base(&pull.base)).await;
        }
        if rounds.len() >= usize::try_from(max).unwrap_or(usize::MAX) {
            return self.end(&item, ends::limit(max, &requests, &cause)).await;
        }
        if cause.conflict {
            cause.target = red::target(self.tracker.as_ref(), &item, &pull.base).await?;
        }
        red::add_failures(self.tracker.as_ref(), &item, &mut cause.checks).await?;
        if let Some(ended) = ends::same_again(rounds.last(), &cause, &pull.head_sha) {
            return self.end(&item, ended).await;
        }
        self.start(item, pull, &rounds, cause).await
    }

    /// Records the round, then its task.
    async fn start(
        &self,
        pull: ItemRef,
        open: &OpenPull,
        rounds: &[Round],
        cause: RoundCause,
    ) -> Result<Option<Begun>> {
        let last = rounds.last().map_or(0, |round| round.number);
        let round = Round {
            pull,
            number: last + 1,
            origin: self.origin.id,
            head: open.head_sha.clone(),
            cause,
            result: None,
        };
        let recorded = self.deps.store.begin_round(&round).await?;
        match self.task_of(&recorded, &open.url).await? {
            Work::Begun(begun) => Ok(Some(*begun)),
            Work::UnderWay | Work::Over(_) => Ok(None),
        }
    }

    /// The task of a round. One whose process died before it recorded the task is begun now.
    async fn task_of(&self, round: &Round, url: &str) -> Result<Work> {
        let new = NewTask {
            item: round.pull.clone(),
            trigger: round.trigger(),
            title: self.origin.title.clone(),
            url: url.to_owned(),
            priority: Priority::Medium,
        };
        // It waits for its turn like a request of a person.
        let enqueued = match capacity::applies(&self.deps.config.capacity, new.item.tracker) {
            true => self.deps.store.enqueue_waiting(&new).await?,
            false => self.deps.store.enqueue(&new).await?,
        };
        Ok(match enqueued {
            Enqueued::Created(task) => {
                let (number, item) = (round.number, &round.pull);
                metrics::count_begun(&round.cause);
                tracing::info!(task.id = %task.id, task.number = %task.number, %item, round = number, "a round begins");
                Work::Begun(Box::new(Begun::Now(task)))
            }
            // The producer that recorded it may have died before it was labelled.
            Enqueued::Known(task)
                if task.trigger == new.trigger
                    && task.state == TaskState::Queued
                    && task.card.waits_for.is_none()
                    && task.epoch.0 == 0 =>
            {
                Work::Begun(Box::new(Begun::Before(task)))
            }
            Enqueued::Known(task) if task.trigger == new.trigger && is_over(&task) => {
                Work::Over(Box::new(task))
            }
            Enqueued::Known(_) => Work::UnderWay,
        })
    }

    /// Whether the branch is where we left it. `before` is the head that the last round found.
    async fn whose_head(
        &self,
        item: &ItemRef,
        pull: &OpenPull,
        before: Option<&str>,
        seen: &mut Seen,
    ) -> Result<Head> {
        let tasks = self.deps.store.tasks_of_item(item, MOST_TASKS).await?;
        let tasks = tasks.iter().chain([self.origin]);
        let newest = newest_result(tasks, |task| self.effects(task)).await?;
        let Some((ours, left_none)) = newest else {
            return Ok(Head::Ours);
        };
        if ours.pushers == Pushers::Others {
            return Ok(Head::OfOthers(ends::pushed(&pull.head)));
        }
        if ours.commit == pull.head_sha {
            seen.foreign = None;
            return Ok(Head::Ours);
        }
        // A list may lag behind a push of AgentMine: GitLab's by minutes, since a separate job writes it there.
        let Some(since) = seen.foreign else {
            seen.foreign = Some(Instant::now());
            return Ok(Head::Unclear);
        };
        if before == Some(pull.head_sha.as_str()) && since.elapsed() < LONGEST_LAG {
            return Ok(Head::Unclear);
        }
        // A list may lag behind for longer than that. The branch itself does not.
        let now = self.tracker.branch_commit(item, &pull.head).await?;
        if now.as_ref() == Some(&ours.commit) {
            return Ok(Head::Unclear);
        }
        Ok(Head::OfOthers(match pull.head_sha.as_str() {
            "" => ends::removed(&pull.head),
            _ if left_none => ends::unreported(&pull.head),
            _ => ends::pushed(&pull.head),
        }))
    }

    /// It is not among the open ones: closed, merged, or not listed yet.
    async fn not_listed(&self, open: &OpenPulls) -> Result<()> {
        let (item, head) = (&self.origin.item, self.origin.branch());
        let found = match self.tracker.find_pull_request(item, &head).await {
            // The repository is not shown, which may be for a while.
            Err(TrackerError::NotFound { .. }) => {
                let hidden = Some(Instant::now() + HIDDEN);
                let now = Seen {
                    hidden,
                    ..Seen::default()
                };
                self.deps.pulls.put(self.origin.id, now);
                return Ok(());
            }
            found => found?,
        };
        let rule = self.deps.config.rounds.remove_branch;
        let (code, reason, removes) = match &found {
            Some(pull) if pull.open => return Ok(()),
            Some(pull) if pull.merged => {
                let removes = rule != BranchRemovalRule::Never;
                ("merged", "it was merged", removes)
            }
            Some(_) => {
                let removes = rule == BranchRemovalRule::Closed;
                ("closed", "it was closed", removes)
            }
            None => ("gone", "it is gone", false),
        };
        if let Some(pull) = found.filter(|_| removes)
            && self.remove_branch(&pull, open).await? == Removal::Later
        {
            return Ok(());
        }
        self.forget(code, reason).await
    }

    /// Removes the branch of an ended pull request, unless a task works on it, or another pull request is for it.
    async fn remove_branch(&self, ended: &PullRequest, open: &OpenPulls) -> Result<Removal> {
        let (item, head) = (&self.origin.item, self.origin.branch());
        let pull = ItemRef {
            kind: ItemKind::PullRequest,
            number: ended.number,
            ..item.clone()
        };
        let newest = self.deps.store.latest_task(&pull).await?;
        if newest.as_ref().is_some_and(|task| !is_over(task)) {
            return Ok(Removal::Later);
        }
        let is_onto = |it: &OpenPull| it.repo_id == item.repo_id && it.base == head;
        if open.pulls.iter().any(is_onto) {
            return Ok(Removal::Over);
        }
        let worked = newest.as_ref().unwrap_or(self.origin);
        // A round that changed nothing, and one that was stopped, leave what was there before them.
        let mut commit = self.effects(worked).reported_commit().await?;
        if commit.is_none() {
            commit = self.effects(self.origin).reported_commit().await?;
        }
        // What was pushed after it was merged is nowhere else.
        let is_all = |it: &ReportedCommit| !ended.was_merged_without(&it.commit);
        let removable = |it: &ReportedCommit| it.pushers == Pushers::Us && is_all(it);
        if let Some(ours) = commit.filter(removable) {
            self.effects(self.origin)
                .remove_branch(&ours.commit)
                .await?;
        }
        Ok(Removal::Over)
    }

    async fn forget(&self, code: &'static str, reason: &str) -> Result<()> {
        if self.deps.store.unwatch_pull(self.origin.id, reason).await? {
            metrics::count_ended(code);
        }
        self.deps.pulls.forget(self.origin.id);
        tracing::info!(task.id = %self.origin.id, reason, "no further round is made on the pull request");
        Ok(())
    }

    /// No further round: says so on the pull request.
    async fn end(&self, pull: &ItemRef, ended: Ended) -> Result<Option<Begun>> {
        let Ended { code, reason } = ended;
        self.effects(self.origin).end_rounds(pull, &reason).await?;
        self.forget(code, &reason).await.map(|()| None)
    }

    fn effects(&self, task: &Task) -> Effects {
        Effects::of_reconciler(
            Arc::clone(&self.deps.store),
            Arc::clone(self.tracker),
            self.deps.config.labels.clone(),
            task.clone(),
        )
    }
}

/// Times of trackers are whole seconds: what is said in the second in which a pull request was checked shows the same time.
/// The tracker's clock may differ by the rest.
const SAME_TIME: u64 = 60;
/// Tasks on a pull request among which the newest result is looked for.
const MOST_TASKS: u32 = 20;
/// How long a list may show the head that a round found, although the round pushed.
const LONGEST_LAG: Duration = Duration::from_secs(600);
/// How long the checks of a head may continue while others are red.
const LONGEST_CHECK: Duration = Duration::from_secs(3600);

/// How long after one look at the checks of a head the next one is due. They come to an end soon, or change rarely.
fn apart(age: Duration) -> Duration {
    match age < Duration::from_secs(3600) {
        true => Duration::from_secs(60),
        false => Duration::from_secs(600),
    }
}

fn is_younger_than(at: DateTime<Utc>, seconds: u64) -> bool {
    let window = TimeDelta::seconds(i64::try_from(seconds).unwrap_or(i64::MAX));
    Utc::now() - at < window
}

/// Whose commit the source branch is at.
enum Head {
    Ours,
    /// Perhaps the list of pull requests is old.
    Unclear,
    /// Somebody else moved or removed it.
    OfOthers(Ended),
}

/// Whether the branch of an ended pull request is dealt with.
#[derive(PartialEq, Eq)]
enum Removal {
    /// Removed, or to be left.
    Over,
    /// A task still works on it.
    Later,
}

/// How far the task of a round is.
enum Work {
    /// No worker has claimed it yet.
    Begun(Box<Begun>),
    /// It, or another one on the same pull request, is not over.
    UnderWay,
    Over(Box<Task>),
}

fn is_over(task: &Task) -> bool {
    match task.state {
        TaskState::Ended(EndState::Done | EndState::Failed | EndState::Stopped) => true,
        TaskState::Queued | TaskState::Leased(_) | TaskState::Paused => false,
    }
}

//! Ticks: which were set on a dashboard, by whom, and what comes of them.
//!
//! A tick is obeyed if everybody who changed the text since AgentMine wrote it may start work: forges say who changed it, and
//! not which line. Else all of them are undone, with a sentence. Each is obeyed once, no matter who finds it: its record names the
//! text that it was set in, and what came of it, so that the sentence names all ticks of a text also where several processes
//! obeyed them, one after the other. Accepted: a tick that reaches the forge between the last look and the write, some milliseconds, is
//! lost, and the box is shown unticked.

use std::sync::Arc;

use agentmine_domain::markdown::{line, neutralized};
use agentmine_domain::{
    CommandRecord, EffectKey, ItemKind, ItemRef, NewTask, Obeyed, Order, Priority, RepositoryKey,
    Task, TaskState, WaitsFor,
};
use agentmine_effects::{BoxAction, BoxSubject, DashboardBox, DashboardIssue};
use agentmine_store::{EffectState, Enqueued};
use agentmine_trackers::{Admission, Edit, Item, Person, Tracker};
use anyhow::Result;
use chrono::{DateTime, TimeDelta, Utc};
use serde_json::Value;

use super::places::Place;
use super::seen::SettledTicks;
use crate::commands::{Begin, announce_and_label, begin_again};
use crate::deps::ProducerDeps;
use crate::rounds;

/// Characters of a name or reason in a notice.
const MAX_NAME: usize = 200;

/// So long after a text of AgentMine is written, an edit with our account is that text.
const OWN: TimeDelta = TimeDelta::seconds(2);

/// What was found of the ticks in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ticks {
    /// There is none that was not settled.
    Settled,
    /// Some were settled now.
    New,
    /// The forge does not say yet who set them.
    Unknown,
}

/// Who set ticks.
enum Who {
    /// They all may start work; their names.
    Allowed(String),
    /// Somebody may not; a sentence.
    Refused(String),
    Unknown,
}

/// What obeys the ticks of a dashboard.
pub(super) struct Obeying<'a> {
    pub(super) deps: &'a ProducerDeps,
    pub(super) tracker: &'a Arc<dyn Tracker>,
    pub(super) place: &'a Place,
    pub(super) settled: &'a mut SettledTicks,
}

impl Obeying<'_> {
    /// Settles the ticks of the issue as it was read.
    pub(super) async fn settle(
        &mut self,
        issue: &mut DashboardIssue,
        item: &Item,
    ) -> Result<Ticks> {
        let (revision, ticked) = issue.ticked(item);
        if self.settled.revision != revision {
            *self.settled = SettledTicks {
                revision,
                ..SettledTicks::default()
            };
        }
        if ticked.iter().all(|it| self.settled.boxes.contains(it)) {
            return Ok(Ticks::Settled);
        }
        let notice = match self.who(issue, item).await? {
            Who::Unknown if self.settled.unknown == 0 => {
                self.settled.unknown += 1;
                return Ok(Ticks::Unknown);
            }
            Who::Unknown => {
                "A box was ticked, but AgentMine could not find out by whom, so nothing was done. Tick it again.".to_owned()
            }
            Who::Refused(why) => why,
            Who::Allowed(who) => {
                let mut said = Vec::new();
                for &one in &ticked {
                    said.extend(self.obey(issue, one, (&who, revision)).await?);
                }
                let notice = format!("{who} ticked a box: {}.", said.join("; "));
                if said.is_empty() || issue.notice() == notice {
                    // Another process settled them, and said so.
                    self.settled.boxes.extend(ticked);
                    return Ok(Ticks::Settled);
                }
                notice
            }
        };
        issue.note(&notice).await?;
        self.settled.boxes.extend(ticked);
        Ok(Ticks::New)
    }

    /// Who changed the text since it was written. Where only our own account did, a person uses it too.
    async fn who(&self, issue: &DashboardIssue, item: &Item) -> Result<Who> {
        let shown_at = issue.shown_at();
        let since = shown_at.unwrap_or(DateTime::<Utc>::UNIX_EPOCH);
        let mut edits = self.tracker.edits(&item.item, since).await?;
        edits.retain(|edit| edit.what == "text");
        let (mut people, mut own): (Vec<Option<Person>>, Vec<Person>) = (Vec::new(), Vec::new());
        for Edit { by, at, .. } in edits {
            match by {
                Some(by) if self.tracker.is_us(&by).await? => {
                    if shown_at.is_none_or(|shown| at > shown + OWN) {
                        own.push(by);
                    }
                }
                by if people.contains(&by) => {}
                by => people.push(by),
            }
        }
        if people.is_empty() {
            people.extend(own.pop().map(Some));
        }
        if people.is_empty() {
            return Ok(Who::Unknown);
        }
        let mut names = Vec::new();
        for person in people {
            let Some(person) = person else {
                let why = "Somebody whose account no longer exists ticked a box; nothing was done.";
                return Ok(Who::Refused(why.to_owned()));
            };
            let name = named(&person.login);
            if let Admission::Refused(why) = self.tracker.may_start(&item.item, &person).await? {
                tracing::info!(item = %item.item, why, "ticks on a dashboard are undone");
                let why = named(&why);
                return Ok(Who::Refused(format!(
                    "{name} changed this text and may not start work: {why}. Boxes ticked since that change were \
                     unticked; somebody who may start work has to tick them."
                )));
            }
            names.push(name);
        }
        Ok(Who::Allowed(names.join(" and ")))
    }

    /// Does what one tick asks for, once; returns what came of it, no matter who did it.
    async fn obey(
        &self,
        issue: &DashboardIssue,
        one: DashboardBox,
        (who, revision): (&str, i64),
    ) -> Result<Option<String>> {
        let name = format!("dashboard-{}-{revision}", issue.item().number);
        let DashboardBox { action, subject } = one;
        let number = match subject {
            BoxSubject::Task(number) => number,
            BoxSubject::Issue(number) => {
                return self
                    .start_held(issue, (ItemKind::Issue, number), &name)
                    .await;
            }
            BoxSubject::PullRequest(number) => {
                return self
                    .start_held(issue, (ItemKind::PullRequest, number), &name)
                    .await;
            }
        };
        let store = &self.deps.store;
        let task = store.task_by_number(number).await?;
        let Some(task) = task.filter(|it| it.item.repository() == self.key()) else {
            return Ok(Some(format!(
                "there is no task {number} of this repository"
            )));
        };
        let key = EffectKey::command(&format!("{name}-{}", action.as_str()));
        if let Some(EffectState::Done(record)) = store.effect(task.id, &key).await? {
            // The producer that carried it out may have died before it recorded the result.
            let done = match action {
                BoxAction::Stop => "is stopped",
                BoxAction::Start | BoxAction::Retry => "continues",
            };
            let said = came_of(record)?;
            return Ok(Some(
                said.unwrap_or_else(|| format!("task {number} {done}")),
            ));
        }
        let reason = format!("{who} ticked a box on the dashboard");
        let (order, done) = match (action, task.state) {
            (BoxAction::Retry, TaskState::Ended(_)) => {
                let said = self.retry(&task, &name).await?;
                return self.record(&task, &key, said).await;
            }
            (_, TaskState::Ended(_)) => {
                let said = format!("task {number} was already over");
                return self.record(&task, &key, said).await;
            }
            (BoxAction::Stop, _) => (Order::Stop(&reason), "is stopped"),
            (BoxAction::Start | BoxAction::Retry, TaskState::Paused) => {
                (Order::Resume, "continues")
            }
            (BoxAction::Start | BoxAction::Retry, TaskState::Queued) => {
                (Order::SkipDelay, "is started")
            }
            (BoxAction::Start | BoxAction::Retry, TaskState::Leased(_)) => {
                let said = format!("task {number} was already running");
                return self.record(&task, &key, said).await;
            }
        };
        if order == Order::Stop(&reason) && task.item.kind == ItemKind::PullRequest {
            // Before the record of the tick, which is settled by that.
            rounds::stop(self.deps, self.tracker, &task.item, &reason).await?;
        }
        let waits: Option<WaitsFor> = task.card.waits_for.clone();
        if order == Order::SkipDelay && waits.is_some() {
            store.admit_at_once(task.id).await?;
        }
        if let Obeyed::Now { changed } = store.obey(task.id, &key, order).await? {
            tracing::info!(task.id = %task.id, task.number = %task.number, action = action.as_str(), changed, "a tick on a dashboard is carried out");
        }
        if order != Order::Stop(&reason)
            && let Some(now) = store.task(task.id).await?
        {
            announce_and_label(self.deps, self.tracker, &now).await?;
        }
        self.record(&task, &key, format!("task {number} {done}"))
            .await
    }

    /// Records what came of a tick.
    async fn record(&self, task: &Task, key: &EffectKey, said: String) -> Result<Option<String>> {
        let record = CommandRecord {
            changed: None,
            said: Some(said.clone()),
        };
        let record = serde_json::to_value(record)?;
        self.deps.store.effect_done(task.id, key, &record).await?;
        Ok(Some(said))
    }

    async fn retry(&self, over: &Task, trigger: &str) -> Result<String> {
        let new = NewTask {
            item: over.item.clone(),
            trigger: trigger.to_owned(),
            title: over.title.clone(),
            url: over.url.clone(),
            priority: over.priority,
        };
        // A tick does not wait for its turn.
        let next = begin_again(self.deps, over, &new, Begin::AtOnce).await?;
        announce_and_label(self.deps, self.tracker, &next).await?;
        Ok(format!(
            "task {} continues as task {}",
            over.number, next.number
        ))
    }

    /// Anybody who ticked the box may start the work that somebody else asked for.
    async fn start_held(
        &self,
        issue: &DashboardIssue,
        (kind, number): (ItemKind, u64),
        name: &str,
    ) -> Result<Option<String>> {
        let store = &self.deps.store;
        let key = EffectKey::command(&format!("{name}-start"));
        let mut held = self.place.held.iter().map(|held| &held.request);
        let Some(held) = held.find(|it| it.item.kind == kind && it.item.number == number) else {
            // Perhaps since it is a task by now.
            let item = ItemRef {
                kind,
                number,
                ..issue.item()
            };
            let Some(task) = store.latest_task(&item).await? else {
                return Ok(None);
            };
            return Ok(match store.effect(task.id, &key).await? {
                Some(EffectState::Done(record)) => came_of(record)?,
                Some(EffectState::Fresh | EffectState::Unsure) | None => None,
            });
        };
        let new = NewTask {
            item: held.item.clone(),
            trigger: held.trigger.clone(),
            title: held.title.clone(),
            url: held.url.clone(),
            priority: Priority::Medium,
        };
        let recorded = store.enqueue(&new).await?;
        let (Enqueued::Created(task) | Enqueued::Known(task)) = recorded;
        tracing::info!(task.id = %task.id, task.number = %task.number, item = %task.item, "a tick on a dashboard starts a task");
        announce_and_label(self.deps, self.tracker, &task).await?;
        let said = format!("the request is task {}", task.number);
        self.record(&task, &key, said).await
    }

    fn key(&self) -> RepositoryKey {
        self.place.key()
    }
}

/// What came of a tick, by its record.
fn came_of(record: Value) -> Result<Option<String>> {
    let record: Option<CommandRecord> = serde_json::from_value(record)?;
    Ok(record.and_then(|record| record.said))
}

/// A text of others in a notice.
fn named(text: &str) -> String {
    neutralized(&line(text, MAX_NAME))
}

//! One command: which task it is for, who wrote it, and what comes of it.

use std::sync::Arc;

use agentmine_domain::markdown::{line, neutralized};
use agentmine_domain::{
    Addressed, COMMAND_TRIGGER, CommentCommand, EffectKey, ItemKind, ItemRef, NewTask, Obeyed,
    Order, PublicStatus, Task, TaskHome, TaskState,
};
use agentmine_effects::{Effects, announce, draft_number};
use agentmine_store::{Enqueued, TaskEdit, TaskFilter};
use agentmine_trackers::{Admission, Comment, Tracker};
use anyhow::Result;
use chrono::TimeDelta;

use super::place::NEWEST;
use super::words;
use crate::capacity;
use crate::deps::ProducerDeps;
use crate::rounds;

/// By how much the clocks of the database and of a tracker may differ. A command that was obeyed before is known by its record.
const SKEW: TimeDelta = TimeDelta::seconds(30);

/// A command as it was found.
pub(super) struct Given<'a> {
    pub(super) deps: &'a ProducerDeps,
    pub(super) tracker: &'a Arc<dyn Tracker>,
    /// Where it was written.
    pub(super) item: &'a ItemRef,
    pub(super) comment: &'a Comment,
    pub(super) addressed: &'a Addressed,
}

/// Whether a command is for a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bearing {
    /// It was written before the task was requested.
    Older,
    /// It made the task.
    Origin,
    Newer,
}

/// Whether something remains to be done about a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Settled,
    /// There is no task that it could be for. One whose item was labelled a moment before the command was written may
    /// be made yet.
    NoTask,
}

impl Given<'_> {
    /// Obeys it, unless that was done before or its author may not start work.
    pub(super) async fn obey(&self) -> Result<Outcome> {
        let Some(task) = self.task().await? else {
            return Ok(Outcome::NoTask);
        };
        self.obey_for(&task).await?;
        Ok(Outcome::Settled)
    }

    async fn obey_for(&self, task: &Task) -> Result<()> {
        if self.effects(task).is_settled(self.comment).await? {
            return Ok(());
        }
        let bearing = self.bearing(task).await?;
        if bearing == Bearing::Older {
            return Ok(());
        }
        let (tracker, author) = (self.tracker, &self.comment.author);
        if let Admission::Refused(why) = tracker.may_start(self.item, author).await? {
            tracing::info!(item = %self.item, command = %self.addressed, why, "a command is ignored");
            // For good: its author may be allowed to start work later, and a producer that starts reads old comments.
            return Ok(self.effects(task).settle(self.comment).await?);
        }
        match self.addressed {
            Addressed::Known(_) if bearing == Bearing::Origin => self.finish_retry(task).await,
            Addressed::Known(CommentCommand::Retry) if is_over(task) => self.retry(task).await,
            Addressed::Known(command) => self.request(task, *command).await,
            Addressed::Unknown(_) => {
                let answer = words::unknown(self.addressed);
                self.answer(task, &answer).await?;
                Ok(self.effects(task).settle(self.comment).await?)
            }
        }
    }

    /// The task that it is for: the newest one of the item, or on a pull request of AgentMine without one at work, that which
    /// opened it.
    async fn task(&self) -> Result<Option<Task>> {
        let own = self.deps.store.latest_task(self.item).await?;
        let is_at_work = own.as_ref().is_some_and(|task| !is_over(task));
        if self.item.kind != ItemKind::PullRequest || is_at_work {
            return Ok(own);
        }
        let origin = self.origin().await?;
        Ok(match (own, origin) {
            (Some(own), Some(origin)) if is_over(&origin) => Some(own),
            (own, origin) => origin.or(own),
        })
    }

    /// The task that opened this pull request.
    async fn origin(&self) -> Result<Option<Task>> {
        let store = &self.deps.store;
        let in_progress = TaskFilter {
            status: Some(PublicStatus::InProgress),
            ..TaskFilter::default()
        };
        let mut tasks = store.tasks(&in_progress).await?;
        let (kind, host) = (self.item.tracker, &self.item.host);
        tasks.extend(store.watched_pulls(kind, host).await?);
        let newest = TaskFilter {
            limit: NEWEST,
            ..TaskFilter::default()
        };
        let drafts = store.tasks(&newest).await?;
        if let Some(origin) = tasks.iter().find(|task| rounds::opened(task, self.item)) {
            return Ok(Some(origin.clone()));
        }
        // It may have been opened when its work began.
        for task in tasks.into_iter().chain(drafts) {
            if self.is_draft_of(&task).await? {
                return Ok(Some(task));
            }
        }
        // No further round is made on it.
        let ours = store.pull_requests_of(&self.item.repository()).await?;
        let Some(ours) = ours.into_iter().find(|ours| self.is_at(Some(&ours.url))) else {
            return Ok(None);
        };
        let issue = ItemRef {
            kind: ItemKind::Issue,
            number: ours.issue,
            ..self.item.clone()
        };
        Ok(store.latest_task(&issue).await?)
    }

    /// Whether a session of a task opened this pull request before it had a result.
    async fn is_draft_of(&self, task: &Task) -> Result<bool> {
        let is_here = task.item.repository() == self.item.repository();
        if !is_here || task.item.kind != ItemKind::Issue || task.pull_request_url.is_some() {
            return Ok(false);
        }
        let number = draft_number(self.deps.store.as_ref(), task).await?;
        Ok(number == Some(self.item.number))
    }

    /// Whether an address is that of this pull request. They are compared by number: a repository may be renamed.
    fn is_at(&self, url: Option<&String>) -> bool {
        url.and_then(|url| ItemRef::number_at(url)) == Some(self.item.number)
    }

    async fn bearing(&self, task: &Task) -> Result<Bearing> {
        if let Some(origin) = task.trigger.strip_prefix(COMMAND_TRIGGER) {
            let own = self.comment.remark_id();
            if own == origin {
                return Ok(Bearing::Origin);
            }
            // The ids of one kind of comment rise.
            if let (Ok(own), Ok(origin)) = (own.parse::<u64>(), origin.parse::<u64>()) {
                return Ok(match own < origin {
                    true => Bearing::Older,
                    false => Bearing::Newer,
                });
            }
        }
        let trigger = task.answered_trigger.as_ref().unwrap_or(&task.trigger);
        let requested = match task.home() {
            TaskHome::Item if task.round().is_none() => {
                self.tracker.requested(&task.item, trigger).await?
            }
            TaskHome::Item | TaskHome::Repository | TaskHome::People => None,
        };
        let since = requested.and_then(|requested| requested.at);
        let since = since.unwrap_or(task.created_at - SKEW);
        Ok(match self.comment.created_at < since {
            true => Bearing::Older,
            false => Bearing::Newer,
        })
    }

    /// Leaves it in the row of its task, answers where a reaction does not say enough, and acknowledges it.
    async fn request(&self, task: &Task, command: CommentCommand) -> Result<()> {
        let reason = self.reason();
        let order = match (command, task.state) {
            (CommentCommand::Stop, _) => Order::Stop(&reason),
            (CommentCommand::Pause, _) => Order::Pause(&reason),
            (CommentCommand::Resume, _) | (CommentCommand::Retry, TaskState::Paused) => {
                Order::Resume
            }
            (CommentCommand::Retry, TaskState::Queued) => Order::SkipDelay,
            (CommentCommand::Retry, TaskState::Leased(_) | TaskState::Ended(_))
            | (CommentCommand::Status, _) => Order::Remember,
        };
        let store = &self.deps.store;
        let key = EffectKey::command(&self.comment.remark_id());
        let changed = match store.obey(task.id, &key, order).await? {
            Obeyed::Now { changed } => {
                tracing::info!(task.id = %task.id, task.number = %task.number, %command, changed, "a command was carried out");
                changed
            }
            Obeyed::Before { changed } => changed,
            Obeyed::ByAnother => return Ok(()),
        };
        if command == CommentCommand::Stop && self.item.kind == ItemKind::PullRequest {
            // Also where a round is at work: its origin is what is watched.
            rounds::stop(self.deps, self.tracker, self.item, &reason).await?;
        }
        let ends_rounds = command == CommentCommand::Stop && task.item.key() != self.item.key();
        if command == CommentCommand::Status || !(changed || ends_rounds) {
            let now = store.task(task.id).await?.unwrap_or_else(|| task.clone());
            let sessions = store.sessions(Some(task.id), 0).await?;
            let answer = self.in_answer(&words::status(&now, &sessions, command, changed));
            self.effects(&now).answer_with_state(&answer).await?;
            if !self.comment.kind.takes_reactions() {
                return Ok(self.effects(task).settle(self.comment).await?);
            }
        }
        self.acknowledge(task).await
    }

    /// A new task for the item: the end of one is final.
    async fn retry(&self, over: &Task) -> Result<()> {
        // A pull request without a result is none that can be worked on: its issue is.
        let item = match self.is_draft_of(over).await? {
            true => &over.item,
            false => self.item,
        };
        if item.kind == ItemKind::PullRequest && self.tracker.item(item).await?.closed().is_some() {
            let label = &self.deps.config.labels.request;
            let answer = self.in_answer(&words::closed(item.tracker.pull_request(), label));
            self.effects(over).answer_on(item, &answer).await?;
            return self.acknowledge(over).await;
        }
        let url = match over.item.key() == item.key() {
            true => Some(&over.url),
            false => over.pull_request_url.as_ref(),
        };
        let new = NewTask {
            item: item.clone(),
            trigger: format!("{COMMAND_TRIGGER}{}", self.comment.remark_id()),
            title: over.title.clone(),
            url: url.unwrap_or(&over.url).clone(),
            priority: over.priority,
        };
        let begin = match capacity::applies(&self.deps.config.capacity, new.item.tracker) {
            true => Begin::InTurn,
            false => Begin::AtOnce,
        };
        let next = begin_again(self.deps, over, &new, begin).await?;
        match next.trigger == new.trigger {
            true => self.finish_retry(&next).await,
            // It was begun meanwhile by somebody else.
            false => self.acknowledge(&next).await,
        }
    }

    /// What follows the row of a task that this command made.
    async fn finish_retry(&self, task: &Task) -> Result<()> {
        let key = EffectKey::command(&self.comment.remark_id());
        self.deps.store.obey(task.id, &key, Order::Remember).await?;
        announce_and_label(self.deps, self.tracker, task).await?;
        self.acknowledge(task).await
    }

    async fn answer(&self, task: &Task, text: &str) -> Result<()> {
        let text = self.in_answer(text);
        Ok(self.effects(task).answer(&text).await?)
    }

    /// A text with what it answers.
    fn in_answer(&self, text: &str) -> String {
        let at = self.comment.created_at.format("%Y-%m-%d %H:%M UTC");
        format!(
            "In answer to {}, {at}: {text}",
            self.reason().replacen(" wrote ", "'s ", 1)
        )
    }

    /// Says that it was obeyed: by a reaction, or by an answer where the tracker has no reactions.
    async fn acknowledge(&self, task: &Task) -> Result<()> {
        let effects = self.effects(task);
        if self.comment.kind.takes_reactions() {
            return Ok(effects.acknowledge(self.item, self.comment).await?);
        }
        self.answer(task, words::ACCEPTED).await?;
        Ok(effects.settle(self.comment).await?)
    }

    /// Who wrote what.
    fn reason(&self) -> String {
        let author = neutralized(&line(&self.comment.author.login, 100));
        format!("{author} wrote `{}`", self.addressed)
    }

    fn effects(&self, task: &Task) -> Effects {
        effects(self.deps, self.tracker, task)
    }
}

/// Whether a task that a person begins waits for its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Begin {
    AtOnce,
    InTurn,
}

/// A new task for the item of one that is over, whose end is final. Returns it, or that which somebody else began meanwhile.
pub(crate) async fn begin_again(
    deps: &ProducerDeps,
    over: &Task,
    new: &NewTask,
    begin: Begin,
) -> Result<Task> {
    let store = &deps.store;
    let recorded = match begin {
        Begin::InTurn => store.enqueue_waiting(new).await?,
        Begin::AtOnce => store.enqueue(new).await?,
    };
    let next = match recorded {
        Enqueued::Known(next) => return Ok(next),
        Enqueued::Created(next) => next,
    };
    tracing::info!(task.id = %next.id, task.number = %next.number, item = %next.item, "a person starts a task again");
    let on = store.dependencies(over.id).await?;
    let on = on.iter().map(|on| on.number).collect();
    if let Some(edit) = TaskEdit::of_former(&over.card, on) {
        store.edit_task(next.id, &edit).await?;
    }
    Ok(next)
}

/// What follows the row of a task that a person began.
pub(crate) async fn announce_and_label(
    deps: &ProducerDeps,
    tracker: &Arc<dyn Tracker>,
    task: &Task,
) -> Result<()> {
    // A consumer relays too, if the broker is away now.
    if let Err(error) = announce(deps.store.as_ref(), deps.queue.as_ref()).await {
        tracing::debug!(%error, "the task could not be announced; it will be later");
    }
    Ok(effects(deps, tracker, task).label_queued().await?)
}

fn effects(deps: &ProducerDeps, tracker: &Arc<dyn Tracker>, task: &Task) -> Effects {
    Effects::of_reconciler(
        Arc::clone(&deps.store),
        Arc::clone(tracker),
        deps.config.labels.clone(),
        task.clone(),
    )
}

fn is_over(task: &Task) -> bool {
    matches!(task.state, TaskState::Ended(_))
}

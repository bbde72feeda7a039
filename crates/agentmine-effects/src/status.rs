//! AgentMine's one comment on an item, which all of its tasks and rounds share.
//!
//! It shows the newest task that had something to say; those before it are one line each in a folded section, read from
//! the store. It is found by its marker and author, so neither a restored database nor a new account makes a second one
//! where the first may be edited. An older task never replaces what a newer one wrote.
//!
//! What a task says beside its progress (the text editor is missing, the newest answer to a person) is recorded, and every
//! later edit keeps it, no matter who makes it. An answer that says how far the task is goes with the first edit after that
//! changed. Accepted: a session that edits the comment meanwhile may overwrite it with what it
//! said before, until its next edit or the second look at its end.

use agentmine_domain::markdown::cap;
use agentmine_domain::{EffectKey, EndState, ItemKind, ItemRef, Phase, Task, TaskId, TaskState};
use agentmine_store::EffectState;
use agentmine_trackers::{Comment, Marker};
use serde::{Deserialize, Serialize};

use crate::error::unreadable;
use crate::pull_request::{ReportedCommit, reported_commit};
use crate::{EffectError, Effects, progress_comment};

/// Part what is below them from what is above. Readers do not see them.
const NOTICE: &str = "\n\n<!-- agentmine:notice -->\n";
const EARLIER: &str = "\n\n<!-- agentmine:earlier -->\n";
/// With this ends the section of earlier tasks.
const FOLDED: &str = "</details>";

/// Earlier tasks with their own line.
const LINES: usize = 20;
/// Newest tasks of an item that are checked.
const NEWEST: u32 = 50;
/// Characters of what the newest task says: the rest fits below it on every forge.
const MAX_TEXT: usize = 55_000;

/// The tasks of an item that has another task for its comment.
struct Others {
    newer: Vec<TaskId>,
    /// Newest first.
    earlier: Vec<Task>,
}

impl Effects {
    /// Edits the comment on the item for this task, or posts it.
    ///
    /// # Errors
    /// Returns errors of the store and the tracker.
    pub async fn comment(&self, body: &str) -> Result<(), EffectError> {
        let key = EffectKey::progress_comment();
        self.begin(&key).await?;
        let text = cap(body, MAX_TEXT) + &self.notices(Answer::IfTrue).await?;
        self.write_status(&self.task.item, &text).await?;
        self.done(&key, &()).await
    }

    /// Adds to the comment that there is no text editor. Later edits keep it.
    ///
    /// # Errors
    /// Returns errors of the store and the tracker.
    pub async fn editor_comment(&self, text: &str) -> Result<(), EffectError> {
        self.begin(&EffectKey::editor_comment()).await?;
        let notice = Notice::of(text);
        self.add_notice(&EffectKey::editor_comment(), &notice).await
    }

    /// Answers a person in the comment; `text` is Markdown of AgentMine. The answer replaces the one before it. Where a newer
    /// task has the comment, the answer is in what that shows.
    ///
    /// # Errors
    /// Returns errors of the store and the tracker.
    pub async fn answer(&self, text: &str) -> Result<(), EffectError> {
        self.answer_by(Notice::of, text).await
    }

    /// The same with how far the task is. Once that is no longer so, the comment is written without it.
    ///
    /// # Errors
    /// Returns errors of the store and the tracker.
    pub async fn answer_with_state(&self, text: &str) -> Result<(), EffectError> {
        let (task, state) = (self.task.id, shown_state(&self.task));
        let record = |text: &str| Notice {
            text: Some(text.to_owned()),
            task: Some(task),
            state: Some(state),
        };
        self.answer_by(record, text).await
    }

    /// The same on an item, where that may be the pull request that this task opened.
    ///
    /// # Errors
    /// Returns errors of the store and the tracker.
    pub async fn answer_on(&self, on: &ItemRef, text: &str) -> Result<(), EffectError> {
        match on.key() == self.task.item.key() {
            true => self.answer(text).await,
            false => {
                let body = progress_comment(text, "none yet");
                self.comment_elsewhere(on, &EffectKey::answer(), &body)
                    .await
            }
        }
    }

    async fn answer_by(
        &self,
        record: impl Fn(&str) -> Notice + Send,
        text: &str,
    ) -> Result<(), EffectError> {
        let key = EffectKey::answer();
        match self.store.latest_task(&self.task.item).await? {
            Some(latest) if latest.id != self.task.id => {
                let text = format!("About task {}: {text}", self.task.number);
                self.of_other(latest).add_notice(&key, &record(&text)).await
            }
            Some(_) | None => self.add_notice(&key, &record(text)).await,
        }
    }

    /// Says on an item of another kind, a pull request that this task opened, what its tasks do not say themselves. `key` is
    /// what the newest of those keeps it under.
    pub(crate) async fn comment_elsewhere(
        &self,
        on: &ItemRef,
        key: &EffectKey,
        body: &str,
    ) -> Result<(), EffectError> {
        match self.store.latest_task(on).await? {
            Some(latest) => {
                let other = self.of_other(latest);
                other.add_notice(key, &Notice::of(body)).await
            }
            None => self.write_status(on, body).await,
        }
    }

    /// The marker of the comment. What a task in `newer` wrote stays.
    pub(crate) fn status_marker(&self, newer: &[TaskId]) -> Result<Marker, EffectError> {
        let newer = newer.iter().map(TaskId::to_string).collect();
        let (kind, task) = (self.tracker.kind(), self.task.id.to_string());
        let key = EffectKey::progress_comment();
        Ok(Marker::shared(kind, &task, key.key(), newer)?)
    }

    /// The comments of AgentMine on the item that are its one comment: several for a moment at most, or those of former
    /// accounts.
    pub(crate) async fn statuses(&self) -> Result<Vec<Comment>, EffectError> {
        let marker = self.status_marker(&[])?;
        let mut all = self.tracker.comments(&self.task.item).await?;
        all.retain(|comment| comment.ours && marker.is_in(&comment.body));
        Ok(all)
    }

    async fn write_status(&self, on: &ItemRef, text: &str) -> Result<(), EffectError> {
        let Others { newer, earlier } = self.others(on).await?;
        let marker = self.status_marker(&newer)?;
        let body = format!("{text}{}", self.folded(&earlier).await?);
        self.tracker
            .write_comment(on, &marker, &body, &self.permit)
            .await?;
        Ok(())
    }

    /// Records what is to be said beside the progress, and has the comment say it.
    async fn add_notice(&self, key: &EffectKey, notice: &Notice) -> Result<(), EffectError> {
        // The comment may be older than the end of what an answer says.
        let before = [
            self.notices(Answer::AsRecorded).await?,
            self.notices(Answer::IfTrue).await?,
        ];
        self.done(key, notice).await?;
        if self.task.item.kind == ItemKind::Task {
            return Ok(());
        }
        let marker = self.status_marker(&[])?;
        let shown = self.statuses().await?;
        let base = match shown.iter().rfind(|it| marker.is_own(&it.body)) {
            Some(comment) => base(&comment.body, &before),
            None => {
                let text = format!("AgentMine tracks this as task {}.", self.task.number);
                progress_comment(&text, "none yet")
            }
        };
        self.comment(&base).await
    }

    /// What is below the text of the task, with what parts it from that.
    async fn notices(&self, answer: Answer) -> Result<String, EffectError> {
        let mut below = String::new();
        for key in [
            EffectKey::editor_comment(),
            EffectKey::rounds_comment(),
            EffectKey::answer(),
        ] {
            let notice = self.store.effect(self.task.id, &key).await?;
            let Some(EffectState::Done(notice)) = notice else {
                continue;
            };
            // Where the notice is another task's, nothing is recorded here.
            let notice: Option<Notice> =
                serde_json::from_value(notice).map_err(unreadable(&key))?;
            let notice = notice.unwrap_or_default();
            if let Some(text) = &notice.text
                && (answer == Answer::AsRecorded || self.is_true(&notice).await?)
            {
                below += NOTICE;
                below += text;
            }
        }
        Ok(below)
    }

    /// Whether what a notice says of a task is still so. One that says nothing of a task is.
    async fn is_true(&self, notice: &Notice) -> Result<bool, EffectError> {
        let Some(said) = notice.state else {
            return Ok(true);
        };
        let task = match notice.task {
            Some(task) => self.store.task(task).await?,
            None => None,
        };
        Ok(task.is_some_and(|task| shown_state(&task) == said && said != ShownState::Reporting))
    }

    async fn others(&self, on: &ItemRef) -> Result<Others, EffectError> {
        let mut tasks = self.store.tasks_of_item(on, NEWEST).await?;
        if on != &self.task.item {
            // It has no tasks yet. One that comes takes the comment over.
            let newer = tasks.iter().map(|task| task.id).collect();
            return Ok(Others {
                newer,
                earlier: Vec::new(),
            });
        }
        let newer = tasks.iter().filter(|it| it.number > self.task.number);
        let newer = newer.map(|task| task.id).collect();
        tasks.retain(|task| task.number < self.task.number);
        Ok(Others {
            newer,
            earlier: tasks,
        })
    }

    /// The section of the tasks before this one; empty if there is none.
    async fn folded(&self, earlier: &[Task]) -> Result<String, EffectError> {
        if earlier.is_empty() {
            return Ok(String::new());
        }
        let mut lines = String::new();
        for task in earlier.iter().take(LINES) {
            lines += &format!("- {}\n", self.line(task).await?);
        }
        if earlier.len() > LINES {
            lines += "- and earlier ones\n";
        }
        Ok(format!(
            "{EARLIER}<details><summary>Earlier</summary>\n\n{lines}\n{FOLDED}"
        ))
    }

    /// A task in one line: its number, how it ended, and where its result is.
    async fn line(&self, task: &Task) -> Result<String, EffectError> {
        let name = match task.round() {
            Some(round) => format!("Round {round} (task {})", task.number),
            None => format!("Task {}", task.number),
        };
        let how = match task.state {
            TaskState::Ended(EndState::Done) if task.missing().is_some() => "a partial result",
            TaskState::Ended(EndState::Done) => "done",
            TaskState::Ended(EndState::Failed) => "failed",
            TaskState::Ended(EndState::Stopped) => "stopped",
            TaskState::Paused => "paused",
            TaskState::Queued | TaskState::Leased(_) => "not over",
        };
        let result = match task.item.kind {
            ItemKind::Issue | ItemKind::Task => task.pull_request_url.clone(),
            ItemKind::PullRequest => self.commit_of(task).await?.map(|it| it.commit),
        };
        let result = result.map(|it| format!(", {it}")).unwrap_or_default();
        Ok(format!("{name}: {how}{result}"))
    }

    /// The commit that the result of a task was reported on.
    async fn commit_of(&self, task: &Task) -> Result<Option<ReportedCommit>, EffectError> {
        let key = EffectKey::pull_request(&task.branch());
        match self.store.effect(task.id, &key).await? {
            Some(EffectState::Done(result)) => reported_commit(&key, result).map(Some),
            Some(EffectState::Fresh | EffectState::Unsure) | None => Ok(None),
        }
    }

    /// The commit that this task's result was reported on; `None` if it has none.
    ///
    /// # Errors
    /// Returns errors of the store.
    pub async fn reported_commit(&self) -> Result<Option<ReportedCommit>, EffectError> {
        self.commit_of(&self.task).await
    }
}

/// Which answer is among the notices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    AsRecorded,
    /// Only one that is still true.
    IfTrue,
}

/// What a task says beside its progress, as it is recorded.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Notice {
    /// Earlier versions, which posted a comment of its own, recorded none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    /// The task that it says something of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    task: Option<TaskId>,
    /// How far that was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    state: Option<ShownState>,
}

impl Notice {
    /// One that says nothing of how far a task is.
    fn of(text: &str) -> Self {
        Self {
            text: Some(text.to_owned()),
            ..Self::default()
        }
    }
}

/// How far a task is, as roughly as an answer about it lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ShownState {
    Waiting,
    Queued,
    Working,
    /// Its end is about to be shown.
    Reporting,
    Paused,
    Ended,
}

fn shown_state(task: &Task) -> ShownState {
    match task.state {
        TaskState::Queued if task.card.waits_for.is_some() => ShownState::Waiting,
        TaskState::Queued => ShownState::Queued,
        TaskState::Leased(Phase::Reporting) => ShownState::Reporting,
        TaskState::Leased(_) => ShownState::Working,
        TaskState::Paused => ShownState::Paused,
        TaskState::Ended(_) => ShownState::Ended,
    }
}

/// What the newest task says in a comment: without the marker, the earlier tasks and the first of these notices that are
/// there. An edit on a page of the forge changes the line ends to CRLF.
fn base(body: &str, notices: &[String]) -> String {
    let body = body.replace("\r\n", "\n");
    let body = body.rsplit_once("\n<!-- agentmine:task=");
    let body = body.map_or("", |(text, _)| text).trim_end();
    let body = match body.ends_with(FOLDED) {
        true => body
            .rsplit_once(EARLIER)
            .map_or(body, |(text, _)| text)
            .trim_end(),
        false => body,
    };
    let without = |notices: &String| body.strip_suffix(notices.trim_end());
    let text = notices.iter().find_map(without).unwrap_or(body);
    text.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A changed text means that stored notices can no longer be read.
    #[test]
    fn notices_are_stored_as_earlier_versions_stored_them() {
        let id = "018f0000-0000-7000-8000-000000000002";
        let state = |state| Notice {
            text: Some("x".to_owned()),
            task: Some(id.parse().unwrap()),
            state: Some(state),
        };
        let text = |state: &str| format!(r#"{{"text":"x","task":"{id}","state":"{state}"}}"#);
        for (notice, text) in [
            (Notice::of("x"), r#"{"text":"x"}"#.to_owned()),
            (state(ShownState::Waiting), text("waiting")),
            (state(ShownState::Queued), text("queued")),
            (state(ShownState::Working), text("working")),
            (state(ShownState::Reporting), text("reporting")),
            (state(ShownState::Paused), text("paused")),
            (state(ShownState::Ended), text("ended")),
        ] {
            assert_eq!(serde_json::to_string(&notice).unwrap(), text);
            assert_eq!(serde_json::from_str::<Notice>(&text).unwrap(), notice);
        }
        let read = |text| serde_json::from_str::<Option<Notice>>(text).unwrap();
        assert_eq!(read("null"), None);
        assert_eq!(read(r#"{"comment":7}"#), Some(Notice::default()));
    }

    #[test]
    fn what_the_task_says_is_above_notices_and_earlier_tasks() {
        let text = format!("Working.\n\n```text\n{NOTICE}{EARLIER}</details>\n```\n\n<sub>x</sub>");
        let marker = "\n\n<!-- agentmine:task=1:progress -->";
        let folded = format!("{EARLIER}<details>\n\n- Task 1: done\n\n</details>");
        let notice = format!("{NOTICE}old");
        let recorded = [notice.clone(), String::new()];
        for notices in ["", &notice] {
            for earlier in ["", &folded] {
                let shown = format!("{text}{notices}{earlier}{marker}");
                assert_eq!(base(&shown, &recorded), text);
                let edited = shown.replace('\n', "\r\n");
                assert_eq!(base(&edited, &recorded), text);
            }
        }
        assert_eq!(base(&format!("{text}{marker}"), &[notice]), text);
    }
}

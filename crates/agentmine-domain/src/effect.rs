//! Writes to a tracker, each of which happens once.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::ids::Epoch;
use crate::names::{UnknownName, named};
use crate::task::{EndState, TaskState};

named!(
    /// The kind of an effect.
    EffectKind, "effect" {
        /// Changes the item's label.
        Label = "label",
        /// Looks at the label of an end once more.
        LabelCheck = "label_check",
        /// Posts or edits a comment.
        Comment = "comment",
        /// Obeys a command that a person wrote in a comment. Nothing is written to the tracker for it.
        Command = "command",
        /// Acknowledges a comment by a reaction.
        Reaction = "reaction",
        /// Remembers that the bot was assigned to the item. Nothing is written to the tracker for it.
        Assignment = "assignment",
        /// Opens a pull request, or leaves a result in the pull request that is the item.
        PullRequest = "pull_request",
        /// What a pull request is about to say. Nothing is written for it.
        PullRequestText = "pull_request_text",
        /// Opens a pull request before there is a result.
        PullRequestDraft = "pull_request_draft",
        /// Marks a pull request as ready for review. For a round that completed a partial result, also corrects the text first.
        PullRequestReady = "pull_request_ready",
        /// That the branch of the task was pushed. Nothing is written for it.
        BranchPush = "branch_push",
        /// Removes the branch of a pull request that ended.
        BranchRemoval = "branch_removal",
    }
);

named!(
    /// The labels that the fleet sets on an item. Their names on the tracker are configurable.
    TaskLabel, "label" {
        /// The task is queued or leased.
        Processing = "processing",
        /// The task ended with a result.
        Done = "done",
        /// The task is paused.
        Paused = "paused",
        /// The task was stopped.
        Stopped = "stopped",
        /// The task failed.
        Failed = "failed",
    }
);

impl TaskLabel {
    /// The label of a task in this state. Final states and `paused` have the same name as their label;
    /// the store's search for tasks that are not yet reported relies on that.
    #[must_use]
    pub fn of(state: TaskState) -> Self {
        match state {
            TaskState::Queued | TaskState::Leased(_) => Self::Processing,
            TaskState::Paused => Self::Paused,
            TaskState::Ended(EndState::Done) => Self::Done,
            TaskState::Ended(EndState::Stopped) => Self::Stopped,
            TaskState::Ended(EndState::Failed) => Self::Failed,
        }
    }
}

/// The identity of one effect of a task: `(task, kind, key, epoch)` is unique in the store. Created only
/// by the constructors, so that all processes use the same key for the same effect.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct EffectKey {
    kind: EffectKind,
    key: String,
    epoch: Epoch,
}

impl EffectKey {
    /// A label change. A task can be paused and resumed, so the same label may be set once per epoch.
    #[must_use]
    pub fn label(label: TaskLabel, epoch: Epoch) -> Self {
        Self {
            kind: EffectKind::Label,
            key: label.as_str().to_owned(),
            epoch,
        }
    }

    /// The label of a pause that ended in this epoch, under which its name stays known. A later pause in the same epoch has
    /// [`EffectKey::label`] for itself.
    #[must_use]
    pub fn ended_pause_label(epoch: Epoch) -> Self {
        Self {
            kind: EffectKind::Label,
            key: "was_paused".to_owned(),
            epoch,
        }
    }

    /// The label that requested the task. Only its name is recorded: nothing is written for it.
    #[must_use]
    pub fn request_label() -> Self {
        Self::once_per_task(EffectKind::Label, "request")
    }

    /// The second look at the label of an end.
    #[must_use]
    pub fn label_check(label: TaskLabel, epoch: Epoch) -> Self {
        Self {
            kind: EffectKind::LabelCheck,
            ..Self::label(label, epoch)
        }
    }

    /// The task's progress comment, which is edited in place.
    #[must_use]
    pub fn progress_comment() -> Self {
        Self::once_per_task(EffectKind::Comment, "progress")
    }

    /// The task's comment on a text editor that did not start or was lost.
    #[must_use]
    pub fn editor_comment() -> Self {
        Self::once_per_task(EffectKind::Comment, "editor")
    }

    /// The task's reply to a thread of a review.
    #[must_use]
    pub fn thread_reply(thread: &str) -> Self {
        Self::once_per_task(EffectKind::Comment, &format!("thread-{thread}"))
    }

    /// The comment on a pull request of AgentMine that no further round is made.
    #[must_use]
    pub fn rounds_comment() -> Self {
        Self::once_per_task(EffectKind::Comment, "rounds")
    }

    /// The newest answer to a person in the progress comment. Nothing is written for it alone.
    #[must_use]
    pub fn answer() -> Self {
        Self::once_per_task(EffectKind::Comment, "answer")
    }

    /// The command in a comment, by the id of that.
    #[must_use]
    pub fn command(comment: &str) -> Self {
        Self::once_per_task(EffectKind::Command, comment)
    }

    /// The reaction to a comment, by the id of that.
    #[must_use]
    pub fn reaction(comment: &str) -> Self {
        Self::once_per_task(EffectKind::Reaction, comment)
    }

    /// That the bot was among the assignees of the item.
    #[must_use]
    pub fn assignment() -> Self {
        Self::once_per_task(EffectKind::Assignment, "bot")
    }

    /// The pull request from this head branch.
    #[must_use]
    pub fn pull_request(head: &str) -> Self {
        Self::once_per_task(EffectKind::PullRequest, head)
    }

    /// What is about to be written on the pull request from this head branch.
    #[must_use]
    pub fn pull_request_text(head: &str) -> Self {
        Self::once_per_task(EffectKind::PullRequestText, head)
    }

    /// The pull request from this head branch that is opened when the work begins. It is no result.
    #[must_use]
    pub fn pull_request_draft(head: &str) -> Self {
        Self::once_per_task(EffectKind::PullRequestDraft, head)
    }

    /// The pull request from this head branch is marked as ready for review, since its result is complete.
    #[must_use]
    pub fn pull_request_ready(head: &str) -> Self {
        Self::once_per_task(EffectKind::PullRequestReady, head)
    }

    /// The text of the pull request reports that this commit of a round completes a partial result, and a draft is marked as ready
    /// for review.
    #[must_use]
    pub fn pull_request_completion(commit: &str) -> Self {
        Self::once_per_task(EffectKind::PullRequestReady, &format!("completed-{commit}"))
    }

    /// This branch was pushed.
    #[must_use]
    pub fn branch_push(head: &str) -> Self {
        Self::once_per_task(EffectKind::BranchPush, head)
    }

    /// This branch is removed, since its pull request ended.
    #[must_use]
    pub fn branch_removal(head: &str) -> Self {
        Self::once_per_task(EffectKind::BranchRemoval, head)
    }

    /// The comment on a pull request that was opened when the work began, with the comments on the issue.
    #[must_use]
    pub fn transferred_comments() -> Self {
        Self::once_per_task(EffectKind::Comment, "transferred")
    }

    /// The comment on a pull request that was opened when the work began: how the work ended without a result.
    #[must_use]
    pub fn draft_comment() -> Self {
        Self::once_per_task(EffectKind::Comment, "draft")
    }

    fn once_per_task(kind: EffectKind, key: &str) -> Self {
        Self {
            kind,
            key: key.to_owned(),
            epoch: Epoch(0),
        }
    }

    /// The kind.
    #[must_use]
    pub fn kind(&self) -> EffectKind {
        self.kind
    }

    /// Identifies the effect within its kind.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The epoch it belongs to; 0 if the effect happens once per task.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }
}

impl fmt::Display for EffectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.key)?;
        match self.epoch {
            Epoch(0) => Ok(()),
            epoch => write!(f, " of epoch {epoch}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_label_of_an_unleased_task_has_the_name_of_its_state() {
        let at_rest = EndState::ALL.iter().map(|end| TaskState::Ended(*end));
        for state in at_rest.chain([TaskState::Paused]) {
            assert_eq!(TaskLabel::of(state).as_str(), state.as_str());
        }
        assert_eq!(TaskLabel::of(TaskState::Queued), TaskLabel::Processing);
    }

    #[test]
    fn a_label_can_be_set_again_in_the_next_epoch() {
        let paused = |epoch| EffectKey::label(TaskLabel::Paused, Epoch(epoch));
        assert_eq!(paused(1), paused(1));
        assert_ne!(paused(1), paused(2));
        assert_ne!(paused(1), EffectKey::label(TaskLabel::Done, Epoch(1)));
        assert_ne!(EffectKey::pull_request("a"), EffectKey::pull_request("b"));
    }

    #[test]
    fn a_key_is_displayed_with_kind_name_and_epoch() {
        let label = EffectKey::label(TaskLabel::Done, Epoch(3));
        assert_eq!((label.kind(), label.key()), (EffectKind::Label, "done"));
        assert_eq!(label.to_string(), "label done of epoch 3");
        let pull = EffectKey::pull_request("agentmine/issue-7");
        assert_eq!(pull.key(), "agentmine/issue-7");
        assert_eq!(pull.to_string(), "pull_request agentmine/issue-7");
    }

    #[test]
    fn the_second_look_at_a_label_is_an_effect_of_its_own() {
        let label = EffectKey::label(TaskLabel::Done, Epoch(3));
        let check = EffectKey::label_check(TaskLabel::Done, Epoch(3));
        assert_eq!(check.kind(), EffectKind::LabelCheck);
        assert_eq!((check.key(), check.epoch()), (label.key(), label.epoch()));
    }
}

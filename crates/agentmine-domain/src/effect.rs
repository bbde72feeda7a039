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
        /// The item's label is moved.
        Label = "label",
        /// A comment is written or edited.
        Comment = "comment",
        /// A pull request is opened.
        PullRequest = "pull_request",
    }
);

named!(
    /// Which of the fleet's labels an item carries. The trackers' own names for them are configured.
    TaskLabel, "label" {
        /// The task is queued or leased.
        Processing = "processing",
        /// The task ended well.
        Done = "done",
        /// The task is paused.
        Paused = "paused",
        /// The task was stopped on request.
        Stopped = "stopped",
        /// The task ended badly.
        Failed = "failed",
    }
);

impl TaskLabel {
    /// The label of a task in this state. A state that is over or paused has the same name as its
    /// label; the store's search for unreported tasks relies on that.
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

/// The identity of one effect of a task: `(task, kind, key, epoch)` is unique in the store. Made only by
/// the constructors, so that every process that writes or looks for an effect names it alike.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct EffectKey {
    kind: EffectKind,
    key: String,
    epoch: Epoch,
}

impl EffectKey {
    /// A label move. A task can be paused and resumed, so the same label may be due once per epoch.
    #[must_use]
    pub fn label(label: TaskLabel, epoch: Epoch) -> Self {
        Self {
            kind: EffectKind::Label,
            key: label.as_str().to_owned(),
            epoch,
        }
    }

    /// The task's one progress comment, which is edited in place.
    #[must_use]
    pub fn progress_comment() -> Self {
        Self::once_per_task(EffectKind::Comment, "progress")
    }

    /// The pull request from this head branch.
    #[must_use]
    pub fn pull_request(head: &str) -> Self {
        Self::once_per_task(EffectKind::PullRequest, head)
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

    /// Which one of its kind.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The epoch it belongs to; 0 where an effect happens once in the life of a task.
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
    fn a_label_of_a_task_at_rest_has_the_name_of_its_state() {
        let at_rest = EndState::ALL.iter().map(|end| TaskState::Ended(*end));
        for state in at_rest.chain([TaskState::Paused]) {
            assert_eq!(TaskLabel::of(state).as_str(), state.as_str());
        }
        assert_eq!(TaskLabel::of(TaskState::Queued), TaskLabel::Processing);
    }

    #[test]
    fn one_label_is_due_again_in_the_next_epoch() {
        let paused = |epoch| EffectKey::label(TaskLabel::Paused, Epoch(epoch));
        assert_eq!(paused(1), paused(1));
        assert_ne!(paused(1), paused(2));
        assert_ne!(paused(1), EffectKey::label(TaskLabel::Done, Epoch(1)));
        assert_ne!(EffectKey::pull_request("a"), EffectKey::pull_request("b"));
    }

    #[test]
    fn a_key_names_its_kind_its_name_and_its_epoch() {
        let label = EffectKey::label(TaskLabel::Done, Epoch(3));
        assert_eq!((label.kind(), label.key()), (EffectKind::Label, "done"));
        assert_eq!(label.to_string(), "label done of epoch 3");
        let pull = EffectKey::pull_request("agentmine/issue-7");
        assert_eq!(pull.key(), "agentmine/issue-7");
        assert_eq!(pull.to_string(), "pull_request agentmine/issue-7");
    }
}

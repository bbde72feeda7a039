//! The machine-readable part of a note in the journal.

use agentmine_domain::Seq;
use serde::{Deserialize, Serialize};

/// The machine-readable part of a note.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoteFact {
    /// Which files a session continued with.
    Resumed(Resumed),
    /// What is lost if the worker fails.
    Unsaved(Unsaved),
    /// From here on, the model is not sent the results of so many calls, the first ones of the conversation.
    ResultsOmitted(usize),
}

/// Which files a session continued with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resumed {
    /// Those of the checkpoint after this step.
    With(Seq),
    /// Those of this checkpoint could not be restored, for this reason.
    Without(Seq, String),
}

/// What is lost if the worker fails.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unsaved {
    /// What has changed up to this step since the last checkpoint, for this reason.
    Changes(Seq, String),
    /// These files and repositories.
    Files(String),
}

impl NoteFact {
    /// The same fact with `redact` applied to every text.
    #[must_use]
    pub(crate) fn redacted(self, redact: &dyn Fn(String) -> String) -> Self {
        match self {
            Self::Resumed(Resumed::With(seq)) => Self::Resumed(Resumed::With(seq)),
            Self::Resumed(Resumed::Without(seq, reason)) => {
                Self::Resumed(Resumed::Without(seq, redact(reason)))
            }
            Self::Unsaved(Unsaved::Changes(seq, reason)) => {
                Self::Unsaved(Unsaved::Changes(seq, redact(reason)))
            }
            Self::Unsaved(Unsaved::Files(files)) => Self::Unsaved(Unsaved::Files(redact(files))),
            Self::ResultsOmitted(count) => Self::ResultsOmitted(count),
        }
    }
}

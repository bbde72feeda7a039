//! The live view of a running session.

use std::sync::Arc;
use std::time::Duration;

use agentmine_agent::Facts;
use agentmine_agent::journal::Entry;
use agentmine_domain::{EndState, Phase, SessionId, Task, Usage};
use serde_json::Value;
use tokio::sync::mpsc::UnboundedSender;

use super::journal::millis;
use super::redact::Redactor;

/// An event in a session.
#[derive(Debug, Clone)]
pub enum Progress {
    /// A session began.
    Began {
        /// The task as claimed.
        task: Box<Task>,
        /// The session.
        session: SessionId,
    },
    /// A phase began.
    Phase(Phase),
    /// A tool call began.
    ToolBegan {
        /// The tool.
        name: String,
        /// A one-line summary of the arguments.
        summary: String,
    },
    /// A tool call ended.
    ToolEnded {
        /// The tool.
        name: String,
        /// Why it failed, if it did.
        error: Option<String>,
        /// How long it took, in milliseconds.
        duration_ms: u64,
    },
    /// The model replied.
    Reply {
        /// The text; may be empty.
        text: String,
        /// What the reply cost.
        usage: Usage,
    },
    /// A note in the transcript.
    Note(String),
    /// Something else than the agent used the model.
    ModelUse {
        /// What.
        text: String,
        /// What it cost.
        usage: Usage,
    },
    /// The result was measured.
    Facts(Box<Facts>),
    /// The session ended.
    Ended {
        /// The task, as it is now.
        task: Box<Task>,
        /// How the task ended; `None` if it has not.
        end: Option<EndState>,
        /// Why.
        reason: Option<String>,
    },
}

/// Sends progress to a watcher, redacted like the transcript.
pub(crate) struct LiveView {
    watch: Option<UnboundedSender<Progress>>,
    redactor: Arc<Redactor>,
}

impl LiveView {
    pub(crate) fn new(watch: Option<UnboundedSender<Progress>>, redactor: Arc<Redactor>) -> Self {
        Self { watch, redactor }
    }

    /// Redacts and shows an event.
    pub(crate) fn show(&self, progress: Progress) {
        if let Some(watch) = &self.watch {
            let redactor = &self.redactor;
            // A watcher that has disconnected is not an error.
            let _ = watch.send(progress.redacted(&|text| redactor.redact(text)));
        }
    }

    pub(crate) fn show_some(&self, progress: Option<Progress>) {
        if let Some(progress) = progress {
            self.show(progress);
        }
    }

    /// The event that shows an entry, if it is shown.
    pub(crate) fn of(entry: &Entry, took: Duration) -> Option<Progress> {
        match entry {
            Entry::Phase { phase } => Some(Progress::Phase(*phase)),
            Entry::ModelReply { reply, usage } => Some(Progress::Reply {
                text: reply.text.clone(),
                usage: *usage,
            }),
            Entry::ToolResult { result } => Some(Progress::ToolEnded {
                name: result.name.clone(),
                error: result.is_error.then(|| why(&result.text)),
                duration_ms: millis(took),
            }),
            Entry::Facts { facts, .. } => Some(Progress::Facts(Box::new(facts.clone()))),
            Entry::Note { text, .. } => Some(Progress::Note(text.clone())),
            Entry::ModelUse { text, usage } => Some(Progress::ModelUse {
                text: text.clone(),
                usage: *usage,
            }),
            Entry::Start { .. } | Entry::Prompt { .. } => None,
        }
    }
}

impl Progress {
    fn redacted(self, redact: &dyn Fn(String) -> String) -> Self {
        match self {
            Self::Note(text) => Self::Note(redact(text)),
            Self::ModelUse { text, usage } => Self::ModelUse {
                text: redact(text),
                usage,
            },
            Self::Reply { text, usage } => Self::Reply {
                text: redact(text),
                usage,
            },
            Self::ToolBegan { name, summary } => Self::ToolBegan {
                name: redact(name),
                summary: redact(summary),
            },
            Self::ToolEnded {
                name,
                error,
                duration_ms,
            } => Self::ToolEnded {
                name: redact(name),
                error: error.map(redact),
                duration_ms,
            },
            Self::Facts(facts) => Self::Facts(Box::new(facts.redacted(redact))),
            Self::Ended { task, end, reason } => Self::Ended {
                task,
                end,
                reason: reason.map(redact),
            },
            progress @ (Self::Began { .. } | Self::Phase(_)) => progress,
        }
    }
}

/// The message of a failed call's result: a refusal by AgentMine, the text editor's, or a text.
fn why(text: &str) -> String {
    let result: Value = serde_json::from_str(text).unwrap_or_default();
    let message = [
        &result["error"]["message"],
        &result["error"],
        &result["message"],
    ]
    .into_iter()
    .find_map(Value::as_str);
    message.unwrap_or(text).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_call_shows_its_message() {
        for (text, expected) in [
            (
                r#"{"status":"error","error":{"code":"unknown_tool","message":"no tool"}}"#,
                "no tool",
            ),
            (r#"{"success":false,"message":"not found"}"#, "not found"),
            (r#"{"exit_code":124,"error":"killed"}"#, "killed"),
            ("plain", "plain"),
        ] {
            assert_eq!(why(text), expected);
        }
    }
}

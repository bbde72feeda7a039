//! The conversation: appended to, never rewritten, and rebuilt from the journal on resume.

use agentmine_domain::{Step, StepKind, Usage};
use agentmine_llm::{Message, ModelReply, ToolCall};

/// A journal that is not a conversation.
#[derive(Debug, thiserror::Error)]
#[error("step {seq} of the journal cannot be read: {detail}")]
pub struct HistoryError {
    seq: i64,
    detail: String,
}

/// The conversation so far.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct History {
    messages: Vec<Message>,
}

impl History {
    /// Rebuilds the conversation from recorded steps, with what was used.
    ///
    /// # Errors
    /// When a step's payload is not a message: the journal was written by another version.
    pub fn replay(steps: &[Step]) -> Result<(Self, Usage), HistoryError> {
        let mut history = Self::default();
        let mut usage = Usage::default();
        for step in steps {
            match step.kind {
                StepKind::Prompt | StepKind::ModelReply | StepKind::ToolResult => {
                    let message =
                        serde_json::from_value(step.payload["message"].clone()).map_err(|e| {
                            HistoryError {
                                seq: step.seq.0,
                                detail: e.to_string(),
                            }
                        })?;
                    if step.kind == StepKind::ModelReply {
                        usage += serde_json::from_value(step.payload["usage"].clone())
                            .unwrap_or_default();
                    }
                    if step.kind == StepKind::ToolResult {
                        usage.tool_calls += 1;
                    }
                    history.push(message);
                }
                // What the tools themselves used of the model stands in a note.
                StepKind::Note => {
                    usage +=
                        serde_json::from_value(step.payload["usage"].clone()).unwrap_or_default();
                }
                StepKind::Phase | StepKind::Fact => {}
            }
        }
        Ok((history, usage))
    }

    /// The messages, in order.
    #[must_use]
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Whether nothing was said yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Appends.
    pub fn push(&mut self, message: Message) {
        self.messages.push(message);
    }

    /// The newest reply, if the conversation waits for nothing but the worker's next move.
    #[must_use]
    pub fn last_reply(&self) -> Option<&ModelReply> {
        match self.messages.last() {
            Some(Message::Assistant(reply)) => Some(reply),
            _ => None,
        }
    }

    /// Calls of the newest reply that have no result: they were interrupted.
    #[must_use]
    pub fn open_calls(&self) -> Vec<ToolCall> {
        let Some(at) = self
            .messages
            .iter()
            .rposition(|m| matches!(m, Message::Assistant(_)))
        else {
            return Vec::new();
        };
        let Message::Assistant(reply) = &self.messages[at] else {
            return Vec::new();
        };
        let answered: Vec<&str> = self.messages[at..]
            .iter()
            .filter_map(|m| match m {
                Message::Tool { call_id, .. } => Some(call_id.as_str()),
                Message::System { .. } | Message::User { .. } | Message::Assistant(_) => None,
            })
            .collect();
        reply
            .calls
            .iter()
            .filter(|call| !answered.contains(&call.id.as_str()))
            .cloned()
            .collect()
    }
}

//! The conversation: append-only, and rebuilt from the journal on resume.

use agentmine_domain::Usage;
use agentmine_llm::{Message, ModelReply, ToolCall};

use crate::journal::Entry;

/// The conversation so far.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct History {
    messages: Vec<Message>,
}

impl History {
    /// Rebuilds the conversation and the usage from the journal.
    #[must_use]
    pub fn replay(entries: &[Entry]) -> (Self, Usage) {
        let mut usage = Usage::default();
        for entry in entries {
            usage += entry.usage();
        }
        let messages = entries.iter().filter_map(Entry::message).collect();
        (Self { messages }, usage)
    }

    /// The messages, in order.
    #[must_use]
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Appends a message.
    pub fn push(&mut self, message: Message) {
        self.messages.push(message);
    }

    /// The model's newest reply, if it is the last message of the conversation.
    #[must_use]
    pub fn last_reply(&self) -> Option<&ModelReply> {
        match self.messages.last() {
            Some(Message::Assistant(reply)) => Some(reply),
            _ => None,
        }
    }

    /// Calls of the newest reply without a result: they were interrupted.
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

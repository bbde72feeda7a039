//! Plays recorded replies.
//!
//! Guaranteed: the number of replies in the conversation alone decides which reply comes next. A session
//! that another worker resumes continues at the right place, and any number of sessions may play the
//! same recording at the same time.

use std::path::Path;
use std::time::Duration;

use agentmine_domain::Usage;
use async_trait::async_trait;
use tokio::sync::mpsc::UnboundedSender;

use crate::error::LlmError;
use crate::message::{Message, ModelReply};
use crate::model::{Delta, Model, ModelRequest};
use crate::recording::{self, Recorded};

/// Characters of a message that an error shows.
const SHOWN: usize = 200;

/// A model that replies as recorded.
#[derive(Debug, Clone)]
pub struct Replay {
    lines: Vec<Recorded>,
}

impl Replay {
    /// Plays the recording in a file.
    ///
    /// # Errors
    /// Names the file, and the line where one cannot be read.
    pub fn from_file(path: &Path) -> anyhow::Result<Self> {
        recording::read(path).map(Self::from_lines)
    }

    /// Plays these lines.
    #[must_use]
    pub fn from_lines(lines: Vec<Recorded>) -> Self {
        Self { lines }
    }
}

#[async_trait]
impl Model for Replay {
    fn name(&self) -> &str {
        "replay"
    }

    async fn reply(
        &self,
        request: ModelRequest<'_>,
        watch: Option<&UnboundedSender<Delta>>,
    ) -> Result<(ModelReply, Usage), LlmError> {
        let turn = request.turn();
        let line = self.lines.get(turn).ok_or_else(|| {
            LlmError::Replay(format!(
                "it has {1} replies, and reply {0} was requested",
                turn + 1,
                self.lines.len()
            ))
        })?;
        if let Some(expected) = &line.expect {
            check(turn, expected, request.messages)?;
        }
        if let Some(ms) = line.delay_ms {
            tokio::time::sleep(Duration::from_millis(ms)).await;
        }
        let reply = line.reply(turn);
        if let Some(watch) = watch {
            let text = (!reply.text.is_empty()).then(|| Delta::Text(reply.text.clone()));
            let calls = reply
                .calls
                .iter()
                .map(|call| Delta::Call(call.name.clone()));
            for delta in text.into_iter().chain(calls) {
                // A watcher may have gone away.
                let _ = watch.send(delta);
            }
        }
        let usage = Usage {
            model_calls: 1,
            ..line.usage.unwrap_or_default()
        };
        Ok((reply, usage))
    }
}

fn check(turn: usize, expected: &str, messages: &[Message]) -> Result<(), LlmError> {
    let last = match messages.last() {
        Some(Message::System { text } | Message::User { text } | Message::Tool { text, .. }) => {
            text
        }
        Some(Message::Assistant(reply)) => &reply.text,
        None => "",
    };
    if last.contains(expected) {
        return Ok(());
    }
    let shown: String = last.chars().take(SHOWN).collect();
    Err(LlmError::Replay(format!(
        "before reply {} the last message should contain {expected:?}; it begins with {shown:?}",
        turn + 1
    )))
}

#[cfg(test)]
#[path = "replay_tests.rs"]
mod tests;

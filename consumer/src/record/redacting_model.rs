//! A model behind a redactor: no secret is sent to it, and no reply contains one.
//!
//! The journal is redacted. A resumed session must send exactly the same bytes as this one did, so the
//! conversation is redacted by the same rules before it is sent, and each reply before the loop acts
//! on it.

use std::borrow::Cow;
use std::sync::Arc;

use agentmine_domain::Usage;
use agentmine_llm::{Delta, LlmError, Message, Model, ModelReply, ModelRequest};
use async_trait::async_trait;
use tokio::sync::mpsc::UnboundedSender;

use crate::record::redact::Redactor;

/// A model behind a redactor.
pub(crate) struct RedactingModel {
    pub(crate) model: Arc<dyn Model>,
    pub(crate) redactor: Arc<Redactor>,
}

impl RedactingModel {
    /// The whole conversation is searched before each call, and copied only if it contains a secret.
    fn redacted<'a>(&self, messages: &'a [Message]) -> Cow<'a, [Message]> {
        let found = |message: &Message| message.any_text(&|text| self.redactor.finds_in(text));
        if !messages.iter().any(found) {
            return Cow::Borrowed(messages);
        }
        let redact = |text: String| self.redactor.redact(text);
        let redacted = messages.iter().cloned().map(|m| m.redacted(&redact));
        Cow::Owned(redacted.collect())
    }
}

#[async_trait]
impl Model for RedactingModel {
    fn name(&self) -> &str {
        self.model.name()
    }

    /// Streamed deltas are passed on without redaction: a secret may be split across two of them.
    async fn reply(
        &self,
        request: ModelRequest<'_>,
        watch: Option<&UnboundedSender<Delta>>,
    ) -> Result<(ModelReply, Usage), LlmError> {
        let messages = self.redacted(request.messages);
        let request = ModelRequest {
            messages: &messages,
            tools: request.tools,
        };
        let (reply, used) = self.model.reply(request, watch).await?;
        Ok((reply.redacted(&|text| self.redactor.redact(text)), used))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use agentmine_llm::ToolCall;
    use agentmine_runtime::config::Secret;

    use super::*;

    /// Replies with a fixed text and keeps the messages it received.
    struct Parrot(Mutex<Vec<Message>>);

    #[async_trait]
    impl Model for Parrot {
        fn name(&self) -> &str {
            "parrot"
        }

        async fn reply(
            &self,
            request: ModelRequest<'_>,
            _watch: Option<&UnboundedSender<Delta>>,
        ) -> Result<(ModelReply, Usage), LlmError> {
            *self.0.lock().unwrap() = request.messages.to_vec();
            let call = ToolCall {
                id: "1".into(),
                name: "x".into(),
                arguments: "{\"text\":\"canary-token\"}".into(),
            };
            let reply = ModelReply {
                text: "it is canary-token".into(),
                calls: vec![call],
                ..ModelReply::default()
            };
            Ok((reply, Usage::default()))
        }
    }

    #[tokio::test]
    async fn a_secret_is_neither_sent_nor_received() {
        let parrot = Arc::new(Parrot(Mutex::default()));
        let model = RedactingModel {
            model: Arc::clone(&parrot) as Arc<dyn Model>,
            redactor: Arc::new(Redactor::new([Secret::new("canary-token")])),
        };
        let messages = [Message::User {
            text: "canary-token?".into(),
        }];
        let request = ModelRequest {
            messages: &messages,
            tools: &[],
        };
        let (reply, _) = model.reply(request, None).await.unwrap();
        assert_eq!(reply.text, "it is ***");
        assert_eq!(reply.calls[0].arguments, "{\"text\":\"***\"}");
        let sent = parrot.0.lock().unwrap().clone();
        assert_eq!(
            sent,
            [Message::User {
                text: "***?".into()
            }]
        );
    }
}

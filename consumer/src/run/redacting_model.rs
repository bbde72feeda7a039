//! The session's model, which neither is told a secret nor says one.
//!
//! What is recorded is cleaned of secrets. So that a session that goes on from the record sends what
//! this one sent, byte for byte, the conversation is cleaned by the same function before it is sent,
//! and a reply before the loop takes it in and acts on it.

use std::sync::Arc;

use agentmine_domain::Usage;
use agentmine_llm::{Delta, LlmError, Message, Model, ModelReply, ModelRequest, ToolCall};
use async_trait::async_trait;
use tokio::sync::mpsc::UnboundedSender;

/// Takes the secrets out of a text.
type Clean = Arc<dyn Fn(String) -> String + Send + Sync>;

/// A model behind which nothing secret is told.
pub(crate) struct Discreet {
    pub(crate) model: Arc<dyn Model>,
    pub(crate) clean: Clean,
}

#[async_trait]
impl Model for Discreet {
    fn name(&self) -> &str {
        self.model.name()
    }

    /// Pieces of a streamed reply are passed on as they come: a secret may stand across two of them.
    async fn reply(
        &self,
        request: ModelRequest<'_>,
        watch: Option<&UnboundedSender<Delta>>,
    ) -> Result<(ModelReply, Usage), LlmError> {
        let messages = request.messages.iter().cloned();
        let messages: Vec<Message> = messages.map(|message| self.message(message)).collect();
        let request = ModelRequest {
            messages: &messages,
            tools: request.tools,
        };
        let (reply, used) = self.model.reply(request, watch).await?;
        Ok((self.said(reply), used))
    }
}

impl Discreet {
    fn message(&self, message: Message) -> Message {
        let clean = &self.clean;
        match message {
            Message::System { text } => Message::System { text: clean(text) },
            Message::User { text } => Message::User { text: clean(text) },
            Message::Assistant(reply) => Message::Assistant(self.said(reply)),
            Message::Tool {
                call_id,
                name,
                text,
                is_error,
            } => Message::Tool {
                call_id: clean(call_id),
                name: clean(name),
                text: clean(text),
                is_error,
            },
        }
    }

    fn said(&self, ModelReply { text, calls, stop }: ModelReply) -> ModelReply {
        let clean = &self.clean;
        let calls = calls.into_iter().map(
            |ToolCall {
                 id,
                 name,
                 arguments,
             }| ToolCall {
                id: clean(id),
                name: clean(name),
                arguments: clean(arguments),
            },
        );
        ModelReply {
            text: clean(text),
            calls: calls.collect(),
            stop,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Says what it is told to, and keeps what it was asked.
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
    async fn a_secret_is_neither_sent_nor_taken_in() {
        let parrot = Arc::new(Parrot(Mutex::default()));
        let model = Discreet {
            model: Arc::clone(&parrot) as Arc<dyn Model>,
            clean: Arc::new(|text| text.replace("canary-token", "***")),
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

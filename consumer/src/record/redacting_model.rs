//! A model behind a redactor: no secret is sent to it, and no reply contains one.
//!
//! The journal is redacted. A resumed session must send exactly the same bytes as this one did, so the
//! conversation is redacted by the same rules before it is sent, and each reply before the loop acts
//! on it.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};

use agentmine_domain::Usage;
use agentmine_llm::{ConversationId, Delta, LlmError, Message, Model, ModelReply, ModelRequest};
use agentmine_runtime::redact;
use async_trait::async_trait;
use tokio::sync::mpsc::UnboundedSender;

use crate::record::redact::Redactor;

/// A model behind a redactor.
pub(crate) struct RedactingModel {
    model: Arc<dyn Model>,
    redactor: Arc<Redactor>,
    searched: Mutex<Searched>,
}

/// What was searched and has no secret: the beginning of a conversation that only grows.
#[derive(Default)]
struct Searched {
    conversation: Option<ConversationId>,
    /// Which secrets were looked for.
    generation: u64,
    messages: usize,
}

impl RedactingModel {
    pub(crate) fn new(model: Arc<dyn Model>, redactor: Arc<Redactor>) -> Self {
        Self {
            model,
            redactor,
            searched: Mutex::default(),
        }
    }

    /// What is new in the conversation is searched before each call; the whole is copied only if it contains a secret.
    fn redacted<'a>(&self, request: &ModelRequest<'a>) -> Cow<'a, [Message]> {
        let messages = request.messages;
        let found = |message: &Message| message.any_text(&|text| self.redactor.finds_in(text));
        let mut searched = self.searched.lock().unwrap_or_else(PoisonError::into_inner);
        // Read before the search: a secret that is replaced meanwhile is looked for the next time.
        let generation = redact::generation();
        let is_known = request.conversation.is_some()
            && searched.conversation == request.conversation
            && searched.generation == generation
            && searched.messages <= messages.len();
        let known = if is_known { searched.messages } else { 0 };
        if !messages.iter().skip(known).any(found) {
            if request.conversation.is_some() {
                *searched = Searched {
                    conversation: request.conversation,
                    generation,
                    messages: messages.len(),
                };
            }
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

    fn estimate(&self, request: &ModelRequest<'_>) -> Usage {
        self.model.estimate(request)
    }

    /// Streamed deltas are passed on without redaction: a secret may be split across two of them.
    async fn reply(
        &self,
        request: ModelRequest<'_>,
        watch: Option<&UnboundedSender<Delta>>,
    ) -> Result<(ModelReply, Usage), LlmError> {
        let messages = self.redacted(&request);
        let request = ModelRequest {
            messages: &messages,
            tools: request.tools,
            conversation: request.conversation,
            state: request.state,
        };
        let (reply, used) = self.model.reply(request, watch).await?;
        Ok((reply.redacted(&|text| self.redactor.redact(text)), used))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use agentmine_llm::{CallState, RequestCost, ToolCall};
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
            request.state.failed(RequestCost::Nothing);
            let call = ToolCall {
                id: "1".into(),
                name: "x".into(),
                arguments: "{\"text\":\"canary-token\"}".into(),
                ..ToolCall::default()
            };
            let reply = ModelReply {
                text: "it is canary-token".into(),
                calls: vec![call],
                ..ModelReply::default()
            };
            Ok((reply, Usage::default()))
        }
    }

    fn redacting(parrot: &Arc<Parrot>) -> RedactingModel {
        let redactor = Redactor::new([Secret::new("canary-token")]);
        RedactingModel::new(Arc::clone(parrot) as Arc<dyn Model>, Arc::new(redactor))
    }

    /// What the model gets of this conversation.
    async fn sent(
        model: &RedactingModel,
        conversation: Option<ConversationId>,
        texts: &[&str],
    ) -> Vec<Message> {
        let user = |text: &&str| Message::User {
            text: (*text).to_owned(),
        };
        let messages: Vec<Message> = texts.iter().map(user).collect();
        let request = ModelRequest {
            messages: &messages,
            tools: &[],
            conversation,
            state: CallState::default(),
        };
        model.redacted(&request).into_owned()
    }

    #[tokio::test]
    async fn a_conversation_that_grows_is_searched_from_where_it_grew() {
        let model = redacting(&Arc::new(Parrot(Mutex::default())));
        let user = |text: &str| Message::User { text: text.into() };
        let (one, other) = (ConversationId::unique(), ConversationId::unique());
        assert_eq!(sent(&model, Some(one), &["a", "b"]).await.len(), 2);
        // One that does not keep its promise shows what was not searched again.
        let broken = sent(&model, Some(one), &["canary-token", "b", "c"]).await;
        assert_eq!(broken[0], user("canary-token"));
        let grown = sent(&model, Some(one), &["a", "b", "c", "canary-token"]).await;
        assert_eq!(grown[3], user("***"));
        let again = sent(&model, Some(one), &["a", "b", "c", "canary-token", "d"]).await;
        assert_eq!(again[3], user("***"));
        for conversation in [Some(other), None] {
            let whole = sent(&model, conversation, &["canary-token", "b"]).await;
            assert_eq!(whole[0], user("***"));
        }
        let back = sent(&model, Some(one), &["canary-token"]).await;
        assert_eq!(back[0], user("***"), "it has become shorter");
    }

    #[tokio::test]
    async fn a_secret_is_neither_sent_nor_received() {
        let parrot = Arc::new(Parrot(Mutex::default()));
        let model = redacting(&parrot);
        let messages = [Message::User {
            text: "canary-token?".into(),
        }];
        let request = ModelRequest {
            messages: &messages,
            tools: &[],
            conversation: None,
            state: CallState::default(),
        };
        let (reply, _) = model.reply(request.clone(), None).await.unwrap();
        let each = Usage {
            model_calls: 1,
            ..Usage::default()
        };
        let state = request.state.abandoned(each);
        assert_eq!(state, Usage::default(), "it is that of the inner call");
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

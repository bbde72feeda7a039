//! Model calls on behalf of a server (`sampling/createMessage`).
//!
//! They go to the session's own model and cost the session's money: one at a time, within
//! `mcp.sampling` and within what is left of the session's budget, which they count against. A limit
//! is checked before a request, so the last one may exceed it. The words are not recorded; how much
//! was used is. A request that gave nothing, or was cancelled while it ran, counts as one without
//! tokens, since its cost cannot be known.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use agentmine_agent::Journal as _;
use agentmine_agent::journal::Entry;
use agentmine_domain::{Budget, Usage};
use agentmine_llm::{Message, ModelReply, ModelRequest, Stop};
use agentmine_mcp::SamplingHandler;
use agentmine_runtime::config;
use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::error::SessionError;
use crate::record::recorder::Recorder;
use crate::session::deps::ConsumerDeps;

/// Bytes of text of one request.
const MAX_TEXT: usize = 256 * 1024;
const MAX_MESSAGES: usize = 200;

/// Answers the servers of one session.
pub(crate) struct SessionSampling {
    deps: Arc<ConsumerDeps>,
    recorder: Arc<Recorder>,
    limits: config::SamplingConfig,
    budget: Budget,
    started: Instant,
    /// Requests and tokens so far. Held while a request runs, so that no two pass one limit together.
    spent: tokio::sync::Mutex<(u32, u64)>,
    unrecorded: Mutex<Unrecorded>,
}

/// Use that the loop has not counted and the journal has not recorded yet.
#[derive(Default)]
struct Unrecorded {
    usage: Usage,
    notes: VecDeque<(String, Usage)>,
}

impl SessionSampling {
    pub(crate) fn new(deps: Arc<ConsumerDeps>, recorder: Arc<Recorder>) -> Self {
        Self {
            limits: deps.config.mcp.sampling.clone(),
            budget: deps.budget(),
            deps,
            recorder,
            started: Instant::now(),
            spent: tokio::sync::Mutex::default(),
            unrecorded: Mutex::default(),
        }
    }

    fn unrecorded(&self) -> std::sync::MutexGuard<'_, Unrecorded> {
        self.unrecorded
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// What was used since the last call of this method, for the loop's budget.
    pub(super) fn take_usage(&self) -> Usage {
        std::mem::take(&mut self.unrecorded().usage)
    }

    /// Records what was used. What could not be recorded is recorded the next time.
    pub(crate) async fn record_use(&self) -> Result<(), SessionError> {
        loop {
            let next = self.unrecorded().notes.front().cloned();
            let Some((text, usage)) = next else {
                return Ok(());
            };
            let entry = Entry::ModelUse { text, usage };
            self.recorder.record(entry, Duration::ZERO).await?;
            self.unrecorded().notes.pop_front();
        }
    }

    /// Why no further request is answered, if none is.
    async fn refusal(&self, (requests, tokens): (u32, u64)) -> Option<String> {
        if requests >= self.limits.max_requests {
            return Some(format!("{requests} requests of this session, the limit"));
        }
        if tokens >= self.limits.max_tokens {
            return Some(format!("{tokens} tokens of this session, the limit"));
        }
        let mut used = self.recorder.used().await;
        for (_, unrecorded) in &self.unrecorded().notes {
            used += *unrecorded;
        }
        self.budget.exceeded(&used, self.started.elapsed())
    }
}

#[async_trait]
impl SamplingHandler for SessionSampling {
    async fn create(&self, server: &str, request: Value) -> Result<Value, String> {
        let messages = messages(request)?;
        let mut spent = self.spent.lock().await;
        if let Some(why) = self.refusal(*spent).await {
            return Err(format!("the model is not asked any more: {why}"));
        }
        spent.0 += 1;
        let mut counted = Counted::new(self, server);
        let request = ModelRequest {
            messages: &messages,
            tools: &[],
        };
        let answer = tokio::select! {
            biased;
            end = self.recorder.interrupted() => return Err(format!("the session ends: {end}")),
            answer = self.deps.model.reply(request, None) => answer,
        };
        // The provider's words may name the account.
        let (reply, used) = answer.map_err(|_| "the model gave no answer".to_owned())?;
        spent.1 = spent.1.saturating_add(used.total_tokens());
        counted.answered(used);
        Ok(result(self.deps.model.name(), reply))
    }
}

/// A request under way. Dropped, it is counted, however it ended.
struct Counted<'a> {
    sampling: &'a SessionSampling,
    server: &'a str,
    used: Usage,
    outcome: String,
}

impl<'a> Counted<'a> {
    fn new(sampling: &'a SessionSampling, server: &'a str) -> Self {
        let used = Usage {
            model_calls: 1,
            ..Usage::default()
        };
        let outcome = "no answer".to_owned();
        Self {
            sampling,
            server,
            used,
            outcome,
        }
    }

    fn answered(&mut self, used: Usage) {
        self.outcome = format!(
            "{} tokens in, {} out",
            used.input_tokens, used.output_tokens
        );
        self.used = Usage {
            model_calls: 1,
            ..used
        };
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        let note = format!(
            "the MCP server {} asked the model: {}",
            self.server, self.outcome
        );
        let mut unrecorded = self.sampling.unrecorded();
        unrecorded.usage += self.used;
        unrecorded.notes.push_back((note, self.used));
    }
}

fn result(model: &str, reply: ModelReply) -> Value {
    let stop = match reply.stop {
        Stop::Length => "maxTokens",
        Stop::EndTurn | Stop::ToolCalls | Stop::Filtered => "endTurn",
    };
    json!({
        "role": "assistant",
        "content": { "type": "text", "text": reply.text },
        "model": model,
        "stopReason": stop,
    })
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Asked {
    messages: Vec<AskedMessage>,
    #[serde(default)]
    system_prompt: Option<String>,
}

#[derive(Debug, Deserialize)]
struct AskedMessage {
    role: String,
    content: Value,
}

/// The conversation that a server wants answered. It holds text and nothing else.
fn messages(request: Value) -> Result<Vec<Message>, String> {
    let asked: Asked = serde_json::from_value(request)
        .map_err(|error| format!("the request does not fit: {error:.200}"))?;
    if asked.messages.is_empty() || asked.messages.len() > MAX_MESSAGES {
        return Err(format!("expected 1 to {MAX_MESSAGES} messages"));
    }
    let mut all: Vec<Message> = asked
        .system_prompt
        .map(|text| Message::System { text })
        .into_iter()
        .collect();
    for message in &asked.messages {
        let text = text(&message.content).ok_or("only text is answered here")?;
        all.push(match message.role.as_str() {
            "user" => Message::User { text },
            "assistant" => Message::Assistant(ModelReply {
                text,
                ..ModelReply::default()
            }),
            _ => return Err("a message's role is `user` or `assistant`".into()),
        });
    }
    let size: usize = all
        .iter()
        .map(|message| match message {
            Message::System { text } | Message::User { text } | Message::Tool { text, .. } => {
                text.len()
            }
            Message::Assistant(reply) => reply.text.len(),
        })
        .sum();
    if size > MAX_TEXT {
        return Err(format!(
            "{size} bytes of text, at most {MAX_TEXT} are taken"
        ));
    }
    Ok(all)
}

/// One block, or several.
fn text(content: &Value) -> Option<String> {
    match content {
        Value::Object(block) if block.get("type")? == "text" => {
            Some(block.get("text")?.as_str()?.to_owned())
        }
        Value::Array(blocks) => {
            let texts: Option<Vec<String>> = blocks
                .iter()
                .map(|block| block.is_object().then(|| text(block))?)
                .collect();
            Some(texts?.join("\n"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_becomes_a_conversation_of_text() {
        let asked = json!({
            "systemPrompt": "Be brief.",
            "maxTokens": 100,
            "messages": [
                { "role": "user", "content": { "type": "text", "text": "hello" } },
                { "role": "assistant", "content": [{ "type": "text", "text": "a" }, { "type": "text", "text": "b" }] },
            ]
        });
        let all = messages(asked).unwrap();
        assert_eq!(all.len(), 3);
        assert_eq!(
            all[2],
            Message::Assistant(ModelReply {
                text: "a\nb".into(),
                ..ModelReply::default()
            })
        );
    }

    #[test]
    fn what_is_no_text_or_too_much_is_refused() {
        let one = |content: Value| json!({ "messages": [{ "role": "user", "content": content }] });
        for bad in [
            json!({}),
            json!({ "messages": [] }),
            json!({ "messages": [{ "role": "system", "content": { "type": "text", "text": "x" } }] }),
            one(json!({ "type": "image", "data": "", "mimeType": "image/png" })),
            one(json!([[{ "type": "text", "text": "x" }]])),
            one(json!({ "type": "text", "text": "x".repeat(MAX_TEXT + 1) })),
        ] {
            assert!(messages(bad.clone()).is_err(), "{bad:.100}");
        }
    }
}

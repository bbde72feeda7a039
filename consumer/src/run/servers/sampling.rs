//! Model calls on behalf of a server (`sampling/createMessage`).
//!
//! They go to the session's model, one at a time, limited by `mcp.sampling` and by the session's
//! remaining budget, and they count against that budget. Limits are checked before a request, so the
//! last one may exceed them. The usage is recorded; the texts are not. A request that failed counts with
//! what its tries may have cost, one that was cancelled as one call with an estimate of what it sent.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use agentmine_agent::Journal as _;
use agentmine_agent::journal::Entry;
use agentmine_domain::{Budget, Usage};
use agentmine_llm::{Message, Model, ModelReply, ModelRequest, Stop};
use agentmine_mcp::SamplingHandler;
use agentmine_runtime::config;
use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::error::SessionError;
use crate::record::recorder::Recorder;

/// Maximum size in bytes of the texts in one request.
const MAX_TEXT: usize = 256 * 1024;
const MAX_MESSAGES: usize = 200;

/// Handles the sampling requests of one session's servers.
pub(crate) struct SessionSampling {
    /// The agent's model.
    model: Arc<dyn Model>,
    recorder: Arc<Recorder>,
    limits: config::SamplingConfig,
    budget: Budget,
    /// How long earlier sessions of the task worked.
    worked: Duration,
    started: Instant,
    /// Requests and tokens so far. Locked while a request runs, so that two requests cannot pass the
    /// same limit.
    spent: tokio::sync::Mutex<(u32, u64)>,
    unrecorded: Mutex<Unrecorded>,
}

/// Usage that the loop has not counted or the journal has not recorded yet.
#[derive(Default)]
struct Unrecorded {
    usage: Usage,
    notes: VecDeque<(String, Usage)>,
}

impl SessionSampling {
    pub(crate) fn new(
        budget: Budget,
        limits: config::SamplingConfig,
        worked: Duration,
        model: Arc<dyn Model>,
        recorder: Arc<Recorder>,
    ) -> Self {
        Self {
            limits,
            budget,
            model,
            recorder,
            worked,
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

    /// Takes the usage since the last call, for the loop's budget.
    pub(super) fn take_usage(&self) -> Usage {
        std::mem::take(&mut self.unrecorded().usage)
    }

    /// Records the usage. If that fails, the rest is recorded by the next call.
    pub(crate) async fn record_usage(&self) -> Result<(), SessionError> {
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

    /// Why further requests are refused, if they are.
    async fn refusal(&self, (requests, tokens): (u32, u64)) -> Option<String> {
        if requests >= self.limits.max_requests {
            return Some(format!(
                "the session has reached its limit of {requests} requests"
            ));
        }
        if tokens >= self.limits.max_tokens {
            return Some(format!(
                "the session has reached its limit with {tokens} tokens"
            ));
        }
        let mut used = self.recorder.used().await;
        for (_, unrecorded) in &self.unrecorded().notes {
            used += *unrecorded;
        }
        self.budget
            .exceeded(&used, self.worked + self.started.elapsed())
    }
}

#[async_trait]
impl SamplingHandler for SessionSampling {
    async fn create(&self, server: &str, request: Value) -> Result<Value, String> {
        let messages = messages(request)?;
        let mut spent = self.spent.lock().await;
        if let Some(why) = self.refusal(*spent).await {
            return Err(format!("sampling refused: {why}"));
        }
        let certainty = self.recorder.heartbeat.certainty();
        tokio::select! {
            biased;
            end = self.recorder.interrupted() => return Err(format!("the session is ending: {end}")),
            () = certainty.restored() => {}
        }
        spent.0 += 1;
        let request = ModelRequest {
            messages: &messages,
            tools: &[],
            conversation: None,
        };
        let mut counted = Counted::new(self, server, self.model.estimate(&request));
        let answer = tokio::select! {
            biased;
            end = self.recorder.interrupted() => return Err(format!("the session is ending: {end}")),
            answer = self.model.reply(request, None) => answer,
            () = certainty.lapsed() => return Err("the worker cannot reach its database".into()),
        };
        let used = match &answer {
            Ok((_, used)) => *used,
            Err(error) => error.spent(),
        };
        spent.1 = spent.1.saturating_add(used.total_tokens());
        match answer {
            Ok((reply, used)) => {
                counted.answered(used);
                Ok(result(self.model.name(), reply))
            }
            // The provider's error may contain the account's name.
            Err(_) => {
                counted.failed(used);
                Err("the model call failed".to_owned())
            }
        }
    }
}

/// A request in progress. Dropping it counts it, whatever its outcome.
struct Counted<'a> {
    sampling: &'a SessionSampling,
    server: &'a str,
    used: Usage,
    outcome: String,
}

impl<'a> Counted<'a> {
    fn new(sampling: &'a SessionSampling, server: &'a str, estimate: Usage) -> Self {
        Self {
            sampling,
            server,
            used: of_request(estimate),
            outcome: "no answer".to_owned(),
        }
    }

    fn answered(&mut self, used: Usage) {
        self.outcome = format!(
            "{} tokens in, {} out",
            used.input_tokens, used.output_tokens
        );
        self.used = of_request(used);
    }

    fn failed(&mut self, spent: Usage) {
        self.used = of_request(spent);
    }
}

/// The usage of a request: at least one call, and each try whose reply broke off is one.
fn of_request(used: Usage) -> Usage {
    Usage {
        model_calls: used.model_calls.max(1),
        ..used
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        let note = format!(
            "the MCP server {} called the model: {}",
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
struct SamplingRequest {
    messages: Vec<SamplingMessage>,
    #[serde(default)]
    system_prompt: Option<String>,
}

#[derive(Debug, Deserialize)]
struct SamplingMessage {
    role: String,
    content: Value,
}

/// The conversation in a server's request. Only text is supported.
fn messages(request: Value) -> Result<Vec<Message>, String> {
    let request: SamplingRequest = serde_json::from_value(request)
        .map_err(|error| format!("invalid request: {error:.200}"))?;
    if request.messages.is_empty() || request.messages.len() > MAX_MESSAGES {
        return Err(format!("expected 1 to {MAX_MESSAGES} messages"));
    }
    let mut all: Vec<Message> = request
        .system_prompt
        .map(|text| Message::System { text })
        .into_iter()
        .collect();
    for message in &request.messages {
        let text = text(&message.content).ok_or("only text content is supported")?;
        all.push(match message.role.as_str() {
            "user" => Message::User { text },
            "assistant" => Message::Assistant(ModelReply {
                text,
                ..ModelReply::default()
            }),
            _ => return Err("expected the role `user` or `assistant`".into()),
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
        return Err(format!("{size} bytes of text, expected at most {MAX_TEXT}"));
    }
    Ok(all)
}

/// The text of one content block or of several.
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
        let request = json!({
            "systemPrompt": "Be brief.",
            "maxTokens": 100,
            "messages": [
                { "role": "user", "content": { "type": "text", "text": "hello" } },
                { "role": "assistant", "content": [{ "type": "text", "text": "a" }, { "type": "text", "text": "b" }] },
            ]
        });
        let all = messages(request).unwrap();
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
    fn each_try_of_a_request_whose_reply_broke_off_counts() {
        let used = |model_calls, input_tokens| Usage {
            model_calls,
            input_tokens,
            ..Usage::default()
        };
        assert_eq!(of_request(used(3, 900)), used(3, 900));
        assert_eq!(of_request(Usage::default()), used(1, 0));
    }

    #[test]
    fn requests_with_other_content_or_too_much_text_are_refused() {
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

//! Model calls on behalf of a server (`sampling/createMessage`).
//!
//! They go to the session's model, one at a time, limited by `mcp.sampling` and by the session's
//! remaining budget, and they count against that budget. Limits are checked before a request, so the
//! last one may exceed them. The usage is recorded; the texts are not. A request that failed counts with
//! what its tries may have cost, and one that was cancelled with an estimate of what it sent, unless nothing was in flight.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use agentmine_agent::Journal as _;
use agentmine_agent::journal::Entry;
use agentmine_domain::{Budget, Usage};
use agentmine_llm::{CallState, Message, Model, ModelReply, ModelRequest, Stop};
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
const NO_ANSWER: &str = "no answer";

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
            state: CallState::default(),
        };
        let mut counted = Counted {
            sampling: self,
            server,
            call: request.state.clone(),
            each: of_request(self.model.estimate(&request)),
            ended: None,
        };
        let answer = tokio::select! {
            biased;
            end = self.recorder.interrupted() => return Err(format!("the session is ending: {end}")),
            answer = self.model.reply(request, None) => answer,
            () = certainty.lapsed() => return Err("the worker cannot reach its database".into()),
        };
        let used = match &answer {
            Ok((_, used)) => *used,
            Err(_) => counted.call.lost(counted.each),
        };
        spent.1 = spent.1.saturating_add(used.total_tokens());
        match answer {
            Ok((reply, used)) => {
                let outcome = format!(
                    "{} tokens in, {} out",
                    used.input_tokens, used.output_tokens
                );
                counted.ended = Some((outcome, used));
                Ok(result(self.model.name(), reply))
            }
            // The provider's error may contain the account's name.
            Err(_) => {
                counted.ended = Some((NO_ANSWER.to_owned(), used));
                Err("the model call failed".to_owned())
            }
        }
    }
}

/// A request in progress. Dropping it counts it, whatever its outcome.
struct Counted<'a> {
    sampling: &'a SessionSampling,
    server: &'a str,
    call: CallState,
    /// What one try may cost.
    each: Usage,
    /// How the call ended, and what it cost; `None` while it has not.
    ended: Option<(String, Usage)>,
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
        let (outcome, used) = match self.ended.take() {
            Some((outcome, used)) => (outcome, of_request(used)),
            None => (NO_ANSWER.to_owned(), self.call.abandoned(self.each)),
        };
        let server = self.server;
        let note = format!("the MCP server {server} called the model: {outcome}");
        let mut unrecorded = self.sampling.unrecorded();
        unrecorded.usage += used;
        unrecorded.notes.push_back((note, used));
    }
}

fn result(model: &str, reply: ModelReply) -> Value {
    let stop = match reply.stop {
        Stop::Length | Stop::WindowFull => "maxTokens",
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

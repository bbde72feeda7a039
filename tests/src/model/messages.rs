//! Anthropic's Messages: a request in the form of Chat Completions, what the API would refuse, and an answer in its events.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::wire::{Completion, pieces, thought};

/// Marks for the cache in a request at most.
const MARKS: usize = 4;

/// The request as Chat Completions has it, which a script reads.
pub(super) fn in_chat(body: &Value) -> Value {
    let mut messages = Vec::new();
    let system = text_of(&body["system"]);
    if !system.is_empty() {
        messages.push(json!({ "role": "system", "content": system }));
    }
    for turn in list(&body["messages"]) {
        match turn["role"] == "assistant" {
            true => messages.push(reply_in_chat(turn)),
            false => messages.extend(blocks(&turn["content"]).iter().map(block_in_chat)),
        }
    }
    let tools: Vec<Value> = list(&body["tools"])
        .iter()
        .map(|tool| json!({ "type": "function", "function": { "name": tool["name"], "parameters": tool["input_schema"] } }))
        .collect();
    json!({ "model": body["model"], "stream": body["stream"], "tools": tools, "messages": messages })
}

fn block_in_chat(block: &Value) -> Value {
    match block["type"] == "tool_result" {
        true => json!({ "role": "tool", "tool_call_id": block["tool_use_id"],
            "content": text_of(&block["content"]) }),
        false => json!({ "role": "user", "content": block["text"] }),
    }
}

fn reply_in_chat(turn: &Value) -> Value {
    let calls: Vec<Value> = list(&turn["content"])
        .iter()
        .filter(|block| block["type"] == "tool_use")
        .map(|block| {
            json!({ "id": block["id"], "type": "function",
            "function": { "name": block["name"], "arguments": block["input"].to_string() } })
        })
        .collect();
    let mut reply = json!({ "role": "assistant", "content": text_of(&turn["content"]) });
    if !calls.is_empty() {
        reply["tool_calls"] = calls.into();
    }
    reply
}

/// What the API would refuse of a request, beside what it has in common with Chat Completions. `thinks`: each reply has to
/// come back with what was thought.
pub(super) fn problem(body: &Value, thinks: bool) -> Option<String> {
    if body["max_tokens"].as_u64().is_none_or(|limit| limit == 0) {
        return Some("max_tokens: Field required".to_owned());
    }
    let turns = list(&body["messages"]);
    let blocks = || {
        let of_turns = turns.iter().flat_map(|turn| list(&turn["content"]));
        list(&body["system"]).iter().chain(of_turns)
    };
    let marks = body.to_string().matches("\"cache_control\"").count();
    if marks > MARKS {
        return Some(format!(
            "a maximum of {MARKS} blocks with cache_control may be provided, found {marks}"
        ));
    }
    let is_blank = |block: &Value| {
        block["text"]
            .as_str()
            .is_some_and(|it| it.trim().is_empty())
    };
    if blocks().any(is_blank) {
        return Some("text content blocks must contain non-whitespace text".to_owned());
    }
    let mut ids = HashSet::new();
    for id in blocks().filter_map(|block| block["id"].as_str()) {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
        if id.is_empty() || !id.chars().all(is_plain) {
            return Some("String should match pattern '^[a-zA-Z0-9_-]+$'".to_owned());
        }
        if !ids.insert(id) {
            return Some("`tool_use` ids must be unique".to_owned());
        }
    }
    if turns.last().is_none_or(|last| last["role"] != "user") {
        return Some("The conversation must end with a user message.".to_owned());
    }
    let of_replies = turns.iter().filter(|turn| turn["role"] == "assistant");
    of_replies.enumerate().find_map(|(n, turn)| {
        let is_lost = thinks && turn["content"][0] != thinking(n);
        is_lost.then(|| "a final `assistant` message must start with a thinking block".to_owned())
    })
}

/// The body of an error.
pub(super) fn error(status: u16, message: &str) -> Value {
    let kind = match status {
        401 => "authentication_error",
        402 => "billing_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        529 => "overloaded_error",
        _ if status < 500 => "invalid_request_error",
        _ => "api_error",
    };
    json!({ "type": "error", "error": { "type": kind, "message": message } })
}

/// What the model thinks in a turn, signed.
fn thinking(turn: usize) -> Value {
    json!({ "type": "thinking", "thinking": thought(turn), "signature": format!("signed-{turn}") })
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[][..], Vec::as_slice)
}

/// The blocks of a content; a text alone is one block.
fn blocks(content: &Value) -> Vec<Value> {
    match content.as_str() {
        Some(text) => vec![json!({ "type": "text", "text": text })],
        None => list(content).to_vec(),
    }
}

fn text_of(content: &Value) -> String {
    let blocks = blocks(content);
    let texts = blocks.iter().filter_map(|block| block["text"].as_str());
    texts.collect::<Vec<_>>().concat()
}

impl Completion<'_> {
    fn stop_reason(&self) -> &str {
        match self.answer.finish.as_deref() {
            Some("length") => "max_tokens",
            Some("content_filter") => "refusal",
            Some(reason) => reason,
            None if self.answer.calls.is_empty() => "end_turn",
            None => "tool_use",
        }
    }

    fn head(&self, content: &[Value], stop_reason: Value) -> Value {
        json!({
            "id": format!("msg_scripted_{}", self.turn),
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": content,
            "stop_reason": stop_reason,
            "stop_sequence": null,
            "usage": {
                "input_tokens": self.counted.input - self.counted.cached,
                "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": self.counted.cached,
                "output_tokens": self.output_tokens(),
            },
        })
    }

    /// Each block, and the deltas that bring its content in a stream.
    fn blocks(&self) -> Vec<(Value, Vec<Value>)> {
        let mut blocks = Vec::new();
        if self.thinks {
            let thinking = thinking(self.turn);
            let thoughts = pieces(&thought(self.turn));
            let mut deltas: Vec<Value> = thoughts
                .iter()
                .map(|piece| json!({ "type": "thinking_delta", "thinking": piece }))
                .collect();
            deltas.push(json!({ "type": "signature_delta", "signature": thinking["signature"] }));
            blocks.push((thinking, deltas));
        }
        if !self.answer.text.is_empty() {
            let texts = pieces(&self.answer.text);
            let deltas = texts
                .iter()
                .map(|piece| json!({ "type": "text_delta", "text": piece }));
            let block = json!({ "type": "text", "text": self.answer.text });
            blocks.push((block, deltas.collect()));
        }
        for (id, name, arguments) in self.calls() {
            let input: Value = serde_json::from_str(&arguments).unwrap_or_else(|_| json!({}));
            let json = pieces(&arguments);
            let deltas = json
                .iter()
                .map(|piece| json!({ "type": "input_json_delta", "partial_json": piece }));
            let block = json!({ "type": "tool_use", "id": id, "name": name, "input": input });
            blocks.push((block, deltas.collect()));
        }
        blocks
    }

    /// The answer to a request without `stream`.
    pub(super) fn whole_message(&self) -> Value {
        let content: Vec<Value> = self.blocks().into_iter().map(|(block, _)| block).collect();
        self.head(&content, json!(self.stop_reason()))
    }

    /// The events of a stream, in order.
    pub(super) fn message_events(&self) -> Vec<String> {
        let mut events = vec![
            json!({ "type": "message_start", "message": self.head(&[], Value::Null) }),
            json!({ "type": "ping" }),
        ];
        for (index, (mut block, deltas)) in self.blocks().into_iter().enumerate() {
            for (name, empty) in [
                ("text", json!("")),
                ("thinking", json!("")),
                ("signature", json!("")),
                ("input", json!({})),
            ] {
                if block.get(name).is_some() {
                    block[name] = empty;
                }
            }
            events.push(
                json!({ "type": "content_block_start", "index": index, "content_block": block }),
            );
            let deltas = deltas.into_iter();
            events.extend(deltas.map(
                |delta| json!({ "type": "content_block_delta", "index": index, "delta": delta }),
            ));
            events.push(json!({ "type": "content_block_stop", "index": index }));
        }
        events.push(json!({
            "type": "message_delta",
            "delta": { "stop_reason": self.stop_reason(), "stop_sequence": null },
            "usage": { "output_tokens": self.output_tokens() },
        }));
        events.push(json!({ "type": "message_stop" }));
        let named = events.iter().map(|event| {
            let name = event["type"].as_str().unwrap_or_default();
            format!("event: {name}\ndata: {event}\n\n")
        });
        named.collect()
    }
}

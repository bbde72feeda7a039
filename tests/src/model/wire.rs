//! An answer as Chat Completions, in one piece or as a stream of many.

use serde_json::{Value, json};

use super::script::{Answer, Fault};

/// Characters per piece of a stream.
const PIECE: usize = 12;

/// The token counts of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counted {
    pub(super) input: usize,
    pub(super) cached: usize,
}

/// What the model thinks in a turn.
pub(super) fn thought(turn: usize) -> String {
    format!("These are the thoughts of turn {turn}, in more than one piece.")
}

/// What a call of a turn is signed with.
pub(super) fn signature(turn: usize, call: usize) -> Value {
    json!({ "google": { "thought_signature": format!("signed-{turn}-{call}") } })
}

/// An answer with everything that surrounds it on the wire.
pub(super) struct Completion<'a> {
    pub(super) answer: &'a Answer,
    pub(super) model: &'a str,
    pub(super) turn: usize,
    pub(super) thinks: bool,
    pub(super) counted: Counted,
}

impl Completion<'_> {
    fn id(&self) -> String {
        format!("chatcmpl-scripted-{}", self.turn)
    }

    fn finish_reason(&self) -> &str {
        match &self.answer.finish {
            Some(reason) => reason,
            None if self.answer.calls.is_empty() => "stop",
            None => "tool_calls",
        }
    }

    /// Id, name and arguments of each call.
    pub(super) fn calls(&self) -> Vec<(String, &str, String)> {
        let broken = self.answer.fault == Some(Fault::BrokenArguments);
        self.answer
            .calls
            .iter()
            .enumerate()
            .map(|(n, call)| {
                let mut arguments = call.arguments.to_string();
                if broken {
                    let middle = arguments.floor_char_boundary(arguments.len() / 2);
                    arguments.truncate(middle);
                }
                (format!("call_{}_{n}", self.turn), &*call.name, arguments)
            })
            .collect()
    }

    pub(super) fn output_tokens(&self) -> usize {
        let calls = self.calls();
        let characters = calls
            .iter()
            .fold(self.answer.text.len(), |sum, (_, name, arguments)| {
                sum + name.len() + arguments.len()
            });
        (characters / 4).max(1)
    }

    fn usage(&self) -> Value {
        let output = self.output_tokens();
        json!({
            "prompt_tokens": self.counted.input,
            "completion_tokens": output,
            "total_tokens": self.counted.input + output,
            "prompt_tokens_details": { "cached_tokens": self.counted.cached },
        })
    }

    /// The answer to a request without `stream`.
    pub(super) fn whole(&self) -> Value {
        let calls: Vec<_> = self
            .calls()
            .into_iter()
            .enumerate()
            .map(|(n, (id, name, arguments))| {
                let mut call = json!({ "id": id, "type": "function", "function": { "name": name, "arguments": arguments } });
                if self.thinks {
                    call["extra_content"] = signature(self.turn, n);
                }
                call
            })
            .collect();
        let mut message = json!({ "role": "assistant", "content": self.answer.text });
        if self.thinks {
            message["reasoning_content"] = json!(thought(self.turn));
        }
        if !calls.is_empty() {
            message["tool_calls"] = json!(calls);
        }
        if self.answer.text.is_empty() {
            message["content"] = Value::Null;
        }
        json!({
            "id": self.id(),
            "object": "chat.completion",
            "model": self.model,
            "choices": [{ "index": 0, "message": message, "finish_reason": self.finish_reason() }],
            "usage": self.usage(),
        })
    }

    /// The events of a stream, in order.
    pub(super) fn events(&self, include_usage: bool) -> Vec<String> {
        let chunk = |delta: Value, finish: Value| {
            json!({
                "id": self.id(),
                "object": "chat.completion.chunk",
                "model": self.model,
                "choices": [{ "index": 0, "delta": delta, "finish_reason": finish }],
            })
        };
        let mut chunks = vec![chunk(
            json!({ "role": "assistant", "content": null }),
            Value::Null,
        )];
        for piece in pieces(&thought(self.turn)).iter().filter(|_| self.thinks) {
            chunks.push(chunk(json!({ "reasoning_content": piece }), Value::Null));
        }
        for piece in pieces(&self.answer.text) {
            chunks.push(chunk(json!({ "content": piece }), Value::Null));
        }
        for (index, (id, name, arguments)) in self.calls().into_iter().enumerate() {
            let mut begin = json!({ "index": index, "id": id, "type": "function", "function": { "name": name, "arguments": "" } });
            if self.thinks {
                begin["extra_content"] = signature(self.turn, index);
            }
            chunks.push(chunk(json!({ "tool_calls": [begin] }), Value::Null));
            for piece in pieces(&arguments) {
                let more = json!({ "index": index, "function": { "arguments": piece } });
                chunks.push(chunk(json!({ "tool_calls": [more] }), Value::Null));
            }
        }
        chunks.push(chunk(json!({}), json!(self.finish_reason())));
        if include_usage {
            chunks.push(json!({ "id": self.id(), "object": "chat.completion.chunk", "model": self.model, "choices": [], "usage": self.usage() }));
        }
        let mut events: Vec<_> = chunks
            .iter()
            .map(|chunk| format!("data: {chunk}\n\n"))
            .collect();
        events.push("data: [DONE]\n\n".to_owned());
        events
    }
}

/// What one event of a stream brings of a text.
pub(super) fn pieces(text: &str) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    chars
        .chunks(PIECE)
        .map(|piece| piece.iter().collect())
        .collect()
}

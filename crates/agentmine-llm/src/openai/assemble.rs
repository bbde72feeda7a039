//! A reply, put together from one completion or from the chunks of a stream.
//!
//! Read leniently, as values and not as structs: Ollama, LM Studio, vLLM and llama.cpp each omit
//! something or shape it differently, and a strict reader would refuse good replies. The arguments of a
//! call are kept as the model wrote them; only the agent loop judges them.

use std::collections::HashSet;

use serde_json::Value;

use super::extra::{add_of_call, add_of_reply, without_repetition};
use crate::api::tool::{self, MAX_CALLS};
use crate::api::{self, Malformed, Tokens};
use crate::message::{Extra, ModelReply, Stop, ToolCall};
use crate::model::Delta;

/// The words of servers that failed in the middle of a reply: DeepSeek, Zhipu, vLLM, OpenRouter.
const FAILURES: [&str; 4] = [
    "insufficient_system_resource",
    "network_error",
    "abort",
    "error",
];

/// A call that may still grow.
#[derive(Debug)]
struct Slot {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: String,
    extra: Extra,
}

/// A reply so far.
#[derive(Debug, Default)]
pub(super) struct ChatAssembly {
    text: String,
    slots: Vec<Slot>,
    extra: Extra,
    /// Bytes in `extra` and those of the calls.
    extra_size: usize,
    finish: Option<String>,
    tokens: Option<Tokens>,
    /// Whether there were more than [`MAX_CALLS`].
    has_dropped_calls: bool,
}

impl api::Assembly for ChatAssembly {
    fn add(&mut self, value: &Value) -> Result<Vec<Delta>, Malformed> {
        // Moonshot has it in the choice.
        let usage = [&value["usage"], &value["choices"][0]["usage"]];
        let counted = usage.into_iter().find(|usage| usage.is_object());
        // A usage of zero is not a count: every request has tokens.
        if let Some(counted) = counted.map(tokens).filter(|it| *it != Tokens::default()) {
            self.tokens = Some(counted);
        }
        let Some(choices) = value["choices"].as_array() else {
            // A chunk of usage alone has an empty list; some servers omit even that.
            return match value["usage"].is_object() {
                true => Ok(Vec::new()),
                false => Err(Malformed("it has no choices".into())),
            };
        };
        let mut deltas = Vec::new();
        // Only one choice was requested.
        if let Some(choice) = choices.first() {
            let said = match &choice["delta"] {
                Value::Null => &choice["message"],
                delta => delta,
            };
            self.add_text(said, &mut deltas);
            add_of_reply(&mut self.extra, said, &mut self.extra_size);
            for call in said["tool_calls"].as_array().into_iter().flatten() {
                self.add_call(call, &mut deltas);
            }
            if let Some(finish) = choice["finish_reason"].as_str().filter(|f| !f.is_empty()) {
                self.finish = Some(finish.to_owned());
            }
        }
        Ok(deltas)
    }

    /// An error beside the common shapes: `choices[0].error` (OpenRouter).
    fn error_in(value: &Value) -> Option<&Value> {
        let own = &value["choices"][0]["error"];
        api::error_in(value).or_else(|| own.is_object().then_some(own))
    }

    fn has_reason(&self) -> bool {
        self.finish.is_some()
    }

    fn is_empty(&self) -> bool {
        self.text.is_empty() && self.slots.is_empty() && self.finish.is_none()
    }

    fn failure(&self) -> Option<&str> {
        self.finish.as_deref().filter(|it| FAILURES.contains(it))
    }

    fn finish(mut self, turn: usize) -> (ModelReply, Option<Tokens>) {
        if self.slots.iter().all(|slot| slot.index.is_some()) {
            self.slots.sort_by_key(|slot| slot.index);
        }
        let mut ids = HashSet::new();
        let mut calls = Vec::with_capacity(self.slots.len());
        for (n, slot) in self.slots.into_iter().enumerate() {
            let Slot {
                index: _,
                id,
                name,
                arguments,
                extra,
            } = slot;
            let id = tool::unique_id(&mut ids, id, (turn, n));
            calls.push(ToolCall {
                id,
                name,
                arguments,
                extra,
            });
        }
        let stop = match self.finish.as_deref() {
            _ if self.has_dropped_calls => Stop::Length,
            // Of Mistral and Zhipu.
            Some("model_length" | "model_context_window_exceeded") => Stop::WindowFull,
            Some("length" | "max_tokens") => Stop::Length,
            // The second is Zhipu's.
            Some("content_filter" | "sensitive") => Stop::Filtered,
            // vLLM says "tool_calls" of a call that its limit cut off.
            _ if tool::last_is_cut_off(&calls) => Stop::Length,
            // "stop" beside calls, "tool_calls" without any, and unknown words: the calls decide.
            _ if calls.is_empty() => Stop::EndTurn,
            _ => Stop::ToolCalls,
        };
        let reply = ModelReply {
            text: self.text,
            calls,
            stop,
            extra: without_repetition(self.extra),
        };
        (reply, self.tokens)
    }
}

impl ChatAssembly {
    fn add_text(&mut self, said: &Value, deltas: &mut Vec<Delta>) {
        let mut text = String::new();
        match &said["content"] {
            Value::String(content) => text.push_str(content),
            // Parts: only text counts; thoughts and images do not.
            Value::Array(parts) => parts
                .iter()
                .filter_map(|part| part.as_str().or_else(|| part["text"].as_str()))
                .for_each(|part| text.push_str(part)),
            _ => {}
        }
        text.push_str(said["refusal"].as_str().unwrap_or_default());
        if !text.is_empty() {
            self.text.push_str(&text);
            deltas.push(Delta::Text(text));
        }
    }

    fn add_call(&mut self, call: &Value, deltas: &mut Vec<Delta>) {
        let index = call["index"].as_u64();
        let id = call["id"].as_str().unwrap_or_default();
        let name = call["function"]["name"].as_str().unwrap_or_default();
        let arguments = &call["function"]["arguments"];
        let at = match self.find(index, id, (name, arguments)) {
            Some(at) => at,
            None if self.slots.len() == MAX_CALLS => {
                self.has_dropped_calls = true;
                return;
            }
            None => {
                self.slots.push(Slot {
                    index,
                    id: id.to_owned(),
                    name: String::new(),
                    arguments: String::new(),
                    extra: Extra::new(),
                });
                self.slots.len() - 1
            }
        };
        let slot = &mut self.slots[at];
        if slot.id.is_empty() {
            slot.id.push_str(id);
        }
        if slot.name.is_empty() && !name.is_empty() {
            slot.name.push_str(name);
            deltas.push(Delta::Call(name.to_owned()));
        }
        add_of_call(&mut slot.extra, call, &mut self.extra_size);
        match arguments {
            Value::String(text) => slot.arguments.push_str(text),
            Value::Null => {}
            // An object instead of a string: it is complete.
            value => slot.arguments.push_str(&value.to_string()),
        }
    }

    /// The call that a piece belongs to; `None` if it begins a new one.
    fn find(
        &self,
        index: Option<u64>,
        id: &str,
        (name, arguments): (&str, &Value),
    ) -> Option<usize> {
        let at = match index {
            Some(index) => self.slots.iter().rposition(|s| s.index == Some(index))?,
            None if !id.is_empty() => match self.slots.iter().rposition(|s| s.id == id) {
                Some(at) => at,
                None if name.is_empty() => self.slots.len().checked_sub(1)?,
                None => return None,
            },
            None if name.is_empty() => self.slots.len().checked_sub(1)?,
            None => return None,
        };
        // Some servers number every call 0 and distinguish them by id alone. A changed id without a
        // name is no new call: one server generates an id for each piece.
        let slot = &self.slots[at];
        let other = match id {
            "" => slot.is_followed_by(name, arguments),
            id => !slot.id.is_empty() && slot.id != id && !name.is_empty(),
        };
        (!other).then_some(at)
    }
}

impl Slot {
    /// Whether a piece with the same number and without an id begins another call: Gemini's servers number all calls 0, and
    /// some proxies before them send no id either. A server that repeats the name in each piece sends no arguments after
    /// the whole of them.
    fn is_followed_by(&self, name: &str, arguments: &Value) -> bool {
        let has_arguments = match arguments {
            Value::String(text) => !text.is_empty() && *text != self.arguments,
            Value::Null => false,
            _ => true,
        };
        let is_named = !name.is_empty() && !self.name.is_empty();
        is_named && (has_arguments || name != self.name) && self.is_whole()
    }

    /// Whether its arguments are a whole object, which no piece can continue.
    fn is_whole(&self) -> bool {
        self.arguments.trim_end().ends_with('}')
            && serde_json::from_str::<serde_json::Map<String, Value>>(&self.arguments).is_ok()
    }
}

fn tokens(usage: &Value) -> Tokens {
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let prompt = number(&usage["prompt_tokens"]);
    let completion = number(&usage["completion_tokens"]);
    // DeepSeek, Moonshot, and gateways of Anthropic's models have their own names for it.
    let cached = number(&usage["prompt_tokens_details"]["cached_tokens"])
        .max(number(&usage["prompt_cache_hit_tokens"]))
        .max(number(&usage["cached_tokens"]))
        .max(number(&usage["cache_read_input_tokens"]));
    // LiteLLM's proxy (twice) and OpenRouter, for Anthropic's models.
    let written = number(&usage["cache_creation_input_tokens"])
        .max(number(
            &usage["prompt_tokens_details"]["cache_creation_tokens"],
        ))
        .max(number(
            &usage["prompt_tokens_details"]["cache_write_tokens"],
        ));
    // Tokens only in the total are cache tokens if a gateway counts those apart from the prompt (LiteLLM: what Bedrock writes;
    // Portkey: all), else reasoning (xAI, Gemini's compatible API).
    let beside = number(&usage["total_tokens"]).saturating_sub(prompt.saturating_add(completion));
    let of_cache = [written, cached, cached.saturating_add(written)];
    let (input, output) = match beside > 0 && of_cache.contains(&beside) {
        true => (prompt + beside, completion),
        false => (prompt, completion + beside),
    };
    Tokens {
        input,
        cached: cached.min(input),
        written: written.min(input.saturating_sub(cached)),
        output,
    }
}

#[cfg(test)]
#[path = "assemble_tests.rs"]
mod tests;

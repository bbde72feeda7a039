//! A reply out of what servers send: one completion, or the chunks of a stream.
//!
//! Read leniently, as values and not as structs: Ollama, LM Studio, vLLM and llama.cpp each leave
//! something away or shape it otherwise, and a strict reader would refuse good replies. What the model
//! wrote as arguments is kept as it is; only the loop judges it.

use std::collections::HashSet;

use agentmine_domain::Usage;
use serde_json::Value;

use crate::{Delta, ModelReply, Stop, ToolCall};

/// Calls in one reply at most. A model in a rut can ask for thousands.
const MAX_CALLS: usize = 256;

/// Tokens of one request, as the server counts them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tokens {
    /// Sent, cached ones included.
    pub(crate) input: u64,
    /// Sent, and found in the provider's cache.
    pub(crate) cached: u64,
    /// Received.
    pub(crate) output: u64,
}

/// US dollars for a million tokens, which is also millionths of a dollar for one.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Prices {
    /// Input that was not cached.
    pub(crate) input: f64,
    /// Cached input.
    pub(crate) cached: f64,
    /// Output.
    pub(crate) output: f64,
}

impl Tokens {
    fn read(usage: &Value) -> Self {
        let number = |value: &Value| value.as_u64().unwrap_or(0);
        let input = number(&usage["prompt_tokens"]);
        // DeepSeek has a name of its own for it.
        let cached = number(&usage["prompt_tokens_details"]["cached_tokens"])
            .max(number(&usage["prompt_cache_hit_tokens"]));
        Self {
            input,
            cached: cached.min(input),
            output: number(&usage["completion_tokens"]),
        }
    }

    /// The usage of one call of the model.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a cost from a wrong price saturates, which is what is wanted"
    )]
    pub(crate) fn usage(self, prices: Prices) -> Usage {
        let cost = (self.input - self.cached) as f64 * prices.input
            + self.cached as f64 * prices.cached
            + self.output as f64 * prices.output;
        Usage {
            model_calls: 1,
            tool_calls: 0,
            input_tokens: self.input,
            cached_tokens: self.cached,
            output_tokens: self.output,
            cost_micros: cost.round() as u64,
        }
    }
}

/// What is wrong with an answer.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Odd {
    /// Neither a completion nor a chunk.
    #[error("it has no choices")]
    NoChoices,
    /// More calls than anybody can want.
    #[error("more than {MAX_CALLS} tool calls in one reply")]
    TooManyCalls,
}

/// A call of which more may come.
#[derive(Debug)]
struct Slot {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: String,
}

/// A reply in the making.
#[derive(Debug, Default)]
pub(crate) struct Assembly {
    text: String,
    slots: Vec<Slot>,
    finish: Option<String>,
    tokens: Option<Tokens>,
}

impl Assembly {
    /// Adds a chunk of a stream, or a whole completion. Gives what a person who looks on would see.
    pub(crate) fn add(&mut self, value: &Value) -> Result<Vec<Delta>, Odd> {
        if value["usage"].is_object() {
            self.tokens = Some(Tokens::read(&value["usage"]));
        }
        let Some(choices) = value["choices"].as_array() else {
            // A chunk of usage alone has an empty list; some servers leave even that away.
            return match value["usage"].is_object() {
                true => Ok(Vec::new()),
                false => Err(Odd::NoChoices),
            };
        };
        let mut deltas = Vec::new();
        // Only one choice was asked for.
        if let Some(choice) = choices.first() {
            let said = match &choice["delta"] {
                Value::Null => &choice["message"],
                delta => delta,
            };
            self.add_text(said, &mut deltas);
            for call in said["tool_calls"].as_array().into_iter().flatten() {
                self.add_call(call, &mut deltas)?;
            }
            if let Some(finish) = choice["finish_reason"].as_str().filter(|f| !f.is_empty()) {
                self.finish = Some(finish.to_owned());
            }
        }
        Ok(deltas)
    }

    fn add_text(&mut self, said: &Value, deltas: &mut Vec<Delta>) {
        let mut text = String::new();
        match &said["content"] {
            Value::String(content) => text.push_str(content),
            // Parts: only text counts; thoughts and pictures do not.
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

    fn add_call(&mut self, call: &Value, deltas: &mut Vec<Delta>) -> Result<(), Odd> {
        let index = call["index"].as_u64();
        let id = call["id"].as_str().unwrap_or_default();
        let name = call["function"]["name"].as_str().unwrap_or_default();
        let at = match self.find(index, id, name) {
            Some(at) => at,
            None if self.slots.len() == MAX_CALLS => return Err(Odd::TooManyCalls),
            None => {
                self.slots.push(Slot {
                    index,
                    id: id.to_owned(),
                    name: String::new(),
                    arguments: String::new(),
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
        match &call["function"]["arguments"] {
            Value::String(text) => slot.arguments.push_str(text),
            Value::Null => {}
            // An object where a string should be: it is whole.
            value => slot.arguments.push_str(&value.to_string()),
        }
        Ok(())
    }

    /// Which call a piece belongs to; `None`: it begins a new one.
    fn find(&self, index: Option<u64>, id: &str, name: &str) -> Option<usize> {
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
        // Some servers number every call 0 and tell them apart by id alone. A changed id without a
        // name is no new call: one server makes up an id for each piece.
        let slot = &self.slots[at];
        let other = !id.is_empty() && !slot.id.is_empty() && slot.id != id && !name.is_empty();
        (!other).then_some(at)
    }

    /// Whether the server has said why the reply ended. What follows is bookkeeping.
    pub(crate) fn has_finished(&self) -> bool {
        self.finish.is_some()
    }

    /// Whether nothing has come yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.text.is_empty() && self.slots.is_empty() && self.finish.is_none()
    }

    /// The reply. `turn` goes into the ids that have to be made up, so that they are unique in the
    /// conversation too, and the same each time.
    pub(crate) fn finish(mut self, turn: usize) -> (ModelReply, Tokens) {
        if self.slots.iter().all(|slot| slot.index.is_some()) {
            self.slots.sort_by_key(|slot| slot.index);
        }
        let mut ids = HashSet::new();
        let mut calls = Vec::with_capacity(self.slots.len());
        for (n, slot) in self.slots.into_iter().enumerate() {
            let Slot {
                index: _,
                mut id,
                name,
                arguments,
            } = slot;
            let mut again = 0;
            while id.is_empty() || ids.contains(&id) {
                id = match again {
                    0 => format!("call_{turn}_{n}"),
                    _ => format!("call_{turn}_{n}_{again}"),
                };
                again += 1;
            }
            ids.insert(id.clone());
            calls.push(ToolCall {
                id,
                name,
                arguments,
            });
        }
        let stop = match self.finish.as_deref() {
            Some("length" | "max_tokens") => Stop::Length,
            Some("content_filter") => Stop::Filtered,
            // "stop" beside calls, "tool_calls" without any, and words nobody knows: the calls decide.
            _ if calls.is_empty() => Stop::EndTurn,
            _ => Stop::ToolCalls,
        };
        let reply = ModelReply {
            text: self.text,
            calls,
            stop,
        };
        (reply, self.tokens.unwrap_or_default())
    }
}

#[cfg(test)]
#[path = "assemble_tests.rs"]
mod tests;

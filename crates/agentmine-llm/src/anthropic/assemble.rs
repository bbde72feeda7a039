//! A reply, put together from one message or from the events of a stream.
//!
//! Read leniently, as values and not as structs: gateways and other vendors' servers speak this protocol too. Events and
//! blocks of unknown types are skipped, as the API asks of its clients.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::layout::{Layout, is_thinking};
use crate::api::tool::{self, MAX_CALLS};
use crate::api::{self, BYTES_OF_TOKEN, Malformed, Tokens};
use crate::message::{Extra, ModelReply, Stop, ToolCall};
use crate::model::Delta;

/// Why a reply ends where the conversation fills the model's window.
const WINDOW_FULL: &str = "model_context_window_exceeded";
/// Bytes of thinking in one reply at most. More of it is dropped as a whole, since a part of it is of no use.
const MAX_THINKING: usize = 4 << 20;
/// Bytes of the event that only keeps the connection alive, at most.
const MAX_PING: usize = 64;

/// A block that may still grow.
#[derive(Debug)]
struct Block {
    index: u64,
    content: Content,
}

#[derive(Debug)]
enum Content {
    Text(String),
    Call {
        id: String,
        name: String,
        /// The arguments of a call that came whole.
        input: Value,
        /// The arguments of one that came in pieces.
        json: String,
    },
    /// Thinking, as it came.
    Thinking(Map<String, Value>),
}

/// The tokens counted so far. Each count is that of the whole reply, and a later one replaces it.
#[derive(Debug, Default)]
struct Counts {
    plain: u64,
    read: u64,
    written: u64,
    output: u64,
}

/// A reply so far.
#[derive(Debug, Default)]
pub(super) struct MessageAssembly {
    blocks: Vec<Block>,
    calls: usize,
    /// Bytes of thinking.
    thinking: usize,
    stop: Option<String>,
    counts: Counts,
    has_begun: bool,
    has_ended: bool,
    /// Whether there were more than [`MAX_CALLS`].
    has_dropped_calls: bool,
}

impl api::Assembly for MessageAssembly {
    fn add(&mut self, event: &Value) -> Result<Vec<Delta>, Malformed> {
        let mut deltas = Vec::new();
        let index = event["index"].as_u64().unwrap_or(0);
        match event["type"].as_str() {
            Some("message") => {
                self.has_begun = true;
                for (index, block) in (0..).zip(event["content"].as_array().into_iter().flatten()) {
                    self.begin(index, block, &mut deltas);
                }
                self.end(event);
                self.has_ended = true;
            }
            Some("message_start") => {
                self.has_begun = true;
                self.count(&event["message"]["usage"]);
            }
            Some("content_block_start") => {
                self.has_begun = true;
                self.begin(index, &event["content_block"], &mut deltas);
            }
            Some("content_block_delta") => self.grow(index, &event["delta"], &mut deltas),
            Some("message_delta") => {
                self.end(&event["delta"]);
                self.count(&event["usage"]);
            }
            Some("message_stop") => self.has_ended = self.has_begun,
            Some("ping") => {}
            Some(_) if self.has_begun => {}
            Some(_) => return Err(Malformed("it is no part of a message".into())),
            None => return Err(Malformed("it has no type".into())),
        }
        Ok(deltas)
    }

    fn has_ended(&self) -> bool {
        self.has_ended
    }

    fn has_reason(&self) -> bool {
        self.stop.is_some()
    }

    fn keeps_alive(event: &str) -> bool {
        event.len() <= MAX_PING && event.contains("\"ping\"")
    }

    fn is_empty(&self) -> bool {
        self.blocks.is_empty() && !self.has_finished()
    }

    /// The input is counted in the first event, and the output in the last one.
    fn counted(&self) -> Option<Tokens> {
        let tokens = self.counts.tokens()?;
        let received = self.size() as u64 / BYTES_OF_TOKEN;
        Some(Tokens {
            output: tokens.output.max(received),
            ..tokens
        })
    }

    fn failure(&self) -> Option<&str> {
        None
    }

    fn finish(mut self, turn: usize) -> (ModelReply, Option<Tokens>) {
        self.blocks.sort_by_key(|block| block.index);
        let tokens = self.counts.tokens();
        let is_cut = self.is_cut();
        let keeps_thinking = self.thinking <= MAX_THINKING;
        let (mut text, mut calls) = (String::new(), Vec::new());
        let (mut layout, mut ids) = (Layout::default(), HashSet::new());
        for Block { index: _, content } in self.blocks {
            match content {
                Content::Text(more) => {
                    layout.add_text(&more);
                    text.push_str(&more);
                }
                Content::Call {
                    id,
                    name,
                    input,
                    json,
                } => {
                    layout.add_call();
                    calls.push(ToolCall {
                        id: tool::unique_id(&mut ids, id, (turn, calls.len())),
                        name,
                        arguments: arguments(input, json),
                        extra: Extra::new(),
                    });
                }
                Content::Thinking(block) => {
                    // The API refuses thinking that is empty, or that the end of the reply cut off before its signature.
                    let is_sendable = is_whole(&block) || (!is_cut && has(&block, "thinking"));
                    if keeps_thinking && is_sendable {
                        layout.add_thinking(block);
                    }
                }
            }
        }
        let stop = match self.stop.as_deref() {
            Some(WINDOW_FULL) => Stop::WindowFull,
            _ if is_cut => Stop::Length,
            Some("refusal") => Stop::Filtered,
            _ if tool::last_is_cut_off(&calls) => Stop::Length,
            // "end_turn", "stop_sequence", "tool_use", and unknown words: the calls decide.
            _ if calls.is_empty() => Stop::EndTurn,
            _ => Stop::ToolCalls,
        };
        let reply = ModelReply {
            text,
            calls,
            stop,
            extra: layout.into_extra(),
        };
        (reply, tokens)
    }
}

impl MessageAssembly {
    /// A paused turn (`pause_turn`) is incomplete too.
    fn is_cut(&self) -> bool {
        let stop = self.stop.as_deref();
        let words = ["max_tokens", WINDOW_FULL, "pause_turn"];
        self.has_dropped_calls || stop.is_some_and(|stop| words.contains(&stop))
    }

    fn begin(&mut self, index: u64, block: &Value, deltas: &mut Vec<Delta>) {
        let text = |name: &str| block[name].as_str().unwrap_or_default().to_owned();
        let content = match block["type"].as_str().unwrap_or_default() {
            "text" => {
                let text = text("text");
                if !text.is_empty() {
                    deltas.push(Delta::Text(text.clone()));
                }
                Content::Text(text)
            }
            "tool_use" if self.calls == MAX_CALLS => {
                self.has_dropped_calls = true;
                return;
            }
            "tool_use" => {
                self.calls += 1;
                let name = text("name");
                deltas.push(Delta::Call(name.clone()));
                Content::Call {
                    id: text("id"),
                    name,
                    input: block["input"].clone(),
                    json: String::new(),
                }
            }
            kind if is_thinking(kind) => {
                self.thinking = self.thinking.saturating_add(block.to_string().len());
                Content::Thinking(block.as_object().cloned().unwrap_or_default())
            }
            _ => return,
        };
        self.blocks.push(Block { index, content });
    }

    fn grow(&mut self, index: u64, delta: &Value, deltas: &mut Vec<Delta>) {
        let mut blocks = self.blocks.iter_mut().rev();
        let Some(block) = blocks.find(|block| block.index == index) else {
            return;
        };
        let piece = |name: &str| delta[name].as_str().filter(|piece| !piece.is_empty());
        match &mut block.content {
            Content::Text(text) => {
                if let Some(more) = piece("text") {
                    text.push_str(more);
                    deltas.push(Delta::Text(more.to_owned()));
                }
            }
            Content::Call { json, .. } => json.push_str(piece("partial_json").unwrap_or_default()),
            Content::Thinking(block) => {
                if let Some(more) = piece("thinking") {
                    self.thinking = self.thinking.saturating_add(more.len());
                    if self.thinking <= MAX_THINKING {
                        append(block, more);
                    }
                }
                if let Some(signature) = piece("signature") {
                    self.thinking = self.thinking.saturating_add(signature.len());
                    block.insert("signature".to_owned(), signature.into());
                }
            }
        }
    }

    /// Bytes of what the model wrote.
    fn size(&self) -> usize {
        let of_blocks = self.blocks.iter().map(|block| match &block.content {
            Content::Text(text) => text.len(),
            Content::Call { json, .. } => json.len(),
            // Below.
            Content::Thinking(_) => 0,
        });
        self.thinking + of_blocks.sum::<usize>()
    }

    fn end(&mut self, message: &Value) {
        if let Some(stop) = message["stop_reason"].as_str().filter(|it| !it.is_empty()) {
            self.stop = Some(stop.to_owned());
        }
        self.count(&message["usage"]);
    }

    fn count(&mut self, usage: &Value) {
        let Counts {
            plain,
            read,
            written,
            output,
        } = &mut self.counts;
        for (name, count) in [
            ("input_tokens", plain),
            ("cache_read_input_tokens", read),
            ("cache_creation_input_tokens", written),
            ("output_tokens", output),
        ] {
            // Some servers repeat counts of the beginning as 0 at the end.
            if let Some(tokens) = usage[name].as_u64().filter(|tokens| *tokens > 0) {
                *count = tokens;
            }
        }
    }
}

impl Counts {
    /// The API counts as input only what is neither read from the cache nor written to it.
    fn tokens(&self) -> Option<Tokens> {
        let Self {
            plain,
            read,
            written,
            output,
        } = *self;
        let input = plain.saturating_add(read).saturating_add(written);
        let tokens = Tokens {
            input,
            cached: read,
            written,
            output,
        };
        // Counts of zero are none: every request has tokens.
        (tokens != Tokens::default()).then_some(tokens)
    }
}

/// A call without arguments comes without any piece of them.
fn arguments(input: Value, json: String) -> String {
    match json.trim().is_empty() {
        true if input.is_object() => input.to_string(),
        true => "{}".to_owned(),
        false => json,
    }
}

/// Whether thinking is signed, or has nothing to sign.
fn is_whole(block: &Map<String, Value>) -> bool {
    has(block, "signature") || has(block, "data")
}

fn has(block: &Map<String, Value>, name: &str) -> bool {
    let text = block.get(name).and_then(Value::as_str);
    text.is_some_and(|it| !it.is_empty())
}

fn append(block: &mut Map<String, Value>, more: &str) {
    match block.get_mut("thinking") {
        Some(Value::String(text)) => text.push_str(more),
        _ => {
            block.insert("thinking".to_owned(), more.into());
        }
    }
}

#[cfg(test)]
#[path = "assemble_tests.rs"]
mod tests;

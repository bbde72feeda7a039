//! What the API wants back with a reply: thinking, with its signature, where it was among the other blocks.
//!
//! The API refuses a reply whose thinking was changed, or is in another place. So the order of all blocks is recorded, if a
//! reply has any thinking, and the thinking itself as it came; of texts only the length, and of calls only the place.

use serde_json::{Map, Value, json};

use crate::message::Extra;

/// The member of the reply's [`Extra`].
const LAYOUT: &str = "anthropic_content";
/// The types of blocks that are sent back as they came.
const THINKING: [&str; 2] = ["thinking", "redacted_thinking"];

/// One block of a reply.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Part<'a> {
    /// So many characters of the text.
    Text(usize),
    /// The next call.
    Call,
    /// As it came.
    Thinking(&'a Value),
}

/// Whether a block of this type is sent back as it came.
pub(super) fn is_thinking(block_type: &str) -> bool {
    THINKING.contains(&block_type)
}

/// The layout of a reply that is being read.
#[derive(Debug, Default)]
pub(super) struct Layout(Vec<Value>);

impl Layout {
    pub(super) fn add_text(&mut self, text: &str) {
        self.0
            .push(json!({ "type": "text", "characters": text.chars().count() }));
    }

    pub(super) fn add_call(&mut self) {
        self.0.push(json!({ "type": "tool_use" }));
    }

    pub(super) fn add_thinking(&mut self, block: Map<String, Value>) {
        self.0.push(Value::Object(block));
    }

    /// What is recorded of it.
    pub(super) fn into_extra(self) -> Extra {
        let Self(parts) = self;
        match parts.iter().any(|it| of_thinking(it).is_some()) {
            true => Extra::from_iter([(LAYOUT.to_owned(), Value::Array(parts))]),
            false => Extra::new(),
        }
    }
}

/// The blocks of a reply with this text and so many calls. Where none were recorded, or the text is no longer what it was
/// because it was redacted: what was thought, the text, the calls.
pub(super) fn parts<'a>(extra: &'a Extra, text: &str, calls: usize) -> Vec<Part<'a>> {
    let recorded = extra.get(LAYOUT).and_then(Value::as_array);
    let recorded: Vec<Part<'a>> = recorded.into_iter().flatten().filter_map(part).collect();
    let characters = text.chars().count();
    let of_texts = recorded.iter().map(|part| match part {
        Part::Text(length) => *length,
        Part::Call | Part::Thinking(_) => 0,
    });
    let of_calls = recorded.iter().filter(|part| **part == Part::Call);
    if of_texts.fold(0, usize::saturating_add) == characters && of_calls.count() == calls {
        return recorded;
    }
    let thinking = recorded
        .into_iter()
        .filter(|part| matches!(part, Part::Thinking(_)));
    thinking
        .chain([Part::Text(characters)])
        .chain(std::iter::repeat_n(Part::Call, calls))
        .collect()
}

fn part(value: &Value) -> Option<Part<'_>> {
    match value["type"].as_str()? {
        "text" => {
            let length = value["characters"].as_u64()?;
            Some(Part::Text(usize::try_from(length).ok()?))
        }
        "tool_use" => Some(Part::Call),
        _ => of_thinking(value),
    }
}

fn of_thinking(value: &Value) -> Option<Part<'_>> {
    let block_type = value["type"].as_str()?;
    is_thinking(block_type).then_some(Part::Thinking(value))
}

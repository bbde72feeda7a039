//! What servers want back with the conversation beside its text and its calls: reasoning, and signatures of it.
//!
//! DeepSeek and Kimi refuse a call's result without `reasoning_content`, Gemini 3 one without the call's
//! `extra_content`, Claude behind LiteLLM one without `thinking_blocks`, and OpenRouter passes `reasoning_details` to
//! each of them. vLLM, Ollama and Groq name the reasoning `reasoning`, without which a model thinks it again for each
//! call. A server gets back what it sent, under the same names.

use serde_json::Value;

use crate::message::Extra;

/// The members of a message that come in pieces of one text.
const TEXTS: [&str; 2] = [THOUGHTS, "reasoning"];
/// Sent back even if there is none: Kimi refuses a reply without it.
const THOUGHTS: &str = "reasoning_content";
/// Those that are lists of parts, of which each may come in pieces.
const PARTS: [&str; 2] = ["reasoning_details", "thinking_blocks"];
/// Those that come whole.
const OF_REPLY: [&str; 1] = ["extra_content"];
/// The members of a call that come whole.
const OF_CALL: [&str; 2] = ["extra_content", "provider_specific_fields"];
/// The texts of a part.
const PART_TEXTS: [&str; 3] = ["text", "summary", "thinking"];
/// Bytes of it in one reply at most.
const MAX_EXTRA: usize = 4 << 20;

/// Adds what a message, or a piece of one, holds. `size` is what was added so far, in bytes.
pub(super) fn add_of_reply(extra: &mut Extra, said: &Value, size: &mut usize) {
    for name in TEXTS {
        if let Some(more) = said[name]
            .as_str()
            .filter(|it| (name == THOUGHTS || !it.is_empty()) && fits(size, it.len()))
        {
            append(extra.entry(name).or_insert(Value::Null), more);
        }
    }
    for name in PARTS {
        for part in said[name].as_array().into_iter().flatten() {
            if !fits(size, part.to_string().len()) {
                return;
            }
            let known = extra
                .entry(name)
                .or_insert_with(|| Value::Array(Vec::new()));
            if let Some(known) = known.as_array_mut() {
                add_part(known, part);
            }
        }
    }
    add_whole(extra, said, &OF_REPLY, size);
}

/// Adds what a call, or a piece of one, holds.
pub(super) fn add_of_call(extra: &mut Extra, call: &Value, size: &mut usize) {
    add_whole(extra, call, &OF_CALL, size);
}

/// Each text once, since a server may refuse it under two names: OpenRouter repeats `reasoning_details` as `reasoning`, and
/// vLLM before 0.16 repeats `reasoning_content`. An empty text becomes a space, because Kimi takes an empty one for a missing
/// one.
pub(super) fn without_repetition(mut extra: Extra) -> Extra {
    let is_said = |name: &str| extra.get(name).is_some_and(|it| *it != "");
    if is_said("reasoning_details") || is_said(THOUGHTS) {
        extra.remove("reasoning");
    }
    if let Some(Value::String(thoughts)) = extra.get_mut(THOUGHTS)
        && thoughts.is_empty()
    {
        thoughts.push(' ');
    }
    extra
}

fn add_whole(extra: &mut Extra, from: &Value, names: &[&str], size: &mut usize) {
    for name in names {
        let value = &from[*name];
        let is_empty = value.as_object().is_none_or(serde_json::Map::is_empty);
        if !is_empty && fits(size, value.to_string().len()) {
            extra.insert((*name).to_owned(), value.clone());
        }
    }
}

fn fits(size: &mut usize, more: usize) -> bool {
    let all = size.saturating_add(more);
    let fits = all <= MAX_EXTRA;
    if fits {
        *size = all;
    }
    fits
}

/// A piece of the last part continues it: of the same kind and place, and before the signature, which ends a part.
fn add_part(known: &mut Vec<Value>, part: &Value) {
    let is_text = |it: &Value| PART_TEXTS.iter().any(|name| it[*name].is_string());
    let is_signed = |it: &Value| it["signature"].as_str().is_some_and(|it| !it.is_empty());
    let continues = |last: &Value| {
        last["type"] == part["type"]
            && last["index"] == part["index"]
            && !is_signed(last)
            && is_text(last)
            && (is_text(part) || is_signed(part))
    };
    match (known.last_mut().filter(|last| continues(last)), part) {
        (Some(Value::Object(last)), Value::Object(part)) => {
            for (name, value) in part {
                let member = last.entry(name).or_insert(Value::Null);
                match value {
                    Value::String(more) if PART_TEXTS.contains(&name.as_str()) => {
                        append(member, more)
                    }
                    value if member.is_null() || *member == "" => *member = value.clone(),
                    _ => {}
                }
            }
        }
        _ => known.push(part.clone()),
    }
}

fn append(text: &mut Value, more: &str) {
    match text {
        Value::String(text) => text.push_str(more),
        other => *other = Value::String(more.to_owned()),
    }
}

//! Tools and calls in the forms that model APIs accept, whatever a model or a server made of them.

use std::borrow::Cow;
use std::collections::HashSet;

use serde::de::IgnoredAny;
use serde_json::{Value, json};

use crate::message::{ToolCall, ToolSpec};

/// Calls in one reply at most. A model that repeats itself can ask for thousands: what is more is dropped, and the reply
/// counts as cut off.
pub(crate) const MAX_CALLS: usize = 256;

/// The characters that each API accepts in a name or an id.
pub(crate) fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

/// A name that the model invented may hold anything; in the history, servers refuse all but these
/// characters.
pub(crate) fn wire_name(name: &str) -> Cow<'_, str> {
    if (1..=64).contains(&name.len()) && name.chars().all(is_plain) {
        return name.into();
    }
    if name.is_empty() {
        return "unnamed".into();
    }
    name.chars()
        .take(64)
        .map(|c| if is_plain(c) { c } else { '_' })
        .collect::<String>()
        .into()
}

/// The schema of a tool's arguments, which is always that of an object.
pub(crate) fn parameters(spec: &ToolSpec) -> Value {
    let mut parameters = match &spec.input_schema {
        Value::Object(schema) => Value::Object(schema.clone()),
        _ => json!({ "type": "object" }),
    };
    // A tool without parameters often has a bare object schema, which OpenAI refuses.
    if parameters["type"] == "object" && parameters.get("properties").is_none() {
        parameters["properties"] = json!({});
    }
    parameters
}

/// The arguments of a call in the history as an object: some servers (Anthropic, Ollama, vLLM with some chat templates) refuse
/// the whole conversation because of one malformed call. Anything but an object is wrapped in one. The conversation itself
/// keeps what the model wrote.
pub(crate) fn arguments(text: &str) -> Value {
    match serde_json::from_str(text) {
        Ok(object @ Value::Object(_)) => object,
        _ if text.trim().is_empty() => json!({}),
        _ => json!({ "malformed_arguments": text }),
    }
}

/// Whether the last of these calls was cut off inside a value, whatever the server says of the end of the reply. That a bracket
/// is missing at the end is the model's mistake.
pub(crate) fn last_is_cut_off(calls: &[ToolCall]) -> bool {
    let is_cut_off = |arguments: &str| {
        let read = serde_json::from_str::<IgnoredAny>(arguments);
        let fault = read.err().filter(serde_json::Error::is_eof);
        // The kinds of this error are not public.
        let inside = ["EOF while parsing a string", "EOF while parsing a value"];
        let fault = fault.map(|error| error.to_string()).unwrap_or_default();
        inside.iter().any(|inside| fault.starts_with(inside))
    };
    let arguments = calls.last().map(|call| call.arguments.trim());
    arguments.is_some_and(|text| !text.is_empty() && is_cut_off(text))
}

/// The id of call number `n` in the reply at position `turn`: as the server sent it, unless it sent none, or the same
/// twice.
pub(crate) fn unique_id(
    ids: &mut HashSet<String>,
    sent: String,
    (turn, n): (usize, usize),
) -> String {
    let mut id = sent;
    let mut again = 0;
    while id.is_empty() || ids.contains(&id) {
        id = match again {
            0 => format!("call_{turn}_{n}"),
            _ => format!("call_{turn}_{n}_{again}"),
        };
        again += 1;
    }
    ids.insert(id.clone());
    id
}

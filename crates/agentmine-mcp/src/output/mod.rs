//! What a server returns, as text: every kind of content has one defined form, and the whole is capped.
//!
//! - Text is passed on as it is. Images, audio and other bytes are described, never included:
//!   `[image: image/png, 6 bytes, not shown]`.
//! - A link is `[link to a resource: URI (name, type)] description`; an embedded resource is
//!   `[resource: URI]` and its text.
//! - `structuredContent` becomes JSON text where there is no text that says the same. For programs it is
//!   also kept as it is, within the cap.
//! - A refusal by the server is `{"status":"error","error":{"code":…,"message":…}}` with the server's code.

mod check;

use agentmine_process::truncate_middle;
use rmcp::ErrorData;
use serde_json::{Value, json};

use crate::ToolOutput;

pub(crate) use check::usable;

/// Bytes of a server's own words in an error.
const MAX_WORDS: usize = 500;

/// A tool's result, checked against what the tool promises. `None` where it is not such a result.
pub(crate) fn of_result(result: &Value, promise: Option<&Value>, max: usize) -> Option<ToolOutput> {
    let result = result.as_object()?;
    let is = |key: &str| result.get(key).filter(|value| !value.is_null());
    if is("resultType").and_then(Value::as_str) == Some("task") {
        let words = "the tool answered with a task, which was not asked for";
        return Some(refused(-32603, words));
    }
    let content = match is("content") {
        Some(Value::Array(content)) => content.as_slice(),
        None => &[],
        Some(_) => return None,
    };
    let structured = is("structuredContent");
    let known = ["content", "structuredContent", "isError", "resultType"];
    if !result.is_empty() && !known.iter().any(|key| result.contains_key(*key)) {
        return None;
    }
    let mut parts: Vec<String> = content.iter().map(block).collect();
    // A server that returns both returns the same twice.
    let has_text = content.iter().any(|block| block["type"] == "text");
    let json = structured.map(Value::to_string);
    let small = json.as_ref().is_some_and(|json| json.len() <= max);
    if let (Some(json), false) = (json, has_text) {
        parts.push(json);
    }
    if parts.is_empty() {
        parts.push("(the tool returned nothing)".to_owned());
    }
    let is_error = is("isError").and_then(Value::as_bool) == Some(true);
    let mut text = truncate_middle(&parts.join("\n"), max);
    if let Some(promise) = promise.filter(|_| !is_error)
        && let Some(note) = check::note(promise, structured)
    {
        text.push('\n');
        text.push_str(&note);
    }
    Some(ToolOutput {
        text,
        is_error,
        structured: structured.filter(|_| small).cloned(),
    })
}

/// What a resource holds.
pub(crate) fn of_resource(result: &Value, max: usize) -> Option<ToolOutput> {
    let contents = result.get("contents")?.as_array()?;
    let text = match contents.as_slice() {
        [] => "(the resource is empty)".to_owned(),
        [only] if only["text"].is_string() => text_of(only, "text", "").to_owned(),
        several => several.iter().map(resource).collect::<Vec<_>>().join("\n"),
    };
    Some(plain(&text, max))
}

/// A prompt's messages, each led by its role.
pub(crate) fn of_prompt(result: &Value, max: usize) -> Option<ToolOutput> {
    let messages = result.get("messages")?.as_array()?;
    let mut parts = Vec::new();
    for message in messages {
        let role = shortened(text_of(message, "role", "unknown"));
        let content = match &message["content"] {
            // One block in the protocol; some servers send a list.
            Value::Array(blocks) => blocks.iter().map(block).collect::<Vec<_>>().join("\n"),
            one => block(one),
        };
        parts.push(format!("{role}: {content}"));
    }
    if parts.is_empty() {
        parts.push("(the prompt is empty)".to_owned());
    }
    Some(plain(&parts.join("\n\n"), max))
}

/// The server refused the call itself: an unknown tool, or wrong arguments.
pub(crate) fn of_refusal(error: &ErrorData, max: usize) -> ToolOutput {
    // Escaped, a character can take six bytes.
    let mut message = truncate_middle(&error.message, max);
    if Value::from(message.as_str()).to_string().len() > max.saturating_add(MAX_WORDS) {
        message = truncate_middle(&error.message, max / 6);
    }
    let mut told = json!({"code": error.code.0, "message": message});
    let data = error.data.as_ref();
    if let Some(data) = data.filter(|data| data.to_string().len() <= MAX_WORDS) {
        told["data"] = data.clone();
    }
    error_of(&told)
}

/// Our own refusal of a call, in the same form.
pub(crate) fn refused(code: i64, message: &str) -> ToolOutput {
    error_of(&json!({"code": code, "message": message}))
}

fn error_of(error: &Value) -> ToolOutput {
    ToolOutput {
        text: json!({"status": "error", "error": error}).to_string(),
        is_error: true,
        structured: None,
    }
}

fn plain(text: &str, max: usize) -> ToolOutput {
    ToolOutput {
        text: truncate_middle(text, max),
        is_error: false,
        structured: None,
    }
}

/// A server's own words, short enough for an error, on one line, and without control characters or
/// changes of the reading direction.
pub(crate) fn shortened(words: &str) -> String {
    let short = truncate_middle(words, MAX_WORDS);
    short
        .chars()
        .map(|c| if is_control(c) { ' ' } else { c })
        .collect()
}

/// A server's longer text, with its lines.
pub(crate) fn printable(words: &str) -> String {
    let kept = |c: &char| matches!(c, '\n' | '\t') || !is_control(*c);
    words.chars().filter(kept).collect()
}

fn is_control(c: char) -> bool {
    c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// About how many bytes of memory a value takes; at least what its text takes.
pub(crate) fn weight(value: &Value) -> usize {
    const EACH: usize = 64;
    EACH + match value {
        Value::String(text) => text.len(),
        Value::Array(values) => values.iter().map(weight).sum(),
        Value::Object(values) => values
            .iter()
            .map(|(key, value)| EACH + key.len() + weight(value))
            .sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}

/// At most `max` bytes of the start, whole characters only.
pub(crate) fn head_of(text: &str, max: usize) -> &str {
    let mut end = max.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

fn block(block: &Value) -> String {
    let mime = shortened(text_of(block, "mimeType", "unknown type"));
    match block["type"].as_str() {
        Some("text") => text_of(block, "text", "").to_owned(),
        Some(kind @ ("image" | "audio")) => {
            let bytes = decoded_len(text_of(block, "data", ""));
            format!("[{kind}: {mime}, {bytes} bytes, not shown]")
        }
        Some("resource_link") => {
            let uri = text_of(block, "uri", "");
            let name = text_of(block, "title", text_of(block, "name", "no name"));
            let description = text_of(block, "description", "");
            let link = format!("[link to a resource: {uri} ({name}, {mime})] {description}");
            link.trim_end().to_owned()
        }
        Some("resource") => resource(&block["resource"]),
        Some(other) => format!("[content of type {:?}, not shown]", shortened(other)),
        None => "[content of no type, not shown]".to_owned(),
    }
}

fn resource(resource: &Value) -> String {
    let uri = text_of(resource, "uri", "");
    match resource["text"].as_str() {
        Some(text) => format!("[resource: {uri}]\n{text}"),
        None => {
            let mime = shortened(text_of(resource, "mimeType", "unknown type"));
            let bytes = decoded_len(text_of(resource, "blob", ""));
            format!("[resource: {uri}, {mime}, {bytes} bytes, not shown]")
        }
    }
}

fn text_of<'a>(value: &'a Value, key: &str, default: &'a str) -> &'a str {
    value[key].as_str().unwrap_or(default)
}

/// How many bytes base64 stands for.
fn decoded_len(base64: &str) -> usize {
    base64.trim_end_matches('=').len() * 3 / 4
}

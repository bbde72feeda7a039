//! The results of a server as text. Every kind of content has one form, and the whole is capped.
//!
//! - Text is unchanged. Images, audio and other bytes are described, never included:
//!   `[image: image/png, 6 bytes, not shown]`.
//! - A link is `[link to a resource: URI (name, type)] description`; an embedded resource is
//!   `[resource: URI]` and its text.
//! - `structuredContent` becomes JSON text unless there is text. For programs it is also kept as it is,
//!   within the cap.
//! - A refusal by the server is `{"status":"error","error":{"code":…,"message":…}}` with the server's code.

mod check;

use agentmine_process::truncate_middle;
use rmcp::ErrorData;
use serde_json::{Value, json};

use crate::ToolOutput;
use crate::text::{MAX_WORDS, shortened};

pub(crate) use check::usable;

/// A tool's result, checked against its `outputSchema`. `None` if it is not a tool's result.
pub(crate) fn of_result(result: &Value, schema: Option<&Value>, max: usize) -> Option<ToolOutput> {
    let result = result.as_object()?;
    let is = |key: &str| result.get(key).filter(|value| !value.is_null());
    if is("resultType").and_then(Value::as_str) == Some("task") {
        let words = "the tool returned a task, which was not requested";
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
    // A server that returns both returns the same in both.
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
    if let Some(schema) = schema.filter(|_| !is_error)
        && let Some(note) = check::note(schema, structured)
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

/// The content of a resource.
pub(crate) fn of_resource(result: &Value, max: usize) -> Option<ToolOutput> {
    let contents = result.get("contents")?.as_array()?;
    let text = match contents.as_slice() {
        [] => "(the resource is empty)".to_owned(),
        [only] if only["text"].is_string() => text_of(only, "text", "").to_owned(),
        several => several.iter().map(resource).collect::<Vec<_>>().join("\n"),
    };
    Some(plain(&text, max))
}

/// A prompt's messages, each after its role.
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
    let mut details = json!({"code": error.code.0, "message": message});
    let data = error.data.as_ref();
    if let Some(data) = data.filter(|data| data.to_string().len() <= MAX_WORDS) {
        details["data"] = data.clone();
    }
    error_of(&details)
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

/// The number of bytes that base64 encodes.
fn decoded_len(base64: &str) -> usize {
    base64.trim_end_matches('=').len() * 3 / 4
}

//! The results of a server as text. Every kind of content has one form. The whole is redacted, then cut
//! once, between lines ([`Shown`]); JSON is cut within its texts, so that it stays JSON.
//!
//! - Text is unchanged. Images, audio and other bytes are described, never included:
//!   `[image: image/png, 6 bytes, not shown]`.
//! - A link is `[link to a resource: URI (name, type)] description`; an embedded resource is
//!   `[resource: URI]` and its text.
//! - `structuredContent` becomes JSON text unless there is text. For programs it is also kept as it is,
//!   within the cap.
//! - A refusal by the server is `{"status":"error","error":{"code":…,"message":…}}` with the server's code.

mod check;
mod shown;

use rmcp::ErrorData;
use serde_json::{Value, json};

use crate::ToolOutput;
use crate::text::{MAX_WORDS, shortened};

pub(crate) use check::usable;
pub use shown::Redact;
pub(crate) use shown::Shown;

/// A tool's result, checked against its `outputSchema`. `None` if it is not a tool's result.
pub(crate) fn of_result(
    result: &Value,
    schema: Option<&Value>,
    shown: &Shown,
) -> Option<ToolOutput> {
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
    let is_error = is("isError").and_then(Value::as_bool) == Some(true);
    let mut text = match (content, structured) {
        ([], Some(value)) => shown.json(value, &value.to_string()),
        // A server that returns both returns the same in both.
        ([only], Some(value)) if is_json_of(only, value) => {
            shown.json(value, text_of(only, "text", ""))
        }
        (_, Some(value)) if content.iter().all(|block| block["type"] != "text") => {
            let json = value.to_string();
            shown.text(content.iter().map(block).chain([json]))
        }
        ([], None) => "(the tool returned nothing)".to_owned(),
        _ => shown.text(content.iter().map(block)),
    };
    if let Some(schema) = schema.filter(|_| !is_error)
        && let Some(note) = check::note(schema, structured)
    {
        text.push('\n');
        text.push_str(&note);
    }
    Some(ToolOutput {
        text,
        is_error,
        structured: structured
            .filter(|value| shown.has_room_for(value))
            .map(|value| shown.redacted(value.clone())),
    })
}

fn is_json_of(block: &Value, value: &Value) -> bool {
    let text = text_of(block, "text", "");
    block["type"] == "text"
        && text.starts_with(['{', '['])
        && serde_json::from_str::<Value>(text).is_ok_and(|parsed| parsed == *value)
}

/// The content of a resource.
pub(crate) fn of_resource(result: &Value, shown: &Shown) -> Option<ToolOutput> {
    let contents = result.get("contents")?.as_array()?;
    Some(plain(match contents.as_slice() {
        [] => "(the resource is empty)".to_owned(),
        [only] if only["text"].is_string() => shown.text([text_of(only, "text", "").to_owned()]),
        several => shown.text(several.iter().map(resource)),
    }))
}

/// A prompt's messages, each after its role.
pub(crate) fn of_prompt(result: &Value, shown: &Shown) -> Option<ToolOutput> {
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
    Some(plain(shown.text([parts.join("\n\n")])))
}

/// The server refused the call itself: an unknown tool, or wrong arguments.
pub(crate) fn of_refusal(error: &ErrorData, shown: &Shown) -> ToolOutput {
    let mut details = json!({"code": error.code.0, "message": error.message});
    let data = error.data.as_ref();
    if let Some(data) = data.filter(|data| data.to_string().len() <= MAX_WORDS) {
        details["data"] = data.clone();
    }
    let refusal = json!({"status": "error", "error": details});
    ToolOutput {
        text: shown.json(&refusal, &refusal.to_string()),
        is_error: true,
        structured: None,
    }
}

/// Our own refusal of a call, in the same form.
pub(crate) fn refused(code: i64, message: &str) -> ToolOutput {
    let error = json!({"code": code, "message": message});
    ToolOutput {
        text: json!({"status": "error", "error": error}).to_string(),
        is_error: true,
        structured: None,
    }
}

fn plain(text: String) -> ToolOutput {
    ToolOutput {
        text,
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

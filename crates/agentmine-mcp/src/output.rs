//! The result of a call as text: every kind of content has one defined form, and the whole is capped.

use rmcp::ErrorData;
use serde_json::Value;

use crate::ToolOutput;

/// Most bytes of a server's own words in an error.
const MAX_WORDS: usize = 500;

/// `None` if it is no tool's result at all.
pub(crate) fn of_result(result: &Value, max: usize) -> Option<ToolOutput> {
    let result = result.as_object()?;
    if let Some(kind @ ("input_required" | "task")) =
        result.get("resultType").and_then(Value::as_str)
    {
        return Some(ToolOutput {
            text: format!("the tool answered with {kind:?}, which is not supported here"),
            is_error: true,
        });
    }
    let content = match result.get("content") {
        Some(Value::Array(content)) => content.as_slice(),
        None | Some(Value::Null) => &[],
        Some(_) => return None,
    };
    let structured = result.get("structuredContent");
    let known = ["content", "structuredContent", "isError"];
    if !result.is_empty() && !known.iter().any(|key| result.contains_key(*key)) {
        return None;
    }
    let mut parts: Vec<String> = content.iter().map(block).collect();
    // A server that gives both gives the same twice.
    let has_text = content
        .iter()
        .any(|block| text_of(block, "type") == Some("text"));
    if let (Some(structured), false) = (structured, has_text) {
        parts.push(structured.to_string());
    }
    if parts.is_empty() {
        parts.push("(the tool returned nothing)".to_owned());
    }
    Some(ToolOutput {
        text: capped(&parts.join("\n"), max),
        is_error: result.get("isError").and_then(Value::as_bool) == Some(true),
    })
}

/// The server refused the call itself: an unknown tool, wrong arguments.
pub(crate) fn of_refusal(error: &ErrorData, max: usize) -> ToolOutput {
    let (code, message) = (error.code.0, &error.message);
    let mut text = format!("the MCP server refused the call: {message} (code {code})");
    if let Some(data) = &error.data {
        text.push_str(&format!("\n{data}"));
    }
    ToolOutput {
        text: capped(&text, max),
        is_error: true,
    }
}

/// A server's own words, short enough for an error.
pub(crate) fn shortened(words: &str) -> String {
    capped(words, MAX_WORDS)
}

/// The first and the last half of what is too long, with the cut told between them.
pub(crate) fn capped(text: &str, max: usize) -> String {
    if text.len() <= max {
        return text.to_owned();
    }
    let head = head_of(text, max.div_ceil(2));
    let mut from = text.len() - max / 2;
    while !text.is_char_boundary(from) {
        from += 1;
    }
    let tail = text.get(from..).unwrap_or_default();
    let cut = text.len() - head.len() - tail.len();
    format!("{head}\n[... {cut} bytes cut ...]\n{tail}")
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
    let mime = text_of(block, "mimeType").unwrap_or("unknown type");
    match text_of(block, "type") {
        Some("text") => text_of(block, "text").unwrap_or_default().to_owned(),
        Some(kind @ ("image" | "audio")) => {
            let bytes = decoded_len(text_of(block, "data"));
            format!("[{kind}: {mime}, {bytes} bytes, not shown]")
        }
        Some("resource_link") => {
            let uri = text_of(block, "uri").unwrap_or_default();
            let name = text_of(block, "title").or(text_of(block, "name"));
            let name = name.unwrap_or("no name");
            let description = text_of(block, "description").unwrap_or_default();
            format!("[link to a resource: {uri} ({name}, {mime})] {description}")
                .trim_end()
                .to_owned()
        }
        Some("resource") => resource(block.get("resource").unwrap_or(&Value::Null)),
        Some(other) => format!("[content of type {:?}, not shown]", shortened(other)),
        None => "[content of no type, not shown]".to_owned(),
    }
}

fn resource(resource: &Value) -> String {
    let uri = text_of(resource, "uri").unwrap_or_default();
    match text_of(resource, "text") {
        Some(text) => format!("[resource: {uri}]\n{text}"),
        None => {
            let mime = text_of(resource, "mimeType").unwrap_or("unknown type");
            let bytes = decoded_len(text_of(resource, "blob"));
            format!("[resource: {uri}, {mime}, {bytes} bytes, not shown]")
        }
    }
}

fn text_of<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value.get(key)?.as_str()
}

/// How many bytes base64 stands for.
fn decoded_len(base64: Option<&str>) -> usize {
    base64.map_or(0, |text| text.trim_end_matches('=').len() * 3 / 4)
}

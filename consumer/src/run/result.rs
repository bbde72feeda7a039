//! Tool results as they are returned to the model.

use agentmine_agent::ToolResult;
use serde_json::json;

/// The result of a failed call (spec 002 §4.1).
pub(crate) fn failed(code: &str, message: &str) -> ToolResult {
    let error = json!({ "code": code, "message": message });
    ToolResult {
        text: json!({ "status": "error", "error": error }).to_string(),
        is_error: true,
    }
}

/// Truncates a text in the middle: keeps head and tail, and states how many bytes were cut.
pub(crate) fn cap_middle(text: String, max: usize) -> String {
    if text.len() <= max {
        return text;
    }
    let mut head = max / 2;
    while !text.is_char_boundary(head) {
        head -= 1;
    }
    let mut tail = text.len() - max / 2;
    while !text.is_char_boundary(tail) {
        tail += 1;
    }
    format!(
        "{}\n[… {} bytes cut …]\n{}",
        &text[..head],
        tail - head,
        &text[tail..]
    )
}

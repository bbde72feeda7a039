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

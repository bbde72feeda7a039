//! What a call of the model says: its arguments, and a line about it for people.

use agentmine_agent::ToolResult;
use agentmine_llm::ToolCall;
use serde_json::{Map, Value};

use super::result::failed;

/// Parses the arguments as an object; anything else is an error returned to the model.
pub(super) fn arguments(call: &ToolCall) -> Result<Map<String, Value>, ToolResult> {
    if call.arguments.trim().is_empty() {
        return Ok(Map::new());
    }
    match serde_json::from_str(&call.arguments) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(other) => Err(failed(
            "invalid_arguments",
            &format!(
                "the arguments are {}, expected a JSON object",
                kind_of(&other)
            ),
        )),
        Err(error) => Err(failed(
            "invalid_arguments",
            &format!("the arguments are not valid JSON: {error}. Write the call again."),
        )),
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// A one-line summary of a call's arguments for the live view.
pub(super) fn summary(arguments: &Map<String, Value>) -> String {
    let field = |name: &str| arguments.get(name).and_then(Value::as_str);
    let text = match (field("command"), field("path")) {
        (Some(command), Some(path)) => format!("{command} {path}"),
        (Some(command), None) => command.to_owned(),
        (None, Some(path)) => path.to_owned(),
        (None, None) => field("uri")
            .or_else(|| field("name"))
            .unwrap_or_default()
            .to_owned(),
    };
    let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() > 100 {
        line.chars().take(99).chain(['…']).collect()
    } else {
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(arguments: &str) -> ToolCall {
        ToolCall {
            id: "1".into(),
            name: "x".into(),
            arguments: arguments.into(),
            ..ToolCall::default()
        }
    }

    #[test]
    fn malformed_arguments_are_errors_and_not_guessed() {
        assert!(arguments(&call(r#"{"command":"ls"}"#)).is_ok());
        assert!(arguments(&call("")).is_ok());
        for bad in [r#"{"command":"#, "[1]", "null", "ls"] {
            let result = arguments(&call(bad)).unwrap_err();
            assert!(result.is_error, "{bad}");
            assert!(result.text.contains("JSON"), "{}", result.text);
        }
    }

    #[test]
    fn a_summary_is_one_short_line() {
        let summary = |text| summary(&arguments(&call(text)).unwrap());
        assert_eq!(
            summary(r#"{"command":"view","path":"/workspace/a"}"#),
            "view /workspace/a"
        );
        assert_eq!(summary(r#"{"command":"a\nb"}"#), "a b");
        assert_eq!(summary(""), "");
    }
}

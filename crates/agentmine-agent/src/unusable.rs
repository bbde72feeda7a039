//! Replies that the loop cannot use: neither calls that may run nor a final message.

use agentmine_llm::{ModelReply, Stop, ToolSpec};
use serde_json::Value;

use crate::reasoning::without_reasoning;

/// Why a reply cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unusable {
    /// It was cut off at the output limit. The arguments of its calls may be incomplete, so none is run.
    Cut,
    /// The provider's content filter ended it, so it may be incomplete too.
    Filtered,
    /// It says nothing and calls nothing.
    Empty,
    /// It has a call in its text: the server has no parser for the model's calls, or does not know the form that the model
    /// used.
    CallAsText,
}

/// How calls begin in the text of models that were trained on them: Qwen, Hermes and GLM; Qwen-Coder and Llama; Claude;
/// DeepSeek; Kimi; Mistral; gpt-oss. Each at the beginning of a line.
const MARKS: [&str; 11] = [
    "<tool_call>",
    "<|tool_call",
    "<function=",
    "<function_calls>",
    "<invoke name=",
    "<\u{ff5c}tool\u{2581}call",
    "<\u{ff5c}DSML\u{ff5c}",
    "[TOOL_CALLS]",
    "<|python_tag|>",
    "<|channel|>commentary",
    "<|start|>assistant<|channel|>commentary",
];
/// Those of them that follow other words without a line break.
const TOKENS: [&str; 2] = ["<\u{ff5c}tool\u{2581}calls", "<|tool_calls_section"];
/// What begins and ends a block of code.
const FENCE: &str = "```";

impl Unusable {
    /// Why this reply cannot be used; `None` if it can.
    pub(crate) fn of(reply: &ModelReply, tools: &[ToolSpec]) -> Option<Self> {
        match reply.stop {
            Stop::Length | Stop::WindowFull => return Some(Self::Cut),
            Stop::Filtered => return Some(Self::Filtered),
            Stop::EndTurn | Stop::ToolCalls => {}
        }
        if !reply.calls.is_empty() {
            return None;
        }
        match without_reasoning(&reply.text) {
            "" => Some(Self::Empty),
            words => has_call(words, tools).then_some(Self::CallAsText),
        }
    }

    /// What the model is sent.
    pub(crate) fn prompt(self) -> &'static str {
        match self {
            Self::Cut => {
                "Your reply was cut off at the output limit. Continue in smaller steps: one tool call at a time, with shorter text."
            }
            Self::Filtered => {
                "The provider's content filter cut off your reply, and none of its tool calls were run. Continue in another way, and \
                 avoid the text that was filtered. If you are done, state what you changed."
            }
            Self::Empty => {
                "Your reply was empty. Call a tool, or state that you are done and what you changed."
            }
            Self::CallAsText => {
                "Your reply contains a tool call written as text, so nothing was run. Make the call as a real tool call, not in \
                 your message. If you are done, describe what you changed, without a call."
            }
        }
    }

    /// The result of each of its calls.
    pub(crate) fn refusal(self) -> &'static str {
        match self {
            Self::Filtered => "not run: the provider's content filter ended the reply",
            // Empty replies and calls as text have no calls.
            Self::Cut | Self::Empty | Self::CallAsText => {
                "not run: the reply was cut off at the output limit"
            }
        }
    }

    /// Why the work stops after so many of them, the newest of this kind.
    pub(crate) fn stuck(self, count: u32) -> String {
        match self {
            Self::Empty => format!("{count} empty or truncated replies in a row"),
            Self::Cut => format!(
                "{count} empty or truncated replies in a row; the last one was cut off at the output limit. hint: raise \
                 model.max_output_tokens, or the limit of the model's server if it is not set"
            ),
            Self::Filtered => format!(
                "{count} unusable replies in a row; the provider's content filter cut off the last one"
            ),
            Self::CallAsText => format!(
                "{count} replies in a row without a call that can be run; the last one has a tool call written as text. \
                 hint: configure the model's server to parse this model's tool calls (vLLM: --tool-call-parser, llama.cpp: --jinja)"
            ),
        }
    }
}

/// Whether a text has a call: one that begins with a mark outside of blocks of code, or nothing but the JSON of a call of one
/// of these tools.
fn has_call(text: &str, tools: &[ToolSpec]) -> bool {
    is_call(text, tools) || has_marked_call(text)
}

fn has_marked_call(text: &str) -> bool {
    let mut in_code = false;
    for line in text.lines().map(str::trim_start) {
        if let Some(language) = line.strip_prefix(FENCE) {
            // Gemini's.
            if !in_code && language.trim() == "tool_code" {
                return true;
            }
            in_code = !in_code;
        } else if !in_code
            && (MARKS.iter().any(|mark| line.starts_with(mark))
                || TOKENS
                    .iter()
                    .any(|token| line.contains(token) && !line.contains('`')))
        {
            return true;
        }
    }
    false
}

/// Whether a text is `{"name": …, "arguments": …}` of one of these tools, in a block of code or not.
fn is_call(text: &str, tools: &[ToolSpec]) -> bool {
    let text = text.trim_matches('`').trim();
    let json = text.strip_prefix("json").unwrap_or(text);
    let Ok(Value::Object(call)) = serde_json::from_str(json) else {
        return false;
    };
    let name = call.get("name").and_then(Value::as_str);
    let has_arguments = call.contains_key("arguments") || call.contains_key("parameters");
    has_arguments && tools.iter().any(|tool| Some(tool.name.as_str()) == name)
}

#[cfg(test)]
mod tests {
    use agentmine_llm::ToolCall;
    use serde_json::json;

    use super::*;

    fn of(text: &str) -> Option<Unusable> {
        let tools = [ToolSpec {
            name: "text_editor".into(),
            description: String::new(),
            input_schema: json!({}),
        }];
        let reply = ModelReply {
            text: text.into(),
            ..ModelReply::default()
        };
        Unusable::of(&reply, &tools)
    }

    #[test]
    fn a_call_in_the_text_is_found_in_the_forms_that_models_write() {
        for text in [
            "<tool_call>\n{\"name\": \"bash\", \"arguments\": {}}\n</tool_call>",
            "Let me look.\n\n<function=text_editor>\n<parameter=path>\na\n</parameter>\n</function>\n</tool_call>",
            "I run it.\n<function_calls>\n<invoke name=\"bash\">",
            "<|tool_calls_section_begin|><|tool_call_begin|>functions.bash:0",
            "<\u{ff5c}tool\u{2581}calls\u{2581}begin\u{ff5c}>",
            "I look.<\u{ff5c}tool\u{2581}calls\u{2581}begin\u{ff5c}>",
            "Checking.<|tool_calls_section_begin|>",
            "<\u{ff5c}DSML\u{ff5c}function_calls>",
            "[TOOL_CALLS][{\"name\": \"bash\"}]",
            "<|channel|>commentary to=functions.bash <|constrain|>json<|message|>{}",
            "```tool_code\nprint(bash())\n```",
            "{\"name\": \"text_editor\", \"arguments\": {\"command\": \"view\"}}",
            "```json\n{\"name\": \"text_editor\", \"parameters\": {}}\n```",
            "<think>\nI look.\n</think>\n<tool_call>\n",
        ] {
            assert_eq!(of(text), Some(Unusable::CallAsText), "{text}");
        }
    }

    #[test]
    fn a_last_message_is_usable_whatever_it_is_about() {
        for text in [
            "Done.",
            "The parser now reads `<tool_call>` and <function=x> within a line.",
            "It accepts this now:\n\n```xml\n<tool_call>\n</tool_call>\n```\n",
            "{\"name\": \"web\", \"arguments\": {}}",
            "{\"name\": \"text_editor\"}",
        ] {
            assert_eq!(of(text), None, "{text}");
        }
    }

    #[test]
    fn a_reply_of_thoughts_alone_is_empty() {
        for text in ["", " \n", "<think>\nWhat now?\n</think>\n", "<think>\nWhat"] {
            assert_eq!(of(text), Some(Unusable::Empty), "{text:?}");
        }
    }

    #[test]
    fn calls_count_whatever_the_text_beside_them_is() {
        let reply = ModelReply {
            text: "<tool_call>".into(),
            calls: vec![ToolCall::default()],
            ..ModelReply::default()
        };
        assert_eq!(Unusable::of(&reply, &[]), None);
        let cut = ModelReply {
            stop: Stop::Length,
            ..reply
        };
        assert_eq!(Unusable::of(&cut, &[]), Some(Unusable::Cut));
        let filtered = ModelReply {
            stop: Stop::Filtered,
            ..cut
        };
        assert_eq!(Unusable::of(&filtered, &[]), Some(Unusable::Filtered));
    }
}

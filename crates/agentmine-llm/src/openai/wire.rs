//! The request in the shape of Chat Completions.
//!
//! Guaranteed: the same conversation gives the same bytes, and a longer one begins with the bytes of the
//! shorter, since the messages come last. A provider's prompt cache then holds from step to step.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::api::tool;
use crate::message::{Extra, Message, ModelReply, ToolCall, ToolSpec};
use crate::model::ModelRequest;

/// The part of each request that comes from the configuration.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// The model's name.
    pub(crate) model: String,
    /// Ask for a stream.
    pub(crate) stream: bool,
    /// Sampling temperature.
    pub(crate) temperature: Option<f64>,
    /// Most tokens of the reply.
    pub(crate) max_tokens: Option<u32>,
    /// More members of the request.
    pub(crate) more: Map<String, Value>,
}

/// The newer name of the limit, as servers word it that refuse the older.
const NEWER_LIMIT: &str = "max_completion_tokens";

/// The member that asks for the usage of a stream, as servers name it that refuse it.
const USAGE_REQUEST: &str = "stream_options";

/// How OpenAI and Azure name a tool's description that is too long for a model such as GPT-4o.
const LONG_DESCRIPTION: [&str; 2] = ["function.description", "string too long"];
/// Bytes of a description that every model accepts.
const SHORT_DESCRIPTION: usize = 1024;

/// How servers refuse a member of a message: Groq and Cerebras, Groq for some models, Mistral, OpenAI, JSON schemas.
const UNSUPPORTED: [&str; 5] = [
    "is unsupported",
    "is not supported",
    "not permitted",
    "unknown parameter",
    "not allowed",
];

/// Newer models of OpenAI refuse `max_tokens`; most other servers know no other name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LimitName {
    /// `max_completion_tokens`
    MaxCompletionTokens,
    /// `max_tokens`
    MaxTokens,
}

/// Whether a stream's usage is asked for. Mistral refuses that, and sends it unasked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UsageRequest {
    Sent,
    Omitted,
}

/// How much of a tool's description is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Descriptions {
    Whole,
    /// At most [`SHORT_DESCRIPTION`].
    Short,
}

/// Whether a reply is sent back with the reasoning that came with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reasoning {
    Sent,
    Omitted,
}

/// What servers accept differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Dialect {
    pub(crate) limit_name: LimitName,
    pub(crate) usage: UsageRequest,
    pub(crate) descriptions: Descriptions,
    pub(crate) reasoning: Reasoning,
}

impl Dialect {
    /// The dialect to try after a server refused a request in this one with these words; `None` if they name nothing that
    /// could be sent differently.
    pub(crate) fn after_refusal(self, words: &str, settings: &Settings) -> Option<Self> {
        let Self {
            limit_name,
            usage,
            descriptions,
            reasoning,
        } = self;
        if limit_name == LimitName::MaxTokens
            && settings.max_tokens.is_some()
            && words.contains(NEWER_LIMIT)
        {
            return Some(Self {
                limit_name: LimitName::MaxCompletionTokens,
                ..self
            });
        }
        let has_asked = usage == UsageRequest::Sent && settings.stream;
        if has_asked && words.contains(USAGE_REQUEST) {
            return Some(Self {
                usage: UsageRequest::Omitted,
                ..self
            });
        }
        let says = |parts: [&str; 2]| parts.iter().all(|it| words.contains(it));
        if descriptions == Descriptions::Whole && says(LONG_DESCRIPTION) {
            return Some(Self {
                descriptions: Descriptions::Short,
                ..self
            });
        }
        // A setting such as `reasoning_effort` is not one of the messages'.
        let lower = words.to_lowercase();
        let refuses_reasoning = ["messages", "reasoning"]
            .iter()
            .all(|it| lower.contains(it))
            && UNSUPPORTED.iter().any(|it| lower.contains(it));
        (reasoning == Reasoning::Sent && refuses_reasoning).then_some(Self {
            reasoning: Reasoning::Omitted,
            ..self
        })
    }
}

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream_options: Option<StreamOptions>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_completion_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    #[serde(flatten)]
    more: &'a Map<String, Value>,
    messages: Vec<WireMessage<'a>>,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

#[derive(Serialize)]
struct Tool<'a> {
    r#type: &'static str,
    function: Function<'a>,
}

#[derive(Serialize)]
struct Function<'a> {
    name: &'a str,
    description: &'a str,
    parameters: Value,
}

#[derive(Serialize)]
#[serde(tag = "role", rename_all = "lowercase")]
enum WireMessage<'a> {
    System {
        content: &'a str,
    },
    User {
        content: &'a str,
    },
    Assistant {
        /// Null beside calls, never absent: some servers require the key.
        content: Option<&'a str>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<Call<'a>>,
        #[serde(flatten)]
        extra: Option<&'a Extra>,
    },
    Tool {
        tool_call_id: &'a str,
        content: &'a str,
    },
}

#[derive(Serialize)]
struct Call<'a> {
    id: &'a str,
    r#type: &'static str,
    function: CallFunction<'a>,
    #[serde(flatten)]
    extra: &'a Extra,
}

#[derive(Serialize)]
struct CallFunction<'a> {
    name: std::borrow::Cow<'a, str>,
    arguments: std::borrow::Cow<'a, str>,
}

/// The body of one request, as the server accepts it.
pub(crate) fn body(
    settings: &Settings,
    dialect: Dialect,
    request: &ModelRequest<'_>,
) -> serde_json::Result<Vec<u8>> {
    let Settings {
        model,
        stream,
        temperature,
        max_tokens,
        more,
    } = settings;
    let (newer, older) = match dialect.limit_name {
        LimitName::MaxCompletionTokens => (*max_tokens, None),
        LimitName::MaxTokens => (None, *max_tokens),
    };
    serde_json::to_vec(&Body {
        model,
        stream: *stream,
        stream_options: (*stream && dialect.usage == UsageRequest::Sent).then_some(StreamOptions {
            include_usage: true,
        }),
        temperature: *temperature,
        max_completion_tokens: newer,
        max_tokens: older,
        tools: request
            .tools
            .iter()
            .map(|spec| offered(spec, dialect.descriptions))
            .collect(),
        more,
        messages: request
            .messages
            .iter()
            .map(|it| message(it, dialect.reasoning))
            .collect(),
    })
}

fn offered(spec: &ToolSpec, descriptions: Descriptions) -> Tool<'_> {
    let description: &str = match descriptions {
        Descriptions::Whole => &spec.description,
        Descriptions::Short => {
            &spec.description[..spec.description.floor_char_boundary(SHORT_DESCRIPTION)]
        }
    };
    Tool {
        r#type: "function",
        function: Function {
            name: &spec.name,
            description,
            parameters: tool::parameters(spec),
        },
    }
}

fn message(message: &Message, reasoning: Reasoning) -> WireMessage<'_> {
    match message {
        Message::System { text } => WireMessage::System { content: text },
        Message::User { text } => WireMessage::User { content: text },
        Message::Assistant(ModelReply {
            text,
            calls,
            stop: _,
            extra,
        }) => WireMessage::Assistant {
            content: (calls.is_empty() || !text.is_empty()).then_some(text),
            tool_calls: calls.iter().map(call).collect(),
            extra: (reasoning == Reasoning::Sent).then_some(extra),
        },
        Message::Tool {
            call_id,
            name: _,
            text,
            is_error: _,
        } => WireMessage::Tool {
            tool_call_id: call_id,
            content: text,
        },
    }
}

fn call(call: &ToolCall) -> Call<'_> {
    let ToolCall {
        id,
        name,
        arguments,
        extra,
    } = call;
    let arguments = match serde_json::from_str::<Value>(arguments) {
        Ok(Value::Object(_)) => arguments.into(),
        _ => tool::arguments(arguments).to_string().into(),
    };
    Call {
        id,
        r#type: "function",
        function: CallFunction {
            name: tool::wire_name(name),
            arguments,
        },
        extra,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{CallState, Stop};

    /// OpenAI's own.
    const NEWEST: Dialect = Dialect {
        limit_name: LimitName::MaxCompletionTokens,
        usage: UsageRequest::Sent,
        descriptions: Descriptions::Whole,
        reasoning: Reasoning::Sent,
    };
    /// That of most servers.
    const OLDER: Dialect = Dialect {
        limit_name: LimitName::MaxTokens,
        ..NEWEST
    };

    fn settings() -> Settings {
        Settings {
            model: "gpt-5".into(),
            stream: true,
            temperature: Some(0.5),
            max_tokens: Some(4096),
            more: Map::new(),
        }
    }

    fn conversation() -> Vec<Message> {
        let call = |id: &str, name: &str, arguments: &str| ToolCall {
            id: id.into(),
            name: name.into(),
            arguments: arguments.into(),
            ..ToolCall::default()
        };
        vec![
            Message::System {
                text: "You work.".into(),
            },
            Message::User {
                text: "Fix \"it\"\nnow".into(),
            },
            Message::Assistant(ModelReply {
                calls: vec![
                    call("call_1", "shell", "{ \"b\": 1, \"a\": 2 }"),
                    call("call_2", "shell", "{\"cut"),
                    call("call_3", "server:tool 挨", ""),
                ],
                stop: Stop::ToolCalls,
                ..ModelReply::default()
            }),
            Message::Tool {
                call_id: "call_1".into(),
                name: "shell".into(),
                text: "ok".into(),
                is_error: false,
            },
            Message::Assistant(ModelReply {
                text: "Done.".into(),
                ..ModelReply::default()
            }),
        ]
    }

    fn tools() -> Vec<ToolSpec> {
        let spec = |name: &str, input_schema| ToolSpec {
            name: name.into(),
            description: format!("The {name} tool."),
            input_schema,
        };
        vec![
            spec("bare", json!({ "type": "object" })),
            spec("none", Value::Null),
            spec(
                "shell",
                json!({ "type": "object", "properties": { "old": { "type": "string" }, "command": { "type": "string" } }, "required": ["command"] }),
            ),
        ]
    }

    #[test]
    fn the_request_looks_like_this() {
        let (messages, tools) = (conversation(), tools());
        let request = ModelRequest {
            messages: &messages,
            tools: &tools,
            conversation: None,
            state: CallState::default(),
        };
        let bytes = body(&settings(), NEWEST, &request).unwrap();
        let pretty =
            serde_json::to_string_pretty(&serde_json::from_slice::<Value>(&bytes).unwrap())
                .unwrap();
        insta::assert_snapshot!(pretty, @r#"
        {
          "model": "gpt-5",
          "stream": true,
          "stream_options": {
            "include_usage": true
          },
          "temperature": 0.5,
          "max_completion_tokens": 4096,
          "tools": [
            {
              "type": "function",
              "function": {
                "name": "bare",
                "description": "The bare tool.",
                "parameters": {
                  "type": "object",
                  "properties": {}
                }
              }
            },
            {
              "type": "function",
              "function": {
                "name": "none",
                "description": "The none tool.",
                "parameters": {
                  "type": "object",
                  "properties": {}
                }
              }
            },
            {
              "type": "function",
              "function": {
                "name": "shell",
                "description": "The shell tool.",
                "parameters": {
                  "type": "object",
                  "properties": {
                    "old": {
                      "type": "string"
                    },
                    "command": {
                      "type": "string"
                    }
                  },
                  "required": [
                    "command"
                  ]
                }
              }
            }
          ],
          "messages": [
            {
              "role": "system",
              "content": "You work."
            },
            {
              "role": "user",
              "content": "Fix \"it\"\nnow"
            },
            {
              "role": "assistant",
              "content": null,
              "tool_calls": [
                {
                  "id": "call_1",
                  "type": "function",
                  "function": {
                    "name": "shell",
                    "arguments": "{ \"b\": 1, \"a\": 2 }"
                  }
                },
                {
                  "id": "call_2",
                  "type": "function",
                  "function": {
                    "name": "shell",
                    "arguments": "{\"malformed_arguments\":\"{\\\"cut\"}"
                  }
                },
                {
                  "id": "call_3",
                  "type": "function",
                  "function": {
                    "name": "server_tool__",
                    "arguments": "{}"
                  }
                }
              ]
            },
            {
              "role": "tool",
              "tool_call_id": "call_1",
              "content": "ok"
            },
            {
              "role": "assistant",
              "content": "Done."
            }
          ]
        }
        "#);
    }

    #[test]
    fn a_server_gets_back_what_it_sent_beside_text_and_calls() {
        let extra = |name: &str| Extra::from_iter([(name.to_owned(), json!("as it was"))]);
        let mut messages = conversation();
        let Message::Assistant(reply) = &mut messages[2] else {
            panic!("no reply");
        };
        reply.extra = extra("reasoning_content");
        reply.calls[1].extra = extra("extra_content");
        let request = ModelRequest {
            messages: &messages,
            tools: &[],
            conversation: None,
            state: CallState::default(),
        };
        let settings = Settings {
            more: Map::from_iter([("reasoning_effort".to_owned(), json!("low"))]),
            ..settings()
        };
        let bytes = body(&settings, NEWEST, &request).unwrap();
        let body: Value = serde_json::from_slice(&bytes).unwrap();
        let reply = &body["messages"][2];
        assert_eq!(reply["reasoning_content"], "as it was");
        assert_eq!(reply["tool_calls"][1]["extra_content"], "as it was");
        assert_eq!(reply["tool_calls"][0].get("extra_content"), None);
        assert_eq!(body["reasoning_effort"], "low");
        let without = Dialect {
            reasoning: Reasoning::Omitted,
            ..NEWEST
        };
        let bytes = super::body(&settings, without, &request).unwrap();
        let body: Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(body["messages"][2].get("reasoning_content"), None);
        assert_eq!(body["messages"][2]["role"], "assistant");
    }

    #[test]
    fn only_what_a_refusal_names_is_sent_differently() {
        let limit = "Use 'max_completion_tokens' instead.";
        let usage = r#"{"detail":[{"loc":["body","stream_options","include_usage"]}]}"#;
        let long = "Invalid 'tools[26].function.description': string too long. Expected a string with maximum length 1024, but got a string with length 2780 instead.";
        let short = Dialect {
            descriptions: Descriptions::Short,
            ..OLDER
        };
        let unsupported = "messages.2.assistant.reasoning: property 'messages.2.assistant.reasoning' is unsupported";
        let without_reasoning = Dialect {
            reasoning: Reasoning::Omitted,
            ..OLDER
        };
        let without_usage = Dialect {
            usage: UsageRequest::Omitted,
            ..OLDER
        };
        let whole = Settings {
            stream: false,
            max_tokens: None,
            ..settings()
        };
        for (dialect, words, settings, expected) in [
            (OLDER, limit, settings(), Some(NEWEST)),
            (NEWEST, limit, settings(), None),
            (OLDER, usage, settings(), Some(without_usage)),
            (without_usage, usage, settings(), None),
            (OLDER, long, settings(), Some(short)),
            (short, long, settings(), None),
            (OLDER, unsupported, settings(), Some(without_reasoning)),
            (without_reasoning, unsupported, settings(), None),
            (
                OLDER,
                "`messages[3].reasoning`: reasoning is not supported with this model",
                settings(),
                Some(without_reasoning),
            ),
            (
                OLDER,
                r#"{"loc":["body","messages",5,"assistant","reasoning_content"],"msg":"Extra inputs are not permitted"}"#,
                settings(),
                Some(without_reasoning),
            ),
            (
                OLDER,
                "Unknown parameter: 'messages[2].reasoning'.",
                settings(),
                Some(without_reasoning),
            ),
            (
                OLDER,
                "`reasoning_effort` is not supported with this model",
                settings(),
                None,
            ),
            (OLDER, limit, whole.clone(), None),
            (OLDER, usage, whole, None),
            (OLDER, "no such tool", settings(), None),
        ] {
            let seen = dialect.after_refusal(words, &settings);
            assert_eq!(seen, expected, "{words}");
        }
    }

    #[test]
    fn a_description_is_cut_where_the_server_refuses_a_long_one() {
        let tools = [ToolSpec {
            name: "think".into(),
            description: "é".repeat(1_000),
            input_schema: json!({ "type": "object" }),
        }];
        let request = ModelRequest {
            messages: &[],
            tools: &tools,
            conversation: None,
            state: CallState::default(),
        };
        for (descriptions, expected) in [(Descriptions::Whole, 1_000), (Descriptions::Short, 512)] {
            let dialect = Dialect {
                descriptions,
                ..OLDER
            };
            let body = body(&settings(), dialect, &request).unwrap();
            let body: Value = serde_json::from_slice(&body).unwrap();
            let sent = body["tools"][0]["function"]["description"].as_str();
            let sent = sent.map(|text| text.chars().count());
            assert_eq!(sent, Some(expected));
        }
    }

    #[test]
    fn what_is_not_set_is_not_sent() {
        let settings = Settings {
            stream: false,
            temperature: None,
            max_tokens: Some(7),
            ..settings()
        };
        let messages = [Message::User { text: "hi".into() }];
        let request = ModelRequest {
            messages: &messages,
            tools: &[],
            conversation: None,
            state: CallState::default(),
        };
        let text = String::from_utf8(body(&settings, OLDER, &request).unwrap()).unwrap();
        insta::assert_snapshot!(text, @r#"{"model":"gpt-5","stream":false,"max_tokens":7,"messages":[{"role":"user","content":"hi"}]}"#);
    }

    #[test]
    fn a_longer_conversation_begins_with_the_bytes_of_the_shorter() {
        let (messages, tools) = (conversation(), tools());
        let bytes = |count: usize| {
            let request = ModelRequest {
                messages: &messages[..count],
                tools: &tools,
                conversation: None,
                state: CallState::default(),
            };
            body(&settings(), NEWEST, &request).unwrap()
        };
        for count in 1..messages.len() {
            let (shorter, longer) = (bytes(count), bytes(count + 1));
            assert_eq!(shorter, bytes(count));
            let open = shorter.strip_suffix(b"]}").unwrap();
            assert!(longer.starts_with(open));
        }
    }
}

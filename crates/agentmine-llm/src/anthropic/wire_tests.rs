use serde_json::json;

use super::*;
use crate::call_state::CallState;
use crate::message::{Extra, Stop};
use crate::model::ConversationId;

const FORM: Form = Form {
    max_tokens: 32_000,
    thinking: Thinking::AsConfigured,
};

fn settings() -> Settings {
    Settings {
        model: "claude".into(),
        stream: true,
        eager: false,
        temperature: None,
        more: Map::new(),
    }
}

fn user(text: &str) -> Message {
    Message::User { text: text.into() }
}

fn call(id: &str, arguments: &str) -> ToolCall {
    ToolCall {
        id: id.into(),
        name: "shell".into(),
        arguments: arguments.into(),
        ..ToolCall::default()
    }
}

fn reply(text: &str, calls: Vec<ToolCall>) -> Message {
    Message::Assistant(ModelReply {
        text: text.into(),
        calls,
        stop: Stop::ToolCalls,
        ..ModelReply::default()
    })
}

fn result(id: &str, text: &str, is_error: bool) -> Message {
    Message::Tool {
        call_id: id.into(),
        name: "shell".into(),
        text: text.into(),
        is_error,
    }
}

fn conversation() -> Vec<Message> {
    vec![
        Message::System {
            text: "You work.".into(),
        },
        user("Fix \"it\"\nnow"),
        reply(
            "I look.",
            vec![
                call("toolu_1", "{ \"b\": 1, \"a\": 2 }"),
                call("toolu_2", "{\"cut"),
            ],
        ),
        result("toolu_1", "ok", false),
        result("toolu_2", "no such file", true),
        user("A person says: hurry."),
        reply("", vec![call("toolu_3", "")]),
        result("toolu_3", "", false),
    ]
}

fn tools() -> Vec<ToolSpec> {
    let spec = |name: &str, input_schema| ToolSpec {
        name: name.into(),
        description: format!("The {name} tool."),
        input_schema,
    };
    vec![
        spec("none", Value::Null),
        spec(
            "shell",
            json!({ "type": "object", "properties": { "command": { "type": "string" } }, "required": ["command"] }),
        ),
    ]
}

fn sent(messages: &[Message], tools: &[ToolSpec]) -> Value {
    let request = ModelRequest {
        messages,
        tools,
        conversation: Some(ConversationId::unique()),
        state: CallState::default(),
    };
    serde_json::from_slice(&body(&settings(), FORM, &request).unwrap()).unwrap()
}

/// Removes the marks for the cache, and returns how many there were.
fn unmark(value: &mut Value) -> usize {
    match value {
        Value::Array(values) => values.iter_mut().map(unmark).sum(),
        Value::Object(members) => {
            let here = usize::from(members.shift_remove("cache_control").is_some());
            here + members.values_mut().map(unmark).sum::<usize>()
        }
        _ => 0,
    }
}

#[test]
fn the_request_looks_like_this() {
    let body = sent(&conversation(), &tools());
    let pretty = serde_json::to_string_pretty(&body).unwrap();
    insta::assert_snapshot!(pretty, @r#"
    {
      "model": "claude",
      "max_tokens": 32000,
      "stream": true,
      "tools": [
        {
          "name": "none",
          "description": "The none tool.",
          "input_schema": {
            "type": "object",
            "properties": {}
          }
        },
        {
          "name": "shell",
          "description": "The shell tool.",
          "input_schema": {
            "type": "object",
            "properties": {
              "command": {
                "type": "string"
              }
            },
            "required": [
              "command"
            ]
          }
        }
      ],
      "system": [
        {
          "type": "text",
          "text": "You work.",
          "cache_control": {
            "type": "ephemeral"
          }
        }
      ],
      "messages": [
        {
          "role": "user",
          "content": [
            {
              "type": "text",
              "text": "Fix \"it\"\nnow"
            }
          ]
        },
        {
          "role": "assistant",
          "content": [
            {
              "type": "text",
              "text": "I look."
            },
            {
              "type": "tool_use",
              "id": "toolu_1",
              "name": "shell",
              "input": {
                "b": 1,
                "a": 2
              }
            },
            {
              "type": "tool_use",
              "id": "toolu_2",
              "name": "shell",
              "input": {
                "malformed_arguments": "{\"cut"
              }
            }
          ]
        },
        {
          "role": "user",
          "content": [
            {
              "type": "tool_result",
              "tool_use_id": "toolu_1",
              "content": "ok"
            },
            {
              "type": "tool_result",
              "tool_use_id": "toolu_2",
              "content": "no such file",
              "is_error": true
            },
            {
              "type": "text",
              "text": "A person says: hurry.",
              "cache_control": {
                "type": "ephemeral"
              }
            }
          ]
        },
        {
          "role": "assistant",
          "content": [
            {
              "type": "tool_use",
              "id": "toolu_3",
              "name": "shell",
              "input": {}
            }
          ]
        },
        {
          "role": "user",
          "content": [
            {
              "type": "tool_result",
              "tool_use_id": "toolu_3",
              "cache_control": {
                "type": "ephemeral"
              }
            }
          ]
        }
      ]
    }
    "#);
}

#[test]
fn what_is_not_set_is_not_sent_and_a_single_request_writes_no_cache() {
    let messages = [user("hi")];
    let request = ModelRequest {
        messages: &messages,
        tools: &[],
        conversation: None,
        state: CallState::default(),
    };
    let settings = Settings {
        stream: false,
        temperature: Some(0.5),
        more: Map::from_iter([("thinking".to_owned(), json!({ "type": "adaptive" }))]),
        ..settings()
    };
    let text = |form| String::from_utf8(body(&settings, form, &request).unwrap()).unwrap();
    insta::assert_snapshot!(text(FORM), @r#"{"model":"claude","max_tokens":32000,"stream":false,"temperature":0.5,"thinking":{"type":"adaptive"},"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}]}"#);
    let without = Form {
        thinking: Thinking::Omitted,
        ..FORM
    };
    assert!(!text(without).contains("thinking"));
}

#[test]
fn where_the_model_may_not_think_no_thinking_is_sent_back() {
    let recorded = json!([{ "type": "thinking", "thinking": "Hm.", "signature": "c2ln" }, { "type": "text", "characters": 2 }]);
    let reply = Message::Assistant(ModelReply {
        text: "Ok".into(),
        extra: [("anthropic_content".to_owned(), recorded)]
            .into_iter()
            .collect(),
        ..ModelReply::default()
    });
    let messages = [user("go"), reply, user("on")];
    let request = ModelRequest {
        messages: &messages,
        tools: &[],
        conversation: None,
        state: CallState::default(),
    };
    let text = |thinking| {
        let form = Form { thinking, ..FORM };
        String::from_utf8(body(&settings(), form, &request).unwrap()).unwrap()
    };
    let has_thinking = |text: &str| text.contains(r#""type":"thinking""#);
    assert!(has_thinking(&text(Thinking::AsConfigured)));
    assert!(!has_thinking(&text(Thinking::Omitted)));
}

#[test]
fn arguments_are_streamed_where_the_api_can_do_that() {
    let tools = tools();
    let request = ModelRequest {
        messages: &[],
        tools: &tools,
        conversation: None,
        state: CallState::default(),
    };
    for eager in [true, false] {
        let settings = Settings {
            eager,
            ..settings()
        };
        let body: Value =
            serde_json::from_slice(&body(&settings, FORM, &request).unwrap()).unwrap();
        let expected = eager.then_some(&Value::Bool(true));
        assert_eq!(body["tools"][0].get("eager_input_streaming"), expected);
    }
}

#[test]
fn a_longer_conversation_continues_the_shorter_and_reads_what_it_wrote_to_the_cache() {
    let (messages, tools) = (conversation(), tools());
    let is_step = |count: &usize| !matches!(messages[count - 1], Message::Assistant(_));
    let mut before: Option<(Value, Vec<Value>)> = None;
    for count in (2..=messages.len()).filter(is_step) {
        let mut body = sent(&messages[..count], &tools);
        let marked: Vec<Value> = {
            let turns = body["messages"].as_array().unwrap().iter();
            let blocks = turns.flat_map(|turn| turn["content"].as_array().unwrap());
            let marked = blocks.filter(|it| it.get("cache_control").is_some());
            marked.cloned().collect()
        };
        let last = body["messages"].as_array().unwrap().last().unwrap();
        let last = last["content"].as_array().unwrap().last().unwrap();
        assert_eq!(marked.last(), Some(last), "the next step reads up to here");
        assert!(unmark(&mut body) <= 3);
        if let Some((shorter, written)) = before {
            let (turns, earlier) = (body["messages"].as_array().unwrap(), shorter);
            let earlier = earlier.as_array().unwrap();
            let (open, closed) = earlier.split_last().unwrap();
            assert!(turns.starts_with(closed), "{count}");
            let continued = turns[closed.len()]["content"].as_array().unwrap();
            assert!(continued.starts_with(open["content"].as_array().unwrap()));
            let is_same_turn = turns.len() == earlier.len();
            assert!(is_same_turn || marked.contains(written.last().unwrap()));
        }
        before = Some((body["messages"].clone(), marked));
    }
}

#[test]
fn without_a_system_prompt_the_last_tool_is_marked() {
    let body = sent(&[user("hi")], &tools());
    assert_eq!(body.get("system"), None);
    assert_eq!(body["tools"][0].get("cache_control"), None);
    assert_eq!(body["tools"][1]["cache_control"]["type"], "ephemeral");
}

#[test]
fn what_the_api_refuses_as_empty_is_not_sent() {
    let messages = [
        Message::System { text: " ".into() },
        user("one"),
        reply(" \n", vec![]),
        user("\t"),
        user("two"),
        reply("", vec![call("a", "{}")]),
        result("a", " ", true),
    ];
    let mut body = sent(&messages, &[]);
    unmark(&mut body);
    assert_eq!(body.get("system"), None);
    let expected = json!([
        { "role": "user", "content": [{ "type": "text", "text": "one" }, { "type": "text", "text": "two" }] },
        { "role": "assistant", "content": [{ "type": "tool_use", "id": "a", "name": "shell", "input": {} }] },
        { "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "a", "content": NO_TEXT, "is_error": true }] },
    ]);
    assert_eq!(body["messages"], expected);
}

#[test]
fn a_conversation_begins_and_ends_with_the_user() {
    let roles = |messages: &[Message]| -> Vec<String> {
        let body = sent(messages, &[]);
        let turns = body["messages"].as_array().unwrap().iter();
        turns
            .map(|turn| turn["role"].as_str().unwrap().to_owned())
            .collect()
    };
    let done = reply("Done.", vec![]);
    assert_eq!(roles(&[user("a"), done.clone()]), [USER, ASSISTANT, USER]);
    assert_eq!(roles(&[done]), [USER, ASSISTANT, USER]);
    assert_eq!(roles(&[]), [USER]);
}

#[test]
fn ids_of_other_providers_are_made_acceptable_and_unique() {
    let turn = |ids: [&str; 2]| {
        [
            reply("", ids.map(|id| call(id, "{}")).to_vec()),
            result(ids[1], "second", false),
            result(ids[0], "first", false),
        ]
    };
    let mut messages = vec![user("go")];
    // A provider that counts again in each reply.
    messages.extend(turn(["functions.shell:0", "functions.shell:1"]));
    messages.extend(turn(["functions.shell:0", "functions_shell_0"]));
    messages.extend(turn(["", "call_1"]));
    let body = sent(&messages, &[]);
    let blocks = |role: &str, id: &str| -> Vec<String> {
        let turns = body["messages"].as_array().unwrap().iter();
        let turns = turns.filter(|turn| turn["role"] == role);
        let blocks = turns.flat_map(|turn| turn["content"].as_array().unwrap());
        blocks
            .filter_map(|block| Some(block[id].as_str()?.to_owned()))
            .collect()
    };
    let calls = blocks(ASSISTANT, "id");
    assert_eq!(
        calls,
        [
            "functions_shell_0",
            "functions_shell_1",
            "functions_shell_0_2",
            "functions_shell_0_3",
            "call",
            "call_1",
        ]
    );
    let answered = blocks(USER, "tool_use_id");
    let pairs = calls.chunks(2).flat_map(|pair| [&pair[1], &pair[0]]);
    assert!(answered.iter().eq(pairs), "{answered:?}");
}

#[test]
fn thinking_is_sent_back_as_it_came_and_where_it_was() {
    let thought = json!({ "type": "thinking", "thinking": "Hm.", "signature": "c2ln" });
    let hidden = json!({ "type": "redacted_thinking", "data": "ZGF0YQ==" });
    let recorded = json!([thought, { "type": "text", "characters": 3 }, hidden,
        { "type": "text", "characters": 2 }, { "type": "tool_use" }]);
    let extra: Extra = [("anthropic_content".to_owned(), recorded)]
        .into_iter()
        .collect();
    let content = |text: &str, calls: Vec<ToolCall>| {
        let reply = Message::Assistant(ModelReply {
            text: text.into(),
            calls,
            extra: extra.clone(),
            ..ModelReply::default()
        });
        let mut body = sent(&[user("go"), reply, user("on")], &[]);
        unmark(&mut body);
        body["messages"][1]["content"].clone()
    };
    let text = |text: &str| json!({ "type": "text", "text": text });
    let called = json!({ "type": "tool_use", "id": "a", "name": "shell", "input": {} });
    assert_eq!(
        content("挨拶 ok", vec![call("a", "{}")]),
        json!([thought, text("挨拶 "), hidden, text("ok"), called])
    );
    // A text that was redacted has another length.
    assert_eq!(
        content("*** and ok", vec![call("a", "{}")]),
        json!([thought, hidden, text("*** and ok"), called])
    );
}

#[test]
fn thinking_alone_is_no_turn() {
    let recorded = json!([{ "type": "thinking", "thinking": "Hm.", "signature": "c2ln" }]);
    let reply = Message::Assistant(ModelReply {
        extra: [("anthropic_content".to_owned(), recorded)]
            .into_iter()
            .collect(),
        ..ModelReply::default()
    });
    let body = sent(&[user("go"), reply, user("on")], &[]);
    assert_eq!(body["messages"].as_array().unwrap().len(), 1);
}

#[test]
fn a_shorter_reply_is_asked_for_only_where_it_is_of_use() {
    let words = |prompt: u32| {
        format!(
            "input length and `max_tokens` exceed context limit: {prompt} + 32000 > 200000, decrease input length"
        )
    };
    let thinks = |budget: u32| Settings {
        more: Map::from_iter([("thinking".to_owned(), json!({ "budget_tokens": budget }))]),
        ..settings()
    };
    for (prompt, settings, expected) in [
        (180_000, settings(), Some(20_000)),
        (180_000, thinks(8_000), Some(20_000)),
        (180_000, thinks(20_000), None),
        (199_000, settings(), None),
        (201_000, settings(), None),
        // It would have fit.
        (100_000, settings(), None),
    ] {
        let other = FORM.after_overflow(&words(prompt), &settings);
        assert_eq!(other.map(|it| it.max_tokens), expected, "{prompt}");
    }
    let other = "prompt is too long: 210000 tokens > 200000 maximum";
    assert_eq!(FORM.after_overflow(other, &settings()), None);
}

#[test]
fn only_what_a_refusal_names_is_sent_differently() {
    let limit = r#"{"type":"error","error":{"type":"invalid_request_error","message":"max_tokens: 32000 > 8192, which is the maximum allowed number of output tokens for claude-3-5-sonnet-20241022"}}"#;
    let thoughtless = "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `text`. When `thinking` is enabled, a final `assistant` message must start with a thinking block";
    let thinks = Settings {
        more: Map::from_iter([("thinking".to_owned(), json!({ "type": "enabled" }))]),
        ..settings()
    };
    let smaller = Form {
        max_tokens: 8192,
        ..FORM
    };
    let without = Form {
        thinking: Thinking::Omitted,
        ..FORM
    };
    for (form, words, settings, expected) in [
        (FORM, limit, settings(), Some(smaller)),
        (smaller, limit, settings(), None),
        (
            FORM,
            "The maximum tokens you requested exceeds the model limit of 8192.",
            settings(),
            Some(smaller),
        ),
        (FORM, thoughtless, thinks.clone(), Some(without)),
        (without, thoughtless, thinks, None),
        (FORM, thoughtless, settings(), None),
        (FORM, "max_tokens: 5 > 4 apples, no", settings(), None),
        (FORM, "tools.0: no", settings(), None),
    ] {
        assert_eq!(form.after_refusal(words, &settings), expected, "{words}");
    }
}

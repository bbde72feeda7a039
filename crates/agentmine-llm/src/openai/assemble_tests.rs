use serde_json::json;

use super::*;
use crate::api::{Assembly as _, Prices};
use agentmine_domain::Usage;
use agentmine_runtime::config::ModelConfig;

fn assemble(chunks: &[Value]) -> (ModelReply, Option<Tokens>) {
    let mut assembly = ChatAssembly::default();
    for chunk in chunks {
        assembly.add(chunk).unwrap();
    }
    assembly.finish(3)
}

fn delta(delta: Value) -> Value {
    json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": null }] })
}

fn calls(calls: Value) -> Value {
    delta(json!({ "tool_calls": calls }))
}

fn finish(reason: &str) -> Value {
    json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": reason }] })
}

fn whole(message: Value, reason: Value) -> Value {
    json!({ "choices": [{ "message": message, "finish_reason": reason }] })
}

/// Id, name and arguments of each call.
fn seen(reply: &ModelReply) -> Vec<(&str, &str, &str)> {
    reply
        .calls
        .iter()
        .map(|call| (&*call.id, &*call.name, &*call.arguments))
        .collect()
}

#[test]
fn calls_streamed_interleaved_are_put_together_by_index() {
    let (reply, _) = assemble(&[
        delta(json!({ "role": "assistant", "content": null })),
        delta(json!({ "content": "Two " })),
        calls(
            json!([{ "index": 1, "id": "b", "type": "function", "function": { "name": "two", "arguments": "" } }]),
        ),
        calls(
            json!([{ "index": 0, "id": "a", "function": { "name": "one", "arguments": "{\"x\"" } }]),
        ),
        calls(json!([{ "index": 1, "function": { "arguments": "{\"y\":" } }])),
        calls(json!([
            { "index": 0, "function": { "arguments": ":1}" } },
            { "index": 1, "function": { "arguments": "2}" } },
        ])),
        delta(json!({ "content": "calls" })),
        finish("tool_calls"),
    ]);
    assert_eq!(reply.text, "Two calls");
    assert_eq!(
        seen(&reply),
        [("a", "one", r#"{"x":1}"#), ("b", "two", r#"{"y":2}"#)]
    );
    assert_eq!(reply.stop, Stop::ToolCalls);
}

#[test]
fn calls_all_in_one_chunk_without_index_or_id_keep_their_order() {
    let (reply, _) = assemble(&[
        calls(json!([
            { "function": { "name": "one", "arguments": { "path": "a" } } },
            { "function": { "name": "one", "arguments": "{}" } },
            { "id": "", "function": { "name": "three" } },
        ])),
        finish("stop"),
    ]);
    assert_eq!(
        seen(&reply),
        [
            ("call_3_0", "one", r#"{"path":"a"}"#),
            ("call_3_1", "one", "{}"),
            ("call_3_2", "three", ""),
        ]
    );
    assert_eq!(reply.stop, Stop::ToolCalls, "stop beside calls");
}

#[test]
fn calls_that_all_have_index_0_are_distinguished_by_id() {
    let (reply, _) = assemble(&[
        calls(json!([{ "index": 0, "id": "a", "function": { "name": "one", "arguments": "{}" } }])),
        calls(json!([{ "index": 0, "id": "b", "function": { "name": "two", "arguments": "{}" } }])),
    ]);
    assert_eq!(seen(&reply), [("a", "one", "{}"), ("b", "two", "{}")]);
}

/// As Gemini's calls come through proxies that drop the ids.
#[test]
fn calls_that_all_have_index_0_and_no_id_begin_where_the_arguments_are_whole() {
    let piece = |name: &str, arguments: &str| {
        calls(
            json!([{ "index": 0, "id": "", "function": { "name": name, "arguments": arguments } }]),
        )
    };
    let (reply, _) = assemble(&[
        piece("one", r#"{"x":1}"#),
        piece("one", r#"{"x":2}"#),
        piece("two", ""),
        piece("", r#"{"y":"#),
        piece("", "3}"),
        finish("tool_calls"),
    ]);
    assert_eq!(
        seen(&reply),
        [
            ("call_3_0", "one", r#"{"x":1}"#),
            ("call_3_1", "one", r#"{"x":2}"#),
            ("call_3_2", "two", r#"{"y":3}"#),
        ]
    );
    // A name that is repeated in each piece begins no call.
    let (reply, _) = assemble(&[
        piece("one", ""),
        piece("one", r#"{"x":{}"#),
        piece("one", "}"),
        piece("one", ""),
    ]);
    assert_eq!(seen(&reply), [("call_3_0", "one", r#"{"x":{}}"#)]);
}

#[test]
fn an_id_made_up_for_each_piece_does_not_split_a_call() {
    let (reply, _) = assemble(&[
        calls(json!([{ "index": 0, "id": "r1", "function": { "name": "one" } }])),
        calls(json!([{ "index": 0, "id": "r2", "function": { "arguments": "{\"a\":" } }])),
        calls(json!([{ "id": "r3", "function": { "arguments": "1}" } }])),
    ]);
    assert_eq!(seen(&reply), [("r1", "one", r#"{"a":1}"#)]);
}

#[test]
fn pieces_without_index_continue_the_last_call() {
    let (reply, _) = assemble(&[
        calls(json!([{ "id": "a", "function": { "name": "one", "arguments": "{" } }])),
        calls(json!([{ "function": { "arguments": "}" } }])),
        calls(json!([{ "id": "b", "function": { "name": "two", "arguments": "[" } }])),
        calls(json!([{ "id": "b", "function": { "name": "two", "arguments": "]" } }])),
    ]);
    assert_eq!(seen(&reply), [("a", "one", "{}"), ("b", "two", "[]")]);
}

#[test]
fn ids_are_unique_in_the_reply() {
    let (reply, _) = assemble(&[whole(
        json!({ "tool_calls": [
            { "id": "same", "function": { "name": "one" } },
            { "id": "call_3_2", "function": { "name": "two" } },
            { "index": 7, "id": "same", "function": { "name": "three" } },
        ] }),
        json!("tool_calls"),
    )]);
    let ids: Vec<_> = reply.calls.iter().map(|call| &*call.id).collect();
    assert_eq!(ids, ["same", "call_3_2", "call_3_2_1"]);
}

#[test]
fn malformed_arguments_are_kept_as_they_are() {
    for arguments in ["{\"path\": \"a", "not json", "[1,", "\u{fffd}", ""] {
        let (reply, _) = assemble(&[whole(
            json!({ "tool_calls": [{ "id": "a", "function": { "name": "one", "arguments": arguments } }] }),
            json!("tool_calls"),
        )]);
        assert_eq!(reply.calls[0].arguments, arguments);
    }
}

#[test]
fn a_length_stop_stays_one_even_beside_a_cut_call() {
    let (reply, _) = assemble(&[
        calls(
            json!([{ "index": 0, "id": "a", "function": { "name": "one", "arguments": "{\"pa" } }]),
        ),
        finish("length"),
    ]);
    assert_eq!(reply.stop, Stop::Length);
    assert_eq!(reply.calls[0].arguments, "{\"pa");
}

#[test]
fn each_finish_reason_has_its_stop() {
    for (reason, stop) in [
        (json!("stop"), Stop::EndTurn),
        (json!("length"), Stop::Length),
        (json!("model_length"), Stop::WindowFull),
        (json!("model_context_window_exceeded"), Stop::WindowFull),
        (json!("content_filter"), Stop::Filtered),
        (json!("sensitive"), Stop::Filtered),
        (json!("tool_calls"), Stop::EndTurn),
        (json!("eos_token"), Stop::EndTurn),
        (Value::Null, Stop::EndTurn),
    ] {
        let (reply, _) = assemble(&[whole(json!({ "content": "hi" }), reason.clone())]);
        assert_eq!(reply.stop, stop, "{reason}");
    }
    let call = json!({ "tool_calls": [{ "function": { "name": "one" } }] });
    let (reply, _) = assemble(&[whole(call, json!("made_up"))]);
    assert_eq!(reply.stop, Stop::ToolCalls);
}

#[test]
fn content_may_be_null_or_parts_and_reasoning_is_ignored() {
    let (reply, _) = assemble(&[whole(
        json!({
            "content": [{ "type": "thinking", "thinking": [] }, { "type": "text", "text": "a" }, "b"],
            "reasoning_content": "hidden",
            "reasoning": "hidden",
        }),
        json!("stop"),
    )]);
    assert_eq!(reply.text, "ab");
    let (reply, _) = assemble(&[whole(json!({ "content": null }), json!("stop"))]);
    assert_eq!(reply, ModelReply::default());
    let (reply, _) = assemble(&[whole(
        json!({ "content": null, "refusal": "No." }),
        json!("stop"),
    )]);
    assert_eq!(reply.text, "No.");
}

#[test]
fn usage_is_read_where_it_is_and_cached_tokens_are_cheaper() {
    let usage = json!({
        "choices": [],
        "usage": { "prompt_tokens": 1_000, "completion_tokens": 10, "prompt_tokens_details": { "cached_tokens": 600 } },
    });
    let (_, tokens) = assemble(&[finish("stop"), usage]);
    let prices = Prices::of(&ModelConfig {
        input_price: 2.0,
        cached_input_price: Some(0.5),
        output_price: 8.0,
        ..ModelConfig::default()
    });
    assert_eq!(
        prices.usage(tokens.unwrap()),
        Usage {
            model_calls: 1,
            tool_calls: 0,
            input_tokens: 1_000,
            cached_tokens: 600,
            output_tokens: 10,
            cost_micros: 800 + 300 + 80,
        }
    );
    let bare = json!({ "usage": { "prompt_tokens": 5, "prompt_cache_hit_tokens": 9 } });
    let tokens = assemble(&[finish("stop"), bare]).1.unwrap();
    assert_eq!((tokens.input, tokens.cached), (5, 5), "never more than all");
    // The last chunk of Moonshot.
    let mut last = finish("stop");
    last["choices"][0]["usage"] =
        json!({ "prompt_tokens": 7, "completion_tokens": 3, "cached_tokens": 4 });
    let tokens = assemble(&[last]).1.unwrap();
    assert_eq!((tokens.input, tokens.cached, tokens.output), (7, 4, 3));
}

#[test]
fn tokens_that_are_written_to_the_cache_have_a_price_of_their_own() {
    for (member, expected) in [
        (json!({ "cache_creation_input_tokens": 300 }), 300),
        (
            json!({ "prompt_tokens_details": { "cached_tokens": 600, "cache_creation_tokens": 300 } }),
            300,
        ),
        (
            json!({ "prompt_tokens_details": { "cached_tokens": 600, "cache_write_tokens": 300 } }),
            300,
        ),
        // Never more than what was not read from it.
        (
            json!({ "cached_tokens": 600, "cache_creation_input_tokens": 900 }),
            400,
        ),
        (json!({ "cached_tokens": 600 }), 0),
    ] {
        let mut usage = json!({ "prompt_tokens": 1_000, "completion_tokens": 10 });
        usage
            .as_object_mut()
            .unwrap()
            .extend(member.as_object().unwrap().clone());
        let tokens = assemble(&[finish("stop"), json!({ "choices": [], "usage": usage })]).1;
        assert_eq!(tokens.unwrap().written, expected, "{member}");
    }
    let tokens = Tokens {
        input: 1_000,
        cached: 600,
        written: 300,
        output: 10,
    };
    let cost = |cache_write_price| {
        let prices = Prices::of(&ModelConfig {
            input_price: 2.0,
            cached_input_price: Some(0.5),
            cache_write_price,
            output_price: 8.0,
            ..ModelConfig::default()
        });
        prices.usage(tokens).cost_micros
    };
    assert_eq!(cost(None), 200 + 300 + 750 + 80);
    assert_eq!(cost(Some(4.0)), 200 + 300 + 1200 + 80);
}

#[test]
fn usage_that_is_missing_or_zero_is_not_known() {
    let mut reply = whole(json!({ "content": "hi" }), json!("stop"));
    assert_eq!(assemble(std::slice::from_ref(&reply)).1, None);
    reply["usage"] = json!({ "prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0 });
    assert_eq!(assemble(&[reply]).1, None);
}

#[test]
fn what_servers_want_back_is_put_together_from_its_pieces() {
    let details = |detail: Value| delta(json!({ "reasoning_details": [detail] }));
    let (reply, _) = assemble(&[
        delta(json!({ "reasoning_content": "First " })),
        delta(json!({ "reasoning_content": "this.", "content": null })),
        details(json!({ "type": "reasoning.text", "index": 0, "text": "One ", "signature": null })),
        details(json!({ "type": "reasoning.text", "index": 0, "text": "thought" })),
        details(json!({ "type": "reasoning.text", "index": 0, "signature": "s1" })),
        details(json!({ "type": "reasoning.text", "index": 0, "text": "Another" })),
        details(json!({ "type": "reasoning.encrypted", "index": 1, "data": "a" })),
        details(json!({ "type": "reasoning.encrypted", "index": 1, "data": "b" })),
        delta(
            json!({ "thinking_blocks": [{ "type": "thinking", "thinking": "So", "signature": "" }] }),
        ),
        delta(
            json!({ "thinking_blocks": [{ "type": "thinking", "thinking": "", "signature": "s2" }] }),
        ),
        calls(
            json!([{ "index": 0, "id": "a", "function": { "name": "one", "arguments": "{}" },
            "extra_content": { "google": { "thought_signature": "s3" } } }]),
        ),
        delta(json!({ "tool_calls": [{ "index": 0, "extra_content": {} }], "unknown": "dropped" })),
    ]);
    let expected = json!({
        "reasoning_content": "First this.",
        "reasoning_details": [
            { "type": "reasoning.text", "index": 0, "text": "One thought", "signature": "s1" },
            { "type": "reasoning.text", "index": 0, "text": "Another" },
            { "type": "reasoning.encrypted", "index": 1, "data": "a" },
            { "type": "reasoning.encrypted", "index": 1, "data": "b" },
        ],
        "thinking_blocks": [{ "type": "thinking", "thinking": "So", "signature": "s2" }],
    });
    assert_eq!(Value::Object(reply.extra), expected);
    let signed = json!({ "extra_content": { "google": { "thought_signature": "s3" } } });
    assert_eq!(Value::Object(reply.calls[0].extra.clone()), signed);
}

#[test]
fn endless_thoughts_are_cut() {
    let long = "x".repeat(1 << 20);
    let pieces: Vec<Value> = (0..8)
        .map(|_| delta(json!({ "reasoning_content": long })))
        .collect();
    let (reply, _) = assemble(&pieces);
    let kept = reply.extra["reasoning_content"].as_str().unwrap();
    assert_eq!(kept.len(), 4 << 20);
}

#[test]
fn reasoning_that_only_the_total_counts_is_output() {
    let usage = json!({ "prompt_tokens": 21, "completion_tokens": 0, "total_tokens": 81 });
    let mut event = whole(json!({ "content": "hi" }), json!("stop"));
    event["usage"] = usage;
    let tokens = assemble(&[event]).1.unwrap();
    assert_eq!((tokens.input, tokens.output), (21, 60));
}

/// As gateways count a conversation that Anthropic's models cache.
#[test]
fn a_cache_that_only_the_total_counts_is_input() {
    for (usage, expected) in [
        // LiteLLM, for Bedrock: the prompt has what was read.
        (
            json!({ "prompt_tokens": 1_000, "completion_tokens": 10, "total_tokens": 1_310, "cache_creation_input_tokens": 300, "prompt_tokens_details": { "cached_tokens": 600 } }),
            (1_300, 600, 300, 10),
        ),
        // Portkey: it has neither.
        (
            json!({ "prompt_tokens": 368, "completion_tokens": 19, "total_tokens": 10_923, "cache_read_input_tokens": 10_536, "cache_creation_input_tokens": 0 }),
            (10_904, 10_536, 0, 19),
        ),
        (
            json!({ "prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 1_010, "cache_read_input_tokens": 600, "cache_creation_input_tokens": 300 }),
            (1_000, 600, 300, 10),
        ),
        // Reasoning beside a cache that the prompt has.
        (
            json!({ "prompt_tokens": 1_000, "completion_tokens": 10, "total_tokens": 1_060, "prompt_tokens_details": { "cached_tokens": 600 } }),
            (1_000, 600, 0, 60),
        ),
    ] {
        let tokens = assemble(&[json!({ "choices": [], "usage": usage })])
            .1
            .unwrap();
        let seen = (tokens.input, tokens.cached, tokens.written, tokens.output);
        assert_eq!(seen, expected, "{usage}");
    }
}

#[test]
fn reasoning_is_sent_back_under_each_of_its_names_and_not_twice() {
    let (reply, _) = assemble(&[
        delta(json!({ "reasoning": "First " })),
        delta(json!({ "reasoning": "this." })),
        finish("stop"),
    ]);
    let expected = json!({ "reasoning": "First this." });
    assert_eq!(Value::Object(reply.extra), expected);
    // OpenRouter says it twice.
    let detail = json!({ "type": "reasoning.text", "index": 0, "text": "First" });
    let (reply, _) = assemble(&[
        delta(json!({ "reasoning": "First", "reasoning_details": [detail] })),
        finish("stop"),
    ]);
    let expected = json!({ "reasoning_details": [detail] });
    assert_eq!(Value::Object(reply.extra), expected);
    // Kimi refuses a reply without it, also where it had no thoughts.
    let (reply, _) = assemble(&[
        delta(json!({ "reasoning_content": "", "reasoning": "" })),
        finish("stop"),
    ]);
    let expected = json!({ "reasoning_content": " " });
    assert_eq!(Value::Object(reply.extra), expected);
    let (reply, _) = assemble(&[
        delta(json!({ "reasoning_content": "So", "reasoning": "So" })),
        finish("stop"),
    ]);
    let expected = json!({ "reasoning_content": "So" });
    assert_eq!(Value::Object(reply.extra), expected);
    let (reply, _) = assemble(&[delta(json!({ "reasoning_content": null })), finish("stop")]);
    assert!(reply.extra.is_empty());
}

#[test]
fn a_reply_that_the_server_could_not_finish_is_a_failure() {
    for (word, fails) in [
        ("insufficient_system_resource", true),
        ("abort", true),
        ("stop", false),
        ("eos_token", false),
    ] {
        let mut assembly = ChatAssembly::default();
        assembly.add(&delta(json!({ "content": "Half" }))).unwrap();
        assembly.add(&finish(word)).unwrap();
        assert_eq!(assembly.failure().is_some(), fails, "{word}");
    }
}

#[test]
fn what_is_no_completion_is_refused() {
    let mut assembly = ChatAssembly::default();
    assert_eq!(
        assembly.add(&json!({ "hello": 1 })),
        Err(Malformed("it has no choices".into()))
    );
    assert_eq!(
        assembly.add(&json!([])),
        Err(Malformed("it has no choices".into()))
    );
}

#[test]
fn a_reply_with_too_many_calls_counts_as_cut_off() {
    let many = |count: usize| {
        let calls = (0..count).map(|n| json!({ "index": n, "function": { "name": "one" } }));
        calls.collect::<Vec<_>>()
    };
    let (reply, _) = assemble(&[calls(json!(many(256))), finish("tool_calls")]);
    assert_eq!((reply.calls.len(), reply.stop), (256, Stop::ToolCalls));
    let (reply, _) = assemble(&[calls(json!(many(300))), finish("tool_calls")]);
    assert_eq!((reply.calls.len(), reply.stop), (256, Stop::Length));
}

#[test]
fn an_error_is_found_in_a_choice_too() {
    let inner = json!({ "code": 502 });
    let event = json!({ "choices": [{ "error": inner }] });
    assert_eq!(ChatAssembly::error_in(&event), Some(&inner));
    let common = json!({ "error": "busy" });
    assert_eq!(ChatAssembly::error_in(&common), Some(&json!("busy")));
    assert_eq!(
        ChatAssembly::error_in(&json!({ "choices": [], "error": null })),
        None
    );
}

#[test]
fn a_call_that_is_cut_off_is_a_cut_reply_whatever_the_server_says() {
    for (arguments, finish, expected) in [
        (r#"{"path": "a"#, "tool_calls", Stop::Length),
        (r#"{"path": "a"#, "stop", Stop::Length),
        (r#"{"path": "a", "text": "#, "stop", Stop::Length),
        (r#"{"path": "a"#, "content_filter", Stop::Filtered),
        (r#"{"path": "a""#, "tool_calls", Stop::ToolCalls),
        (r#"{"path": "a"}"#, "tool_calls", Stop::ToolCalls),
        ("", "tool_calls", Stop::ToolCalls),
        ("{path}", "tool_calls", Stop::ToolCalls),
        (r#"{"path": "a"}"#, "model_length", Stop::WindowFull),
    ] {
        let call =
            json!([{ "index": 0, "id": "x", "function": { "name": "n", "arguments": arguments } }]);
        let (reply, _) = assemble(&[calls(call), whole(json!({}), json!(finish))]);
        assert_eq!(reply.stop, expected, "{arguments} {finish}");
    }
}

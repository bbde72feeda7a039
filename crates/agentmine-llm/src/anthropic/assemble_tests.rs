use serde_json::json;

use super::*;
use crate::api::{Assembly as _, Prices};
use agentmine_domain::Usage;
use agentmine_runtime::config::ModelConfig;

fn assemble(events: &[Value]) -> (ModelReply, Option<Tokens>) {
    let mut assembly = MessageAssembly::default();
    for event in events {
        assembly.add(event).unwrap();
    }
    assembly.finish(3)
}

fn start(index: u64, block: Value) -> Value {
    json!({ "type": "content_block_start", "index": index, "content_block": block })
}

fn delta(index: u64, delta: Value) -> Value {
    json!({ "type": "content_block_delta", "index": index, "delta": delta })
}

fn stop(index: u64) -> Value {
    json!({ "type": "content_block_stop", "index": index })
}

fn call(index: u64, id: &str) -> Value {
    start(
        index,
        json!({ "type": "tool_use", "id": id, "name": "shell", "input": {} }),
    )
}

fn arguments(index: u64, piece: &str) -> Value {
    delta(
        index,
        json!({ "type": "input_json_delta", "partial_json": piece }),
    )
}

fn end(reason: &str) -> Value {
    json!({ "type": "message_delta", "delta": { "stop_reason": reason, "stop_sequence": null }, "usage": { "output_tokens": 30 } })
}

fn whole(content: Value, reason: &str) -> Value {
    json!({ "type": "message", "role": "assistant", "content": content, "stop_reason": reason,
        "usage": { "input_tokens": 5, "output_tokens": 7 } })
}

fn thinking(signature: &str) -> Value {
    json!({ "type": "thinking", "thinking": "Hm.", "signature": signature })
}

/// Id and arguments of each call.
fn seen(reply: &ModelReply) -> Vec<(&str, &str)> {
    let calls = reply.calls.iter();
    calls.map(|call| (&*call.id, &*call.arguments)).collect()
}

#[test]
fn text_thinking_and_calls_are_put_together_by_index() {
    let events = [
        json!({ "type": "message_start", "message": { "content": [], "usage":
            { "input_tokens": 10, "cache_creation_input_tokens": 200, "cache_read_input_tokens": 3000, "output_tokens": 1 } } }),
        start(
            0,
            json!({ "type": "thinking", "thinking": "", "signature": "" }),
        ),
        json!({ "type": "ping" }),
        delta(0, json!({ "type": "thinking_delta", "thinking": "H" })),
        delta(0, json!({ "type": "thinking_delta", "thinking": "m." })),
        delta(0, json!({ "type": "signature_delta", "signature": "c2ln" })),
        stop(0),
        start(1, json!({ "type": "text", "text": "" })),
        delta(1, json!({ "type": "text_delta", "text": "Two " })),
        call(3, "b"),
        call(2, "a"),
        arguments(2, ""),
        arguments(3, "{\"y\":"),
        arguments(2, "{\"x\":1}"),
        delta(1, json!({ "type": "text_delta", "text": "calls" })),
        arguments(3, "2}"),
        json!({ "type": "some_event_of_the_future" }),
        end("tool_use"),
        json!({ "type": "message_stop" }),
    ];
    let (reply, tokens) = assemble(&events);
    assert_eq!(reply.text, "Two calls");
    assert_eq!(seen(&reply), [("a", r#"{"x":1}"#), ("b", r#"{"y":2}"#)]);
    assert_eq!(reply.stop, Stop::ToolCalls);
    assert_eq!(
        Value::Object(reply.extra),
        json!({ "anthropic_content": [thinking("c2ln"), { "type": "text", "characters": 9 },
            { "type": "tool_use" }, { "type": "tool_use" }] })
    );
    let expected = Tokens {
        input: 3210,
        cached: 3000,
        written: 200,
        output: 30,
    };
    assert_eq!(tokens, Some(expected));
}

#[test]
fn a_watcher_sees_texts_and_names_but_no_thoughts() {
    let mut assembly = MessageAssembly::default();
    let mut shown = |event: Value| assembly.add(&event).unwrap();
    assert!(shown(start(0, thinking("s"))).is_empty());
    let thought = json!({ "type": "thinking_delta", "thinking": "secretly" });
    assert!(shown(delta(0, thought)).is_empty());
    let text = shown(start(1, json!({ "type": "text", "text": "He" })));
    assert_eq!(text, [Delta::Text("He".into())]);
    assert_eq!(shown(call(2, "a")), [Delta::Call("shell".into())]);
    assert!(shown(arguments(2, "{}")).is_empty());
}

#[test]
fn a_whole_message_is_read_too() {
    let (reply, tokens) = assemble(&[whole(
        json!([
            thinking("c2ln"),
            { "type": "text", "text": "So:" },
            { "type": "tool_use", "id": "a", "name": "shell", "input": { "x": 1 } },
        ]),
        "tool_use",
    )]);
    assert_eq!(
        (&*reply.text, seen(&reply)),
        ("So:", vec![("a", r#"{"x":1}"#)])
    );
    assert!(reply.extra.contains_key("anthropic_content"));
    assert_eq!(tokens.map(|it| (it.input, it.output)), Some((5, 7)));
}

#[test]
fn a_call_without_arguments_has_an_empty_object_and_ids_are_unique() {
    let (reply, _) = assemble(&[
        call(0, "same"),
        call(1, "same"),
        call(2, ""),
        end("tool_use"),
    ]);
    assert_eq!(
        seen(&reply),
        [("same", "{}"), ("call_3_1", "{}"), ("call_3_2", "{}")]
    );
    assert_eq!(reply.extra, Extra::new(), "there is no thinking");
}

#[test]
fn each_stop_reason_has_its_stop() {
    for (reason, stop, beside_calls) in [
        ("end_turn", Stop::EndTurn, Stop::ToolCalls),
        ("stop_sequence", Stop::EndTurn, Stop::ToolCalls),
        ("tool_use", Stop::EndTurn, Stop::ToolCalls),
        ("max_tokens", Stop::Length, Stop::Length),
        (
            "model_context_window_exceeded",
            Stop::WindowFull,
            Stop::WindowFull,
        ),
        ("pause_turn", Stop::Length, Stop::Length),
        ("refusal", Stop::Filtered, Stop::Filtered),
        ("a_reason_of_the_future", Stop::EndTurn, Stop::ToolCalls),
    ] {
        assert_eq!(assemble(&[end(reason)]).0.stop, stop, "{reason}");
        let (reply, _) = assemble(&[call(0, "a"), end(reason)]);
        assert_eq!(reply.stop, beside_calls, "{reason}");
    }
}

#[test]
fn thinking_that_was_cut_off_is_dropped() {
    let (reply, _) = assemble(&[whole(json!([thinking("")]), "max_tokens")]);
    assert_eq!(reply.extra, Extra::new());
    for (signature, reason) in [("c2ln", "max_tokens"), ("", "end_turn")] {
        let (reply, _) = assemble(&[whole(json!([thinking(signature)]), reason)]);
        assert!(!reply.extra.is_empty(), "{reason}");
    }
}

#[test]
fn thinking_that_is_empty_and_not_signed_is_dropped() {
    let empty = json!({ "type": "thinking", "thinking": "", "signature": "" });
    let (reply, _) = assemble(&[whole(json!([empty]), "end_turn")]);
    assert_eq!(reply.extra, Extra::new());
}

#[test]
fn a_zero_at_the_end_does_not_replace_a_count_of_the_beginning() {
    let counts = json!({ "input_tokens": 10, "cache_creation_input_tokens": 200,
        "cache_read_input_tokens": 3000, "output_tokens": 1 });
    let mut end = end("end_turn");
    end["usage"] = json!({ "input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 30 });
    let begin = json!({ "type": "message_start", "message": { "content": [], "usage": counts } });
    let tokens = assemble(&[begin, end]).1.unwrap();
    assert_eq!(
        (tokens.input, tokens.cached, tokens.output),
        (3210, 3000, 30)
    );
}

#[test]
fn more_thinking_than_is_kept_is_dropped_as_a_whole() {
    let piece = "x".repeat(MAX_THINKING / 2);
    let more = json!({ "type": "thinking_delta", "thinking": piece });
    let (reply, _) = assemble(&[
        start(0, thinking("s")),
        delta(0, more.clone()),
        delta(0, more),
        start(1, json!({ "type": "text", "text": "Done." })),
        end("end_turn"),
    ]);
    assert_eq!((&*reply.text, reply.extra), ("Done.", Extra::new()));
}

#[test]
fn a_reply_with_thousands_of_calls_counts_as_cut_off() {
    let calls = (0..2_000).map(|n| call(n, &format!("c{n}")));
    let events: Vec<Value> = calls.chain([end("tool_use")]).collect();
    let (reply, _) = assemble(&events);
    assert_eq!((reply.calls.len(), reply.stop), (MAX_CALLS, Stop::Length));
}

#[test]
fn only_events_of_a_message_are_read() {
    let mut assembly = MessageAssembly::default();
    for other in [
        json!({ "choices": [] }),
        json!({ "type": "response.created" }),
    ] {
        assert!(assembly.add(&other).is_err(), "{other}");
    }
    assembly.add(&json!({ "type": "ping" })).unwrap();
    assembly.add(&json!({ "type": "message_stop" })).unwrap();
    assert!(assembly.is_empty() && !assembly.has_finished());
    assembly.add(&start(0, thinking(""))).unwrap();
    assert!(!assembly.is_empty() && !assembly.has_finished());
    assembly.add(&end("end_turn")).unwrap();
    assert!(assembly.has_finished() && !assembly.has_ended());
    assembly.add(&json!({ "type": "message_stop" })).unwrap();
    assert!(assembly.has_ended());
}

#[test]
fn only_a_ping_counts_as_a_comment() {
    assert!(MessageAssembly::keeps_alive(r#"{"type": "ping"}"#));
    let said = delta(0, json!({ "type": "text_delta", "text": "ping" }));
    assert!(!MessageAssembly::keeps_alive(&said.to_string()));
}

#[test]
fn what_is_written_to_the_cache_has_its_price() {
    let config = ModelConfig {
        input_price: 3.0,
        cached_input_price: Some(0.3),
        output_price: 15.0,
        ..ModelConfig::default()
    };
    let usage = json!({ "input_tokens": 1_000, "cache_creation_input_tokens": 2_000,
        "cache_read_input_tokens": 10_000, "output_tokens": 100 });
    let message =
        json!({ "type": "message", "content": [], "stop_reason": "end_turn", "usage": usage });
    let (_, tokens) = assemble(&[message]);
    let expected = Usage {
        model_calls: 1,
        tool_calls: 0,
        input_tokens: 13_000,
        cached_tokens: 10_000,
        output_tokens: 100,
        cost_micros: 3_000 + 7_500 + 3_000 + 1_500,
    };
    assert_eq!(Prices::of(&config).usage(tokens.unwrap()), expected);
    assert_eq!(assemble(&[end("end_turn")]).1.map(|it| it.input), Some(0));
    let uncounted = json!({ "type": "message", "content": [], "stop_reason": "end_turn" });
    assert_eq!(assemble(&[uncounted]).1, None);
}

//! `OpenAI`'s Chat Completions.

use serde_json::{Value, json};

use super::Reply;

pub(super) fn events(reply: &Reply, id: usize) -> String {
    let (delta, reason) = match reply {
        Reply::Call(call) => {
            let function = json!({ "name": call.tool, "arguments": call.input.text() });
            let call = json!({
                "index": 0,
                "id": format!("call_{id}"),
                "type": "function",
                "function": function,
            });
            (
                json!({ "role": "assistant", "content": null, "tool_calls": [call] }),
                "tool_calls",
            )
        }
        Reply::Text(text) => (json!({ "role": "assistant", "content": text }), "stop"),
    };
    let chunk = |choices: Value, usage: Value| {
        let chunk = json!({
            "id": format!("chatcmpl-{id}"),
            "object": "chat.completion.chunk",
            "created": 0,
            "model": "scripted",
            "choices": choices,
            "usage": usage,
        });
        format!("data: {chunk}\n\n")
    };
    let usage = json!({ "prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110 });
    let choice = |delta, reason| json!([{ "index": 0, "delta": delta, "finish_reason": reason }]);
    chunk(choice(delta, Value::Null), Value::Null)
        + &chunk(choice(json!({}), json!(reason)), Value::Null)
        + &chunk(json!([]), usage)
        + "data: [DONE]\n\n"
}

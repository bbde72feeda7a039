//! Anthropic's Messages.

use serde_json::{Value, json};

use super::{Reply, named};

pub(super) fn events(reply: &Reply, id: usize) -> String {
    let (block, delta, reason) = match reply {
        Reply::Call(call) => {
            let block = json!({
                "type": "tool_use",
                "id": format!("toolu_{id}"),
                "name": call.tool,
                "input": {},
            });
            let delta = json!({ "type": "input_json_delta", "partial_json": call.input.text() });
            (block, delta, "tool_use")
        }
        Reply::Text(text) => {
            let block = json!({ "type": "text", "text": "" });
            (
                block,
                json!({ "type": "text_delta", "text": text }),
                "end_turn",
            )
        }
    };
    let message = json!({
        "id": format!("msg_{id}"),
        "type": "message",
        "role": "assistant",
        "model": "scripted",
        "content": [],
        "stop_reason": null,
        "stop_sequence": null,
        "usage": { "input_tokens": 100, "output_tokens": 1 },
    });
    named(&[
        json!({ "type": "message_start", "message": message }),
        json!({ "type": "content_block_start", "index": 0, "content_block": block }),
        json!({ "type": "content_block_delta", "index": 0, "delta": delta }),
        json!({ "type": "content_block_stop", "index": 0 }),
        json!({
            "type": "message_delta",
            "delta": { "stop_reason": reason, "stop_sequence": Value::Null },
            "usage": { "output_tokens": 10 },
        }),
        json!({ "type": "message_stop" }),
    ])
}

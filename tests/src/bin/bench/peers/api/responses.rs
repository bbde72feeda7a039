//! `OpenAI`'s Responses.

use serde_json::json;

use super::{Input, Reply, named};

pub(super) fn events(reply: &Reply, id: usize) -> String {
    let item = match reply {
        Reply::Call(call) => {
            let (kind, field) = match call.input {
                Input::Arguments(_) => ("function_call", "arguments"),
                Input::Text(_) => ("custom_tool_call", "input"),
            };
            json!({
                "type": kind,
                "id": format!("item_{id}"),
                "call_id": format!("call_{id}"),
                "name": call.tool,
                field: call.input.text(),
                "status": "completed",
            })
        }
        Reply::Text(text) => json!({
            "type": "message",
            "id": format!("item_{id}"),
            "role": "assistant",
            "status": "completed",
            "content": [{ "type": "output_text", "text": text, "annotations": [] }],
        }),
    };
    let response = |status: &str| json!({ "id": format!("resp_{id}"), "object": "response", "status": status });
    let mut completed = response("completed");
    completed["output"] = json!([item]);
    completed["usage"] = json!({
        "input_tokens": 100,
        "input_tokens_details": { "cached_tokens": 0 },
        "output_tokens": 10,
        "output_tokens_details": { "reasoning_tokens": 0 },
        "total_tokens": 110,
    });
    named(&[
        json!({ "type": "response.created", "response": response("in_progress") }),
        json!({ "type": "response.output_item.added", "output_index": 0, "item": item }),
        json!({ "type": "response.output_item.done", "output_index": 0, "item": item }),
        json!({ "type": "response.completed", "response": completed }),
    ])
}

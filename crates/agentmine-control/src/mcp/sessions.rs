//! The tools of sessions.

use agentmine_domain::StepPayload;
use serde_json::Value;

use super::fitting::{MAX_ANSWER, fitting};
use super::tool::{Effect, ToolDef};
use crate::sessions::{
    self, SessionEndArgs, SessionGet, SessionList, SessionLogs, SessionStart, StepPage, StepView,
};

/// Bytes of each text of a step. The smaller ones are for a step that would otherwise not fit into an answer.
const MAX_TEXTS: [usize; 3] = [8 * 1024, 2 * 1024, 512];

pub(super) fn tools() -> Vec<ToolDef> {
    vec![
        ToolDef::new(
            "session_start",
            "Begin a session",
            "Begins a session of a client on a task that a person created. worker_command does this too, and creates \
             a work tree. A task has at most one running session.",
            Effect::Adds,
            |it, args: SessionStart| {
                Box::pin(async move { sessions::start(it.store.as_ref(), &it.place, &args).await })
            },
        ),
        ToolDef::new(
            "session_end",
            "End a session",
            "Ends a session of a client with its exit code, and sets the status of its task accordingly.",
            Effect::Ends,
            |it, args: SessionEndArgs| {
                Box::pin(async move { sessions::end(it.store.as_ref(), args).await })
            },
        ),
        ToolDef::new(
            "session_list",
            "List sessions",
            "Lists sessions, newest first: those of the fleet's workers and those of clients.",
            Effect::Reads,
            |it, args: SessionList| {
                Box::pin(async move { sessions::list(it.store.as_ref(), &args).await })
            },
        ),
        ToolDef::new(
            "session_get",
            "Show a session",
            "Shows one session: how it ended, and what it used.",
            Effect::Reads,
            |it, args: SessionGet| {
                Box::pin(async move { sessions::get(it.store.as_ref(), args.session_id).await })
            },
        ),
        ToolDef::new(
            "session_logs",
            "Read a session's steps",
            "Returns the recorded steps of a session of the fleet, oldest first; long texts are cut. Call it again with \
             after if there are more, or to follow a running one.",
            Effect::Reads,
            |it, args: SessionLogs| {
                Box::pin(async move {
                    let page = sessions::logs(it.store.as_ref(), &args).await?;
                    Ok(readable(page))
                })
            },
        ),
    ]
}

/// The page in a size that a model can read; the next page begins with what does not fit.
fn readable(page: StepPage) -> StepPage {
    let steps = page.steps.into_iter().map(|step| StepView {
        payload: readable_payload(&step.payload),
        ..step
    });
    let (steps, is_cut) = fitting(steps, |step: &StepView| step.payload.to_string().len());
    // It follows the last step.
    let reply = page.reply.filter(|_| !is_cut);
    StepPage {
        steps,
        more: page.more || is_cut,
        reply: reply.map(|text| cut(text, MAX_TEXTS[0])),
        ..page
    }
}

fn readable_payload(payload: &StepPayload) -> StepPayload {
    let mut readable = payload.clone();
    for max in MAX_TEXTS {
        let whole = payload.decode().map(|value| with_cut_texts(value, max));
        if let Ok(encoded) = whole.and_then(|value| StepPayload::encode(&value)) {
            readable = encoded;
        }
        if readable.to_string().len() <= MAX_ANSWER {
            break;
        }
    }
    readable
}

fn with_cut_texts(value: Value, max: usize) -> Value {
    match value {
        Value::String(text) => Value::String(cut(text, max)),
        Value::Array(items) => items
            .into_iter()
            .map(|item| with_cut_texts(item, max))
            .collect(),
        Value::Object(fields) => fields
            .into_iter()
            .map(|(name, value)| (name, with_cut_texts(value, max)))
            .collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => value,
    }
}

/// The beginning and the end of a text that has more than `max` bytes.
fn cut(text: String, max: usize) -> String {
    if text.len() <= max {
        return text;
    }
    let head = &text[..text.floor_char_boundary(max / 2)];
    let tail = &text[text.ceil_char_boundary(text.len() - max / 2)..];
    let bytes = text.len() - head.len() - tail.len();
    format!("{head}\n[... {bytes} bytes left out: `agentmine session logs` shows them ...]\n{tail}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn page(payloads: &[Value]) -> StepPage {
        let step = |(seq, payload): (i64, &Value)| StepView {
            seq,
            kind: "tool_result".into(),
            at: String::new(),
            duration_ms: 0,
            payload: StepPayload::encode(payload).unwrap(),
        };
        StepPage {
            session_id: 1,
            running: true,
            steps: (1..).zip(payloads).map(step).collect(),
            more: false,
            reply: Some("It is".into()),
        }
    }

    #[test]
    fn an_answer_has_as_many_steps_as_a_model_can_read() {
        let short = page(&[json!({"text": "a"}), json!({"text": "b"})]);
        assert_eq!(readable(short.clone()), short);
        let long = json!({"text": format!("é{}é", "x".repeat(50_000)), "is_error": false});
        let many: Vec<Value> = std::iter::repeat_n(long, 50).collect();
        let cut = readable(page(&many));
        let last = i64::try_from(cut.steps.len()).unwrap();
        assert!((2..50).contains(&last), "{last}");
        assert!(cut.more && cut.reply.is_none());
        assert_eq!(cut.steps.last().map(|step| step.seq), Some(last));
        assert!(serde_json::to_string(&cut).unwrap().len() < MAX_ANSWER + 16 * 1024);
        let first: Value = cut.steps[0].payload.decode().unwrap();
        let text = first["text"].as_str().unwrap();
        assert!(
            text.starts_with('é') && text.ends_with('é') && text.contains("bytes left out"),
            "{text}"
        );
    }

    #[test]
    fn a_step_of_many_texts_is_not_longer_than_an_answer() {
        let calls = vec![json!({"arguments": "x".repeat(10_000)}); 50];
        let page = readable(page(&[json!({ "calls": calls })]));
        assert_eq!((page.steps.len(), page.more), (1, false));
        assert!(page.steps[0].payload.to_string().len() <= MAX_ANSWER);
        assert_eq!(page.reply.as_deref(), Some("It is"));
    }
}

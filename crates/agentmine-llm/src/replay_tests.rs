use super::*;
use crate::call_state::CallState;
use crate::message::{Stop, ToolCall};

const RECORDING: &str = r#"{"text":"I look.","calls":[{"name":"shell","arguments":{"command":"ls"}}],"usage":{"input_tokens":7}}

{"expect":"greet.sh","calls":[{"id":"x","name":"shell","arguments":"{broken"}],"stop":"length","delay_ms":60000}
{"text":"Done."}
"#;

fn replay() -> Replay {
    Replay::from_lines(recording::parse(RECORDING, "test").unwrap())
}

fn user(text: &str) -> Message {
    Message::User { text: text.into() }
}

async fn ask(model: &dyn Model, messages: &[Message]) -> Result<(ModelReply, Usage), LlmError> {
    let request = ModelRequest {
        messages,
        tools: &[],
        conversation: None,
        state: CallState::default(),
    };
    model.reply(request, None).await
}

#[tokio::test(start_paused = true)]
async fn replies_come_in_order_and_by_position_alone() {
    let mut messages = vec![user("Fix it")];
    let (first, usage) = ask(&replay(), &messages).await.unwrap();
    assert_eq!(
        first,
        ModelReply {
            text: "I look.".into(),
            calls: vec![ToolCall {
                id: "call_0_0".into(),
                name: "shell".into(),
                arguments: r#"{"command":"ls"}"#.into(),
                ..ToolCall::default()
            }],
            stop: Stop::ToolCalls,
            ..ModelReply::default()
        }
    );
    assert_eq!((usage.model_calls, usage.input_tokens), (1, 7));
    messages.extend([Message::Assistant(first), user("greet.sh test.sh")]);

    // Another process that knows only the conversation continues at the right place.
    let before = tokio::time::Instant::now();
    let (second, usage) = ask(&replay(), &messages).await.unwrap();
    assert_eq!(second.calls[0].arguments, "{broken");
    assert_eq!(second.stop, Stop::Length);
    assert_eq!(usage.model_calls, 1);
    assert_eq!(before.elapsed(), Duration::from_secs(60));
}

#[tokio::test]
async fn another_conversation_is_noticed() {
    let messages = [
        user("Fix it"),
        Message::Assistant(ModelReply::default()),
        user("nothing here"),
    ];
    let error = ask(&replay(), &messages).await.unwrap_err();
    insta::assert_snapshot!(error, @r#"the recording does not fit: before reply 2 the last message should contain "greet.sh"; it begins with "nothing here""#);
}

#[tokio::test]
async fn the_end_of_the_recording_is_an_error() {
    let messages = vec![Message::Assistant(ModelReply::default()); 3];
    let error = ask(&replay(), &messages).await.unwrap_err();
    insta::assert_snapshot!(error, @"the recording does not fit: it has 3 replies, and reply 4 was requested");
}

#[tokio::test]
async fn a_watcher_sees_the_reply() {
    let (send, mut receive) = tokio::sync::mpsc::unbounded_channel();
    let messages = [user("Fix it")];
    let request = ModelRequest {
        messages: &messages,
        tools: &[],
        conversation: None,
        state: CallState::default(),
    };
    replay().reply(request, Some(&send)).await.unwrap();
    assert_eq!(receive.recv().await, Some(Delta::Text("I look.".into())));
    assert_eq!(receive.recv().await, Some(Delta::Call("shell".into())));
}

#[test]
fn a_line_that_cannot_be_read_is_named() {
    for broken in ["{\"text\":\"a\"}\n\n{\"txt\":1}", "{}\n{}\n{"] {
        let error = recording::parse(broken, "demo.jsonl").unwrap_err();
        let text = format!("{error:#}");
        assert!(
            text.starts_with("demo.jsonl:3: not a recorded reply"),
            "{text}"
        );
    }
}

//! Against a scripted server.

use serde_json::json;
use std::sync::atomic::Ordering;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use agentmine_runtime::config::Secret;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc::unbounded_channel;

use super::*;
use crate::call_state::CallState;
use crate::message::{Message, Stop, ToolCall};
use crate::test_server::{Act, KEY, STREAM_END, Server, json_response, response, stream};

/// A client with short waits.
trait Impatient {
    fn model(&self) -> OpenAi;
}

impl Impatient for Server {
    fn model(&self) -> OpenAi {
        impatient(&self.config())
    }
}

fn impatient(config: &ModelConfig) -> OpenAi {
    let mut model = OpenAi::new(config).unwrap();
    model.client.retries.base = Duration::from_millis(1);
    model.client.retries.away = Duration::ZERO;
    model
}

const HELLO: &str = concat!(
    ": warming up\n\n",
    "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"He\"},\"finish_reason\":null}],\"usage\":null}\n\n",
    "data: {\"choices\":[{\"delta\":{\"content\":\"llo 👋\"},\"finish_reason\":null}]}\n\n",
    "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n",
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":2,\"prompt_tokens_details\":{\"cached_tokens\":4}}}\n\n",
    "data: [DONE]\n\n",
);

#[tokio::test]
async fn a_server_that_refuses_reasoning_or_long_descriptions_gets_neither_from_then_on() {
    let refusal = |words: &str| {
        let error = json!({ "error": { "message": words, "code": "string_above_max_length" } });
        let head = "content-type: application/json\r\n";
        Act::Keep(response("400 Bad Request", head, &error.to_string()))
    };
    let server = Server::start(vec![
        refusal("`messages[2].reasoning`: reasoning is not supported with this model"),
        refusal("Invalid 'tools[0].function.description': string too long."),
        Act::Keep(hello_stream()),
    ])
    .await;
    let model = server.model();
    ask(&model).await.unwrap();
    let known = model.dialect();
    assert_eq!(known.reasoning, Reasoning::Omitted);
    assert_eq!(known.descriptions, Descriptions::Short);
}

fn hello_stream() -> String {
    stream(HELLO) + STREAM_END
}

const OVERLOADED: &str = "data: {\"error\":{\"code\":529,\"message\":\"overloaded\"}}\n\n";

/// A stream that says something and does not end.
const HALF: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"Half\"}}]}\n\n";

const HELLO_JSON: &str = r#"{"choices":[{"message":{"content":"Hello"},"finish_reason":"stop"}]}"#;

fn hello() -> [Message; 1] {
    [Message::User {
        text: "Say hello".into(),
    }]
}

fn request(messages: &[Message]) -> ModelRequest<'_> {
    ModelRequest {
        messages,
        tools: &[],
        conversation: None,
        state: CallState::default(),
    }
}

async fn ask(model: &OpenAi) -> Result<(ModelReply, Usage), LlmError> {
    asked(model).await.map_err(|(error, _)| error)
}

/// The same; an error comes with what the call may have cost.
async fn asked(model: &OpenAi) -> Result<(ModelReply, Usage), (LlmError, Usage)> {
    let messages = hello();
    let request = request(&messages);
    let replied = model.reply(request.clone(), None).await;
    replied.map_err(|error| (error, request.lost(model)))
}

#[tokio::test]
async fn a_streamed_reply_is_read_and_shown_as_it_arrives() {
    let server = Server::start(vec![Act::Keep(hello_stream())]).await;
    let (send, mut receive) = unbounded_channel();
    let messages = [Message::User {
        text: "Say hello".into(),
    }];
    let request = ModelRequest {
        messages: &messages,
        tools: &[],
        conversation: None,
        state: CallState::default(),
    };
    let (reply, usage) = server.model().reply(request, Some(&send)).await.unwrap();
    assert_eq!((&*reply.text, reply.stop), ("Hello 👋", Stop::EndTurn));
    assert_eq!(
        (
            usage.model_calls,
            usage.input_tokens,
            usage.cached_tokens,
            usage.output_tokens
        ),
        (1, 9, 4, 2)
    );
    assert_eq!(receive.recv().await, Some(Delta::Text("He".into())));
    assert_eq!(receive.recv().await, Some(Delta::Text("llo 👋".into())));
}

#[tokio::test]
async fn the_request_carries_key_headers_and_the_older_name_of_the_limit() {
    let server = Server::start(vec![Act::Keep(hello_stream())]).await;
    let mut config = server.config();
    config.max_output_tokens = Some(100);
    config.headers = [("X-Team".to_owned(), Secret::new("blue"))].into();
    ask(&impatient(&config)).await.unwrap();
    let request = server.requests().remove(0);
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    assert!(
        head.starts_with("POST /v1/chat/completions HTTP/1.1"),
        "{head}"
    );
    for line in [
        "authorization: Bearer sk-test-0123456789",
        "x-team: blue",
        "content-type: application/json",
    ] {
        assert!(head.lines().any(|l| l.eq_ignore_ascii_case(line)), "{line}");
    }
    insta::assert_snapshot!(body, @r#"{"model":"test-model","stream":true,"stream_options":{"include_usage":true},"max_tokens":100,"messages":[{"role":"user","content":"Say hello"}]}"#);
}

#[test]
fn openai_itself_gets_the_newer_name_of_the_limit() {
    let config = ModelConfig {
        api_key: Some(Secret::new(KEY)),
        ..ModelConfig::default()
    };
    let model = OpenAi::new(&config).unwrap();
    assert!(model.has_newer_limit.load(Relaxed));
    assert!(!format!("{model:?}").contains(KEY));
}

#[test]
fn the_address_is_made_from_any_form_of_the_base() {
    for (base, expected) in [
        ("http://h/v1", "http://h/v1/chat/completions"),
        ("http://h/v1/", "http://h/v1/chat/completions"),
        ("http://h", "http://h/chat/completions"),
        (
            "https://h/a/chat/completions",
            "https://h/a/chat/completions",
        ),
        ("https://h/a?v=1", "https://h/a/chat/completions?v=1"),
    ] {
        let url = endpoint(&base.parse().unwrap(), &PATH).unwrap();
        assert_eq!(url.as_str(), expected);
    }
    assert!(endpoint(&"ftp://h/v1".parse().unwrap(), &PATH).is_err());
}

#[test]
fn a_wrong_header_is_named_without_its_value() {
    for (name, value) in [("no header", "v"), ("X-Ok", "secret\nvalue")] {
        let config = ModelConfig {
            base_url: "http://localhost/v1".parse().unwrap(),
            headers: [(name.to_owned(), Secret::new(value))].into(),
            ..ModelConfig::default()
        };
        let error = format!("{:#}", OpenAi::new(&config).unwrap_err());
        assert!(error.contains(name) && !error.contains("secret"), "{error}");
    }
}

#[tokio::test]
async fn a_whole_reply_is_read_where_a_stream_was_asked_for_and_the_other_way_round() {
    let server = Server::start(vec![Act::Keep(json_response(HELLO_JSON))]).await;
    assert_eq!(ask(&server.model()).await.unwrap().0.text, "Hello");

    let server = Server::start(vec![Act::Keep(hello_stream())]).await;
    let mut config = server.config();
    config.stream = false;
    let (reply, _) = ask(&impatient(&config)).await.unwrap();
    assert_eq!(reply.text, "Hello 👋");
    assert!(server.requests()[0].contains(r#""stream":false"#));
    assert!(!server.requests()[0].contains("stream_options"));
}

#[tokio::test]
async fn a_connection_is_used_again_after_a_stream() {
    let server = Server::start(vec![Act::Keep(hello_stream())]).await;
    let model = server.model();
    for _ in 0..3 {
        ask(&model).await.unwrap();
    }
    assert_eq!(server.requests().len(), 3);
    assert_eq!(server.connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn calls_of_a_stream_reach_the_caller_in_order_with_their_arguments_as_written() {
    let chunk = |calls: &str| {
        format!("data: {{\"choices\":[{{\"delta\":{{\"tool_calls\":[{calls}]}}}}]}}\n\n")
    };
    let data = [
        chunk(r#"{"index":0,"id":"a","function":{"name":"one","arguments":"{\"x"}}"#),
        chunk(r#"{"index":1,"id":"b","function":{"name":"two","arguments":"oops"}}"#),
        chunk(r#"{"index":0,"function":{"arguments":"\":1}"}}"#),
        "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\ndata: [DONE]\n\n"
            .to_owned(),
    ]
    .concat();
    let server = Server::start(vec![Act::Keep(stream(&data) + STREAM_END)]).await;
    let (reply, _) = ask(&server.model()).await.unwrap();
    let call = |id: &str, name: &str, arguments: &str| ToolCall {
        id: id.into(),
        name: name.into(),
        arguments: arguments.into(),
        ..ToolCall::default()
    };
    assert_eq!(
        reply.calls,
        [call("a", "one", r#"{"x":1}"#), call("b", "two", "oops")]
    );
    assert_eq!(reply.stop, Stop::ToolCalls);
}

#[tokio::test]
async fn an_empty_reply_and_a_length_stop_are_replies() {
    let empty =
        "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    let cut = r#"{"choices":[{"message":{"content":"Once upon"},"finish_reason":"length"}]}"#;
    let server = Server::start(vec![
        Act::Keep(stream(empty) + STREAM_END),
        Act::Keep(json_response(cut)),
    ])
    .await;
    let model = server.model();
    assert_eq!(ask(&model).await.unwrap().0, ModelReply::default());
    let (reply, _) = ask(&model).await.unwrap();
    assert_eq!((&*reply.text, reply.stop), ("Once upon", Stop::Length));
}

#[tokio::test]
async fn an_overloaded_server_is_asked_again() {
    let busy = |status| {
        Act::Keep(response(
            status,
            "retry-after: 0\r\n",
            "{\"error\":{\"message\":\"busy\"}}",
        ))
    };
    let server = Server::start(vec![
        busy("429 Too Many Requests"),
        busy("503 Service Unavailable"),
        busy("408 Request Timeout"),
        Act::Keep(hello_stream()),
    ])
    .await;
    assert_eq!(ask(&server.model()).await.unwrap().0.text, "Hello 👋");
    let requests = server.requests();
    assert_eq!(requests.len(), 4);
    assert!(requests.iter().all(|request| *request == requests[0]));
}

#[tokio::test]
async fn retry_after_is_waited_for() {
    let busy = response("429 Too Many Requests", "retry-after-ms: 300\r\n", "{}");
    let server = Server::start(vec![Act::Keep(busy), Act::Keep(hello_stream())]).await;
    let start = std::time::Instant::now();
    ask(&server.model()).await.unwrap();
    assert!(start.elapsed() >= Duration::from_millis(300));
}

#[tokio::test]
async fn a_server_that_stays_overloaded_is_unavailable_and_its_words_are_shown() {
    let busy = response("503 Service Unavailable", "", "loading the model");
    let server = Server::start(vec![Act::Keep(busy)]).await;
    let error = ask(&server.model()).await.unwrap_err();
    let text = error.to_string();
    let (what, of_host) = text.split_once(": 127.0.0.1:").unwrap();
    let (_, detail) = of_host.split_once(": ").unwrap();
    insta::assert_snapshot!(format!("{what}, {detail}"), @"the model API is unavailable after 5 tries, status 503: loading the model (gave up after 0 s)");
    assert_eq!(server.requests().len(), 5);
}

#[tokio::test]
async fn a_stream_broken_off_is_tried_again_and_its_beginning_forgotten() {
    let server = Server::start(vec![
        // The connection ends in the middle of the chunked body.
        Act::Close(stream(HALF)),
        // The body ends as it should, the reply does not.
        Act::Close(stream(HALF) + STREAM_END),
        // The last event is cut.
        Act::Close(stream("data: {\"choices\":[{\"delta\":{\"con") + STREAM_END),
        Act::Keep(hello_stream()),
    ])
    .await;
    assert_eq!(ask(&server.model()).await.unwrap().0.text, "Hello 👋");
    assert_eq!(server.requests().len(), 4);
}

#[tokio::test]
async fn a_whole_reply_broken_off_is_tried_again() {
    let cut = json_response(HELLO_JSON);
    let unmarked = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n{\"choices\":[";
    let server = Server::start(vec![
        Act::Close(cut[..cut.len() - 5].to_owned()),
        Act::Close(unmarked.to_owned()),
        Act::Close(String::new()),
        Act::Keep(json_response(HELLO_JSON)),
    ])
    .await;
    assert_eq!(ask(&server.model()).await.unwrap().0.text, "Hello");
    assert_eq!(server.requests().len(), 4);
}

#[tokio::test]
async fn a_stream_that_ends_after_the_finish_reason_is_whole() {
    let data = HELLO.split("data: {\"choices\":[],").next().unwrap();
    let server = Server::start(vec![Act::Close(stream(data))]).await;
    let (reply, usage) = ask(&server.model()).await.unwrap();
    assert_eq!((&*reply.text, usage.model_calls), ("Hello 👋", 1));
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn tokens_that_a_server_never_counts_are_estimated() {
    let uncounted = || Act::Keep(json_response(HELLO_JSON));
    let server = Server::start(vec![uncounted()]).await;
    let config = ModelConfig {
        input_price: 1000.0,
        output_price: 2000.0,
        ..server.config()
    };
    let (_, usage) = ask(&impatient(&config)).await.unwrap();
    let sent = server.requests()[0].split_once("\r\n\r\n").unwrap().1.len() as u64 / 4;
    assert_eq!((usage.input_tokens, usage.output_tokens), (sent, 1));
    assert_eq!(usage.cost_micros, sent * 1000 + 2000);
    // Neither is a single count that got lost free, and the state of the call says that it is no count.
    let server = Server::start(vec![Act::Keep(hello_stream()), uncounted()]).await;
    let model = server.model();
    for (tokens, is_estimated) in [(11, false), (sent + 1, true)] {
        let messages = hello();
        let request = request(&messages);
        let (_, usage) = model.reply(request.clone(), None).await.unwrap();
        assert_eq!(usage.total_tokens(), tokens);
        assert_eq!(request.state.is_estimated(), is_estimated);
    }
}

/// As a proxy sends it whose own source broke off.
#[tokio::test]
async fn an_end_without_a_reason_is_a_reply_that_broke_off_unless_the_server_never_gives_one() {
    let done = |before: &str| Act::Keep(stream(&format!("{before}data: [DONE]\n\n")) + STREAM_END);
    let server = Server::start(vec![done(HALF)]).await;
    assert_eq!(ask(&server.model()).await.unwrap().0.text, "Half");
    let acts = [
        Act::Keep(hello_stream()),
        done(HALF),
        Act::Keep(hello_stream()),
    ];
    let server = Server::start(acts.into()).await;
    let model = server.model();
    ask(&model).await.unwrap();
    let (reply, usage) = ask(&model).await.unwrap();
    assert_eq!((&*reply.text, usage.model_calls), ("Hello 👋", 2));
    let server = Server::start(vec![done(""), Act::Keep(hello_stream())]).await;
    let (reply, _) = ask(&server.model()).await.unwrap();
    assert_eq!(&*reply.text, "Hello 👋");
    // One that does not always give one.
    let server = Server::start(vec![Act::Keep(hello_stream()), done(HALF)]).await;
    let model = server.model();
    ask(&model).await.unwrap();
    let (reply, usage) = ask(&model).await.unwrap();
    assert_eq!((&*reply.text, usage.model_calls), ("Half", 2));
}

/// Thinking that is not shown, and calls that a proxy holds back.
#[tokio::test]
async fn a_reply_that_has_begun_may_bring_only_comments_for_long() {
    let rest = HELLO.split_once("\n\n").unwrap().1;
    let rest = stream(rest).split_once("\r\n\r\n").unwrap().1.to_owned() + STREAM_END;
    let role = "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":null}}]}\n\n";
    let think = Act::Think(stream(role), rest);
    let short = Duration::from_millis(100);
    let server = Server::start(vec![think.clone()]).await;
    let mut model = server.model();
    (model.client.first_byte, model.client.idle) = (short, short);
    let (reply, usage) = ask(&model).await.unwrap();
    assert_eq!((&*reply.text, usage.model_calls), ("Hello 👋", 1));
    // But not for ever.
    let server = Server::start(vec![think, Act::Keep(hello_stream())]).await;
    let mut model = server.model();
    (model.client.first_byte, model.client.idle) = (short, short);
    model.client.hidden_work = 2 * short;
    let (reply, usage) = ask(&model).await.unwrap();
    assert_eq!((&*reply.text, usage.model_calls), ("Hello 👋", 2));
}

#[tokio::test]
async fn what_cannot_be_read_in_the_middle_of_a_reply_is_tried_again_and_counted() {
    let nonsense = |before: &str| {
        let data = format!("{before}data: {{nonsense}}\n\ndata: [DONE]\n\n");
        Act::Keep(stream(&data) + STREAM_END)
    };
    let server = Server::start(vec![nonsense(HALF), Act::Keep(hello_stream())]).await;
    let (reply, usage) = ask(&server.model()).await.unwrap();
    assert_eq!((&*reply.text, usage.model_calls), ("Hello 👋", 2));
    // After the reply it is of no importance.
    let hello = HELLO.trim_end_matches("data: [DONE]\n\n");
    let server = Server::start(vec![nonsense(hello)]).await;
    let (reply, usage) = ask(&server.model()).await.unwrap();
    assert_eq!((&*reply.text, usage.model_calls), ("Hello 👋", 1));
}

#[tokio::test]
async fn a_server_that_refuses_to_be_asked_for_the_usage_of_a_stream_is_not_asked_again() {
    let refusal = r#"{"object":"error","message":{"detail":[{"type":"extra_forbidden","loc":["body","stream_options","include_usage"],"msg":"Extra inputs are not permitted","input":true}]},"type":"invalid_request_error","param":null,"code":null}"#;
    let refusal = response(
        "422 Unprocessable Entity",
        "content-type: application/json\r\n",
        refusal,
    );
    let server = Server::start(vec![Act::Keep(refusal), Act::Keep(hello_stream())]).await;
    let model = server.model();
    let (_, usage) = ask(&model).await.unwrap();
    assert_eq!(usage.input_tokens, 9, "it is sent unasked");
    ask(&model).await.unwrap();
    let requests = server.requests();
    let asked = requests.iter().map(|it| it.contains("stream_options"));
    assert_eq!(asked.collect::<Vec<_>>(), [true, false, false]);
}

#[tokio::test]
async fn the_first_byte_has_a_time_limit() {
    for head in [
        "",
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n",
    ] {
        let mut server =
            Server::start(vec![Act::Stall(head.into()), Act::Keep(hello_stream())]).await;
        let mut model = server.model();
        model.client.first_byte = Duration::from_millis(200);
        assert_eq!(ask(&model).await.unwrap().0.text, "Hello 👋");
        assert_eq!(server.requests().len(), 2);
        assert_eq!(
            server.gone.recv().await,
            Some(()),
            "the connection is closed"
        );
    }
}

#[tokio::test]
async fn a_server_that_may_have_worked_until_the_time_limit_may_want_to_be_paid() {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
    for (stream, sent, calls) in [(true, "", 1), (true, head, 2), (false, "", 2)] {
        let server = Server::start(vec![Act::Stall(sent.into()), Act::Keep(hello_stream())]).await;
        let config = ModelConfig {
            stream,
            ..server.config()
        };
        let mut model = impatient(&config);
        model.client.first_byte = Duration::from_millis(200);
        let (_, usage) = ask(&model).await.unwrap();
        assert_eq!(usage.model_calls, calls, "{stream} {sent}");
    }
}

#[tokio::test]
async fn a_pause_within_a_reply_has_a_time_limit() {
    let server = Server::start(vec![Act::Stall(stream(HALF)), Act::Keep(hello_stream())]).await;
    let mut model = server.model();
    model.client.idle = Duration::from_millis(200);
    assert_eq!(ask(&model).await.unwrap().0.text, "Hello 👋");

    let server = Server::start(vec![Act::Stall(stream(HALF))]).await;
    let mut model = server.model();
    model.client.idle = Duration::from_millis(50);
    model.client.retries.max_tries = 2;
    let error = ask(&model).await.unwrap_err();
    assert!(error.to_string().contains("the reply stopped"), "{error}");
}

#[tokio::test]
async fn a_server_may_think_longer_before_the_first_part_than_between_two() {
    let role = "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":null}}]}\n\n";
    for (sent, seconds) in [(role, 2), (HALF, 1)] {
        let server = Server::start(vec![Act::Stall(stream(sent))]).await;
        let mut model = server.model();
        model.client.retries.max_tries = 1;
        model.client.first_byte = Duration::from_secs(2);
        model.client.idle = Duration::from_secs(1);
        let error = ask(&model).await.unwrap_err().to_string();
        let text = format!("the reply stopped for {seconds} s");
        assert!(error.contains(&text), "{sent}: {error}");
    }
}

#[tokio::test]
async fn replies_that_break_off_are_in_the_usage() {
    let half = || Act::Close(stream(HALF));
    let server = Server::start(vec![half(), half(), Act::Keep(hello_stream())]).await;
    let config = ModelConfig {
        input_price: 1000.0,
        ..server.config()
    };
    let (_, usage) = ask(&impatient(&config)).await.unwrap();
    let sent = server.requests()[0].split_once("\r\n\r\n").unwrap().1.len() as u64 / 4;
    assert_eq!((usage.model_calls, usage.input_tokens), (3, 9 + 2 * sent));
    assert_eq!(usage.cost_micros, (9 + 2 * sent) * 1000);
    let server = Server::start(vec![half()]).await;
    let (error, lost) = asked(&impatient(&server.config())).await.unwrap_err();
    assert_eq!(lost.model_calls, 5, "{error}");
    // What the call ends with does not matter.
    let revoked = Act::Keep(response("401 Unauthorized", "", ""));
    let server = Server::start(vec![half(), half(), revoked]).await;
    let (error, lost) = asked(&impatient(&server.config())).await.unwrap_err();
    assert!(matches!(error, LlmError::Unauthorized { .. }), "{error}");
    assert_eq!(lost.model_calls, 2);
    let nonsense = Act::Keep(response(
        "200 OK",
        "content-type: application/json\r\n",
        "[]",
    ));
    let server = Server::start(vec![nonsense]).await;
    let (error, lost) = asked(&impatient(&server.config())).await.unwrap_err();
    assert!(matches!(error, LlmError::Protocol(_)), "{error}");
    assert_eq!(lost.model_calls, 1);
    // A proxy did not wait for the reply.
    let late = Act::Keep(response("524 A Timeout Occurred", "", ""));
    let server = Server::start(vec![late, Act::Keep(hello_stream())]).await;
    let (_, usage) = ask(&server.model()).await.unwrap();
    assert_eq!(usage.model_calls, 2);
    // Nor did this one, unless it answered at once.
    for (late, calls) in [(Duration::ZERO, 2), (Duration::from_secs(60), 1)] {
        let timeout = Act::Keep(response("504 Gateway Time-out", "", ""));
        let server = Server::start(vec![timeout, Act::Keep(hello_stream())]).await;
        let mut model = server.model();
        model.client.late = late;
        let (_, usage) = ask(&model).await.unwrap();
        assert_eq!(usage.model_calls, calls, "{late:?}");
    }
    // One that did not answer at all has nothing to be paid for.
    let server = Server::start(vec![Act::Keep(response("503 Busy", "", ""))]).await;
    let (error, lost) = asked(&server.model()).await.unwrap_err();
    assert_eq!(lost, Usage::default(), "{error}");
}

/// The model calls that count if a call is given up once a watcher sees that it waits.
async fn counted_while_it_waits(model: &OpenAi) -> u32 {
    let request = ModelRequest {
        messages: &[],
        tools: &[],
        conversation: None,
        state: CallState::default(),
    };
    let (send, mut receive) = unbounded_channel();
    tokio::select! {
        replied = model.reply(request.clone(), Some(&send)) => panic!("{replied:?}"),
        waits = async {
            while let Some(delta) = receive.recv().await {
                if matches!(delta, Delta::Waiting(_)) {
                    return true;
                }
            }
            false
        } => assert!(waits),
    }
    request.abandoned(model).model_calls
}

#[tokio::test]
async fn a_call_that_is_given_up_costs_nothing_while_nothing_is_in_flight() {
    let busy = |status| Act::Keep(response(status, "retry-after: 60\r\n", ""));
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let nowhere = format!("http://{}/v1/", closed.local_addr().unwrap());
    drop(closed);
    for (act, calls) in [
        (busy("429 Too Many Requests"), 0),
        (busy("503 Service Unavailable"), 0),
        (busy("529 Overloaded"), 0),
        // The server took the request.
        (Act::Stall(String::new()), 1),
        // It may have.
        (Act::Close(String::new()), 1),
        // Its reply broke off.
        (Act::Close(stream(HALF)), 1),
        // Or ended with an error that would have been free at its beginning.
        (Act::Keep(stream(&(HALF.to_owned() + OVERLOADED))), 1),
        (Act::Keep(stream(OVERLOADED)), 0),
    ] {
        // Otherwise on a busy machine the notice comes before the answer.
        let notices = matches!(act, Act::Stall(_));
        let server = Server::start(vec![act]).await;
        let mut model = server.model();
        model.client.notice = Duration::from_secs(if notices { 1 } else { 60 });
        model.client.retries.base = Duration::from_secs(60);
        assert_eq!(counted_while_it_waits(&model).await, calls);
    }
    let config = ModelConfig {
        base_url: nowhere.parse().unwrap(),
        ..ModelConfig::default()
    };
    let mut model = impatient(&config);
    model.client.retries.base = Duration::from_secs(60);
    assert_eq!(counted_while_it_waits(&model).await, 0, "nothing was sent");
}

#[tokio::test]
async fn what_a_request_may_cost_is_estimated_from_what_it_sends() {
    let server = Server::start(vec![Act::Keep(hello_stream())]).await;
    let config = ModelConfig {
        input_price: 1000.0,
        ..server.config()
    };
    let model = impatient(&config);
    let request = ModelRequest {
        messages: &[],
        tools: &[],
        conversation: None,
        state: CallState::default(),
    };
    let estimate = model.estimate(&request);
    model.reply(request, None).await.unwrap();
    let sent = server.requests()[0].split_once("\r\n\r\n").unwrap().1.len() as u64 / 4;
    assert_eq!((estimate.model_calls, estimate.input_tokens), (1, sent));
    assert_eq!(estimate.cost_micros, sent * 1000);
}

#[tokio::test]
async fn an_address_that_has_replied_to_another_task_is_waited_for() {
    let absent = || Act::Keep(response("404 Not Found", "", "404 page not found"));
    let hello = || Act::Keep(hello_stream());
    let server = Server::start(vec![hello(), absent(), hello()]).await;
    let model = server.model();
    ask(&model).await.unwrap();
    ask(&model).await.unwrap();
    assert_eq!(server.requests().len(), 3);
    let server = Server::start(vec![absent(), hello()]).await;
    let error = ask(&server.model()).await.unwrap_err();
    assert!(matches!(error, LlmError::NotFound { .. }), "{error}");
}

#[tokio::test]
async fn a_server_that_asks_for_the_newer_name_of_the_limit_gets_it_from_then_on() {
    let refusal = r#"{"error":{"message":"Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.","param":"max_tokens","code":"unsupported_parameter"}}"#;
    let refusal = response(
        "400 Bad Request",
        "content-type: application/json\r\n",
        refusal,
    );
    let server = Server::start(vec![Act::Keep(refusal), Act::Keep(hello_stream())]).await;
    let mut config = server.config();
    config.max_output_tokens = Some(100);
    let model = impatient(&config);
    ask(&model).await.unwrap();
    ask(&model).await.unwrap();
    let newer: Vec<bool> = server
        .requests()
        .iter()
        .map(|it| it.contains("\"max_completion_tokens\":100"))
        .collect();
    assert_eq!(newer, [false, true, true]);
}

#[tokio::test]
async fn dropping_the_call_closes_the_connection() {
    let mut server = Server::start(vec![Act::Stall(stream(HALF))]).await;
    let model = server.model();
    let (send, mut receive) = unbounded_channel();
    let call = tokio::spawn(async move {
        let request = ModelRequest {
            messages: &[],
            tools: &[],
            conversation: None,
            state: CallState::default(),
        };
        model.reply(request, Some(&send)).await
    });
    assert_eq!(receive.recv().await, Some(Delta::Text("Half".into())));
    call.abort();
    assert_eq!(server.gone.recv().await, Some(()));
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn a_refused_request_is_final_and_its_body_is_shown_without_the_key() {
    let body = format!(r#"{{"error":{{"message":"no such tool; you sent {KEY}"}}}}"#);
    for (status, code) in [("400 Bad Request", 400), ("422 Unprocessable Entity", 422)] {
        let server = Server::start(vec![Act::Keep(response(status, "", &body))]).await;
        let error = ask(&server.model()).await.unwrap_err();
        assert!(matches!(&error, LlmError::Refused { status, .. } if *status == code));
        let shown = error.to_string();
        assert!(shown.contains("no such tool; you sent ***"), "{shown}");
        assert!(!shown.contains(KEY));
        assert_eq!(server.requests().len(), 1, "{status}");
    }
}

#[tokio::test]
async fn refused_credentials_say_where_to_look() {
    let body = format!("Incorrect API key provided: {KEY}");
    let server = Server::start(vec![Act::Keep(response("401 Unauthorized", "", &body))]).await;
    let error = ask(&server.model()).await.unwrap_err();
    insta::assert_snapshot!(error, @"the model API refused the credentials (401): Incorrect API key provided: ***. hint: check OPENAI_API_KEY or model.api_key");
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn a_conversation_too_long_is_reported_as_such() {
    let body = r#"{"error":{"message":"maximum context length is 8192","code":"context_length_exceeded"}}"#;
    let server = Server::start(vec![Act::Keep(response("400 Bad Request", "", body))]).await;
    let error = ask(&server.model()).await.unwrap_err();
    assert!(matches!(error, LlmError::ContextTooLong(_)), "{error}");
}

/// As nginx answers, which accepts 1 MB by default.
#[tokio::test]
async fn a_request_that_a_proxy_finds_too_large_is_too_long_also_where_the_server_has_replied() {
    let page = "<html>\r\n<head><title>413 Request Entity Too Large</title></head></html>";
    let html = "content-type: text/html\r\n";
    let too_large = response("413 Request Entity Too Large", html, page);
    let server = Server::start(vec![Act::Keep(hello_stream()), Act::Close(too_large)]).await;
    let model = server.model();
    ask(&model).await.unwrap();
    let error = ask(&model).await.unwrap_err();
    assert!(matches!(error, LlmError::ContextTooLong(_)), "{error}");
    let shown = error.to_string();
    assert!(shown.contains("client_max_body_size"), "{shown}");
    assert!(shown.contains("413 Request Entity Too Large"), "{shown}");
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test]
async fn an_error_inside_a_200_and_inside_a_stream_is_an_error() {
    let overloaded = r#"{"error":{"message":"overloaded","code":503}}"#;
    let server = Server::start(vec![
        Act::Keep(json_response(overloaded)),
        Act::Keep(stream(&format!("{HALF}event: error\ndata: {overloaded}\n\n")) + STREAM_END),
        Act::Keep(stream("data: {\"error\":\"invalid\", \"object\": \"error\"}\n\n") + STREAM_END),
        Act::Keep(json_response(
            r#"{"error":{"type":"invalid_request_error","message":"bad tool"}}"#,
        )),
    ])
    .await;
    let error = ask(&server.model()).await.unwrap_err();
    assert!(error.to_string().contains("bad tool"), "{error}");
    assert_eq!(server.requests().len(), 4);
}

#[tokio::test]
async fn an_answer_in_another_language_is_a_protocol_error() {
    let body = "{\"hello\":1}";
    let server = Server::start(vec![Act::Keep(json_response(body))]).await;
    let error = ask(&server.model()).await.unwrap_err();
    assert!(matches!(error, LlmError::Protocol(_)), "{error}");
    assert!(error.to_string().contains(body), "{error}");
    assert_eq!(server.requests().len(), 1);
    let broken = stream("data: {nonsense}\n\n") + STREAM_END;
    let server = Server::start(vec![Act::Keep(broken)]).await;
    let error = ask(&server.model()).await.unwrap_err();
    assert!(matches!(error, LlmError::Protocol(_)), "{error}");
}

#[tokio::test]
async fn a_web_page_is_reported_at_once_with_a_hint() {
    let page = "<!DOCTYPE html>\n<html><head><title>Open WebUI</title></head></html>";
    let html = "content-type: text/html; charset=utf-8\r\n";
    let plain = "content-type: text/plain\r\n";
    for (status, headers) in [
        ("200 OK", html),
        ("200 OK", plain),
        ("200 OK", ""),
        ("200 OK", "content-type: application/json\r\n"),
        ("200 OK", "content-type: text/event-stream\r\n"),
        ("405 Method Not Allowed", html),
    ] {
        for stream in [true, false] {
            let server = Server::start(vec![Act::Close(response(status, headers, page))]).await;
            let mut config = server.config();
            config.stream = stream;
            let error = ask(&impatient(&config)).await.unwrap_err().to_string();
            for part in [
                "a web page titled \"Open WebUI\"",
                "hint: check model.base_url",
            ] {
                assert!(error.contains(part), "{status} {headers}: {error}");
            }
            assert_eq!(server.requests().len(), 1, "{status} {headers}");
        }
    }
}

/// The first notice of a call that never ends.
async fn notice(act: Act) -> String {
    let server = Server::start(vec![act]).await;
    let mut model = server.model();
    model.client.notice = Duration::from_millis(300);
    let (send, mut receive) = unbounded_channel();
    let call = tokio::spawn(async move {
        let request = ModelRequest {
            messages: &[],
            tools: &[],
            conversation: None,
            state: CallState::default(),
        };
        model.reply(request, Some(&send)).await
    });
    let Some(Delta::Waiting(text)) = receive.recv().await else {
        panic!("no notice");
    };
    call.abort();
    text.replace(
        &server.url[url::Position::BeforeHost..url::Position::AfterPort],
        "HOST",
    )
}

#[tokio::test]
async fn a_server_that_stays_silent_is_reported_as_what_it_is() {
    insta::assert_snapshot!(notice(Act::Stall(String::new())).await, @"still waiting for the model (0 s): HOST has not answered. hint: check model.base_url and the server, unless the model is slow");
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n".to_owned();
    insta::assert_snapshot!(notice(Act::Stall(head)).await, @"still waiting for the model (0 s): HOST answered, but sends no reply. hint: check model.base_url and the server, unless the model is slow");
    insta::assert_snapshot!(notice(Act::Comments).await, @"still waiting for the model (0 s): HOST sends keep-alive comments, but no reply. hint: check model.base_url and the server, unless the model is slow");
}

#[tokio::test]
async fn comments_alone_are_no_reply() {
    let server = Server::start(vec![Act::Comments]).await;
    let mut model = server.model();
    model.client.first_byte = Duration::from_millis(200);
    model.client.retries.max_tries = 2;
    let error = ask(&model).await.unwrap_err().to_string();
    assert!(error.contains("only keep-alive comments"), "{error}");
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test]
async fn a_server_that_loads_is_waited_for_and_the_waiting_is_shown() {
    let loading = response(
        "503 Service Unavailable",
        "",
        r#"{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}"#,
    );
    let mut acts = vec![Act::Keep(loading); 20];
    acts.push(Act::Keep(hello_stream()));
    let server = Server::start(acts).await;
    let mut model = server.model();
    model.client.retries.away = Duration::from_secs(60);
    model.client.retries.cap = Duration::from_millis(5);
    let (send, mut receive) = unbounded_channel();
    let request = ModelRequest {
        messages: &[],
        tools: &[],
        conversation: None,
        state: CallState::default(),
    };
    let (reply, _) = model.reply(request, Some(&send)).await.unwrap();
    assert_eq!(reply.text, "Hello 👋");
    let Some(Delta::Waiting(text)) = receive.recv().await else {
        panic!("no notice");
    };
    for part in [
        "is not available: status 503",
        "Loading model",
        "trying again in",
    ] {
        assert!(text.contains(part), "{text}");
    }
}

#[tokio::test]
async fn an_overflow_is_reported_with_the_sizes_of_prompt_and_window() {
    let body = r#"{"error":{"code":400,"message":"request (9120 tokens) exceeds the available context size (8192 tokens), try increasing it","type":"exceed_context_size_error","n_prompt_tokens":9120,"n_ctx":8192}}"#;
    let server = Server::start(vec![Act::Keep(response("400 Bad Request", "", body))]).await;
    let error = ask(&server.model()).await.unwrap_err();
    insta::assert_snapshot!(error, @"the conversation is too long for the model: it has 9120 tokens, and the model's window has 8192. hint: use a model with a larger window, or request less at once");
}

#[tokio::test]
async fn a_string_as_the_code_of_an_error_inside_a_stream_is_read() {
    let event = |code: &str, message: &str| {
        let data = format!(
            "data: {{\"error\":{{\"message\":\"{message}\",\"type\":\"None\",\"param\":\"None\",\"code\":\"{code}\"}}}}\n\n"
        );
        Act::Keep(stream(&data) + STREAM_END)
    };
    let server = Server::start(vec![event("401", "litellm.AuthenticationError: bad key")]).await;
    let error = ask(&server.model()).await.unwrap_err();
    assert!(
        matches!(error, LlmError::Unauthorized { status: 401, .. }),
        "{error}"
    );
    assert_eq!(server.requests().len(), 1);
    let server = Server::start(vec![event("400", "Invalid model name passed in model=x")]).await;
    let error = ask(&server.model()).await.unwrap_err();
    assert!(
        matches!(error, LlmError::NotFound { status: 400, .. }),
        "{error}"
    );
    assert_eq!(server.requests().len(), 1);
    let server = Server::start(vec![event("503", "busy"), Act::Keep(hello_stream())]).await;
    ask(&server.model()).await.unwrap();
}

#[tokio::test]
async fn a_redirect_is_not_followed_and_its_address_is_shown() {
    let moved = response("302 Found", "location: http://127.0.0.1:1/v2?a=b\r\n", "");
    let server = Server::start(vec![Act::Keep(moved)]).await;
    let error = ask(&server.model()).await.unwrap_err();
    insta::assert_snapshot!(error, @"the model API refused the request (302): it redirects to http://127.0.0.1:1/v2. hint: correct model.base_url");
}

#[tokio::test]
async fn a_server_that_wants_a_key_where_none_is_set_is_reported_as_such() {
    let refusal = || Act::Keep(response("401 Unauthorized", "", "who are you"));
    let server = Server::start(vec![refusal()]).await;
    let mut config = server.config();
    config.api_key = None;
    let error = ask(&impatient(&config)).await.unwrap_err();
    insta::assert_snapshot!(error, @"the model API wants credentials, and no key is set (401): who are you. hint: set OPENAI_API_KEY or model.api_key");
    let models = impatient(&config).probe().await;
    assert_eq!(models.unwrap_err().to_string(), error.to_string());
    config.headers = [("X-Key".to_owned(), Secret::new("blue"))].into();
    let error = ask(&impatient(&config)).await.unwrap_err().to_string();
    assert!(error.contains("refused the credentials"), "{error}");
}

#[tokio::test]
async fn a_server_without_tls_is_reported_at_once() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let mut hello = [0; 4096];
            let _ = socket.read(&mut hello).await;
            let _ = socket.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
            let _ = socket.read(&mut hello).await;
        }
    });
    let config = ModelConfig {
        base_url: format!("https://{address}/v1").parse().unwrap(),
        ..ModelConfig::default()
    };
    let error = ask(&impatient(&config)).await.unwrap_err();
    serving.abort();
    assert!(matches!(error, LlmError::NoTls { .. }), "{error}");
    let hint = "hint: the server seems to expect http:// in model.base_url, not https://";
    assert!(error.to_string().ends_with(hint), "{error}");
}

#[tokio::test]
async fn a_limit_on_the_rate_is_shown_as_such() {
    let busy = response("429 Too Many Requests", "retry-after: 0\r\n", "slower");
    let server = Server::start(vec![Act::Keep(busy), Act::Keep(hello_stream())]).await;
    let (send, mut receive) = unbounded_channel();
    let request = ModelRequest {
        messages: &[],
        tools: &[],
        conversation: None,
        state: CallState::default(),
    };
    server.model().reply(request, Some(&send)).await.unwrap();
    let Some(Delta::Waiting(text)) = receive.recv().await else {
        panic!("no notice");
    };
    assert!(
        text.contains(" limits the rate: status 429: slower; "),
        "{text}"
    );
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unavailable() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let config = ModelConfig {
        base_url: format!("http://{address}/v1").parse().unwrap(),
        max_tries: 2,
        ..ModelConfig::default()
    };
    let (send, mut receive) = unbounded_channel();
    let request = ModelRequest {
        messages: &[],
        tools: &[],
        conversation: None,
        state: CallState::default(),
    };
    let reply = impatient(&config).reply(request, Some(&send)).await;
    let error = reply.unwrap_err();
    assert!(
        matches!(error, LlmError::Unavailable { tries: 2, .. }),
        "{error}"
    );
    let Some(Delta::Waiting(text)) = receive.recv().await else {
        panic!("no notice");
    };
    assert!(text.contains("hint: check model.base_url"), "{text}");
    assert!(
        error.to_string().to_lowercase().contains("refused"),
        "{error}"
    );
}

//! Against a scripted server.

use std::time::Duration;

use agentmine_domain::Blame;
use agentmine_runtime::config::Secret;
use serde_json::{Value, json};
use tokio::sync::mpsc::unbounded_channel;

use super::*;
use crate::call_state::CallState;
use crate::message::{Message, Stop};
use crate::model::ConversationId;
use crate::test_server::{Act, KEY, STREAM_END, Server, json_response, response, stream};

/// A client with short waits.
fn impatient(config: &ModelConfig) -> Anthropic {
    let mut model = Anthropic::new(config).unwrap();
    model.client.retries.base = Duration::from_millis(1);
    model.client.retries.away = Duration::ZERO;
    model
}

/// Events as the API sends them.
fn events(events: &[Value]) -> String {
    let event = |event: &Value| {
        let name = event["type"].as_str().unwrap();
        format!("event: {name}\ndata: {event}\n\n")
    };
    events.iter().map(event).collect()
}

fn start() -> Value {
    json!({ "type": "message_start", "message": { "type": "message", "content": [], "stop_reason": null,
        "usage": { "input_tokens": 5, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 4, "output_tokens": 1 } } })
}

fn text(index: u64, text: &str) -> [Value; 3] {
    [
        json!({ "type": "content_block_start", "index": index, "content_block": { "type": "text", "text": "" } }),
        json!({ "type": "content_block_delta", "index": index, "delta": { "type": "text_delta", "text": text } }),
        json!({ "type": "content_block_stop", "index": index }),
    ]
}

fn end() -> [Value; 2] {
    [
        json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn", "stop_sequence": null }, "usage": { "output_tokens": 2 } }),
        json!({ "type": "message_stop" }),
    ]
}

fn hello() -> String {
    let all: Vec<Value> = [start(), json!({ "type": "ping" })]
        .into_iter()
        .chain(text(0, "Hello 👋"))
        .chain(end())
        .collect();
    events(&all)
}

fn hello_stream() -> Act {
    Act::Keep(stream(&hello()) + STREAM_END)
}

fn error(kind: &str, message: &str) -> String {
    json!({ "type": "error", "error": { "type": kind, "message": message }, "request_id": "req_1" })
        .to_string()
}

fn refusal(status: &str, kind: &str, message: &str) -> Act {
    let headers = "content-type: application/json\r\nretry-after: 0\r\n";
    Act::Keep(response(status, headers, &error(kind, message)))
}

async fn ask(model: &Anthropic) -> Result<(ModelReply, Usage), LlmError> {
    ask_in(model, Some(ConversationId::unique())).await
}

async fn ask_in(
    model: &Anthropic,
    conversation: Option<ConversationId>,
) -> Result<(ModelReply, Usage), LlmError> {
    let messages = [Message::User {
        text: "Say hello".into(),
    }];
    let request = ModelRequest {
        messages: &messages,
        tools: &[],
        conversation,
        state: CallState::default(),
    };
    model.reply(request, None).await
}

/// A reply that breaks off after the server has counted its input, most of which it had cached.
#[tokio::test]
async fn a_broken_reply_costs_what_the_server_has_counted() {
    let long = "words ".repeat(100);
    let counts = json!({ "input_tokens": 5, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 1000, "output_tokens": 1 });
    let mut begin = start();
    begin["message"]["usage"] = counts;
    let [block, delta, _] = text(0, &long);
    let broken = Act::Close(stream(&events(&[begin, block, delta])));
    let server = Server::start(vec![broken, hello_stream()]).await;
    let config = ModelConfig {
        input_price: 1000.0,
        cached_input_price: Some(100.0),
        output_price: 2000.0,
        ..server.config()
    };
    let (_, used) = ask(&impatient(&config)).await.unwrap();
    assert_eq!((used.model_calls, used.input_tokens), (2, 1005 + 9));
    assert_eq!(used.cached_tokens, 1000 + 4);
    assert_eq!(used.output_tokens, long.len() as u64 / 4 + 2);
}

fn body_of(request: &str) -> Value {
    let (_, body) = request.split_once("\r\n\r\n").unwrap();
    serde_json::from_str(body).unwrap()
}

#[tokio::test]
async fn a_streamed_reply_is_read_and_shown_as_it_arrives() {
    let server = Server::start(vec![hello_stream()]).await;
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
    let model = impatient(&server.config());
    let (reply, usage) = model.reply(request, Some(&send)).await.unwrap();
    assert_eq!((&*reply.text, reply.stop), ("Hello 👋", Stop::EndTurn));
    let counts = (usage.input_tokens, usage.cached_tokens, usage.output_tokens);
    assert_eq!(counts, (9, 4, 2));
    assert_eq!(receive.recv().await, Some(Delta::Text("Hello 👋".into())));
    // The connection is used again after the stream.
    ask(&model).await.unwrap();
    assert_eq!(server.connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn the_request_carries_key_version_and_headers() {
    let server = Server::start(vec![hello_stream()]).await;
    let mut config = server.config();
    config.max_output_tokens = Some(100);
    config.headers = [("Anthropic-Beta".to_owned(), Secret::new("one"))].into();
    ask(&impatient(&config)).await.unwrap();
    let request = server.requests().remove(0);
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("POST /v1/messages HTTP/1.1"), "{head}");
    for line in [
        "x-api-key: sk-test-0123456789",
        "anthropic-version: 2023-06-01",
        "anthropic-beta: one",
        "content-type: application/json",
    ] {
        assert!(head.lines().any(|l| l.eq_ignore_ascii_case(line)), "{line}");
    }
    assert!(!head.to_lowercase().contains("authorization"), "{head}");
    insta::assert_snapshot!(body, @r#"{"model":"test-model","max_tokens":100,"stream":true,"messages":[{"role":"user","content":[{"type":"text","text":"Say hello","cache_control":{"type":"ephemeral"}}]}]}"#);
}

#[test]
fn the_address_is_made_from_any_form_of_the_base() {
    for (base, expected) in [
        ("https://h", "https://h/v1/messages"),
        ("https://h/", "https://h/v1/messages"),
        ("https://h/v1", "https://h/v1/messages"),
        ("https://h/v1/", "https://h/v1/messages"),
        ("https://h/v1/messages", "https://h/v1/messages"),
        ("https://h/anthropic", "https://h/anthropic/v1/messages"),
        ("https://h/v1?v=1", "https://h/v1/messages?v=1"),
    ] {
        let url = endpoint(&base.parse().unwrap()).unwrap();
        assert_eq!(url.as_str(), expected);
    }
    assert!(endpoint(&"ftp://h/v1".parse().unwrap()).is_err());
}

#[test]
fn only_anthropic_itself_needs_a_key() {
    let config = |base: &str| ModelConfig {
        base_url: base.parse().unwrap(),
        ..ModelConfig::default()
    };
    let own = config("https://api.anthropic.com/v1");
    let fault = Anthropic::new(&own).unwrap_err().to_string();
    assert!(fault.contains("ANTHROPIC_API_KEY"), "{fault}");
    let bearer = ("Authorization".to_owned(), Secret::new("Bearer token"));
    let with_token = ModelConfig {
        headers: [bearer].into(),
        ..own.clone()
    };
    let with_key = ModelConfig {
        api_key: Some(Secret::new(KEY)),
        ..own
    };
    for config in [with_token, with_key, config("http://127.0.0.1:4000")] {
        let model = Anthropic::new(&config).unwrap();
        assert!(!format!("{model:?}").contains(KEY));
    }
}

#[tokio::test]
async fn a_whole_reply_is_read_where_a_stream_was_asked_for_and_the_other_way_round() {
    let whole = json!({ "type": "message", "content": [{ "type": "text", "text": "Hello" }],
        "stop_reason": "end_turn", "usage": { "input_tokens": 1, "output_tokens": 1 } });
    let server = Server::start(vec![Act::Keep(json_response(&whole.to_string()))]).await;
    let model = impatient(&server.config());
    assert_eq!(ask(&model).await.unwrap().0.text, "Hello");

    let server = Server::start(vec![hello_stream()]).await;
    let mut config = server.config();
    config.stream = false;
    let (reply, _) = ask(&impatient(&config)).await.unwrap();
    assert_eq!(reply.text, "Hello 👋");
    assert_eq!(body_of(&server.requests()[0])["stream"], false);
}

#[tokio::test]
async fn a_stream_that_is_not_closed_ends_with_its_last_event() {
    let server = Server::start(vec![Act::Stall(stream(&hello()))]).await;
    let asked = tokio::time::timeout(Duration::from_secs(30), async {
        ask(&impatient(&server.config())).await.unwrap().0.text
    });
    assert_eq!(asked.await.unwrap(), "Hello 👋");
}

#[tokio::test]
async fn a_stream_that_ends_before_the_message_does_is_a_broken_reply() {
    let all: Vec<Value> = [start()].into_iter().chain(text(0, "Half")).collect();
    let whole_chunks = Act::Keep(stream(&events(&all)) + STREAM_END);
    let cut = Act::Close(stream(&events(&all)));
    let empty = Act::Keep(stream(&events(&[start()])) + STREAM_END);
    for broken in [whole_chunks, cut, empty] {
        let server = Server::start(vec![broken.clone(), hello_stream()]).await;
        let model = impatient(&server.config());
        let (reply, usage) = ask(&model).await.unwrap();
        assert_eq!((reply.text.as_str(), usage.model_calls), ("Hello 👋", 2));
        assert_eq!(server.requests().len(), 2);
        let server = Server::start(vec![broken]).await;
        let failed = ask(&impatient(&server.config())).await.unwrap_err();
        assert!(matches!(failed, LlmError::Unavailable { .. }), "{failed}");
    }
}

#[tokio::test]
async fn an_overload_is_waited_for_also_in_the_middle_of_a_stream() {
    let event = |kind: &str| format!("event: error\ndata: {}\n\n", error(kind, "Overloaded"));
    let begun: Vec<Value> = [start()].into_iter().chain(text(0, "Half")).collect();
    let server = Server::start(vec![
        refusal("529 Overloaded", "overloaded_error", "Overloaded"),
        refusal("429 Too Many Requests", "rate_limit_error", "slower"),
        refusal("500 Internal Server Error", "api_error", "oops"),
        Act::Keep(stream(&event("overloaded_error")) + STREAM_END),
        hello_stream(),
    ])
    .await;
    assert_eq!(
        ask(&impatient(&server.config())).await.unwrap().0.text,
        "Hello 👋"
    );
    for kind in ["overloaded_error", "api_error", "rate_limit_error"] {
        let data = events(&begun) + &event(kind);
        let server =
            Server::start(vec![Act::Keep(stream(&data) + STREAM_END), hello_stream()]).await;
        let model = impatient(&server.config());
        let (reply, usage) = ask(&model).await.unwrap();
        assert_eq!(reply.text, "Hello 👋", "{kind}");
        assert_eq!(usage.model_calls, 2, "{kind}: half of a reply came");
    }
}

#[tokio::test]
async fn each_refusal_means_what_it_says() {
    let long = "prompt is too long: 210000 tokens > 200000 maximum";
    let full = "input length and `max_tokens` exceed context limit: 199000 + 32000 > 200000, decrease input length or `max_tokens` and try again";
    let poor = "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or purchase credits.";
    for (status, kind, message, expected) in [
        (
            "400 Bad Request",
            "invalid_request_error",
            "tools.0: no",
            "refused",
        ),
        ("400 Bad Request", "invalid_request_error", long, "too long"),
        ("400 Bad Request", "invalid_request_error", full, "too long"),
        ("400 Bad Request", "invalid_request_error", poor, "no quota"),
        (
            "401 Unauthorized",
            "authentication_error",
            "invalid x-api-key",
            "unauthorized",
        ),
        ("402 Payment Required", "billing_error", "pay", "no quota"),
        (
            "403 Forbidden",
            "permission_error",
            "not yours",
            "unauthorized",
        ),
        (
            "404 Not Found",
            "not_found_error",
            "model: claude-0",
            "not found",
        ),
        (
            "413 Payload Too Large",
            "request_too_large",
            "Request exceeds the maximum size",
            "too long",
        ),
    ] {
        let server = Server::start(vec![refusal(status, kind, message)]).await;
        let refused = ask(&impatient(&server.config())).await.unwrap_err();
        let seen = match &refused {
            LlmError::Refused { .. } => "refused",
            LlmError::ContextTooLong(_) => "too long",
            LlmError::OutOfQuota { .. } => "no quota",
            LlmError::Unauthorized { .. } => "unauthorized",
            LlmError::NotFound { .. } => "not found",
            _ => "something else",
        };
        assert_eq!(seen, expected, "{message}");
        assert_eq!(server.requests().len(), 1, "{message}");
        if seen == "unauthorized" {
            let hint = "hint: check ANTHROPIC_API_KEY or model.api_key";
            assert!(refused.to_string().ends_with(hint), "{refused}");
        }
    }
}

#[tokio::test]
async fn a_limit_on_the_rate_says_when_it_ends() {
    let headers = "anthropic-ratelimit-requests-remaining: 5\r\nanthropic-ratelimit-requests-reset: 2999-01-01T00:00:00Z\r\nanthropic-ratelimit-output-tokens-remaining: 0\r\nanthropic-ratelimit-output-tokens-reset: 2998-01-01T00:00:00Z\r\n";
    let body = error("rate_limit_error", "slower");
    let busy = response("429 Too Many Requests", headers, &body);
    let server = Server::start(vec![Act::Keep(busy)]).await;
    let refused = ask(&impatient(&server.config())).await.unwrap_err();
    let Blame::World { until: Some(until) } = refused.blame() else {
        panic!("{refused}");
    };
    assert!(
        until.to_rfc3339().starts_with("2997-12-31")
            || until.to_rfc3339().starts_with("2998-01-01"),
        "{until}"
    );
}

#[tokio::test]
async fn a_web_page_is_no_api() {
    let page = "<!DOCTYPE html><html><head><title>Sign in</title></head></html>";
    let html = response("200 OK", "content-type: text/html\r\n", page);
    let server = Server::start(vec![Act::Keep(html)]).await;
    let refused = ask(&impatient(&server.config())).await.unwrap_err();
    assert!(matches!(refused, LlmError::NotAnApi(_)), "{refused}");
}

#[tokio::test]
async fn the_limit_of_the_model_is_used_and_remembered() {
    let message = "max_tokens: 32000 > 8192, which is the maximum allowed number of output tokens for claude-3-5-haiku-20241022";
    let server = Server::start(vec![
        refusal("400 Bad Request", "invalid_request_error", message),
        hello_stream(),
    ])
    .await;
    let model = impatient(&server.config());
    for _ in 0..2 {
        ask(&model).await.unwrap();
    }
    let limits: Vec<Value> = server
        .requests()
        .iter()
        .map(|request| body_of(request)["max_tokens"].clone())
        .collect();
    assert_eq!(limits, [json!(32_000), json!(8_192), json!(8_192)]);
}

#[tokio::test]
async fn where_the_window_is_nearly_full_a_shorter_reply_is_asked_for() {
    let message = "input length and `max_tokens` exceed context limit: 180000 + 32000 > 200000, decrease input length or `max_tokens` and try again";
    let full = || refusal("400 Bad Request", "invalid_request_error", message);
    let server = Server::start(vec![full(), hello_stream()]).await;
    let model = impatient(&server.config());
    for _ in 0..2 {
        ask(&model).await.unwrap();
    }
    let limits: Vec<Value> = server
        .requests()
        .iter()
        .map(|request| body_of(request)["max_tokens"].clone())
        .collect();
    assert_eq!(limits, [json!(32_000), json!(20_000), json!(32_000)]);
    // A server that refuses that too is not asked without end.
    let server = Server::start(vec![full()]).await;
    let refused = ask(&impatient(&server.config())).await.unwrap_err();
    assert!(matches!(refused, LlmError::ContextTooLong(_)), "{refused}");
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test]
async fn a_conversation_that_began_without_thinking_continues_without_it() {
    let message = "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `text`. When `thinking` is enabled, a final `assistant` message must start with a thinking block (preceding the lastmost set of `tool_use` and `tool_result` blocks).";
    let server = Server::start(vec![
        refusal("400 Bad Request", "invalid_request_error", message),
        hello_stream(),
    ])
    .await;
    let mut config = server.config();
    let thinking = json!({ "type": "enabled", "budget_tokens": 8000 });
    config
        .extra_body
        .insert("thinking".into(), thinking.clone());
    let model = impatient(&config);
    let (begun_without, other) = (ConversationId::unique(), ConversationId::unique());
    for conversation in [begun_without, begun_without, other] {
        ask_in(&model, Some(conversation)).await.unwrap();
    }
    let requests = server.requests();
    let asked: Vec<Value> = requests
        .iter()
        .map(|it| body_of(it)["thinking"].clone())
        .collect();
    let (with, without) = (thinking, Value::Null);
    assert_eq!(asked, [with.clone(), without.clone(), without, with]);
    // What is not one conversation is not remembered, and what was longest ago is forgotten.
    model.remember_without_thinking(None);
    assert_eq!(model.form(None).thinking, Thinking::AsConfigured);
    for _ in 0..REMEMBERED {
        model.remember_without_thinking(Some(ConversationId::unique()));
    }
    assert_eq!(model.without_thinking().len(), REMEMBERED);
    let form = model.form(Some(begun_without));
    assert_eq!(form.thinking, Thinking::AsConfigured);
}

#[tokio::test]
async fn the_models_are_listed_with_the_key() {
    let list = r#"{"data":[{"type":"model","id":"claude-a"},{"type":"model","id":"claude-b"}],"has_more":false}"#;
    let server = Server::start(vec![Act::Keep(json_response(list))]).await;
    let probe = impatient(&server.config()).probe().await.unwrap();
    assert_eq!(probe.models.unwrap(), ["claude-a", "claude-b"]);
    let request = server.requests().remove(0);
    assert!(
        request.starts_with("GET /v1/models?limit=1000 HTTP/1.1"),
        "{request}"
    );
    assert!(
        request.contains("x-api-key: sk-test-0123456789"),
        "{request}"
    );

    let denied = refusal(
        "401 Unauthorized",
        "authentication_error",
        "invalid x-api-key",
    );
    let server = Server::start(vec![denied]).await;
    let mut config = server.config();
    config.api_key = None;
    let refused = impatient(&config).probe().await.unwrap_err().to_string();
    assert!(
        refused.ends_with("hint: set ANTHROPIC_API_KEY or model.api_key"),
        "{refused}"
    );
}

//! What real servers, proxies and providers answer instead of a reply, in their own words.

use super::script::{Fault, Refusal};

fn refusal(status: u16, headers: &[(&'static str, &str)], body: &str) -> Fault {
    let headers = headers
        .iter()
        .map(|(name, value)| (*name, (*value).to_owned()));
    Fault::Refusal(Refusal {
        status,
        headers: headers.collect(),
        body: body.to_owned(),
    })
}

const JSON: (&str, &str) = ("content-type", "application/json");

/// llama.cpp's server while it loads the model.
#[must_use]
pub fn loading() -> Fault {
    refusal(
        503,
        &[JSON],
        r#"{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}"#,
    )
}

/// The page of a web application at the address where an API was expected.
#[must_use]
pub fn web_page() -> Fault {
    refusal(
        200,
        &[("content-type", "text/html; charset=utf-8")],
        "<!DOCTYPE html>\n<html><head><title>Open WebUI</title></head><body></body></html>",
    )
}

/// An error as LiteLLM's proxy sends it inside a stream: its status is a string.
#[must_use]
pub fn string_code() -> Fault {
    Fault::Event(
        r#"{"error":{"message":"litellm.AuthenticationError: AuthenticationError: OpenAIException - Incorrect API key provided","type":"None","param":"None","code":"401"}}"#,
    )
}

/// Refusals that name the end of a rate limit, about a second away, each in another way.
#[must_use]
pub fn rate_limits() -> Vec<Fault> {
    let soon = std::time::SystemTime::now() + std::time::Duration::from_secs(2);
    let unix = soon
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    let headers = [
        ("retry-after", "1".to_owned()),
        ("retry-after", httpdate::fmt_http_date(soon)),
        ("retry-after-ms", "1000".to_owned()),
        ("x-ms-retry-after-ms", "1000".to_owned()),
        ("llm_provider-retry-after", "1".to_owned()),
        ("x-ratelimit-reset-requests", "1s".to_owned()),
        ("x-ratelimit-reset-tokens", "1000ms".to_owned()),
        ("x-ratelimit-reset", unix.as_secs().to_string()),
        ("x-ratelimit-reset", unix.as_millis().to_string()),
        ("ratelimit-reset", "1".to_owned()),
    ];
    let body = r#"{"error":{"message":"Rate limit reached","type":"requests","code":"rate_limit_exceeded"}}"#;
    let mut all: Vec<_> = headers
        .iter()
        .map(|(name, value)| refusal(429, &[JSON, (name, value)], body))
        .collect();
    all.push(refusal(
        429,
        &[JSON],
        r#"{"error":{"message":"Rate limit reached for gpt-5. Please try again in 1s.","code":"rate_limit_exceeded"}}"#,
    ));
    all
}

/// Refusals of a conversation of 9,120 tokens for a window of 8,192, as far as each names them.
#[must_use]
pub fn overflows() -> Vec<(&'static str, Fault)> {
    let of = |status, body: &str| refusal(status, &[JSON], body);
    vec![
        (
            "OpenAI",
            of(
                400,
                r#"{"error":{"message":"This model's maximum context length is 8192 tokens. However, your messages resulted in 9120 tokens. Please reduce the length of the messages.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}"#,
            ),
        ),
        (
            "vLLM",
            of(
                400,
                r#"{"object":"error","message":"This model's maximum context length is 8192 tokens. However, you requested 10000 tokens (9120 in the messages, 880 in the completion). Please reduce the length of the messages or completion.","type":"BadRequestError","param":null,"code":400}"#,
            ),
        ),
        (
            "llama.cpp",
            of(
                400,
                r#"{"error":{"code":400,"message":"request (9120 tokens) exceeds the available context size (8192 tokens), try increasing it","type":"exceed_context_size_error","n_prompt_tokens":9120,"n_ctx":8192}}"#,
            ),
        ),
        (
            "LiteLLM",
            of(
                400,
                r#"{"error":{"message":"litellm.BadRequestError: litellm.ContextWindowExceededError: AnthropicException - prompt is too long: 9120 tokens > 8192 maximum. Received Model Group=claude","type":null,"param":null,"code":"400"}}"#,
            ),
        ),
        (
            "SGLang",
            of(
                400,
                r#"{"object":"error","message":"The input (9120 tokens) is longer than the model's context length (8192 tokens).","type":"BadRequestError","param":null,"code":400}"#,
            ),
        ),
        (
            "LM Studio",
            of(
                400,
                r#"{"error":"Trying to keep the first 9120 tokens when context the overflows. However, the model is loaded with context length of only 8192 tokens, which is not enough. Try to load the model with a larger context length, or provide a shorter input"}"#,
            ),
        ),
        (
            "TGI",
            of(
                422,
                r#"{"error":"Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8192. Given: 9120 `inputs` tokens and 512 `max_new_tokens`","error_type":"validation"}"#,
            ),
        ),
        (
            "Gemini",
            of(
                400,
                r#"[{"error":{"code":400,"message":"The input token count (9120) exceeds the maximum number of tokens allowed (8192).","status":"INVALID_ARGUMENT"}}]"#,
            ),
        ),
        (
            "Cerebras",
            of(
                400,
                r#"{"message":"Please reduce the length of the messages or completion. Current length is 9120 while limit is 8192","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}"#,
            ),
        ),
        (
            "Mistral",
            of(
                400,
                r#"{"object":"error","message":"Prompt contains 9120 tokens and 0 draft tokens, too large for model with 8192 maximum context length","type":"invalid_request_message","param":null,"code":"3051"}"#,
            ),
        ),
    ]
}

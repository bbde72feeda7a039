//! What an error of the server means: final, worth another try, wrong credentials, too long.
//!
//! The body of an error is shown, since it alone says what is wrong, but redacted and capped.

use std::time::{Duration, SystemTime};

use agentmine_runtime::config::Provider;
use reqwest::Url;
use reqwest::header::{HeaderMap, LOCATION};
use serde_json::Value;

use super::redact::Redactor;
use super::retry::{Failure, Trouble};
use super::retry_after::retry_after;
use super::{overflow, page};
use crate::error::{Credentials, LlmError};

/// How servers say, with another status than 404, that they have no such model: OpenAI, vLLM, LiteLLM's
/// proxy, OpenRouter, DeepSeek, Mistral, Bedrock. Compared in lower case.
const NO_MODEL: [&str; 9] = [
    "model_not_found",
    "invalid model name",
    "not a valid model id",
    "model not exist",
    "invalid model:",
    "invalid_model",
    "model identifier is invalid",
    "unknown model",
    "no such model",
];

/// How servers say, with the status of a malformed request, a refused key or a rate limit, that the account has no money
/// or no quota left: Anthropic (twice), LiteLLM's proxy (twice), Moonshot and Zhipu. Compared in lower case.
const NO_CREDIT: [&str; 5] = [
    "credit balance is too low",
    "reached your specified api usage limits",
    "budget has been exceeded",
    "exceededbudget:",
    "insufficient balance",
];
/// The codes and types for it: OpenAI (twice), LiteLLM's proxy, Moonshot, DashScope.
const NO_CREDIT_KINDS: [&str; 5] = [
    "insufficient_quota",
    "billing_hard_limit_reached",
    "budget_exceeded",
    "exceeded_current_quota",
    "arrearage",
];
/// How servers say with 400 that they do not accept the key: Google (three times), xAI. Compared in lower case.
const NO_KEY: [&str; 4] = [
    "api key not valid",
    "pass a valid api key",
    "api key expired",
    "incorrect api key provided",
];

/// Messages (400 or 500) about a reply of the model that the server cannot parse: Groq (two), vLLM for gpt-oss (two),
/// llama.cpp (two). Another try may help.
const UNREADABLE_REPLY: [&str; 6] = [
    "tool_use_failed",
    "failed_generation",
    "tokens remaining in message header",
    "while expecting start token",
    "model produced output that does not match",
    "failed to parse tool call arguments",
];
/// Messages (403) that refuse the content and not the credentials: xAI, OpenRouter.
const REFUSED_CONTENT: [&str; 2] = ["content violates usage guidelines", "input was flagged"];

/// What an error status means.
pub(crate) fn of_status(
    status: u16,
    body: &str,
    after: Option<Duration>,
    redactor: &Redactor,
) -> Failure {
    // A page that is no error of a gateway, a limit or a login.
    if let (Some(page), 400 | 405..=407 | 410..=412 | 414..=424) = (page::described(body), status) {
        let page = redactor.redact(&page);
        return Failure::Final(LlmError::NotAnApi(format!("{page} (status {status})")));
    }
    let parsed = serde_json::from_str(body).unwrap_or(Value::Null);
    let error = error_in(&parsed).unwrap_or(&parsed);
    classify(status, error, body, after, redactor)
}

/// What an answer means that names another address (3xx), which is shown without its query. `url` is the address of the
/// request.
pub(crate) fn of_redirect(
    status: u16,
    headers: &HeaderMap,
    url: &Url,
    redactor: &Redactor,
) -> Failure {
    let location = headers.get(LOCATION).and_then(|to| to.to_str().ok());
    let to = location
        .and_then(|to| url.join(to).ok())
        .filter(|to| matches!(to.scheme(), "http" | "https"))
        .map_or_else(
            || "another address".to_owned(),
            |to| {
                let origin = to.origin().ascii_serialization();
                redactor.redact(&format!("{origin}{}", to.path()))
            },
        );
    Failure::Final(LlmError::Refused {
        status,
        body: format!("it redirects to {to}. hint: correct model.base_url"),
    })
}

/// What an error inside a 200, or inside a stream, means. `event` is the whole that holds `error`.
pub(crate) fn of_event(event: &Value, error: &Value, redactor: &Redactor) -> Failure {
    let words = ApiError::read(error);
    let status = words.status.unwrap_or_else(|| words.implied_status());
    let text = event.to_string();
    let after = retry_after(status, &HeaderMap::new(), &text, SystemTime::now());
    match classify(status, error, &text, after, redactor) {
        // The server sent no such status.
        Failure::Retry {
            trouble,
            reason,
            detail: _,
            after,
        } if words.status.is_none() => Failure::Retry {
            trouble,
            reason,
            detail: format!("an error instead of a reply: {}", redactor.redact(&text)),
            after,
        },
        failure => failure,
    }
}

/// The error in an object, from the shapes in common use: `{"error": {…}}`, `{"error": "…"}` (Ollama),
/// `{"object": "error", …}` (vLLM), `[{"error": {…}}]` (Google).
pub(crate) fn error_in(value: &Value) -> Option<&Value> {
    let value = value.get(0).unwrap_or(value);
    match value.get("error") {
        Some(error) if !error.is_null() => Some(error),
        _ => (value["object"] == "error").then_some(value),
    }
}

fn classify(
    status: u16,
    error: &Value,
    body: &str,
    after: Option<Duration>,
    redactor: &Redactor,
) -> Failure {
    let words = ApiError::read(error);
    let shown = redactor.redact(body);
    let said = message(error).unwrap_or(body);
    // A validation error repeats what was sent, which may contain any words.
    let repeats = ["'input':", "\"input\":", "input_value="];
    let (account, judged) = match repeats.iter().any(|it| said.contains(it)) {
        true => ("", ""),
        false => (said, body),
    };
    // Old versions of llama.cpp report it with a 500.
    let is_too_long = overflow::exceeds_a_rate(judged)
        || (!matches!(status, 401 | 403 | 429) && overflow::says_so(judged));
    if is_too_long {
        let text = redactor.redact(message(error).unwrap_or(body));
        return Failure::Final(LlmError::ContextTooLong(overflow::read(error, text)));
    }
    // A limit in bytes, of the server or of a proxy, which answers with a web page.
    if status == 413 {
        return Failure::Final(LlmError::ContextTooLong(overflow::Overflow {
            text: format!(
                "the request is larger than the server, or a proxy in front of it, accepts. Raise its limit (nginx: client_max_body_size). It answered {shown}"
            ),
            ..overflow::Overflow::default()
        }));
    }
    let is_out_of_quota = match status {
        402 => true,
        400 | 403 | 429 => words.is_out_of_quota() || says_one_of(account, &NO_CREDIT),
        _ => false,
    };
    if is_out_of_quota {
        return Failure::Final(LlmError::OutOfQuota {
            status,
            body: shown,
        });
    }
    let is_unauthorized = match status {
        401 => true,
        403 => !says_one_of(account, &REFUSED_CONTENT),
        400 => says_one_of(account, &NO_KEY),
        _ => false,
    };
    if is_unauthorized {
        return Failure::Final(LlmError::Unauthorized {
            status,
            body: shown,
            credentials: Credentials::Sent,
            // The client names that of its own API.
            variable: Provider::OpenAi.key_variable(),
        });
    }
    let is_unreadable = matches!(status, 400 | 500)
        && (UNREADABLE_REPLY.contains(&words.code.as_str())
            || says_one_of(account, &UNREADABLE_REPLY));
    match status {
        400 | 500 if is_unreadable => Failure::Retry {
            trouble: Trouble::Reply,
            reason: "status",
            detail: format!("status {status}: {shown}"),
            after,
        },
        // 498: Groq has no capacity left.
        408 | 409 | 424 | 425 | 429 | 498 | 500..=599 => Failure::Retry {
            trouble: match status {
                429 => Trouble::Limited,
                // The proxy stopped waiting for a reply that the server may still be working on and may charge for.
                524 => Trouble::Reply,
                // The server failed while it wrote the reply (TGI, Bedrock).
                424 => Trouble::Reply,
                _ => Trouble::Away,
            },
            reason: "status",
            detail: format!("status {status}: {shown}"),
            after,
        },
        404 => Failure::Final(LlmError::NotFound {
            status,
            body: shown,
        }),
        400 | 422 if words.names_no_model() || says_no_model(said) => {
            Failure::Final(LlmError::NotFound {
                status,
                body: shown,
            })
        }
        _ => Failure::Final(LlmError::Refused {
            status,
            body: shown,
        }),
    }
}

/// The words of an error for people.
fn message(error: &Value) -> Option<&str> {
    error
        .as_str()
        .or_else(|| error["message"].as_str())
        .or_else(|| error["detail"].as_str())
}

fn says_one_of(text: &str, wordings: &[&str]) -> bool {
    let text = text.to_lowercase();
    wordings.iter().any(|known| text.contains(known))
}

/// Also: "The model `x` does not exist", "model 'x' not found".
fn says_no_model(text: &str) -> bool {
    let text = text.to_lowercase();
    let absent = |rest: &str| rest.contains("not found") || rest.contains("does not exist");
    let sentence = text.split_once("model").map(|(_, rest)| rest);
    let near: Option<String> = sentence.map(|rest| rest.chars().take(200).collect());
    NO_MODEL.iter().any(|known| text.contains(known)) || near.is_some_and(|rest| absent(&rest))
}

/// The parts of an error that decide.
#[derive(Debug, Default)]
struct ApiError {
    code: String,
    r#type: String,
    /// The class that LiteLLM's proxy puts before a message: `litellm.RateLimitError`.
    class: String,
    status: Option<u16>,
}

impl ApiError {
    fn read(error: &Value) -> Self {
        let text = |key: &str| error[key].as_str().unwrap_or_default().to_lowercase();
        let number = |value: &Value| match value {
            // A proxy writes the status as a string.
            Value::String(digits) => digits.trim().parse().ok(),
            value => value.as_u64().and_then(|code| u16::try_from(code).ok()),
        };
        let words = message(error).unwrap_or_default();
        let class = words.split_once("litellm.").map_or("", |(_, rest)| rest);
        let end = class.find(|c: char| !c.is_ascii_alphanumeric());
        Self {
            code: text("code"),
            r#type: text("type"),
            class: class[..end.unwrap_or(class.len())].to_lowercase(),
            status: ["code", "status", "status_code"]
                .iter()
                .filter_map(|key| number(&error[*key]))
                .find(|code| (400..600).contains(code)),
        }
    }

    /// Code, type and class together, in lower case.
    fn kind(&self) -> String {
        format!("{} {} {}", self.code, self.r#type, self.class)
    }

    /// The status that the words stand for.
    fn implied_status(&self) -> u16 {
        let kind = self.kind();
        let has = |words: &[&str]| words.iter().any(|word| kind.contains(word));
        if has(&["invalid_api_key", "authentication"]) {
            401
        } else if has(&["billing_error"]) {
            402
        } else if has(&["request_too_large"]) {
            413
        } else if has(&["permission"]) {
            403
        } else if self.is_out_of_quota() || has(&["rate_limit", "ratelimit", "resource_exhausted"])
        {
            429
        } else if has(&["not_found", "notfound"]) {
            404
        } else if has(&[
            "invalid_request",
            "bad_request",
            "badrequest",
            "contextwindow",
        ]) {
            400
        } else {
            500
        }
    }

    fn names_no_model(&self) -> bool {
        says_no_model(&self.code)
    }

    /// OpenAI sends 429 both for "slower" and for "no money left"; only the first passes with time.
    fn is_out_of_quota(&self) -> bool {
        let kind = self.kind();
        NO_CREDIT_KINDS.iter().any(|known| kind.contains(known))
    }
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderValue;
    use serde_json::json;

    use super::*;
    use crate::call_state::RequestCost;

    fn outcome(failure: &Failure) -> &'static str {
        match failure {
            Failure::Retry { .. } => "retry",
            Failure::Final(LlmError::Refused { .. }) => "refused",
            Failure::Final(LlmError::Unauthorized { .. }) => "unauthorized",
            Failure::Final(LlmError::OutOfQuota { .. }) => "no quota",
            Failure::Final(LlmError::ContextTooLong(_)) => "too long",
            Failure::Final(LlmError::NotFound { .. }) => "not found",
            Failure::Final(LlmError::NotAnApi(_)) => "no api",
            Failure::Final(_) => "other",
        }
    }

    #[test]
    fn each_status_has_its_outcome() {
        let redactor = Redactor::default();
        for (status, expected) in [
            (400, "refused"),
            (401, "unauthorized"),
            (402, "no quota"),
            (403, "unauthorized"),
            (404, "not found"),
            (408, "retry"),
            (409, "retry"),
            (413, "too long"),
            (422, "refused"),
            (424, "retry"),
            (429, "retry"),
            (498, "retry"),
            (500, "retry"),
            (503, "retry"),
            (529, "retry"),
        ] {
            let failure = of_status(status, "{}", None, &redactor);
            assert_eq!(outcome(&failure), expected, "{status}");
        }
    }

    #[test]
    fn bodies_decide_where_the_status_does_not() {
        let redactor = Redactor::default();
        for (status, body, expected) in [
            (
                429,
                r#"{"error":{"code":"insufficient_quota"}}"#,
                "no quota",
            ),
            (
                429,
                r#"{"error":{"type":"insufficient_quota","code":null}}"#,
                "no quota",
            ),
            (429, r#"{"error":{"code":"rate_limit_exceeded"}}"#, "retry"),
            (
                429,
                r#"{"error":{"message":"Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 33568.","type":"tokens","code":"rate_limit_exceeded"}}"#,
                "too long",
            ),
            (
                413,
                r#"{"error":{"message":"Request too large for model `m` on tokens per minute (TPM): Limit 8000, Requested 34031","code":"rate_limit_exceeded"}}"#,
                "too long",
            ),
            (
                400,
                r#"{"error":{"code":"context_length_exceeded"}}"#,
                "too long",
            ),
            (
                400,
                r#"{"object":"error","message":"This model's maximum context length is 4096 tokens.","code":400}"#,
                "too long",
            ),
            (
                400,
                r#"{"error":{"code":400,"message":"the request exceeds the available context size","type":"exceed_context_size_error"}}"#,
                "too long",
            ),
            (
                500,
                "the request exceeds the available context size. try increasing it",
                "too long",
            ),
            (
                413,
                "prompt is too long: 210000 tokens > 200000",
                "too long",
            ),
            (
                400,
                r#"{"error":"model does not support tools"}"#,
                "refused",
            ),
            (
                400,
                r#"{"error":{"message":"/chat/completions: Invalid model name passed in model=gpt-9. Call `/v1/models` to view available models for your key.","type":"invalid_request_error","param":"None","code":"400"}}"#,
                "not found",
            ),
            (
                400,
                r#"{"error":{"message":"Model Not Exist"}}"#,
                "not found",
            ),
            (
                400,
                r#"{"error":{"message":"x/y is not a valid model ID","code":400}}"#,
                "not found",
            ),
            (
                400,
                r#"{"message":"The model `x` does not exist.","code":400}"#,
                "not found",
            ),
            (400, r#"{"error":{"code":"model_not_found"}}"#, "not found"),
            (
                400,
                r#"{"error":{"message":"Model not found"}}"#,
                "not found",
            ),
            (405, "<html><head><title>405 Not Allowed</title>", "no api"),
            (
                413,
                "<html><head><title>413 Request Entity Too Large</title>",
                "too long",
            ),
            (502, "<html><head><title>502 Bad Gateway</title>", "retry"),
            (404, "<!DOCTYPE html><title>Not here</title>", "not found"),
        ] {
            let failure = of_status(status, body, None, &redactor);
            assert_eq!(outcome(&failure), expected, "{body}");
        }
    }

    #[test]
    fn an_account_that_is_refused_with_the_status_of_another_failure_is_recognized() {
        let redactor = Redactor::default();
        for (status, body, expected) in [
            (
                400,
                r#"{"error":{"code":"invalid_request_error","message":"Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or purchase credits.","type":"invalid_request_error"}}"#,
                "no quota",
            ),
            (
                400,
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"You have reached your specified API usage limits. You will regain access on 2026-04-01 at 00:00 UTC."}}"#,
                "no quota",
            ),
            (
                400,
                r#"{"error":{"message":"litellm.BadRequestError: OpenAIException - Budget has been exceeded! Current cost: 14.1, Max budget: 10.0","type":null,"param":null,"code":"400"}}"#,
                "no quota",
            ),
            (
                429,
                r#"{"error":{"message":"LiteLLM User: u, exceeded budget for model=m","type":"budget_exceeded","param":null,"code":"429"}}"#,
                "no quota",
            ),
            (
                400,
                r#"{"error":{"message":"ExceededBudget: End User=u over budget. Spend=2, Budget=1","type":"auth_error","code":400}}"#,
                "no quota",
            ),
            (
                429,
                r#"{"error":{"message":"Your account org-1 is suspended due to insufficient balance, please recharge your account","type":"suspended"}}"#,
                "no quota",
            ),
            (
                403,
                r#"{"error":{"message":"Your account is not active","type":"exceeded_current_quota_error"}}"#,
                "no quota",
            ),
            (
                400,
                r#"{"error":{"code":"Arrearage","message":"Access denied, please make sure your account is in good standing."}}"#,
                "no quota",
            ),
            (
                400,
                r#"[{"error":{"code":400,"message":"API key not valid. Please pass a valid API key.","status":"INVALID_ARGUMENT"}}]"#,
                "unauthorized",
            ),
            (
                400,
                r#"{"error":{"code":400,"message":"API key expired. Please renew the API key.","status":"INVALID_ARGUMENT"}}"#,
                "unauthorized",
            ),
            (
                400,
                r#"{"code":"Client specified an invalid argument","error":"Incorrect API key provided: xa***. You can obtain an API key from https://console.x.ai."}"#,
                "unauthorized",
            ),
            (
                400,
                r#"{"error":{"code":400,"message":"Please ensure that the number of function response parts is equal","status":"INVALID_ARGUMENT"}}"#,
                "refused",
            ),
            (
                400,
                r#"{"object":"error","message":"[{'type': 'string_type', 'loc': ('body',), 'msg': 'x', 'input': 'insufficient balance'}]","code":400}"#,
                "refused",
            ),
            (
                400,
                r#"{"object":"error","message":"[{'type': 'string_type', 'loc': ('body',), 'msg': 'x', 'input': 'the maximum context length'}]","code":400}"#,
                "refused",
            ),
            (
                500,
                r#"{"error":{"message":"insufficient balance between the shards"}}"#,
                "retry",
            ),
        ] {
            let failure = of_status(status, body, None, &redactor);
            assert_eq!(outcome(&failure), expected, "{body}");
        }
    }

    #[test]
    fn a_reply_that_the_server_cannot_read_is_asked_for_again_and_counted() {
        let redactor = Redactor::default();
        for (status, body, is_counted) in [
            (
                400,
                r#"{"error":{"message":"Failed to parse tool call arguments as JSON","type":"invalid_request_error","code":"tool_use_failed","failed_generation":"{"}}"#,
                true,
            ),
            (
                400,
                r#"{"error":{"message":"Parsing failed. Please adjust your prompt. See 'failed_generation' for more details.","code":"output_parse_failed"}}"#,
                true,
            ),
            (
                400,
                r#"{"error":{"message":"litellm.BadRequestError: GroqException - {\"error\":{\"code\":\"tool_use_failed\"}}","type":null,"code":"400"}}"#,
                true,
            ),
            (
                500,
                r#"{"error":{"code":500,"message":"The model produced output that does not match the expected peg-native format","type":"server_error"}}"#,
                true,
            ),
            (
                500,
                r#"{"error":{"code":500,"message":"Failed to parse tool call arguments as JSON: [json.exception.parse_error.101] parse error","type":"server_error"}}"#,
                true,
            ),
            (
                500,
                r#"{"error":{"code":500,"message":"out of memory"}}"#,
                false,
            ),
            (
                424,
                r#"{"error":"Request failed during generation: Server error: ","error_type":"generation"}"#,
                true,
            ),
            (498, r#"{"error":{"code":"capacity_exceeded"}}"#, false),
        ] {
            let failure = of_status(status, body, None, &redactor);
            assert_eq!(outcome(&failure), "retry", "{body}");
            assert_eq!(failure.cost() == RequestCost::Reply, is_counted, "{body}");
        }
        // Within a stream, or a 200.
        for event in [
            json!({ "error": { "message": "Failed to call a function.", "type": "invalid_request_error", "code": "tool_use_failed", "status_code": 400 } }),
            json!({ "error": { "message": "unexpected tokens remaining in message header: Some(\"to=functions.x\")", "type": "BadRequestError", "code": 400 } }),
        ] {
            let failure = error_in(&event).map(|error| of_event(&event, error, &redactor));
            let cost = failure.map(|it| it.cost());
            assert_eq!(cost, Some(RequestCost::Reply), "{event}");
        }
    }

    #[test]
    fn refused_content_is_not_a_credentials_error() {
        let redactor = Redactor::default();
        for (body, expected) in [
            (
                r#"{"code":"The caller does not have permission to execute the specified operation","error":"Content violates usage guidelines. Team: t, Model: grok-4, Failed check: SAFETY_CHECK_TYPE_BIO"}"#,
                "refused",
            ),
            (
                r#"{"error":{"code":403,"message":"m requires moderation on OpenAI. Your input was flagged for \"violence\".","metadata":{"reasons":["violence"]}}}"#,
                "refused",
            ),
            (
                r#"{"code":"The caller does not have permission to execute the specified operation","error":"Team t is blocked"}"#,
                "unauthorized",
            ),
        ] {
            let failure = of_status(403, body, None, &redactor);
            assert_eq!(outcome(&failure), expected, "{body}");
        }
    }

    #[test]
    fn a_redirect_shows_where_to_without_its_query() {
        let redactor = Redactor::new([agentmine_runtime::config::Secret::new("secret")]);
        let url: Url = "http://h.example/v1/chat/completions".parse().unwrap();
        for (location, shown) in [
            (
                Some("https://h.example/v1/chat/completions?key=1"),
                "https://h.example/v1/chat/completions",
            ),
            (Some("/login/secret"), "http://h.example/login/***"),
            (
                Some("https://u:p@b.example:8443"),
                "https://b.example:8443/",
            ),
            (Some("mailto:a@b.example"), "another address"),
            (None, "another address"),
        ] {
            let headers = location.map(|to| (LOCATION, HeaderValue::from_static(to)));
            let headers: HeaderMap = headers.into_iter().collect();
            let failure = of_redirect(301, &headers, &url, &redactor);
            let Failure::Final(error @ LlmError::Refused { status: 301, .. }) = &failure else {
                panic!("{failure:?}");
            };
            let text = format!("(301): it redirects to {shown}. hint: correct model.base_url");
            assert!(error.to_string().ends_with(&text), "{error}");
        }
    }

    #[test]
    fn a_status_is_shown_only_if_the_server_sent_it() {
        let redactor = Redactor::default();
        for (value, expected) in [
            (
                json!({ "error": { "message": "weird" } }),
                r#"an error instead of a reply: {"error":{"message":"weird"}}"#,
            ),
            (
                json!({ "error": { "code": 503 } }),
                r#"status 503: {"error":{"code":503}}"#,
            ),
        ] {
            let failure = error_in(&value).map(|error| of_event(&value, error, &redactor));
            let Some(Failure::Retry { detail, .. }) = &failure else {
                panic!("{failure:?}");
            };
            assert_eq!(detail, expected);
        }
    }

    #[test]
    fn an_error_inside_a_200_has_an_outcome() {
        let redactor = Redactor::default();
        for (value, expected) in [
            (
                json!({ "error": { "code": 400, "message": "bad" } }),
                Some("refused"),
            ),
            (
                json!({ "error": { "type": "invalid_request_error" } }),
                Some("refused"),
            ),
            (
                json!({ "error": { "code": "invalid_api_key" } }),
                Some("unauthorized"),
            ),
            (
                json!({ "error": { "type": "insufficient_quota" } }),
                Some("no quota"),
            ),
            (
                json!({ "error": { "code": "context_length_exceeded" } }),
                Some("too long"),
            ),
            (
                json!({ "error": { "code": 502, "message": "upstream" } }),
                Some("retry"),
            ),
            (
                json!({ "error": "llama runner process has terminated" }),
                Some("retry"),
            ),
            (
                json!({ "error": { "message": "litellm.AuthenticationError: no key", "type": "None", "param": "None", "code": "401" } }),
                Some("unauthorized"),
            ),
            (
                json!({ "error": { "message": "bad tool", "type": "None", "code": "400" } }),
                Some("refused"),
            ),
            (
                json!({ "error": { "message": "slow down", "code": "429" } }),
                Some("retry"),
            ),
            (
                json!({ "error": { "message": "litellm.NotFoundError: no", "code": null } }),
                Some("not found"),
            ),
            (
                json!({ "error": { "message": "litellm.ContextWindowExceededError: x", "code": "400" } }),
                Some("too long"),
            ),
            (
                json!({ "error": { "type": "overloaded_error" } }),
                Some("retry"),
            ),
            (
                json!({ "type": "error", "error": { "type": "request_too_large", "message": "too large" } }),
                Some("too long"),
            ),
            (
                json!({ "type": "error", "error": { "type": "billing_error", "message": "pay" } }),
                Some("no quota"),
            ),
            (json!({ "object": "error", "code": 404 }), Some("not found")),
            (json!({ "choices": [], "error": null }), None),
            (json!([1]), None),
        ] {
            let failure = error_in(&value).map(|error| of_event(&value, error, &redactor));
            assert_eq!(failure.as_ref().map(outcome), expected, "{value}");
        }
    }
}

//! What an error of the server means: final, worth another try, wrong credentials, too long.
//!
//! The body of an error is shown, since it alone says what is wrong, but redacted and capped.

use std::time::Duration;

use serde_json::Value;

use super::redact::Redactor;
use super::retry::Failure;
use crate::error::LlmError;

/// How servers say that a conversation does not fit: OpenAI, vLLM, llama.cpp, LM Studio, Groq,
/// gateways to other providers. Compared in lower case.
const TOO_LONG: [&str; 12] = [
    "context_length_exceeded",
    "exceed_context_size",
    "maximum context length",
    "exceeds the available context size",
    "exceeds the context window",
    "exceeds the context length",
    "context length exceeded",
    "context the overflows",
    "greater than the context length",
    "prompt is too long",
    "reduce the length of the messages",
    "exceeds the maximum number of tokens allowed",
];

/// What an error status means.
pub(crate) fn of_status(
    status: u16,
    body: &str,
    after: Option<Duration>,
    redactor: &Redactor,
) -> Failure {
    let parsed = serde_json::from_str(body).unwrap_or(Value::Null);
    let error = ApiError::read(error_in(&parsed).unwrap_or(&parsed));
    classify(status, &error, body, after, redactor)
}

/// What an error inside a 200, or inside a stream, means. `event` is the whole that holds `error`.
pub(crate) fn of_event(event: &Value, error: &Value, redactor: &Redactor) -> Failure {
    let error = ApiError::read(error);
    let status = error.status.unwrap_or(match error.kind() {
        kind if kind.contains("invalid_api_key") || kind.contains("authentication") => 401,
        kind if kind.contains("insufficient_quota") => 429,
        kind if kind.contains("invalid_request") || kind.contains("not_found") => 400,
        _ => 500,
    });
    classify(status, &error, &event.to_string(), None, redactor)
}

/// The error in an object, from the shapes in common use: `{"error": {…}}`, `{"error": "…"}` (Ollama),
/// `{"object": "error", …}` (vLLM).
pub(crate) fn error_in(value: &Value) -> Option<&Value> {
    match value.get("error") {
        Some(error) if !error.is_null() => Some(error),
        _ => (value["object"] == "error").then_some(value),
    }
}

fn classify(
    status: u16,
    error: &ApiError,
    body: &str,
    after: Option<Duration>,
    redactor: &Redactor,
) -> Failure {
    let shown = redactor.redact(body);
    // Old versions of llama.cpp report it with a 500.
    if !matches!(status, 401 | 403 | 429) && (error.is_too_long() || says_too_long(body)) {
        return Failure::Final(LlmError::ContextTooLong(shown));
    }
    match status {
        401 | 403 => Failure::Final(LlmError::Unauthorized {
            status,
            body: shown,
        }),
        429 if error.is_out_of_quota() => Failure::Final(LlmError::Refused {
            status,
            body: shown,
        }),
        408 | 409 | 425 | 429 | 500..=599 => Failure::Retry {
            reason: "status",
            detail: format!("status {status}: {shown}"),
            after,
        },
        300..=399 => Failure::Final(LlmError::Refused {
            status,
            body: format!("it redirects to another address. hint: correct model.base_url. {shown}"),
        }),
        _ => Failure::Final(LlmError::Refused {
            status,
            body: shown,
        }),
    }
}

fn says_too_long(text: &str) -> bool {
    let text = text.to_lowercase();
    TOO_LONG.iter().any(|known| text.contains(known))
}

/// The parts of an error that decide.
#[derive(Debug, Default)]
struct ApiError {
    code: String,
    r#type: String,
    status: Option<u16>,
}

impl ApiError {
    fn read(error: &Value) -> Self {
        let text = |key: &str| error[key].as_str().unwrap_or_default().to_lowercase();
        Self {
            code: text("code"),
            r#type: text("type"),
            status: error["code"]
                .as_u64()
                .and_then(|code| u16::try_from(code).ok())
                .filter(|code| (400..600).contains(code)),
        }
    }

    /// Code and type together, in lower case.
    fn kind(&self) -> String {
        format!("{} {}", self.code, self.r#type)
    }

    fn is_too_long(&self) -> bool {
        self.code == "context_length_exceeded" || self.r#type == "exceed_context_size_error"
    }

    /// OpenAI sends 429 both for "slower" and for "no money left"; only the first passes with time.
    fn is_out_of_quota(&self) -> bool {
        self.kind().contains("insufficient_quota") || self.code == "billing_hard_limit_reached"
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn outcome(failure: &Failure) -> &'static str {
        match failure {
            Failure::Retry { .. } => "retry",
            Failure::Final(LlmError::Refused { .. }) => "refused",
            Failure::Final(LlmError::Unauthorized { .. }) => "unauthorized",
            Failure::Final(LlmError::ContextTooLong(_)) => "too long",
            Failure::Final(_) => "other",
        }
    }

    #[test]
    fn each_status_has_its_outcome() {
        let redactor = Redactor::default();
        for (status, expected) in [
            (301, "refused"),
            (400, "refused"),
            (401, "unauthorized"),
            (402, "refused"),
            (403, "unauthorized"),
            (404, "refused"),
            (408, "retry"),
            (409, "retry"),
            (413, "refused"),
            (422, "refused"),
            (429, "retry"),
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
            (429, r#"{"error":{"code":"insufficient_quota"}}"#, "refused"),
            (
                429,
                r#"{"error":{"type":"insufficient_quota","code":null}}"#,
                "refused",
            ),
            (429, r#"{"error":{"code":"rate_limit_exceeded"}}"#, "retry"),
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
        ] {
            let failure = of_status(status, body, None, &redactor);
            assert_eq!(outcome(&failure), expected, "{body}");
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
                Some("refused"),
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
            (json!({ "object": "error", "code": 404 }), Some("refused")),
            (json!({ "choices": [], "error": null }), None),
            (json!([1]), None),
        ] {
            let failure = error_in(&value).map(|error| of_event(&value, error, &redactor));
            assert_eq!(failure.as_ref().map(outcome), expected, "{value}");
        }
    }
}

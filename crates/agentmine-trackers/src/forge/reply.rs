//! One reply of a forge: its status, its pages, its JSON, its words about a refusal.

use std::fmt;
use std::sync::Arc;

use agentmine_domain::TrackerKind;
use agentmine_runtime::redact::Redactor;
use chrono::{DateTime, TimeDelta, Utc};
use http::{HeaderMap, StatusCode, header};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::TrackerError;

/// Characters of a refusal that are shown.
const SHOWN: usize = 300;
/// Bytes of a refusal that is no JSON that are checked.
const PLAIN: usize = 1200;
/// Items of a list, or fields, of a refusal that are shown.
const ITEMS: usize = 8;

/// GitHub says so of one who creates much within a short time, as of a text that is not valid.
const TOO_SOON: &str = "submitted too quickly";
/// The wait that this asks for. GitHub names no time.
const SOON: TimeDelta = TimeDelta::minutes(5);

/// A reply that is neither a refusal of the credentials, nor a rate limit, nor a failure of the server.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    pub(crate) tracker: TrackerKind,
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Arc<[u8]>,
    /// Of the token, which a server may repeat.
    pub(crate) redactor: Redactor,
}

impl Reply {
    /// The reply of a call that succeeded; `what` names the thing for [`TrackerError::NotFound`].
    pub(crate) fn ok(self, what: &str) -> Result<Self, TrackerError> {
        let tracker = self.tracker;
        match self.status {
            status if status.is_success() => Ok(self),
            StatusCode::NOT_FOUND | StatusCode::GONE => Err(TrackerError::NotFound {
                tracker,
                what: what.to_owned(),
            }),
            status => Err(self.refusal(format!("{what}: {status}"))),
        }
    }

    /// Why the call was refused, in the server's words; `what` goes before them.
    pub(crate) fn refusal(&self, what: impl fmt::Display) -> TrackerError {
        let tracker = self.tracker;
        let said = self.message();
        let detail = format!("{what}: {said}");
        match said.to_lowercase().contains(TOO_SOON) {
            true => TrackerError::Unavailable {
                tracker,
                detail,
                until: Some(Utc::now() + SOON),
            },
            false => TrackerError::refused(tracker, detail),
        }
    }

    /// The body as `T`.
    pub(crate) fn json<T: DeserializeOwned>(&self) -> Result<T, TrackerError> {
        serde_json::from_slice(&self.body).map_err(|error| {
            TrackerError::unavailable(self.tracker, format!("unexpected JSON: {error}"))
        })
    }

    /// The server's time, if it names it.
    pub(crate) fn server_time(&self) -> Option<DateTime<Utc>> {
        let text = self.headers.get(header::DATE)?.to_str().ok()?;
        httpdate::parse_http_date(text).ok().map(DateTime::from)
    }

    /// The server's own words about a refusal, on one line, without the token, and capped.
    pub(crate) fn message(&self) -> String {
        error_text(&self.body, &self.redactor)
    }

    /// The address of a `Link` relation (RFC 8288), as `next` for the next page.
    pub(crate) fn link(&self, relation: &str) -> Option<String> {
        let headers = self.headers.get_all(header::LINK).into_iter();
        headers
            .filter_map(|header| header.to_str().ok())
            .find_map(|header| link(header, relation))
    }
}

fn link(header: &str, relation: &str) -> Option<String> {
    // Addresses may hold commas, so the angle brackets are what parts the links.
    let links = header.split('<').skip(1);
    links
        .filter_map(|link| link.split_once('>'))
        .find(|(_, params)| {
            params
                .split([';', ','])
                .filter_map(|param| param.trim().strip_prefix("rel="))
                .any(|value| value.trim_matches('"') == relation)
        })
        .map(|(address, _)| address.trim().to_owned())
}

/// Redacted before it is cut: a part of the token would not be found.
fn error_text(body: &[u8], redactor: &Redactor) -> String {
    let Ok(value) = serde_json::from_slice::<Value>(body) else {
        let body = redactor.redact_bytes(body);
        return cut(&String::from_utf8_lossy(&body[..body.len().min(PLAIN)]));
    };
    let mut parts = Vec::new();
    // GitHub: `message`, `errors: [{message | code}]`. GitLab: `message` as a text, a list or lists by
    // field, or `error` with `error_description`.
    for key in ["message", "error", "error_description", "errors"] {
        collect(&value[key], &mut parts);
    }
    // GitLab: what an `insufficient_scope` needs.
    if let Some(scope) = value["scope"].as_str() {
        parts.push(format!("needs the scope {scope}"));
    }
    match parts.is_empty() {
        true => "no message".to_owned(),
        false => cut(&redactor.redact(parts.join("; "))),
    }
}

fn collect(value: &Value, parts: &mut Vec<String>) {
    match value {
        Value::String(text) => parts.push(text.clone()),
        Value::Array(items) => items
            .iter()
            .take(ITEMS)
            .for_each(|item| collect(item, parts)),
        Value::Object(fields) => match fields.get("message").or_else(|| fields.get("code")) {
            Some(said) => collect(said, parts),
            None => {
                for (field, value) in fields.iter().take(ITEMS) {
                    let mut said = Vec::new();
                    collect(value, &mut said);
                    parts.push(format!("{field}: {}", said.join(", ")));
                }
            }
        },
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn cut(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(SHOWN)
        .collect()
}

#[cfg(test)]
mod tests {
    use agentmine_runtime::config::Secret;

    use super::*;

    #[test]
    fn links_are_found_by_relation_whatever_their_address_holds() {
        let header =
            "<https://f.test/issues?labels=a,b&page=2>; rel=\"next\", <https://f.test/x>; rel=last";
        let next = "https://f.test/issues?labels=a,b&page=2";
        assert_eq!(link(header, "next").as_deref(), Some(next));
        assert_eq!(link(header, "last").as_deref(), Some("https://f.test/x"));
        assert_eq!(link(header, "prev"), None);
        assert_eq!(link("rel=\"next\"", "next"), None);
    }

    #[test]
    fn refusals_of_each_shape_are_put_into_words() {
        for (body, expected) in [
            (
                r#"{"message":"Validation Failed","errors":[{"code":"custom","message":"No commits"},{"code":"invalid"}]}"#,
                "Validation Failed; No commits; invalid",
            ),
            (
                r#"{"message":["Another open merge request already exists"]}"#,
                "Another open merge request already exists",
            ),
            (
                r#"{"message":{"title":["can't be blank","is too long"]}}"#,
                "title: can't be blank, is too long",
            ),
            (
                r#"{"error":"invalid_token","error_description":"Token was revoked."}"#,
                "invalid_token; Token was revoked.",
            ),
            (
                r#"{"error":"insufficient_scope","error_description":"The request requires higher privileges.","scope":"api read_api"}"#,
                "insufficient_scope; The request requires higher privileges.; needs the scope api read_api",
            ),
            ("Retry later\n", "Retry later "),
            ("{}", "no message"),
        ] {
            let text = error_text(body.as_bytes(), &Redactor::default());
            assert_eq!(text, expected, "{body}");
        }
    }

    #[test]
    fn a_refusal_that_repeats_the_token_is_redacted_before_it_is_cut() {
        let redactor = Redactor::new([Secret::new("ghp_0123456789abcdef")]);
        let filler = "x".repeat(SHOWN - 10);
        for body in [
            format!("{filler} ghp_0123456789abcdef"),
            format!("{}ghp_0123456789abcdef", "\n".repeat(PLAIN - 5)),
            format!("{{\"message\":\"{filler} ghp_0123456789abcdef\"}}"),
            "{\"message\":\"\\u0067hp_0123456789abcdef\"}".to_owned(),
        ] {
            let text = error_text(body.as_bytes(), &redactor);
            assert!(!text.contains("hp_"), "{text}");
        }
    }
}

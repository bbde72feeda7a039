//! A reply, and the errors that a reply or its absence comes to.

use agentmine_domain::TrackerKind;
use chrono::{DateTime, Utc};
use http::{HeaderMap, StatusCode, header};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::TrackerError;

const HINT: &str = "set GITHUB_PERSONAL_ACCESS_TOKEN to a token that may read and write the \
    repository: scope `repo` (classic), or read and write on Contents, Issues and Pull requests \
    (fine-grained)";

/// A reply that is neither a refusal of the credentials, nor a limit, nor a fault of the server.
#[derive(Debug, Clone)]
pub(super) struct Reply {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
}

impl Reply {
    /// The reply of a call that succeeded; `what` names the thing for [`TrackerError::NotFound`].
    pub(super) fn ok(self, what: &str) -> Result<Self, TrackerError> {
        if self.status.is_success() {
            return Ok(self);
        }
        match self.status {
            StatusCode::NOT_FOUND | StatusCode::GONE => Err(TrackerError::NotFound {
                tracker: TrackerKind::GitHub,
                what: what.to_owned(),
            }),
            status => Err(refused(format!("{what}: {status}: {}", self.message()))),
        }
    }

    /// The body as `T`.
    pub(super) fn json<T: DeserializeOwned>(&self) -> Result<T, TrackerError> {
        serde_json::from_slice(&self.body)
            .map_err(|error| unavailable(format!("it answered with unexpected JSON: {error}")))
    }

    /// GitHub's own words about a refusal, cut.
    pub(super) fn message(&self) -> String {
        error_text(&self.body)
    }

    /// The address of a `Link` relation.
    pub(super) fn link(&self, relation: &str) -> Option<String> {
        let header = self.headers.get(header::LINK)?.to_str().ok()?;
        header.split(',').find_map(|part| {
            let (address, params) = part.split_once(';')?;
            let named = params.split(';').any(|param| {
                param
                    .trim()
                    .strip_prefix("rel=")
                    .is_some_and(|value| value.trim_matches('"') == relation)
            });
            let address = address.trim().strip_prefix('<')?.strip_suffix('>')?;
            named.then(|| address.to_owned())
        })
    }
}

fn error_text(body: &[u8]) -> String {
    let Ok(value) = serde_json::from_slice::<Value>(body) else {
        return cut(&String::from_utf8_lossy(&body[..body.len().min(1200)]));
    };
    let mut text = value["message"].as_str().unwrap_or("no message").to_owned();
    for error in value["errors"].as_array().into_iter().flatten().take(8) {
        let said = error["message"]
            .as_str()
            .or(error["code"].as_str())
            .or(error.as_str());
        if let Some(said) = said {
            text.push_str("; ");
            text.push_str(said);
        }
    }
    cut(&text)
}

fn cut(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(300)
        .collect()
}

pub(super) fn unavailable(detail: String) -> TrackerError {
    TrackerError::Unavailable {
        tracker: TrackerKind::GitHub,
        detail,
    }
}

pub(super) fn refused(detail: String) -> TrackerError {
    TrackerError::Refused {
        tracker: TrackerKind::GitHub,
        detail,
    }
}

pub(super) fn unauthorized(detail: String) -> TrackerError {
    TrackerError::Unauthorized {
        tracker: TrackerKind::GitHub,
        detail,
        hint: HINT.to_owned(),
    }
}

pub(super) fn rate_limited(until: DateTime<Utc>) -> TrackerError {
    TrackerError::RateLimited {
        tracker: TrackerKind::GitHub,
        until,
    }
}

//! Why there is no reply, and whose fault that is.

use agentmine_domain::Blame;
use chrono::{DateTime, Utc};
use url::Position::{AfterPort, BeforeHost};
use url::Url;

use crate::api::Overflow;

/// Why there is no reply. Retries are over when a caller sees it.
#[derive(Debug, thiserror::Error)]
pub enum LlmError {
    /// The API refuses the request itself (400, 422), or what it is about (403): another try is of no use.
    #[error("the model API refused the request ({status}): {body}")]
    Refused {
        /// HTTP status.
        status: u16,
        /// The error body, capped and redacted.
        body: String,
    },
    /// The API refuses the credentials (401, 403, or 400 with such words).
    #[error("the model API {} ({status}): {body}. hint: {} {variable} or model.api_key", .credentials.refused(), .credentials.verb())]
    Unauthorized {
        /// HTTP status.
        status: u16,
        /// The error body, capped and redacted.
        body: String,
        /// What it was sent.
        credentials: Credentials,
        /// The environment variable that the key usually comes from.
        variable: &'static str,
    },
    /// The account has no money or no quota left (402, or 400, 403 or 429 with such words).
    #[error(
        "the model API says that the account has no credit or quota left ({status}): {body}. hint: add credit at the provider, or set another key"
    )]
    OutOfQuota {
        /// HTTP status.
        status: u16,
        /// The error body, capped and redacted.
        body: String,
    },
    /// The API does not know the model, or there is no API at this address (404, or another status with
    /// such words).
    #[error(
        "the model API has no such model or address ({status}): {body}. hint: check that model.base_url ends in /v1 and that the API has a model of this name"
    )]
    NotFound {
        /// HTTP status.
        status: u16,
        /// The error body, capped and redacted.
        body: String,
    },
    /// Something else than a model API is at this address: the description of what it sent.
    #[error(
        "the server at model.base_url sent {0} instead of a reply. hint: check model.base_url, which usually ends in /v1"
    )]
    NotAnApi(String),
    /// No TLS connection can be made to this address, however often it is tried.
    #[error("no TLS connection to the server at model.base_url can be made: {why}. hint: {hint}")]
    NoTls {
        /// What TLS failed on, redacted.
        why: String,
        /// What to do about it.
        hint: &'static str,
    },
    /// The conversation no longer fits the model, or is larger than the server accepts (413).
    #[error(
        "the conversation is too long for the model: {0}. hint: use a model with a larger window, or request less at once"
    )]
    ContextTooLong(Overflow),
    /// Not reached, overloaded, loading or limiting the rate, after all tries.
    #[error("the model API is unavailable after {tries} tries: {detail}")]
    Unavailable {
        /// How often it was tried.
        tries: u32,
        /// The last failure.
        detail: String,
        /// When it asked to be tried again (`Retry-After`).
        until: Option<DateTime<Utc>>,
    },
    /// The response is not what the protocol says.
    #[error("the response of the model API cannot be read: {0}")]
    Protocol(String),
    /// The recording has no more replies, or was made for another conversation.
    #[error("the recording does not fit: {0}")]
    Replay(String),
}

/// What a request was sent with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Credentials {
    /// A key, or headers of the configuration.
    Sent,
    /// Nothing.
    Missing,
}

impl Credentials {
    fn refused(self) -> &'static str {
        match self {
            Self::Sent => "refused the credentials",
            Self::Missing => "wants credentials, and no key is set",
        }
    }

    fn verb(self) -> &'static str {
        match self {
            Self::Sent => "check",
            Self::Missing => "set",
        }
    }
}

impl LlmError {
    /// The same error; where the API wants credentials, it names the variable of the key, and with 401 whether they were sent.
    /// With another status, that of a blocked region say, a key may not be what is missing.
    pub(crate) fn with(self, sent: Credentials, variable: &'static str) -> Self {
        match self {
            Self::Unauthorized {
                status,
                body,
                credentials,
                variable: _,
            } => Self::Unauthorized {
                status,
                body,
                credentials: match status {
                    401 => sent,
                    _ => credentials,
                },
                variable,
            },
            other => other,
        }
    }

    /// The same error; an outage names the host of `url`.
    pub(crate) fn at(self, url: &Url) -> Self {
        match self {
            Self::Unavailable {
                tries,
                detail,
                until,
            } => Self::Unavailable {
                tries,
                detail: format!("{}: {detail}", &url[BeforeHost..AfterPort]),
                until,
            },
            other => other,
        }
    }

    /// Whose fault this is, and until when.
    #[must_use]
    pub fn blame(&self) -> Blame {
        match self {
            Self::Refused { status, .. } => match status {
                // The conversation, as the task and the model wrote it.
                400 | 403 | 422 => Blame::Task,
                _ => Blame::Ours,
            },
            Self::ContextTooLong(_) => Blame::Task,
            Self::Unauthorized { .. }
            | Self::OutOfQuota { .. }
            | Self::NotFound { .. }
            | Self::NotAnApi(_)
            | Self::NoTls { .. }
            | Self::Replay(_) => Blame::Ours,
            Self::Unavailable { until, .. } => Blame::World { until: *until },
            Self::Protocol(_) => Blame::OUTAGE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_says_whose_fault_it_is() {
        let refused = |status| LlmError::Refused {
            status,
            body: "no".into(),
        };
        let unavailable = |until| LlmError::Unavailable {
            tries: 5,
            detail: "503".into(),
            until,
        };
        let until = Some(DateTime::UNIX_EPOCH);
        let not_found = LlmError::NotFound {
            status: 404,
            body: "no".into(),
        };
        let unauthorized = LlmError::Unauthorized {
            status: 401,
            body: "no".into(),
            credentials: Credentials::Sent,
            variable: "OPENAI_API_KEY",
        };
        let no_credit = LlmError::OutOfQuota {
            status: 402,
            body: "no".into(),
        };
        for (error, blame) in [
            (refused(400), Blame::Task),
            (refused(403), Blame::Task),
            (refused(422), Blame::Task),
            (not_found, Blame::Ours),
            (LlmError::NotAnApi("a web page".into()), Blame::Ours),
            (
                LlmError::NoTls {
                    why: "no".into(),
                    hint: "check it",
                },
                Blame::Ours,
            ),
            (refused(301), Blame::Ours),
            (no_credit, Blame::Ours),
            (unauthorized, Blame::Ours),
            (LlmError::ContextTooLong(Overflow::default()), Blame::Task),
            (unavailable(None), Blame::OUTAGE),
            (unavailable(until), Blame::World { until }),
            (LlmError::Protocol("odd".into()), Blame::OUTAGE),
            (LlmError::Replay("ended".into()), Blame::Ours),
        ] {
            assert_eq!(error.blame(), blame, "{error}");
        }
    }
}

//! Why there is no reply, and whose fault that is.

use agentmine_domain::Blame;
use chrono::{DateTime, Utc};
use url::Position::{AfterPort, BeforeHost};
use url::Url;

/// Why there is no reply. Retries are over when a caller sees it.
#[derive(Debug, thiserror::Error)]
pub enum LlmError {
    /// The API refuses the request itself (400, 404, 413, 422, no money left): another try is of no
    /// use.
    #[error("the model API refused the request ({status}): {body}")]
    Refused {
        /// HTTP status.
        status: u16,
        /// The error body, capped and redacted.
        body: String,
    },
    /// The API refuses the credentials (401, 403).
    #[error(
        "the model API refused the credentials ({status}): {body}. hint: check model.api_key or OPENAI_API_KEY"
    )]
    Unauthorized {
        /// HTTP status.
        status: u16,
        /// The error body, capped and redacted.
        body: String,
    },
    /// The conversation no longer fits the model.
    #[error("the conversation is too long for the model: {0}")]
    ContextTooLong(String),
    /// Not reached, overloaded or limiting the rate, after all tries.
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

impl LlmError {
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
                400 | 413 | 422 => Blame::Task,
                // The address, the model's name, or an account without money.
                _ => Blame::Ours,
            },
            Self::ContextTooLong(_) => Blame::Task,
            Self::Unauthorized { .. } | Self::Replay(_) => Blame::Ours,
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
        let unauthorized = LlmError::Unauthorized {
            status: 401,
            body: "no".into(),
        };
        for (error, blame) in [
            (refused(400), Blame::Task),
            (refused(413), Blame::Task),
            (refused(422), Blame::Task),
            (refused(404), Blame::Ours),
            (refused(402), Blame::Ours),
            (refused(429), Blame::Ours),
            (unauthorized, Blame::Ours),
            (LlmError::ContextTooLong("128k".into()), Blame::Task),
            (unavailable(None), Blame::OUTAGE),
            (unavailable(until), Blame::World { until }),
            (LlmError::Protocol("odd".into()), Blame::OUTAGE),
            (LlmError::Replay("ended".into()), Blame::Ours),
        ] {
            assert_eq!(error.blame(), blame, "{error}");
        }
    }
}

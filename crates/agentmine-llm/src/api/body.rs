//! The body of a response, read under limits of time and size.

use std::time::Duration;

use bytes::Bytes;
use reqwest::Response;
use tokio::time::{Instant, timeout_at};

use super::retry::{Failure, NO_FIRST_BYTE, Trouble};
use crate::error::LlmError;

/// Bytes of one response at most. A reply of 200 000 tokens, each in its own event, fits.
const MAX_BODY: usize = 64 << 20;
/// Bytes read of the body of an error.
const MAX_ERROR_BODY: usize = 64 << 10;
/// How long to wait for the end of a body whose content is complete.
const REST: Duration = Duration::from_millis(50);

/// Reads a response piece by piece.
#[derive(Debug)]
pub(crate) struct Body {
    response: Response,
    /// Until when the next piece must be there.
    deadline: Instant,
    idle: Duration,
    seen: usize,
}

impl Body {
    /// The first piece is due at `first_byte`, each other one `idle` after the one before.
    pub(crate) fn new(response: Response, first_byte: Instant, idle: Duration) -> Self {
        Self {
            response,
            deadline: first_byte,
            idle,
            seen: 0,
        }
    }

    /// From now on, each piece is due so long after the one before.
    pub(crate) fn set_idle(&mut self, idle: Duration) {
        if self.idle != idle {
            self.idle = idle;
            self.deadline = Instant::now() + idle;
        }
    }

    /// The next piece; `None` at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        let piece = match timeout_at(self.deadline, self.response.chunk()).await {
            Ok(Ok(piece)) => piece,
            Ok(Err(error)) => {
                return Err(Failure::retry(
                    "broken",
                    format!("the reply broke off: {}", chain(&error.without_url())),
                ));
            }
            Err(_) if self.seen == 0 => return Err(no_first_byte(Trouble::Reply)),
            Err(_) => {
                return Err(Failure::retry(
                    "idle_timeout",
                    format!("the reply stopped for {} s", self.idle.as_secs()),
                ));
            }
        };
        self.deadline = Instant::now() + self.idle;
        self.seen = self
            .seen
            .saturating_add(piece.as_ref().map_or(0, Bytes::len));
        if self.seen > MAX_BODY {
            return Err(Failure::Final(LlmError::Protocol(format!(
                "the response is larger than {MAX_BODY} bytes"
            ))));
        }
        Ok(piece)
    }

    /// All that is left.
    pub(crate) async fn all(mut self) -> Result<Vec<u8>, Failure> {
        let mut all = Vec::new();
        while let Some(piece) = self.next().await? {
            all.extend_from_slice(&piece);
        }
        Ok(all)
    }

    /// The body of an error, as much of it as arrives.
    pub(crate) async fn of_error(mut self) -> String {
        let mut all = Vec::new();
        while all.len() < MAX_ERROR_BODY
            && let Ok(Some(piece)) = self.next().await
        {
            all.extend_from_slice(&piece);
        }
        all.truncate(MAX_ERROR_BODY);
        String::from_utf8_lossy(&all).into_owned()
    }

    /// Reads to the end if it is near: the connection can then be used again.
    pub(crate) async fn drain(mut self) {
        self.deadline = Instant::now() + REST;
        while let Ok(Some(_)) = self.next().await {
            self.deadline = self.deadline.min(Instant::now() + REST);
        }
    }
}

/// The response did not begin in time.
pub(crate) fn no_first_byte(trouble: Trouble) -> Failure {
    Failure::Retry {
        trouble,
        reason: NO_FIRST_BYTE,
        detail: "no part of a reply within model.first_byte_timeout_seconds".into(),
        after: None,
    }
}

/// An error with its causes, which reqwest omits from its own text.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

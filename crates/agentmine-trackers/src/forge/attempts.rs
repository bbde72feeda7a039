//! The one layer of retries around a tracker.
//!
//! An operation has one budget of tries and of waiting time, shared by all its requests: a write that
//! may have happened, and the look whether it did, do not each retry on their own. Waits between tries
//! double, with jitter, and are at least as long as the server asked for (`Retry-After`).

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use agentmine_domain::TrackerKind;
use chrono::{DateTime, Utc};
use rand::Rng;
use tokio::time::Instant;

use crate::error::TrackerError;

/// What an operation may cost in time and bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestLimits {
    /// Tries in all, the first included.
    pub(crate) tries: u32,
    /// The first wait between two tries; doubled each time, with jitter.
    pub(crate) pause: Duration,
    /// How long one operation may wait because the server asked for it.
    pub(crate) max_wait: Duration,
    /// One request and its reply.
    pub(crate) timeout: Duration,
    /// How long a request without a reply keeps another one waiting.
    pub(crate) turn: Duration,
    /// Bytes of one reply.
    pub(crate) max_body: usize,
}

impl Default for RequestLimits {
    fn default() -> Self {
        Self {
            tries: 4,
            pause: Duration::from_millis(500),
            max_wait: Duration::from_secs(75),
            timeout: Duration::from_secs(30),
            turn: Duration::from_secs(3),
            max_body: 16 << 20,
        }
    }
}

/// A failure that may pass.
#[derive(Debug)]
pub(crate) struct Fault {
    /// What happened.
    pub(crate) detail: String,
    /// When the server asked to be tried again.
    pub(crate) until: Option<DateTime<Utc>>,
}

impl Fault {
    /// A fault of which the server said nothing.
    pub(crate) fn new(detail: impl Into<String>) -> Self {
        Self {
            detail: detail.into(),
            until: None,
        }
    }
}

/// What one operation has left.
#[derive(Debug)]
pub(crate) struct Attempts {
    tracker: TrackerKind,
    limits: RequestLimits,
    failed: AtomicU32,
    deadline: Instant,
}

impl Attempts {
    pub(crate) fn new(tracker: TrackerKind, limits: RequestLimits) -> Self {
        Self {
            tracker,
            limits,
            failed: AtomicU32::new(0),
            deadline: Instant::now() + limits.max_wait,
        }
    }

    /// Counts a failure and waits for the next try.
    ///
    /// # Errors
    /// [`TrackerError::Unavailable`] after the last try, or if the server asks for more time than the
    /// operation has.
    pub(crate) async fn again(&self, fault: Fault) -> Result<(), TrackerError> {
        let failed = self.failed.fetch_add(1, Ordering::Relaxed) + 1;
        let asked = fault.until.map(|until| until - Utc::now());
        let asked = asked.and_then(|wait| wait.to_std().ok());
        let wait = self.pause(failed).max(asked.unwrap_or_default());
        if failed >= self.limits.tries || (asked.is_some() && self.is_too_long(wait)) {
            let Fault { detail, until } = fault;
            return Err(TrackerError::Unavailable {
                tracker: self.tracker,
                detail,
                until,
            });
        }
        tracing::debug!(tracker = %self.tracker, failed, detail = fault.detail, "trying again");
        tokio::time::sleep(wait).await;
        Ok(())
    }

    /// Waits until a rate limit ends.
    ///
    /// # Errors
    /// [`TrackerError::RateLimited`] if the operation has not that much time.
    pub(crate) async fn wait_until(&self, until: DateTime<Utc>) -> Result<(), TrackerError> {
        let wait = (until - Utc::now()).to_std().unwrap_or_default();
        if self.is_too_long(wait) {
            return Err(TrackerError::RateLimited {
                tracker: self.tracker,
                until,
            });
        }
        tokio::time::sleep(wait).await;
        Ok(())
    }

    fn is_too_long(&self, wait: Duration) -> bool {
        Instant::now() + wait > self.deadline
    }

    fn pause(&self, failed: u32) -> Duration {
        let full = self.limits.pause * 2_u32.saturating_pow(failed.saturating_sub(1)).min(64);
        full.mul_f64(rand::rng().random_range(0.5..=1.0))
    }
}

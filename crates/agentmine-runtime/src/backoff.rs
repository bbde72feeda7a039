//! Exponential backoff with full jitter.
//!
//! The nth wait is drawn uniformly from zero to `min(cap, base * 2^n)`. This spreads clients that failed
//! at the same instant better than a random part added to a fixed wait:
//! <https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/>.

use std::time::Duration;

/// The waits after consecutive failures.
///
/// ```
/// use std::time::Duration;
/// use agentmine_runtime::backoff::Backoff;
///
/// let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(10));
/// assert!(backoff.delay() <= Duration::from_millis(100));
/// assert!(backoff.delay() <= Duration::from_millis(200));
/// backoff.reset();
/// assert!(backoff.delay() <= Duration::from_millis(100));
/// ```
#[derive(Debug, Clone)]
pub struct Backoff {
    base: Duration,
    cap: Duration,
    failures: u32,
}

impl Backoff {
    /// The first wait is at most `base`, and none is longer than `cap`.
    #[must_use]
    pub fn new(base: Duration, cap: Duration) -> Self {
        Self {
            base,
            cap,
            failures: 0,
        }
    }

    /// Starts again at `base`; to be called after a success.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    /// Failures since the last success.
    #[must_use]
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// The next wait.
    pub fn delay(&mut self) -> Duration {
        let ceiling = self.ceiling();
        self.failures = self.failures.saturating_add(1);
        ceiling.mul_f64(rand::random::<f64>())
    }

    /// Sleeps for the next wait.
    pub async fn wait(&mut self) {
        tokio::time::sleep(self.delay()).await;
    }

    fn ceiling(&self) -> Duration {
        let factor = 2_u32.checked_pow(self.failures).unwrap_or(u32::MAX);
        self.base.saturating_mul(factor).min(self.cap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_cap_and_begin_again_after_a_reset() {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(5));
        let ceilings: Vec<u64> = (0..5)
            .map(|_| {
                let ceiling = backoff.ceiling();
                assert!(backoff.delay() <= ceiling);
                ceiling.as_secs()
            })
            .collect();
        assert_eq!(ceilings, [1, 2, 4, 5, 5]);
        backoff.reset();
        assert_eq!(backoff.ceiling(), Duration::from_secs(1));
    }

    #[test]
    fn waits_stay_under_the_cap_after_very_many_failures() {
        let cap = Duration::from_secs(60);
        let mut backoff = Backoff::new(Duration::from_millis(250), cap);
        assert!((0..1000).all(|_| backoff.delay() <= cap));
    }

    #[test]
    fn waits_are_spread_over_the_whole_range() {
        let delays: Vec<f64> = (0..200)
            .map(|_| Backoff::new(Duration::from_secs(1), Duration::from_secs(1)).delay())
            .map(|delay| delay.as_secs_f64())
            .collect();
        assert!(delays.iter().any(|delay| *delay < 0.2));
        assert!(delays.iter().any(|delay| *delay > 0.8));
    }
}

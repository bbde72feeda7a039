//! Until when a process may write to the outside world.
//!
//! A tracker or a git host knows nothing of leases, so nothing there refuses a write that comes too late. The
//! writer therefore has to know by itself, right before each request, that its lease still holds: it counts from
//! the moment at which it sent the last request that extended the lease. The clock also counts while the
//! machine is suspended.
//!
//! Accepted: a request that is under way when the permit lapses may still be applied.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::failpoint::Guard;

/// The longest sleep of a wait for the end of a permit: a timer does not run while the machine is suspended.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// A moment by the machine's own clock since its start, which also counts while the machine is suspended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct BootInstant(Duration);

impl BootInstant {
    /// This moment.
    #[must_use]
    pub fn now() -> Self {
        let time = clock_gettime(ClockId::Boottime);
        let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
        let nanos = u32::try_from(time.tv_nsec).unwrap_or_default();
        Self(Duration::new(seconds, nanos))
    }

    /// The time since then.
    #[must_use]
    pub fn elapsed(self) -> Duration {
        Self::now().0.saturating_sub(self.0)
    }
}

impl std::ops::Add<Duration> for BootInstant {
    type Output = Self;

    fn add(self, time: Duration) -> Self {
        Self(self.0.saturating_add(time))
    }
}

/// Proof that its holder may write to the outside world, as long as [`Permit::check`] says so. A copy lapses with
/// the original.
#[derive(Debug, Clone)]
pub struct Permit(Arc<AtomicU64>);

/// The permit has lapsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the permit to write lapsed {}.{:03} s ago", .0.as_secs(), .0.subsec_millis())]
pub struct Lapsed(Duration);

impl Permit {
    /// For `time` after `since`. Nobody can extend it.
    #[must_use]
    pub fn of(since: BootInstant, time: Duration) -> Self {
        Self(Arc::new(AtomicU64::new(millis(since + time))))
    }

    /// To be called right before each request that changes something outside.
    ///
    /// # Errors
    /// [`Lapsed`] if the lease may have ended.
    pub fn check(&self) -> Result<(), Lapsed> {
        match self.left() {
            Some(_) => Ok(()),
            None if Guard::Fence.is_off() => Ok(()),
            None => Err(Lapsed(BootInstant::now().0.saturating_sub(self.end()))),
        }
    }

    /// Resolves when it has lapsed.
    pub async fn lapsed(&self) {
        if Guard::Fence.is_off() {
            return std::future::pending().await;
        }
        while let Some(left) = self.left() {
            tokio::time::sleep(left.min(LOOK_AGAIN)).await;
        }
    }

    fn end(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::SeqCst))
    }

    fn left(&self) -> Option<Duration> {
        let left = self.end().checked_sub(BootInstant::now().0)?;
        (!left.is_zero()).then_some(left)
    }
}

/// The right to extend a permit: it belongs to the code that extends the lease.
#[derive(Debug)]
pub struct PermitGrant(Permit);

impl PermitGrant {
    /// A permit for `time` after `since`.
    #[must_use]
    pub fn new(since: BootInstant, time: Duration) -> Self {
        Self(Permit::of(since, time))
    }

    /// A copy of the permit.
    #[must_use]
    pub fn permit(&self) -> Permit {
        self.0.clone()
    }

    /// Extends it to `time` after `since`: the moment before the request was sent that extended the lease.
    pub fn extend(&self, since: BootInstant, time: Duration) {
        self.0.0.fetch_max(millis(since + time), Ordering::SeqCst);
    }
}

fn millis(at: BootInstant) -> u64 {
    u64::try_from(at.0.as_millis()).unwrap_or(u64::MAX)
}

/// The permit lapses with its grant.
impl Drop for PermitGrant {
    fn drop(&mut self) {
        self.0.0.store(0, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn a_permit_counts_from_the_request_that_extended_the_lease() {
        let now = BootInstant::now();
        let grant = PermitGrant::new(now, MINUTE);
        let permit = grant.permit();
        assert_eq!(permit.check(), Ok(()));
        let long_ago = BootInstant(now.0.saturating_sub(2 * MINUTE));
        assert!(Permit::of(long_ago, MINUTE).check().is_err());
    }

    #[test]
    fn a_late_answer_does_not_shorten_a_permit() {
        let now = BootInstant::now();
        let grant = PermitGrant::new(now, MINUTE);
        grant.extend(now, Duration::ZERO);
        assert_eq!(grant.permit().check(), Ok(()));
    }

    #[test]
    fn a_permit_lapses_with_its_grant() {
        let grant = PermitGrant::new(BootInstant::now(), MINUTE);
        let permit = grant.permit();
        drop(grant);
        assert!(permit.check().is_err());
    }

    #[tokio::test]
    async fn the_end_of_a_permit_can_be_awaited() {
        let permit = Permit::of(BootInstant::now(), Duration::from_millis(20));
        permit.lapsed().await;
        assert!(permit.check().is_err());
    }
}

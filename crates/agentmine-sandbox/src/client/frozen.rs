//! How long a sandbox was frozen, which counts towards no time limit: nothing runs in it meanwhile.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, timeout};

/// How often the end of a freeze is looked for.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The time in which a sandbox was frozen.
#[derive(Debug, Default)]
pub(crate) struct Frozen(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    since: Option<Instant>,
    before: Duration,
}

impl Frozen {
    pub(super) fn begins(&self) {
        self.state().since.get_or_insert_with(Instant::now);
    }

    pub(super) fn ends(&self) {
        let mut state = self.state();
        if let Some(since) = state.since.take() {
            state.before += since.elapsed();
        }
    }

    /// What comes of `work`, which may take `limit` and the time in which the sandbox is frozen. `None` if it takes longer.
    pub(super) async fn within<T>(
        &self,
        limit: Duration,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        let (begun, (_, before)) = (Instant::now(), self.so_far());
        tokio::pin!(work);
        loop {
            let (is_frozen, so_far) = self.so_far();
            let limit = limit.saturating_add(so_far.saturating_sub(before));
            let left = match is_frozen {
                true => LOOK_EVERY,
                false => limit.saturating_sub(begun.elapsed()),
            };
            if left.is_zero() {
                return None;
            }
            if let Ok(done) = timeout(left, &mut work).await {
                return Some(done);
            }
        }
    }

    /// Whether it is frozen, and for how long it was.
    fn so_far(&self) -> (bool, Duration) {
        let state = self.state();
        let now = state.since.map_or(Duration::ZERO, |since| since.elapsed());
        (state.since.is_some(), state.before + now)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_frozen_sandbox_uses_no_time() {
        let frozen = Frozen::default();
        let seconds = Duration::from_secs;
        let freeze = async {
            sleep(seconds(5)).await;
            frozen.begins();
            sleep(seconds(300)).await;
            frozen.ends();
            std::future::pending::<()>().await;
        };
        let begun = Instant::now();
        let work = async {
            tokio::join!(
                frozen.within(seconds(20), sleep(seconds(310))),
                frozen.within(seconds(20), sleep(seconds(330)))
            )
        };
        let done = tokio::select! {
            done = work => done,
            () = freeze => unreachable!(),
        };
        assert_eq!(done, (Some(()), None));
        let took = begun.elapsed();
        assert!(took >= seconds(320) && took < seconds(322), "{took:?}");
    }
}

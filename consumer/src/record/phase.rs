//! How long the phases of sessions take, for metrics.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use agentmine_domain::Phase;

/// The phase that a session is in. What was begun is recorded when the next one begins, and at the end.
#[derive(Debug, Default)]
pub(crate) struct PhaseClock(Mutex<Option<(Phase, Instant)>>);

impl PhaseClock {
    /// Another phase begins.
    pub(crate) fn begin(&self, phase: Phase) {
        self.replace(Some((phase, Instant::now())));
    }

    fn replace(&self, next: Option<(Phase, Instant)>) {
        let mut current = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((phase, since)) = std::mem::replace(&mut *current, next) {
            histogram(phase).record(since.elapsed().as_secs_f64());
        }
    }
}

impl Drop for PhaseClock {
    fn drop(&mut self) {
        self.replace(None);
    }
}

/// Makes the series exist.
pub(crate) fn register(phase: Phase) {
    let _ = histogram(phase);
}

fn histogram(phase: Phase) -> metrics::Histogram {
    metrics::histogram!("agentmine_phase_duration_seconds", "phase" => phase.as_str())
}

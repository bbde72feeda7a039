//! How long the phases of sessions take, for metrics and traces.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use agentmine_domain::{Lease, Phase};
use agentmine_runtime::trace::{Span, SpanContext};

use super::trace;

/// The phase that a session is in. What was begun is recorded when the next one begins, and at the end.
#[derive(Debug)]
pub(crate) struct PhaseClock {
    session: SpanContext,
    current: Mutex<Option<Begun>>,
}

#[derive(Debug)]
struct Begun {
    phase: Phase,
    since: Instant,
    /// Ends with the phase.
    _span: Span,
}

impl PhaseClock {
    pub(crate) fn of(lease: &Lease) -> Self {
        Self {
            session: trace::of_session(lease),
            current: Mutex::new(None),
        }
    }

    /// Another phase begins.
    pub(crate) fn begin(&self, phase: Phase) {
        self.replace(Some(Begun {
            phase,
            since: Instant::now(),
            _span: trace::phase(self.session, phase),
        }));
    }

    fn replace(&self, next: Option<Begun>) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(begun) = std::mem::replace(&mut *current, next) {
            histogram(begun.phase).record(begun.since.elapsed().as_secs_f64());
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

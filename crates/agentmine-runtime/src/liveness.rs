//! Whether the main loops of the process still turn, for `/live`.
//!
//! A loop reports each turn. One that has not turned for longer than its limit is stalled: a deadlock, or a call
//! that never returns. The limit has to be above the longest turn of a healthy loop while every service is away,
//! so that an outage restarts nothing. The list is that of the process, like its metrics: fleets in one process
//! share it.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

static LOOPS: Mutex<Vec<Weak<State>>> = Mutex::new(Vec::new());

/// A main loop, from its start until it is dropped.
#[derive(Debug)]
pub struct MainLoop(Arc<State>);

#[derive(Debug)]
struct State {
    name: &'static str,
    limit: Duration,
    last_turn: Mutex<Instant>,
}

impl MainLoop {
    /// A loop whose turns never take longer than `limit`.
    #[must_use]
    pub fn start(name: &'static str, limit: Duration) -> Self {
        let state = Arc::new(State {
            name,
            limit,
            last_turn: Mutex::new(Instant::now()),
        });
        let mut loops = LOOPS.lock().unwrap_or_else(PoisonError::into_inner);
        loops.retain(|known| known.strong_count() > 0);
        loops.push(Arc::downgrade(&state));
        Self(state)
    }

    /// The loop has turned once more.
    pub fn turned(&self) {
        let last = &self.0.last_turn;
        *last.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }
}

/// One sentence for each loop that is stalled.
#[must_use]
pub fn standing_still() -> Vec<String> {
    let loops = LOOPS.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let alive = loops.iter().filter_map(Weak::upgrade);
    alive
        .filter_map(|state| {
            let last = *state
                .last_turn
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            let still = last.elapsed();
            (still > state.limit).then(|| {
                format!(
                    "the loop `{}` has made no progress for {} s; expected an iteration within {} s",
                    state.name,
                    still.as_secs(),
                    state.limit.as_secs()
                )
            })
        })
        .collect()
}

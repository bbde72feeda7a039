//! Whether a healed fleet still gets on, however slow the machine is.

use std::time::{Duration, Instant};

use agentmine_store::TaskFilter;

use super::fleet::Fleet;
use super::oracle::Rows;

/// Leases without any change after which a fleet is stuck. A lease that ran out may be left to its holder for three.
const STILL: u32 = 8;

/// How long a program leaves a tracker alone that limits its requests without saying until when, as
/// `agentmine-trackers` does.
const LIMITED: Duration = Duration::from_secs(60);

/// A fleet that changes all the time and never settles does not either.
const ENDLESS: Duration = Duration::from_secs(300);

/// How often the fleet is checked.
const LOOK: Duration = Duration::from_millis(500);

/// What has changed since when.
pub(super) struct Progress {
    begun: Instant,
    seen: String,
    changed: Instant,
    looked: Option<Instant>,
}

impl Progress {
    pub(super) fn begin() -> Self {
        let now = Instant::now();
        Self {
            begun: now,
            seen: String::new(),
            changed: now,
            looked: None,
        }
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Why the fleet will not settle any more; `None` if it still may.
    pub(super) async fn stuck(&mut self, fleet: &Fleet) -> Option<String> {
        if self.looked.is_none_or(|at| at.elapsed() >= LOOK) {
            self.looked = Some(Instant::now());
            // What waits for its time gets on.
            let state = state(fleet).await.ok().filter(|state| !state.waits);
            let is_same = state.is_some_and(|state| {
                let is_same = state.text == self.seen;
                self.seen = state.text;
                is_same
            });
            if !is_same {
                self.changed = Instant::now();
            }
        }
        let still = self.changed.elapsed();
        if still > LIMITED + fleet.setup.rhythm.lease() * STILL {
            return Some(format!("no change for {:.0} s", still.as_secs_f32()));
        }
        let limit = ENDLESS + fleet.setup.rhythm.lease() * STILL;
        (self.elapsed() > limit).then(|| format!("not settled after {:.0} s", limit.as_secs_f32()))
    }
}

struct State {
    text: String,
    /// Work is put off until a time that has not come.
    waits: bool,
}

async fn state(fleet: &Fleet) -> anyhow::Result<State> {
    let tasks = fleet.store.tasks(&TaskFilter::default()).await?;
    let tasks: Vec<_> = tasks
        .iter()
        .map(|task| (task.number, task.state, task.epoch))
        .collect();
    let rows = Rows::open(fleet).await?;
    Ok(State {
        text: format!(
            "{tasks:?} {} {} {}",
            rows.steps().await?,
            fleet.model.requests().len(),
            fleet.forge.writes().len()
        ),
        waits: rows.put_off().await? > 0,
    })
}

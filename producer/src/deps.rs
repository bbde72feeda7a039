//! The dependencies of a producer.

use std::sync::Arc;
use std::time::Duration;

use agentmine_queue::Queue;
use agentmine_runtime::config::Config;
use agentmine_sandbox::Backend;
use agentmine_store::Store;
use agentmine_trackers::Tracker;
use tokio::time::{Interval, MissedTickBehavior};

use crate::commands::SeenCommands;
use crate::dashboards::SeenDashboards;
use crate::rounds::SeenPulls;

/// The dependencies of a producer.
pub struct ProducerDeps {
    /// Configuration, already validated.
    pub config: Config,
    /// The database.
    pub store: Arc<dyn Store>,
    /// The wake-up queue.
    pub queue: Arc<dyn Queue>,
    /// The trackers to scan.
    pub trackers: Vec<Arc<dyn Tracker>>,
    /// The backend whose stale sandboxes are removed; `None` if `producer.cleanup` is false.
    pub backend: Option<Arc<dyn Backend>>,
    /// What was seen of the pull requests that the fleet opened; empty at first.
    pub pulls: SeenPulls,
    /// The commands that were seen; empty at first.
    pub commands: SeenCommands,
    /// What was seen of dashboards; empty at first.
    pub dashboards: SeenDashboards,
}

impl ProducerDeps {
    /// The times of a loop's passes: one in each lease, and one in each `longest`. A pass that is late delays the next.
    pub(crate) fn passes(&self, longest: Duration) -> Interval {
        let lease = Duration::from_secs(self.config.consumer.lease_seconds.max(1));
        let mut passes = tokio::time::interval(lease.min(longest));
        passes.set_missed_tick_behavior(MissedTickBehavior::Delay);
        passes
    }
}

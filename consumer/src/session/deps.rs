//! The dependencies of a consumer.

use std::sync::Arc;
use std::time::Duration;

use agentmine_domain::{Budget, Task};
use agentmine_llm::Model;
use agentmine_queue::Queue;
use agentmine_runtime::config::Config;
use agentmine_sandbox::Backend;
use agentmine_store::Store;
use agentmine_trackers::Tracker;
use tokio::sync::mpsc::UnboundedSender;

use crate::record::live::Progress;

/// The dependencies of a consumer.
pub struct ConsumerDeps {
    /// Configuration, already validated.
    pub config: Config,
    /// The database.
    pub store: Arc<dyn Store>,
    /// The database on a connection that only heartbeats use.
    pub heartbeat: Arc<dyn Store>,
    /// The wake-up queue.
    pub queue: Arc<dyn Queue>,
    /// The trackers whose tasks this consumer works on.
    pub trackers: Vec<Arc<dyn Tracker>>,
    /// Creates sandboxes.
    pub backend: Arc<dyn Backend>,
    /// The model.
    pub model: Arc<dyn Model>,
    /// Receives the progress of sessions for the live view.
    pub watch: Option<UnboundedSender<Progress>>,
}

impl ConsumerDeps {
    /// The tracker of a task's item; `None` if this consumer is not configured for it.
    pub(crate) fn tracker_of(&self, task: &Task) -> Option<Arc<dyn Tracker>> {
        self.trackers.iter().find(|t| t.serves(&task.item)).cloned()
    }

    /// The budget of one task.
    pub(crate) fn budget(&self) -> Budget {
        let agent = &self.config.agent;
        Budget {
            steps: agent.max_steps,
            tokens: agent.max_tokens,
            cost_micros: agent.max_cost_usd.map(|usd| (usd * 1e6) as u64),
            wall_time: Duration::from_secs(agent.max_minutes * 60),
        }
    }
}

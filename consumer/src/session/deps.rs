//! The dependencies of a consumer.

use std::sync::Arc;
use std::time::Duration;

use agentmine_domain::{Budget, Task};
use agentmine_llm::Model;
use agentmine_queue::Queue;
use agentmine_runtime::config::{AgentLimits, Config, ModelConfig};
use agentmine_sandbox::Backend;
use agentmine_store::Store;
use agentmine_trackers::Tracker;
use tokio::sync::mpsc::UnboundedSender;

use crate::record::live::Progress;

/// The dependencies of a consumer.
#[derive(Clone)]
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

    /// The budget of one task: the lower of the configuration's and the agent's.
    pub(crate) fn budget(&self, agent: &AgentLimits) -> Budget {
        let configured = self.config.agent.limits().lowered_by(*agent);
        let most = &self.config.agent;
        Budget {
            steps: configured.max_steps.unwrap_or(most.max_steps),
            tokens: configured.max_tokens,
            cost_micros: configured.max_cost_usd.map(|usd| (usd * 1e6) as u64),
            wall_time: Duration::from_secs(configured.max_minutes.unwrap_or(most.max_minutes) * 60),
        }
    }

    /// The rounds of one task, likewise.
    pub(crate) fn max_rounds(&self, agent: &AgentLimits) -> u32 {
        let most = self.config.agent.max_rounds;
        agent.max_rounds.unwrap_or(most).min(most)
    }

    /// The model of an agent. It has the address, key and prices of the configured one.
    pub(crate) fn model(&self, name: Option<&str>) -> Result<Arc<dyn Model>, String> {
        match name {
            Some(name) if name != self.model.name() => {
                let config = ModelConfig {
                    name: name.to_owned(),
                    ..self.config.model.clone()
                };
                agentmine_llm::from_config(&config).map_err(|error| format!("{error:#}"))
            }
            Some(_) | None => Ok(Arc::clone(&self.model)),
        }
    }
}

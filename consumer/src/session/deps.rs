//! The dependencies of a consumer.

use std::sync::Arc;
use std::time::Duration;

use agentmine_domain::{Budget, Task};
use agentmine_llm::Model;
use agentmine_queue::Queue;
use agentmine_runtime::config::{AgentLimits, Config, EffectiveAgent, ModelConfig};
use agentmine_sandbox::Backend;
use agentmine_store::Store;
use agentmine_trackers::Tracker;
use tokio::sync::mpsc::UnboundedSender;

use crate::prepare::templates::WorkspaceTemplates;
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
    /// What the workspaces of sandboxes begin as.
    pub templates: Arc<WorkspaceTemplates>,
}

impl ConsumerDeps {
    /// The tracker of a task's item; `None` if this consumer is not configured for it.
    pub(crate) fn tracker_of(&self, task: &Task) -> Option<Arc<dyn Tracker>> {
        self.trackers.iter().find(|t| t.serves(&task.item)).cloned()
    }

    /// The templates, if the worker keeps copies of repositories. Sandboxes that are started ahead begin empty.
    pub(crate) fn kept_templates(&self) -> Option<&WorkspaceTemplates> {
        let consumer = &self.config.consumer;
        let mirrors = &consumer.mirrors;
        let kept = mirrors.enabled && mirrors.templates && consumer.warm_sandboxes == 0;
        kept.then_some(&*self.templates)
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

    /// The model of an agent. It has the address and key of the configured one, and prices of its own.
    pub(crate) fn model(&self, agent: &EffectiveAgent) -> Result<Arc<dyn Model>, String> {
        match agent.model.as_deref() {
            Some(name) if name != self.model.name() => {
                let config = model_of_agent(&self.config.model, name, &self.budget(&agent.limits))?;
                agentmine_llm::from_config(&config).map_err(|error| format!("{error:#}"))
            }
            Some(_) | None => Ok(Arc::clone(&self.model)),
        }
    }
}

/// The configuration of a model that an agent names. A limit on the cost would never apply to one without prices.
fn model_of_agent(
    configured: &ModelConfig,
    name: &str,
    budget: &Budget,
) -> Result<ModelConfig, String> {
    let config = configured.with_model(name);
    // An entry is the operator's statement, also that it costs nothing.
    match configured.more_prices.contains_key(name) || budget.cost_micros.is_none() {
        true => Ok(config),
        false => Err(format!(
            "the agent's model {name} has no prices, so its limit on the cost would never apply. hint: set input_price \
             and output_price in model.more_prices for it"
        )),
    }
}

#[cfg(test)]
mod tests {
    use agentmine_runtime::config::ModelPrices;

    use super::*;

    #[test]
    fn the_model_of_an_agent_has_its_own_prices_or_none() {
        let budget = |cost_micros| Budget {
            steps: 1,
            tokens: None,
            cost_micros,
            wall_time: Duration::from_secs(60),
        };
        let small = ModelPrices {
            input_price: 0.25,
            output_price: 2.0,
            ..ModelPrices::default()
        };
        let configured = ModelConfig {
            name: "large".into(),
            input_price: 10.0,
            cached_input_price: Some(1.0),
            cache_write_price: Some(12.0),
            output_price: 40.0,
            more_prices: [("small".to_owned(), small)].into(),
            ..ModelConfig::default()
        };
        let prices = |name, cost| {
            let config = model_of_agent(&configured, name, &budget(cost))?;
            assert_eq!(config.name, name);
            Ok::<_, String>(ModelPrices {
                input_price: config.input_price,
                cached_input_price: config.cached_input_price,
                cache_write_price: config.cache_write_price,
                output_price: config.output_price,
            })
        };
        assert_eq!(prices("small", Some(1)), Ok(small));
        assert_eq!(prices("other", None), Ok(ModelPrices::default()));
        let refused = prices("other", Some(1)).unwrap_err();
        assert!(refused.contains("model.more_prices"), "{refused}");
    }
}

//! The tools and the resource of agents.

use rmcp::model::Resource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::resources::{Part, ResourceKind};
use super::tool::{Effect, ToolDef, to_value};
use crate::ControlError;
use crate::agents::{self, AgentDetail, AgentQuery};

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct AgentPage {
    /// The agents: name, description, client, model and origins (built_in, operator, project).
    agents: Vec<Map<String, Value>>,
    /// Files that are omitted because of faults.
    faulty: Vec<String>,
    /// The cursor of the next part; null: there are no more.
    next_cursor: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AgentGet {
    /// The agent's name
    name: String,
}

/// An agent as it runs.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct AgentView {
    /// Its name.
    name: String,
    /// What it is for.
    description: String,
    /// The program that runs it.
    client: String,
    /// The model's name; null for that of the configuration.
    model: Option<String>,
    /// What else applies: prompts, tools, image, limits, definition of done, and the files that define it.
    #[serde(flatten)]
    more: Map<String, Value>,
}

pub(super) fn tools() -> Vec<ToolDef> {
    vec![
        ToolDef::new(
            "agent_list",
            "List agents",
            "Lists the agents that a task can be assigned to: the built-in one, the operator's and the project's.",
            Effect::Reads,
            |it, args: AgentQuery| {
                Box::pin(async move {
                    let found = it.place.with_agents(move |all| agents::list(all, &args));
                    let found = found.await?;
                    let objects = found.agents.iter().map(object);
                    Ok(AgentPage {
                        agents: objects.collect::<Result<_, ControlError>>()?,
                        faulty: found.faulty,
                        next_cursor: found.next_cursor,
                    })
                })
            },
        ),
        ToolDef::new(
            "agent_get",
            "Show an agent",
            "Shows an agent as it runs: what the operator allows, narrowed by the project's file.",
            Effect::Reads,
            |it, args: AgentGet| {
                Box::pin(async move {
                    let found = it
                        .place
                        .with_agents(move |all| agents::get(all, &args.name));
                    view(&found.await?)
                })
            },
        ),
    ]
}

/// Agents in one part of the list of resources.
const LISTED: u32 = 100;

/// `agent://{name}`.
pub(super) fn resource() -> ResourceKind {
    ResourceKind {
        prefix: "agent://",
        template: Some((
            "agent://{name}",
            "Agent: {name}",
            "An agent's definition as it runs",
        )),
        mime: "application/yaml",
        list: |it, cursor| {
            Box::pin(async move {
                let query = AgentQuery {
                    limit: Some(LISTED),
                    cursor,
                    ..AgentQuery::default()
                };
                let found = it.place.with_agents(move |all| agents::list(all, &query));
                let found = found.await?;
                let resource = |name: &str, description: &str| {
                    Resource::new(format!("agent://{name}"), format!("Agent: {name}"))
                        .with_description(description)
                        .with_mime_type("application/yaml")
                };
                let all = found.agents.iter();
                let all = all.map(|it| resource(&it.name, &it.description));
                Ok(Part {
                    resources: all.collect(),
                    next: found.next_cursor,
                })
            })
        },
        read: |it, name| {
            Box::pin(async move {
                let found = it
                    .place
                    .with_agents(move |all| agents::get(all, &name))
                    .await?;
                let unreadable = |error: serde_json::Error| ControlError::Config(error.to_string());
                agents::yaml(&found).map_err(unreadable)
            })
        },
    }
}

fn object(agent: &impl Serialize) -> Result<Map<String, Value>, ControlError> {
    match to_value(agent)? {
        Value::Object(object) => Ok(object),
        _ => Ok(Map::new()),
    }
}

fn view(agent: &AgentDetail) -> Result<AgentView, ControlError> {
    let value = to_value(agent)?;
    serde_json::from_value(value).map_err(|error| ControlError::Config(error.to_string()))
}

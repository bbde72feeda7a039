//! The sandbox and the limits that a task gets: by the configuration, its agent, and the repository's own files.
//!
//! It is the answer at this moment. A repository's files are read from the branch that work starts from, as a worker
//! does; what cannot be read is omitted, with a note.

use agentmine_domain::{ItemKind, ItemRef, RepositoryRef};
use agentmine_runtime::config::{
    AgentClient, AgentDefinition, AgentLimits, BUILT_IN, BackendKind, Config, EffectiveAgent,
    Network, PROJECT_FILE, ProjectFile, is_allowed_image, read_agent,
};
use agentmine_trackers::{Tracker, TrackerError};
use schemars::JsonSchema;
use serde::Serialize;

use super::trackers::{Fleet, in_time};
use crate::ControlError;
use crate::agents::{self, AGENTS_FOLDER};
use crate::worker::{Place, blocking};

/// What a task is worked on with.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Environment {
    /// The agent's name.
    pub agent: String,
    /// The model's name.
    pub model: String,
    /// Where its commands run: docker, or local for the jail.
    pub sandbox: String,
    /// The image; null in the jail, which uses none.
    pub image: Option<String>,
    /// What can be reached besides the repository itself: none, listed or public.
    pub network: String,
    /// The hosts that can be reached, if they are listed.
    pub allowed_domains: Vec<String>,
    /// When commands and the agent are stopped.
    pub limits: EnvironmentLimits,
    /// Checks of the agent's definition of done, in addition to those of the project.
    pub checks: Vec<String>,
    /// What does not apply, or could not be read, and why.
    pub notes: Vec<String>,
}

/// The limits of a task.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EnvironmentLimits {
    /// CPU cores.
    pub cpus: f64,
    /// Memory, in bytes.
    pub memory: u64,
    /// Size of the workspace, in bytes.
    pub disk: u64,
    /// Processes.
    pub processes: i64,
    /// Time of one command, in seconds.
    pub command_seconds: u64,
    /// Calls of the model.
    pub max_steps: Option<u32>,
    /// Tokens, input and output; null: no limit.
    pub max_tokens: Option<u64>,
    /// Cost in US dollars; null: no limit.
    pub max_cost_usd: Option<f64>,
    /// Wall time, in minutes.
    pub max_minutes: Option<u64>,
    /// Rounds of work and verification.
    pub max_rounds: Option<u32>,
}

/// What is asked about.
pub(crate) enum Subject<'a> {
    /// An item of a tracker.
    Item(&'a dyn Tracker, &'a ItemRef),
    /// An item whose tracker is not configured here.
    Unserved(&'a ItemRef),
    /// A task that is worked on in the project of this folder, in the jail of this machine.
    Here,
}

/// What the subject would be worked on with by the agent of this name; `None`: the default one.
pub(crate) async fn environment(
    fleet: &Fleet,
    place: &Place,
    subject: Subject<'_>,
    agent: Option<&str>,
) -> Environment {
    let name = agent.unwrap_or(BUILT_IN);
    let config = fleet.config();
    let mut own = Own::default();
    match subject {
        Subject::Item(tracker, item) => match in_time(of_repository(config, tracker, item, name))
            .await
        {
            Some(Ok(read)) => own = read,
            Some(Err(error)) => own.note(format!("the repository's files are ignored: {error}")),
            None => own.note(format!(
                "the repository's files are ignored: {} did not answer in time",
                tracker.kind()
            )),
        },
        Subject::Unserved(item) => own.note(format!(
            "no tracker configured here serves {item}, so the repository's files are ignored"
        )),
        Subject::Here => {}
    }
    let here = matches!(subject, Subject::Here);
    let agent = match effective(config, place, &own, here, name).await {
        Ok(agent) => agent,
        Err(error) => {
            own.note(format!("a worker would refuse the agent {name}: {error}"));
            EffectiveAgent::built_in(name)
        }
    };
    let backend = match here {
        true => BackendKind::Local,
        false => config.command_executor.backend,
    };
    described(config, backend, agent, own)
}

/// Refuses an agent that neither the operator nor the repository defines, or that the fleet would refuse.
pub(crate) async fn has_agent(
    fleet: &Fleet,
    place: &Place,
    tracker: &dyn Tracker,
    repository: &RepositoryRef,
    name: &str,
) -> Result<(), ControlError> {
    let RepositoryRef {
        tracker: kind,
        host,
        repo_id,
        repo_path,
    } = repository.clone();
    let item = ItemRef {
        tracker: kind,
        host,
        repo_id,
        repo_path,
        kind: ItemKind::Task,
        number: 0,
    };
    let config = fleet.config();
    let own = in_time(at_default_branch(config, tracker, &item, name)).await;
    let own = own.and_then(Result::ok).unwrap_or_default();
    let found = effective(config, place, &own, false, name).await;
    found.map(drop).map_err(|error| match error {
        ControlError::AgentNotFound(_) => error.hint(format!(
            "expected {name}.yaml in the operator's folder for agents, or in {AGENTS_FOLDER} of the repository"
        )),
        error => error,
    })
}

/// What a repository's own files ask for.
#[derive(Default)]
struct Own {
    agent: Option<AgentDefinition>,
    image: Option<String>,
    notes: Vec<String>,
}

impl Own {
    fn note(&mut self, note: String) {
        self.notes.push(note);
    }
}

async fn of_repository(
    config: &Config,
    tracker: &dyn Tracker,
    item: &ItemRef,
    name: &str,
) -> Result<Own, TrackerError> {
    match tracker.item(item).await?.branches {
        Some(branches) => at_branch(config, tracker, item, &branches.target, name).await,
        None => at_default_branch(config, tracker, item, name).await,
    }
}

async fn at_default_branch(
    config: &Config,
    tracker: &dyn Tracker,
    item: &ItemRef,
    name: &str,
) -> Result<Own, TrackerError> {
    let branch = tracker.repository(item).await?.default_branch;
    at_branch(config, tracker, item, &branch, name).await
}

async fn at_branch(
    config: &Config,
    tracker: &dyn Tracker,
    item: &ItemRef,
    branch: &str,
    name: &str,
) -> Result<Own, TrackerError> {
    let mut own = Own::default();
    for ending in ["yaml", "yml"] {
        let path = format!("{AGENTS_FOLDER}/{name}.{ending}");
        let Some(text) = tracker.file(item, branch, &path).await? else {
            continue;
        };
        match read_agent(&path, &text) {
            Ok(definition) => {
                own.agent = Some(definition);
                break;
            }
            Err(faults) => own.note(format!("the repository's {path} is ignored: {faults:.500}")),
        }
    }
    let docker = &config.command_executor.docker;
    if !docker.allowed_images.is_empty()
        && let Some(text) = tracker.file(item, branch, PROJECT_FILE).await?
        && let Ok(file) = ProjectFile::parse(&text)
        && let Some(image) = file.image
    {
        match is_allowed_image(&docker.allowed_images, &image) {
            true => own.image = Some(image),
            false => own.note(format!(
                "the image {image:.100} that {PROJECT_FILE} requests is not in \
                 command_executor.docker.allowed_images"
            )),
        }
    }
    Ok(own)
}

async fn effective(
    config: &Config,
    place: &Place,
    own: &Own,
    here: bool,
    name: &str,
) -> Result<EffectiveAgent, ControlError> {
    let wanted = name.to_owned();
    if here {
        let found = place
            .with_agents(move |all| agents::get(all, &wanted))
            .await?;
        return Ok(found.agent);
    }
    let folder = place.operator_agents.clone();
    let operator = blocking(move || agents::of_operator(folder.as_deref(), &wanted)).await?;
    let allowed = &config.command_executor.docker.allowed_images;
    let agent = EffectiveAgent::of_files(name, operator.as_ref(), own.agent.as_ref(), allowed);
    let agent = agent.ok_or_else(|| ControlError::AgentNotFound(name.to_owned()))?;
    match agent.client {
        AgentClient::Agentmine => Ok(agent),
        client @ (AgentClient::ClaudeCode | AgentClient::Codex | AgentClient::GeminiCli) => {
            Err(ControlError::Config(format!(
                "it is for the client {}, but the fleet runs only AgentMine's own loop",
                client.as_str()
            )))
        }
    }
}

fn described(
    config: &Config,
    backend: BackendKind,
    agent: EffectiveAgent,
    own: Own,
) -> Environment {
    let docker = &config.command_executor.docker;
    let resources = &docker.resources;
    let mut notes = own.notes;
    let (sandbox, image) = match backend {
        BackendKind::Docker => {
            let image = agent.image.or(own.image);
            (
                "docker",
                Some(image.unwrap_or_else(|| docker.base_image.clone())),
            )
        }
        BackendKind::Local => {
            if let Some(image) = agent.image {
                notes.push(format!(
                    "the image {image:.100} is not used: the local jail uses no image"
                ));
            }
            ("local", None)
        }
    };
    notes.extend(agent.notes);
    let (network, allowed_domains) = reachable(&docker.network);
    let AgentLimits {
        max_steps,
        max_tokens,
        max_cost_usd,
        max_minutes,
        max_rounds,
    } = config.agent.limits().lowered_by(agent.limits);
    Environment {
        agent: agent.name,
        model: agent.model.unwrap_or_else(|| config.model.name.clone()),
        sandbox: sandbox.to_owned(),
        image,
        network: network.to_owned(),
        allowed_domains,
        limits: EnvironmentLimits {
            cpus: resources.cpu_limit,
            memory: resources.memory_limit.bytes(),
            disk: resources.disk_limit.bytes(),
            processes: docker.pids_limit,
            command_seconds: config.command_executor.execution.timeout_seconds,
            max_steps,
            max_tokens,
            max_cost_usd,
            max_minutes,
            max_rounds,
        },
        checks: agent
            .definition_of_done
            .into_iter()
            .map(|it| it.name)
            .collect(),
        notes,
    }
}

/// What a sandbox can reach beside its repository, and the hosts if they are listed.
fn reachable(network: &Network) -> (&'static str, Vec<String>) {
    match (network.external_access, network.whitelist_mode) {
        (false, _) => ("none", Vec::new()),
        (true, true) => ("listed", network.allowed_domains.clone()),
        (true, false) => ("public", Vec::new()),
    }
}

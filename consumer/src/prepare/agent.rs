//! The agent that a task names: as the operator defines it, narrowed by the repository's own file.
//!
//! What a repository's file may do is decided by `EffectiveAgent::narrowed_by` alone. It is read from the branch that the
//! result is for (`WorkBranches::rules`), each time a session begins; its checks are those of the first session, since they
//! are recorded with the start. A file of the repository with faults is ignored, with a note; one of the operator ends the task, because
//! what it was to forbid is not known.

use std::path::Path;

use agentmine_agent::DoneCheck;
use agentmine_runtime::config::{
    AgentClient, AgentDefinition, BUILT_IN, EffectiveAgent, read_agent,
};
use futures::future::try_join_all;

use crate::error::SessionError;
use crate::session::context::SessionContext;

/// The folder of a repository's own agents.
pub(super) const REPOSITORY_FOLDER: &str = ".agentmine/agents";
/// Largest file in bytes.
const MAX_FILE: u64 = 64 * 1024;
const ENDINGS: [&str; 2] = ["yaml", "yml"];

/// The agent of the session's task; `branch` is the one that has the repository's file.
pub(super) async fn agent(
    ctx: &SessionContext,
    branch: &str,
) -> Result<EffectiveAgent, SessionError> {
    let config = &ctx.deps.config;
    let name = ctx.task.card.agent.as_deref().unwrap_or(BUILT_IN);
    let operator = match config.agent.folder.as_deref() {
        Some(folder) => of_operator(folder, name)?,
        None => None,
    };
    let repository = of_repository(ctx, branch, name).await?;
    let allowed = &config.command_executor.docker.allowed_images;
    let agent = EffectiveAgent::of_files(name, operator.as_ref(), repository.as_ref(), allowed);
    let agent = agent.ok_or_else(|| {
        SessionError::Agent(format!(
            "there is no agent {name:?}: expected {name}.yaml in the operator's folder for agents, or in {REPOSITORY_FOLDER} of the repository"
        ))
    })?;
    for note in &agent.notes {
        ctx.note(&format!("agent {name}: {note}")).await?;
    }
    if agent.client != AgentClient::Agentmine {
        let client = agent.client.as_str();
        return Err(SessionError::Agent(format!(
            "the agent {name:?} is for the client {client}, but the fleet runs only AgentMine's own loop"
        )));
    }
    if operator.is_some() || repository.is_some() {
        let of = match (&operator, &repository) {
            (Some(_), Some(_)) => "the operator's file, narrowed by the repository's",
            (Some(_), None) => "the operator's file",
            (None, _) => "the built-in agent, narrowed by the repository's file",
        };
        ctx.note(&format!("agent {name}: {of}")).await?;
    }
    Ok(agent)
}

/// The checks of its definition of done, as they are recorded.
pub(super) fn done_checks(agent: &EffectiveAgent) -> Vec<DoneCheck> {
    let checks = agent.definition_of_done.iter().cloned();
    checks
        .map(|check| DoneCheck {
            name: check.name,
            command: check.command,
            timeout_seconds: check.timeout_seconds,
        })
        .collect()
}

fn of_operator(folder: &Path, name: &str) -> Result<Option<AgentDefinition>, SessionError> {
    for ending in ENDINGS {
        let file = folder.join(format!("{name}.{ending}"));
        let failed =
            |why: &dyn std::fmt::Display| SessionError::Agent(format!("{}: {why}", file.display()));
        let text = match std::fs::metadata(&file) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(failed(&error)),
            Ok(found) if found.len() > MAX_FILE => {
                return Err(failed(&format!("expected at most {MAX_FILE} bytes")));
            }
            Ok(_) => std::fs::read_to_string(&file).map_err(|error| failed(&error))?,
        };
        let shown = file.display().to_string();
        let read = read_agent(&shown, &text);
        return read
            .map(Some)
            .map_err(|faults| SessionError::Agent(faults.to_string()));
    }
    Ok(None)
}

async fn of_repository(
    ctx: &SessionContext,
    branch: &str,
    name: &str,
) -> Result<Option<AgentDefinition>, SessionError> {
    let tracker = ctx.effects.tracker();
    let paths = ENDINGS.map(|ending| format!("{REPOSITORY_FOLDER}/{name}.{ending}"));
    let reads = paths
        .iter()
        .map(|path| tracker.file(&ctx.task.item, branch, path));
    for (path, text) in paths.iter().zip(try_join_all(reads).await?) {
        let Some(text) = text else {
            continue;
        };
        let read = match text.len() as u64 > MAX_FILE {
            true => Err(format!("expected at most {MAX_FILE} bytes")),
            false => read_agent(path, &text).map_err(|faults| faults.to_string()),
        };
        match read {
            Ok(definition) => return Ok(Some(definition)),
            Err(why) => {
                let note = format!("the repository's {path} is ignored: {why:.500}");
                ctx.note(&note).await?;
            }
        }
    }
    Ok(None)
}

//! `agentmine agent`: the agents of a project, as the operator and the project define them.

use std::path::PathBuf;

use agentmine_control::agents::{self, AgentDetail, AgentOrigin, AgentQuery, AgentSources};
use agentmine_runtime::config::{self, AgentTools, Config, Sources};
use agentmine_runtime::exit::{Exit, Failure};
use anyhow::Result;

use crate::args::AgentCommand;
use crate::control::{failure, listed};
use crate::memory::here;
use crate::print::{body, cell, clean, line, note, one_line, program, table, trimmed};

/// Runs one of the commands.
pub(crate) async fn run(file: Option<PathBuf>, command: AgentCommand) -> Result<Exit> {
    let config = config::load(&Sources::from_process(file))?;
    let project = here().await?.top;
    let operator = config.agent.folder.clone();
    let sources = AgentSources {
        operator: operator.as_deref(),
        project: &project,
        allowed_images: &config.command_executor.docker.allowed_images,
    };
    match command {
        AgentCommand::List {
            client,
            limit,
            json,
        } => list(&sources, client, limit, json).await,
        AgentCommand::Show { name, json } => show(&sources, &config, &name, json),
        AgentCommand::Validate { json } => validate(&sources, json),
    }
}

async fn list(
    sources: &AgentSources<'_>,
    client: Option<String>,
    limit: u32,
    json: bool,
) -> Result<Exit> {
    let mut faulty = Vec::new();
    let all = listed(limit, async |count, cursor| {
        let query = AgentQuery {
            client: client.clone(),
            limit: Some(count),
            cursor,
        };
        let found = agents::list(sources, &query)?;
        faulty = found.faulty;
        Ok((found.agents, found.next_cursor))
    })
    .await?;
    if json {
        line(serde_json::to_string_pretty(&all)?);
    } else {
        let mut table = table(&["NAME", "CLIENT", "MODEL", "DEFINED BY", "DESCRIPTION"]);
        for agent in &all {
            table.add_row(vec![
                agent.name.clone(),
                agent.client.as_str().to_owned(),
                cell(agent.model.as_deref().unwrap_or("-")),
                origins(&agent.origins),
                cell(&agent.description),
            ]);
        }
        line(trimmed(&table));
    }
    for file in &faulty {
        note(format!(
            "warning: {} is skipped. hint: `{} agent validate` shows its faults",
            clean(file),
            program()
        ));
    }
    Ok(Exit::Done)
}

fn show(sources: &AgentSources<'_>, config: &Config, name: &str, json: bool) -> Result<Exit> {
    let detail = agents::get(sources, name).map_err(failure)?;
    if json {
        line(serde_json::to_string_pretty(&detail)?);
        return Ok(Exit::Done);
    }
    let AgentDetail {
        agent,
        origins: by,
        files,
    } = detail;
    line(format!(
        "{}  {}",
        agent.name,
        one_line(&agent.description, 200)
    ));
    line(format!("defined by  {}", origins(&by)));
    for file in &files {
        line(format!("file        {}", clean(file)));
    }
    line(format!("client      {}", agent.client.as_str()));
    let model = agent.model.as_deref().unwrap_or(&config.model.name);
    line(format!("model       {}", one_line(model, 100)));
    let image = agent.image.as_deref();
    let image = image.unwrap_or(&config.command_executor.docker.base_image);
    line(format!("image       {}", one_line(image, 200)));
    for AgentTools { allowed, denied } in &agent.tools {
        if let Some(allowed) = allowed {
            line(format!("tools       only {}", or_none(allowed)));
        }
        if !denied.is_empty() {
            line(format!("tools       not {}", or_none(denied)));
        }
    }
    for (limit, value) in limits(&agent.limits) {
        if let Some(value) = value {
            line(format!("limit       {limit} {value}"));
        }
    }
    for check in &agent.definition_of_done {
        let limit = check.timeout_seconds;
        let limit = limit.map_or_else(String::new, |limit| format!(" (at most {limit} s)"));
        line(format!(
            "check       {}: {}{limit}",
            check.name,
            one_line(&check.command, 200)
        ));
    }
    for (title, prompt) in [
        ("system prompt", &agent.system_prompt),
        ("from the repository, as data", &agent.repository_prompt),
    ] {
        if let Some(prompt) = prompt {
            line(format!("\n{title}:"));
            body(prompt.trim_end());
        }
    }
    for text in &agent.notes {
        note(format!("note: {}", clean(text)));
    }
    Ok(Exit::Done)
}

fn validate(sources: &AgentSources<'_>, json: bool) -> Result<Exit> {
    let check = agents::validate(sources).map_err(failure)?;
    let faults: Vec<String> = check
        .files
        .iter()
        .flat_map(|file| file.faults.iter().map(|fault| clean(fault)))
        .collect();
    if json {
        line(serde_json::to_string_pretty(&check.files)?);
        return Ok(match faults.is_empty() {
            true => Exit::Done,
            false => Exit::Config,
        });
    }
    for file in &check.files {
        for text in &file.notes {
            note(format!("note: {}: {}", clean(&file.file), clean(text)));
        }
    }
    if !faults.is_empty() {
        return Err(Failure::new(Exit::Config, faults.join("\n")).into());
    }
    line(match check.files.len() {
        0 => "no files; the built-in agent `default` is used".to_owned(),
        1 => "1 file is valid".to_owned(),
        n => format!("{n} files are valid"),
    });
    Ok(Exit::Done)
}

fn origins(origins: &[AgentOrigin]) -> String {
    let names: Vec<&str> = origins.iter().map(|origin| origin.as_str()).collect();
    names.join(", ")
}

fn or_none(names: &[String]) -> String {
    match names.is_empty() {
        true => "none".into(),
        false => cell(&names.join(", ")),
    }
}

fn limits(limits: &config::AgentLimits) -> [(&'static str, Option<String>); 5] {
    let config::AgentLimits {
        max_steps,
        max_tokens,
        max_cost_usd,
        max_minutes,
        max_rounds,
    } = limits;
    [
        ("max_steps", max_steps.map(|n| n.to_string())),
        ("max_tokens", max_tokens.map(|n| n.to_string())),
        ("max_cost_usd", max_cost_usd.map(|n| n.to_string())),
        ("max_minutes", max_minutes.map(|n| n.to_string())),
        ("max_rounds", max_rounds.map(|n| n.to_string())),
    ]
}

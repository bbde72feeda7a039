//! `agentmine task`: lists, one task, and the requests that a person may make.

use std::path::PathBuf;

use agentmine_domain::{EndState, PublicStatus, Task, TaskId, TaskNumber, TaskState, UnknownName};
use agentmine_runtime::exit::{Exit, Failure};
use agentmine_store::{Store, TaskFilter};
use anyhow::Result;
use serde_json::{Value, json};

use crate::args::TaskCommand;
use crate::embedded::open_store;
use crate::print::{cell, clean, line, one_line, program, table, trimmed};

/// Runs one of the commands.
pub(crate) async fn run(file: Option<PathBuf>, command: TaskCommand) -> Result<Exit> {
    match command {
        TaskCommand::List {
            status,
            limit,
            json,
        } => list(file, status, limit, json).await,
        TaskCommand::Show { task, json } => show(file, &task, json).await,
        TaskCommand::Stop { task } => stop(file, &task).await,
        TaskCommand::Pause { task } => pause(file, &task).await,
        TaskCommand::Resume { task } => resume(file, &task).await,
    }
}

async fn list(
    file: Option<PathBuf>,
    status: Option<String>,
    limit: u32,
    as_json: bool,
) -> Result<Exit> {
    let status = status.as_deref().map(parse_status).transpose()?;
    let store = open_store(file).await?;
    let tasks = store
        .tasks(&TaskFilter {
            status,
            limit,
            ..TaskFilter::default()
        })
        .await?;
    if as_json {
        let tasks: Vec<Value> = tasks.iter().map(json_of).collect::<Result<_>>()?;
        line(serde_json::to_string_pretty(&tasks)?);
        return Ok(Exit::Done);
    }
    if tasks.is_empty() {
        line("no tasks");
        return Ok(Exit::Done);
    }
    let mut table = table(&[
        "TASK", "STATUS", "DETAIL", "ITEM", "TITLE", "ATTEMPT", "UPDATED", "RESULT",
    ]);
    for task in tasks {
        let result = task.pull_request_url.as_deref().or(task.reason.as_deref());
        table.add_row(vec![
            task.number.to_string(),
            task.state.public().to_string(),
            detail(&task).unwrap_or_default().to_owned(),
            cell(&task.item.to_string()),
            cell(&task.title),
            task.attempt.to_string(),
            task.updated_at.format("%Y-%m-%d %H:%M").to_string(),
            cell(result.unwrap_or_default()),
        ]);
    }
    line(trimmed(&table));
    Ok(Exit::Done)
}

/// What the status leaves open: what the worker does, `paused`, or `partial` for a partial result.
fn detail(task: &Task) -> Option<&'static str> {
    match task.state {
        TaskState::Leased(phase) => Some(phase.as_str()),
        TaskState::Paused => Some("paused"),
        TaskState::Ended(EndState::Done) if task.missing().is_some() => Some("partial"),
        TaskState::Queued
        | TaskState::Ended(EndState::Done | EndState::Failed | EndState::Stopped) => None,
    }
}

/// The status, with its detail: `in_progress (running)`.
fn status(task: &Task) -> String {
    let status = task.state.public();
    detail(task).map_or_else(
        || status.to_string(),
        |detail| format!("{status} ({detail})"),
    )
}

/// A task as JSON, with the words of the table and of `--status`.
fn json_of(task: &Task) -> Result<Value> {
    let mut value = serde_json::to_value(task)?;
    if let Some(fields) = value.as_object_mut() {
        fields.remove("state");
        fields.insert("status".into(), task.state.public().as_str().into());
        fields.insert("detail".into(), detail(task).into());
    }
    Ok(value)
}

fn parse_status(text: &str) -> Result<PublicStatus> {
    text.parse().map_err(|error: UnknownName| {
        Failure::new(Exit::Validation, error.to_string())
            .hint("expected open, in_progress, done, failed or cancelled")
            .into()
    })
}

async fn show(file: Option<PathBuf>, name: &str, as_json: bool) -> Result<Exit> {
    let store = open_store(file).await?;
    let task = find(store.as_ref(), name).await?;
    let sessions = store.sessions(Some(task.id), 0).await?;
    if as_json {
        line(serde_json::to_string_pretty(
            &json!({ "task": json_of(&task)?, "branch": task.branch(), "sessions": sessions }),
        )?);
        return Ok(Exit::Done);
    }
    line(format!(
        "task #{}  {}",
        task.number,
        one_line(&task.title, 120)
    ));
    line(format!(
        "item      {} ({})",
        one_line(&task.item.to_string(), 120),
        one_line(&task.url, 200)
    ));
    line(format!("status    {}", status(&task)));
    if let Some(reason) = &task.reason {
        line(format!("reason    {}", clean(reason)));
    }
    line(format!("branch    {}", task.branch()));
    if let Some(url) = &task.pull_request_url {
        line(format!("result    {}", one_line(url, 200)));
    }
    line(format!("uuid      {}", task.id));
    for session in sessions {
        let end = session.end.map_or("running", |e| e.as_str());
        let reason = session
            .reason
            .as_deref()
            .map(|r| format!(": {}", one_line(r, 100)))
            .unwrap_or_default();
        line(format!(
            "session   {} (epoch {}) {end}{reason}",
            session.id, session.epoch
        ));
    }
    Ok(Exit::Done)
}

async fn stop(file: Option<PathBuf>, name: &str) -> Result<Exit> {
    let store = open_store(file).await?;
    let task = find(store.as_ref(), name).await?;
    let reason = "stopped on the command line";
    let accepted = store.request_stop(task.id, reason).await?;
    requested(accepted, &task, "will be stopped")
}

async fn pause(file: Option<PathBuf>, name: &str) -> Result<Exit> {
    let store = open_store(file).await?;
    let task = find(store.as_ref(), name).await?;
    let reason = "paused on the command line";
    let accepted = store.request_pause(task.id, reason).await?;
    requested(accepted, &task, "will be paused")
}

async fn resume(file: Option<PathBuf>, name: &str) -> Result<Exit> {
    let store = open_store(file).await?;
    let task = find(store.as_ref(), name).await?;
    let accepted = store.resume(task.id).await?;
    requested(accepted, &task, "is queued again")
}

fn requested(accepted: bool, task: &Task, what: &str) -> Result<Exit> {
    if accepted {
        line(format!("task #{} {what}", task.number));
        return Ok(Exit::Done);
    }
    Err(Failure::new(
        Exit::WrongState,
        format!("task #{} is {}", task.number, status(task)),
    )
    .hint(format!(
        "`{} task show {}` shows why",
        program(),
        task.number
    ))
    .into())
}

/// A task by number or UUID.
async fn find(store: &dyn Store, text: &str) -> Result<Task> {
    let found = match (text.parse::<TaskNumber>(), text.parse::<TaskId>()) {
        (Ok(number), _) => store.task_by_number(number).await?,
        (_, Ok(id)) => store.task(id).await?,
        (Err(error), Err(_)) => {
            return Err(Failure::new(Exit::Validation, error.to_string())
                .hint("use the task's number or its UUID")
                .into());
        }
    };
    found.ok_or_else(|| {
        Failure::new(Exit::NotFound, format!("there is no task {text}"))
            .hint("`agentmine task list` lists the tasks")
            .into()
    })
}

//! Tasks and sessions for people: lists, one of them, and the requests a person may make.

use std::path::PathBuf;
use std::sync::Arc;

use agentmine_domain::{SessionId, Task, TaskId, TaskNumber};
use agentmine_runtime::config::{self, Sources};
use agentmine_runtime::exit::{Exit, Failure};
use agentmine_store::{Store, TaskFilter};
use anyhow::Result;
use serde_json::json;

use crate::embedded::default_store;
use crate::print::{clean, line, one_line, table, trimmed};
use crate::transcript;

async fn open(file: Option<PathBuf>) -> Result<Arc<dyn Store>> {
    let mut config = config::load(&Sources::from_process(file))?;
    default_store(&mut config)?;
    Ok(agentmine_store::connect(&config.store).await?)
}

/// A task by number or UUID.
async fn find(store: &dyn Store, text: &str) -> Result<Task> {
    let found = match (text.parse::<TaskNumber>(), text.parse::<TaskId>()) {
        (Ok(number), _) => store.task_by_number(number).await?,
        (_, Ok(id)) => store.task(id).await?,
        (Err(error), Err(_)) => {
            return Err(Failure::new(Exit::Validation, error.to_string())
                .hint("a task is named by its number or its UUID")
                .into());
        }
    };
    found.ok_or_else(|| {
        Failure::new(Exit::NotFound, format!("there is no task {text}"))
            .hint("`agentmine task list` shows what there is")
            .into()
    })
}

/// `task list`
pub(crate) async fn tasks(
    file: Option<PathBuf>,
    status: Option<String>,
    limit: u32,
    as_json: bool,
) -> Result<Exit> {
    let status = status
        .map(|s| {
            s.parse().map_err(|e| {
                Failure::new(Exit::Validation, format!("{e}"))
                    .hint("expected open, in_progress, done, failed or cancelled")
            })
        })
        .transpose()?;
    let store = open(file).await?;
    let tasks = store.tasks(&TaskFilter { status, limit }).await?;
    if as_json {
        line(serde_json::to_string_pretty(&tasks)?);
        return Ok(Exit::Done);
    }
    if tasks.is_empty() {
        line("no tasks");
        return Ok(Exit::Done);
    }
    let mut table = table(&[
        "TASK", "STATE", "ITEM", "TITLE", "ATTEMPT", "UPDATED", "RESULT",
    ]);
    for task in tasks {
        table.add_row(vec![
            task.number.to_string(),
            task.state.to_string(),
            one_line(&task.item.to_string(), 40),
            one_line(&task.title, 50),
            task.attempt.to_string(),
            task.updated_at.format("%Y-%m-%d %H:%M").to_string(),
            one_line(
                task.pull_request_url
                    .as_deref()
                    .or(task.reason.as_deref())
                    .unwrap_or(""),
                60,
            ),
        ]);
    }
    line(trimmed(&table));
    Ok(Exit::Done)
}

/// `task show`
pub(crate) async fn task(file: Option<PathBuf>, name: &str, as_json: bool) -> Result<Exit> {
    let store = open(file).await?;
    let task = find(store.as_ref(), name).await?;
    let sessions = store.sessions(Some(task.id), 0).await?;
    if as_json {
        line(serde_json::to_string_pretty(
            &json!({ "task": task, "branch": task.branch(), "sessions": sessions }),
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
    line(format!("state     {}", task.state));
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
            "session   {} (attempt under epoch {}) {end}{reason}",
            session.id, session.epoch
        ));
    }
    Ok(Exit::Done)
}

/// `task stop`
pub(crate) async fn stop(file: Option<PathBuf>, name: &str) -> Result<Exit> {
    let store = open(file).await?;
    let task = find(store.as_ref(), name).await?;
    let taken = store
        .request_stop(task.id, "stopped on the command line")
        .await?;
    requested(taken, &task, "will be stopped")
}

/// `task pause`
pub(crate) async fn pause(file: Option<PathBuf>, name: &str) -> Result<Exit> {
    let store = open(file).await?;
    let task = find(store.as_ref(), name).await?;
    let taken = store
        .request_pause(task.id, "paused on the command line")
        .await?;
    requested(taken, &task, "will be paused")
}

/// `task resume`
pub(crate) async fn resume(file: Option<PathBuf>, name: &str) -> Result<Exit> {
    let store = open(file).await?;
    let task = find(store.as_ref(), name).await?;
    let taken = store.resume(task.id).await?;
    requested(taken, &task, "is queued again")
}

fn requested(taken: bool, task: &Task, what: &str) -> Result<Exit> {
    if taken {
        line(format!("task #{} {what}", task.number));
        return Ok(Exit::Done);
    }
    Err(Failure::new(
        Exit::WrongState,
        format!("task #{} is {}", task.number, task.state),
    )
    .hint(format!(
        "`{} task show {}` tells how it came to that",
        crate::run::program(),
        task.number
    ))
    .into())
}

/// `session list`
pub(crate) async fn sessions(file: Option<PathBuf>, limit: u32, as_json: bool) -> Result<Exit> {
    let store = open(file).await?;
    let sessions = store.sessions(None, limit).await?;
    if as_json {
        line(serde_json::to_string_pretty(&sessions)?);
        return Ok(Exit::Done);
    }
    if sessions.is_empty() {
        line("no sessions");
        return Ok(Exit::Done);
    }
    let mut table = table(&[
        "SESSION", "TASK", "END", "STARTED", "SECONDS", "MODEL", "CALLS", "TOKENS",
    ]);
    for session in sessions {
        let seconds = session
            .ended_at
            .map(|end| (end - session.started_at).num_milliseconds() as f64 / 1000.0);
        table.add_row(vec![
            session.id.to_string(),
            format!("#{}", session.task_number),
            session.end.map_or("running", |e| e.as_str()).to_owned(),
            session.started_at.format("%Y-%m-%d %H:%M:%S").to_string(),
            seconds.map(|s| format!("{s:.1}")).unwrap_or_default(),
            one_line(session.model.as_deref().unwrap_or(""), 30),
            format!("{}/{}", session.usage.model_calls, session.usage.tool_calls),
            crate::live::count(session.usage.total_tokens()),
        ]);
    }
    line(trimmed(&table));
    Ok(Exit::Done)
}

/// `session show`
pub(crate) async fn session(
    file: Option<PathBuf>,
    name: &str,
    as_json: bool,
    full: bool,
) -> Result<Exit> {
    let id: SessionId = name.parse().map_err(|e| {
        Failure::new(Exit::Validation, format!("{e}"))
            .hint("`agentmine session list` shows the numbers")
    })?;
    let store = open(file).await?;
    let Some(session) = store.session(id).await? else {
        return Err(
            Failure::new(Exit::NotFound, format!("there is no session {id}"))
                .hint("`agentmine session list` shows what there is")
                .into(),
        );
    };
    let steps: Vec<_> = store
        .steps(session.task)
        .await?
        .into_iter()
        .filter(|s| s.epoch == session.epoch)
        .collect();
    if as_json {
        line(serde_json::to_string_pretty(
            &json!({ "session": session, "steps": steps }),
        )?);
        return Ok(Exit::Done);
    }
    transcript::print(&session, &steps, full)?;
    Ok(Exit::Done)
}

/// `config check`: also what only a producer or consumer would find out at its start. Nothing is
/// connected to.
pub(crate) fn check_config(file: Option<PathBuf>) -> Result<Exit> {
    let config = config::load(&Sources::from_process(file))?;
    let mut faults = Vec::new();
    match agentmine_trackers::from_config(&config.trackers) {
        Ok(trackers) if trackers.is_empty() => {
            faults.push(
                "no tracker is configured; expected trackers.github or trackers.local".to_owned(),
            );
        }
        Ok(_) => {}
        Err(error) => faults.push(format!("trackers: {error}")),
    }
    if let Err(error) = agentmine_llm::from_config(&config.model) {
        faults.push(format!("model: {error:#}"));
    }
    if faults.is_empty() {
        line("the configuration is good");
        return Ok(Exit::Done);
    }
    Err(Failure::new(Exit::Config, faults.join("\n")).into())
}

/// `config schema`
pub(crate) fn print_schema() -> Result<Exit> {
    line(serde_json::to_string_pretty(&config::json_schema())?);
    Ok(Exit::Done)
}

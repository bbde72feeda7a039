//! `agentmine session`: lists, and the transcript of one session.

use std::path::PathBuf;

use agentmine_domain::{SessionId, Step, Usage};
use agentmine_runtime::exit::{Exit, Failure};
use anyhow::Result;
use serde_json::json;

use crate::args::SessionCommand;
use crate::embedded::open_store;
use crate::live::count;
use crate::print::{cell, line, table, trimmed};
use crate::{takeover, transcript};

/// Runs one of the commands.
pub(crate) async fn run(file: Option<PathBuf>, command: SessionCommand) -> Result<Exit> {
    match command {
        SessionCommand::List { limit, json } => list(file, limit, json).await,
        SessionCommand::Show {
            session,
            json,
            full,
        } => show(file, &session, json, full).await,
    }
}

async fn list(file: Option<PathBuf>, limit: u32, as_json: bool) -> Result<Exit> {
    let store = open_store(file).await?;
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
            cell(session.model.as_deref().unwrap_or("")),
            format!("{}/{}", session.usage.model_calls, session.usage.tool_calls),
            count(session.usage.total_tokens()),
        ]);
    }
    line(trimmed(&table));
    Ok(Exit::Done)
}

async fn show(file: Option<PathBuf>, name: &str, as_json: bool, full: bool) -> Result<Exit> {
    let id: SessionId = name.parse().map_err(|e| {
        Failure::new(Exit::Validation, format!("{e}"))
            .hint("`agentmine session list` lists the session numbers")
    })?;
    let store = open_store(file).await?;
    let Some(session) = store.session(id).await? else {
        return Err(
            Failure::new(Exit::NotFound, format!("there is no session {id}"))
                .hint("`agentmine session list` lists the sessions")
                .into(),
        );
    };
    let all = store.steps(session.task).await?;
    let sessions = store.sessions(Some(session.task), 0).await?;
    let takeover = takeover::lines(&session, &sessions, &all)?;
    let of_epoch = |step: &Step| step.epoch == session.epoch;
    let steps: Vec<_> = all.into_iter().filter(of_epoch).collect();
    let of_task = sessions.iter().fold(Usage::default(), |mut sum, one| {
        sum += one.usage;
        sum
    });
    if as_json {
        line(serde_json::to_string_pretty(
            &json!({ "session": session, "task_usage": of_task, "takeover": takeover, "steps": steps }),
        )?);
        return Ok(Exit::Done);
    }
    let of_task = (sessions.len() > 1).then_some(of_task);
    transcript::print(&session, (of_task, &takeover), &steps, full)?;
    Ok(Exit::Done)
}

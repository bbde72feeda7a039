//! `agentmine session`: lists, the transcript of one session, and the sessions of clients outside of the fleet.

use std::path::PathBuf;
use std::time::Duration;

use agentmine_control::sessions::{self, SessionEndArgs, SessionList, SessionLogs, SessionStart};
use agentmine_control::view::SessionView;
use agentmine_domain::{Seq, SessionId, Step, Usage};
use agentmine_runtime::exit::{Exit, Failure};
use agentmine_store::Store;
use anyhow::{Context as _, Result};
use clap::Subcommand;
use serde_json::{Value, json};

use crate::control::{failure as failed, listed};
use crate::embedded::{Here, open_here};
use crate::live::count;
use crate::live_reply::LiveReply;
use crate::pager::Pager;
use crate::print::{Json, cell, is_lost, line, one_line, program, table, trimmed};
use crate::takeover;
use crate::task::number;
use crate::transcript::{self, Length};

/// How often a followed session is checked.
const FOLLOW: Duration = Duration::from_millis(500);

#[derive(Debug, Subcommand)]
pub(crate) enum SessionCommand {
    /// List sessions, newest first
    List {
        /// Only sessions of this task
        #[arg(long)]
        task: Option<String>,
        /// Only sessions that are running, or have ended
        #[arg(long)]
        status: Option<String>,
        /// Maximum number of sessions; 0 lists all
        #[arg(long, value_name = "N", default_value_t = 20)]
        limit: u32,
        #[command(flatten)]
        json: Json,
    },
    /// Show the transcript of a session
    Show {
        /// The session's number
        session: String,
        #[command(flatten)]
        json: Json,
        /// Do not truncate long texts
        #[arg(long)]
        full: bool,
    },
    /// Begin a session of a client outside the fleet; `worker run` does this too
    Start {
        /// The task's number or UUID
        task: String,
        /// The client that runs it
        #[arg(long, value_name = "NAME")]
        client: Option<String>,
        /// The agent's name
        #[arg(long, value_name = "NAME")]
        agent: Option<String>,
        #[command(flatten)]
        json: Json,
    },
    /// End a session of a client outside the fleet
    End {
        /// The session's number
        session: String,
        /// The client's exit code
        #[arg(long, value_name = "N", allow_negative_numbers = true)]
        exit_code: i64,
        /// The signal that ended the client
        #[arg(long, value_name = "NAME")]
        signal: Option<String>,
        /// The definition of done: pending, merged, timeout or error
        #[arg(long, value_name = "RESULT")]
        dod_result: Option<String>,
        /// A result: a path, an address, or JSON; can be repeated
        #[arg(long, value_name = "TEXT|JSON")]
        artifact: Vec<String>,
        /// What went wrong, as a JSON object
        #[arg(long, value_name = "JSON")]
        error: Option<String>,
        #[command(flatten)]
        json: Json,
    },
    /// Show the steps of a session
    Logs {
        /// The session's number
        session: String,
        /// Wait for more steps until the session ends
        #[arg(long, short)]
        follow: bool,
        /// Only steps after this one
        #[arg(long, value_name = "SEQ", default_value_t = 0)]
        after: i64,
        /// Do not truncate long texts
        #[arg(long)]
        full: bool,
        /// Print each step as one line of JSON
        #[command(flatten)]
        json: Json,
    },
}

/// Runs one of the commands.
pub(crate) async fn run(file: Option<PathBuf>, command: SessionCommand) -> Result<Exit> {
    let Here { store, place, .. } = open_here(file).await?;
    let store = store.as_ref();
    match command {
        SessionCommand::List {
            task,
            status,
            limit,
            json,
        } => {
            let sessions = list(store, task, status, limit).await?;
            json.print(&sessions, |sessions| print_list(sessions))
        }
        SessionCommand::Show {
            session,
            json,
            full,
        } => show(store, &session, json, full).await,
        SessionCommand::Start {
            task,
            client,
            agent,
            json,
        } => {
            let args = SessionStart {
                task_id: number(store, &task).await?,
                agent,
                client,
            };
            let begun = sessions::start(store, &place, &args)
                .await
                .map_err(failed)?;
            json.print(&begun, |begun| {
                line(format!(
                    "session {} of task #{} is running",
                    begun.id, begun.task_id
                ));
                line(format!(
                    "hint: {} session end {} --exit-code N",
                    program(),
                    begun.id
                ));
            })
        }
        SessionCommand::End {
            session,
            exit_code,
            signal,
            dod_result,
            artifact,
            error,
            json,
        } => {
            let args = SessionEndArgs {
                session_id: parsed(&session)?.0,
                exit_code,
                signal,
                dod_result,
                artifacts: Some(artifact.into_iter().map(artifact_of).collect()),
                error: error.as_deref().map(object).transpose()?,
            };
            let ended = sessions::end(store, args).await.map_err(failed)?;
            json.print(&ended, |ended| {
                let end = ended.session.end.as_deref().unwrap_or_default();
                line(format!(
                    "session {} ended as {end}; task #{} is {}",
                    ended.session.id, ended.task.id, ended.task.status
                ));
            })
        }
        SessionCommand::Logs {
            session,
            follow,
            after,
            full,
            json,
        } => {
            let id = parsed(&session)?;
            let logs = Logs {
                id,
                length: Length::of(id, full),
                json,
            };
            logs.show(store, after, follow).await
        }
    }
}

fn parsed(text: &str) -> Result<SessionId> {
    text.parse().map_err(|error| {
        Failure::new(Exit::Validation, format!("{error}"))
            .hint("`agentmine session list` lists the session numbers")
            .into()
    })
}

/// Text that is no JSON is a text.
fn artifact_of(text: String) -> Value {
    serde_json::from_str(&text).unwrap_or(Value::String(text))
}

fn object(text: &str) -> Result<serde_json::Map<String, Value>> {
    serde_json::from_str(text).map_err(|error| {
        Failure::new(
            Exit::Validation,
            format!("--error is not a JSON object: {error}"),
        )
        .hint(r#"for example '{"message": "the tests failed"}'"#)
        .into()
    })
}

/// 0 is no limit.
async fn list(
    store: &dyn Store,
    task: Option<String>,
    status: Option<String>,
    limit: u32,
) -> Result<Vec<SessionView>> {
    let task_id = match task {
        Some(task) => Some(number(store, &task).await?),
        None => None,
    };
    listed(limit, async |count, cursor| {
        let args = SessionList {
            task_id,
            status: status.clone(),
            limit: Some(count),
            cursor,
        };
        let page = sessions::list(store, &args).await?;
        Ok((page.sessions, page.next_cursor))
    })
    .await
}

fn print_list(sessions: &[SessionView]) {
    if sessions.is_empty() {
        return line("no sessions");
    }
    let mut table = table(&[
        "SESSION", "TASK", "END", "CLIENT", "STARTED", "SECONDS", "MODEL", "CALLS", "TOKENS",
    ]);
    for session in sessions {
        let usage = &session.usage;
        table.add_row(vec![
            session.id.to_string(),
            format!("#{}", session.task_id),
            session.end.clone().unwrap_or_else(|| "running".to_owned()),
            cell(&session.client),
            session
                .started_at
                .get(..19)
                .unwrap_or_default()
                .replace('T', " "),
            seconds(session)
                .map(|it| format!("{it:.1}"))
                .unwrap_or_default(),
            cell(session.model.as_deref().unwrap_or_default()),
            format!("{}/{}", usage.model_calls, usage.tool_calls),
            count(usage.input_tokens + usage.output_tokens),
        ]);
    }
    line(trimmed(&table));
}

fn seconds(session: &SessionView) -> Option<f64> {
    let time = |text: &str| chrono::DateTime::parse_from_rfc3339(text).ok();
    let (start, end) = (
        time(&session.started_at)?,
        time(session.ended_at.as_deref()?)?,
    );
    Some((end - start).num_milliseconds() as f64 / 1000.0)
}

/// A session that called the model had a journal.
const JOURNAL_REMOVED: &str = "the journal of this task was removed (store.retention)";

/// The steps of a session.
struct Logs {
    id: SessionId,
    length: Length,
    json: Json,
}

impl Logs {
    async fn show(&self, store: &dyn Store, mut after: i64, follow: bool) -> Result<Exit> {
        let mut reply = LiveReply::new(!self.json.is_wanted());
        loop {
            let args = SessionLogs {
                session_id: self.id.0,
                after: Some(after),
                limit: Some(500),
            };
            let page = sessions::logs(store, &args).await.map_err(failed)?;
            if !page.steps.is_empty() {
                reply.clear();
            }
            if self.json.is_wanted() {
                for step in &page.steps {
                    line(serde_json::to_string(step)?);
                }
            } else if let Some(last) = page.steps.last() {
                self.print(store, after, last.seq).await?;
            }
            after = page.steps.last().map_or(after, |step| step.seq);
            // The reader of a pipe (`| grep -m1 …`) has what it wants.
            if is_lost() {
                return Ok(Exit::Done);
            }
            match (page.more, follow && page.running) {
                (true, _) => {}
                (false, true) => {
                    reply.draw(page.reply.as_deref());
                    tokio::time::sleep(FOLLOW).await;
                }
                (false, false) => break,
            }
        }
        reply.clear();
        if after == 0 && !self.json.is_wanted() {
            let session = store.session(self.id).await?;
            line(match session {
                Some(session) if session.usage.model_calls > 0 => JOURNAL_REMOVED,
                _ => "no steps are recorded",
            });
        }
        Ok(Exit::Done)
    }

    async fn print(&self, store: &dyn Store, after: i64, last: i64) -> Result<()> {
        let session = store.session(self.id).await?;
        let session = session.context("the session vanished")?;
        let shown = last.saturating_sub(after).try_into().unwrap_or(0);
        for step in store.session_steps(&session, Seq(after), shown).await? {
            if step.seq <= Seq(last) {
                transcript::step(&step, &self.length)?;
            }
        }
        Ok(())
    }
}

async fn show(store: &dyn Store, name: &str, as_json: Json, full: bool) -> Result<Exit> {
    let id = parsed(name)?;
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
    if as_json.is_wanted() {
        line(serde_json::to_string_pretty(
            &json!({ "session": SessionView::of(&session), "taskUsage": of_task, "takeover": takeover, "steps": steps }),
        )?);
        return Ok(Exit::Done);
    }
    let of_task = (sessions.len() > 1).then_some(of_task);
    let _pager = Pager::start();
    transcript::print(
        &session,
        (of_task, &takeover),
        &steps,
        &Length::of(id, full),
    )?;
    if steps.is_empty() && session.end.is_some() && session.usage.model_calls > 0 {
        line(JOURNAL_REMOVED);
    }
    if session.external.is_some() {
        print_external(&SessionView::of(&session));
    }
    Ok(Exit::Done)
}

/// What is known of a session that records no steps.
fn print_external(session: &SessionView) {
    let fact = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            line(format!("{name:<8} {}", one_line(&value, 400)));
        }
    };
    fact("client", Some(session.client.clone()));
    fact("agent", session.agent.clone());
    fact("tree", session.worktree.clone());
    fact("exit", session.exit_code.map(|code| code.to_string()));
    fact("signal", session.signal.clone());
    fact("checks", session.dod_result.clone());
    for artifact in &session.artifacts {
        fact("result", Some(artifact.to_string()));
    }
    fact("error", session.error.as_ref().map(ToString::to_string));
}

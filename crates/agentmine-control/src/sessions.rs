//! Sessions: those of the fleet's workers are shown, those of external clients are also begun and ended here.

use agentmine_domain::{DodResult, Seq, Session, SessionId, StepPayload};
use agentmine_store::{
    Begun, ExternalEnd, ExternalFinish, NewExternal, SessionFilter, Store, WhichSessions,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::view::{SessionView, TaskView, time};
use crate::worker::Place;
use crate::{ControlError, agents, input};

/// The agent that a session has where none is named.
pub const DEFAULT_AGENT: &str = "default";
/// Steps in one answer, unless the caller names another number.
const STEPS: u32 = 50;
/// Bytes of what a client reports as its results or its error.
const MAX_REPORT: usize = 64 * 1024;

/// Which sessions to list.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SessionList {
    /// Only sessions of this task
    pub task_id: Option<i64>,
    /// Only sessions that run, or that have ended
    #[schemars(extend("enum" = ["running", "ended"]))]
    pub status: Option<String>,
    /// How many sessions at most, newest first
    #[schemars(extend("default" = 20, "minimum" = 1, "maximum" = 500))]
    pub limit: Option<u32>,
    /// Only sessions with a number below this one: the nextCursor of the previous answer
    pub cursor: Option<i64>,
}

/// A part of the list.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionPage {
    /// The sessions, newest first.
    pub sessions: Vec<SessionView>,
    /// The cursor of the next part; null: there are no more.
    pub next_cursor: Option<i64>,
}

/// Lists sessions, newest first.
///
/// # Errors
/// [`ControlError::TaskNotFound`], [`ControlError::Validation`].
pub async fn list(store: &dyn Store, args: &SessionList) -> Result<SessionPage, ControlError> {
    let limit = crate::tasks::limit_of(args.limit)?;
    let task = match args.task_id {
        Some(number) => Some(input::task(store, number).await?.id),
        None => None,
    };
    let filter = SessionFilter {
        task,
        which: which(args.status.as_deref())?,
        before: args.cursor.map(SessionId),
        // One more shows whether there are more.
        limit: limit + 1,
    };
    let mut found = store.list_sessions(&filter).await?;
    let more = found.len() > limit as usize;
    found.truncate(limit as usize);
    Ok(SessionPage {
        next_cursor: found.last().filter(|_| more).map(|session| session.id.0),
        sessions: found.iter().map(SessionView::of).collect(),
    })
}

/// Running or ended sessions, by name.
pub(crate) fn which(status: Option<&str>) -> Result<Option<WhichSessions>, ControlError> {
    match status {
        None => Ok(None),
        Some("running") => Ok(Some(WhichSessions::Running)),
        Some("ended") => Ok(Some(WhichSessions::Ended)),
        Some(other) => Err(ControlError::Validation(format!(
            "status is {:?}, expected running or ended",
            input::shown(other)
        ))),
    }
}

/// Which session.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SessionGet {
    /// The session's number
    #[serde(alias = "id")]
    pub session_id: i64,
}

/// One session.
///
/// # Errors
/// [`ControlError::SessionNotFound`].
pub async fn get(store: &dyn Store, number: i64) -> Result<SessionView, ControlError> {
    Ok(SessionView::of(&find(store, number).await?))
}

async fn find(store: &dyn Store, number: i64) -> Result<Session, ControlError> {
    let found = store.session(SessionId(number)).await?;
    found.ok_or_else(|| ControlError::SessionNotFound(number.to_string()))
}

/// A session that a client outside of the fleet begins.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SessionStart {
    /// The task's number
    pub task_id: i64,
    /// The agent's name
    #[schemars(extend("default" = "default"))]
    pub agent: Option<String>,
    /// The client that runs it, e.g. claude-code
    #[schemars(extend("default" = "external"))]
    pub client: Option<String>,
}

/// Begins a session of a client on a task of a person.
///
/// # Errors
/// [`ControlError::SessionAlreadyRunning`]; [`ControlError::InvalidStatus`] for a task that is over, that is the
/// fleet's or a person's, or that waits for another one.
pub async fn start(
    store: &dyn Store,
    place: &Place,
    args: &SessionStart,
) -> Result<SessionView, ControlError> {
    let name = |what, given: &Option<String>, otherwise: &str| {
        let given = given.as_deref().unwrap_or_default();
        Ok::<_, ControlError>(input::name(what, given)?.unwrap_or_else(|| otherwise.to_owned()))
    };
    let new = NewExternal {
        client: name("client", &args.client, "external")?,
        agent: name("agent", &args.agent, DEFAULT_AGENT)?,
        worktree: None,
    };
    let session = begin(store, place, args.task_id, &new).await?;
    Ok(SessionView::of(&session))
}

pub(crate) async fn begin(
    store: &dyn Store,
    place: &Place,
    number: i64,
    new: &NewExternal,
) -> Result<Session, ControlError> {
    let agent = new.agent.clone();
    // Refuses one that is not defined, or whose definition has faults.
    place
        .with_agents(move |all| agents::get(all, &agent))
        .await?;
    let task = input::task(store, number).await?;
    let refused = |what: String| ControlError::InvalidStatus(format!("task {number} {what}"));
    Err(match store.begin_external(task.id, new).await? {
        Begun::Done(session) => return Ok(*session),
        Begun::Missing => ControlError::TaskNotFound(number.to_string()),
        Begun::Running(session) => ControlError::SessionAlreadyRunning {
            task: number.to_string(),
            session: session.to_string(),
        },
        Begun::Over(state) => refused(format!(
            "is {}, expected one that is not over",
            state.public()
        ))
        .next(
            format!("task_retry with taskId {number}"),
            format!("task retry {number}"),
            "opens it again",
        ),
        Begun::OfTheFleet => refused(format!(
            "is one of {}, which the fleet's workers work on",
            task.item
        ))
        .next("task_create", "task add", "makes a task for a client"),
        Begun::Human => refused("is for a person".into()).next(
            "task_update with assigneeType ai",
            format!("task update {number} --assignee-type ai"),
            "gives it to a client",
        ),
        Begun::Waits(on) => {
            let on: Vec<String> = on
                .iter()
                .map(|on| format!("{} ({})", on.number, on.state.public()))
                .collect();
            refused(format!(
                "depends on tasks that are not done: {}",
                on.join(", ")
            ))
        }
        Begun::Conflict(other) => refused(format!(
            "may change {}, and task {}, which is running, may change {}",
            other.own, other.number, other.their
        ))
        .hint("wait for its end"),
    })
}

/// How a client's session ended.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SessionEndArgs {
    /// The session's number
    pub session_id: i64,
    /// The client's exit code
    pub exit_code: i64,
    /// The signal that ended the client, e.g. SIGTERM
    pub signal: Option<String>,
    /// The definition of done: merged ends the task as done, timeout and error as failed; with pending it stays in progress, unless the client failed
    #[schemars(extend("enum" = ["pending", "merged", "timeout", "error"], "default" = "pending"))]
    pub dod_result: Option<String>,
    /// The results: paths, addresses, or objects that describe them
    #[schemars(extend("items" = crate::view::artifact_schema()))]
    pub artifacts: Option<Vec<Value>>,
    /// What went wrong
    #[schemars(extend("type" = "object"))]
    pub error: Option<serde_json::Map<String, Value>>,
}

/// A session that has ended, and its task.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct SessionEnded {
    /// The session.
    pub session: SessionView,
    /// The task as it is now.
    pub task: TaskView,
}

/// Ends a client's session.
///
/// # Errors
/// [`ControlError::InvalidStatus`] if it has ended before, or if a worker of the fleet runs it. Then nothing is
/// changed.
pub async fn end(store: &dyn Store, args: SessionEndArgs) -> Result<SessionEnded, ControlError> {
    let expected = "pending, merged, timeout or error";
    let signal = args.signal.as_deref().unwrap_or_default();
    let end = ExternalEnd {
        exit_code: args.exit_code,
        signal: input::name("signal", signal)?,
        dod_result: input::named("dodResult", args.dod_result.as_deref(), expected)?
            .unwrap_or(DodResult::Pending),
        artifacts: args.artifacts.unwrap_or_default(),
        error: args.error.map(Value::Object),
    };
    let size =
        serde_json::to_string(&(&end.artifacts, &end.error)).map_or(usize::MAX, |it| it.len());
    if size > MAX_REPORT {
        return Err(ControlError::Validation(format!(
            "artifacts and error have {size} bytes, expected at most {MAX_REPORT}"
        )));
    }
    let number = args.session_id;
    match store.end_external(SessionId(number), &end).await? {
        ExternalFinish::Done(session, task) => Ok(SessionEnded {
            session: SessionView::of(&session),
            task: TaskView::of(&task),
        }),
        ExternalFinish::Missing => Err(ControlError::SessionNotFound(number.to_string())),
        ExternalFinish::Over(session) => {
            let how = session
                .end
                .map_or("ended", agentmine_domain::SessionEnd::as_str);
            let at = session.ended_at.map(time).unwrap_or_default();
            Err(ControlError::InvalidStatus(format!(
                "session {number} ended already, as {how} at {at}"
            )))
        }
        ExternalFinish::OfTheFleet => Err(ControlError::InvalidStatus(format!(
            "a worker of the fleet runs session {number}, expected one of a client"
        ))
        .next(
            "task_cancel or task_pause",
            "task cancel|pause",
            "stops the worker",
        )),
    }
}

/// Which steps of a session to show.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SessionLogs {
    /// The session's number
    #[serde(alias = "id")]
    pub session_id: i64,
    /// Only steps after this one: the last seq of the previous answer
    pub after: Option<i64>,
    /// How many steps at most, oldest first
    #[schemars(extend("default" = 50, "minimum" = 1, "maximum" = 500))]
    pub limit: Option<u32>,
}

/// Steps of a session.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StepPage {
    /// The session's number.
    pub session_id: i64,
    /// Whether the session has not ended, so that steps may follow.
    pub running: bool,
    /// The steps, oldest first. A client outside the fleet records none.
    pub steps: Vec<StepView>,
    /// Whether there are more steps already.
    pub more: bool,
    /// The part of its next reply that the model has written so far; otherwise null. It is recorded while somebody follows: from
    /// the first call of session_logs on, until some seconds after the last one.
    pub reply: Option<String>,
}

/// A step.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StepView {
    /// Its position in the task's journal.
    pub seq: i64,
    /// prompt, model_reply, tool_result, phase, fact or note.
    pub kind: String,
    /// When it was recorded.
    pub at: String,
    /// How long it took, in milliseconds.
    pub duration_ms: u64,
    /// What is recorded.
    #[schemars(with = "Value")]
    pub payload: StepPayload,
}

/// The steps of a session, as recorded.
///
/// # Errors
/// [`ControlError::SessionNotFound`], [`ControlError::Validation`].
pub async fn logs(store: &dyn Store, args: &SessionLogs) -> Result<StepPage, ControlError> {
    let limit = crate::tasks::limit_of(Some(args.limit.unwrap_or(STEPS)))?;
    // Read before its steps: what is recorded until the end of a session is then among them.
    let session = find(store, args.session_id).await?;
    let after = Seq(args.after.unwrap_or(0));
    // One more shows whether there are more.
    let mut steps = store.session_steps(&session, after, limit + 1).await?;
    let more = steps.len() > limit as usize;
    steps.truncate(limit as usize);
    let shown = steps.into_iter().map(|step| StepView {
        seq: step.seq.0,
        kind: step.kind.to_string(),
        at: time(step.at),
        duration_ms: step.duration_ms,
        payload: step.payload,
    });
    let reply = match session.end.is_none() && !more {
        true => store.follow_reply(&session).await?,
        false => None,
    };
    Ok(StepPage {
        session_id: session.id.0,
        running: session.end.is_none(),
        more,
        reply,
        steps: shown.collect(),
    })
}

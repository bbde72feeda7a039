//! The tools of sessions.

use super::tool::{Effect, ToolDef};
use crate::sessions::{self, SessionEndArgs, SessionGet, SessionList, SessionLogs, SessionStart};

pub(super) fn tools() -> Vec<ToolDef> {
    vec![
        ToolDef::new(
            "session_start",
            "Begin a session",
            "Begins a session of a client on a task that a person created. worker_command does this too, and creates \
             a work tree. A task has at most one running session.",
            Effect::Adds,
            |it, args: SessionStart| {
                Box::pin(async move { sessions::start(it.store.as_ref(), &it.place, &args).await })
            },
        ),
        ToolDef::new(
            "session_end",
            "End a session",
            "Ends a session of a client with its exit code, and sets the status of its task accordingly.",
            Effect::Ends,
            |it, args: SessionEndArgs| {
                Box::pin(async move { sessions::end(it.store.as_ref(), args).await })
            },
        ),
        ToolDef::new(
            "session_list",
            "List sessions",
            "Lists sessions, newest first: those of the fleet's workers and those of clients.",
            Effect::Reads,
            |it, args: SessionList| {
                Box::pin(async move { sessions::list(it.store.as_ref(), &args).await })
            },
        ),
        ToolDef::new(
            "session_get",
            "Show a session",
            "Shows one session: how it ended, and what it used.",
            Effect::Reads,
            |it, args: SessionGet| {
                Box::pin(async move { sessions::get(it.store.as_ref(), args.session_id).await })
            },
        ),
        ToolDef::new(
            "session_logs",
            "Read a session's steps",
            "Returns the recorded steps of a session of the fleet, oldest first. Call it again with after to follow a \
             running one.",
            Effect::Reads,
            |it, args: SessionLogs| {
                Box::pin(async move { sessions::logs(it.store.as_ref(), &args).await })
            },
        ),
    ]
}

//! The tools that start work.

use super::tool::{Effect, ToolDef};
use crate::worker::{self, WorkerList, WorkerRemove, WorkerStart};

pub(super) fn tools() -> Vec<ToolDef> {
    vec![
        ToolDef::new(
            "worker_command",
            "Start work on a task",
            "For a client such as claude-code: creates a git work tree on the task's branch, begins a session, and \
             returns the command that starts the client there. Run it in a shell, then call session_end. With the client \
             agentmine: queues the task for the fleet's workers.",
            Effect::Adds,
            |it, args: WorkerStart| {
                Box::pin(async move { worker::start(it.store.as_ref(), &it.place, &args).await })
            },
        ),
        ToolDef::new(
            "worker_list",
            "List workers",
            "Lists who works on a task now, and the work trees of this repository.",
            Effect::Reads,
            |it, args: WorkerList| {
                Box::pin(async move { worker::list(it.store.as_ref(), &it.place, &args).await })
            },
        ),
        ToolDef::new(
            "worker_remove",
            "Remove a work tree",
            "Removes the work tree of a task; its branch stays. Refused if it has changes that are not committed, unless \
             force is set.",
            Effect::Ends,
            |it, args: WorkerRemove| {
                Box::pin(async move { worker::remove(it.store.as_ref(), &it.place, &args).await })
            },
        ),
    ]
}

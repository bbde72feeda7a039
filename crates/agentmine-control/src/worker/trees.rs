//! The work trees of external clients: one for each task.

use std::path::PathBuf;

use agentmine_domain::{Task, TaskId};
use agentmine_git::{Force, View, Worktree, WorktreeError};
use agentmine_runtime::own_folder;
use agentmine_store::{Store, WhichSessions};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::blocking::blocking;
use super::place::Place;
use crate::{ControlError, input};

/// With this begin the names of our work trees in a repository.
const PREFIX: &str = "agentmine-";

/// Which workers to list.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkerList {
    /// Only workers of this client: agentmine, claude-code, codex, gemini-cli or another
    pub client: Option<String>,
    /// Only workers whose session runs, or has ended
    #[schemars(extend("enum" = ["running", "ended"]))]
    pub status: Option<String>,
    /// How many workers at most, those of the newest tasks first
    #[schemars(extend("default" = 20, "minimum" = 1, "maximum" = 500))]
    pub limit: Option<u32>,
}

/// The workers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct WorkerPage {
    /// Who works on a task now, and the work trees of this repository.
    pub workers: Vec<WorkerView>,
}

/// A worker, or the work tree that one left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkerView {
    /// The task's number.
    pub task_id: i64,
    /// agentmine, or the external client.
    pub client: String,
    /// The session's number.
    pub session_id: Option<i64>,
    /// Whether the session is running.
    pub running: bool,
    /// The folder of the work tree, if it is one of this repository.
    pub worktree: Option<String>,
    /// The branch.
    pub branch: String,
}

/// Lists who works on a task now, and the work trees of the repository.
///
/// # Errors
/// [`ControlError::Validation`] for an unknown status or a limit out of range. Outside of a repository there are no work
/// trees.
pub async fn list(
    store: &dyn Store,
    place: &Place,
    args: &WorkerList,
) -> Result<WorkerPage, ControlError> {
    const MOST: u32 = 500;
    let limit = crate::tasks::limit_of(args.limit)?;
    let which = crate::sessions::which(args.status.as_deref())?;
    let project = place.project.clone();
    let trees = blocking(move || {
        let view = View::open(&project).map_err(git_error)?;
        view.worktrees(PREFIX).map_err(git_error)
    })
    .await
    .unwrap_or_default();
    let mut workers = Vec::new();
    for tree in &trees {
        if let Some(task) = task_of(store, tree).await? {
            let session = store.sessions(Some(task.id), 1).await?.pop();
            let external = session.as_ref().and_then(|it| it.external.as_ref());
            workers.push(WorkerView {
                task_id: task.number.0,
                client: external.map_or_else(|| "agentmine".to_owned(), |it| it.client.clone()),
                session_id: session.as_ref().map(|it| it.id.0),
                running: session.as_ref().is_some_and(|it| it.end.is_none()),
                worktree: Some(tree.path.display().to_string()),
                branch: task.branch(),
            });
        }
    }
    let running = store.sessions_with_tasks(WhichSessions::Running, MOST);
    for (session, task) in running.await? {
        let number = session.task_number.0;
        if workers.iter().any(|it| it.task_id == number) {
            continue;
        }
        let external = session.external.as_ref();
        workers.push(WorkerView {
            task_id: number,
            client: external.map_or_else(|| "agentmine".to_owned(), |it| it.client.clone()),
            session_id: Some(session.id.0),
            running: true,
            worktree: None,
            branch: task.branch(),
        });
    }
    workers.retain(|it| {
        let is_of = args
            .client
            .as_ref()
            .is_none_or(|client| *client == it.client);
        is_of && which.is_none_or(|which| it.running == (which == WhichSessions::Running))
    });
    workers.sort_by_key(|it| std::cmp::Reverse(it.task_id));
    workers.truncate(limit as usize);
    Ok(WorkerPage { workers })
}

/// Which work tree to remove.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WorkerRemove {
    /// The task's number
    pub task_id: i64,
    /// Whether to remove it even if it has uncommitted changes, which are lost
    #[schemars(extend("default" = false))]
    pub force: Option<bool>,
}

/// Removes the work tree of a task. Its branch stays.
///
/// # Errors
/// [`ControlError::SessionAlreadyRunning`] while its client runs; [`ControlError::InvalidStatus`] if it has changes
/// that are not committed, unless it is forced; [`ControlError::Git`] if there is none.
pub async fn remove(
    store: &dyn Store,
    place: &Place,
    args: &WorkerRemove,
) -> Result<WorkerView, ControlError> {
    let task = input::task(store, args.task_id).await?;
    let session = store.sessions(Some(task.id), 1).await?.pop();
    if let Some(running) = session.as_ref().filter(|it| it.end.is_none()) {
        return Err(ControlError::SessionAlreadyRunning {
            task: task.number.to_string(),
            session: running.id.to_string(),
        });
    }
    let force = match args.force.unwrap_or(false) {
        true => Force::Yes,
        false => Force::No,
    };
    let (project, name) = (place.project.clone(), tree_name(&task));
    let removed = blocking(move || {
        let view = View::open(&project).map_err(git_error)?;
        view.remove_worktree(&name, force).map_err(git_error)
    })
    .await?;
    let external = session.as_ref().and_then(|it| it.external.as_ref());
    Ok(WorkerView {
        task_id: task.number.0,
        client: external.map(|it| it.client.clone()).unwrap_or_default(),
        session_id: session.as_ref().map(|it| it.id.0),
        running: false,
        worktree: Some(removed.path.display().to_string()),
        branch: task.branch(),
    })
}

/// The task that a work tree was made for. Its name has the UUID, since several stores may count the same numbers.
async fn task_of(store: &dyn Store, tree: &Worktree) -> Result<Option<Task>, ControlError> {
    let id = tree
        .name
        .strip_prefix(PREFIX)
        .and_then(|id| id.parse::<TaskId>().ok());
    match id {
        Some(id) => Ok(store.task(id).await?),
        None => Ok(None),
    }
}

/// The name of a task's work tree in the repository.
pub(super) fn tree_name(task: &Task) -> String {
    format!("{PREFIX}{}", task.id)
}

/// The folder of a task's work tree. Two repositories of one name have different ones.
pub(super) fn path_of(place: &Place, view: &View, task: &Task) -> Result<PathBuf, ControlError> {
    let top = view.top();
    let name = top.file_name().map(|it| it.to_string_lossy().into_owned());
    let digest = Sha256::digest(top.as_os_str().as_encoded_bytes());
    let digest: String = digest
        .iter()
        .take(4)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let folder = place
        .worktrees
        .join(format!("{}-{digest}", name.unwrap_or_default()));
    // From the top down: whoever owns a folder can replace what is in it.
    let state = place.worktrees.parent().into_iter();
    for folder in state.chain([place.worktrees.as_path(), folder.as_path()]) {
        own_folder::create(folder).map_err(|error| {
            ControlError::Git(format!("{} cannot be made: {error}", folder.display()))
        })?;
    }
    Ok(folder.join(format!("task-{}-{}", task.number, task.id.short())))
}

pub(super) fn git_error(error: impl Into<WorktreeError>) -> ControlError {
    let error = error.into();
    let text = error.to_string();
    match error {
        WorktreeError::Uncommitted { .. } => ControlError::InvalidStatus(text).next(
            "worker_remove with force",
            "worker remove TASK --force",
            "removes it with them; to keep them, commit them first",
        ),
        WorktreeError::Missing(_) => ControlError::Git(
            "there is no work tree of this task in this repository".into(),
        )
        .next("worker_list", "worker list", "lists the work trees"),
        WorktreeError::NoCommit(_) => ControlError::Git(text).hint("commit something first"),
        WorktreeError::Occupied(_) => {
            ControlError::Git(text).hint("look at what is in it, then move it away")
        }
        WorktreeError::View(view) => ControlError::Git(text).hint(
            view.hint()
                .unwrap_or_else(|| "start it in a folder of the task's git repository".to_owned()),
        ),
        WorktreeError::Io { .. }
        | WorktreeError::Git { .. }
        | WorktreeError::InUse { .. }
        | WorktreeError::Unsupported(_) => ControlError::Git(text),
    }
}

#[cfg(test)]
mod tests {
    use agentmine_git::ViewError;

    use super::*;

    #[test]
    fn the_hint_of_a_repository_that_cannot_be_used_is_no_part_of_its_text() {
        let foreign = || ViewError::Foreign {
            folder: "/srv/a. hint: b".into(),
            owner: 1000,
        };
        for error in [
            git_error(foreign()),
            git_error(WorktreeError::from(foreign())),
        ] {
            let text = error.to_string();
            assert!(
                text.starts_with("/srv/a. hint: b belongs to user 1000"),
                "{text}"
            );
            let hint = error.next_action().unwrap().for_tools();
            assert!(hint.starts_with("run this as that user"), "{hint}");
        }
    }
}

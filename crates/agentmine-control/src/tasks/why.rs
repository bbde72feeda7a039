//! Why a task is or is not being worked on.

use agentmine_store::Store;
use schemars::JsonSchema;
use serde::Deserialize;

use super::reasons::{Why, of_task};
use super::untaken::why_of_item;
use crate::fleet::Fleet;
use crate::worker::Place;
use crate::{ControlError, input};

/// Which task or item.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TaskWhy {
    /// The task's number
    #[serde(alias = "id")]
    pub task_id: Option<i64>,
    /// Instead of a task, an item of a tracker, even one that has no task: owner/name#7, group/project!7, or its web address
    pub item: Option<String>,
}

/// The reasons, and what the task is or would be worked on with. The trackers are asked about an item that has no task,
/// and about the files of the repository; about an item with a task that is not over, the store alone says why.
///
/// # Errors
/// [`ControlError::TaskNotFound`], [`ControlError::ItemNotFound`]; [`ControlError::Validation`] unless one of both is
/// named.
pub async fn why(
    store: &dyn Store,
    fleet: &Fleet,
    place: &Place,
    args: &TaskWhy,
) -> Result<Why, ControlError> {
    match (args.task_id, args.item.as_deref()) {
        (Some(number), None) => {
            let task = input::task(store, number).await?;
            let held = store.held_requests().await?;
            let held = held.iter().find(|held| held.request.item == task.item);
            of_task(store, fleet, place, &task, held).await
        }
        (None, Some(name)) => why_of_item(store, fleet, place, name.trim()).await,
        (None, None) | (Some(_), Some(_)) => Err(ControlError::Validation(
            "expected either taskId or item".into(),
        )),
    }
}

//! What people and clients give to operations: limits, and names that are one of a few.

use std::fmt::Display;
use std::str::FromStr;

use agentmine_domain::{Task, TaskId, TaskNumber, WriteScope};
use agentmine_runtime::config::{BUILT_IN, is_agent_name};
use agentmine_store::Store;

use crate::ControlError;

/// Characters of a title.
const MAX_TITLE: usize = 300;
/// Bytes of a description.
const MAX_DESCRIPTION: usize = 60_000;
/// Characters of a name.
const MAX_NAME: usize = 100;
/// Tasks that one may depend on.
const MAX_DEPENDENCIES: usize = 50;

/// A name that is one of a few.
pub(crate) fn named<T: FromStr>(
    what: &str,
    text: Option<&str>,
    expected: &str,
) -> Result<Option<T>, ControlError> {
    let Some(text) = text else {
        return Ok(None);
    };
    let parsed = text.parse().map(Some);
    parsed.map_err(|_| {
        ControlError::Validation(format!("{what} is {:?}, expected {expected}", shown(text)))
            .hint("give one of these")
    })
}

/// A title: one line that is not empty.
pub(crate) fn title(text: &str) -> Result<String, ControlError> {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let length = line.chars().count();
    if length == 0 || length > MAX_TITLE {
        return Err(ControlError::Validation(format!(
            "the title has {length} characters, expected 1 to {MAX_TITLE}"
        )));
    }
    Ok(line)
}

pub(crate) fn description(text: &str) -> Result<String, ControlError> {
    match text.len() {
        0..=MAX_DESCRIPTION => Ok(text.to_owned()),
        length => Err(ControlError::Validation(format!(
            "the description has {length} bytes, expected at most {MAX_DESCRIPTION}"
        ))),
    }
}

/// A person's, a client's or an agent's name; an empty one is none.
pub(crate) fn name(what: &str, text: &str) -> Result<Option<String>, ControlError> {
    let text = text.trim();
    if text.chars().count() > MAX_NAME || text.chars().any(char::is_control) {
        return Err(ControlError::Validation(format!(
            "{what} is {:?}, expected at most {MAX_NAME} characters on one line",
            shown(text)
        )));
    }
    Ok((!text.is_empty()).then(|| text.to_owned()))
}

/// The name of an agent; `None` for the default one.
pub(crate) fn agent(text: &str) -> Result<Option<String>, ControlError> {
    let name = text.trim();
    if !name.is_empty() && !is_agent_name(name) {
        return Err(ControlError::Validation(format!(
            "agent is {:?}, expected 1 to 64 of a-z, 0-9 and -",
            shown(name)
        ))
        .hint("agent_list (`agentmine agent list`) lists the agents"));
    }
    Ok((!name.is_empty() && name != BUILT_IN).then(|| name.to_owned()))
}

pub(crate) fn dependencies(numbers: &[i64]) -> Result<Vec<TaskNumber>, ControlError> {
    if numbers.len() > MAX_DEPENDENCIES {
        return Err(ControlError::Validation(format!(
            "dependsOn names {} tasks, expected at most {MAX_DEPENDENCIES}",
            numbers.len()
        )));
    }
    Ok(numbers.iter().copied().map(TaskNumber).collect())
}

pub(crate) fn scope(patterns: Vec<String>) -> Result<WriteScope, ControlError> {
    WriteScope::new(patterns).map_err(|error| {
        ControlError::Validation(error.to_string()).hint("for example src/store or docs/**/*.md")
    })
}

/// A task by its number.
pub(crate) async fn task(store: &dyn Store, number: i64) -> Result<Task, ControlError> {
    let found = store.task_by_number(TaskNumber(number)).await?;
    found.ok_or_else(|| ControlError::TaskNotFound(number.to_string()))
}

/// A task by what a person wrote: its number, with or without `#`, or its UUID.
///
/// # Errors
/// [`ControlError::TaskNotFound`], also for what is neither a number nor a UUID.
pub async fn find_task(store: &dyn Store, text: &str) -> Result<Task, ControlError> {
    let found = match (text.parse::<TaskNumber>(), text.parse::<TaskId>()) {
        (Ok(number), _) => store.task_by_number(number).await?,
        (_, Ok(id)) => store.task(id).await?,
        (Err(error), Err(_)) => {
            return Err(ControlError::Validation(error.to_string())
                .hint("use the task's number or its UUID"));
        }
    };
    found.ok_or_else(|| ControlError::TaskNotFound(shown(text)))
}

/// The beginning of what somebody wrote, for an error.
pub(crate) fn shown(text: &(impl Display + ?Sized)) -> String {
    text.to_string().chars().take(MAX_NAME).collect()
}

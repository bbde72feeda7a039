//! Objections to a request, and to the text of an item.

use agentmine_domain::{ItemRef, Task};
use chrono::{DateTime, Utc};

use crate::error::TrackerError;
use crate::people::{Admission, Edit, Person, Requested};
use crate::tracker::Tracker;

/// Why a request does not start work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Objection {
    /// A stable name of the reason.
    pub code: &'static str,
    /// The reason as a sentence, for people.
    pub message: String,
}

/// The objection to starting work because of this request; `None` if somebody who may start work made it.
///
/// # Errors
/// Returns errors of the tracker that concern more than this item. One that concerns it alone is an objection.
pub async fn objection_to_request(
    tracker: &dyn Tracker,
    item: &ItemRef,
    requested: &Requested,
) -> Result<Option<Objection>, TrackerError> {
    let Some(person) = &requested.by else {
        return Ok(Some(Objection {
            code: "unknown_requester",
            message: "The tracker does not know who added the label. Add it again.".to_owned(),
        }));
    };
    Ok(match tracker.may_start(item, person).await {
        Ok(Admission::Granted) => None,
        Ok(Admission::Refused(why)) => Some(Objection {
            code: "not_allowed",
            message: format!(
                "{} added the label and may not start work: {why}. Somebody who may start work has to add it again.",
                person.login
            ),
        }),
        Err(error) if crate::forge::concerns_one(&error) => Some(Objection {
            code: "permission_unknown",
            message: format!(
                "Whether {} may start work cannot be checked: {error}.",
                person.login
            ),
        }),
        Err(error) => return Err(error),
    })
}

/// The objection to the text of a task's item as it is now, by [`objection_to_text`] since the work was requested.
///
/// # Errors
/// Returns errors of the tracker.
pub async fn objection_to_text_of(
    tracker: &dyn Tracker,
    task: &Task,
) -> Result<Option<Objection>, TrackerError> {
    let trigger = task.answered_trigger.as_ref().unwrap_or(&task.trigger);
    let requested = tracker.requested(&task.item, trigger).await?;
    // A task that a person made again with the command line has no event: it was requested when it was made.
    let since = requested.and_then(|it| it.at).unwrap_or(task.created_at);
    objection_to_text(tracker, &task.item, since).await
}

/// The objection to working on an item's text as it is now: somebody who may not start work changed it after it
/// was requested. Ask after the text was read.
///
/// # Errors
/// Returns errors of the tracker.
pub async fn objection_to_text(
    tracker: &dyn Tracker,
    item: &ItemRef,
    since: DateTime<Utc>,
) -> Result<Option<Objection>, TrackerError> {
    let mut asked: Vec<Person> = Vec::new();
    for Edit { what, by, at } in tracker.edits(item, since).await? {
        let why = match &by {
            None => "the account is gone".to_owned(),
            Some(person) if asked.contains(person) => continue,
            Some(person) => match tracker.may_start(item, person).await? {
                Admission::Granted => {
                    asked.push(person.clone());
                    continue;
                }
                Admission::Refused(why) => why,
            },
        };
        let who = by.as_ref().map_or("somebody", |by| by.login.as_str());
        return Ok(Some(Objection {
            code: "edited",
            message: format!(
                "{who} changed the {what} at {} after the work was requested, and may not start work: {why}",
                at.format("%Y-%m-%d %H:%M UTC")
            ),
        }));
    }
    Ok(None)
}

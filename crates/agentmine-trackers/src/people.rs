//! Who asked for work, who may, and who changed what was requested.

use agentmine_domain::{ItemRef, Task};
use chrono::{DateTime, Utc};

use crate::error::TrackerError;
use crate::tracker::Tracker;

/// Somebody on a tracker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Person {
    /// The login name.
    pub login: String,
    /// The tracker's number of the account, where that is what it asks for.
    pub id: Option<u64>,
    /// Whether the tracker calls it a bot.
    pub is_bot: bool,
}

impl Person {
    /// Whether a program writes with this account: the tracker calls it a bot, or it is named as the account of a GitLab
    /// project's or group's token (`project_12_bot_ab`), or as GitLab names service accounts (`service_account_ab`).
    #[must_use]
    pub fn is_program(&self) -> bool {
        let of_token = ["project_", "group_"].iter().any(|begin| {
            let rest = self.login.strip_prefix(begin).unwrap_or_default();
            let (id, rest) = rest.split_once('_').unwrap_or_default();
            let is_number = |text: &str| text.bytes().all(|c| c.is_ascii_digit());
            // `bot`, `bot1` of older versions, `bot_ab12`.
            let of_bot = rest.strip_prefix("bot");
            let is_bot = of_bot.is_some_and(|rest| rest.starts_with('_') || is_number(rest));
            !id.is_empty() && is_number(id) && is_bot
        });
        let of_service = self.login.starts_with("service_account_");
        self.is_bot || self.login.ends_with("[bot]") || of_token || of_service
    }

    /// A person whose account is gone, as forges show it.
    pub(crate) fn ghost() -> Self {
        Self {
            login: "ghost".to_owned(),
            id: None,
            is_bot: false,
        }
    }
}

/// A request for work: who added the label, and when.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Requested {
    /// `None`: the tracker does not know, as for items that were imported.
    pub by: Option<Person>,
    /// By the tracker's clock, in whole seconds at most; `None` if it does not know.
    pub at: Option<DateTime<Utc>>,
}

/// Whether a person may start work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admission {
    /// The person may.
    Granted,
    /// The person may not; why, as the end of a sentence that begins with the name.
    Refused(String),
}

/// A change of an item's title or text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    /// What was changed: `title` or `text`.
    pub what: &'static str,
    /// Who did it; `None` if the account is gone.
    pub by: Option<Person>,
    /// When.
    pub at: DateTime<Utc>,
}

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

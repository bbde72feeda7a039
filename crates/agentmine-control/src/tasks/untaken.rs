//! Why an item of a tracker has no task that is not over: the tracker is asked what a scan would ask.

use agentmine_domain::{ItemRef, Task, TaskState};
use agentmine_runtime::config::same_label;
use agentmine_store::why::{held_back, over};
use agentmine_store::{Held, Store, TaskFilter};
use agentmine_trackers::{Item, LabelRequest, Tracker, TrackerError, objection_to_request};

use super::reasons::{Reason, Why, of_task};
use crate::fleet::{Environment, Fleet, Found, Subject, environment, in_time};
use crate::worker::Place;
use crate::{ControlError, input};

/// The newest tasks, among which one is looked for by the name of its item where no tracker can be asked.
const RECENT: u32 = 500;

/// The reasons for an item, by its name (`owner/name#7`, `group/project!7`) or its address.
///
/// # Errors
/// [`ControlError::ItemNotFound`] if its tracker does not have it.
pub(super) async fn why_of_item(
    store: &dyn Store,
    fleet: &Fleet,
    place: &Place,
    name: &str,
) -> Result<Why, ControlError> {
    let held = store.held_requests().await?;
    let held = held
        .iter()
        .find(|it| is_named(&it.request.item, &it.request.url, name));
    let known = match held {
        Some(held) => store.latest_task(&held.request.item).await?,
        None => recent(store, name).await?,
    };
    let why = match known.filter(is_open) {
        Some(task) => of_task(store, fleet, place, &task, held).await?,
        None => ask(store, fleet, place, name, held).await?,
    };
    Ok(Why {
        item: Some(input::shown(name)),
        ..why
    })
}

fn is_open(task: &Task) -> bool {
    !matches!(task.state, TaskState::Ended(_))
}

fn is_named(item: &ItemRef, url: &str, name: &str) -> bool {
    item.to_string().eq_ignore_ascii_case(name) || url == name
}

/// The newest task of an item, by its name.
async fn recent(store: &dyn Store, name: &str) -> Result<Option<Task>, ControlError> {
    let filter = TaskFilter {
        limit: RECENT,
        ..TaskFilter::default()
    };
    let mut tasks = store.tasks(&filter).await?.into_iter();
    Ok(tasks.find(|task| is_named(&task.item, &task.url, name)))
}

/// What its tracker says.
async fn ask(
    store: &dyn Store,
    fleet: &Fleet,
    place: &Place,
    name: &str,
    held: Option<&Held>,
) -> Result<Why, ControlError> {
    let (tracker, item) = match fleet.find(name).await {
        Found::Item(tracker, item) => (tracker, item),
        Found::Failed(TrackerError::NotFound { tracker, what }) => {
            return Err(ControlError::ItemNotFound(format!(
                "{what} was not found on {tracker}"
            )));
        }
        Found::Failed(error) => return unknown(store, fleet, name, held, failed(&error)).await,
        Found::Late => return unknown(store, fleet, name, held, late()).await,
        Found::Foreign => return unknown(store, fleet, name, held, foreign(fleet)).await,
    };
    let task = store.latest_task(&item).await?;
    if let Some(task) = task.as_ref().filter(|task| is_open(task)) {
        return of_task(store, fleet, place, task, held).await;
    }
    let mut reasons = Vec::new();
    if store.dashboards().await?.iter().any(|it| it.is(&item)) {
        let message = format!("{item} is the dashboard of its repository, which is never a task.");
        reasons.push(Reason::new("refused", message));
    }
    if !is_scanned(tracker.as_ref(), &item) {
        reasons.push(Reason::new(
            "not_scanned",
            format!(
                "{} is not a repository that trackers.{} scans.",
                item.repo_path,
                tracker.kind()
            ),
        ));
    }
    let asked = in_time(reasons_of(fleet, tracker.as_ref(), &item, task.as_ref())).await;
    reasons.extend(match asked {
        Some(Ok(found)) => found,
        Some(Err(error)) => vec![failed(&error)],
        None => vec![late()],
    });
    if reasons.is_empty() {
        let seconds = fleet.config().producer.interval_seconds;
        reasons.push(Reason::new(
            "next_scan",
            format!(
                "Nothing prevents it: the next scan of a producer takes it within {seconds} seconds. If none does, \
                 no producer is running, or its log shows why the scan fails."
            ),
        ));
    }
    let agent = task.as_ref().and_then(|task| task.card.agent.as_deref());
    let subject = Subject::Item(tracker.as_ref(), &item);
    let environment = environment(fleet, place, subject, agent).await;
    Ok(untaken(task.as_ref(), held, reasons, Some(environment)))
}

fn is_scanned(tracker: &dyn Tracker, item: &ItemRef) -> bool {
    tracker.scans(&item.repo_path) || tracker.searches()
}

/// What is in the way of an item's request, the strongest first.
async fn reasons_of(
    fleet: &Fleet,
    tracker: &dyn Tracker,
    item: &ItemRef,
    task: Option<&Task>,
) -> Result<Vec<Reason>, TrackerError> {
    let found = tracker.item(item).await?;
    let mut reasons = Vec::new();
    if !found.open {
        reasons.push(Reason::new("closed", format!("{item} is closed.")));
    }
    let label = &fleet.config().labels.request;
    match tracker.label_request(item, label).await? {
        LabelRequest::Absent => reasons.push(no_label(fleet, &found)),
        LabelRequest::Unknown => reasons.push(Reason::new(
            "label_unknown",
            format!(
                "It has the label `{label}`, but {} does not report yet who added it. A later scan checks again.",
                tracker.kind()
            ),
        )),
        LabelRequest::By { trigger, .. } => {
            let requested = tracker.requested(item, &trigger).await?.unwrap_or_default();
            let objection = objection_to_request(tracker, item, &requested).await?;
            reasons.extend(objection.map(|it| Reason::new(it.code, it.message)));
            if let Some(task) = task.filter(|task| task.answers(&trigger)) {
                reasons.push(Reason::new(
                    "answered",
                    format!(
                        "Task {} was the result of the label `{label}`. To request work again, remove the label and \
                         add it once more.",
                        task.number
                    ),
                ));
            }
        }
    }
    Ok(reasons)
}

fn no_label(fleet: &Fleet, found: &Item) -> Reason {
    let labels = &fleet.config().labels;
    let entries = labels.entries();
    let mut carried = entries.iter().filter_map(|(_, own)| {
        let is_own = |label: &&String| same_label(label, own);
        found.labels.iter().find(is_own)
    });
    let other = carried
        .next()
        .map_or_else(String::new, |other| format!(" It carries `{other}`."));
    Reason::new(
        "no_label",
        format!(
            "It does not have the label `{}`, which requests work.{other}",
            labels.request
        ),
    )
}

/// What the store alone knows.
async fn unknown(
    store: &dyn Store,
    fleet: &Fleet,
    name: &str,
    held: Option<&Held>,
    reason: Reason,
) -> Result<Why, ControlError> {
    let task = match held {
        Some(held) => store.latest_task(&held.request.item).await?,
        None => recent(store, name).await?,
    };
    let mut reasons = vec![reason];
    reasons.extend(fleet.faults().iter().map(failed));
    Ok(untaken(task.as_ref(), held, reasons, None))
}

/// A held request says more than that the tracker cannot be asked.
fn untaken(
    task: Option<&Task>,
    held: Option<&Held>,
    mut reasons: Vec<Reason>,
    environment: Option<Environment>,
) -> Why {
    if let Some(held) = held {
        reasons.retain(|reason| reason.code != held.request.code);
        reasons.insert(0, held_back(held).into());
    }
    reasons.extend(task.and_then(over).map(Reason::from));
    Why {
        id: task.map(|task| task.number.0),
        item: None,
        status: match (held, task) {
            (_, Some(task)) => task.state.public().to_string(),
            (Some(_), None) => "held".to_owned(),
            (None, None) => "no_task".to_owned(),
        },
        is_worked_on: false,
        reasons,
        environment,
    }
}

fn foreign(fleet: &Fleet) -> Reason {
    let message = match !fleet.config().trackers.is_empty() {
        true => {
            "No configured tracker has an item of that name: it is on another host, or it is not written as owner/name#7."
        }
        false => "No tracker is configured. Name the fleet's configuration with --config.",
    };
    Reason::new("no_tracker", message)
}

fn late() -> Reason {
    Reason::new("tracker_unavailable", "The tracker did not answer in time.")
}

fn failed(error: &TrackerError) -> Reason {
    let code = match error {
        TrackerError::Unauthorized { .. }
        | TrackerError::Forbidden { .. }
        | TrackerError::Archived { .. } => "no_access",
        TrackerError::NotFound { .. } => "not_found",
        TrackerError::Refused { .. }
        | TrackerError::Confidential { .. }
        | TrackerError::Invalid { .. } => "refused",
        TrackerError::RateLimited { .. }
        | TrackerError::Unavailable { .. }
        | TrackerError::NotPermitted { .. } => "tracker_unavailable",
    };
    Reason::new(code, format!("{error}."))
}

#[cfg(test)]
mod tests {
    use agentmine_domain::TrackerKind;

    use super::*;

    #[test]
    fn the_schema_lists_every_code_of_a_tracker_that_failed() {
        let schema = schemars::schema_for!(Reason).to_value();
        let described = schema["properties"]["code"]["description"]
            .as_str()
            .unwrap();
        let listed: Vec<&str> = described.split([' ', ',', '.']).collect();
        let tracker = TrackerKind::GitHub;
        let (what, detail) = (String::new, String::new);
        for error in [
            TrackerError::Unauthorized {
                tracker,
                detail: detail(),
                hint: String::new(),
            },
            TrackerError::NotFound {
                tracker,
                what: what(),
            },
            TrackerError::Refused {
                tracker,
                detail: detail(),
            },
            TrackerError::Unavailable {
                tracker,
                detail: detail(),
                until: None,
            },
        ] {
            let Reason { code, .. } = failed(&error);
            assert!(listed.contains(&code.as_str()), "{code}: {described}");
        }
    }
}

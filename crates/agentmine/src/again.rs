//! What a person who runs `agentmine run` again should know, and what must not keep them waiting.

use std::path::Path;

use agentmine_domain::{PublicStatus, SessionEnd, Task};
use agentmine_store::{Store, TaskFilter};
use agentmine_trackers::Tracker;
use agentmine_trackers::local::LocalTracker;
use anyhow::Result;

use crate::git;
use crate::print::{line, one_line, wrapped};

/// Names in the message about uncommitted files.
const SHOWN: usize = 5;

/// Makes the queued tasks of a tracker due, whatever delay their last attempt left, and prints what happened.
pub(crate) async fn skip_delays(store: &dyn Store, tracker: &dyn Tracker) -> Result<()> {
    let filter = TaskFilter {
        status: Some(PublicStatus::Open),
        ..TaskFilter::default()
    };
    for task in store.tasks(&filter).await? {
        if tracker.serves(&task.item) && store.skip_delay(task.id).await? {
            report(store, &task).await?;
        }
    }
    Ok(())
}

async fn report(store: &dyn Store, task: &Task) -> Result<()> {
    let last = store.sessions(Some(task.id), 1).await?.pop();
    let happened = last.and_then(|session| {
        let at = session.ended_at?.with_timezone(&chrono::Local);
        let end = session.end.map_or("ended", SessionEnd::as_str);
        let why = session.reason.as_deref().unwrap_or("no reason is recorded");
        let at = at.format("%Y-%m-%d %H:%M:%S");
        Some(format!(
            " Its last attempt was {end} at {at}: {}",
            one_line(why, 400)
        ))
    });
    let text = format!(
        "Task #{} continues at once.{}",
        task.number,
        happened.unwrap_or_default()
    );
    line(wrapped(&text, 0));
    Ok(())
}

/// Prints which issue files are omitted, and why. Returns their number.
pub(crate) fn unreadable(tracker: &LocalTracker) -> Result<usize> {
    let faults = tracker.unreadable()?;
    for fault in &faults {
        line(wrapped(
            &format!("warning: an issue is skipped: {fault}"),
            0,
        ));
    }
    Ok(faults.len())
}

/// Mentions files that the agent will not see, since it works on a clone of the last commit.
pub(crate) async fn uncommitted(repository: &Path) {
    let files = git::uncommitted(repository).await;
    if files.is_empty() {
        return;
    }
    let names: Vec<String> = files
        .iter()
        .take(SHOWN)
        .map(|name| one_line(name, 80))
        .collect();
    let more = if files.len() > SHOWN { ", …" } else { "" };
    let text = format!(
        "note: {} not committed ({}{more}). The agent starts from the last commit and does not see {}.",
        match files.len() {
            1 => "1 file is".to_owned(),
            n => format!("{n} files are"),
        },
        names.join(", "),
        if files.len() == 1 { "it" } else { "them" },
    );
    line(wrapped(&text, 0));
}

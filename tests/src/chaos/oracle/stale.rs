//! Writes of a worker whose task another worker had taken, from the forge's record.

use agentmine_domain::{Session, Task};
use agentmine_trackers::FLEET_MARKER;
use chrono::{DateTime, TimeDelta, Utc};

use super::{Broken, Finding};
use crate::chaos::fleet::Fleet;
use crate::chaos::recovery::pid_of;
use crate::forge::{DEMO, Write};

/// A request that was under way when the lease passed on is not held against its sender.
const UNDER_WAY: TimeDelta = TimeDelta::milliseconds(500);

/// A write to the forge, of whatever kind.
struct Seen<'a> {
    at: DateTime<Utc>,
    client: &'a str,
    task: &'a Task,
    what: String,
}

pub(super) fn writes(fleet: &Fleet, tasks: &[Task], sessions: &[Session]) -> Vec<Finding> {
    let rest = fleet.forge.writes();
    let pushes = fleet.forge.pushes_by_client(DEMO);
    let mut seen: Vec<Seen> = Vec::new();
    for write in rest.iter().filter(|it| it.client.starts_with("consumer")) {
        if let Some(task) = task_of(write, tasks) {
            seen.push(Seen {
                at: write.at,
                client: &write.client,
                task,
                what: format!("{} {}", write.method, write.path),
            });
        }
    }
    for push in &pushes {
        if let Some(task) = tasks.iter().find(|task| task.branch() == push.branch) {
            seen.push(Seen {
                at: push.at,
                client: &push.client,
                task,
                what: format!("push to {}", push.branch),
            });
        }
    }
    seen.iter()
        .filter_map(|seen| stale(fleet, seen, sessions))
        .collect()
}

/// The task that a write is about, if that is certain.
fn task_of<'a>(write: &Write, tasks: &'a [Task]) -> Option<&'a Task> {
    let text = write.body.to_string();
    let named = tasks.iter().find(|task| {
        text.contains(&format!("{FLEET_MARKER}{}", task.id)) || text.contains(&task.branch())
    });
    if named.is_some() {
        return named;
    }
    let rest = write.path.split_once("/issues/")?.1;
    let number: u64 = rest.split('/').next()?.parse().ok()?;
    let mut of_item = tasks.iter().filter(|task| task.item.number == number);
    match (of_item.next(), of_item.next()) {
        (Some(task), None) => Some(task),
        _ => None,
    }
}

fn stale(fleet: &Fleet, seen: &Seen, sessions: &[Session]) -> Option<Finding> {
    let of_task = || sessions.iter().filter(|it| it.task == seen.task.id);
    let holder = of_task()
        .filter(|it| it.started_at <= seen.at - UNDER_WAY)
        .filter(|it| it.ended_at.is_none_or(|end| end > seen.at))
        .max_by_key(|it| it.epoch.0)?;
    let program = fleet.programs.iter().find(|it| it.name == seen.client)?;
    let is_own = |session: &Session| {
        pid_of(session).is_some_and(|pid| program.pids.contains(&pid))
            && session.epoch.0 >= holder.epoch.0
            && session.started_at <= seen.at
    };
    if of_task().any(is_own) {
        return None;
    }
    let detail = format!(
        "{} by {} at {}, while {} held task {} in epoch {} since {}",
        seen.what,
        seen.client,
        seen.at.format("%H:%M:%S%.3f"),
        holder.worker,
        seen.task.number,
        holder.epoch,
        holder.started_at.format("%H:%M:%S%.3f"),
    );
    Some(Finding::new(Broken::Stale, detail))
}

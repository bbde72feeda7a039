//! How long the work of a worker that was gone waited for the next one.

use std::collections::HashMap;
use std::time::Duration;

use agentmine_domain::{Session, TaskId};

use super::fleet::Fleet;

/// From the end of each process to the next session of each task that it held.
pub(super) async fn of(fleet: &Fleet) -> anyhow::Result<Vec<Duration>> {
    let mut by_task: HashMap<TaskId, Vec<Session>> = HashMap::new();
    for session in fleet.sessions().await? {
        by_task.entry(session.task).or_default().push(session);
    }
    let deaths: HashMap<u32, _> = fleet
        .programs
        .iter()
        .flat_map(|program| &program.deaths)
        .map(|death| (death.pid, death.at))
        .collect();
    let mut recoveries = Vec::new();
    for sessions in by_task.values_mut() {
        sessions.sort_by_key(|session| session.epoch.0);
        for pair in sessions.windows(2) {
            let [held, next] = pair else { continue };
            let Some(&gone) = pid_of(held).and_then(|pid| deaths.get(&pid)) else {
                continue;
            };
            // It had the task when it ended, and did not give it back before.
            let held_it = held.started_at < gone && held.ended_at.is_none_or(|at| at > gone);
            let waited = (next.started_at - gone).to_std();
            if let (true, Ok(waited)) = (held_it, waited) {
                recoveries.push(waited);
            }
        }
    }
    recoveries.sort();
    Ok(recoveries)
}

/// The process in a worker's name: `host/pid-salt/slot`.
pub(super) fn pid_of(session: &Session) -> Option<u32> {
    let process = session.worker.0.split('/').nth_back(1)?;
    process.split('-').next()?.parse().ok()
}

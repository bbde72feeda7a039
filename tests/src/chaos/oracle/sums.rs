//! The sums that the store keeps for the fleet's metrics are those over its rows.

use agentmine_domain::{Session, Task, TaskState, Usage};
use agentmine_store::Totals;

use super::{Broken, Finding};
use crate::chaos::fleet::Fleet;

/// Each sum that differs.
pub(super) async fn find(
    fleet: &Fleet,
    tasks: &[Task],
    sessions: &[Session],
) -> anyhow::Result<Vec<Finding>> {
    let Totals {
        sessions: ended,
        tasks: over,
        input_tokens,
        cached_tokens,
        output_tokens,
        cost_micros,
        rows: _,
    } = fleet.store.totals().await?;
    let mut sums: Vec<(String, u64, u64)> = Vec::new();
    for (end, kept) in ended {
        let found = sessions.iter().filter(|it| it.end == Some(end)).count();
        sums.push((format!("sessions that ended {end:?}"), kept, found as u64));
    }
    for (end, kept) in over {
        let is_so = |it: &&Task| it.state == TaskState::Ended(end);
        let found = tasks.iter().filter(is_so).count();
        sums.push((format!("tasks that are {end:?}"), kept, found as u64));
    }
    let mut used = Usage::default();
    for session in sessions {
        used += session.usage;
    }
    sums.extend([
        ("input tokens".into(), input_tokens, used.input_tokens),
        ("cached tokens".into(), cached_tokens, used.cached_tokens),
        ("output tokens".into(), output_tokens, used.output_tokens),
        ("cost".into(), cost_micros, used.cost_micros),
    ]);
    let differ = sums.into_iter().filter(|(_, kept, found)| kept != found);
    let finding = |(what, kept, found)| {
        Finding::new(
            Broken::Sums,
            format!("{what}: the sum is {kept}, the rows say {found}"),
        )
    };
    Ok(differ.map(finding).collect())
}

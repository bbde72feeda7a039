//! Tasks that were taken from a worker that lived and could have kept them.

use agentmine_domain::{Session, SessionEnd};
use chrono::{DateTime, TimeDelta, Utc};

use super::{Broken, Finding};
use crate::chaos::fleet::Fleet;
use crate::chaos::program::Program;
use crate::chaos::recovery::pid_of;

pub(super) fn from_the_living(
    fleet: &Fleet,
    sessions: &[Session],
    away: &[DateTime<Utc>],
) -> Vec<Finding> {
    let lease = TimeDelta::seconds(fleet.setup.rhythm.lease as i64);
    let expired = sessions
        .iter()
        .filter(|it| it.end == Some(SessionEnd::Expired));
    expired
        .filter_map(|session| {
            let pid = pid_of(session)?;
            let holder = fleet.programs.iter().find(|it| it.pids.contains(&pid))?;
            let (began, ended) = (session.started_at, session.ended_at?);
            // The database's clock may have been set back in between.
            let (from, to) = (began.min(ended), began.max(ended));
            // Absences that follow each other give no more grace, and who was started after one did not see it.
            let before = to - lease * 4;
            let absences = away.iter().filter(|at| (before..to).contains(*at)).count();
            let saw_none = |start: &DateTime<Utc>| {
                (before..to).contains(start) && away.iter().any(|at| at < start)
            };
            let is_new = |it: &Program| it.starts_at.iter().any(saw_none);
            let is_excused = absences > 1
                || fleet.programs.iter().skip(1).any(is_new)
                || holder.had_trouble(pid, from - lease, to);
            (!is_excused).then(|| {
                let detail = format!(
                    "task {} was taken from {} in epoch {} at {}, which nothing had happened to since {}",
                    session.task_number,
                    holder.name,
                    session.epoch,
                    to.format("%H:%M:%S%.3f"),
                    from.format("%H:%M:%S%.3f"),
                );
                Finding::new(Broken::Taken, detail)
            })
        })
        .collect()
}

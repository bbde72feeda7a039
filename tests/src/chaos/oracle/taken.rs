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
    let behind = fleet.clock_behind();
    let expired = sessions
        .iter()
        .filter(|it| it.end == Some(SessionEnd::Expired));
    expired
        .filter_map(|session| {
            let pid = pid_of(session)?;
            let holder = fleet.programs.iter().find(|it| it.pids.contains(&pid))?;
            let (from, to) = span(session.started_at, session.ended_at?, behind);
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

/// The time in which a session ran, at its longest. One that ends before it began did either while the database's
/// clock showed a time twice (see `Clock::correct`), so it may have ended the second time.
fn span(
    began: DateTime<Utc>,
    ended: DateTime<Utc>,
    behind: TimeDelta,
) -> (DateTime<Utc>, DateTime<Utc>) {
    if ended < began {
        (ended, began.max(ended + behind))
    } else {
        (began, ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_across_a_clock_that_was_set_back_is_looked_at_to_its_latest_end() {
        let at = |seconds| DateTime::UNIX_EPOCH + TimeDelta::seconds(seconds);
        let behind = TimeDelta::seconds(10);
        assert_eq!(span(at(1), at(5), behind), (at(1), at(5)));
        assert_eq!(span(at(5), at(2), behind), (at(2), at(12)));
    }
}

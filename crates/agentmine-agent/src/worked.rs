//! How long a task was worked on in earlier sessions: its time limit holds for all of them together.

use std::time::Duration;

use agentmine_domain::{Phase, Step, StepKind};

use crate::journal::{Entry, JournalError};

/// The time that the sessions of a journal worked: each from the beginning of its first run, or of its first measurement if it
/// had no run, until it began to report, or until its last step other than a note: a session that ends after waiting for a
/// service did not work meanwhile. The preparation does not count.
///
/// # Errors
/// For the first phase that cannot be decoded.
pub fn time_worked(steps: &[Step]) -> Result<Duration, JournalError> {
    let mut total = Duration::ZERO;
    for session in steps.chunk_by(|one, next| one.epoch == next.epoch) {
        let mut since = None;
        let mut until = None;
        for step in session {
            match phase(step)? {
                Some(Phase::Running | Phase::Verifying) => since = since.or(Some(step.at)),
                Some(Phase::Reporting) => {
                    until = Some(step.at);
                    break;
                }
                Some(Phase::Preparing) | None => {}
            }
            // At the end of a session that waited for a service there is only a note.
            if step.kind != StepKind::Note {
                until = Some(step.at);
            }
        }
        if let (Some(since), Some(until)) = (since, until) {
            // A clock may have been set back.
            total += (until - since).to_std().unwrap_or_default();
        }
    }
    Ok(total)
}

/// The phase that a step begins.
fn phase(step: &Step) -> Result<Option<Phase>, JournalError> {
    if step.kind != StepKind::Phase {
        return Ok(None);
    }
    let Entry::Phase { phase } = Entry::decode(step)? else {
        return Ok(None);
    };
    Ok(Some(phase))
}

#[cfg(test)]
mod tests {
    use agentmine_domain::{Epoch, Seq};
    use chrono::{DateTime, TimeDelta};

    use super::*;

    #[test]
    fn the_work_of_all_sessions_counts_without_their_preparation_and_reports() {
        let phase = |phase| Entry::Phase { phase };
        let note = || Entry::note("x");
        let prompt = || Entry::from(crate::prompt::Prompt::user("x"));
        let steps = [
            // Lost while it worked.
            (1, 0, phase(Phase::Preparing)),
            (1, 100, phase(Phase::Running)),
            (1, 130, prompt()),
            // Waited for a service that was away.
            (1, 430, note()),
            // Ended before it worked.
            (2, 1000, phase(Phase::Preparing)),
            (2, 1500, note()),
            // Waited until it could report.
            (3, 2000, phase(Phase::Preparing)),
            (3, 2100, phase(Phase::Running)),
            (3, 2105, phase(Phase::Verifying)),
            (3, 2107, phase(Phase::Reporting)),
            (3, 9000, note()),
            // Measures only.
            (4, 9500, phase(Phase::Verifying)),
            (4, 9501, prompt()),
        ];
        let steps: Vec<Step> = (1..)
            .zip(steps)
            .map(|(seq, (epoch, seconds, entry))| Step {
                seq: Seq(seq),
                epoch: Epoch(epoch),
                kind: entry.kind(),
                payload: entry.encode().unwrap(),
                duration_ms: 0,
                at: DateTime::UNIX_EPOCH + TimeDelta::seconds(seconds),
            })
            .collect();
        let worked = time_worked(&steps).unwrap();
        assert_eq!(worked, Duration::from_secs(30 + 7 + 1));
    }
}

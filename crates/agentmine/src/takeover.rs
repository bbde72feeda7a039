//! What a session took over from the one before it: from whom, when, why, and what was restored.

use agentmine_agent::Resumed;
use agentmine_agent::journal::{Entry, JournalError};
use agentmine_domain::{Session, SessionEnd, Step};

use crate::print::one_line;

/// The lines on the sessions before and after this one; none for the only session of a task. `sessions` and
/// `steps` are those of the whole task.
///
/// # Errors
/// A step that cannot be decoded.
pub(crate) fn lines(
    session: &Session,
    sessions: &[Session],
    steps: &[Step],
) -> Result<Vec<String>, JournalError> {
    let mut lines = Vec::new();
    let before = sessions.iter().filter(|it| it.id < session.id);
    if let Some(before) = before.max_by_key(|it| it.id) {
        lines.push(format!("before   {}", ended(before)));
        lines.push(format!("taken up {}", taken_up(session, before)));
        lines.push(format!("restored {}", restored(session, steps)?));
    }
    let after = sessions.iter().filter(|it| it.id > session.id);
    if let Some(after) = after.min_by_key(|it| it.id) {
        lines.push(format!(
            "after    session {} of worker {} continued {}",
            after.id,
            one_line(&after.worker.to_string(), 80),
            after.started_at.format("%Y-%m-%d %H:%M:%S")
        ));
    }
    Ok(lines)
}

/// Who worked before, and why that ended.
fn ended(before: &Session) -> String {
    let reason = before.reason.as_deref().map(|reason| one_line(reason, 200));
    let reason = reason.unwrap_or_else(|| "no reason is recorded".into());
    let why = match before.end {
        None => "has not ended".to_owned(),
        Some(SessionEnd::Expired) => {
            "lost its lease: the worker was gone, or could not reach the database".to_owned()
        }
        Some(SessionEnd::Released) => format!("gave the task back: {reason}"),
        Some(SessionEnd::Paused) => format!("was paused: {reason}"),
        Some(end @ (SessionEnd::Done | SessionEnd::Failed | SessionEnd::Stopped)) => {
            format!("ended as {end}: {reason}")
        }
    };
    let worker = one_line(&before.worker.to_string(), 80);
    format!("session {} of worker {worker} {why}", before.id)
}

/// When this one began, and how long nobody had worked.
fn taken_up(session: &Session, before: &Session) -> String {
    let at = session.started_at.format("%Y-%m-%d %H:%M:%S");
    match before.ended_at {
        None => at.to_string(),
        Some(end) => {
            let gap = (session.started_at - end).num_milliseconds().max(0) as f64 / 1000.0;
            format!("{at}, {gap:.1} s after that session ended")
        }
    }
}

fn restored(session: &Session, steps: &[Step]) -> Result<String, JournalError> {
    let mut replies = 0;
    let mut resumed = None;
    for step in steps {
        let entry = Entry::decode(step)?;
        if step.epoch < session.epoch {
            replies += u32::from(matches!(entry, Entry::ModelReply { .. }));
        } else if step.epoch == session.epoch {
            resumed = resumed.or_else(|| Resumed::of(&entry));
        }
    }
    let conversation = match replies {
        0 => "no conversation: none had begun".to_owned(),
        1 => "the conversation of 1 model call".to_owned(),
        n => format!("the conversation of {n} model calls"),
    };
    let files = match resumed {
        None => "the project as it was pushed".to_owned(),
        Some(Resumed::With(seq)) => format!("the project's files as of step {seq}"),
        Some(Resumed::Without(seq, why)) => format!(
            "the project as it was pushed, without the files of step {seq}: {}",
            one_line(&why, 200)
        ),
    };
    Ok(format!("{conversation}; {files}"))
}

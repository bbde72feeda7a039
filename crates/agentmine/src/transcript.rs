//! A session's transcript for people.

use agentmine_agent::Facts;
use agentmine_agent::journal::{Entry, JournalError};
use agentmine_domain::{Session, SessionId, Step, Usage};
use console::style;
use serde_json::Value;

use crate::live::count;
use crate::print::{clean, line, one_line, program_with_config};

/// Lines of one text that are shown unless it is shown whole.
const MAX_LINES: usize = 12;

/// How much of a long text is shown.
#[derive(Debug, Clone)]
pub(crate) enum Length {
    Whole,
    /// The beginning, with the command that shows the rest.
    Cut {
        command: String,
    },
}

impl Length {
    /// Of a session's texts.
    pub(crate) fn of(session: SessionId, full: bool) -> Self {
        match full {
            true => Self::Whole,
            false => Self::Cut {
                command: format!("{} session show {session} --full", program_with_config()),
            },
        }
    }

    /// Characters of a line.
    fn of_line(&self) -> usize {
        match self {
            Self::Whole => usize::MAX,
            Self::Cut { .. } => 200,
        }
    }
}

/// Prints the session and its steps, and if the task has other sessions too, its usage and what was taken over.
///
/// # Errors
/// A step that cannot be decoded; the steps before it are printed.
pub(crate) fn print(
    session: &Session,
    (of_task, takeover): (Option<Usage>, &[String]),
    steps: &[Step],
    length: &Length,
) -> Result<(), JournalError> {
    let end = session.end.map_or("running", |e| e.as_str());
    line(format!(
        "session {} of task #{}: {end}",
        session.id, session.task_number
    ));
    if let Some(reason) = &session.reason {
        line(format!("reason   {}", clean(reason)));
    }
    line(format!(
        "worker   {}",
        one_line(&session.worker.to_string(), 80)
    ));
    line(format!(
        "model    {}",
        one_line(session.model.as_deref().unwrap_or("none yet"), 80)
    ));
    line(format!("used     {}", used(&session.usage)));
    if let Some(usage) = of_task {
        line(format!("task     {}, in all of its sessions", used(&usage)));
    }
    takeover.iter().for_each(|about| line(about.clone()));
    for one in steps {
        step(one, length)?;
    }
    if let (Length::Cut { command }, [_, ..]) = (length, steps) {
        line("");
        let text = format!(
            "Long texts are cut: `{command}` shows them whole, and --json every step as recorded."
        );
        line(style(text).dim().to_string());
    }
    Ok(())
}

/// Prints one step.
///
/// # Errors
/// If it cannot be decoded.
pub(crate) fn step(step: &Step, length: &Length) -> Result<(), JournalError> {
    line("");
    let time = step.at.format("%H:%M:%S%.3f");
    line(format!(
        "{} {}",
        style(format!("── {} {time} {} ms", step.seq, step.duration_ms)).dim(),
        style(step.kind).cyan().bold()
    ));
    body(&Entry::decode(step)?, length);
    Ok(())
}

fn used(usage: &Usage) -> String {
    format!(
        "{}, {} tokens in ({} cached), {} out",
        usage.calls(),
        count(usage.input_tokens),
        count(usage.cached_tokens),
        count(usage.output_tokens)
    )
}

fn body(entry: &Entry, length: &Length) {
    match entry {
        Entry::Phase { phase } => line(phase.as_str()),
        Entry::Start { start } => {
            line(format!(
                "  starts from commit {}",
                one_line(&start.base, 60)
            ));
        }
        Entry::Prompt { text, .. } => print_text(text, length),
        Entry::ModelReply { reply, .. } => {
            print_text(&reply.text, length);
            for call in &reply.calls {
                line(format!(
                    "{} {}",
                    style(one_line(&call.name, 80)).bold(),
                    arguments(&call.arguments, length)
                ));
            }
        }
        Entry::ToolResult { result } => {
            let name = one_line(&result.name, 80);
            line(if result.is_error {
                style(format!("{name} failed")).red().to_string()
            } else {
                style(name).bold().to_string()
            });
            print_result(&result.text, length);
        }
        Entry::Facts { facts, .. } => print_facts(facts),
        Entry::ModelUse { text, .. } | Entry::Note { text, .. } => print_text(text, length),
    }
}

/// A call's arguments; a JSON object is shown field by field.
fn arguments(raw: &str, length: &Length) -> String {
    let Ok(Value::Object(fields)) = serde_json::from_str(raw) else {
        return one_line(raw, 200);
    };
    let max = length.of_line();
    fields
        .iter()
        .map(|(key, value)| {
            let value = value
                .as_str()
                .map_or_else(|| value.to_string(), ToOwned::to_owned);
            if matches!(length, Length::Whole) && value.contains('\n') {
                format!("\n  {}:\n{}", clean(key), indent(&clean(&value)))
            } else {
                format!("\n  {}: {}", clean(key), one_line(&value, max))
            }
        })
        .collect()
}

/// A tool's result; a JSON object is shown field by field.
fn print_result(raw: &str, length: &Length) {
    let Ok(Value::Object(fields)) = serde_json::from_str(raw) else {
        return print_text(raw, length);
    };
    for (key, value) in &fields {
        match value {
            Value::String(s) if s.trim().is_empty() => {}
            Value::String(s) if s.contains('\n') => {
                line(format!("  {}:", clean(key)));
                line(indent(&shorten(s, length)));
            }
            Value::String(s) => line(format!(
                "  {}: {}",
                clean(key),
                one_line(s, length.of_line())
            )),
            other => line(format!(
                "  {}: {}",
                clean(key),
                one_line(&other.to_string(), length.of_line())
            )),
        }
    }
}

fn print_facts(facts: &Facts) {
    let head = facts.head.as_deref();
    line(format!(
        "  commit {}",
        one_line(head.unwrap_or("none: nothing was pushed"), 60)
    ));
    for file in &facts.files {
        let path = one_line(&file.path, 120);
        line(match (file.added, file.removed) {
            (Some(added), Some(removed)) => format!("  {path} +{added} -{removed}"),
            _ => format!("  {path} binary"),
        });
    }
    if facts.files_not_listed > 0 {
        line(format!("  … and {} more", facts.files_not_listed));
    }
    for check in &facts.checks {
        line(format!(
            "  {} {}",
            one_line(&check.command, 120),
            one_line(&check.verdict(), 200)
        ));
    }
    for setup in &facts.setup_failures {
        let command = one_line(&setup.command, 120);
        let verdict = one_line(&setup.verdict(), 200);
        line(format!("  set-up: {command} {verdict}"));
    }
    for note in &facts.notes {
        line(format!("  {}", one_line(note, 300)));
    }
}

fn print_text(text: &str, length: &Length) {
    if !text.trim().is_empty() {
        line(shorten(text, length));
    }
}

fn shorten(text: &str, length: &Length) -> String {
    let text = clean(text.trim_end());
    let lines: Vec<&str> = text.lines().collect();
    let Length::Cut { command } = length else {
        return text;
    };
    if lines.len() <= MAX_LINES {
        return text;
    }
    let mut cut = lines[..MAX_LINES].join("\n");
    let more = format!("… {} more lines: `{command}`", lines.len() - MAX_LINES);
    cut.push_str(&format!("\n{}", style(more).dim()));
    cut
}

fn indent(text: &str) -> String {
    text.lines()
        .map(|l| format!("    {l}"))
        .collect::<Vec<_>>()
        .join("\n")
}

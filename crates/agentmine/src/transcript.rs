//! A session's transcript for people.

use agentmine_agent::Facts;
use agentmine_agent::journal::{Entry, JournalError};
use agentmine_domain::{Session, Step, Usage};
use console::style;
use serde_json::Value;

use crate::live::count;
use crate::print::{clean, line, one_line};

/// Lines of one text that are shown without `--full`.
const MAX_LINES: usize = 12;

/// Prints the session and its steps, and if the task has other sessions too, its usage and what was taken over.
///
/// # Errors
/// A step that cannot be decoded; the steps before it are printed.
pub(crate) fn print(
    session: &Session,
    (of_task, takeover): (Option<Usage>, &[String]),
    steps: &[Step],
    full: bool,
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
        step(one, full)?;
    }
    if !full {
        line("");
        line(
            style("Long texts are truncated; --full shows them whole, --json shows every step as recorded.")
                .dim()
                .to_string(),
        );
    }
    Ok(())
}

/// Prints one step.
///
/// # Errors
/// If it cannot be decoded.
pub(crate) fn step(step: &Step, full: bool) -> Result<(), JournalError> {
    line("");
    let time = step.at.format("%H:%M:%S%.3f");
    line(format!(
        "{} {}",
        style(format!("── {} {time} {} ms", step.seq, step.duration_ms)).dim(),
        style(step.kind).cyan().bold()
    ));
    body(&Entry::decode(step)?, full);
    Ok(())
}

fn used(usage: &Usage) -> String {
    format!(
        "{} model calls, {} tool calls, {} tokens in ({} cached), {} out",
        usage.model_calls,
        usage.tool_calls,
        count(usage.input_tokens),
        count(usage.cached_tokens),
        count(usage.output_tokens)
    )
}

fn body(entry: &Entry, full: bool) {
    match entry {
        Entry::Phase { phase } => line(phase.as_str()),
        Entry::Start { start } => {
            line(format!(
                "  starts from commit {}",
                one_line(&start.base, 60)
            ));
        }
        Entry::Prompt { text, .. } => print_text(text, full),
        Entry::ModelReply { reply, .. } => {
            print_text(&reply.text, full);
            for call in &reply.calls {
                line(format!(
                    "{} {}",
                    style(one_line(&call.name, 80)).bold(),
                    arguments(&call.arguments, full)
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
            print_result(&result.text, full);
        }
        Entry::Facts { facts } => print_facts(facts),
        Entry::ModelUse { text, .. } | Entry::Note { text } => print_text(text, full),
    }
}

/// A call's arguments; a JSON object is shown field by field.
fn arguments(raw: &str, full: bool) -> String {
    let Ok(Value::Object(fields)) = serde_json::from_str(raw) else {
        return one_line(raw, 200);
    };
    let max = if full { usize::MAX } else { 200 };
    fields
        .iter()
        .map(|(key, value)| {
            let value = value
                .as_str()
                .map_or_else(|| value.to_string(), ToOwned::to_owned);
            if full && value.contains('\n') {
                format!("\n  {}:\n{}", clean(key), indent(&clean(&value)))
            } else {
                format!("\n  {}: {}", clean(key), one_line(&value, max))
            }
        })
        .collect()
}

/// A tool's result; a JSON object is shown field by field.
fn print_result(raw: &str, full: bool) {
    let Ok(Value::Object(fields)) = serde_json::from_str(raw) else {
        return print_text(raw, full);
    };
    for (key, value) in &fields {
        match value {
            Value::String(s) if s.trim().is_empty() => {}
            Value::String(s) if s.contains('\n') => {
                line(format!("  {}:", clean(key)));
                line(indent(&shorten(s, full)));
            }
            Value::String(s) => line(format!(
                "  {}: {}",
                clean(key),
                one_line(s, if full { usize::MAX } else { 200 })
            )),
            other => line(format!(
                "  {}: {}",
                clean(key),
                one_line(&other.to_string(), 200)
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
    for check in &facts.checks {
        line(format!(
            "  {} {}",
            one_line(&check.command, 120),
            one_line(&check.verdict(), 200)
        ));
    }
    for setup in &facts.setup_failures {
        let command = one_line(&setup.command, 120);
        line(format!("  set-up: {command} {}", setup.verdict()));
    }
    for note in &facts.notes {
        line(format!("  {}", one_line(note, 300)));
    }
}

fn print_text(text: &str, full: bool) {
    if !text.trim().is_empty() {
        line(shorten(text, full));
    }
}

fn shorten(text: &str, full: bool) -> String {
    let text = clean(text.trim_end());
    let lines: Vec<&str> = text.lines().collect();
    if full || lines.len() <= MAX_LINES {
        return text;
    }
    let mut cut = lines[..MAX_LINES].join("\n");
    cut.push_str(&format!("\n… {} more lines", lines.len() - MAX_LINES));
    cut
}

fn indent(text: &str) -> String {
    text.lines()
        .map(|l| format!("    {l}"))
        .collect::<Vec<_>>()
        .join("\n")
}

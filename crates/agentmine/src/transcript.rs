//! A session's transcript for people.

use agentmine_domain::{Session, Step, StepKind};
use console::style;
use serde_json::Value;

use crate::live::count;
use crate::print::{clean, line, one_line};

/// Lines of one text that are shown unless all are asked for.
const MAX_LINES: usize = 12;

/// Prints the session and its steps.
pub(crate) fn print(session: &Session, steps: &[Step], full: bool) {
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
    let usage = &session.usage;
    line(format!(
        "used     {} model calls, {} tool calls, {} tokens in ({} cached), {} out",
        usage.model_calls,
        usage.tool_calls,
        count(usage.input_tokens),
        count(usage.cached_tokens),
        count(usage.output_tokens)
    ));
    for step in steps {
        line("");
        let time = step.at.format("%H:%M:%S%.3f");
        line(format!(
            "{} {}",
            style(format!("── {} {time} {} ms", step.seq, step.duration_ms)).dim(),
            style(step.kind).cyan().bold()
        ));
        body(step, full);
    }
    if !full {
        line("");
        line(
            style("Long texts are cut; --full shows them whole, --json every step as recorded.")
                .dim()
                .to_string(),
        );
    }
}

fn body(step: &Step, full: bool) {
    let payload = &step.payload;
    let message = &payload["message"];
    match step.kind {
        StepKind::Prompt => text(&message["text"], full),
        StepKind::ModelReply => {
            text(&message["text"], full);
            for call in message["calls"].as_array().into_iter().flatten() {
                line(format!(
                    "{} {}",
                    style(one_line(call["name"].as_str().unwrap_or("?"), 80)).bold(),
                    arguments(&call["arguments"], full)
                ));
            }
        }
        StepKind::ToolResult => {
            let failed = message["is_error"].as_bool().unwrap_or(false);
            let name = one_line(message["name"].as_str().unwrap_or("?"), 80);
            line(if failed {
                style(format!("{name} failed")).red().to_string()
            } else {
                style(name).bold().to_string()
            });
            result(&message["text"], full);
        }
        StepKind::Phase => line(one_line(payload["phase"].as_str().unwrap_or("?"), 40)),
        StepKind::Note => text(&payload["text"], full),
        StepKind::Fact if payload["start"].is_object() => line(format!(
            "  begins from commit {}",
            one_line(payload["start"]["base"].as_str().unwrap_or("?"), 60)
        )),
        StepKind::Fact => facts(&payload["facts"]),
    }
}

/// A call's arguments; a JSON object is shown by its fields.
fn arguments(value: &Value, full: bool) -> String {
    let raw = value.as_str().unwrap_or_default();
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

/// A tool's result; the fields of a JSON object that people look for are shown as text.
fn result(value: &Value, full: bool) {
    let raw = value.as_str().unwrap_or_default();
    let Ok(Value::Object(fields)) = serde_json::from_str(raw) else {
        return text(value, full);
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

fn facts(facts: &Value) {
    line(format!(
        "  commit {}",
        one_line(
            facts["head"].as_str().unwrap_or("none: nothing was pushed"),
            60
        )
    ));
    for file in facts["files"].as_array().into_iter().flatten() {
        line(format!(
            "  {} +{} -{}",
            one_line(file["path"].as_str().unwrap_or("?"), 120),
            file["added"],
            file["removed"]
        ));
    }
    for check in facts["checks"].as_array().into_iter().flatten() {
        line(format!(
            "  {} exit code {} in {} ms",
            one_line(check["command"].as_str().unwrap_or("?"), 120),
            check["exit_code"],
            check["duration_ms"]
        ));
    }
}

fn text(value: &Value, full: bool) {
    let text = value.as_str().unwrap_or_default();
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

//! What people read: the pull request and the comments, rendered from facts.

use std::fmt::Write as _;

use crate::run::Outcome;
use crate::verify::Facts;

/// A pull request's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullRequestText {
    /// Title.
    pub title: String,
    /// Body, Markdown.
    pub body: String,
    /// A partial result is opened as a draft.
    pub draft: bool,
}

const MAX_TITLE: usize = 200;
const MAX_WORDS: usize = 8_000;
const MAX_ROWS: usize = 50;

/// Renders the pull request. What was measured stands apart from what the model says.
#[must_use]
pub fn pull_request(title: &str, number: u64, session: &str, outcome: &Outcome) -> PullRequestText {
    let mut body = String::new();
    let _ = writeln!(body, "{}\n", closing_line(number, outcome));
    if outcome.missing.is_some() {
        body.push_str("> [!WARNING]\n> **Partial result.** What is missing stands at the end.\n\n");
    }
    let words = cap(outcome.words.trim(), MAX_WORDS);
    if !words.is_empty() {
        let _ = writeln!(body, "{}\n", defuse(&words));
    }
    body.push_str(&evidence(&outcome.facts));
    if let Some(missing) = &outcome.missing {
        let _ = writeln!(body, "\n### What is missing\n\n{}", fenced(missing));
    }
    let usage = &outcome.usage;
    let _ = writeln!(
        body,
        "\n<sub>AgentMine, session {session}: {} model calls, {} tool calls, {} tokens in ({} cached), {} out.</sub>",
        usage.model_calls,
        usage.tool_calls,
        usage.input_tokens,
        usage.cached_tokens,
        usage.output_tokens
    );
    PullRequestText {
        title: cap(title.trim(), MAX_TITLE),
        body,
        draft: outcome.missing.is_some(),
    }
}

/// Only a complete result closes its issue.
fn closing_line(number: u64, outcome: &Outcome) -> String {
    match outcome.missing {
        None => format!("Closes #{number}"),
        Some(_) => format!("For #{number}"),
    }
}

/// The facts as Markdown.
fn evidence(facts: &Facts) -> String {
    let mut out = String::from("### Measured on the pushed commit\n\n");
    if let Some(head) = &facts.head {
        let _ = writeln!(out, "Commit `{head}`, from `{}`.\n", facts.base);
    }
    if facts.checks.is_empty() {
        out.push_str("No checks are known for this repository, so none were run. Name them in `.agentmine/config.yaml` (`checks:`).\n\n");
    } else {
        let _ = writeln!(
            out,
            "| check ({}) | exit code | time |\n|---|---|---|",
            facts.checks_from
        );
        for check in &facts.checks {
            let seconds = check.duration_ms as f64 / 1000.0;
            if check.could_not_run {
                let _ = writeln!(
                    out,
                    "| `{}` | could not be run here ({}) | |",
                    cell(&check.command),
                    check.exit_code
                );
                continue;
            }
            let _ = writeln!(
                out,
                "| `{}` | {} | {seconds:.1} s |",
                cell(&check.command),
                check.exit_code
            );
        }
        out.push('\n');
    }
    out.push_str("| file | added | removed |\n|---|---|---|\n");
    for file in facts.files.iter().take(MAX_ROWS) {
        let count = |n: Option<u64>| n.map_or("binary".to_owned(), |n| n.to_string());
        let _ = writeln!(
            out,
            "| `{}` | {} | {} |",
            cell(&file.path),
            count(file.added),
            count(file.removed)
        );
    }
    if facts.files.len() > MAX_ROWS {
        let _ = writeln!(out, "| … and {} more | | |", facts.files.len() - MAX_ROWS);
    }
    if !facts.protected.is_empty() {
        out.push_str("\n**Changed files that decide what runs elsewhere; look at them first:**\n");
        for path in facts.protected.iter().take(MAX_ROWS) {
            let _ = writeln!(out, "- `{}`", cell(path));
        }
    }
    if !facts.web.is_empty() {
        out.push_str(
            "\n<details><summary>Web requests</summary>\n\n| host | requests | |\n|---|---|---|\n",
        );
        for request in facts.web.iter().take(MAX_ROWS) {
            let verdict = request
                .refused
                .as_ref()
                .map_or("allowed".to_owned(), |why| {
                    format!("refused: {}", cell(why))
                });
            let _ = writeln!(
                out,
                "| `{}` | {} | {verdict} |",
                cell(&request.host),
                request.count
            );
        }
        let more = facts.web.len().saturating_sub(MAX_ROWS) as u64 + facts.web_dropped;
        if more > 0 {
            let _ = writeln!(out, "\n… and {more} more");
        }
        out.push_str("\n</details>\n");
    }
    out
}

/// The one comment on the item, edited in place as the task goes on.
#[must_use]
pub fn progress_comment(text: &str, session: &str) -> String {
    format!("{text}\n\n<sub>AgentMine, session {session}</sub>")
}

/// What the item is told when the task could not be done.
#[must_use]
pub fn failure_comment(reason: &str, session: &str, branch: Option<&str>) -> String {
    let kept = branch.map_or(String::new(), |b| {
        format!("\n\nWhat was pushed so far is on the branch `{b}`.")
    });
    progress_comment(
        &format!(
            "AgentMine could not finish this task:\n\n{}{kept}",
            fenced(reason)
        ),
        session,
    )
}

/// Text that nobody of ours wrote, as a code block that it cannot end.
fn fenced(text: &str) -> String {
    let text = cap(text.trim(), MAX_WORDS);
    let mut longest = 0;
    let mut run = 0;
    for c in text.chars() {
        run = if c == '`' { run + 1 } else { 0 };
        longest = longest.max(run);
    }
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}text\n{text}\n{fence}")
}

/// The model's text must not close other issues, ping people, show images, or forge our markers.
fn defuse(text: &str) -> String {
    text.replace('<', "&lt;")
        .replace("![", "!\u{200b}[")
        .replace('@', "@\u{200b}")
        .replace('#', "#\u{200b}")
        .replace("/issues/", "/issues\u{200b}/")
        .replace("/pull/", "/pull\u{200b}/")
        .replace("/merge_requests/", "/merge_requests\u{200b}/")
        .replace("GH-", "GH\u{200b}-")
        .lines()
        .map(restore_heading)
        .collect::<Vec<_>>()
        .join("\n")
}

/// `#` at a line's start is a heading, not an issue number: give it back.
fn restore_heading(line: &str) -> String {
    let bare = line.replace("#\u{200b}", "#");
    let hashes = bare.chars().take_while(|c| *c == '#').count();
    if (1..=6).contains(&hashes) && bare[hashes..].starts_with(' ') {
        let rest = bare[hashes..].replace('#', "#\u{200b}");
        format!("{}{rest}", "#".repeat(hashes))
    } else {
        line.to_owned()
    }
}

/// Text for a Markdown table's cell or code span.
fn cell(text: &str) -> String {
    cap(text, 200)
        .replace(['\n', '\r'], " ")
        .replace('|', "\\|")
        .replace('`', "'")
}

fn cap(text: &str, max: usize) -> String {
    if text.chars().count() <= max {
        return text.to_owned();
    }
    let mut cut: String = text.chars().take(max).collect();
    cut.push('…');
    cut
}

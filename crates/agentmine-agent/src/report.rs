//! Renders the pull request's text from the facts.

use std::fmt::Write as _;

use agentmine_domain::markdown::{self, cap, cell, line, neutralized};
use agentmine_domain::{PARTIAL_WARNING, not_done};

use crate::check::{Check, Standing};
use crate::facts::{Facts, WebRequest};
use crate::incoming;
use crate::run::RunOutcome;

/// A pull request's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullRequestText {
    /// Title.
    pub title: String,
    /// Body, Markdown.
    pub body: String,
    /// Whether to open it as a draft: the result is partial.
    pub draft: bool,
}

const MAX_TITLE: usize = 200;
const MAX_TEXT: usize = 8_000;
/// What a pull request quotes of the request.
const MAX_QUOTED: usize = 1_500;
const MAX_QUOTED_LINES: usize = 15;
const MAX_ROWS: usize = 50;
const MAX_NOTE: usize = 1_000;
/// What is above the text of the model.
const CLAIM: &str = "_The agent's own words, which AgentMine did not check:_";

/// What a pull request is the result of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked<'a> {
    /// An issue.
    Issue {
        /// Its number.
        number: u64,
        /// What is to be done.
        text: &'a str,
    },
    /// A task that a person made, which no issue describes.
    Task {
        /// Its number, which is none of the tracker.
        number: u64,
        /// What is to be done.
        text: &'a str,
    },
}

/// Renders the pull request. Measured facts and the model's text are in separate sections.
#[must_use]
pub fn pull_request(
    title: &str,
    asked: Asked<'_>,
    session: &str,
    outcome: &RunOutcome,
) -> PullRequestText {
    PullRequestText {
        title: line(title, MAX_TITLE),
        body: format!(
            "{}{}\n\n{}",
            warning(outcome),
            opening(asked, outcome),
            measured(session, outcome)
        ),
        draft: outcome.missing.is_some(),
    }
}

/// Renders the pull request that is opened when the work on an issue begins. It closes nothing yet. `name` is what the
/// tracker calls it.
#[must_use]
pub fn begun_pull_request(title: &str, issue: u64, name: &str, session: &str) -> PullRequestText {
    PullRequestText {
        title: line(title, MAX_TITLE),
        body: format!(
            "For #{issue}\n\nAgentMine is working on this. The first commit is empty; the result replaces this text, and #{issue} shows the progress. Until then, comments on this {name} are not read.\n\n<sub>AgentMine, session {session}</sub>\n"
        ),
        draft: true,
    }
}

/// Renders the comment on a pull request that was itself the task: it closes nothing. `name` is what the tracker calls
/// it: `pull request` or `merge request`. `because` says what a round was for.
#[must_use]
pub fn pull_request_comment(
    name: &str,
    because: Option<&str>,
    session: &str,
    outcome: &RunOutcome,
) -> String {
    let mut text = match outcome.facts.unchanged {
        false => format!("AgentMine pushed its work to this {name}'s branch."),
        true => format!("AgentMine read the comments on this {name} and changed nothing."),
    };
    text.extend(because.map(|because| format!(" {because}")));
    format!(
        "{text}\n\n{}{}",
        warning(outcome),
        measured(session, outcome)
    )
}

/// The warning of a partial result. It comes first, because such a pull request need not be a draft.
fn warning(outcome: &RunOutcome) -> &'static str {
    match outcome.missing {
        Some(_) => PARTIAL_WARNING,
        None => "",
    }
}

/// The model's text, what is not done, the measured facts, and the footer. The facts come last: a tracker that limits the length
/// of a text loses its end.
fn measured(session: &str, outcome: &RunOutcome) -> String {
    let mut body = String::new();
    let message = cap(outcome.last_message.trim(), MAX_TEXT);
    if !message.is_empty() {
        let quotation = quotation(&neutralized(&message));
        let _ = writeln!(body, "> {CLAIM}\n>{quotation}\n");
    }
    if let Some(missing) = &outcome.missing {
        body.push_str(&not_done(missing));
    }
    if !outcome.facts.unchanged {
        body.push_str(&evidence(&outcome.facts));
    }
    let usage = &outcome.usage;
    let cost = usage.cost().map(|cost| format!(", {cost}"));
    let _ = writeln!(
        body,
        "\n<sub>AgentMine, session {session}: {}, {} tokens in ({} cached), {} out{}.</sub>",
        usage.calls(),
        usage.input_tokens,
        usage.cached_tokens,
        usage.output_tokens,
        cost.unwrap_or_default()
    );
    body
}

/// Only a complete result closes its issue. A task of a person is said in whole, since there is no other page that does.
fn opening(asked: Asked<'_>, outcome: &RunOutcome) -> String {
    match (asked, &outcome.missing) {
        (Asked::Issue { number, text }, missing) => {
            let verb = match missing {
                None => "Closes",
                Some(_) => "For",
            };
            format!("{verb} #{number}{}", quoted(text))
        }
        (Asked::Task { number, text }, _) => {
            let text = quotation(&neutralized(&cap(text.trim(), MAX_TEXT)));
            let gap = if text.is_empty() { "" } else { "\n" };
            format!("For AgentMine task {number}, which a person created.{gap}{text}")
        }
    }
}

/// The first lines of a request, as its page shows them.
fn quoted(request: &str) -> String {
    let (shown, _) = incoming::markdown(request);
    let shown = shown.trim();
    let first: Vec<&str> = shown.lines().take(MAX_QUOTED_LINES).collect();
    let first = first.join("\n");
    let mut quote = neutralized(&cap(&first, MAX_QUOTED));
    if first.len() < shown.len() {
        quote.push_str("\n…");
    }
    match shown.is_empty() {
        true => String::new(),
        false => format!("\n{}", quotation(&quote)),
    }
}

/// A text as a block quote, which begins with a line end. Check boxes become signs, so that they do not count as tasks of the pull
/// request.
fn quotation(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(without_box).collect();
    match lines.as_slice() {
        [] => String::new(),
        lines => format!("\n{}", markdown::quotation(&lines.join("\n"))),
    }
}

/// A line of a list without its check box.
fn without_box(line: &str) -> String {
    for (boxed, sign) in [("[ ] ", "☐ "), ("[x] ", "☑ "), ("[X] ", "☑ ")] {
        if let Some((marker, text)) = line.split_once(boxed)
            && !marker.is_empty()
            && marker
                .chars()
                .all(|c| c.is_ascii_digit() || " \t-*+.)>".contains(c))
        {
            return format!("{marker}{sign}{text}");
        }
    }
    line.to_owned()
}

/// The facts as Markdown.
fn evidence(facts: &Facts) -> String {
    let mut out = String::from("### Measured on the pushed commit\n\n");
    if let Some(head) = &facts.head {
        let _ = writeln!(out, "Commit `{head}`, from `{}`.\n", facts.base);
    }
    if facts.diff_cut {
        out.push_str("> [!CAUTION]\n> The change is too large for AgentMine to read all of it: files that matter may be missing below.\n\n");
    }
    if facts.protected.is_empty() && !facts.diff_cut {
        out.push_str("No protected file was changed.\n\n");
    }
    protected(&mut out, &facts.protected);
    checks(&mut out, facts);
    files(&mut out, facts);
    refused_pushes(&mut out, &facts.refused_pushes);
    web(&mut out, facts);
    out
}

fn checks(out: &mut String, facts: &Facts) {
    if facts.checks.is_empty() {
        out.push_str("No checks are known for this repository, so none ran. Add them to `.agentmine/config.yaml` (`checks:`).\n\n");
        if !facts.setup_failures.is_empty() {
            out.push_str("| set-up | exit code | |\n|---|---|---|\n");
        }
        setup_failures(out, facts);
        notes(out, &facts.notes);
        return;
    }
    let _ = writeln!(
        out,
        "| check ({}) | exit code | time |\n|---|---|---|",
        facts.checks_from
    );
    for check in &facts.checks {
        let (command, code) = (cell(&check.command), check.code());
        let time = duration(check.duration_ms);
        let _ = match &check.standing {
            Standing::NotRun(why) => {
                let why = neutralized(&cell(why));
                writeln!(out, "| `{command}` | not run: {why} | |")
            }
            standing @ (Standing::Ran
            | Standing::FailsOnBase
            | Standing::FailedBefore
            | Standing::FailsOnTarget
            | Standing::FailedOnTarget) => {
                let elsewhere = standing.elsewhere();
                writeln!(out, "| `{command}` | {code}{elsewhere} | {time} |")
            }
        };
    }
    setup_failures(out, facts);
    let not_run = |c: &Check| matches!(c.standing, Standing::NotRun(_));
    if facts.checks.iter().any(not_run) {
        out.push_str("A check that did not run was guessed from the project's files. Name the commands that check this repository in `.agentmine/config.yaml` (`checks:`).\n\n");
    }
    notes(out, &facts.notes);
}

fn duration(ms: u64) -> String {
    match ms {
        ..50 => "under 0.1 s".to_owned(),
        ms => format!("{:.1} s", ms as f64 / 1000.0),
    }
}

/// Ends the table with the set-up commands that failed.
fn setup_failures(out: &mut String, facts: &Facts) {
    for setup in &facts.setup_failures {
        let (command, code) = (cell(&setup.command), setup.code());
        let elsewhere = setup.standing.elsewhere();
        let _ = writeln!(out, "| set-up: `{command}` | {code}{elsewhere} | |");
    }
    out.push('\n');
}

fn notes(out: &mut String, notes: &[String]) {
    for note in notes.iter().take(MAX_ROWS) {
        let line = note.replace('\n', " ");
        let _ = writeln!(out, "- {}", neutralized(&cap(&line, MAX_NOTE)));
    }
    if !notes.is_empty() {
        out.push('\n');
    }
}

fn files(out: &mut String, facts: &Facts) {
    out.push_str("| file | added | removed |\n|---|---|---|\n");
    let count = |n: Option<u64>| n.map_or("binary".to_owned(), |n| n.to_string());
    for file in facts.files.iter().take(MAX_ROWS) {
        let (added, removed) = (count(file.added), count(file.removed));
        let _ = writeln!(out, "| `{}` | {added} | {removed} |", cell(&file.path));
    }
    let shown = facts.files.len().min(MAX_ROWS) as u64;
    let more = facts.changed_files().saturating_sub(shown);
    if more > 0 {
        let _ = writeln!(out, "| … and {more} more | | |");
    }
}

fn protected(out: &mut String, files: &[String]) {
    if files.is_empty() {
        return;
    }
    out.push_str("**Review these files first:**\n\n| file | controls |\n|---|---|\n");
    for file in files.iter().take(MAX_ROWS) {
        let (controls, path) = file.split_once(": ").unwrap_or(("", file));
        // In brackets are names that the file itself gives.
        let named = controls
            .strip_suffix(')')
            .and_then(|it| it.split_once(" ("));
        let controls = match named {
            Some((controls, names)) => format!("{} (`{}`)", cell(controls), cell(names)),
            None => cell(controls),
        };
        let _ = writeln!(out, "| `{}` | {controls} |", cell(path));
    }
    if files.len() > MAX_ROWS {
        let _ = writeln!(out, "| … and {} more | |", files.len() - MAX_ROWS);
    }
    out.push('\n');
}

fn refused_pushes(out: &mut String, reasons: &[String]) {
    if reasons.is_empty() {
        return;
    }
    out.push_str("\n**Pushes were refused:**\n\n");
    for reason in reasons.iter().take(MAX_ROWS) {
        let line = reason.replace('\n', " ");
        let _ = writeln!(out, "- {}", neutralized(&cap(&line, MAX_NOTE)));
    }
    if reasons.len() > MAX_ROWS {
        let _ = writeln!(out, "- … and {} more", reasons.len() - MAX_ROWS);
    }
}

fn web(out: &mut String, facts: &Facts) {
    if facts.web.is_empty() {
        out.push_str("\nNo web requests.\n");
        return;
    }
    out.push_str(
        "\n<details><summary>Web requests</summary>\n\n| host | requests | |\n|---|---|---|\n",
    );
    for WebRequest {
        host,
        count,
        refused,
    } in facts.web.iter().take(MAX_ROWS)
    {
        let verdict = match refused {
            Some(why) => format!("refused: {}", cell(why)),
            None => "allowed".to_owned(),
        };
        let _ = writeln!(out, "| `{}` | {count} | {verdict} |", cell(host));
    }
    let more = facts.web.len().saturating_sub(MAX_ROWS) as u64 + facts.web_dropped;
    if more > 0 {
        let _ = writeln!(out, "\n… and {more} more");
    }
    out.push_str("\n</details>\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_a_protected_file_gives_are_shown_as_code() {
        let mut out = String::new();
        let names = "filter=@org/team, diff=[x](https://evil.example), merge=<img/src=`x`>";
        protected(
            &mut out,
            &[
                format!("programs that git starts ({names}): .gitattributes"),
                "CI: .github/workflows/ci.yml".to_owned(),
            ],
        );
        let shown = names.replace('`', "'");
        let rows = format!(
            "\n| `.gitattributes` | programs that git starts (`{shown}`) |\n| `.github/workflows/ci.yml` | CI |\n"
        );
        assert!(out.contains(&rows), "{out}");
    }

    #[test]
    fn a_request_is_quoted_as_its_page_shows_it() {
        let text =
            "It fails:\n\n- [ ] fix it for @mona, closes #9\n  1. [x] done\n<!-- push --> a [ ] b";
        let quote = quoted(text);
        assert!(
            quote.starts_with("\n\n> It fails:\n>\n> - ☐ fix it"),
            "{quote}"
        );
        assert!(quote.contains("\n>   1. ☑ done\n"), "{quote}");
        assert!(quote.contains("a [ ] b"), "{quote}");
        for part in ["push", "@mona", "#9"] {
            assert!(!quote.contains(part), "{part}: {quote}");
        }
        assert_eq!(quoted(" \n"), "");
        let long = quoted(&"line\n".repeat(100));
        assert_eq!(long.matches("> line").count(), MAX_QUOTED_LINES);
        assert!(long.ends_with("\n> …"), "{long}");
        assert!(quoted(&"x".repeat(100_000)).len() < 2 * MAX_QUOTED);
    }
}

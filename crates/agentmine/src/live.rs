//! The progress of a run: one line per event, and on a terminal a status line below.

use std::time::{Duration, Instant};

use agentmine_agent::Facts;
use agentmine_consumer::Progress;
use agentmine_domain::{EndState, SessionId, Task, Usage};
use console::style;
use indicatif::{ProgressBar, ProgressStyle};
use tokio::sync::mpsc::UnboundedReceiver;

use crate::print::{both_ends, line, one_line, wrapped};

/// Columns of the time before each line.
const INDENT: usize = 8;

/// Characters of a note that are shown; `session show` has the whole of it.
const MAX_NOTE: usize = 500;

/// How one session ended.
#[derive(Debug, Clone)]
pub(crate) struct Ending {
    pub(crate) session: SessionId,
    pub(crate) task: Task,
    pub(crate) end: Option<EndState>,
    pub(crate) reason: Option<String>,
    pub(crate) facts: Option<Facts>,
    pub(crate) usage: Usage,
    pub(crate) took: Duration,
}

/// Shows progress until the fleet ends. Returns how each session ended.
pub(crate) async fn show(
    mut progress: UnboundedReceiver<Progress>,
    started: Instant,
) -> Vec<Ending> {
    let mut view = View::new(started);
    while let Some(event) = progress.recv().await {
        view.event(event);
    }
    view.bar.finish_and_clear();
    view.endings
}

struct View {
    started: Instant,
    bar: ProgressBar,
    session: SessionId,
    usage: Usage,
    phase: &'static str,
    call: String,
    facts: Option<Facts>,
    endings: Vec<Ending>,
}

impl View {
    fn new(started: Instant) -> Self {
        let bar = ProgressBar::new_spinner().with_elapsed(started.elapsed());
        if let Ok(template) = ProgressStyle::with_template("{spinner} {elapsed:>4} {msg}") {
            bar.set_style(template);
        }
        bar.enable_steady_tick(Duration::from_millis(120));
        Self {
            started,
            bar,
            session: SessionId(0),
            usage: Usage::default(),
            phase: "",
            call: String::new(),
            facts: None,
            endings: Vec::new(),
        }
    }

    fn event(&mut self, event: Progress) {
        match event {
            Progress::Began { task, session } => {
                self.session = session;
                self.usage = Usage::default();
                self.facts = None;
                self.say(&format!(
                    "{} #{} {}",
                    style("task").bold(),
                    task.number,
                    one_line(&task.title, 80)
                ));
            }
            Progress::Phase(phase) => {
                self.phase = phase.as_str();
                self.say(&style(phase.as_str()).cyan().bold().to_string());
            }
            Progress::ToolBegan { name, summary } => {
                // As the model wrote them.
                self.call = format!(
                    "{} {}",
                    style(one_line(&name, 80)).bold(),
                    one_line(&summary, 100)
                );
            }
            Progress::ToolEnded {
                error, duration_ms, ..
            } => {
                self.usage.tool_calls += 1;
                let mark = match error {
                    Some(_) => style("✗").red(),
                    None => style("✓").green(),
                };
                let mut call = std::mem::take(&mut self.call);
                if call.is_empty() {
                    // It began in an earlier session.
                    call = "an interrupted call, whose outcome is unknown".to_owned();
                }
                self.say(&format!(
                    "  {mark} {call} {}",
                    style(format!("{duration_ms} ms")).dim()
                ));
                if let Some(error) = error {
                    self.say(&format!("    {}", style(wrapped(&error, INDENT + 4)).red()));
                }
            }
            Progress::Reply { text, usage } => {
                self.usage += usage;
                if !text.trim().is_empty() {
                    self.say(&format!("  {}", style(one_line(&text, 100)).italic()));
                }
            }
            Progress::Note(text) => {
                let text = both_ends(&text, MAX_NOTE);
                self.say(&format!("  {}", style(wrapped(&text, INDENT + 2)).dim()));
            }
            Progress::ModelUse { text, usage } => {
                self.usage += usage;
                self.say(&format!("  {}", style(wrapped(&text, INDENT + 2)).dim()));
            }
            Progress::Facts(facts) => {
                self.facts_lines(&facts);
                self.facts = Some(*facts);
            }
            Progress::Ended { task, end, reason } => self.endings.push(Ending {
                session: self.session,
                task: *task,
                end,
                reason,
                facts: self.facts.take(),
                usage: self.usage,
                took: self.started.elapsed(),
            }),
        }
        self.bar.set_message(self.status());
    }

    fn facts_lines(&self, facts: &Facts) {
        let Some(head) = &facts.head else {
            self.say(&format!("  {} nothing was pushed", style("✗").red()));
            return;
        };
        let (added, removed) = facts.files.iter().fold((0, 0), |(a, r), f| {
            (a + f.added.unwrap_or(0), r + f.removed.unwrap_or(0))
        });
        self.say(&format!(
            "  commit {:.12}: {} changed, +{added} -{removed}",
            head,
            files(facts.changed_files())
        ));
        for check in &facts.checks {
            let mark = if check.exit_code == 0 {
                style("✓").green()
            } else if check.failed() {
                style("✗").red()
            } else {
                style("-").yellow()
            };
            self.say(&format!(
                "  {mark} {} {}",
                style(one_line(&check.command, 80)).bold(),
                style(one_line(
                    &format!("{}, on a fresh clone", check.verdict()),
                    200
                ))
                .dim()
            ));
        }
        for setup in &facts.setup_failures {
            self.say(&format!(
                "  {} set-up: {} {}",
                style("-").yellow(),
                style(one_line(&setup.command, 80)).bold(),
                style(one_line(&setup.verdict(), 200)).dim()
            ));
        }
        if facts.checks.is_empty() {
            self.say("  no checks are known for this repository; add some with --check or in .agentmine/config.yaml");
        }
    }

    fn status(&self) -> String {
        let Usage {
            model_calls,
            tool_calls,
            input_tokens,
            output_tokens,
            ..
        } = self.usage;
        format!(
            "{} · {model_calls} model calls · {tool_calls} tool calls · {} tokens in, {} out",
            self.phase,
            count(input_tokens),
            count(output_tokens)
        )
    }

    fn say(&self, text: &str) {
        let stamped = format!(
            "{} {text}",
            style(format!("{:6.1}s", self.started.elapsed().as_secs_f64())).dim()
        );
        if self.bar.is_hidden() {
            line(stamped);
        } else {
            self.bar.println(stamped);
        }
    }
}

/// `1234` as `1.2k`.
pub(crate) fn count(n: u64) -> String {
    match n {
        0..=999 => n.to_string(),
        1_000..=999_999 => format!("{:.1}k", n as f64 / 1e3),
        _ => format!("{:.1}M", n as f64 / 1e6),
    }
}

fn files(count: u64) -> String {
    match count {
        1 => "1 file".to_owned(),
        n => format!("{n} files"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_brings_no_escape_sequence_of_the_model_to_the_terminal() {
        let mut view = View::new(Instant::now());
        view.event(Progress::ToolBegan {
            name: "shell\x1b[2J".to_owned(),
            summary: "printf \x1b]52;c;eA==\x07".to_owned(),
        });
        // The view's own style is a sequence, too.
        for hostile in ["\x1b[2J", "\x1b]", "\x07"] {
            assert!(!view.call.contains(hostile), "{:?}", view.call);
        }
        assert!(view.call.contains("]52;c;eA=="), "{:?}", view.call);
    }
}

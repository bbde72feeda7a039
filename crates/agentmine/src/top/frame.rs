//! The lines of a frame. No I/O.

use agentmine_control::queue::PriorityDepth;
use console::{measure_text_width, style, truncate_str};

use super::snapshot::{Row, Snapshot, Totals};
use crate::live::count;
use crate::print::{one_line, wrapped_within};
use crate::queue::span;

/// The room for a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Size {
    /// A file or a pipe.
    Unlimited,
    /// Below a prompt of a terminal.
    Wide { columns: usize },
    /// The whole terminal.
    Of { rows: usize, columns: usize },
}

impl Size {
    /// Of what is printed below a prompt: as wide as the terminal, and as high as needed.
    pub(super) fn of_output() -> Self {
        let size = console::Term::stdout().size_checked();
        size.map_or(Self::Unlimited, |(_, columns)| Self::Wide {
            columns: columns.into(),
        })
    }

    fn columns(self) -> Option<usize> {
        match self {
            Self::Unlimited => None,
            Self::Wide { columns } | Self::Of { columns, .. } => Some(columns),
        }
    }

    /// A line that fits.
    pub(super) fn cut(self, line: &str) -> String {
        match self.columns() {
            None => line.trim_end().to_owned(),
            Some(columns) => truncate_str(line.trim_end(), columns, "…").into_owned(),
        }
    }
}

/// The frame, as high and as wide as there is room. `trouble`: why it is older than it should be.
pub(super) fn frame(
    snapshot: &Snapshot,
    address: &str,
    trouble: Option<&str>,
    size: Size,
) -> Vec<String> {
    let mut lines = vec![head(snapshot, address, size)];
    lines.extend(trouble.map(|why| format!("not refreshed: {}", one_line(why, 400))));
    lines.extend(queue(snapshot, size));
    lines.extend(fact("sessions", &totals(&snapshot.totals), size));
    lines.push(String::new());
    lines.extend(sessions(&snapshot.sessions, size));
    let room = match size {
        Size::Unlimited | Size::Wide { .. } => lines.len(),
        Size::Of { rows, .. } => rows,
    };
    if lines.len() > room && room > 0 {
        let left_out = lines.len() - room + 1;
        lines.truncate(room - 1);
        lines.push(
            style(format!(
                "… and {left_out} more; `agentmine session list` lists all"
            ))
            .dim()
            .to_string(),
        );
    }
    lines.iter().map(|line| size.cut(line)).collect()
}

fn head(snapshot: &Snapshot, address: &str, size: Size) -> String {
    let time = snapshot.at.get(11..19).unwrap_or_default();
    let left = format!("agentmine top  {time} UTC  {}", one_line(address, 120));
    let left = style(left).bold().to_string();
    match size {
        Size::Unlimited | Size::Wide { .. } => left,
        Size::Of { columns, .. } => {
            let key = "q: quit";
            let room = columns.saturating_sub(key.len() + 1);
            let left = truncate_str(&left, room, "…").into_owned();
            let gap = columns.saturating_sub(measure_text_width(&left) + key.len());
            format!("{left}{}{key}", " ".repeat(gap))
        }
    }
}

/// All priorities together, and each that has tasks.
fn queue(snapshot: &Snapshot, size: Size) -> Vec<String> {
    let queue = &snapshot.queue;
    let total = queue.total();
    let is_empty =
        |it: &&PriorityDepth| it.due + it.backing_off + it.running + it.paused + it.waiting > 0;
    let mut lines = fact("queue", &depth(&total), size);
    let used: Vec<&PriorityDepth> = queue.priorities.iter().filter(is_empty).collect();
    if used.len() > 1 {
        let of_each = used.iter();
        lines.extend(of_each.flat_map(|it| fact(&it.priority, &depth(it), size)));
    }
    let owed = [
        ("wake-ups to publish", queue.unpublished),
        ("ends to report", queue.unreported),
        ("unfinished writes", queue.unfinished_effects),
    ];
    let owed: Vec<String> = owed
        .iter()
        .filter(|(_, backlog)| backlog.count > 0)
        .map(|(name, backlog)| {
            format!(
                "{} {name} (oldest {})",
                backlog.count,
                span(backlog.oldest_seconds)
            )
        })
        .collect();
    if !owed.is_empty() {
        lines.extend(fact("owed", &owed.join(", "), size));
    }
    lines
}

/// A value after its name, on as many lines as it needs.
fn fact(name: &str, value: &str, size: Size) -> Vec<String> {
    const INDENT: usize = 10;
    let columns = size.columns().and_then(|it| u16::try_from(it).ok());
    let text = format!("{name:<9} {}", wrapped_within(columns, value, INDENT));
    text.lines().map(ToOwned::to_owned).collect()
}

fn depth(of: &PriorityDepth) -> String {
    let oldest = match of.due {
        0 => String::new(),
        _ => format!(" (oldest {})", span(of.oldest_due_seconds)),
    };
    format!(
        "{} due{oldest}, {} backing off, {} running, {} paused, {} waiting",
        of.due, of.backing_off, of.running, of.paused, of.waiting
    )
}

fn totals(totals: &Totals) -> String {
    let Totals {
        sessions,
        running,
        input_tokens,
        output_tokens,
        cost_micros,
        tokens_per_minute,
    } = totals;
    let rate =
        tokens_per_minute.map_or_else(String::new, |rate| format!(", {} tokens/min", count(rate)));
    let of = match sessions {
        0 => String::new(),
        n => format!(" (newest {n})"),
    };
    format!(
        "{running} running{rate}; {} tokens in, {} out, {}{of}",
        count(*input_tokens),
        count(*output_tokens),
        money(*cost_micros)
    )
}

/// Without prices in the configuration there is no cost.
fn money(micros: u64) -> String {
    match micros {
        0 => "no cost recorded".to_owned(),
        micros => format!("${:.2}", micros as f64 / 1e6),
    }
}

const HEADER: [&str; 9] = [
    "SESSION", "TASK", "STATE", "CLIENT", "MODEL", "TIME", "CALLS", "TOKENS", "COST",
];

/// The columns that leave their room to the title, the least important first: of model, client, calls, tokens, cost,
/// session and time.
const LESS_IMPORTANT: [usize; 7] = [4, 3, 6, 7, 8, 0, 5];
/// Columns that a title has at least, if there are others to omit.
const TITLE: usize = 10;

fn sessions(rows: &[Row], size: Size) -> Vec<String> {
    if rows.is_empty() {
        return vec!["no sessions yet; `agentmine task list` lists the tasks".to_owned()];
    }
    let cells: Vec<[String; 9]> = rows.iter().map(cells).collect();
    let width = |at: usize| {
        let widths = cells.iter().map(|row| measure_text_width(&row[at]));
        widths.chain([HEADER[at].len()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..HEADER.len()).map(width).collect();
    let mut kept: Vec<usize> = (0..HEADER.len()).collect();
    for at in LESS_IMPORTANT {
        let needed = kept.iter().map(|at| widths[*at] + 2).sum::<usize>() + TITLE;
        if size.columns().is_none_or(|columns| needed <= columns) {
            break;
        }
        kept.retain(|it| *it != at);
    }
    let joined = |row: &[String]| {
        let padded = kept.iter().map(|at| {
            let (cell, width) = (&row[*at], widths[*at]);
            format!(
                "{cell}{}",
                " ".repeat(width.saturating_sub(measure_text_width(cell)))
            )
        });
        padded.collect::<Vec<_>>().join("  ")
    };
    let header: Vec<String> = HEADER.iter().map(ToString::to_string).collect();
    let mut lines = vec![
        style(format!("{}  TITLE", joined(&header)))
            .bold()
            .to_string(),
    ];
    for (row, cells) in rows.iter().zip(&cells) {
        let line = format!("{}  {}", joined(cells), one_line(&row.title, 200));
        let line = match row.session.end.as_deref() {
            None => style(line).green(),
            Some(_) => style(line).dim(),
        };
        lines.push(line.to_string());
    }
    lines
}

fn cells(row: &Row) -> [String; 9] {
    let session = &row.session;
    let usage = &session.usage;
    let running = row.phase.clone().unwrap_or_else(|| "running".to_owned());
    [
        session.id.to_string(),
        format!("#{}", session.task_id),
        session.end.clone().unwrap_or(running),
        one_line(&session.client, 16),
        one_line(session.model.as_deref().unwrap_or("-"), 24),
        span(row.seconds),
        format!("{}/{}", usage.model_calls, usage.tool_calls),
        count(usage.input_tokens + usage.output_tokens),
        match usage.cost_micros {
            0 => "-".to_owned(),
            micros => money(micros),
        },
    ]
}

#[cfg(test)]
mod tests {
    use agentmine_control::queue::{BacklogView, QueueStatus};

    use super::*;

    fn snapshot() -> Snapshot {
        let priority = |name: &str, due| PriorityDepth {
            priority: name.to_owned(),
            due,
            oldest_due_seconds: 75,
            ..PriorityDepth::default()
        };
        Snapshot {
            at: "2026-01-02T03:04:05Z".to_owned(),
            queue: QueueStatus {
                priorities: vec![priority("high", 2), priority("low", 40)],
                demand: 3,
                unpublished: BacklogView::default(),
                unreported: BacklogView {
                    count: 1,
                    oldest_seconds: 30,
                },
                unfinished_effects: BacklogView::default(),
                broker: None,
            },
            sessions: Vec::new(),
            totals: Totals::default(),
        }
    }

    #[test]
    fn a_frame_is_no_larger_than_the_terminal() {
        for (rows, columns) in [(24, 80), (5, 30), (1, 10), (2, 1)] {
            for trouble in [None, Some("connection refused\nafter 3 attempts")] {
                let lines = frame(
                    &snapshot(),
                    "127.0.0.1:5432/agentmine",
                    trouble,
                    Size::Of { rows, columns },
                );
                assert!(lines.len() <= rows, "{lines:?}");
                for line in &lines {
                    assert!(measure_text_width(line) <= columns, "{columns}: {line:?}");
                    assert!(!line.contains('\n'), "{line:?}");
                }
            }
        }
    }

    #[test]
    fn a_narrow_frame_shows_all_of_its_sums() {
        let size = Size::Wide { columns: 30 };
        let lines = frame(&snapshot(), "db", None, size);
        let text = lines.join("\n");
        assert!(
            !text.contains("paused…") && !text.contains("due…"),
            "{text}"
        );
        for part in ["42 due", "backing off", "0 waiting", "no cost"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn a_frame_shows_what_waits_and_what_is_owed() {
        let lines = frame(&snapshot(), "db", Some("no answer"), Size::Unlimited).join("\n");
        for part in [
            "not refreshed: no answer",
            "42 due (oldest 1m 15s)",
            "high",
            "low",
            "1 ends to report (oldest 30s)",
            "no sessions yet",
        ] {
            assert!(lines.contains(part), "{part}: {lines}");
        }
    }
}

//! The boxes of a dashboard: what a tick asks for.
//!
//! A box is a line of a task list that ends with a hidden mark, `<!-- agentmine:box stop task 3 -->`. Nothing else of the line
//! counts. A mark in a text of others has no effect: such texts are parted where they begin one.

use std::fmt;

use agentmine_domain::{ItemKind, Task, TaskNumber, TaskState};
use agentmine_store::why::TaskReason;

/// With this begins the mark of a box.
const MARK: &str = "<!-- agentmine:box ";
/// Boxes of one text that are read.
const MOST_READ: usize = 300;

/// What a tick asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum BoxAction {
    /// Start what waits or is held.
    Start,
    /// Make a new task for the item of one that is over.
    Retry,
    /// Stop a task.
    Stop,
}

/// What it is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum BoxSubject {
    /// A task.
    Task(TaskNumber),
    /// An issue whose request is held.
    Issue(u64),
    /// A pull request whose request is held.
    PullRequest(u64),
}

/// A box.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DashboardBox {
    /// What its tick asks for.
    pub action: BoxAction,
    /// Of which task or item.
    pub subject: BoxSubject,
}

impl BoxAction {
    /// The name in marks and keys.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Retry => "retry",
            Self::Stop => "stop",
        }
    }

    fn label(self) -> &'static str {
        match self {
            Self::Start => "Start it now",
            Self::Retry => "Retry it",
            Self::Stop => "Stop it",
        }
    }
}

impl fmt::Display for BoxSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Task(number) => write!(f, "task {number}"),
            Self::Issue(number) => write!(f, "issue {number}"),
            Self::PullRequest(number) => write!(f, "pull_request {number}"),
        }
    }
}

impl BoxSubject {
    /// A request for work on this item.
    pub(super) fn of_item(kind: ItemKind, number: u64) -> Self {
        match kind {
            ItemKind::PullRequest => Self::PullRequest(number),
            ItemKind::Issue | ItemKind::Task => Self::Issue(number),
        }
    }

    fn parse(kind: &str, number: &str) -> Option<Self> {
        Some(match kind {
            "task" => Self::Task(TaskNumber(number.parse().ok()?)),
            "issue" => Self::Issue(number.parse().ok()?),
            "pull_request" => Self::PullRequest(number.parse().ok()?),
            _ => return None,
        })
    }
}

impl DashboardBox {
    /// The unticked box, a line.
    pub(super) fn line(self) -> String {
        let Self { action, subject } = self;
        let (label, name) = (action.label(), action.as_str());
        format!("  - [ ] {label} {MARK}{name} {subject} -->\n")
    }

    fn parse(mark: &str) -> Option<Self> {
        let mut words = mark.split(' ');
        let action = match words.next()? {
            "start" => BoxAction::Start,
            "retry" => BoxAction::Retry,
            "stop" => BoxAction::Stop,
            _ => return None,
        };
        let subject = BoxSubject::parse(words.next()?, words.next()?)?;
        Some(Self { action, subject })
    }
}

/// The boxes of a task.
pub(super) fn of_task(task: &Task, reasons: &[TaskReason]) -> Vec<DashboardBox> {
    let delayed = reasons.iter().any(|reason| reason.code == "back_off");
    let actions: &[BoxAction] = match task.state {
        TaskState::Leased(_) => &[BoxAction::Stop],
        TaskState::Queued if task.card.waits_for.is_none() && !delayed => &[BoxAction::Stop],
        TaskState::Queued | TaskState::Paused => &[BoxAction::Start, BoxAction::Stop],
        // A person made it, and its end is final.
        TaskState::Ended(_) if task.item.kind == ItemKind::Task => &[],
        TaskState::Ended(_) => &[BoxAction::Retry],
    };
    let subject = BoxSubject::Task(task.number);
    let boxes = actions
        .iter()
        .map(|&action| DashboardBox { action, subject });
    boxes.collect()
}

/// The ticked boxes of a text, each once.
pub(super) fn ticked(text: &str) -> Vec<DashboardBox> {
    let mut found: Vec<DashboardBox> = text
        .lines()
        .filter_map(|line| {
            let line = line.trim_start();
            let rest = line.strip_prefix(['-', '*', '+'])?.trim_start();
            let rest = rest
                .strip_prefix("[x]")
                .or_else(|| rest.strip_prefix("[X]"))?;
            let (_, mark) = rest.rsplit_once(MARK)?;
            DashboardBox::parse(mark.trim_end().strip_suffix(" -->")?)
        })
        .take(MOST_READ)
        .collect();
    found.sort();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticked_box_is_read_back_and_nothing_else() {
        let all = [
            (BoxAction::Start, BoxSubject::Issue(7)),
            (BoxAction::Retry, BoxSubject::PullRequest(8)),
            (BoxAction::Stop, BoxSubject::Task(TaskNumber(3))),
        ];
        let all = all.map(|(action, subject)| DashboardBox { action, subject });
        let text: String = all.iter().map(|it| it.line()).collect();
        assert_eq!(ticked(&text), []);
        // As a browser sends it.
        let text = text.replace("[ ]", "[x]").replace('\n', "\r\n");
        assert_eq!(ticked(&text), all);
        for odd in [
            "- [x] Stop it <!-- agentmine:box stop task 3 -->.",
            "- [x] Stop it <!-- agentmine:box drop task 3 -->",
            "- [x] Stop it <!-- agentmine:box stop task -3x -->",
            "- [x] Stop it",
            "[x] <!-- agentmine:box stop task 3 -->",
        ] {
            assert_eq!(ticked(odd), [], "{odd}");
        }
    }
}

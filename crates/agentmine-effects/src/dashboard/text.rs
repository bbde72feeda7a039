//! What a dashboard says. Of the texts of others it shows titles, in code spans, and reasons, neutralized.

use agentmine_domain::markdown::{cell, line, neutralized};
use agentmine_domain::{ItemKind, Task, TrackerKind};
use agentmine_store::Held;
use agentmine_store::why::{TaskReason, held_back};

use super::boxes::{self, BoxAction, BoxSubject, DashboardBox};

/// Characters of a title.
const MAX_TITLE: usize = 120;
/// Characters of a reason.
const MAX_REASON: usize = 500;
/// Tasks of a part that are shown; the others are counted.
pub const DASHBOARD_ENTRIES: usize = 40;

/// A task, and why it is or is not worked on.
#[derive(Debug, Clone)]
pub struct DashboardEntry {
    /// The task.
    pub task: Task,
    /// See [`agentmine_store::why::known_reasons`].
    pub reasons: Vec<TaskReason>,
}

/// What a dashboard shows, each part in the order in which it is shown.
#[derive(Debug, Clone, Default)]
pub struct DashboardView {
    /// Tasks that somebody works on.
    pub working: Vec<DashboardEntry>,
    /// Tasks that wait.
    pub waiting: Vec<DashboardEntry>,
    /// How many other tasks wait.
    pub more_waiting: usize,
    /// Requests that make no task.
    pub held: Vec<Held>,
    /// Tasks that failed, were stopped, or have a partial result, of the last days.
    pub ended: Vec<DashboardEntry>,
    /// How many are on confidential issues.
    pub confidential: usize,
}

/// The text, with what became of the latest ticks.
#[must_use]
pub fn dashboard_text(view: &DashboardView, notice: &str) -> String {
    let DashboardView {
        working,
        waiting,
        more_waiting,
        held,
        ended,
        confidential,
    } = view;
    let mut text = "What AgentMine works on in this repository, what waits, and why. People who may start work tick a box to start, \
         retry or stop a task. AgentMine edits this issue itself; close it to turn the dashboard off.\n"
        .to_owned();
    if !notice.is_empty() {
        text += &format!("\n> {notice}\n");
    }
    let tasks = |entries: &[DashboardEntry]| entries.iter().map(entry).collect::<Vec<_>>();
    part(&mut text, "At work", &tasks(working), 0);
    part(&mut text, "Waiting", &tasks(waiting), *more_waiting);
    let held: Vec<String> = held.iter().map(held_entry).collect();
    part(&mut text, "Held requests", &held, 0);
    part(&mut text, "Failed, stopped or partial", &tasks(ended), 0);
    match confidential {
        0 => {}
        1 => text += "\n1 task on a confidential issue is not shown.\n",
        more => text += &format!("\n{more} tasks on confidential issues are not shown.\n"),
    }
    text
}

/// A part of the text. `more` further entries are counted, and not listed.
fn part(text: &mut String, name: &str, entries: &[String], more: usize) {
    if entries.is_empty() {
        if name == "At work" {
            *text += "\n### At work\n\nNothing.\n";
        }
        return;
    }
    let all = entries.len() + more;
    *text += &format!("\n### {name} ({all})\n\n");
    for entry in entries.iter().take(DASHBOARD_ENTRIES) {
        *text += entry;
    }
    match all - entries.len().min(DASHBOARD_ENTRIES) {
        0 => {}
        more => *text += &format!("- and {more} more\n"),
    }
}

fn entry(entry: &DashboardEntry) -> String {
    let DashboardEntry { task, reasons } = entry;
    let mut text = format!("- {}, task {}", named(task), task.number);
    if let Some(url) = &task.pull_request_url {
        text += &format!(", [{}]({url})", task.item.tracker.pull_request());
    } else if task.attempt > 0 {
        text += &format!(", {}", branch(task));
    }
    text.push('\n');
    for it in reasons {
        text += &reason(it);
    }
    for one in boxes::of_task(task, reasons) {
        text += &one.line();
    }
    text
}

fn held_entry(held: &Held) -> String {
    let request = &held.request;
    let mark = mark(request.item.kind, request.item.tracker);
    let text = format!(
        "- [{mark}{}]({}) {}\n",
        request.item.number,
        request.url,
        title(&request.title)
    );
    let start = DashboardBox {
        action: BoxAction::Start,
        subject: BoxSubject::of_item(request.item.kind, request.item.number),
    };
    text + &reason(&held_back(held)) + &start.line()
}

fn named(task: &Task) -> String {
    let title = title(&task.title);
    match task.item.kind {
        ItemKind::Task => title,
        kind @ (ItemKind::Issue | ItemKind::PullRequest) => {
            let mark = mark(kind, task.item.tracker);
            format!("[{mark}{}]({}) {title}", task.item.number, task.url)
        }
    }
}

fn mark(kind: ItemKind, tracker: TrackerKind) -> char {
    match (kind, tracker) {
        (ItemKind::PullRequest, TrackerKind::GitLab) => '!',
        (ItemKind::PullRequest | ItemKind::Issue | ItemKind::Task, _) => '#',
    }
}

fn title(title: &str) -> String {
    // Outside of a table a code span shows a backslash.
    format!("`{}`", line(title, MAX_TITLE).replace('`', "'"))
}

fn reason(reason: &TaskReason) -> String {
    let TaskReason { code, message } = reason;
    let message = neutralized(&line(message, MAX_REASON));
    format!("  - `{}`: {message}\n", cell(code))
}

/// The branch, as a link where its address is certain.
fn branch(task: &Task) -> String {
    let branch = task.branch();
    let shown = format!("branch `{}`", cell(&branch));
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/-_.".contains(c);
    let (list, tree) = match task.item.tracker {
        TrackerKind::GitHub => ("/issues/", "tree"),
        TrackerKind::GitLab => ("/-/issues/", "-/tree"),
        TrackerKind::Local => return shown,
    };
    match task.url.rsplit_once(list) {
        Some((home, _)) if branch.chars().all(is_plain) => {
            format!("[{shown}]({home}/{tree}/{branch})")
        }
        Some(_) | None => shown,
    }
}

//! What `agentmine task` prints for people.

use agentmine_control::view::{SessionView, TaskDetails, TaskView};

use crate::print::{cell, clean, line, one_line, table, trimmed, wrapped, wrapped_lines};

/// Columns before a value.
const INDENT: usize = 10;

pub(super) fn print_list(tasks: &[TaskView]) {
    if tasks.is_empty() {
        return line("no tasks");
    }
    let mut table = table(&[
        "TASK", "STATUS", "DETAIL", "ITEM", "TITLE", "ASSIGNEE", "ATTEMPT", "UPDATED", "RESULT",
    ]);
    for task in tasks {
        let result = task.pull_request_url.as_deref().or(task.reason.as_deref());
        table.add_row(vec![
            task.id.to_string(),
            task.status.clone(),
            task.detail.clone().unwrap_or_default(),
            cell(
                task.item
                    .as_deref()
                    .or(task.repository.as_deref())
                    .unwrap_or_default(),
            ),
            cell(&task.title),
            cell(&assignee(task)),
            task.attempt.to_string(),
            task.updated_at
                .get(..16)
                .unwrap_or_default()
                .replace('T', " "),
            cell(result.unwrap_or_default()),
        ]);
    }
    line(trimmed(&table));
}

fn assignee(task: &TaskView) -> String {
    match (task.assignee.as_deref(), task.assignee_type.as_str()) {
        (Some(name), "human") => format!("{name} (human)"),
        (Some(name), _) => name.to_owned(),
        (None, "human") => "human".to_owned(),
        (None, _) => String::new(),
    }
}

pub(super) fn print_details(details: &TaskDetails) {
    let task = &details.task;
    let fact = |name: &str, value: String| line(format!("{name:<9} {value}"));
    let head = format!("task #{}  ", task.id);
    let title = wrapped(&one_line(&task.title, 120), head.len());
    line(format!("{head}{title}"));
    if let (Some(repository), None) = (&task.repository, &task.item) {
        fact("in", one_line(repository, 200));
    }
    if let (Some(item), Some(url)) = (&task.item, &task.url) {
        fact(
            "item",
            format!("{} ({})", one_line(item, 120), one_line(url, 200)),
        );
    }
    let detail = task
        .detail
        .as_ref()
        .map_or_else(String::new, |it| format!(" ({it})"));
    fact("status", format!("{}{detail}", task.status));
    if let Some(reason) = &task.reason {
        fact("reason", wrapped_lines(reason, INDENT));
    }
    fact("kind", format!("{}, priority {}", task.kind, task.priority));
    let assignee = assignee(task);
    if !assignee.is_empty() {
        fact("assignee", one_line(&assignee, 120));
    }
    let on: Vec<String> = details
        .depends_on
        .iter()
        .map(|on| format!("#{} ({})", on.id, on.status))
        .collect();
    if !on.is_empty() {
        fact("after", wrapped(&on.join(", "), INDENT));
    }
    if let Some(agent) = &task.agent {
        fact("agent", agent.clone());
    }
    if !task.write_scope.is_empty() {
        let scope = one_line(&task.write_scope.join(" "), 400);
        fact("changes", wrapped(&scope, INDENT));
    }
    fact("branch", task.branch.clone());
    if let Some(url) = &task.pull_request_url {
        fact("result", one_line(url, 200));
    }
    fact("uuid", task.uuid.clone());
    fact("version", task.version.to_string());
    for session in &details.sessions {
        print_session(session);
    }
    if !task.description.trim().is_empty() {
        line("");
        line(clean(task.description.trim_end()));
    }
}

fn print_session(session: &SessionView) {
    let end = session.end.as_deref().unwrap_or("running");
    let reason = session.reason.as_deref();
    let reason = reason.map_or_else(String::new, |why| format!(": {}", one_line(why, 100)));
    let text = format!(
        "{} ({}) {end}{reason}",
        session.id,
        one_line(&session.client, 40)
    );
    line(format!("session   {}", wrapped(&text, INDENT)));
}

/// What to do with a task that was just made.
pub(super) fn next_step(task: &TaskView) {
    let program = crate::print::program();
    let id = task.id;
    match (&task.repository, task.assignee_type.as_str()) {
        (_, "human") => {}
        (Some(repository), _) => line(format!(
            "the fleet works on it in {}\nhint: {program} task why {id}",
            one_line(repository, 200)
        )),
        (None, _) => line(format!(
            "hint: {program} worker run {id} --client claude-code, or {program} worker run {id} --local"
        )),
    }
}

//! No operation exists in one skin and is missing in the other.

use std::collections::BTreeSet;

use super::World;

/// The command of each tool.
const COMMANDS: [(&str, &str); 25] = [
    ("task_list", "task list"),
    ("task_get", "task show"),
    ("task_create", "task add"),
    ("task_update", "task update"),
    ("task_why", "task why"),
    ("task_cancel", "task cancel"),
    ("task_pause", "task pause"),
    ("task_resume", "task resume"),
    ("task_retry", "task retry"),
    ("worker_command", "worker run"),
    ("worker_list", "worker list"),
    ("worker_remove", "worker remove"),
    ("session_start", "session start"),
    ("session_end", "session end"),
    ("session_list", "session list"),
    ("session_get", "session show"),
    ("session_logs", "session logs"),
    ("queue_status", "queue status"),
    ("agent_list", "agent list"),
    ("agent_get", "agent show"),
    ("memory_list", "memory list"),
    ("memory_get", "memory show"),
    ("memory_add", "memory add"),
    ("memory_update", "memory update"),
    ("memory_preview", "memory preview"),
];

/// Commands on files of this machine, for people alone.
const FILES: [&str; 3] = ["agent validate", "memory export", "memory import"];

#[test]
fn each_tool_has_its_command_and_each_command_its_tool() {
    let tools: BTreeSet<String> = agentmine_control::mcp::tools()
        .iter()
        .map(|tool| tool.name().to_owned())
        .collect();
    let named: BTreeSet<String> = COMMANDS
        .iter()
        .map(|(tool, _)| (*tool).to_owned())
        .collect();
    assert_eq!(tools, named);
    let world = World::new();
    let mut commands = BTreeSet::new();
    for group in ["task", "session", "worker", "queue", "agent", "memory"] {
        let help = world.shown(&[group, "--help"], 0);
        let (_, list) = help.split_once("Commands:\n").unwrap();
        let names = list.lines().take_while(|line| !line.is_empty());
        let names = names.filter_map(|line| line.strip_prefix("  "));
        let names = names.filter(|line| !line.starts_with(' '));
        let names = names.filter_map(|line| line.split_whitespace().next());
        commands.extend(
            names
                .filter(|it| *it != "help")
                .map(|it| format!("{group} {it}")),
        );
    }
    let named = COMMANDS.iter().map(|(_, command)| *command);
    let named: BTreeSet<String> = named.chain(FILES).map(ToOwned::to_owned).collect();
    assert_eq!(commands, named);
}

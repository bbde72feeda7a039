//! The table of failpoints and the source agree.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use agentmine_runtime::failpoint::BOUNDARIES;
use regex::Regex;

/// Operations of the store that write nothing.
const READS: &[&str] = &[
    "admitted",
    "check",
    "checkpoints",
    "claimable",
    "dashboards",
    "dependencies",
    "due_at",
    "effect",
    "figures",
    "healthy",
    "held_requests",
    "label_names",
    "lease_ran_out_at",
    "list_sessions",
    "loads",
    "memory",
    "memory_record",
    "next_waiting",
    "opened_within",
    "prunable",
    "pull_requests_of",
    "queued_and_leased",
    "request_reason",
    "sandbox_fate",
    "rounds",
    "scan_time",
    "scope_conflict",
    "session",
    "session_steps",
    "sessions_with_tasks",
    "sizes",
    "steps",
    "task",
    "task_by_number",
    "tasks",
    "tasks_of_item",
    "totals",
    "turn",
    "unconfirmed",
    "unreported",
    "waiting_requests",
    "watched_pulls",
    // Of the store's own tests.
    "test",
];

/// Writes of people, by the command line and the MCP server. No process that the chaos suite kills makes them; each is one
/// transaction that may be repeated.
const OF_PEOPLE: &[&str] = &[
    "begin_external",
    "claim_of_person",
    "create_task",
    "discard_external",
    "edit_task",
    "end_external",
    "restored",
    "set_worktree",
    "update_memory",
];

/// What people who follow a session see. Nothing depends on it, and only sessions that somebody follows write it.
const FOLLOWED: &[&str] = &["follow_reply", "show_reply"];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|it| it == "rs") {
            found.push(path);
        }
    }
}

/// The text of the programs, without that of the table itself.
fn programs() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut found = Vec::new();
    for folder in ["crates", "consumer/src", "producer/src"] {
        sources(&root.join(folder), &mut found);
    }
    found.retain(|path| !path.to_string_lossy().contains("/failpoint"));
    let text = |path: PathBuf| (path.clone(), std::fs::read_to_string(path).unwrap());
    found.into_iter().map(text).collect()
}

/// The names of the store's operations.
fn operations(programs: &[(PathBuf, String)]) -> BTreeSet<String> {
    let call = r#"\.(?:run|record|execute_held|execute|select::<[^>]*>|run_within)\(\s*(?:lease,\s*|RELAY_LIMIT,\s*)?"([a-z_]+)""#;
    let call = Regex::new(call).unwrap();
    let store = programs
        .iter()
        .filter(|(path, _)| path.to_string_lossy().contains("agentmine-store/src/sql"));
    store
        .flat_map(|(_, text)| call.captures_iter(text).map(|found| found[1].to_owned()))
        .collect()
}

#[test]
fn every_boundary_of_the_table_is_in_the_programs() {
    let programs = programs();
    let operations = operations(&programs);
    for boundary in BOUNDARIES {
        let quoted = format!("\"{boundary}\"");
        let is_operation = boundary
            .strip_prefix("store.")
            .is_some_and(|it| operations.contains(it));
        let is_named = programs.iter().any(|(_, text)| text.contains(&quoted));
        assert!(is_operation || is_named, "nothing passes {boundary}");
    }
}

#[test]
fn every_boundary_of_the_programs_is_in_the_table() {
    let programs = programs();
    let named = Regex::new(r#"\baround\(\s*"([^"]+)""#).unwrap();
    for (path, text) in &programs {
        for name in named.captures_iter(text) {
            assert!(
                BOUNDARIES.contains(&&name[1]),
                "{}: {}",
                path.display(),
                &name[1]
            );
        }
    }
    let operations = operations(&programs);
    assert!(operations.len() > 20, "{operations:?}");
    for operation in operations {
        let is_boundary = BOUNDARIES.contains(&format!("store.{operation}").as_str());
        let lists = [READS, OF_PEOPLE, FOLLOWED];
        let listed = lists.iter().filter(|it| it.contains(&operation.as_str()));
        assert_eq!(
            usize::from(is_boundary) + listed.count(),
            1,
            "store.{operation} is not one of a boundary, a read, a write of people and one for them"
        );
    }
}

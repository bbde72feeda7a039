//! The commands as a person uses them.

use std::process::Command;

use serde_json::{Value, json};

use super::World;
use crate::rig::binary;

#[test]
fn a_task_is_made_changed_and_ended() {
    let world = World::new();
    assert!(world.shown(&["task", "list"], 0).contains("no tasks"));
    let add = [
        "task",
        "add",
        "Fix the login",
        "--type",
        "bug",
        "--priority",
        "high",
        "--write-scope",
        "src",
    ];
    assert!(world.shown(&add, 0).contains("task #1 is open"));
    let human = [
        "task",
        "add",
        "Decide",
        "--assignee",
        "maya",
        "--assignee-type",
        "human",
        "--depends-on",
        "1",
    ];
    let human = world.json(&human);
    assert_eq!(
        (&human["id"], &human["assigneeType"]),
        (&json!(2), &json!("human"))
    );
    assert_eq!(human["dependsOn"], json!([{"id": 1, "status": "open"}]));
    let table = world.shown(&["task", "list", "--assignee", "maya"], 0);
    assert!(
        table.contains("Decide") && !table.contains("login"),
        "{table}"
    );
    let list = world.json(&["task", "list", "--status", "open"]);
    let ids: Vec<&Value> = list
        .as_array()
        .unwrap()
        .iter()
        .map(|task| &task["id"])
        .collect();
    assert_eq!(ids, [&json!(2), &json!(1)]);

    let why = world.json(&["task", "why", "2"]);
    assert_eq!(why["reasons"][0]["code"], "human_task", "{why}");
    assert_eq!(why["reasons"][1]["code"], "dependency", "{why}");
    let update = ["task", "update", "1", "--status", "done", "--version", "1"];
    assert!(world.shown(&update, 0).contains("its version is 2"));
    let outdated = world.shown(&update, 6);
    assert!(
        outdated.contains("has version 2, expected 1") && outdated.contains("hint: "),
        "{outdated}"
    );
    let shown = world.shown(&["task", "show", "#1"], 0);
    for part in [
        "Fix the login",
        "done",
        "bug, priority high",
        "src",
        "agentmine/task-1-",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    // The name that the command had before.
    assert!(
        world
            .shown(&["task", "stop", "2"], 0)
            .contains("is cancelled")
    );
    assert_eq!(world.json(&["task", "show", "2"])["status"], "cancelled");
    assert_eq!(world.json(&["task", "retry", "2"])["status"], "open");
    assert!(world.shown(&["task", "cancel", "1"], 6).contains("is done"));
}

#[test]
fn what_does_not_exist_exits_with_5_everywhere() {
    let world = World::new();
    world.shown(&["task", "add", "x"], 0);
    for args in [
        &["task", "show", "99"][..],
        &["task", "show", "018f0000-0000-7000-8000-000000000001"],
        &["task", "update", "99", "--title", "x"],
        &["task", "cancel", "99"],
        &["task", "pause", "99"],
        &["task", "resume", "99"],
        &["task", "retry", "99"],
        &["task", "why", "99"],
        &["session", "show", "99"],
        &["session", "start", "99"],
        &["session", "end", "99", "--exit-code", "0"],
        &["session", "logs", "99"],
        &["session", "list", "--task", "99"],
        &["worker", "run", "99"],
        &["worker", "remove", "99"],
        &["worker", "remove", "1"],
        &["worker", "run", "1", "--agent", "nobody"],
        &["task", "add", "x", "--agent", "nobody"],
        &["task", "update", "1", "--agent", "nobody"],
    ] {
        let shown = world.shown(args, 5);
        assert!(
            shown.contains("error: ") && shown.contains("hint: "),
            "{args:?}: {shown}"
        );
    }
}

#[test]
fn a_mistake_exits_with_its_code_and_a_hint() {
    let world = World::new();
    world.shown(&["task", "add", "x"], 0);
    for (code, args) in [
        (2, &["task", "list", "--status", "closed"][..]),
        (2, &["task", "add", ""]),
        (2, &["task", "add", "x", "--priority", "urgent"]),
        (2, &["task", "update", "1"]),
        (2, &["task", "update", "1", "--depends-on", "1"]),
        (2, &["task", "add", "x", "--write-scope", "/etc"]),
        (2, &["task", "show", "one"]),
        (
            2,
            &[
                "session",
                "end",
                "1",
                "--exit-code",
                "0",
                "--error",
                "broken",
            ],
        ),
        (2, &["worker", "run", "1", "--client", "cursor"]),
        (6, &["task", "pause", "1"]),
        (6, &["task", "resume", "1"]),
        (6, &["task", "retry", "1"]),
        (3, &["--config", "/does/not/exist.yaml", "task", "list"]),
    ] {
        let shown = world.shown(args, code);
        assert!(shown.contains("error: "), "{args:?}: {shown}");
    }
}

#[test]
fn a_worker_is_started_listed_and_removed() {
    let world = World::new();
    world.shown(&["task", "add", "Fix"], 0);
    let output = world.run(&["worker", "run", "1", "--client", "codex", "--auto"]);
    let command = String::from_utf8(output.stdout).unwrap();
    // Only the command, for `sh -c "$(agentmine worker run 1)"`.
    assert!(
        command.starts_with("cd '") && command.contains("codex exec --sandbox workspace-write"),
        "{command}"
    );
    let list = world.json(&["worker", "list"]);
    assert_eq!(
        (&list[0]["taskId"], &list[0]["running"]),
        (&json!(1), &json!(true))
    );
    let tree = list[0]["worktree"].as_str().unwrap().to_owned();
    let refused = world.shown(&["worker", "remove", "1", "--force"], 6);
    assert!(
        refused.contains("session end 1 --exit-code N` ends it"),
        "{refused}"
    );
    let end = [
        "session",
        "end",
        "1",
        "--exit-code",
        "0",
        "--artifact",
        "notes.md",
    ];
    assert!(world.shown(&end, 0).contains("task #1 is in_progress"));
    let again = world.shown(&end, 6);
    assert!(again.contains("ended already"), "{again}");
    let session = world.json(&["session", "show", "1"]);
    assert_eq!(session["session"]["artifacts"], json!(["notes.md"]));
    assert!(
        world
            .shown(&["session", "logs", "1", "--follow"], 0)
            .contains("no steps")
    );
    std::fs::write(std::path::Path::new(&tree).join("new.txt"), "x").unwrap();
    let refused = world.shown(&["worker", "remove", "1"], 6);
    assert!(
        refused.contains("new.txt") && refused.contains("worker remove TASK --force`"),
        "{refused}"
    );
    world.shown(&["worker", "remove", "1", "--force"], 0);
    assert!(!std::path::Path::new(&tree).exists());
}

#[test]
fn output_that_does_not_fit_on_the_disk_is_an_error() {
    let world = World::new();
    for args in [
        &["config", "schema"][..],
        &["--help"],
        &["--version"],
        &["demo"],
    ] {
        let full = std::fs::File::options().write(true).open("/dev/full");
        let mut command = Command::new(binary("agentmine"));
        world.environment(&mut command);
        let done = command
            .args(args)
            .current_dir(world.project())
            .stdout(full.unwrap())
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(1), "{args:?}: {stderr}");
        assert!(
            stderr.contains("the output could not be written"),
            "{args:?}: {stderr}"
        );
    }
}

/// The disk of the log is full.
#[test]
fn a_log_that_cannot_be_written_is_lost_and_nothing_else() {
    let world = World::new();
    let full = std::fs::File::options().write(true).open("/dev/full");
    let mut command = Command::new(binary("agentmine"));
    world.environment(&mut command);
    let done = command
        .arg("demo")
        .env("AGENTMINE_LOG", "debug")
        .current_dir(world.project())
        .stderr(full.unwrap())
        .output()
        .unwrap();
    let stdout = String::from_utf8_lossy(&done.stdout);
    assert_eq!(done.status.code(), Some(0), "{stdout}");
    assert!(stdout.contains("Done: task"), "{stdout}");
}

#[test]
fn a_reader_that_wants_no_more_is_no_error() {
    let world = World::new();
    for args in [&["config", "schema"][..], &["--help"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = Command::new(binary("agentmine"));
        world.environment(&mut command);
        let done = command
            .args(args)
            .current_dir(world.project())
            .stdout(writer)
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(0), "{args:?}: {stderr}");
        assert!(stderr.is_empty(), "{args:?}: {stderr}");
    }
}

#[test]
fn commands_on_a_named_store_need_no_writable_home() {
    let world = World::new();
    let url = format!("sqlite:{}", world.home.path().join("fleet.db").display());
    for args in [&["task", "list"][..], &["session", "list"]] {
        let mut command = Command::new(binary("agentmine"));
        world.environment(&mut command);
        let done = command
            .args(args)
            .current_dir(world.project())
            // Nobody can create a folder there.
            .env("HOME", "/proc/home")
            .env("AGENTMINE_STORE_URL", &url)
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{args:?}: {stderr}");
    }
}

#[test]
fn a_configuration_file_of_another_program_is_explained() {
    let world = World::new();
    // Hugo's.
    let site = "baseURL: https://example.org/\ntitle: Notes\n";
    std::fs::write(world.project().join("config.yaml"), site).unwrap();
    let shown = world.shown(&["task", "list"], 3);
    assert!(
        shown.contains("is another program's, name AgentMine's with --config"),
        "{shown}"
    );
    let own = world.home.path().join("own.yaml");
    std::fs::write(&own, "title: Notes\n").unwrap();
    let shown = world.shown(&["--config", own.to_str().unwrap(), "task", "list"], 3);
    assert!(!shown.contains("another program"), "{shown}");
}

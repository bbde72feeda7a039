//! `worker run --local`: the fleet's own loop works on a task of a person in the current repository.

use std::process::{Command, Output, Stdio};

use agentmine_tests::model::{Scenario, ScriptedModel, commit_and_push, say, shell};
use serde_json::json;

use super::{World, git};
use crate::rig::binary;

async fn model() -> ScriptedModel {
    let scenario = Scenario::new("changes a.txt")
        .when("Change a.txt")
        .replies([
            shell("printf 'two\\n' > a.txt"),
            commit_and_push("Change a.txt"),
            say("It says two now."),
        ]);
    ScriptedModel::start(scenario).await
}

impl World {
    /// Starts a command; its output is read at its end.
    fn started(&self, args: &[&str]) -> std::process::Child {
        let mut command = Command::new(binary("agentmine"));
        self.environment(&mut command);
        command
            .args(args)
            .current_dir(self.project())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }
}

/// Waits without blocking the model.
async fn output(child: std::process::Child) -> (Option<i32>, String) {
    let waiting = tokio::task::spawn_blocking(move || child.wait_with_output());
    let Output {
        status,
        stdout,
        stderr,
    } = waiting.await.unwrap().unwrap();
    let shown = [stdout, stderr].concat();
    (status.code(), String::from_utf8_lossy(&shown).into_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_of_a_person_is_worked_on_in_the_current_repository_and_followed() {
    let world = World::new();
    let model = model().await;
    let add = [
        "task",
        "add",
        "Change a.txt",
        "--description",
        "It should say two.",
    ];
    world.shown(&add, 0);
    let memory = [
        "memory",
        "add",
        "style",
        "--category",
        "x",
        "--title",
        "Numbers are words",
    ];
    world.shown(&memory, 0);
    model.hold_at(1);
    let url = model.base_url();
    let local = [
        "worker",
        "run",
        "1",
        "--local",
        "--base-url",
        &url,
        "--check",
        "grep two a.txt",
    ];
    let running = world.started(&local);
    model.wait_for_held(1).await;
    let sessions = world.json(&["session", "list"]);
    assert_eq!(sessions[0]["status"], "running", "{sessions}");
    assert_eq!(sessions[0]["client"], "agentmine", "{sessions}");
    assert_eq!(world.json(&["task", "show", "1"])["status"], "in_progress");
    assert_eq!(
        world.json(&["task", "why", "1"])["reasons"][0]["code"],
        "working"
    );
    for args in [
        &["session", "start", "1"][..],
        &["task", "update", "1", "--status", "done"],
        &local,
    ] {
        let shown = world.shown(args, 6);
        assert!(
            shown.contains("error: ") && shown.contains("hint: "),
            "{args:?}: {shown}"
        );
    }
    let following = world.started(&["session", "logs", "1", "--follow"]);
    model.release();
    let (code, shown) = output(running).await;
    assert_eq!(code, Some(0), "{shown}");
    for part in [
        "task        #1 Change a.txt",
        "Done: task #1",
        "grep two a.txt",
        "+two",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let (code, followed) = output(following).await;
    assert_eq!(code, Some(0), "{followed}");
    assert!(followed.contains("It says two now."), "{followed}");

    let task = world.json(&["task", "show", "1"]);
    assert_eq!(task["status"], "done", "{task}");
    let branch = task["branch"].as_str().unwrap();
    assert_eq!(
        git(&world.project(), &["show", &format!("{branch}:a.txt")]),
        "two"
    );
    assert_eq!(git(&world.project(), &["show", "main:a.txt"]), "one");
    let first = &model.requests()[0];
    let sent = first.body.to_string();
    assert!(
        sent.contains("It should say two.") && sent.contains("Numbers are words"),
        "{sent}"
    );
    // There is no issue, so nothing says that there is one.
    assert!(
        sent.contains("Task 1 of ") && !sent.contains("#1"),
        "{sent}"
    );
    let pull = std::fs::read_dir(world.project().join(".agentmine/pulls")).unwrap();
    let pull = pull.map(|it| std::fs::read_to_string(it.unwrap().path()).unwrap());
    let pull = pull.collect::<String>();
    assert!(
        pull.contains("For AgentMine task 1, which a person created."),
        "{pull}"
    );
    assert!(!pull.contains("Closes"), "{pull}");
    // It is over, so it is not begun again by itself.
    assert!(world.shown(&local, 6).contains("It is done"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_is_stopped_while_it_runs_here_is_cancelled() {
    let world = World::new();
    let model = model().await;
    world.shown(&["task", "add", "Change a.txt"], 0);
    model.hold_at(1);
    let url = model.base_url();
    let local = ["worker", "run", "1", "--local", "--base-url", &url];
    let running = world.started(&local);
    model.wait_for_held(1).await;
    world.shown(&["task", "cancel", "1", "--reason", "not needed"], 0);
    let (code, shown) = output(running).await;
    assert_eq!(code, Some(1), "{shown}");
    assert!(shown.contains("Stopped: task #1"), "{shown}");
    assert_eq!(world.json(&["task", "show", "1"])["status"], "cancelled");
}

#[test]
fn what_cannot_be_worked_on_here_is_refused_with_the_reason() {
    let world = World::new();
    world.shown(&["task", "add", "Decide", "--assignee-type", "human"], 0);
    world.shown(&["task", "add", "Then do it", "--depends-on", "1"], 0);
    for (task, code, reason) in [
        ("1", 6, "no worker takes it"),
        ("2", 6, "depends on task 1"),
        ("9", 5, "there is no task 9"),
    ] {
        let local = [
            "worker",
            "run",
            task,
            "--local",
            "--base-url",
            "http://127.0.0.1:9/v1",
        ];
        let shown = world.shown(&local, code);
        assert!(
            shown.contains(reason) && shown.contains("hint: "),
            "{shown}"
        );
    }
    // The command that another program runs for it.
    let command = world.json(&["worker", "run", "2", "--client", "agentmine"]);
    let line = command["command"].as_str().unwrap();
    assert!(line.ends_with("agentmine worker run 2 --local"), "{line}");
    assert_eq!(
        (&command["worktree"], &command["sessionId"]),
        (&json!(null), &json!(null))
    );
}

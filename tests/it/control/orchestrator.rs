//! The use case of spec 003: an orchestrator gives open tasks to three clients, which work side by side.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::{World, git};

/// A program that plays a client: commits what it was asked for, once the two others have begun too.
const CLIENT: &str = r#"#!/bin/sh
set -e
for last; do :; done
name=$(basename "$0")
: > "$MEETING/$name"
n=0
while [ "$(ls "$MEETING" | wc -l)" -lt 3 ]; do
    n=$((n + 1)); [ "$n" -lt 600 ] || exit 9
    sleep 0.05
done
printf '%s\n' "$last" > "$name.txt"
git add .
git -c user.name=x -c user.email=x@localhost commit --quiet -m "By $name"
[ "$name" != gemini ] || exit 3
"#;

#[test]
fn three_clients_work_side_by_side_and_their_sessions_end() {
    let world = World::new();
    let title = r#"Don't "$(touch ran)" break; `it` && rm -rf ."#;
    for n in 1..=3 {
        world.shown(
            &[
                "task",
                "add",
                &format!("{title} {n}"),
                "--description",
                "It's easy.",
            ],
            0,
        );
    }
    // What one decides, the next one is given.
    let add = [
        "memory",
        "add",
        "linter",
        "--category",
        "tooling",
        "--title",
        "Use clippy",
    ];
    world.shown(&add, 0);
    assert!(
        world
            .shown(&["memory", "preview"], 0)
            .contains("Use clippy")
    );
    let bin = world.home.path().join("bin");
    let meeting = world.home.path().join("meeting");
    std::fs::create_dir_all(&meeting).unwrap();
    std::fs::create_dir_all(&bin).unwrap();
    for name in ["claude", "codex", "gemini"] {
        let file = bin.join(name);
        std::fs::write(&file, CLIENT).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let open = world.json(&["task", "list", "--status", "open"]);
    let mut running = Vec::new();
    for (task, client) in
        open.as_array()
            .unwrap()
            .iter()
            .zip(["claude-code", "codex", "gemini-cli"])
    {
        let id = task["id"].to_string();
        let started = world.json(&["worker", "run", &id, "--client", client, "--auto"]);
        let mut shell = Command::new("sh");
        world.environment(&mut shell);
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
        let child = shell
            .arg("-c")
            .arg(started["command"].as_str().unwrap())
            .env("PATH", path)
            .env("MEETING", &meeting)
            .spawn()
            .unwrap();
        running.push((started, child));
    }
    for (started, mut child) in running {
        let code = child.wait().unwrap().code().unwrap();
        end(&world, &started, code);
    }
    let status = |id: &str| world.json(&["task", "show", id])["status"].clone();
    assert_eq!(
        [status("3"), status("2"), status("1")],
        [json!("done"), json!("done"), json!("failed")]
    );
    let log = git(&world.project(), &["log", "--all", "--format=%s"]);
    for subject in ["By claude", "By codex", "By gemini"] {
        assert!(log.contains(subject), "{log}");
    }
    for folder in [world.project(), world.home.path().to_owned()] {
        assert!(!folder.join("ran").exists());
    }
    assert_eq!(git(&world.project(), &["status", "--porcelain"]), "");
}

fn end(world: &World, started: &Value, code: i32) {
    let tree = Path::new(started["worktree"].as_str().unwrap());
    let program = match started["client"].as_str().unwrap() {
        "claude-code" => "claude",
        "codex" => "codex",
        _ => "gemini",
    };
    assert_eq!(code, if program == "gemini" { 3 } else { 0 });
    let prompt = std::fs::read_to_string(tree.join(format!("{program}.txt"))).unwrap();
    let title = started["task"]["title"].as_str().unwrap();
    assert!(
        prompt.contains(title) && prompt.contains("It's easy."),
        "{prompt}"
    );
    assert!(!tree.join("ran").exists());
    let session = started["sessionId"].to_string();
    let result = if code == 0 { "merged" } else { "pending" };
    let args = [
        "session",
        "end",
        &session,
        "--dod-result",
        result,
        "--exit-code",
        &code.to_string(),
    ];
    world.shown(&args, 0);
    world.shown(&["worker", "remove", &started["task"]["id"].to_string()], 0);
    assert!(!tree.exists());
}

//! The use cases of spec 003: an orchestrator gives open tasks to three clients, which work side by side, on the command line and
//! through MCP; what one of them adds to the memory is in the next one's preview.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use super::{World, git, sdk};
use crate::rig::binary;

/// A program that plays a client: commits what was requested, once the two others have begun too.
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
[ -z "$REMEMBER" ] || "$REMEMBER/$name"
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
    let meeting = world.home.path().join("meeting");
    std::fs::create_dir_all(&meeting).unwrap();
    let bin = programs(
        &world,
        "bin",
        &["claude", "codex", "gemini"].map(|name| (name, CLIENT)),
    );
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

/// A folder with these programs.
fn programs(world: &World, folder: &str, programs: &[(&str, &str)]) -> PathBuf {
    let folder = world.home.path().join(folder);
    std::fs::create_dir_all(&folder).unwrap();
    for (name, text) in programs {
        let file = folder.join(name);
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    folder
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

/// What the clients do with the memory while they work: each keeps its preview, and then Claude Code adds what it found out.
const PREVIEWS: &str = r#"#!/bin/sh
set -e
name=$(basename "$0")
agentmine memory preview > "$name.preview"
: > "$MEETING/$name.previewed"
"#;
const ADDS: &str = r#"#!/bin/sh
set -e
agentmine memory preview > claude.preview
n=0
until [ -e "$MEETING/codex.previewed" ] && [ -e "$MEETING/gemini.previewed" ]; do
    n=$((n + 1)); [ "$n" -lt 600 ] || exit 9
    sleep 0.05
done
agentmine memory add linter --category tooling --title 'Use clippy' --content 'With denied warnings.'
"#;

/// The orchestrator: the client of the official SDK, which starts the returned commands in shells.
const ORCHESTRATOR: &str = r#"
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import assert from "node:assert/strict";
const { AGENTMINE, PROJECT, HOME, PATH, BIN } = process.env;
const client = new Client({ name: "orchestrator", version: "1" });
await client.connect(new StdioClientTransport({ command: AGENTMINE, args: ["mcp", "serve"], cwd: PROJECT, env: { HOME, PATH } }));
const call = async (name, args) => {
  const result = await client.callTool({ name, arguments: args });
  assert.ok(!result.isError, JSON.stringify(result));
  return result.structuredContent;
};
const code = async (name, args) => {
  const result = await client.callTool({ name, arguments: args });
  assert.ok(result.isError, JSON.stringify(result));
  return result.structuredContent.error.code;
};
const run = (line) => new Promise((resolve, reject) => {
  const child = spawn("sh", ["-c", line], { env: { ...process.env, PATH: `${BIN}:${PATH}` }, stdio: "ignore" });
  child.on("error", reject).on("exit", resolve);
});
const titles = ["Fix the login", `Don't "$(touch ran)" \`it\``, "Describe the login", "Test the login"];
for (const title of titles) await call("task_create", { title, description: "It's easy.", type: "bug", priority: "high" });

// Parallel work.
const { tasks } = await call("task_list", { status: "open" });
assert.deepEqual(tasks.map((it) => it.title), [...titles].reverse());
const clients = ["claude-code", "codex", "gemini-cli"];
const first = tasks.reverse().slice(0, 3);
const started = await Promise.all(first.map((task, n) => call("worker_command", { taskId: task.id, client: clients[n], auto: true })));
for (const [n, it] of started.entries()) {
  assert.deepEqual(Object.keys(it).sort(), ["agent", "client", "command", "sessionId", "task", "worktree"]);
  assert.deepEqual(it.task, { id: first[n].id, title: first[n].title, branch: first[n].branch });
  assert.deepEqual([it.client, it.agent], [clients[n], "default"]);
}
assert.equal(new Set(started.map((it) => it.worktree)).size, 3);
assert.equal(await code("worker_command", { taskId: first[0].id, client: "codex" }), -32005);
assert.equal((await call("task_list", { status: "in_progress" })).tasks.length, 3);
const codes = await Promise.all(started.map((it) => run(it.command)));
assert.deepEqual(codes, [0, 0, 3]);
for (const [n, name] of ["claude", "codex", "gemini"].entries()) {
  const prompt = readFileSync(`${started[n].worktree}/${name}.txt`, "utf8");
  assert.ok(prompt.includes(first[n].title) && prompt.includes("It's easy."), prompt);
}
const end = (n, more) => call("session_end", { sessionId: started[n].sessionId, exitCode: codes[n], ...more });
const done = await end(0, { dodResult: "merged", artifacts: ["claude.txt"] });
assert.deepEqual([done.task.status, done.session.artifacts], ["done", ["claude.txt"]]);
const pending = await end(1, { dodResult: "pending" });
assert.deepEqual([pending.task.status, pending.session.dodResult], ["in_progress", "pending"]);
const failed = await end(2, { dodResult: "error", signal: "SIGTERM", error: { message: "no tokens left" } });
assert.deepEqual([failed.task.status, failed.session.signal, failed.session.error.message], ["failed", "SIGTERM", "no tokens left"]);
assert.equal(await code("session_end", { sessionId: started[1].sessionId, exitCode: 0, dodResult: "merged" }), -32004);
assert.equal((await call("task_get", { taskId: first[1].id })).status, "in_progress");
assert.equal((await call("task_update", { taskId: first[1].id, status: "done" })).status, "done");
const { sessions } = await call("session_list", {});
// They were begun at once, so in any order.
assert.deepEqual(sessions.map((it) => `${it.client}: ${it.end}`).sort(), ["claude-code: done", "codex: done", "gemini-cli: failed"]);

// The memory: what one session added, and what the orchestrator adds, is in the next one's preview.
assert.deepEqual((await call("memory_list", {})).records.map((it) => it.id), ["linter"]);
await call("memory_add", { id: "branches", category: "process", title: "Branches are short-lived", source: "human" });
const { text } = await call("memory_preview", {});
assert.ok(text.includes("Use clippy") && text.includes("Branches are short-lived"), text);
const next = await call("worker_command", { taskId: tasks[3].id, client: "codex" });
assert.equal(await run(next.command), 0);
const preview = readFileSync(`${next.worktree}/codex.preview`, "utf8");
assert.ok(preview.includes(text.trim()), preview);
const before = readFileSync(`${started[1].worktree}/codex.preview`, "utf8");
assert.ok(!before.includes("Use clippy"), before);
const timeout = await call("session_end", { sessionId: next.sessionId, exitCode: 0, dodResult: "timeout" });
assert.equal(timeout.task.status, "failed");
for (const it of [...started, next]) await call("worker_remove", { taskId: it.task.id });
assert.deepEqual((await call("worker_list", {})).workers, []);
await client.close();
console.log("the orchestrator is done");
"#;

#[test]
fn an_orchestrator_runs_three_clients_through_mcp_and_the_next_one_has_their_memory() {
    let world = World::new();
    let meeting = world.home.path().join("meeting");
    std::fs::create_dir_all(&meeting).unwrap();
    let bin = programs(
        &world,
        "bin",
        &["claude", "codex", "gemini"].map(|name| (name, CLIENT)),
    );
    std::os::unix::fs::symlink(binary("agentmine"), bin.join("agentmine")).unwrap();
    let memory = [("claude", ADDS), ("codex", PREVIEWS), ("gemini", PREVIEWS)];
    let memory = programs(&world, "remember", &memory);
    let variables = [("BIN", &bin), ("MEETING", &meeting), ("REMEMBER", &memory)];
    let variables = variables.map(|(name, path)| (name, path.to_str().unwrap()));
    let done = sdk::run(&world, ORCHESTRATOR, &variables);
    let shown = String::from_utf8_lossy(&done.stdout);
    let errors = String::from_utf8_lossy(&done.stderr);
    assert!(
        done.status.success() && shown.contains("the orchestrator is done"),
        "{shown}{errors}"
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

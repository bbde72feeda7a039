//! `agentmine mcp serve` by a client of others: that of the official TypeScript SDK, which checks results against
//! their output schemas. `tests/run` installs it with the conformance suite.

use std::process::{Command, Output};

use agentmine_tests::mcp::installed;

use super::World;
use crate::rig::binary;

const SCRIPT: &str = r#"
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import assert from "node:assert/strict";
const transport = new StdioClientTransport({ command: process.env.AGENTMINE, args: ["mcp", "serve"],
  cwd: process.env.PROJECT, env: { HOME: process.env.HOME, PATH: process.env.PATH } });
const client = new Client({ name: "test", version: "1" });
await client.connect(transport);
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
const { tools } = await client.listTools();
assert.ok(tools.length >= 24 && tools.every((it) => it.outputSchema && it.annotations));
const task = await call("task_create", { title: "Fix", type: "bug" });
assert.equal((await call("task_list", { status: "open" })).tasks[0].id, task.id);
const started = await call("worker_command", { taskId: task.id, client: "claude-code" });
assert.equal(started.task.id, task.id);
assert.equal(await code("session_start", { taskId: task.id }), -32005);
await call("session_end", { sessionId: started.sessionId, exitCode: 0, dodResult: "merged" });
assert.equal(await code("session_end", { sessionId: started.sessionId, exitCode: 0 }), -32004);
assert.equal(await code("task_get", { taskId: 99 }), -32001);
assert.equal(await code("task_create", { title: "" }), -32007);
const { resourceTemplates } = await client.listResourceTemplates();
assert.ok(resourceTemplates.some((it) => it.uriTemplate === "task://{id}"));
const made = new Set([task.id]);
while (made.size < 130) made.add((await call("task_create", { title: "One of many" })).id);
const parts = [];
for (let cursor; parts.length === 0 || cursor; ) {
  const part = await client.listResources({ cursor });
  parts.push(part.resources.map((it) => it.uri));
  cursor = part.nextCursor;
}
assert.equal(parts.length, 2);
assert.ok(parts[0].includes("project://memory") && parts[0].includes("agent://default"));
const listed = parts.flat();
assert.equal(new Set(listed).size, listed.length);
assert.ok([...made].every((id) => listed.includes(`task://${id}`)));
for (const cursor of ["task://x", "nothing://1"])
  await assert.rejects(client.listResources({ cursor }), (error) => error.code === -32602);
const { contents } = await client.readResource({ uri: `task://${task.id}` });
assert.equal(JSON.parse(contents[0].text).status, "done");
await assert.rejects(client.readResource({ uri: "task://999" }), (error) =>
  error.code === -32602 && error.data.code === -32001);
await assert.rejects(client.listPrompts(), () => true);
await client.close();
console.log("every call was answered");
"#;

#[test]
fn the_official_sdk_drives_the_server() {
    let done = run(&World::new(), SCRIPT, &[]);
    let shown = String::from_utf8_lossy(&done.stdout);
    let errors = String::from_utf8_lossy(&done.stderr);
    assert!(
        done.status.success() && shown.contains("every call"),
        "{shown}{errors}"
    );
}

/// Runs a script that uses the SDK, with this environment.
pub(super) fn run(world: &World, script: &str, variables: &[(&str, &str)]) -> Output {
    // Modules are found from the script's own folder.
    let file = world.home.path().join("client.mjs");
    std::fs::write(&file, script).unwrap();
    let modules = world.home.path().join("node_modules");
    if !modules.exists() {
        std::os::unix::fs::symlink(installed().join("node_modules"), modules).unwrap();
    }
    let mut command = Command::new(installed().join("node_modules/.bin/node"));
    world.environment(&mut command);
    command
        .arg("--preserve-symlinks")
        .arg(file)
        .env("AGENTMINE", binary("agentmine"))
        .env("PROJECT", world.project())
        .envs(variables.iter().copied())
        .output()
        .unwrap()
}

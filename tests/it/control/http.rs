//! `agentmine mcp serve --http`: who may connect, and notices of a task that changes.

use std::os::unix::fs::PermissionsExt as _;

use agentmine_tests::model::Scenario;
use reqwest::StatusCode;
use serde_json::json;

use super::{World, sdk};
use crate::mcp::served::{Served, TOKEN};
use crate::rig::Rig;

/// Answers of a server to one request with these headers.
async fn answer(served: &Served, headers: &[(&str, &str)]) -> StatusCode {
    agentmine_runtime::tls::install_default_provider();
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } } });
    let url = format!("http://127.0.0.1:{}/mcp", served.port);
    let mut request = reqwest::Client::new()
        .post(url)
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .body(body.to_string());
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.send().await.unwrap().status()
}

#[tokio::test]
async fn only_a_local_client_with_the_token_is_let_in() {
    let served = Served::start().await;
    let token = format!("Bearer {TOKEN}");
    let with = |more: &[(&'static str, &'static str)]| {
        let mut headers = vec![("authorization", token.as_str())];
        headers.extend_from_slice(more);
        headers
    };
    assert_eq!(answer(&served, &with(&[])).await, StatusCode::OK);
    assert_eq!(
        answer(&served, &with(&[("origin", "http://localhost:5173")])).await,
        StatusCode::OK
    );
    for headers in [
        &[][..],
        &[("authorization", "Bearer 0123456789abcdef-canarx")],
    ] {
        assert_eq!(answer(&served, headers).await, StatusCode::UNAUTHORIZED);
    }
    for foreign in [
        ("host", "evil.example:80"),
        ("host", "127.0.0.1.evil.example"),
        ("origin", "http://evil.example"),
        ("origin", "http://localhost.evil.example"),
        ("origin", "null"),
    ] {
        assert_eq!(
            answer(&served, &with(&[foreign])).await,
            StatusCode::FORBIDDEN,
            "{foreign:?}"
        );
    }
}

#[tokio::test]
async fn the_token_is_in_a_file_of_its_owner() {
    let served = Served::start_with(&[]).await;
    let file = served.home.path().join(".local/state/agentmine/mcp-token");
    let token = std::fs::read_to_string(&file).unwrap();
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!((token.len(), mode & 0o777), (64, 0o600));
    let bearer = format!("Bearer {token}");
    assert_eq!(
        answer(&served, &[("authorization", bearer.as_str())]).await,
        StatusCode::OK
    );
}

#[test]
fn an_unsafe_address_or_token_is_refused_at_the_start() {
    let world = World::new();
    let shown = world.shown(&["mcp", "serve", "--http", "0.0.0.0:0"], 2);
    assert!(shown.contains("expected a loopback address"), "{shown}");
    assert!(shown.contains("hint: "), "{shown}");
    let folder = world.home.path().join(".local/state/agentmine");
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("mcp-token");
    for (text, mode, expected) in [
        ("0123456789abcdef0123456789abcdef", 0o644, "mode 0600"),
        ("short", 0o600, "the next start creates a new token"),
        // As a full disk had left it.
        ("", 0o600, "the next start creates a new token"),
    ] {
        let _ = std::fs::remove_file(&file);
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        let shown = world.shown(&["mcp", "serve", "--http", "127.0.0.1:0"], 3);
        assert!(shown.contains(expected), "{shown}");
        assert!(!shown.contains("0123456789abcdef"), "{shown}");
    }
}

/// The official SDK, over one of the transports.
const SCRIPT: &str = r#"
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ResourceUpdatedNotificationSchema } from "@modelcontextprotocol/sdk/types.js";
import assert from "node:assert/strict";
const transport = process.env.URL
  ? new StreamableHTTPClientTransport(new URL(process.env.URL),
      { requestInit: { headers: { Authorization: `Bearer ${process.env.AGENTMINE_MCP_TOKEN}` } } })
  : new StdioClientTransport({ command: process.env.AGENTMINE, args: ["mcp", "serve"],
      cwd: process.env.PROJECT, env: process.env });
const client = new Client({ name: "test", version: "1" });
let wake;
const seen = [];
client.setNotificationHandler(ResourceUpdatedNotificationSchema, (notice) => { seen.push(notice.params.uri); wake?.(); });
const notice = () => new Promise((resolve) => { wake = resolve; });
await client.connect(transport);
const call = async (name, args) => {
  const result = await client.callTool({ name, arguments: args });
  assert.ok(!result.isError, JSON.stringify(result));
  return result.structuredContent;
};
const task = await call("task_create", { title: "Watched" });
const other = await call("task_create", { title: "Not watched" });
const uri = `task://${task.id}`;
await client.subscribeResource({ uri });
let next = notice();
await call("task_update", { taskId: other.id, status: "in_progress" });
await call("task_update", { taskId: task.id, status: "in_progress" });
await next;
next = notice();
const session = await call("session_start", { taskId: task.id, client: "codex" });
await call("session_end", { sessionId: session.id, exitCode: 0, dodResult: "merged" });
await next;
assert.ok(seen.length >= 2 && seen.every((it) => it === uri), JSON.stringify(seen));
await client.unsubscribeResource({ uri });
await assert.rejects(client.subscribeResource({ uri: "task://999" }), (error) => error.data.code === -32001);
await assert.rejects(client.subscribeResource({ uri: "agent://default" }), (error) => error.data.code === -32007);
await client.close();
console.log("every notice came");
process.exit(0);
"#;

/// Runs the script with this environment.
fn watch(world: &World, variables: &[(&str, &str)]) {
    let done = sdk::run(world, SCRIPT, variables);
    let shown = String::from_utf8_lossy(&done.stdout);
    let errors = String::from_utf8_lossy(&done.stderr);
    assert!(shown.contains("every notice came"), "{shown}{errors}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_gets_notice_of_a_task_that_it_subscribed_to_over_both_transports() {
    let world = World::new();
    tokio::task::block_in_place(|| watch(&world, &[]));
    // The same on Postgres.
    let rig = Rig::new(Scenario::new("nothing")).await;
    let store = rig.config["store"]["url"].as_str().unwrap();
    tokio::task::block_in_place(|| watch(&world, &[("AGENTMINE_STORE_URL", store)]));
    let served = Served::start().await;
    let url = format!("http://127.0.0.1:{}/mcp", served.port);
    tokio::task::block_in_place(|| watch(&world, &[("URL", &url), ("AGENTMINE_MCP_TOKEN", TOKEN)]));
}

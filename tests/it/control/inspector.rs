//! `agentmine mcp serve` over stdio by the inspector's command line, a client of others that `tests/run` installs: every
//! tool, every resource and every error code, and what it finds in the schemas of the tools.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use agentmine_domain::{NewTask, Priority};
use agentmine_runtime::config::{Secret, StoreConfig};
use agentmine_store::Enqueued;
use agentmine_tests::mcp::installed;
use serde_json::{Value, json};

use super::World;
use crate::rig::binary;

/// The inspector beside a world. Each call starts a separate server, so all that is seen was stored.
struct Inspector {
    world: World,
    /// The tools that were called with success.
    called: BTreeSet<String>,
}

/// What a run of the inspector came to.
struct Ran {
    code: i32,
    /// The result that the server returned; null for an error of the protocol.
    result: Value,
    errors: String,
}

impl Inspector {
    fn new() -> Self {
        Self {
            world: World::new(),
            called: BTreeSet::new(),
        }
    }

    fn run(&self, args: &[&str]) -> Ran {
        let folder = std::env::var_os("AGENTMINE_TEST_INSPECTOR").map(PathBuf::from);
        let folder = folder.expect("no inspector in AGENTMINE_TEST_INSPECTOR; run tests/run");
        let mut command = Command::new(installed().join("node_modules/.bin/node"));
        self.world.environment(&mut command);
        let done = command
            .arg(folder.join("node_modules/.bin/mcp-inspector"))
            .arg("--cli")
            .arg(binary("agentmine"))
            .args(["mcp", "serve", "--format", "json", "--quiet"])
            .args(args)
            .current_dir(self.world.project())
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&done.stderr).into_owned();
        let printed: Value = serde_json::from_slice(&done.stdout).unwrap_or_default();
        Ran {
            code: done.status.code().unwrap_or(-1),
            result: printed["result"].clone(),
            errors,
        }
    }

    fn call_raw(&self, tool: &str, arguments: &Value) -> Ran {
        let arguments = arguments.to_string();
        self.run(&[
            "--method",
            "tools/call",
            "--tool-name",
            tool,
            "--tool-args-json",
            &arguments,
        ])
    }

    /// The structured content of a call that succeeds.
    #[track_caller]
    fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let ran = self.call_raw(tool, &arguments);
        assert_eq!(
            ran.code, 0,
            "{tool} {arguments}: {}{}",
            ran.result, ran.errors
        );
        assert_ne!(ran.result["isError"], true, "{tool}: {}", ran.result);
        let content = ran.result["structuredContent"].clone();
        let text = ran.result["content"][0]["text"].as_str().unwrap();
        // JavaScript writes 2.0 as 2.
        let text = text.replace(".0,", ",").replace(".0}", "}");
        assert_eq!(
            serde_json::from_str::<Value>(&text).unwrap(),
            content,
            "{tool}: text and content differ"
        );
        self.called.insert(tool.to_owned());
        content
    }

    /// A call that fails with this code and name.
    #[track_caller]
    fn fails(&self, tool: &str, arguments: Value, code: i64, name: &str) {
        let ran = self.call_raw(tool, &arguments);
        let error = &ran.result["structuredContent"]["error"];
        // The inspector's exit code for a tool that reports an error.
        assert_eq!(
            (ran.code, &ran.result["isError"]),
            (5, &json!(true)),
            "{tool} {arguments}: {}",
            ran.errors
        );
        assert_eq!(
            (&error["code"], &error["name"]),
            (&json!(code), &json!(name)),
            "{tool} {arguments}: {error}"
        );
        assert!(error["message"].is_string(), "{error}");
    }

    /// What is listed under `field` by a method.
    #[track_caller]
    fn list(&self, method: &str, field: &str) -> Vec<Value> {
        let ran = self.run(&["--method", method]);
        assert_eq!(ran.code, 0, "{method}: {}", ran.errors);
        ran.result[field].as_array().unwrap().clone()
    }

    /// The one content of a resource, after checking its type.
    #[track_caller]
    fn read(&self, uri: &str, mime: &str) -> String {
        let ran = self.run(&["--method", "resources/read", "--uri", uri]);
        assert_eq!(ran.code, 0, "{uri}: {}", ran.errors);
        let contents = ran.result["contents"].as_array().unwrap();
        assert_eq!(
            (
                contents.len(),
                &contents[0]["uri"],
                &contents[0]["mimeType"]
            ),
            (1, &json!(uri), &json!(mime))
        );
        contents[0]["text"].as_str().unwrap().to_owned()
    }
}

#[test]
fn the_inspector_drives_every_tool_resource_and_error_code() {
    let mut inspector = Inspector::new();
    tasks_and_workers(&mut inspector);
    agents_and_memory(&mut inspector);
    let tools = inspector.list("tools/list", "tools");
    let tools: BTreeSet<String> = tools
        .iter()
        .map(|it| it["name"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(tools, inspector.called, "each tool was called");
    resources(&inspector);
    error_codes(&mut inspector);
}

fn tasks_and_workers(it: &mut Inspector) {
    let new = json!({"title": "Fix the login", "description": "It fails.", "priority": "critical", "type": "bug",
                     "assignee": "maya", "assigneeType": "ai"});
    let made = it.call("task_create", new);
    assert_eq!(
        (&made["id"], &made["status"], &made["type"]),
        (&json!(1), &json!("open"), &json!("bug"))
    );
    let filter = json!({"status": "open", "assignee": "maya", "limit": 5});
    assert_eq!(it.call("task_list", filter)["tasks"][0]["id"], 1);
    // Some clients write all their numbers so; to JSON Schema it is an integer.
    assert_eq!(
        it.call("task_get", json!({"taskId": 1.0}))["title"],
        "Fix the login"
    );
    let update = json!({"taskId": 1, "version": 1, "priority": "low"});
    assert_eq!(it.call("task_update", update)["version"], 2);
    assert_eq!(
        it.call("task_why", json!({"taskId": 1}))["reasons"][0]["code"],
        "needs_client"
    );
    assert_eq!(
        it.call("queue_status", json!({}))["priorities"][0]["priority"],
        "critical"
    );

    let started = it.call(
        "worker_command",
        json!({"taskId": 1, "client": "codex", "auto": true}),
    );
    let session = started["sessionId"].clone();
    assert_eq!(
        it.call("worker_list", json!({}))["workers"][0]["worktree"],
        started["worktree"]
    );
    let logs = it.call("session_logs", json!({"sessionId": session}));
    assert_eq!(
        (&logs["running"], &logs["reply"]),
        (&json!(true), &Value::Null)
    );
    let artifacts = json!(["src/login.rs", {"kind": "commit", "id": "abc"}]);
    let end =
        json!({"sessionId": session, "exitCode": 0, "dodResult": "merged", "artifacts": artifacts});
    assert_eq!(it.call("session_end", end)["task"]["status"], "done");
    let shown = it.call("session_get", json!({"sessionId": session}));
    assert_eq!(
        (&shown["dodResult"], &shown["artifacts"]),
        (&json!("merged"), &artifacts)
    );
    it.call("worker_remove", json!({"taskId": 1}));
    assert_eq!(
        it.call("task_retry", json!({"taskId": 1}))["status"],
        "open"
    );
    it.call(
        "session_start",
        json!({"taskId": 1, "client": "gemini-cli"}),
    );
    let sessions = it.call("session_list", json!({"taskId": 1}));
    assert_eq!(sessions["sessions"].as_array().unwrap().len(), 2);
    assert_eq!(
        it.call("task_cancel", json!({"taskId": 1}))["status"],
        "cancelled"
    );
    of_a_tracker(it);
}

/// A task of a tracker, which nobody but the fleet works on.
fn of_a_tracker(it: &mut Inspector) {
    let number = tokio::runtime::Runtime::new()
        .unwrap()
        .block_on(enqueued(&it.world));
    let paused = it.call("task_pause", json!({"taskId": number}));
    assert_eq!(paused["detail"], "paused");
    assert_eq!(
        it.call("task_resume", json!({"taskId": number}))["status"],
        "open"
    );
}

/// The number of a task that a producer made in the world's store.
async fn enqueued(world: &World) -> i64 {
    let file = world
        .home
        .path()
        .join(".local/state/agentmine/agentmine.db");
    let config = StoreConfig {
        url: Secret::new(format!("sqlite:{}", file.display())),
        ..StoreConfig::default()
    };
    let store = agentmine_store::connect(&config).await.unwrap();
    let new = NewTask {
        item: super::queue::item(7),
        trigger: "t7".to_owned(),
        title: "Of a tracker".to_owned(),
        url: "https://github.com/a/b/issues/7".to_owned(),
        priority: Priority::Medium,
    };
    let (Enqueued::Created(task) | Enqueued::Known(task)) = store.enqueue(&new).await.unwrap();
    task.number.0
}

fn agents_and_memory(it: &mut Inspector) {
    assert_eq!(
        it.call("agent_list", json!({}))["agents"][0]["name"],
        "default"
    );
    assert!(it.call("agent_get", json!({"name": "default"}))["limits"].is_object());
    let record = json!({"id": "linter", "category": "tooling", "title": "Use clippy", "summary": "clippy",
                        "content": "With denied warnings.", "status": "draft"});
    assert_eq!(it.call("memory_add", record)["status"], "draft");
    assert_eq!(
        it.call("memory_preview", json!({}))["text"],
        "",
        "agents are not given a draft"
    );
    let update = json!({"id": "linter", "version": 1, "status": "active"});
    assert_eq!(it.call("memory_update", update)["version"], 2);
    assert_eq!(
        it.call("memory_get", json!({"id": "linter"}))["status"],
        "active"
    );
    assert_eq!(
        it.call("memory_list", json!({}))["records"][0]["id"],
        "linter"
    );
    let preview = it.call("memory_preview", json!({}));
    assert!(
        preview["text"]
            .as_str()
            .unwrap()
            .contains("With denied warnings."),
        "{preview}"
    );
}

fn resources(it: &Inspector) {
    let templates = it.list("resources/templates/list", "resourceTemplates");
    let templates: Vec<[&Value; 3]> = templates
        .iter()
        .map(|it| [&it["uriTemplate"], &it["name"], &it["mimeType"]])
        .collect();
    assert_eq!(
        json!(templates),
        json!([
            ["agent://{name}", "Agent: {name}", "application/yaml"],
            ["task://{id}", "Task #{id}", "application/json"]
        ])
    );
    let listed = it.list("resources/list", "resources");
    let kinds: BTreeSet<&str> = listed
        .iter()
        .map(|it| it["uri"].as_str().unwrap().split_once(':').unwrap().0)
        .collect();
    assert_eq!(kinds, BTreeSet::from(["agent", "project", "task"]));
    for resource in &listed {
        let [uri, name, mime] =
            ["uri", "name", "mimeType"].map(|field| resource[field].as_str().unwrap());
        let text = it.read(uri, mime);
        let (kind, id) = uri.split_once("://").unwrap();
        let (expected, part) = match kind {
            "task" => (format!("Task #{id}"), format!("\"id\": {id},")),
            "agent" => (format!("Agent: {id}"), format!("name: \"{id}\"")),
            _ => ("Memory Bank".to_owned(), "Use clippy".to_owned()),
        };
        assert_eq!(name, expected, "{uri}");
        assert!(text.contains(&part), "{uri}: {text}");
    }
    for (uri, message) in [
        ("task://99", "there is no task 99"),
        ("agent://nobody", "there is no agent"),
        ("nothing://1", "unknown resource"),
    ] {
        let ran = it.run(&["--method", "resources/read", "--uri", uri]);
        assert_ne!(ran.code, 0, "{uri}: {}", ran.result);
        assert!(ran.errors.contains(message), "{uri}: {}", ran.errors);
    }
    // Of the stateless revision too.
    let modern = [
        "--protocol-era",
        "modern",
        "--method",
        "resources/read",
        "--uri",
        "task://1",
    ];
    let ran = it.run(&modern);
    assert!(
        ran.code == 0 && ran.result["contents"][0]["text"].is_string(),
        "{}",
        ran.errors
    );
}

fn error_codes(it: &mut Inspector) {
    let agents = it.world.project().join(".agentmine/agents");
    std::fs::create_dir_all(&agents).unwrap();
    std::fs::write(agents.join("broken.yaml"), "description: [\n").unwrap();
    let task = it.call("task_create", json!({"title": "x"}))["id"].clone();
    it.call("session_start", json!({"taskId": task}));
    for (code, name, tool, arguments) in [
        (-32001, "TaskNotFound", "task_get", json!({"taskId": 99})),
        (
            -32001,
            "TaskNotFound",
            "worker_command",
            json!({"taskId": 99}),
        ),
        (
            -32002,
            "AgentNotFound",
            "agent_get",
            json!({"name": "nobody"}),
        ),
        (
            -32003,
            "SessionNotFound",
            "session_end",
            json!({"sessionId": 99, "exitCode": 0}),
        ),
        (
            -32004,
            "InvalidStatus",
            "session_end",
            json!({"sessionId": 1, "exitCode": 0}),
        ),
        (
            -32005,
            "SessionAlreadyRunning",
            "session_start",
            json!({"taskId": task}),
        ),
        (
            -32005,
            "SessionAlreadyRunning",
            "worker_command",
            json!({"taskId": task, "client": "codex"}),
        ),
        (
            -32006,
            "ConfigError",
            "agent_get",
            json!({"name": "broken"}),
        ),
        (
            -32007,
            "ValidationError",
            "task_create",
            json!({"title": ""}),
        ),
        (-32007, "ValidationError", "task_list", json!({"limit": 0})),
        (
            -32007,
            "ValidationError",
            "task_list",
            json!({"limit": 1.5}),
        ),
        (-32008, "GitError", "worker_remove", json!({"taskId": 1})),
    ] {
        it.fails(tool, arguments, code, name);
    }
}

#[test]
fn the_inspector_finds_no_fault_in_the_schemas_of_the_tools() {
    let inspector = Inspector::new();
    let ran = inspector.run(&["--method", "tools/list", "--strict"]);
    assert_eq!(ran.code, 0, "{}", ran.errors);
    // That it can find one: it refuses a schema that allows anything.
    assert!(
        ran.result["tools"]
            .as_array()
            .is_some_and(|tools| tools.len() > 20),
        "{}",
        ran.result
    );
}

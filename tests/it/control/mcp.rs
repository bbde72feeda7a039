//! `agentmine mcp serve` over stdio, by our own client: every tool, resource and error code, on both databases.

use std::collections::BTreeSet;

use agentmine_mcp::config::{ServerPlace, Transport};
use agentmine_mcp::{Launchers, Manager, ManagerPolicy, ServerState, WorkerLauncher};
use agentmine_tests::mcp::{server, with_env};
use serde_json::{Value, json};
use uuid::Uuid;

use super::World;
use crate::rig::{binary, postgres_url};

const NAME: &str = "agentmine";

/// The server in a world.
struct Served {
    manager: Manager,
    world: World,
}

impl Served {
    async fn start(world: World, more: &[&str]) -> Self {
        let mut command = vec![binary("agentmine").display().to_string()];
        command.extend(
            more.iter()
                .chain(&["mcp", "serve"])
                .map(ToString::to_string),
        );
        let mut entry = server(NAME, ServerPlace::Worker, command);
        entry = with_env(entry, "HOME", &world.home.path().display().to_string());
        assert!(matches!(entry.transport, Transport::Stdio { .. }));
        let launcher = WorkerLauncher::new(world.project(), |name| std::env::var(name).ok());
        let launchers = Launchers {
            worker: Some(std::sync::Arc::new(launcher)),
            sandbox: None,
        };
        let manager = Manager::start([entry], launchers, ManagerPolicy::default()).await;
        let status = manager.status();
        assert_eq!(status[0].state, ServerState::Ready, "{status:#?}");
        Self { manager, world }
    }

    /// The structured content of a call that succeeds. The client checks it against the output schema.
    async fn call(&self, tool: &str, arguments: Value) -> Value {
        let output = self.manager.call(NAME, tool, arguments).await.unwrap();
        assert!(!output.is_error, "{tool}: {}", output.text);
        output.structured.unwrap()
    }

    /// The code of a call that fails.
    async fn code(&self, tool: &str, arguments: Value) -> i64 {
        let output = self.manager.call(NAME, tool, arguments).await.unwrap();
        assert!(output.is_error, "{tool}: {}", output.text);
        let error = &output.structured.as_ref().unwrap()["error"];
        assert!(
            error["name"].is_string() && error["message"].is_string(),
            "{error}"
        );
        assert!(
            output.text.contains(error["message"].as_str().unwrap()),
            "{}",
            output.text
        );
        error["code"].as_i64().unwrap()
    }
}

#[tokio::test]
async fn every_tool_and_code_on_sqlite_without_a_configuration() {
    let served = Served::start(World::new(), &[]).await;
    every_tool(&served).await;
    every_code(&served).await;
    resources(&served).await;
    // The command line sees the same.
    let list = served.world.json(&["task", "list"]);
    let page = served.call("task_list", json!({})).await;
    assert_eq!(page["tasks"], list);
    served.manager.shutdown().await;
}

#[tokio::test]
async fn the_server_reads_the_same_configuration_as_the_commands() {
    let world = World::new();
    let other = world.home.path().join("other.db");
    let config = json!({ "store": { "url": format!("sqlite:{}", other.display()) } });
    std::fs::write(world.project().join("config.yaml"), config.to_string()).unwrap();
    world.shown(&["task", "add", "In the store of this folder"], 0);
    assert!(other.exists());
    let served = Served::start(world, &[]).await;
    let page = served.call("task_list", json!({})).await;
    assert_eq!(
        page["tasks"][0]["title"], "In the store of this folder",
        "{page}"
    );
    served.manager.shutdown().await;
}

#[tokio::test]
async fn every_tool_and_code_on_postgres() {
    let world = World::new();
    let mut url: url::Url = postgres_url().parse().unwrap();
    url.set_path(&format!("t{}", Uuid::new_v4().simple()));
    let file = world.home.path().join("fleet.yaml");
    std::fs::write(
        &file,
        json!({ "store": { "url": url.as_str() } }).to_string(),
    )
    .unwrap();
    let file = file.display().to_string();
    let served = Served::start(world, &["--config", &file]).await;
    every_tool(&served).await;
    every_code(&served).await;
    resources(&served).await;
    served.manager.shutdown().await;
    let pool = sqlx::PgPool::connect(&postgres_url()).await.unwrap();
    let drop = format!(
        "DROP DATABASE \"{}\" WITH (FORCE)",
        url.path().trim_start_matches('/')
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(drop))
        .execute(&pool)
        .await
        .unwrap();
}

async fn every_tool(served: &Served) {
    let catalog = served.manager.catalog();
    let offered: BTreeSet<String> = catalog
        .tools()
        .iter()
        .map(|(_, _, tool)| tool.name.clone())
        .collect();
    let defined = agentmine_control::mcp::tools();
    let defined: BTreeSet<String> = defined.iter().map(|tool| tool.name().to_owned()).collect();
    assert_eq!(offered, defined);
    let queue = served.call("queue_status", json!({})).await;
    assert_eq!(queue["priorities"][0]["priority"], "critical", "{queue}");

    let made = served
        .call(
            "task_create",
            json!({"title": "Fix the login", "description": "It fails.", "priority": "critical", "type": "bug",
                   "assignee": "maya", "assigneeType": "ai"}),
        )
        .await;
    let id = made["id"].as_i64().unwrap();
    assert_eq!(
        (&made["status"], &made["type"]),
        (&json!("open"), &json!("bug"))
    );
    let page = served
        .call(
            "task_list",
            json!({"status": "open", "assignee": "maya", "limit": 5}),
        )
        .await;
    assert_eq!(page["tasks"][0]["id"], id);
    let updated = served
        .call(
            "task_update",
            json!({"taskId": id, "version": 1, "priority": "low"}),
        )
        .await;
    assert_eq!(
        (&updated["priority"], &updated["version"]),
        (&json!("low"), &json!(2))
    );
    assert_eq!(
        served.call("task_get", json!({"taskId": id})).await["priority"],
        "low"
    );
    let why = served.call("task_why", json!({"taskId": id})).await;
    assert_eq!(why["reasons"][0]["code"], "needs_client");

    let started = served
        .call(
            "worker_command",
            json!({"taskId": id, "client": "gemini-cli", "auto": true}),
        )
        .await;
    let fields: BTreeSet<&str> = started
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    let expected = [
        "command",
        "client",
        "worktree",
        "sessionId",
        "agent",
        "task",
    ];
    assert_eq!(fields, BTreeSet::from(expected));
    let fields: BTreeSet<&str> = started["task"]
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    assert_eq!(fields, BTreeSet::from(["id", "title", "branch"]));
    assert!(
        started["command"]
            .as_str()
            .unwrap()
            .contains("gemini --yolo")
    );
    let workers = served.call("worker_list", json!({})).await;
    assert_eq!(workers["workers"][0]["worktree"], started["worktree"]);
    let session = started["sessionId"].as_i64().unwrap();
    let ended = served
        .call(
            "session_end",
            json!({"sessionId": session, "exitCode": 0, "dodResult": "merged", "artifacts": ["a"], "signal": null}),
        )
        .await;
    assert_eq!(ended["task"]["status"], "done");
    served.call("worker_remove", json!({"taskId": id})).await;
    served.call("task_retry", json!({"taskId": id})).await;
    let begun = served.call("session_start", json!({"taskId": id})).await;
    let sessions = served.call("session_list", json!({"taskId": id})).await;
    assert_eq!(sessions["sessions"].as_array().unwrap().len(), 2);
    let shown = served
        .call("session_get", json!({"sessionId": session}))
        .await;
    assert_eq!(
        (&shown["dodResult"], &shown["end"]),
        (&json!("merged"), &json!("done"))
    );
    let logs = served
        .call("session_logs", json!({"sessionId": begun["id"]}))
        .await;
    assert_eq!(
        (&logs["running"], &logs["steps"]),
        (&json!(true), &json!([]))
    );
    agents_and_memory(served).await;
    let cancelled = served.call("task_cancel", json!({"taskId": id})).await;
    assert_eq!(cancelled["status"], "cancelled");
    assert_eq!(cancelled["sessions"][0]["end"], "stopped");
}

async fn agents_and_memory(served: &Served) {
    let agents = served.call("agent_list", json!({})).await;
    assert_eq!(agents["agents"][0]["name"], "default", "{agents}");
    let agent = served.call("agent_get", json!({"name": "default"})).await;
    assert!(agent["limits"].is_object(), "{agent}");
    let mut record = json!({"id": "linter", "category": "tooling", "title": "Use clippy", "content": "With denied warnings."});
    let added = served.call("memory_add", record.clone()).await;
    assert_eq!(
        (&added["source"], &added["status"], &added["version"]),
        (&json!("session"), &json!("draft"), &json!(1))
    );
    let update = json!({"id": "linter", "version": 1, "summary": "clippy", "status": "active"});
    assert_eq!(served.call("memory_update", update).await["version"], 2);
    record["id"] = json!("of-a-person");
    record["content"] = json!("Of a person.");
    record["source"] = json!("human");
    let added = served.call("memory_add", record).await;
    assert_eq!(
        (&added["source"], &added["status"]),
        (&json!("human"), &json!("active"))
    );
    assert_eq!(
        served.call("memory_get", json!({"id": "linter"})).await["summary"],
        "clippy"
    );
    let page = served
        .call("memory_list", json!({"category": "tooling"}))
        .await;
    assert_eq!(page["records"][0]["id"], "linter");
    let preview = served.call("memory_preview", json!({})).await;
    assert!(
        preview["text"]
            .as_str()
            .unwrap()
            .contains("With denied warnings."),
        "{preview}"
    );
}

async fn every_code(served: &Served) {
    for (code, tool, arguments) in [
        (-32001, "task_get", json!({"taskId": 99})),
        (-32001, "task_pause", json!({"taskId": 99})),
        (
            -32002,
            "task_create",
            json!({"title": "x", "agent": "nobody"}),
        ),
        (
            -32002,
            "task_update",
            json!({"taskId": 1, "agent": "nobody"}),
        ),
        (
            -32002,
            "session_start",
            json!({"taskId": 1, "agent": "nobody"}),
        ),
        (-32003, "session_get", json!({"sessionId": 99})),
        (
            -32003,
            "session_end",
            json!({"sessionId": 99, "exitCode": 0}),
        ),
        (
            -32004,
            "session_end",
            json!({"sessionId": 1, "exitCode": 0}),
        ),
        (-32004, "task_cancel", json!({"taskId": 1})),
        (-32004, "task_resume", json!({"taskId": 1})),
        (-32007, "task_list", json!({"status": "closed"})),
        (-32007, "task_create", json!({})),
        (
            -32007,
            "task_create",
            json!({"title": "x", "colour": "red"}),
        ),
        (-32007, "task_get", json!({"taskId": "one"})),
        (-32008, "worker_remove", json!({"taskId": 1})),
    ] {
        assert_eq!(
            served.code(tool, arguments.clone()).await,
            code,
            "{tool} {arguments}"
        );
    }
    let agents = served.world.project().join(".agentmine/agents");
    std::fs::create_dir_all(&agents).unwrap();
    std::fs::write(agents.join("broken.yaml"), "description: [\n").unwrap();
    for (code, tool, arguments) in [
        (-32006, "agent_get", json!({"name": "broken"})),
        (-32002, "agent_get", json!({"name": "nobody"})),
        (-32007, "memory_get", json!({"id": "nothing"})),
        (
            -32004,
            "memory_add",
            json!({"id": "linter", "category": "tooling", "title": "Again"}),
        ),
        (
            -32004,
            "memory_update",
            json!({"id": "linter", "version": 1, "title": "Late"}),
        ),
        (
            -32007,
            "memory_add",
            json!({"id": "Not a slug", "category": "x", "title": "y"}),
        ),
    ] {
        assert_eq!(
            served.code(tool, arguments.clone()).await,
            code,
            "{tool} {arguments}"
        );
    }
    let task = served.call("task_create", json!({"title": "x"})).await["id"].clone();
    served.call("session_start", json!({"taskId": task})).await;
    for tool in ["session_start", "worker_command"] {
        assert_eq!(
            served.code(tool, json!({"taskId": task})).await,
            -32005,
            "{tool}"
        );
    }
    let unknown = served.manager.call(NAME, "no_such_tool", json!({})).await;
    assert!(unknown.is_err(), "{unknown:?}");
}

async fn resources(served: &Served) {
    let catalog = served.manager.catalog();
    let offer = &catalog.servers[NAME];
    assert!(
        offer.templates.iter().any(|it| it.uri == "task://{id}"),
        "{:?}",
        offer.templates
    );
    assert!(
        offer
            .resources
            .iter()
            .any(|it| it.uri == "project://memory"),
        "{:?}",
        offer.resources
    );
    let read = served.manager.read(NAME, "task://1").await.unwrap();
    assert!(read.text.contains("Fix the login"), "{}", read.text);
    let memory = served.manager.read(NAME, "project://memory").await.unwrap();
    assert!(memory.text.contains("Use clippy"), "{}", memory.text);
    let agent = served.manager.read(NAME, "agent://default").await.unwrap();
    assert!(agent.text.contains("name: "), "{}", agent.text);
    for uri in [
        "task://99",
        "task://one",
        "nothing://1",
        "agent://nobody",
        "project://memory/x",
    ] {
        let read = served.manager.read(NAME, uri).await;
        assert!(read.is_ok_and(|output| output.is_error), "{uri}");
    }
}

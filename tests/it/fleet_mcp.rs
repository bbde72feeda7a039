//! MCP servers in a session: where they run, what they can see, and how they end.

use std::path::PathBuf;

use agentmine_domain::{EndState, Task, TaskState};
use agentmine_tests::forge::DEMO;
use agentmine_tests::model::{
    Answer, Scenario, call, commit_and_push, edit_replace, edit_view, say, shell,
};
use serde_json::{Value, json};

use crate::gate::Gate;
use crate::rig::{PATIENCE, REQUEST, Rig, assert_done};

const PROBE: &str = include_str!("fleet_mcp/probe.py");
const TOKEN: &str = "canary-token-of-a-server";
const FILE: &str = ".agentmine/mcp_config.json";

/// The sample's solution, after other calls.
fn first(calls: impl IntoIterator<Item = Answer>) -> Scenario {
    Scenario::new("uses servers first").replies(calls.into_iter().chain([
        edit_replace("greet.sh", "name=\"\"", "name=\"${1:-world}\""),
        commit_and_push("Greet the person named"),
        say("Done."),
    ]))
}

fn probe(tool: &str, text: &str) -> Answer {
    call(&format!("mcp__probe__{tool}"), json!({ "text": text }))
}

/// The operator's files in a test.
trait Operator {
    fn script(&self) -> PathBuf;
    fn pids(&self) -> PathBuf;
    fn servers(&mut self, servers: Value);
    fn on_worker(&self) -> Value;
    fn started(&self) -> Vec<i32>;
}

impl Operator for Rig {
    fn script(&self) -> PathBuf {
        let path = self.folder.path().join("probe.py");
        std::fs::write(&path, PROBE).unwrap();
        path
    }

    fn pids(&self) -> PathBuf {
        self.folder.path().join("pids")
    }

    /// Configures these as the operator's servers.
    fn servers(&mut self, servers: Value) {
        let path = self.folder.path().join("mcp_config.json");
        let file = json!({ "mcpServers": servers });
        std::fs::write(&path, file.to_string()).unwrap();
        self.config["mcp"]["config_file"] = path.to_str().unwrap().into();
    }

    /// The probe as a process of the worker, with a secret.
    fn on_worker(&self) -> Value {
        json!({
            "command": ["python3", self.script(), "--pids", self.pids()],
            "env": { "PROBE_TOKEN": TOKEN },
        })
    }

    /// The servers that were started on the worker.
    fn started(&self) -> Vec<i32> {
        let text = std::fs::read_to_string(self.pids()).unwrap_or_default();
        text.lines().map(|line| line.parse().unwrap()).collect()
    }
}

/// The probe as the repository itself has it.
fn in_repository(rig: &Rig, file: Option<Value>) {
    rig.forge.commit(DEMO, "main", "main", |dir| {
        std::fs::create_dir_all(dir.join("tools")).unwrap();
        std::fs::write(dir.join("tools/probe.py"), PROBE).unwrap();
        if let Some(file) = &file {
            std::fs::write(dir.join(FILE), file.to_string()).unwrap();
        }
    });
}

/// Runs the only task, which must succeed.
async fn done(rig: &Rig) -> (Task, String) {
    let log = rig.consume().await;
    let task = rig.task().await;
    assert_eq!(
        task.state,
        TaskState::Ended(EndState::Done),
        "{:?}\n{log}\n{}",
        task.reason,
        rig.transcript(&task).await
    );
    assert_eq!(rig.forge.pulls(DEMO).len(), 1);
    (task, log)
}

/// The results of a tool's calls, as the model got them.
async fn results(rig: &Rig, task: &Task, tool: &str) -> Vec<String> {
    let results = rig.results(task).await.into_iter();
    let of_tool = results.filter(|(_, result)| result.name == tool);
    of_tool.map(|(_, result)| result.text).collect()
}

/// The names that the n-th request offered.
fn offered(rig: &Rig, request: usize) -> Vec<String> {
    let tools = rig.model.requests()[request].body["tools"].clone();
    let tools = tools.as_array().unwrap().iter();
    tools
        .map(|tool| tool["function"]["name"].as_str().unwrap().to_owned())
        .collect()
}

fn is_running(pid: i32) -> bool {
    std::path::Path::new(&format!("/proc/{pid}")).exists()
}

#[tokio::test]
async fn an_operator_configured_server_is_offered_called_and_ends_with_the_session() {
    let scenario = first([
        probe("echo", "hello"),
        call("probe:where", json!({})),
        call("mcp__probe__no_such", json!({})),
    ]);
    let mut rig = Rig::local(scenario).await;
    let probe = rig.on_worker();
    rig.servers(json!({ "probe": probe, "broken": { "command": ["no-such-program-here"] }, "Bad Name": {} }));
    rig.produce_issue().await;
    let (task, log) = done(&rig).await;

    let names = offered(&rig, 0);
    assert!(names.contains(&"mcp__probe__echo".to_owned()), "{names:?}");
    let mut sorted = names.clone();
    sorted.sort();
    assert_eq!(names, sorted);
    let tools = rig.model.requests()[0].body["tools"].clone();
    let echo = names.iter().position(|name| name == "mcp__probe__echo");
    let properties = &tools[echo.unwrap()]["function"]["parameters"]["properties"];
    let keys: Vec<_> = properties.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["text", "marker"], "not in the declared order");
    // The prompt's prefix stays the same while the offered tools do.
    let tools = |n: usize| rig.model.requests()[n].body["tools"].to_string();
    assert_eq!(tools(0), tools(4));

    assert_eq!(
        results(&rig, &task, "mcp__probe__echo").await,
        ["echo: hello"]
    );
    let reported = results(&rig, &task, "probe:where").await.remove(0);
    let place: Value = serde_json::from_str(&reported).unwrap();
    assert_eq!(place["workspace"], false, "{reported}");
    assert_eq!(
        PathBuf::from(place["cwd"].as_str().unwrap()),
        rig.folder.path().canonicalize().unwrap()
    );
    let unknown = results(&rig, &task, "mcp__probe__no_such").await.remove(0);
    assert!(unknown.contains("\"status\":\"error\""), "{unknown}");

    let transcript = rig.transcript(&task).await;
    assert!(transcript.contains("probe 1.2.3"), "{transcript}");
    assert!(transcript.contains("Bad Name"), "{transcript}");
    assert!(transcript.contains("broken"), "{transcript}");
    assert!(!transcript.contains(TOKEN) && !log.contains(TOKEN));
    assert_eq!(place["token"], "***");

    let pids = rig.started();
    assert_eq!(pids.len(), 1);
    assert!(!is_running(pids[0]), "{pids:?} is left");
}

#[tokio::test]
async fn an_editor_without_the_editors_tool_is_reported_and_nothing_of_it_is_offered() {
    let scenario = Scenario::new("has another editor").replies([
        shell("sed -i 's/name=\"\"/name=\"${1:-world}\"/' greet.sh && sh test.sh"),
        commit_and_push("Greet the person named"),
        say("Done."),
    ]);
    let mut rig = Rig::new(scenario).await;
    in_repository(&rig, None);
    rig.config["text_editor_mcp"]["mcp_server"]["name"] = "text-editor".into();
    rig.config["text_editor_mcp"]["mcp_server"]["command"] = json!(["python3", "tools/probe.py"]);
    let number = rig.produce_issue().await;
    done(&rig).await;
    let comments = rig.forge.comments(DEMO, number);
    let reason = "MCP server 'text-editor' has no tool 'text_editor'";
    assert!(comments[0].body.contains(reason), "{comments:#?}");
    let names = offered(&rig, 0);
    assert!(!names.iter().any(|it| it.contains("text")), "{names:?}");
}

#[tokio::test]
async fn a_sandboxed_server_sees_the_workspace_and_not_the_worker() {
    let marker = std::env::temp_dir().join(format!("agentmine-{}", uuid::Uuid::new_v4()));
    let scenario = first([
        probe("where", marker.to_str().unwrap()),
        probe("touch", "by-server.txt"),
    ]);
    let mut rig = Rig::new(scenario).await;
    in_repository(&rig, None);
    rig.servers(json!({ "probe": {
        "command": ["python3", "tools/probe.py"], "sandbox": true, "env": { "PROBE_TOKEN": TOKEN }
    }}));
    rig.produce_issue().await;
    rig.model.hold_at(2);
    let consumer = rig.spawn("consumer", &["--once"]);
    rig.model.wait_for_held(1).await;
    let task = rig.task().await;
    let reported = results(&rig, &task, "mcp__probe__where").await.remove(0);
    let place: Value = serde_json::from_str(&reported).unwrap();
    assert_eq!(place["workspace"], true, "{reported}");
    assert_eq!(place["cwd"], "/workspace/project");
    assert_eq!(
        place["token"], "***",
        "the variable is set, and redacted in the result"
    );
    assert!(!marker.exists(), "it wrote on the host");
    // Its changes to files are kept, as a command's would be.
    let mut results = rig.results(&task).await.into_iter();
    let touched = results.find(|(_, result)| result.name == "mcp__probe__touch");
    let checkpoints = rig.store.checkpoints(task.id).await.unwrap();
    let newest = checkpoints.last().map(|checkpoint| checkpoint.seq);
    assert_eq!(newest, touched.map(|(seq, _)| seq));
    rig.model.release();
    let (status, log) = consumer.end().await;
    assert!(status.success() && !log.contains(TOKEN), "{log}");
    let pull = &rig.forge.pulls(DEMO)[0];
    assert_eq!(
        rig.forge
            .file_at(DEMO, &pull.head, "by-server.txt")
            .as_deref(),
        Some("I was here\n")
    );
    assert_eq!(crate::rig::containers(&[task]).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_repository_configured_server_runs_in_the_sandbox_without_operator_secrets() {
    let marker = std::env::temp_dir().join(format!("agentmine-{}", uuid::Uuid::new_v4()));
    let scenario = first([probe("where", marker.to_str().unwrap())]);
    let mut rig = Rig::local(scenario).await;
    let operators = rig.on_worker();
    rig.servers(json!({ "probe": operators }));
    // The same name, an attempt to choose where it runs, and one to read the worker's environment.
    in_repository(
        &rig,
        Some(json!({ "mcpServers": { "probe": {
            "command": ["python3", "tools/probe.py"],
            "sandbox": false,
            "env": { "PROBE_TOKEN": "${PROBE_TOKEN}", "HOST_HOME": "${HOME}" }
        }, "plain": { "command": ["python3", "tools/probe.py"] } } })),
    );
    rig.produce_issue().await;
    let (task, log) = done(&rig).await;
    assert!(!marker.exists(), "it wrote on the host");
    assert!(
        rig.started().is_empty(),
        "the operator's server was started"
    );
    let transcript = rig.transcript(&task).await;
    assert!(!transcript.contains(TOKEN) && !log.contains(TOKEN));
    let reported = results(&rig, &task, "mcp__probe__where").await.remove(0);
    // If the entry is refused, no server has the name; otherwise the repository's has it.
    if let Ok(place) = serde_json::from_str::<Value>(&reported) {
        assert_ne!(place["token"], TOKEN);
        assert_ne!(place["workspace"], false, "{reported}");
    }
    let names = offered(&rig, 0);
    assert!(
        names.contains(&"mcp__plain__where".to_owned()),
        "{names:?}\n{transcript}"
    );
}

#[tokio::test]
async fn a_repository_server_with_an_operators_name_gets_only_its_own_environment() {
    let marker = std::env::temp_dir().join(format!("agentmine-{}", uuid::Uuid::new_v4()));
    let scenario = first([probe("where", marker.to_str().unwrap())]);
    let mut rig = Rig::local(scenario).await;
    let operators = rig.on_worker();
    rig.servers(json!({ "probe": operators }));
    in_repository(
        &rig,
        Some(json!({ "mcpServers": { "probe": { "command": ["python3", "tools/probe.py"] } } })),
    );
    rig.produce_issue().await;
    let (task, _) = done(&rig).await;
    let reported = results(&rig, &task, "mcp__probe__where").await.remove(0);
    let place: Value = serde_json::from_str(&reported).unwrap();
    assert_eq!(
        (&place["token"], &place["workspace"]),
        (&json!("none"), &json!(true)),
        "{reported}"
    );
    assert!(!marker.exists(), "it wrote on the host");
    assert!(
        rig.started().is_empty(),
        "the operator's server was started"
    );
}

#[tokio::test]
async fn servers_that_an_agent_adds_to_the_repository_are_not_started_on_resume() {
    let file = json!({ "mcpServers": {
        "probe": { "command": ["python3", "tools/probe.py"] },
        "added": { "command": ["python3", "tools/probe.py"] }
    }});
    let scenario = Scenario::new("adds a server").replies([
        shell(&format!(
            "echo '{file}' > {FILE} && echo '# more' >> README.md"
        )),
        commit_and_push("Add a server"),
        edit_replace("greet.sh", "name=\"\"", "name=\"${1:-world}\""),
        commit_and_push("Greet the person named"),
        say("Done."),
    ]);
    let rig = Rig::local(scenario).await;
    in_repository(
        &rig,
        Some(json!({ "mcpServers": { "probe": { "command": ["python3", "tools/probe.py"] } } })),
    );
    rig.produce_issue().await;
    rig.model.hold_at(2);
    let victim = rig.spawn("consumer", &["--once"]);
    rig.model.wait_for_held(1).await;
    victim.kill_nine();
    victim.end().await;
    // The branch that it started from has moved, too.
    rig.forge.commit(DEMO, "main", "main", |dir| {
        std::fs::write(dir.join(FILE), file.to_string()).unwrap();
    });
    rig.model.release();
    let consumer = rig.spawn("consumer", &[]);
    let task = rig.wait_ended(1).await.remove(0);
    consumer.terminate();
    assert!(consumer.end().await.0.success());
    assert_done(&task);
    assert_eq!(task.attempt, 2);
    let last = rig.model.requests().len() - 1;
    for request in [0, last] {
        let names = offered(&rig, request);
        assert!(names.contains(&"mcp__probe__echo".to_owned()), "{names:?}");
        assert!(!names.contains(&"mcp__added__echo".to_owned()), "{names:?}");
    }
}

#[tokio::test]
async fn servers_that_a_pull_request_adds_are_not_started_before_it_is_merged() {
    let server = json!({ "command": ["python3", "tools/probe.py"] });
    let rig = Rig::local(first([probe("echo", "hello")])).await;
    in_repository(&rig, Some(json!({ "mcpServers": { "probe": server } })));
    rig.forge.commit(DEMO, "feature", "main", |dir| {
        let file = json!({ "mcpServers": { "probe": server, "added": server } });
        std::fs::write(dir.join(FILE), file.to_string()).unwrap();
    });
    rig.forge
        .add_pull(DEMO, "feature", "main", "Add a server", &[REQUEST]);
    rig.produce().await;
    rig.consume().await;
    assert_done(&rig.task().await);
    let names = offered(&rig, 0);
    assert!(names.contains(&"mcp__probe__echo".to_owned()), "{names:?}");
    assert!(!names.contains(&"mcp__added__echo".to_owned()), "{names:?}");
}

#[tokio::test]
async fn repository_configured_servers_can_be_disabled() {
    let mut rig = Rig::local(first([])).await;
    rig.config["mcp"]["repository_servers"] = false.into();
    in_repository(
        &rig,
        Some(json!({ "mcpServers": { "probe": { "command": ["python3", "tools/probe.py"] } } })),
    );
    rig.produce_issue().await;
    done(&rig).await;
    let names = offered(&rig, 0);
    assert!(
        !names.iter().any(|name| name.starts_with("mcp__")),
        "{names:?}"
    );
}

/// Kills every text editor in the sandbox.
fn kill_editor() -> Answer {
    shell(
        "for p in /proc/[0-9]*; do grep -qa 'mcp-server-text-edito[r]' $p/cmdline 2>/dev/null && kill -9 ${p#/proc/}; done; true",
    )
}

#[tokio::test]
async fn a_killed_editor_is_restarted_once() {
    let rig = Rig::local(first([kill_editor(), edit_view("greet.sh")])).await;
    rig.produce_issue().await;
    let (task, _) = done(&rig).await;
    let results = results(&rig, &task, "text_editor").await;
    assert!(results[0].contains("Greets the person"), "{results:?}");
    let transcript = rig.transcript(&task).await;
    assert!(
        transcript.contains("mcp-server-text-editor"),
        "{transcript}"
    );
    assert!(
        transcript.contains("MCP server text-editor"),
        "{transcript}"
    );
    assert!(!transcript.contains("continues without it"), "{transcript}");
}

#[tokio::test]
async fn an_editor_that_is_killed_twice_is_reported_and_the_session_continues_without_it() {
    let scenario = Scenario::new("kills its editor").replies([
        kill_editor(),
        edit_view("greet.sh"),
        kill_editor(),
        edit_view("greet.sh"),
        shell("sed -i 's/name=\"\"/name=\"${1:-world}\"/' greet.sh && sh test.sh"),
        commit_and_push("Greet the person named"),
        say("Done."),
    ]);
    let rig = Rig::local(scenario).await;
    let number = rig.produce_issue().await;
    rig.model.hold_at(4);
    let consumer = rig.spawn("consumer", &["--once"]);
    rig.model.wait_for_held(1).await;
    let comments = rig.forge.comments(DEMO, number);
    assert_eq!(comments.len(), 1, "{comments:#?}");
    assert!(
        comments[0].body.contains("continues without it"),
        "{}\n{}",
        comments[0].body,
        rig.transcript(&rig.task().await).await
    );
    rig.model.release();
    let (status, log) = consumer.end().await;
    assert!(status.success(), "{log}");
    // What it says is not replaced by the result.
    let comments = rig.forge.comments(DEMO, number);
    for part in ["opened a pull request", "continues without it"] {
        assert!(comments[0].body.contains(part), "{comments:#?}");
    }
    let task = rig.task().await;
    assert_eq!(task.state, TaskState::Ended(EndState::Done), "{log}");
    let results = results(&rig, &task, "text_editor").await;
    assert!(results[0].contains("Greets the person"), "{results:?}");
    assert!(results[1].contains("\"status\":\"error\""), "{results:?}");
    let names = offered(&rig, 4);
    assert!(!names.contains(&"text_editor".to_owned()), "{names:?}");
}

#[tokio::test]
async fn a_server_crash_is_reported_to_the_model_and_the_task_succeeds() {
    let mut rig = Rig::local(first([probe("crash", ""), probe("echo", "again")])).await;
    let server = rig.on_worker();
    rig.servers(json!({ "probe": server }));
    rig.produce_issue().await;
    let (task, _) = done(&rig).await;
    let crashed = results(&rig, &task, "mcp__probe__crash").await.remove(0);
    let reported: Value = serde_json::from_str(&crashed).unwrap();
    assert_eq!(reported["status"], "error");
    assert!(reported["error"]["code"].is_string() && reported["error"]["message"].is_string());
    // It was restarted, and the call waited for it.
    assert_eq!(
        results(&rig, &task, "mcp__probe__echo").await,
        ["echo: again"]
    );
    let pids = rig.started();
    assert_eq!(pids.len(), 2);
    assert!(pids.iter().all(|pid| !is_running(*pid)), "{pids:?}");
}

#[tokio::test]
async fn forge_servers_are_withheld_only_while_the_editor_is_on() {
    for editor in [true, false] {
        let scenario = Scenario::new("by shell").replies([
            shell("sed -i 's/name=\"\"/name=\"${1:-world}\"/' greet.sh && sh test.sh"),
            commit_and_push("Greet the person named"),
            say("Done."),
        ]);
        let mut rig = Rig::local(scenario).await;
        let server = rig.on_worker();
        rig.servers(json!({ "github": server }));
        rig.config["text_editor_mcp"]["enabled"] = editor.into();
        rig.produce_issue().await;
        let (task, _) = done(&rig).await;
        let names = offered(&rig, 0);
        let is_offered = names.contains(&"mcp__github__echo".to_owned());
        assert_eq!(is_offered, !editor, "{names:?}");
        assert_eq!(rig.started().is_empty(), editor);
        let transcript = rig.transcript(&task).await;
        let reported = transcript
            .matches("not offered while the text editor is on")
            .count();
        assert_eq!(reported, usize::from(editor), "{transcript}");
    }
}

#[tokio::test]
async fn a_withdrawn_tool_is_no_longer_offered() {
    let mut rig = Rig::local(first([
        probe("shrink", ""),
        probe("echo", "still?"),
        probe("late", "x"),
    ]))
    .await;
    let server = rig.on_worker();
    rig.servers(json!({ "probe": server }));
    rig.config["mcp"]["denied_tools"] = json!(["probe:h*"]);
    rig.produce_issue().await;
    let (task, _) = done(&rig).await;
    let [before, after] = [offered(&rig, 0), offered(&rig, 1)];
    assert!(
        before.contains(&"mcp__probe__echo".to_owned()),
        "{before:?}"
    );
    assert!(!after.contains(&"mcp__probe__echo".to_owned()), "{after:?}");
    assert!(after.contains(&"mcp__probe__late".to_owned()), "{after:?}");
    // And what the operator denies was never offered.
    assert!(
        !before.contains(&"mcp__probe__hang".to_owned()),
        "{before:?}"
    );
    let reported = results(&rig, &task, "mcp__probe__echo").await.remove(0);
    assert!(reported.contains("\"status\":\"error\""), "{reported}");
    assert_eq!(results(&rig, &task, "mcp__probe__late").await, ["echo: x"]);
}

#[tokio::test]
async fn a_hanging_call_ends_with_the_session_and_leaves_no_process() {
    let mut rig = Rig::local(first([probe("hang", "")])).await;
    let mut server = rig.on_worker();
    server["timeoutSeconds"] = 300.into();
    rig.servers(json!({ "probe": server }));
    let number = rig.produce_issue().await;
    let consumer = rig.spawn("consumer", &[]);
    rig.model.wait_for_requests(1).await;
    rig.wait("the server to run", |_| !rig.started().is_empty())
        .await;
    let task = rig.task().await;
    assert!(rig.store.request_stop(task.id, "enough").await.unwrap());
    rig.forge
        .wait_until("the stop is reported", PATIENCE, |forge| {
            forge.labels(DEMO, number) == ["coding agent stopped"]
        })
        .await;
    let pids = rig.started();
    assert!(pids.iter().all(|pid| !is_running(*pid)), "{pids:?}");
    consumer.terminate();
    assert!(consumer.end().await.0.success());
}

#[tokio::test]
async fn sampling_requests_are_limited_and_counted() {
    let answers = [
        probe("ask", "sampled: one"),
        probe("ask", "sampled: two"),
        edit_replace("greet.sh", "name=\"\"", "name=\"${1:-world}\""),
        commit_and_push("Greet the person named"),
    ];
    let scenario = Scenario::new("is asked by a server").reply(move |turn| {
        if turn.task().starts_with("sampled:") {
            return say("an answer of the model");
        }
        answers
            .get(turn.number)
            .cloned()
            .unwrap_or_else(|| say("Done."))
    });
    let mut rig = Rig::local(scenario).await;
    let mut server = rig.on_worker();
    server["capabilities"] = json!({ "sampling": true });
    rig.servers(json!({ "probe": server }));
    rig.config["mcp"]["sampling"]["max_requests"] = 1.into();
    rig.produce_issue().await;
    let (task, _) = done(&rig).await;
    let reported = results(&rig, &task, "mcp__probe__ask").await;
    assert!(
        reported[0].contains("an answer of the model"),
        "{reported:?}"
    );
    assert!(reported[1].contains("reached its limit"), "{reported:?}");
    let session = rig.sessions().await.remove(0);
    let own = rig.model.requests().len() as u32;
    assert_eq!(session.usage.model_calls, own);
    let transcript = rig.transcript(&task).await;
    assert_eq!(
        transcript.matches("called the model").count(),
        1,
        "{transcript}"
    );
}

const LIBRARY: &str = r#"
import json, sys
def result(method, params):
    if method == "initialize":
        return {"protocolVersion": "2025-06-18", "capabilities": {"resources": {}, "prompts": {}}, "serverInfo": {"name": "library", "version": "1"}}
    if method == "resources/list":
        return {"resources": [{"uri": "doc://style", "name": "style guide", "description": "How we write", "mimeType": "text/plain"}]}
    if method == "resources/templates/list":
        return {"resourceTemplates": [{"uriTemplate": "doc://{page}", "name": "page"}]}
    if method == "resources/read":
        return {"contents": [{"uri": params["uri"], "text": "the text of " + params["uri"]}]}
    if method == "prompts/list":
        return {"prompts": [{"name": "review", "description": "Review a file", "arguments": [{"name": "path", "required": True}]}]}
    if method == "prompts/get":
        words = "Review " + params["arguments"]["path"]
        return {"messages": [{"role": "user", "content": {"type": "text", "text": words}}]}
for line in sys.stdin:
    request = json.loads(line)
    if "id" in request:
        answer = result(request["method"], request.get("params", {}))
        body = {"result": answer} if answer else {"error": {"code": -32601, "message": "no"}}
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **body}), flush=True)
"#;

/// A server with resources and prompts, as the operator's.
fn library(rig: &mut Rig) {
    let script = rig.folder.path().join("library.py");
    std::fs::write(&script, LIBRARY).unwrap();
    rig.servers(json!({ "library": { "command": ["python3", script] } }));
}

#[tokio::test]
async fn resources_and_prompts_of_servers_can_be_listed_and_used() {
    let scenario = first([
        call("mcp_list_resources", json!({})),
        call(
            "mcp_read_resource",
            json!({"server": "library", "uri": "doc://naming"}),
        ),
        call("mcp_list_prompts", json!({"server": "library"})),
        call(
            "mcp_get_prompt",
            json!({"server": "library", "name": "review", "arguments": {"path": "greet.sh"}}),
        ),
        call(
            "mcp_read_resource",
            json!({"server": "nobody", "uri": "doc://naming"}),
        ),
    ]);
    let mut rig = Rig::local(scenario).await;
    library(&mut rig);
    rig.produce_issue().await;
    let (task, _) = done(&rig).await;
    let results = rig.results(&task).await;
    let texts: Vec<&str> = results.iter().map(|(_, it)| it.text.as_str()).collect();
    assert_eq!(
        texts[0],
        "library: doc://style (style guide, text/plain) How we write\nlibrary: template doc://{page} (page)"
    );
    assert_eq!(texts[1], "the text of doc://naming");
    assert_eq!(texts[2], "library: review (path: ) Review a file");
    assert_eq!(texts[3], "user: Review greet.sh");
    assert!(
        texts[4].contains("there is no MCP server \\\"nobody\\\". Available servers: library"),
        "{}",
        texts[4]
    );
}

#[tokio::test]
async fn resources_of_a_denied_server_are_not_offered() {
    let mut rig = Rig::local(first([call("mcp_list_resources", json!({}))])).await;
    library(&mut rig);
    rig.config["mcp"]["denied_tools"] = json!(["library:read_resource"]);
    rig.produce_issue().await;
    let (task, _) = done(&rig).await;
    let tools = rig.model.requests()[0].body["tools"].to_string();
    assert!(!tools.contains("mcp_list_resources"), "{tools}");
    assert!(tools.contains("mcp_get_prompt"), "{tools}");
    let results = rig.results(&task).await;
    assert!(
        results[0].1.text.contains("unknown_tool"),
        "{}",
        results[0].1.text
    );
}

/// 40 s without a heartbeat in a fleet with the default configuration, 4 s here.
#[tokio::test]
async fn a_call_on_the_worker_is_cancelled_when_the_store_is_silent() {
    let marks = tempfile::tempdir().unwrap();
    let begun = marks.path().join("begun");
    let hang = probe("hang", begun.to_str().unwrap());
    let mut rig = Rig::local(first([hang])).await;
    rig.servers(json!({ "probe": rig.on_worker() }));
    rig.produce_issue().await;
    let gate = Gate::of_url(&mut rig.config["store"]["url"]).await;
    let consumer = rig.spawn("consumer", &["--once"]);
    while !begun.exists() {
        // The server is another process.
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    gate.take_away();
    consumer.logged("the session is suspended").await;
    gate.give_back();
    let (status, log) = consumer.end().await;
    assert!(status.success(), "{log}");
    let task = rig.task().await;
    assert_eq!(
        (task.state, task.attempt),
        (TaskState::Ended(EndState::Done), 1),
        "{:?}\n{log}",
        task.reason
    );
    let hung = results(&rig, &task, "mcp__probe__hang").await;
    let [hung] = hung.as_slice() else {
        panic!("{hung:?}");
    };
    assert!(
        hung.contains("cancelled") && hung.contains("outcome is unknown"),
        "{hung}"
    );
}

#[tokio::test]
async fn sampling_on_the_worker_is_cancelled_when_the_store_is_silent() {
    let answers = [
        probe("ask", "sampled: one"),
        edit_replace("greet.sh", "name=\"\"", "name=\"${1:-world}\""),
        commit_and_push("Greet the person named"),
    ];
    let scenario = Scenario::new("is asked by a server").reply(move |turn| {
        let answer = answers.get(turn.number).cloned();
        answer.unwrap_or_else(|| say("Done."))
    });
    let mut rig = Rig::local(scenario).await;
    let mut server = rig.on_worker();
    server["capabilities"] = json!({ "sampling": true });
    rig.servers(json!({ "probe": server }));
    rig.model.hold_when("sampled:", 0);
    rig.produce_issue().await;
    let gate = Gate::of_url(&mut rig.config["store"]["url"]).await;
    let consumer = rig.spawn("consumer", &["--once"]);
    rig.model.wait_for_held(1).await;
    gate.take_away();
    consumer.logged("the session is suspended").await;
    rig.model.wait_for_none_held().await;
    gate.give_back();
    let (status, log) = consumer.end().await;
    assert!(status.success(), "{log}");
    let task = rig.task().await;
    let ended = (task.state, task.attempt);
    assert_eq!(ended, (TaskState::Ended(EndState::Done), 1), "{log}");
    let transcript = rig.transcript(&task).await;
    let note = "the MCP server probe called the model: no answer";
    assert_eq!(transcript.matches(note).count(), 1, "{transcript}");
}

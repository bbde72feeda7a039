//! `agentmine mcp` as a person uses it: real servers, a faulty one, and a file with a fault.

use std::path::Path;
use std::process::{Command, Output};

use agentmine_tests::mcp::installed;
use serde_json::{Value, json};

use crate::rig::binary;

/// A home folder with a configuration: three working servers, one that does not work, and a faulty entry.
fn home() -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    let bin = installed().join("node_modules/.bin");
    let node = |program: &str| json!([bin.join("node"), bin.join(program)]);
    let file = json!({ "mcpServers": {
        "everything": { "command": node("mcp-server-everything") },
        "time": {
            "command": "/usr/bin/python3",
            "args": ["-m", "mcp_server_time", "--local-timezone", "UTC"],
            "env": { "PYTHONPATH": installed().join("python") },
        },
        "broken": { "command": [binary("faulty-mcp-server"), "dies-with-words"] },
        "resting": { "command": ["never-started"], "enabled": false },
        "wrong": { "command": 42 },
    }});
    let folder = home.path().join(".agentmine");
    std::fs::create_dir(&folder).unwrap();
    let text = serde_json::to_string_pretty(&file).unwrap();
    std::fs::write(folder.join("mcp_config.json"), text).unwrap();
    home
}

fn agentmine(home: &Path, args: &[&str]) -> Output {
    Command::new(binary("agentmine"))
        .arg("mcp")
        .args(args)
        .current_dir(home)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", home)
        .output()
        .unwrap()
}

fn text(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    String::from_utf8_lossy(out).into_owned() + &String::from_utf8_lossy(err)
}

/// The output, after checking the exit code.
#[track_caller]
fn shown(home: &Path, args: &[&str], code: i32) -> String {
    let output = agentmine(home, args);
    let shown = text(&output);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {shown}");
    shown
}

#[track_caller]
fn assert_has(shown: &str, parts: &[&str]) {
    for part in parts {
        assert!(shown.contains(part), "{part:?} is not shown:\n{shown}");
    }
}

#[test]
fn list_shows_every_entry_and_the_place_of_the_faulty_one() {
    let home = home();
    let list = shown(home.path(), &["list"], 0);
    assert_has(
        &list,
        &[
            "everything",
            "time",
            "broken",
            "resting",
            "disabled",
            "mcp_config.json:",
        ],
    );
    assert_has(&list, &["mcpServers.wrong.command"]);
    let json = agentmine(home.path(), &["list", "--json"]);
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["servers"].as_array().unwrap().len(), 4, "{json:#}");
    assert_eq!(json["faults"][0]["server"], "wrong", "{json:#}");
}

#[test]
fn doctor_shows_which_servers_work_and_why_one_does_not() {
    let home = home();
    let healthy = shown(home.path(), &["doctor", "everything"], 0);
    assert_has(&healthy, &["everything", "2025-11-25", "13 tools"]);
    let stateless = shown(home.path(), &["doctor", "time"], 0);
    assert_has(&stateless, &["2026-07-28", "2 tools"]);
    let broken = shown(home.path(), &["doctor", "broken"], 1);
    assert_has(&broken, &["exit code 3", "cannot find the flux capacitor"]);
    let unknown = shown(home.path(), &["doctor", "nobody"], 5);
    assert_has(&unknown, &["nobody"]);
}

#[test]
fn doctor_shows_the_log_of_a_server_whose_entry_asks_for_it() {
    const LOGGING: &str = r#"
import json, sys
def send(message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
for line in sys.stdin:
    request = json.loads(line)
    id = request.get("id")
    if request["method"] == "initialize":
        send({"id": id, "result": {"protocolVersion": "2025-06-18", "capabilities": {"logging": {}, "tools": {}}, "serverInfo": {"name": "l", "version": "1"}}})
    elif request["method"] == "tools/list":
        send({"method": "notifications/message", "params": {"level": "warning", "data": "the index is stale"}})
        send({"id": id, "result": {"tools": []}})
    elif request["method"] == "logging/setLevel":
        send({"id": id, "result": {}})
    elif id is not None:
        send({"id": id, "error": {"code": -32601, "message": "no"}})
"#;
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("logging.py"), LOGGING).unwrap();
    let folder = home.path().join(".agentmine");
    std::fs::create_dir(&folder).unwrap();
    let script = home.path().join("logging.py");
    let server = json!({ "command": ["python3", script], "capabilities": { "logging": true } });
    let file = json!({ "mcpServers": { "logging": server } });
    std::fs::write(folder.join("mcp_config.json"), file.to_string()).unwrap();
    let healthy = shown(home.path(), &["doctor", "logging"], 0);
    assert_has(&healthy, &["warning: the index is stale"]);
}

#[test]
fn tools_resources_and_prompts_can_be_used() {
    let home = home();
    let home = home.path();
    assert_has(
        &shown(home, &["tools", "time"], 0),
        &["time:convert_time", "get_current_time"],
    );
    let sum = shown(home, &["call", "everything:get-sum", "a=2", "b=3"], 0);
    assert_has(&sum, &["The sum of 2 and 3 is 5."]);
    let noon = r#"{"source_timezone":"UTC","time":"12:00","target_timezone":"Asia/Tokyo"}"#;
    assert_has(
        &shown(home, &["call", "time:convert_time", noon], 0),
        &["T21:00:00+09:00"],
    );
    let uri = "demo://resource/dynamic/text/3";
    assert_has(
        &shown(home, &["read", "everything", uri], 0),
        &["Resource 3"],
    );
    assert_has(
        &shown(home, &["resources", "everything"], 0),
        &["demo://resource"],
    );
    let prompt = shown(
        home,
        &["prompt", "everything", "args-prompt", "city=Paris"],
        0,
    );
    assert_has(&prompt, &["weather in Paris"]);
}

#[test]
fn a_failed_call_has_its_own_exit_code() {
    let home = home();
    let home = home.path();
    let wrong_zone =
        r#"{"source_timezone":"Nowhere/At_All","time":"12:00","target_timezone":"UTC"}"#;
    shown(home, &["call", "time:convert_time", wrong_zone], 1);
    assert_has(
        &shown(home, &["call", "time:no_such_tool"], 5),
        &["no_such_tool"],
    );
    assert_has(&shown(home, &["call", "nobody:tool"], 5), &["nobody"]);
    shown(home, &["call", "everything:get-sum", "not JSON"], 2);
    let long = [
        "call",
        "everything:trigger-long-running-operation",
        "duration=60",
        "steps=1",
        "--timeout",
        "0.5",
    ];
    assert_has(&shown(home, &long, 1), &["no answer within 0.5 s"]);
}

//! The server as a client sees it: the real binary over its stdin and stdout.
#![expect(clippy::unwrap_used, reason = "a test ends where a step of it fails")]

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

struct Server {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    next_id: u64,
}

fn command(root: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mcp-server-text-editor"));
    command
        .arg("--root")
        .arg(root)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit());
    command
}

impl Server {
    fn start(root: &Path) -> Self {
        let mut child = command(root).spawn().unwrap();
        let mut server = Self {
            stdin: child.stdin.take(),
            stdout: BufReader::new(child.stdout.take().unwrap()),
            child,
            next_id: 0,
        };
        let info = server.request(
            "initialize",
            json!({"protocolVersion": "2025-06-18", "capabilities": {},
                "clientInfo": {"name": "test", "version": "0"}}),
        );
        assert_eq!(
            info["result"]["serverInfo"]["name"],
            "mcp-server-text-editor"
        );
        assert_eq!(
            info["result"]["serverInfo"]["version"],
            env!("CARGO_PKG_VERSION")
        );
        server.write(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        server
    }

    fn write(&mut self, message: &Value) {
        let stdin = self.stdin.as_mut().unwrap();
        writeln!(stdin, "{message}").unwrap();
    }

    fn read(&mut self) -> Value {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    fn send(&mut self, method: &str, params: Value) -> u64 {
        self.next_id += 1;
        let id = self.next_id;
        self.write(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        id
    }

    fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params);
        let answer = self.read();
        assert_eq!(answer["id"], id);
        answer
    }

    fn call(&mut self, arguments: Value) -> Value {
        let answer = self.request(
            "tools/call",
            json!({"name": "text_editor", "arguments": arguments}),
        );
        let result = answer["result"].clone();
        // One text block with the envelope, and the same as structured content.
        assert_eq!(result["content"].as_array().unwrap().len(), 1, "{answer}");
        let text = result["content"][0]["text"].as_str().unwrap();
        let envelope: Value = serde_json::from_str(text).unwrap();
        assert_eq!(envelope, result["structuredContent"]);
        assert_eq!(
            envelope["success"] == json!(false),
            result["isError"] == json!(true)
        );
        assert!(envelope["message"].is_string());
        envelope
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn workspace() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join("project")).unwrap();
    root
}

#[test]
fn one_tool_with_the_parameters_of_the_specification() {
    let root = workspace();
    let mut server = Server::start(root.path());
    let tools = server.request("tools/list", json!({}));
    let tools = tools["result"]["tools"].as_array().unwrap();
    assert_eq!(tools.len(), 1);
    assert_eq!(tools[0]["name"], "text_editor");
    let properties = tools[0]["inputSchema"]["properties"].as_object().unwrap();
    for name in [
        "command",
        "path",
        "view_range",
        "file_text",
        "old_str",
        "new_str",
        "insert_line",
        "insert_text",
    ] {
        assert!(properties.contains_key(name), "{name}");
    }
    assert_eq!(
        tools[0]["inputSchema"]["required"],
        json!(["command", "path"])
    );
}

#[test]
fn a_file_is_made_shown_changed_and_taken_back() {
    let root = workspace();
    let path = root.path().join("project/src/a.py");
    let mut server = Server::start(root.path());
    let call = |server: &mut Server, mut arguments: Value| {
        arguments["path"] = json!(path);
        server.call(arguments)
    };
    let made = call(
        &mut server,
        json!({"command": "create", "file_text": "a = 1\n"}),
    );
    assert_eq!(made["success"], true);
    call(
        &mut server,
        json!({"command": "str_replace", "old_str": "1", "new_str": "$&"}),
    );
    call(
        &mut server,
        json!({"command": "insert", "insert_line": 0, "new_str": "# top"}),
    );
    let shown = call(
        &mut server,
        json!({"command": "view", "view_range": [1, -1]}),
    );
    assert_eq!(shown["content"], "     1\t# top\n     2\ta = $&\n");
    call(&mut server, json!({"command": "undo_edit"}));
    assert_eq!(std::fs::read(&path).unwrap(), b"a = $&\n");
}

#[test]
fn failures_are_reported_to_the_model_and_only_an_unknown_tool_to_the_protocol() {
    let root = workspace();
    let mut server = Server::start(root.path());
    for arguments in [
        json!({}),
        json!({"command": "view", "path": "/etc/passwd"}),
        json!({"command": "view", "path": "missing"}),
        json!({"command": ["view"], "path": "missing"}),
    ] {
        assert_eq!(server.call(arguments)["success"], false);
    }
    let answer = server.request("tools/call", json!({"name": "text_editor"}));
    assert_eq!(answer["result"]["isError"], true);
    for name in ["other", "text_editor_delete", "text_editorview"] {
        let answer = server.request("tools/call", json!({"name": name, "arguments": {}}));
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
    }
}

#[test]
fn command_in_the_tool_name_is_accepted() {
    let root = workspace();
    let mut server = Server::start(root.path());
    let answer = server.request(
        "tools/call",
        json!({"name": "text_editor_create", "arguments": {"path": "a", "file_text": ""}}),
    );
    assert_eq!(answer["result"]["isError"], false, "{answer}");
    assert!(root.path().join("project/a").exists());
}

#[test]
fn pipelined_calls_on_a_file_keep_their_order() {
    let root = workspace();
    let mut server = Server::start(root.path());
    server.call(json!({"command": "create", "path": "a", "file_text": "0"}));
    let calls = 300;
    for number in 0..calls {
        server.send(
            "tools/call",
            json!({"name": "text_editor", "arguments": {"command": "str_replace", "path": "a",
                "old_str": number.to_string(), "new_str": (number + 1).to_string()}}),
        );
    }
    for _ in 0..calls {
        let answer = server.read();
        assert_eq!(answer["result"]["isError"], false, "{answer}");
    }
    let text = std::fs::read_to_string(root.path().join("project/a")).unwrap();
    assert_eq!(text, calls.to_string());
}

#[test]
fn calls_sent_before_stdin_closes_are_answered_and_the_server_ends() {
    let root = workspace();
    let mut server = Server::start(root.path());
    for number in 0..50 {
        server.send(
            "tools/call",
            json!({"name": "text_editor", "arguments": {"command": "create",
                "path": format!("f{number}"), "file_text": "x"}}),
        );
    }
    drop(server.stdin.take());
    for _ in 0..50 {
        assert_eq!(server.read()["result"]["isError"], false);
    }
    assert!(server.child.wait().unwrap().success());
}

#[test]
fn garbage_lines_are_answered_and_do_not_end_the_server() {
    let root = workspace();
    let mut server = Server::start(root.path());
    writeln!(server.stdin.as_mut().unwrap(), "not json\n\n{{\"a\":").unwrap();
    for _ in 0..2 {
        let answer = server.read();
        assert_eq!(answer["error"]["code"], -32700, "{answer}");
    }
    let shown = server.call(json!({"command": "view", "path": "."}));
    assert_eq!(shown["success"], true);
}

#[test]
fn a_line_longer_than_the_librarys_limit_goes_through() {
    let root = workspace();
    let mut server = Server::start(root.path());
    // Six bytes each on the wire: 18 MiB, where the library alone ends at 16.
    let text = "\u{1}".repeat(3 * 1024 * 1024);
    let made = server.call(json!({"command": "create", "path": "big", "file_text": text}));
    assert_eq!(made["success"], true, "{made}");
}

#[test]
fn newest_protocol_without_a_handshake_is_spoken() {
    let root = workspace();
    let mut child = command(root.path()).spawn().unwrap();
    let mut server = Server {
        stdin: child.stdin.take(),
        stdout: BufReader::new(child.stdout.take().unwrap()),
        child,
        next_id: 0,
    };
    let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "0"},
        "io.modelcontextprotocol/clientCapabilities": {}});
    let found = server.request("server/discover", json!({"_meta": meta}));
    assert!(found["result"]["supportedVersions"].is_array(), "{found}");
    let answer = server.request(
        "tools/call",
        json!({"_meta": meta, "name": "text_editor",
            "arguments": {"command": "view", "path": "."}}),
    );
    assert_eq!(
        answer["result"]["structuredContent"]["success"], true,
        "{answer}"
    );
}

#[test]
fn failed_start_is_reported() {
    let program = env!("CARGO_BIN_EXE_mcp-server-text-editor");
    let output = Command::new(program).arg("--rot").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("usage"));
    let output = Command::new(program)
        .args(["--root", "/nonexistent"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot be opened"));
    let output = Command::new(program).arg("--version").output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("mcp-server-text-editor "));
}

#[test]
fn tool_describes_every_parameter_its_result_and_what_it_may_do() {
    let root = tempfile::tempdir().unwrap();
    let mut server = Server::start(root.path());
    let tools = server.request("tools/list", json!({}));
    let tool = &tools["result"]["tools"][0];
    let commands = json!(["view", "create", "str_replace", "insert", "undo_edit"]);
    let parameters = &tool["inputSchema"]["properties"];
    assert_eq!(parameters["command"]["enum"], commands);
    for schema in ["inputSchema", "outputSchema"] {
        for (name, property) in tool[schema]["properties"].as_object().unwrap() {
            let described = property["description"].as_str().unwrap_or_default();
            assert!(!described.is_empty(), "{schema}: {name}");
        }
    }
    assert_eq!(
        tool["outputSchema"]["required"],
        json!(["success", "message"])
    );
    assert_eq!(tool["annotations"]["readOnlyHint"], false);
    assert_eq!(tool["annotations"]["destructiveHint"], true);
    assert_eq!(tool["annotations"]["openWorldHint"], false);
}

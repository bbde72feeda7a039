//! The servers of spec 004 as a client sees them: the real binaries over stdin and stdout.
#![expect(clippy::unwrap_used, reason = "a test ends where a step of it fails")]

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

const FILE_READ: &str = env!("CARGO_BIN_EXE_mcp-server-file-read");
const FILE_WRITE: &str = env!("CARGO_BIN_EXE_mcp-server-file-write");
const SHELL_EXEC: &str = env!("CARGO_BIN_EXE_mcp-server-shell-exec");

struct Server {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Server {
    fn start(program: &str, folder: &Path, args: &[&str]) -> Self {
        let mut child = Command::new(program)
            .args(args)
            .current_dir(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            stdin: child.stdin.take(),
            stdout: BufReader::new(child.stdout.take().unwrap()),
            child,
        }
    }

    fn initialized(program: &str, folder: &Path, args: &[&str]) -> Self {
        let mut server = Self::start(program, folder, args);
        let info = server.request(
            "initialize",
            json!({"protocolVersion": "2025-11-25", "capabilities": {},
                "clientInfo": {"name": "test", "version": "0"}}),
        );
        let name = Path::new(program).file_name().unwrap().to_str().unwrap();
        assert_eq!(info["result"]["serverInfo"]["name"], name);
        assert_eq!(
            info["result"]["serverInfo"]["version"],
            env!("CARGO_PKG_VERSION")
        );
        server.write(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        server
    }

    fn write(&mut self, message: &Value) {
        writeln!(self.stdin.as_mut().unwrap(), "{message}").unwrap();
    }

    fn request(&mut self, method: &str, params: Value) -> Value {
        self.write(&json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}));
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let answer = self.request("tools/call", json!({"name": tool, "arguments": arguments}));
        answer["result"].clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The definitions, word for word from spec 004.
fn specified() -> [(&'static str, Value); 3] {
    [
        (
            FILE_READ,
            json!({
              "name": "file_read",
              "description": "指定されたパスのファイルを読み込み、その内容を返します。",
              "inputSchema": {
                "type": "object",
                "properties": {
                  "path": {
                    "type": "string",
                    "description": "読み込むファイルのパス。絶対パスまたは許可されたルートディレクトリからの相対パスを指定。"
                  }
                },
                "required": ["path"]
              },
              "outputSchema": {
                "type": "object",
                "properties": {
                  "content": {
                    "type": "string",
                    "description": "読み込んだファイルの内容。"
                  }
                },
                "required": ["content"]
              },
              "annotations": {
                "readOnlyHint": true,
                "openWorldHint": false
              }
            }),
        ),
        (
            FILE_WRITE,
            json!({
              "name": "file_write",
              "description": "指定されたパスにファイルを作成または上書きし、内容を書き込みます。",
              "inputSchema": {
                "type": "object",
                "properties": {
                  "path": {
                    "type": "string",
                    "description": "書き込むファイルのパス。絶対パスまたは許可されたルートディレクトリからの相対パスを指定。"
                  },
                  "content": {
                    "type": "string",
                    "description": "ファイルに書き込む内容。"
                  },
                  "overwrite": {
                    "type": "boolean",
                    "description": "既存のファイルを上書きするかどうか。falseの場合、ファイルが存在するとエラーを返す。",
                    "default": false
                  }
                },
                "required": ["path", "content"]
              },
              "outputSchema": {
                "type": "object",
                "properties": {
                  "success": {
                    "type": "boolean",
                    "description": "書き込みが成功したかどうか。"
                  }
                },
                "required": ["success"]
              },
              "annotations": {
                "readOnlyHint": false,
                "destructiveHint": true,
                "idempotentHint": false,
                "openWorldHint": false
              }
            }),
        ),
        (
            SHELL_EXEC,
            json!({
              "name": "shell_exec",
              "description": "指定されたシェルコマンドを実行し、その標準出力と標準エラー出力を返します。",
              "inputSchema": {
                "type": "object",
                "properties": {
                  "command": {
                    "type": "string",
                    "description": "実行するシェルコマンド。"
                  },
                  "args": {
                    "type": "array",
                    "items": {
                      "type": "string"
                    },
                    "description": "コマンドに渡す引数の配列。",
                    "default": []
                  },
                  "cwd": {
                    "type": "string",
                    "description": "コマンドを実行する作業ディレクトリ。絶対パスまたは許可されたルートディレクトリからの相対パスを指定。省略された場合はCLIの起動ディレクトリ。"
                  }
                },
                "required": ["command"]
              },
              "outputSchema": {
                "type": "object",
                "properties": {
                  "stdout": {
                    "type": "string",
                    "description": "コマンドの標準出力。"
                  },
                  "stderr": {
                    "type": "string",
                    "description": "コマンドの標準エラー出力。"
                  },
                  "exitCode": {
                    "type": "number",
                    "description": "コマンドの終了コード。"
                  }
                },
                "required": ["stdout", "stderr", "exitCode"]
              },
              "annotations": {
                "readOnlyHint": false,
                "destructiveHint": true,
                "openWorldHint": true
              }
            }),
        ),
    ]
}

#[test]
fn tools_are_as_specified_in_both_eras() {
    let folder = tempfile::tempdir().unwrap();
    for (program, specified) in specified() {
        let mut server = Server::initialized(program, folder.path(), &[]);
        let listed = server.request("tools/list", json!({}));
        assert_eq!(listed["result"]["tools"], json!([specified]));

        let mut server = Server::start(program, folder.path(), &[]);
        let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "0"},
            "io.modelcontextprotocol/clientCapabilities": {}});
        let listed = server.request("tools/list", json!({"_meta": meta}));
        assert_eq!(listed["result"]["tools"], json!([specified]));
        let unknown = server.request("tools/call", json!({"_meta": meta, "name": "other"}));
        assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
    }
}

#[test]
fn each_server_does_its_work_in_the_current_and_the_allowed_folders() {
    let folder = tempfile::tempdir().unwrap();
    let allowed = tempfile::tempdir().unwrap();
    let path = allowed.path().join("a.txt");
    let allow = ["--allow-path", allowed.path().to_str().unwrap()];
    let text = json!({"path": path, "content": "caf\u{e9}\n"});

    let mut write = Server::initialized(FILE_WRITE, folder.path(), &[]);
    assert_eq!(write.call("file_write", text.clone())["isError"], true);
    let mut write = Server::initialized(FILE_WRITE, folder.path(), &allow);
    assert_eq!(
        write.call("file_write", text.clone())["structuredContent"],
        json!({"success": true})
    );
    assert_eq!(write.call("file_write", text)["isError"], true);

    let mut read = Server::initialized(FILE_READ, folder.path(), &allow);
    let shown = read.call("file_read", json!({"path": path}));
    assert_eq!(
        shown["structuredContent"],
        json!({"content": "caf\u{e9}\n"})
    );

    let mut shell = Server::initialized(SHELL_EXEC, folder.path(), &allow);
    let ran = shell.call(
        "shell_exec",
        json!({"command": "cat a.txt; pwd", "cwd": allowed.path()}),
    );
    let real = allowed.path().canonicalize().unwrap();
    assert_eq!(
        ran["structuredContent"],
        json!({"stdout": format!("caf\u{e9}\n{}\n", real.display()), "stderr": "", "exitCode": 0})
    );
}

#[test]
fn commands_end_with_stdin() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::initialized(SHELL_EXEC, folder.path(), &[]);
    let command = "sleep 300 & echo $! > pid.tmp; mv pid.tmp pid; wait";
    server.write(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "shell_exec", "arguments": {"command": command}}}));
    let pid = loop {
        match std::fs::read_to_string(folder.path().join("pid")) {
            Ok(pid) => break pid.trim().to_owned(),
            Err(_) => std::thread::sleep(std::time::Duration::from_millis(5)),
        }
    };
    drop(server.stdin.take());
    assert!(server.child.wait().unwrap().success());
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = state.rsplit(')').next().unwrap();
    assert!(
        state.is_empty() || state.starts_with(" Z"),
        "{pid} is still alive: {state}"
    );
}

#[test]
fn failed_start_is_reported() {
    let run = |program: &str, args: &[&str]| {
        let output = Command::new(program)
            .args(args)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text = [output.stdout, output.stderr].concat();
        (
            output.status.code().unwrap(),
            String::from_utf8(text).unwrap(),
        )
    };
    for (program, args, code, reported) in [
        (FILE_READ, vec!["--rot"], 2, "usage"),
        (FILE_READ, vec!["--timeout", "1"], 2, "unknown argument"),
        (FILE_READ, vec!["--allow-path"], 2, "needs a value"),
        (
            FILE_WRITE,
            vec!["--allow-path", "/nonexistent"],
            1,
            "cannot be opened",
        ),
        (
            FILE_WRITE,
            vec!["--allow-path=/etc/passwd"],
            1,
            "cannot be opened",
        ),
        (SHELL_EXEC, vec!["--timeout", "0"], 2, "1 to 86400"),
        (SHELL_EXEC, vec!["--deny", " "], 1, "a rule is empty"),
        (SHELL_EXEC, vec!["--help"], 0, "--allow-path"),
        (SHELL_EXEC, vec!["--version"], 0, "mcp-server-shell-exec "),
    ] {
        let (status, text) = run(program, &args);
        assert_eq!(status, code, "{args:?}: {text}");
        assert!(text.contains(reported), "{args:?}: {text}");
    }
}

fn state(pid: &str) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(") ").next()?.chars().next()
}

/// Waits for a file, and returns its content.
fn awaited(path: &Path) -> String {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while std::time::Instant::now() < deadline {
        match std::fs::read_to_string(path) {
            Ok(text) if text.ends_with('\n') => return text.trim().to_owned(),
            _ => std::thread::sleep(std::time::Duration::from_millis(5)),
        }
    }
    panic!("{} did not come", path.display());
}

#[test]
fn what_leaves_its_group_ends_with_the_call() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::initialized(SHELL_EXEC, folder.path(), &[]);
    for command in [
        // Its parent ends before it, and it has its own session.
        "setsid sh -c 'echo $$ > pid; exec sleep 300' >/dev/null 2>&1 & while [ ! -s pid ]; do :; done",
        // A daemon: a grandchild in another session.
        "(setsid sh -c 'sh -c \"echo \\$\\$ > pid; exec sleep 300\" & exit' &) ; while [ ! -s pid ]; do :; done",
    ] {
        let _ = std::fs::remove_file(folder.path().join("pid"));
        let ran = server.call("shell_exec", json!({"command": command}));
        assert_eq!(ran["structuredContent"]["exitCode"], 0, "{ran}");
        let pid = awaited(&folder.path().join("pid"));
        // A killed process is still listed until it is scheduled once more.
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while !matches!(state(&pid), None | Some('Z' | 'X')) {
            assert!(std::time::Instant::now() < deadline, "{pid} is still alive");
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_child_in_another_session_and_environment_ends_with_its_parent_at_the_time_limit() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::initialized(SHELL_EXEC, folder.path(), &["--timeout", "1"]);
    let command = "env -i setsid sh -c 'echo $$ > pid; exec sleep 300' & wait";
    let ran = server.call("shell_exec", json!({"command": command}));
    assert_eq!(ran["isError"], true, "{ran}");
    let pid = awaited(&folder.path().join("pid"));
    assert!(
        matches!(state(&pid), None | Some('Z' | 'X')),
        "{pid} is still alive"
    );
}

#[test]
fn a_command_ends_with_a_server_that_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::initialized(SHELL_EXEC, folder.path(), &[]);
    server.write(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "shell_exec",
            "arguments": {"command": "echo $$ > pid; exec sleep 300"}}}));
    let pid = awaited(&folder.path().join("pid"));
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while !matches!(state(&pid), None | Some('Z' | 'X')) {
        assert!(std::time::Instant::now() < deadline, "{pid} is still alive");
        std::thread::yield_now();
    }
}

#[test]
fn the_servers_environment_gives_a_command_no_secret() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = Command::new(SHELL_EXEC)
        .current_dir(folder.path())
        .env("GITHUB_TOKEN", "hunter2")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut server = Server {
        stdin: child.stdin.take(),
        stdout: BufReader::new(child.stdout.take().unwrap()),
        child,
    };
    let initialize = json!({"protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": {"name": "test", "version": "0"}});
    server.request("initialize", initialize);
    server.write(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    let ran = server.call(
        "shell_exec",
        json!({"command": "cat /proc/$PPID/environ; cat /proc/$PPID/cmdline; env"}),
    );
    let ran = ran.to_string();
    assert!(ran.contains("mcp-server-shell-exec"), "{ran}");
    assert!(!ran.contains("hunter2"), "{ran}");
}

fn memory_kib(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.child.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    line.unwrap()
        .split_whitespace()
        .nth(1)
        .unwrap()
        .parse()
        .unwrap()
}

/// Without a limit all of these responses (2 MB each) would be kept.
#[test]
fn a_client_that_never_reads_does_not_fill_the_memory() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("big"), "x".repeat(1024 * 1024)).unwrap();
    let mut server = Server::initialized(FILE_READ, folder.path(), &[]);
    let mut stdin = server.stdin.take().unwrap();
    let (written, stopped) = std::sync::mpsc::channel();
    let writer = std::thread::spawn(move || {
        for id in 0..2000 {
            let call = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call",
                "params": {"name": "file_read", "arguments": {"path": "big"}}});
            if writeln!(stdin, "{call}").is_err() || written.send(()).is_err() {
                return;
            }
        }
    });
    // The writer stops where the server no longer reads, or at its end.
    while stopped
        .recv_timeout(std::time::Duration::from_secs(3))
        .is_ok()
    {}
    let used = memory_kib(&server);
    assert!(used < 600 * 1024, "{used} KiB");
    server.child.kill().unwrap();
    writer.join().unwrap();
}

#[test]
fn too_many_commands_at_once_are_refused_and_the_rest_runs() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::initialized(SHELL_EXEC, folder.path(), &[]);
    let call = |id: u32| {
        json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "shell_exec",
            "arguments": {"command": "while [ ! -e go ]; do sleep 0.05; done"}}})
    };
    for id in 0..70 {
        server.write(&call(id));
    }
    let mut answers = Vec::new();
    for at in 0..70 {
        let mut line = String::new();
        server.stdout.read_line(&mut line).unwrap();
        answers.push(serde_json::from_str::<Value>(&line).unwrap());
        if at == 5 {
            std::fs::write(folder.path().join("go"), "").unwrap();
        }
    }
    let (refused, ran): (Vec<_>, Vec<_>) = answers.iter().partition(|a| a["error"].is_object());
    assert_eq!((refused.len(), ran.len()), (6, 64), "{refused:?}");
    let ran = server.call("shell_exec", json!({"command": "echo on"}));
    assert_eq!(ran["structuredContent"]["stdout"], "on\n");
}

#[test]
fn an_endless_call_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::initialized(SHELL_EXEC, folder.path(), &[]);
    let ran = server.call(
        "shell_exec",
        json!({"command": "sudo", "args": ["x".repeat(200_000)]}),
    );
    assert!(
        ran["content"][0]["text"]
            .as_str()
            .unwrap()
            .contains("131072"),
        "{ran}"
    );
}

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rmcp::handler::client::ClientHandler;
use rmcp::model::{
    CallToolResult, ClientCapabilities, ClientConfig, ElicitationCapability, Implementation,
};
use rmcp::service::{RoleClient, RunningService, ServiceError, ServiceExt};
use rmcp::{ClientLifecycleMode, ClientServiceExt, ErrorData};
use serde_json::Value;
use tempfile::TempDir;

use super::*;
use crate::AllowedRoots;
use crate::one_tool::OneToolServer;
use rmcp::model::{ElicitRequestParams, ElicitResult, ElicitationAction};

/// A client whose user gives the same answer to every question.
#[derive(Clone)]
struct User {
    answer: Option<ElicitationAction>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl ClientHandler for User {
    fn get_info(&self) -> ClientConfig {
        let mut capabilities = ClientCapabilities::default();
        capabilities.elicitation = self
            .answer
            .as_ref()
            .map(|_| ElicitationCapability::default());
        ClientConfig::new(capabilities, Implementation::new("test", "0"))
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        _context: rmcp::service::RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        if let ElicitRequestParams::FormElicitationParams { message, .. } = request {
            self.asked.lock().unwrap().push(message);
        }
        Ok(ElicitResult::new(self.answer.clone().unwrap()))
    }
}

#[derive(Clone, Copy, Debug)]
enum Era {
    Initialize,
    Stateless,
}

struct Fixture {
    root: TempDir,
    ended: CancellationToken,
    asked: Arc<Mutex<Vec<String>>>,
    client: RunningService<RoleClient, User>,
}

async fn fixture(era: Era, answer: Option<ElicitationAction>, timeout: Duration) -> Fixture {
    let root = tempfile::tempdir().unwrap();
    let mut options = ShellOptions::new(AllowedRoots {
        start: root.path().to_owned(),
        allowed: Vec::new(),
    });
    options.timeout = timeout;
    let tool = ShellExec::new(&options).unwrap();
    let ended = tool.ended();
    let (near, far) = tokio::io::duplex(1024 * 1024);
    tokio::spawn(async move {
        let server = OneToolServer::new(tool).serve(far).await.unwrap();
        server.waiting().await.unwrap();
    });
    let asked = Arc::new(Mutex::new(Vec::new()));
    let user = User {
        answer,
        asked: Arc::clone(&asked),
    };
    let mode = match era {
        Era::Initialize => ClientLifecycleMode::Initialize,
        Era::Stateless => ClientLifecycleMode::Discover {
            preferred_versions: vec![ProtocolVersion::V_2026_07_28],
        },
    };
    let client = user.serve_with_lifecycle(near, mode).await.unwrap();
    Fixture {
        root,
        ended,
        asked,
        client,
    }
}

use rmcp::model::ProtocolVersion;

const LONG: Duration = Duration::from_secs(60);

impl Fixture {
    async fn call(&self, arguments: Value) -> Result<CallToolResult, ServiceError> {
        let arguments = arguments.as_object().unwrap().clone();
        let request = CallToolRequestParams::new("shell_exec").with_arguments(arguments);
        self.client.call_tool(request).await
    }

    async fn ok(&self, arguments: Value) -> Value {
        let result = self.call(arguments).await.unwrap();
        assert_ne!(result.is_error, Some(true), "{result:?}");
        let structured = result.structured_content.unwrap();
        let text = result.content[0].as_text().unwrap().text.clone();
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), structured);
        structured
    }

    async fn refused(&self, arguments: Value) -> String {
        let result = self.call(arguments).await.unwrap();
        assert_eq!(result.is_error, Some(true), "{result:?}");
        assert_eq!(result.structured_content, None);
        result.content[0].as_text().unwrap().text.clone()
    }
}

#[tokio::test]
async fn commands_return_their_output_and_exit_code() {
    let f = fixture(Era::Initialize, None, LONG).await;
    assert_eq!(
        f.ok(json!({"command": "echo a; echo b >&2; exit 3"})).await,
        json!({"stdout": "a\n", "stderr": "b\n", "exitCode": 3})
    );
    let literal = json!({"command": "printf", "args": ["%s|", "$HOME", "a b", ";ls"]});
    assert_eq!(f.ok(literal).await["stdout"], "$HOME|a b|;ls|");
    assert_eq!(
        f.ok(json!({"command": "kill -TERM $$"})).await["exitCode"],
        143
    );
    let lossy = f.ok(json!({"command": "printf '\\377x'"})).await;
    assert_eq!(lossy["stdout"], "\u{fffd}x");
    assert_eq!(
        f.ok(json!({"command": "cat", "args": ["-"]})).await["stdout"],
        "",
        "stdin is empty"
    );
    let missing = f
        .refused(json!({"command": "no-such program", "args": ["x"]}))
        .await;
    assert!(missing.contains("name of a program only"), "{missing}");
    for wrong in [
        json!({}),
        json!({"command": 1}),
        json!({"command": " "}),
        json!({"command": "a\0"}),
        json!({"command": "ls", "args": "x"}),
        json!({"command": "ls", "args": [1]}),
        json!({"command": "ls", "timeout": 1}),
    ] {
        f.refused(wrong).await;
    }
}

#[tokio::test]
async fn cwd_stays_within_the_roots() {
    let f = fixture(Era::Initialize, None, LONG).await;
    let real = f.root.path().canonicalize().unwrap();
    std::fs::create_dir(real.join("sub")).unwrap();
    std::os::unix::fs::symlink("/etc", real.join("out")).unwrap();
    std::os::unix::fs::symlink("sub", real.join("in")).unwrap();
    let pwd = async |cwd: &str| {
        f.ok(json!({"command": "pwd -P", "cwd": cwd})).await["stdout"]
            .as_str()
            .unwrap()
            .trim()
            .to_owned()
    };
    assert_eq!(pwd(".").await, real.to_str().unwrap());
    assert_eq!(pwd("sub").await, real.join("sub").to_str().unwrap());
    assert_eq!(pwd("in").await, real.join("sub").to_str().unwrap());
    assert_eq!(pwd(real.to_str().unwrap()).await, real.to_str().unwrap());
    for outside in [
        "/",
        "/etc",
        "..",
        "out",
        "sub/../..",
        "/proc/self/cwd",
        "missing",
        "",
    ] {
        f.refused(json!({"command": "pwd", "cwd": outside})).await;
    }
}

#[tokio::test]
async fn environment_is_the_stated_list() {
    let f = fixture(Era::Initialize, None, LONG).await;
    // Cargo sets CARGO_MANIFEST_DIR for every test.
    assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
    let output = f
        .ok(json!({"command": "/usr/bin/env", "args": ["--"]}))
        .await;
    for line in output["stdout"].as_str().unwrap().lines() {
        let name = line.split('=').next().unwrap();
        let listed = [
            "PATH",
            "HOME",
            "LANG",
            "LANGUAGE",
            "TERM",
            "TZ",
            "USER",
            "LOGNAME",
            "SHELL",
            "TMPDIR",
            "AGENTMINE_COMMAND",
        ];
        assert!(listed.contains(&name) || name.starts_with("LC_"), "{line}");
    }
}

/// Starts a grandchild that runs for minutes, and writes its pid to a file.
const GRANDCHILD: &str =
    "sh -c 'sleep 300 & echo $! > grandchild.tmp; mv grandchild.tmp grandchild; wait'";

fn is_alive(pid: &str) -> bool {
    // A zombie has ended.
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap().starts_with(" Z"))
}

async fn grandchild(root: &std::path::Path) -> String {
    let path = root.join("grandchild");
    loop {
        if let Ok(pid) = std::fs::read_to_string(&path) {
            return pid.trim().to_owned();
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn gone(pid: &str) {
    let patience = Instant::now() + Duration::from_secs(10);
    while is_alive(pid) {
        assert!(Instant::now() < patience, "{pid} is still alive");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn time_limit_kills_grandchildren_too() {
    let f = fixture(Era::Initialize, None, Duration::from_millis(700)).await;
    let begun = Instant::now();
    let error = f
        .refused(json!({"command": format!("echo early; {GRANDCHILD}")}))
        .await;
    assert!(begun.elapsed() < Duration::from_secs(20));
    assert!(
        error.contains("0.7 s") && error.contains("early"),
        "{error}"
    );
    gone(&grandchild(f.root.path()).await).await;
}

#[tokio::test]
async fn what_a_command_leaves_behind_ends_with_it() {
    let f = fixture(Era::Initialize, None, LONG).await;
    let begun = Instant::now();
    let output = f.ok(json!({"command": "sleep 300 & echo $!"})).await;
    assert!(begun.elapsed() < Duration::from_secs(20));
    gone(output["stdout"].as_str().unwrap().trim()).await;
}

#[tokio::test]
async fn cancellation_by_the_client_kills_the_group() {
    let f = fixture(Era::Initialize, None, LONG).await;
    let arguments = json!({"command": GRANDCHILD}).as_object().unwrap().clone();
    let request = rmcp::model::ClientRequest::CallToolRequest(rmcp::model::CallToolRequest::new(
        CallToolRequestParams::new("shell_exec").with_arguments(arguments),
    ));
    let handle = f
        .client
        .send_cancellable_request(request, rmcp::service::PeerRequestOptions::no_options())
        .await
        .unwrap();
    let pid = grandchild(f.root.path()).await;
    handle.cancel(None).await.unwrap();
    gone(&pid).await;
}

#[tokio::test]
async fn end_of_the_server_kills_the_group() {
    let f = fixture(Era::Initialize, None, LONG).await;
    let (error, ()) = tokio::join!(f.refused(json!({"command": GRANDCHILD})), async {
        grandchild(f.root.path()).await;
        f.ended.cancel();
    });
    assert!(error.contains("cancelled"), "{error}");
    gone(&grandchild(f.root.path()).await).await;
}

#[tokio::test]
async fn endless_output_is_capped() {
    let f = fixture(Era::Initialize, None, LONG).await;
    let output = f.ok(json!({"command": "yes | head -c 3000000"})).await;
    let stdout = output["stdout"].as_str().unwrap();
    assert!(
        stdout.len() < 200_000 && stdout.contains(" left out: "),
        "{}",
        stdout.len()
    );
}

#[tokio::test]
async fn denied_commands_are_refused_in_both_eras_and_nobody_is_asked() {
    for era in [Era::Initialize, Era::Stateless] {
        let f = fixture(era, Some(ElicitationAction::Accept), LONG).await;
        std::fs::create_dir(f.root.path().join("x")).unwrap();
        let error = f.refused(json!({"command": "rm  -r -f x"})).await;
        assert!(error.contains("-r and -f"), "{error}");
        f.refused(json!({"command": "rm", "args": ["-fr", "x"]}))
            .await;
        assert!(f.root.path().join("x").exists());
        assert!(f.asked.lock().unwrap().is_empty());
    }
}

/// Needs the agreement of the user, and has no effect on the machine.
const ASKED: &str = "systemctl --no-such-option; echo ran";

#[tokio::test]
async fn user_who_agrees_is_asked_once_per_call() {
    for era in [Era::Initialize, Era::Stateless] {
        let f = fixture(era, Some(ElicitationAction::Accept), LONG).await;
        for calls in 1..=2 {
            assert_eq!(
                f.ok(json!({"command": ASKED})).await["stdout"],
                "ran\n",
                "{era:?}"
            );
            let asked = f.asked.lock().unwrap();
            assert_eq!(asked.len(), calls);
            assert!(asked[0].contains("systemctl"), "{asked:?}");
        }
    }
}

#[tokio::test]
async fn user_who_declines_is_obeyed() {
    for era in [Era::Initialize, Era::Stateless] {
        for answer in [ElicitationAction::Decline, ElicitationAction::Cancel] {
            let f = fixture(era, Some(answer), LONG).await;
            let error = f.refused(json!({"command": ASKED})).await;
            assert!(error.contains("did not agree"), "{error}");
            assert_eq!(f.asked.lock().unwrap().len(), 1);
        }
    }
}

#[tokio::test]
async fn client_that_cannot_ask_gets_a_refusal() {
    for era in [Era::Initialize, Era::Stateless] {
        let f = fixture(era, None, LONG).await;
        let error = f.refused(json!({"command": ASKED})).await;
        assert!(error.contains("cannot ask"), "{error}");
    }
}

#[tokio::test]
async fn agreement_holds_for_the_call_it_was_asked_for_and_once() {
    let f = fixture(Era::Stateless, Some(ElicitationAction::Accept), LONG).await;
    let request = |command: &str| {
        let arguments = json!({"command": command}).as_object().unwrap().clone();
        CallToolRequestParams::new("shell_exec").with_arguments(arguments)
    };
    let agreed = || [("run".to_owned(), json!({"action": "accept"}))].into();
    let state = async |request: CallToolRequestParams| match f
        .client
        .call_tool_once(request)
        .await
        .unwrap()
    {
        CallToolResponse::InputRequired(question) => question.request_state.unwrap(),
        other => panic!("{other:?}"),
    };
    // Made up, taken from another call, used twice: each time the user is asked again.
    state(
        request(ASKED)
            .with_input_responses(agreed())
            .with_request_state("made up"),
    )
    .await;
    let other = state(request("sudo -n ls")).await;
    state(
        request(ASKED)
            .with_input_responses(agreed())
            .with_request_state(other),
    )
    .await;
    let own = state(request(ASKED)).await;
    let with_own = || {
        request(ASKED)
            .with_input_responses(agreed())
            .with_request_state(own.clone())
    };
    assert!(matches!(
        f.client.call_tool_once(with_own()).await.unwrap(),
        CallToolResponse::Complete(result) if result.is_error != Some(true)
    ));
    state(with_own()).await;
}

#[tokio::test]
async fn unknown_tool_is_an_error_of_the_protocol() {
    let f = fixture(Era::Stateless, None, LONG).await;
    match f
        .client
        .call_tool(CallToolRequestParams::new("shell"))
        .await
    {
        Err(ServiceError::McpError(error)) => assert_eq!(error.code.0, -32602),
        other => panic!("{other:?}"),
    }
}

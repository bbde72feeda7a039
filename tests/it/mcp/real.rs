//! Third-party servers from npm and PyPI: on the worker, in a jail, in a container. Those from npm speak
//! 2025-11-25, those from PyPI also 2026-07-28.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use agentmine_consumer::SandboxLauncher;
use agentmine_domain::{Epoch, TaskId};
use agentmine_mcp::config::{ServerConfig, ServerPlace, Transport};
use agentmine_mcp::{CallOptions, Era, Launchers, Manager, NoticeKind, ServerState, ToolOutput};
use agentmine_runtime::config::{BackendKind, CommandExecutor};
use agentmine_sandbox::{Command, Sandbox, SandboxRole, SandboxSpec, from_config};
use agentmine_tests::mcp::{Mark, installed, npm, pypi, server};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::rig::{self, PATIENCE};

/// Time limit for noticing a server's exit and answering its calls.
const AT_ONCE: Duration = Duration::from_secs(1);
/// Creates the data for the servers, in the current folder.
const FILES: &str = "mkdir files repo && printf 'hello from a file' >files/a.txt && cd repo && git init -q -b main \
     && echo one >one.txt && git add . && git -c user.name=Ada -c user.email=ada@example.com commit -qm 'The first commit'";

fn servers(place: ServerPlace, root: &str) -> Vec<ServerConfig> {
    let at = |name: &str| format!("{root}/{name}");
    let memory = npm("memory", place, "mcp-server-memory", &[]);
    vec![
        npm("everything", place, "mcp-server-everything", &[]),
        agentmine_tests::mcp::with_env(memory, "MEMORY_FILE_PATH", &at("memory.json")),
        npm(
            "filesystem",
            place,
            "mcp-server-filesystem",
            &[&at("files")],
        ),
        npm("thinking", place, "mcp-server-sequential-thinking", &[]),
        pypi(
            "git",
            place,
            "mcp_server_git",
            &["--repository", &at("repo")],
        ),
        pypi("fetch", place, "mcp_server_fetch", &["--allow-private-ips"]),
        pypi(
            "time",
            place,
            "mcp_server_time",
            &["--local-timezone", "UTC"],
        ),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn seven_servers_work_on_the_worker() {
    let folder = tempfile::tempdir().unwrap();
    let made = std::process::Command::new("sh")
        .args(["-ec", FILES])
        .current_dir(folder.path())
        .status()
        .unwrap();
    assert!(made.success());
    let web = serve_a_page().await;
    let root = folder.path().display().to_string();
    let (manager, mark) = start(
        servers(ServerPlace::Worker, &root),
        rig::worker(folder.path()),
    )
    .await;
    everything_works(&manager, &root, web).await;
    let pid = rig::status(&manager, "everything").pid.unwrap();
    killed_server_is_restarted(&manager, async {
        // SAFETY: `kill` takes two numbers and touches no memory of this program.
        let sent = unsafe { libc::kill(i32::try_from(pid).unwrap(), libc::SIGKILL) };
        assert_eq!(sent, 0);
    })
    .await;
    rig::end(manager, &mark).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn seven_servers_work_in_a_jail() {
    in_a_sandbox(BackendKind::Local).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn seven_servers_work_in_a_container() {
    in_a_sandbox(BackendKind::Docker).await;
}

async fn in_a_sandbox(backend: BackendKind) {
    let mut config = CommandExecutor {
        enabled: true,
        backend,
        ..CommandExecutor::default()
    };
    config.docker.host = std::env::var("DOCKER_HOST").ok();
    config.docker.base_image = std::env::var("AGENTMINE_TEST_MCP_IMAGE").expect("run tests/run");
    config.local.read_only = vec![installed()];
    let spec = SandboxSpec {
        task: TaskId::new(),
        epoch: Epoch(0),
        role: SandboxRole::Mcp,
        image: None,
        template: None,
    };
    let backend = from_config(&config).await.unwrap();
    let sandbox: Arc<dyn Sandbox> = Arc::from(backend.start(&spec).await.unwrap());
    let tested = tokio::spawn(work_in(Arc::clone(&sandbox))).await;
    sandbox.remove().await.unwrap();
    tested.unwrap();
}

async fn work_in(sandbox: Arc<dyn Sandbox>) {
    const ROOT: &str = "/workspace/project";
    const WEB: u16 = 8077;
    shell(sandbox.as_ref(), FILES).await;
    // It has no network, so it serves its own page.
    shell(
        sandbox.as_ref(),
        "mkdir web && printf 'a local page' >web/page.txt",
    )
    .await;
    let argv = [
        "python3",
        "-m",
        "http.server",
        "8077",
        "--bind",
        "127.0.0.1",
        "--directory",
    ];
    let mut argv: Vec<String> = argv.map(String::from).into();
    argv.push(format!("{ROOT}/web"));
    let web = sandbox.start_stdio(argv, BTreeMap::new()).await.unwrap();
    let launchers = rig::sandbox(SandboxLauncher::new(Arc::clone(&sandbox)));
    let (manager, mark) = start(servers(ServerPlace::Sandbox, ROOT), launchers).await;
    everything_works(&manager, ROOT, WEB).await;
    killed_server_is_restarted(&manager, async {
        shell(sandbox.as_ref(), "pkill -9 -f bin/mcp-server-[e]verything").await;
    })
    .await;
    manager.shutdown().await;
    let left = shell(sandbox.as_ref(), &mark.shell_line()).await;
    assert_eq!(left, "", "these processes are left");
    drop(web);
}

async fn shell(sandbox: &dyn Sandbox, line: &str) -> String {
    let done = sandbox
        .run(Command {
            argv: ["/bin/sh", "-c", line].map(String::from).into(),
            cwd: "/workspace/project".into(),
            env: BTreeMap::new(),
            stdin: Vec::new(),
            timeout: PATIENCE,
            max_output: 64 * 1024,
        })
        .await
        .unwrap();
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    assert_eq!(
        done.exit_code,
        0,
        "{line}: {text}{}",
        String::from_utf8_lossy(&done.stderr)
    );
    text
}

/// A page on this machine.
async fn serve_a_page() -> u16 {
    let page =
        axum::Router::new().route("/page.txt", axum::routing::get(|| async { "a local page" }));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move { axum::serve(listener, page).await });
    port
}

async fn start(servers: Vec<ServerConfig>, launchers: Launchers) -> (Manager, Mark) {
    let mark = Mark::default();
    let servers = servers.into_iter().map(|server| mark.on(server));
    (
        Manager::start(servers, launchers, rig::policy()).await,
        mark,
    )
}

async fn call(manager: &Manager, server: &str, tool: &str, arguments: Value) -> ToolOutput {
    let output = manager.call(server, tool, arguments).await;
    output.unwrap_or_else(|error| panic!("{server}:{tool}: {error}"))
}

/// A call that succeeds and returns this text.
async fn returns(
    manager: &Manager,
    server: &str,
    tool: &str,
    arguments: Value,
    words: &str,
) -> ToolOutput {
    let output = call(manager, server, tool, arguments).await;
    assert!(
        !output.is_error && output.text.contains(words),
        "{server}:{tool}: {output:?}"
    );
    output
}

async fn everything_works(manager: &Manager, root: &str, web: u16) {
    for (server, era, tools) in [
        (
            "everything",
            Era::Handshake,
            &["echo", "get-sum", "trigger-long-running-operation"][..],
        ),
        ("memory", Era::Handshake, &["create_entities", "read_graph"]),
        (
            "filesystem",
            Era::Handshake,
            &["read_text_file", "write_file"],
        ),
        ("thinking", Era::Handshake, &["sequentialthinking"]),
        ("git", Era::Stateless, &["git_log", "git_status"]),
        ("fetch", Era::Stateless, &["fetch"]),
        (
            "time",
            Era::Stateless,
            &["convert_time", "get_current_time"],
        ),
    ] {
        rig::assert_ready(manager, server);
        let status = rig::status(manager, server);
        // Seven interpreters that start at once may be too busy to answer the probe for the newer era in
        // time; then the older one is used.
        let greeting = status.greeting.unwrap();
        let is_right = greeting.era == era || greeting.era == Era::Handshake;
        assert!(is_right, "{server}: {greeting:?}");
        let catalog = manager.catalog();
        for &tool in tools {
            assert!(
                catalog.tool(server, tool).is_some(),
                "{server}:{tool} is not offered"
            );
            assert!(
                catalog
                    .tools()
                    .iter()
                    .any(|(_, s, t)| *s == server && t.name == tool),
                "{server}:{tool} has no name"
            );
        }
        let left_out = &catalog.servers[server].left_out;
        assert!(left_out.is_empty(), "{server}: {left_out:?}");
    }
    tools_answer(manager, root, web).await;
    resources_and_prompts_are_read(manager).await;
    long_call_reports_progress_and_is_cancelled(manager).await;
    let unknown = call_fails(manager, "everything", "no-such-tool").await;
    assert!(unknown.contains("no-such-tool"), "{unknown}");
}

/// The message of a call that must fail, however the failure is reported.
async fn call_fails(manager: &Manager, server: &str, tool: &str) -> String {
    match manager.call(server, tool, json!({})).await {
        Ok(output) if output.is_error => output.text,
        Ok(output) => panic!("{output:?}"),
        Err(error) => error.to_string(),
    }
}

async fn tools_answer(manager: &Manager, root: &str, web: u16) {
    returns(
        manager,
        "everything",
        "echo",
        json!({"message": "hi"}),
        "Echo: hi",
    )
    .await;
    returns(
        manager,
        "everything",
        "get-sum",
        json!({"a": 2, "b": 3}),
        "is 5",
    )
    .await;
    let weather = call(
        manager,
        "everything",
        "get-structured-content",
        json!({"location": "Chicago"}),
    )
    .await;
    assert!(
        weather
            .structured
            .is_some_and(|weather| weather["temperature"].is_number()),
        "{}",
        weather.text
    );
    let image = call(manager, "everything", "get-tiny-image", json!({})).await;
    assert!(
        image.text.contains("image/png") && !image.text.contains("iVBOR"),
        "{}",
        image.text
    );

    let entity =
        json!({"name": "Rust", "entityType": "language", "observations": ["is memory-safe"]});
    returns(
        manager,
        "memory",
        "create_entities",
        json!({"entities": [entity]}),
        "Rust",
    )
    .await;
    let graph = returns(manager, "memory", "read_graph", json!({}), "is memory-safe").await;
    assert_eq!(graph.structured.unwrap()["entities"][0]["name"], "Rust");

    let path = format!("{root}/files/a.txt");
    returns(
        manager,
        "filesystem",
        "read_text_file",
        json!({"path": path}),
        "hello from a file",
    )
    .await;
    let outside = call(
        manager,
        "filesystem",
        "read_text_file",
        json!({"path": "/etc/hostname"}),
    )
    .await;
    assert!(
        outside.is_error && outside.text.contains("denied"),
        "{outside:?}"
    );

    let thought = json!({"thought": "First, look.", "nextThoughtNeeded": false, "thoughtNumber": 1, "totalThoughts": 1});
    let thought = returns(
        manager,
        "thinking",
        "sequentialthinking",
        thought,
        "thoughtHistoryLength",
    )
    .await;
    assert_eq!(thought.structured.unwrap()["thoughtNumber"], 1);

    let repo = json!({"repo_path": format!("{root}/repo")});
    returns(manager, "git", "git_log", repo.clone(), "The first commit").await;
    returns(manager, "git", "git_status", repo, "On branch main").await;

    let url = format!("http://127.0.0.1:{web}/page.txt");
    returns(
        manager,
        "fetch",
        "fetch",
        json!({"url": url}),
        "a local page",
    )
    .await;

    let noon = json!({"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"});
    returns(manager, "time", "convert_time", noon, "T21:00:00+09:00").await;
}

async fn resources_and_prompts_are_read(manager: &Manager) {
    let catalog = manager.catalog();
    let offer = &catalog.servers["everything"];
    assert!(offer.resources.len() >= 5, "{:?}", offer.resources);
    assert!(
        offer
            .templates
            .iter()
            .any(|template| template.uri.contains("{resourceId}"))
    );
    let listed = manager
        .read("everything", &offer.resources[0].uri)
        .await
        .unwrap();
    assert!(!listed.is_error && listed.text.len() > 50, "{listed:?}");
    let made = manager
        .read("everything", "demo://resource/dynamic/text/7")
        .await
        .unwrap();
    assert!(made.text.contains("Resource 7"), "{made:?}");
    let blob = manager
        .read("everything", "demo://resource/dynamic/blob/7")
        .await
        .unwrap();
    assert!(
        blob.text.contains("application/octet-stream") || blob.text.contains("bytes"),
        "{blob:?}"
    );

    assert!(
        offer
            .prompts
            .iter()
            .any(|prompt| prompt.name == "args-prompt")
    );
    let arguments = BTreeMap::from([("city".to_owned(), "Paris".to_owned())]);
    let prompt = manager
        .prompt("everything", "args-prompt", arguments)
        .await
        .unwrap();
    assert!(prompt.text.contains("weather in Paris"), "{prompt:?}");
    assert!(
        catalog.servers["fetch"]
            .prompts
            .iter()
            .any(|prompt| prompt.name == "fetch")
    );
}

async fn long_call_reports_progress_and_is_cancelled(manager: &Manager) {
    const LONG: &str = "trigger-long-running-operation";
    let (progress_sender, mut progress) = mpsc::channel(100);
    let options = CallOptions {
        timeout: None,
        progress: Some(progress_sender),
    };
    let output = manager
        .call_with(
            "everything",
            LONG,
            json!({"duration": 1, "steps": 4}),
            options,
        )
        .await
        .unwrap();
    assert!(output.text.contains("completed"), "{output:?}");
    let mut steps = Vec::new();
    while let Ok(step) = progress.try_recv() {
        steps.push((step.progress, step.total));
    }
    assert!(
        steps.len() >= 3 && steps.iter().all(|(_, total)| *total == Some(4.0)),
        "{steps:?}"
    );
    assert!(steps.is_sorted_by(|a, b| a.0 < b.0), "{steps:?}");

    let began = Instant::now();
    let options = CallOptions {
        timeout: Some(Duration::from_millis(300)),
        progress: None,
    };
    let error = manager
        .call_with(
            "everything",
            LONG,
            json!({"duration": 60, "steps": 1}),
            options,
        )
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("no answer within 0.3 s"),
        "{error}"
    );
    assert!(began.elapsed() < Duration::from_millis(300) + AT_ONCE);
    returns(
        manager,
        "everything",
        "echo",
        json!({"message": "after"}),
        "Echo: after",
    )
    .await;
}

/// Its exit is noticed at once, together with the call in progress; it is restarted, and the others are
/// not affected.
async fn killed_server_is_restarted(manager: &Manager, kill: impl Future<Output = ()>) {
    let _ = manager.notices();
    let (progress_sender, mut progress) = mpsc::channel(100);
    let long = json!({"duration": 60, "steps": 600});
    let options = CallOptions {
        timeout: None,
        progress: Some(progress_sender),
    };
    let call = manager.call_with(
        "everything",
        "trigger-long-running-operation",
        long,
        options,
    );
    let killed = async {
        progress.recv().await.expect("the call is not under way");
        kill.await;
        Instant::now()
    };
    let (result, killed) = tokio::join!(async { (call.await, Instant::now()) }, killed);
    let (result, answered) = result;
    let error = result.unwrap_err();
    assert!(
        ["mcp_process_error", "mcp_protocol_error"].contains(&error.code()),
        "{error}"
    );
    let took = answered.saturating_duration_since(killed);
    assert!(took < AT_ONCE, "reported only after {took:?}");
    returns(manager, "memory", "read_graph", json!({}), "Rust").await;
    let status = rig::wait_for(manager, "everything", "back", |s| {
        s.state == ServerState::Ready && s.restarts == 1
    })
    .await;
    assert!(status.started_in.is_some());
    manager.refresh().await;
    returns(
        manager,
        "everything",
        "echo",
        json!({"message": "back"}),
        "Echo: back",
    )
    .await;
    let kinds: Vec<NoticeKind> = manager
        .notices()
        .into_iter()
        .map(|notice| notice.kind)
        .collect();
    assert!(
        kinds.contains(&NoticeKind::Crashed) && kinds.contains(&NoticeKind::Restarted),
        "{kinds:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_era_is_detected() {
    let folder = tempfile::tempdir().unwrap();
    let time = pypi(
        "time",
        ServerPlace::Worker,
        "mcp_server_time",
        &["--local-timezone", "UTC"],
    );
    // Longer than the client waits before it tries the other era.
    let slow = slow(time.clone(), Duration::from_secs(4));
    for (server, protocol, era) in [
        (everything(), "2025-11-25", Era::Handshake),
        (time, "2026-07-28", Era::Stateless),
        (slow, "2026-07-28", Era::Stateless),
    ] {
        let name = server.name.clone();
        let (manager, mark) = rig::start([server], folder.path(), rig::policy()).await;
        let greeting = rig::status(&manager, &name).greeting.unwrap();
        assert_eq!((greeting.protocol.as_str(), greeting.era), (protocol, era));
        rig::end(manager, &mark).await;
    }
}

/// The same server under another name, which reads nothing for this long.
fn slow(mut server: ServerConfig, by: Duration) -> ServerConfig {
    let Transport::Stdio { command, .. } = &mut server.transport else {
        panic!("{} is no program", server.name);
    };
    let script = format!("sleep {} && exec \"$@\"", by.as_secs());
    let shell = ["sh", "-c", &script, "sh"].map(str::to_owned);
    command.splice(0..0, shell);
    server.name = format!("slow-{}", server.name);
    server
}

/// As most configurations start them: npx starts a shell, which starts the server.
fn by_npx() -> ServerConfig {
    let prefix = installed().display().to_string();
    let command = [
        "npx",
        "--offline",
        "--prefix",
        prefix.as_str(),
        "--",
        "mcp-server-memory",
    ];
    server("memory", ServerPlace::Worker, command)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grandchildren_of_npx_are_killed_too() {
    let folder = tempfile::tempdir().unwrap();
    let (manager, mark) = rig::start([by_npx()], folder.path(), rig::policy()).await;
    rig::assert_ready(&manager, "memory");
    returns(&manager, "memory", "read_graph", json!({}), "entities").await;
    assert!(mark.processes().len() > 1, "{:?}", mark.processes());
    rig::end(manager, &mark).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grandchildren_do_not_outlive_a_killed_npx() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = by_npx();
    server.max_restarts = Some(0);
    let (manager, mark) = rig::start([server], folder.path(), rig::policy()).await;
    let pid = rig::status(&manager, "memory").pid.unwrap();
    // SAFETY: `kill` takes two numbers and touches no memory of this program.
    assert_eq!(
        unsafe { libc::kill(i32::try_from(pid).unwrap(), libc::SIGKILL) },
        0
    );
    rig::wait_for(&manager, "memory", "given up", |s| {
        matches!(s.state, ServerState::Failed(_))
    })
    .await;
    assert_eq!(mark.gone_within(Duration::from_secs(5)).await, Ok(()));
    manager.refresh().await;
    assert!(manager.catalog().servers.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_manager_leaves_no_process() {
    let folder = tempfile::tempdir().unwrap();
    let (manager, mark) = rig::start([by_npx(), everything()], folder.path(), rig::policy()).await;
    assert!(mark.processes().len() > 2, "{:?}", mark.processes());
    drop(manager);
    assert_eq!(mark.gone_within(Duration::from_secs(5)).await, Ok(()));
}

fn everything() -> ServerConfig {
    npm(
        "everything",
        ServerPlace::Worker,
        "mcp-server-everything",
        &[],
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_program_is_restarted() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("server");
    std::fs::copy(crate::rig::binary("faulty-mcp-server"), &program).unwrap();
    let entry = server(
        "own",
        ServerPlace::Worker,
        [program.display().to_string(), "healthy".into()],
    );
    let (manager, mark) = rig::start([entry], folder.path(), rig::policy()).await;
    let before = rig::status(&manager, "own").pid;
    // As a package manager does: a new file replaces the old one.
    replace(&program);
    rig::wait_for(&manager, "own", "started again", |s| {
        s.state == ServerState::Ready && s.pid != before
    })
    .await;
    manager.refresh().await;
    returns(&manager, "own", "echo", json!({"text": "new"}), "new").await;
    rig::end(manager, &mark).await;
}

fn replace(program: &Path) {
    let new = program.with_extension("new");
    std::fs::copy(program, &new).unwrap();
    std::fs::rename(new, program).unwrap();
}

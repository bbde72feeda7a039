//! Tests with a real local jail.

use std::path::Path;
use std::time::Instant;

use agentmine_domain::{Epoch, TaskId};
use agentmine_mcp::config::{Capabilities, Origin, Owner, ServerPlace};
use agentmine_runtime::config::{CommandExecutor, Secret};
use agentmine_sandbox::{Backend as _, LocalBackend, SandboxRole, SandboxSpec};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;

async fn sandbox() -> (Arc<dyn Sandbox>, TempDir) {
    let state = tempfile::tempdir().unwrap();
    let backend = LocalBackend::new(&CommandExecutor::default(), state.path()).unwrap();
    let spec = SandboxSpec {
        task: TaskId::new(),
        epoch: Epoch(1),
        role: SandboxRole::Main,
        image: None,
        template: None,
    };
    (Arc::from(backend.start(&spec).await.unwrap()), state)
}

fn server(line: &str) -> ServerConfig {
    ServerConfig {
        name: "probe".into(),
        origin: Origin {
            file: Path::new("mcp_config.json").into(),
            line: 1,
            owner: Owner::Repository,
        },
        transport: Transport::Stdio {
            command: ["sh", "-c", line].map(str::to_owned).to_vec(),
            env: BTreeMap::from([
                ("WORD".to_owned(), Secret::new("given")),
                ("LONGER".to_owned(), Secret::new("canary-token")),
            ]),
            place: ServerPlace::Sandbox,
        },
        enabled: true,
        capabilities: Capabilities::default(),
        timeout: Duration::from_secs(30),
        max_restarts: None,
    }
}

#[tokio::test]
async fn a_server_reads_writes_and_stops() {
    let (sandbox, _state) = sandbox().await;
    let launcher = SandboxLauncher::new(Arc::clone(&sandbox));
    let line = "echo oops $LONGER >&2; echo $WORD; cat; sleep 300";
    let Launched {
        mut stream,
        process,
    } = launcher.launch(&server(line)).await.unwrap();
    stream.write_all(b"hello\n").await.unwrap();
    stream.flush().await.unwrap();
    let mut output = [0; 12];
    stream.read_exact(&mut output).await.unwrap();
    assert_eq!(&output, b"given\nhello\n");
    assert_eq!(process.stderr().await, "oops ***\n");
    drop(stream);
    process.stop(Duration::from_millis(100)).await;
    // It exits on SIGTERM.
    assert_eq!(process.ended().await, "signal 15");
    sandbox.remove().await.unwrap();
}

#[tokio::test]
async fn a_dropped_server_is_killed_even_if_it_ignores_stdin_and_sigterm() {
    let (sandbox, _state) = sandbox().await;
    let launcher = SandboxLauncher::new(Arc::clone(&sandbox));
    let line = "trap '' TERM; echo up; sleep 300 & wait; sleep 300";
    let mut launched = launcher.launch(&server(line)).await.unwrap();
    launched.stream.read_exact(&mut [0; 3]).await.unwrap();
    // More than its stdin buffers: it never sees the end of the stream.
    launched.stream.write_all(&[b'x'; 200_000]).await.unwrap();
    launched.stream.flush().await.unwrap();
    let begun = Instant::now();
    drop(launched);
    let end = sandbox.stdio_ended(1).await.unwrap();
    assert_eq!(end.to_string(), "signal 9");
    assert!(begun.elapsed() < Duration::from_secs(1));
    sandbox.remove().await.unwrap();
}

#[tokio::test]
async fn a_crash_is_detected_within_a_second() {
    let (sandbox, _state) = sandbox().await;
    let launcher = SandboxLauncher::new(Arc::clone(&sandbox));
    let begun = Instant::now();
    let launched = launcher.launch(&server("exit 4")).await.unwrap();
    assert_eq!(launched.process.ended().await, "exit code 4");
    assert!(begun.elapsed() < Duration::from_secs(1));
    sandbox.remove().await.unwrap();
}

#[tokio::test]
async fn a_failed_start_is_a_process_error_without_the_environment() {
    let (sandbox, _state) = sandbox().await;
    let launcher = SandboxLauncher::new(Arc::clone(&sandbox));
    let mut absent = server("");
    if let Transport::Stdio { command, .. } = &mut absent.transport {
        *command = vec!["no-such-program".into()];
    }
    let error = launcher.launch(&absent).await.err().unwrap();
    assert_eq!(error.code(), "mcp_process_error");
    let text = error.to_string();
    assert!(
        text.contains("no-such-program") && !text.contains("given"),
        "{text}"
    );
    sandbox.remove().await.unwrap();
}

#[tokio::test]
async fn a_detached_frozen_sandbox_is_not_waited_for() {
    let (sandbox, _state) = sandbox().await;
    let launcher = SandboxLauncher::new(Arc::clone(&sandbox));
    let launched = launcher
        .launch(&server("trap '' TERM; sleep 300"))
        .await
        .unwrap();
    sandbox.pause().await.unwrap();
    let begun = Instant::now();
    launcher.detach();
    launched.process.stop(Duration::from_secs(2)).await;
    assert_eq!(launched.process.stderr().await, "");
    assert!(launcher.launch(&server("true")).await.is_err());
    assert!(begun.elapsed() < Duration::from_secs(1));
    drop(launched);
    sandbox.remove().await.unwrap();
}

#[tokio::test]
async fn a_sandbox_answers_until_it_is_gone() {
    let (sandbox, _state) = sandbox().await;
    let launcher = SandboxLauncher::new(Arc::clone(&sandbox));
    // It contains no project: a refused request is an answer.
    launcher.answers().await.unwrap();
    sandbox.remove().await.unwrap();
    assert!(launcher.answers().await.is_err());
}

//! With real processes that behave badly.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use agentmine_runtime::config::Secret;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::time::timeout;

use super::*;
use crate::config::{Capabilities, Origin, Owner};
use crate::{ServerProcess, ServerStream};

const LONG: Duration = Duration::from_secs(20);
const GRACE: Duration = Duration::from_millis(200);

fn server(command: &[&str]) -> ServerConfig {
    ServerConfig {
        name: "one".into(),
        origin: Origin {
            file: "mcp_config.json".into(),
            line: 1,
            owner: Owner::Operator,
        },
        transport: Transport::Stdio {
            command: command.iter().map(|word| (*word).to_owned()).collect(),
            env: BTreeMap::from([
                ("API_KEY".to_owned(), Secret::new("very secret")),
                ("TZ".to_owned(), Secret::new("UTC")),
            ]),
            place: ServerPlace::Worker,
        },
        enabled: true,
        capabilities: Capabilities::default(),
        timeout: LONG,
        max_restarts: None,
    }
}

async fn try_launch(cwd: &Path, command: &[&str]) -> Result<Launched, McpError> {
    let env = |name: &str| match name {
        "PATH" => std::env::var(name).ok(),
        "HOME" => Some("/home/somebody".into()),
        "TZ" => Some("Asia/Tokyo".into()),
        "GITHUB_TOKEN" | "AWS_SECRET_ACCESS_KEY" => Some("ours".into()),
        _ => None,
    };
    let launcher = WorkerLauncher::new(cwd.to_owned(), env);
    launcher.launch(&server(command)).await
}

async fn launch(command: &[&str]) -> (BufReader<Box<dyn ServerStream>>, Box<dyn ServerProcess>) {
    let launched = try_launch(Path::new("/"), command).await.unwrap();
    (BufReader::new(launched.stream), launched.process)
}

async fn ended(process: &dyn ServerProcess) -> String {
    timeout(LONG, process.ended()).await.expect("it continues")
}

/// The next line, which is a process's id.
async fn pid(stream: &mut BufReader<Box<dyn ServerStream>>) -> i32 {
    let mut line = String::new();
    let read = timeout(LONG, stream.read_line(&mut line)).await;
    read.expect("no line").unwrap();
    line.trim().parse().unwrap()
}

pub(crate) fn lives(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").map(|(_, rest)| rest.as_bytes()[0]);
    state.is_some_and(|state| state != b'Z' && state != b'X')
}

pub(crate) async fn gone(pid: i32) {
    let began = Instant::now();
    while lives(pid) {
        assert!(began.elapsed() < LONG, "process {pid} is left");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn environment_is_the_allowed_list_and_the_entry() {
    let (mut stream, _process) = launch(&["env"]).await;
    let mut text = String::new();
    timeout(LONG, stream.read_to_string(&mut text))
        .await
        .unwrap()
        .unwrap();
    let names: BTreeSet<&str> = text
        .lines()
        .map(|line| line.split('=').next().unwrap())
        .collect();
    let expected = ["AGENTMINE_MCP_RUN", "API_KEY", "HOME", "PATH", "TZ"];
    assert_eq!(names, BTreeSet::from(expected));
    assert!(text.contains("TZ=UTC\n"), "the entry wins: {text}");
}

#[test]
fn no_allowed_variable_is_a_secret() {
    for name in ALLOWED_ENV {
        for part in ["TOKEN", "KEY", "SECRET", "PASS", "AUTH", "CRED"] {
            assert!(!name.to_uppercase().contains(part), "{name}");
        }
    }
}

#[tokio::test]
async fn what_cannot_be_started_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str, mode| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    };
    file("plain", "#!/bin/sh\n", 0o644);
    file("orphan", "#!/no/such/interpreter\n", 0o755);
    for (program, expected) in [
        ("no-such-program", "not found in the"),
        ("./absent", "was not found"),
        ("/tmp", "is a folder"),
        ("./plain", "is not executable"),
        ("./orphan", "the interpreter in the first line of"),
    ] {
        let error = try_launch(folder.path(), &[program]).await.err().unwrap();
        let McpError::Process {
            what: ProcessFault::Start,
            detail,
            ..
        } = &error
        else {
            panic!("{error:?}");
        };
        assert!(detail.contains(expected), "{program}: {detail}");
    }
}

#[tokio::test]
async fn closed_stdin_is_seen_by_the_server_and_its_last_output_by_us() {
    let (mut stream, process) = launch(&["sh", "-c", "cat; echo end"]).await;
    stream.write_all(b"hello\n").await.unwrap();
    stream.shutdown().await.unwrap();
    let mut text = String::new();
    timeout(LONG, stream.read_to_string(&mut text))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(text, "hello\nend\n");
    assert_eq!(ended(&*process).await, "exit code 0");
    assert!(stream.write_all(b"more\n").await.is_err());
}

#[tokio::test]
async fn crash_leaves_its_exit_code_and_stderr_without_secrets() {
    let script = "echo \"key is $API_KEY\" >&2; exit 3";
    let (_stream, process) = launch(&["sh", "-c", script]).await;
    assert_eq!(ended(&*process).await, "exit code 3");
    assert_eq!(process.pid(), None);
    assert_eq!(process.stderr().await, "key is ***\n");
    let (_stream, process) = launch(&["sh", "-c", "kill -9 $$"]).await;
    assert_eq!(ended(&*process).await, "signal 9");
}

#[tokio::test]
async fn server_that_floods_stderr_continues_and_only_the_end_is_kept() {
    let script = "head -c 5000000 /dev/zero | tr '\\0' 'x' >&2; echo >&2; echo end >&2";
    let (_stream, process) = launch(&["sh", "-c", script]).await;
    assert_eq!(ended(&*process).await, "exit code 0");
    assert_eq!(process.stderr().await, "end\n");
}

#[tokio::test]
async fn server_that_ends_at_the_end_of_stdin_is_sent_no_signal() {
    let folder = tempfile::tempdir().unwrap();
    let script = "trap 'echo term > signal' TERM; cat; sleep 0.2; echo bye > bye";
    let launched = try_launch(folder.path(), &["sh", "-c", script])
        .await
        .unwrap();
    drop(launched.stream);
    launched.process.stop(LONG).await;
    assert!(folder.path().join("bye").exists());
    assert!(!folder.path().join("signal").exists());
}

/// Starts processes that ignore every kind word: its own, a child in its own session, and a daemon
/// whose parents have ended. Prints their ids.
const FAMILY: &str = r"
import os, signal, sys, time
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN)
print(os.getpid(), flush=True)
if os.fork() == 0:
    os.setsid()
    print(os.getpid(), flush=True)
    time.sleep(1000)
if os.fork() == 0:
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            print(os.getpid(), flush=True)
            time.sleep(1000)
        os._exit(0)
    os._exit(0)
time.sleep(1000)
";

async fn family() -> (
    BufReader<Box<dyn ServerStream>>,
    Box<dyn ServerProcess>,
    Vec<i32>,
) {
    let (mut stream, process) = launch(&["python3", "-c", FAMILY]).await;
    let mut pids = Vec::new();
    for _ in 0..3 {
        pids.push(pid(&mut stream).await);
    }
    assert!(pids.iter().all(|pid| lives(*pid)));
    (stream, process, pids)
}

#[tokio::test]
async fn stop_leaves_nothing_of_a_family_that_ignores_signals_and_left_its_group() {
    let (_stream, process, pids) = family().await;
    process.stop(GRACE).await;
    assert!(!pids.iter().any(|pid| lives(*pid)), "{pids:?}");
    assert_eq!(ended(&*process).await, "signal 9");
}

#[tokio::test]
async fn dropped_process_is_killed_with_all_it_started() {
    let (_stream, process, pids) = family().await;
    drop(process);
    for pid in pids {
        gone(pid).await;
    }
}

#[tokio::test]
async fn what_a_crashed_server_leaves_behind_is_killed() {
    let (_stream, process, pids) = family().await;
    // SAFETY: takes plain integers.
    unsafe { libc::kill(pids[0], libc::SIGKILL) };
    assert_eq!(ended(&*process).await, "signal 9");
    for pid in pids {
        gone(pid).await;
    }
}

#[tokio::test]
async fn processes_of_others_are_left_alone() {
    let (_theirs, other, others) = family().await;
    let (_stream, process, _) = family().await;
    process.stop(GRACE).await;
    assert!(others.iter().all(|pid| lives(*pid)), "{others:?}");
    other.stop(GRACE).await;
}

#[test]
fn runtime_that_ends_takes_its_servers_with_it() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (stream, process, pids) = runtime.block_on(family());
    runtime.spawn(async move {
        let _held = (stream, process);
        std::future::pending::<()>().await;
    });
    drop(runtime);
    let began = Instant::now();
    while pids.iter().any(|pid| lives(*pid)) {
        assert!(began.elapsed() < LONG, "{pids:?} are left");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// This test starts itself as a separate process, in which it is the worker.
#[tokio::test]
async fn server_ends_with_a_worker_that_is_killed() {
    const ROLE: &str = "AGENTMINE_TEST_IS_THE_WORKER";
    if std::env::var_os(ROLE).is_some() {
        let (_stream, process) = launch(&["sleep", "1000"]).await;
        fs::write(
            std::env::var(ROLE).unwrap(),
            process.pid().unwrap().to_string(),
        )
        .unwrap();
        std::future::pending::<()>().await;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pid");
    let mut worker = tokio::process::Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "process::tests::server_ends_with_a_worker_that_is_killed",
        ])
        .env(ROLE, &file)
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let began = Instant::now();
    let server: i32 = loop {
        assert!(began.elapsed() < LONG, "the server was not started");
        match fs::read_to_string(&file).unwrap_or_default().parse() {
            Ok(pid) => break pid,
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    };
    assert!(lives(server));
    worker.kill().await.unwrap();
    gone(server).await;
}

//! What every backend promises, run over all of them: Docker, and both local jails.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use agentmine_domain::{Epoch, TaskId};
use agentmine_runtime::config::CommandExecutor;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::local::Jail;
use crate::{
    Backend, Command, CommandResult, DockerBackend, FoundSandbox, LocalBackend, OutboundKind,
    Sandbox, SandboxError, SandboxSpec,
};

/// Not the temporary folder: a jail has one of its own, which a test must not mistake for this one.
fn scratch() -> PathBuf {
    let folder = PathBuf::from(env!("OUT_DIR")).join("scratch");
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// A backend under test, with what it keeps alive.
pub(crate) struct Bench {
    pub(crate) backend: Box<dyn Backend>,
    kind: Kind,
    _state: Option<tempfile::TempDir>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Docker,
    Namespaces,
    Alone,
}

pub(crate) fn docker_config() -> CommandExecutor {
    let mut config = CommandExecutor::default();
    config.docker.host = std::env::var("DOCKER_HOST").ok();
    if let Ok(image) = std::env::var("AGENTMINE_TEST_IMAGE") {
        config.docker.base_image = image;
    }
    config
}

async fn bench(kind: Kind) -> Bench {
    if kind == Kind::Docker {
        let backend = DockerBackend::connect(&docker_config()).await;
        let backend = backend.unwrap_or_else(|err| panic!("{err}\nrun tests/run"));
        backend
            .check()
            .await
            .unwrap_or_else(|err| panic!("{err}\nrun tests/run"));
        return Bench {
            backend: Box::new(backend),
            kind,
            _state: None,
        };
    }
    let state = tempfile::tempdir_in(scratch()).unwrap();
    let jail = if kind == Kind::Alone {
        Jail::Alone
    } else {
        Jail::Namespaces
    };
    let backend = LocalBackend::new(&CommandExecutor::default(), state.path()).unwrap();
    let backend = backend.with_jail(jail);
    Bench {
        backend: Box::new(backend),
        kind,
        _state: Some(state),
    }
}

impl Bench {
    async fn start(&self) -> Running {
        Running(self.backend.start(&spec(TaskId::new())).await.unwrap())
    }

    async fn found(&self, name: &str) -> FoundSandbox {
        let all = self.backend.list().await.unwrap();
        all.into_iter().find(|found| found.name == name).unwrap()
    }
}

pub(crate) fn spec(task: TaskId) -> SandboxSpec {
    SandboxSpec {
        task,
        epoch: Epoch(3),
        role: "main".into(),
        image: None,
    }
}

/// A sandbox that a test removes at its end.
struct Running(Box<dyn Sandbox>);

impl std::ops::Deref for Running {
    type Target = dyn Sandbox;
    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

impl Running {
    async fn shell(&self, line: &str) -> CommandResult {
        self.run(shell(line)).await.unwrap()
    }

    /// Output of a line that must succeed.
    async fn output(&self, line: &str) -> String {
        let result = self.shell(line).await;
        assert_eq!(result.exit_code, 0, "{line}: {}", text(&result.stderr));
        text(&result.stdout).trim().to_owned()
    }

    async fn until(&self, line: &str) {
        let line = format!("until {line}; do sleep 0.02; done");
        let mut command = shell(&line);
        command.timeout = Duration::from_secs(10);
        assert_eq!(self.run(command).await.unwrap().exit_code, 0, "{line}");
    }
}

fn shell(line: &str) -> Command {
    Command {
        argv: vec!["/bin/bash".into(), "-c".into(), line.into()],
        cwd: "/workspace/project".into(),
        env: BTreeMap::new(),
        stdin: Vec::new(),
        timeout: Duration::from_secs(30),
        max_output: 64 * 1024,
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// One test for each backend.
macro_rules! contract {
    ($($name:ident),* $(,)?) => {
        mod docker {
            $(#[tokio::test]
            async fn $name() { super::$name(super::bench(super::Kind::Docker).await).await })*
        }
        mod namespaces {
            $(#[tokio::test]
            async fn $name() { super::$name(super::bench(super::Kind::Namespaces).await).await })*
        }
        mod alone {
            $(#[tokio::test]
            async fn $name() { super::$name(super::bench(super::Kind::Alone).await).await })*
        }
    };
}

contract![
    a_command_tells_its_exit_code_and_both_outputs,
    a_long_output_keeps_head_and_tail_and_tells_the_cut,
    the_time_limit_kills_the_whole_group,
    a_background_child_does_not_hold_the_call,
    a_dropped_call_kills_its_group,
    what_cannot_be_started_is_told_as_a_shell_would,
    commands_run_in_the_folder_they_name,
    the_environment_is_clean,
    stdin_is_fed_and_closed,
    files_are_put_and_read_under_the_workspace_only,
    a_stdio_program_echoes_and_its_stderr_is_kept,
    the_end_of_a_stdio_program_is_told_at_once,
    a_stopped_stdio_program_leaves_nothing,
    a_stdio_program_that_reads_nothing_is_stopped_too,
    connections_out_arrive_with_their_kind,
    there_is_no_network,
    nothing_of_the_host_is_seen_or_changed,
    a_sandbox_is_the_first_to_go_when_memory_runs_out,
    a_snapshot_restores_files_and_commits_elsewhere,
    removal_leaves_nothing_and_a_second_one_succeeds,
    a_late_removal_leaves_the_successor_alone,
    an_existing_sandbox_is_replaced,
    a_paused_sandbox_stands_still,
    a_sandbox_that_ends_is_seen,
    orphans_are_collected,
];

async fn a_command_tells_its_exit_code_and_both_outputs(bench: Bench) {
    let sandbox = bench.start().await;
    let result = sandbox.shell("echo out; echo err >&2; exit 7").await;
    assert_eq!(
        (result.exit_code, result.timed_out, result.truncated),
        (7, false, false)
    );
    assert_eq!(
        (text(&result.stdout), text(&result.stderr)),
        ("out\n".into(), "err\n".into())
    );
    assert_eq!(sandbox.shell("kill -TERM $$").await.exit_code, 128 + 15);
    sandbox.remove().await.unwrap();
}

async fn a_long_output_keeps_head_and_tail_and_tells_the_cut(bench: Bench) {
    let sandbox = bench.start().await;
    let mut command = shell("seq 1 1000000; seq 1 100000 >&2");
    command.max_output = 1000;
    let result = sandbox.run(command).await.unwrap();
    assert!(result.truncated);
    for (output, last) in [(result.stdout, "1000000\n"), (result.stderr, "100000\n")] {
        let output = text(&output);
        assert!(
            output.starts_with("1\n2\n3\n") && output.ends_with(last),
            "{output}"
        );
        assert!(
            output.contains("bytes cut ...]") && output.len() < 1100,
            "{}",
            output.len()
        );
    }
    sandbox.remove().await.unwrap();
}

async fn the_time_limit_kills_the_whole_group(bench: Bench) {
    let sandbox = bench.start().await;
    let mut command = shell(
        "sleep 300 & echo $! > ../tmp/a; (setsid sleep 300 & echo $! > ../tmp/b; wait) & echo before; wait",
    );
    command.timeout = Duration::from_millis(700);
    let began = Instant::now();
    let result = sandbox.run(command).await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(5));
    assert_eq!((result.exit_code, result.timed_out), (124, true));
    assert_eq!(text(&result.stdout), "before\n");
    sandbox.until("! kill -0 $(cat ../tmp/a)").await;
    sandbox.until("! kill -0 $(cat ../tmp/b)").await;
    sandbox.remove().await.unwrap();
}

async fn a_background_child_does_not_hold_the_call(bench: Bench) {
    let sandbox = bench.start().await;
    let began = Instant::now();
    let line = "(sleep 2; echo late; touch ../tmp/alive) & echo started";
    let result = sandbox.shell(line).await;
    assert!(
        began.elapsed() < Duration::from_millis(1900),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(
        (result.exit_code, text(&result.stdout)),
        (0, "started\n".into())
    );
    // It lives on, and does not die of writing to nobody.
    sandbox.until("[ -e ../tmp/alive ]").await;
    sandbox.remove().await.unwrap();
}

async fn a_dropped_call_kills_its_group(bench: Bench) {
    let sandbox = bench.start().await;
    let call = sandbox.run(shell("echo $$ > ../tmp/pid; sleep 300"));
    tokio::select! {
        _ = call => panic!("it sleeps"),
        () = sandbox.until("[ -s ../tmp/pid ]") => {}
    }
    sandbox.until("! kill -0 $(cat ../tmp/pid)").await;
    sandbox.remove().await.unwrap();
}

async fn what_cannot_be_started_is_told_as_a_shell_would(bench: Bench) {
    let sandbox = bench.start().await;
    let mut command = shell("");
    command.argv = vec!["no-such-program".into()];
    let result = sandbox.run(command.clone()).await.unwrap();
    assert_eq!(result.exit_code, 127);
    assert!(text(&result.stderr).contains("no-such-program"));
    sandbox
        .put_file("/workspace/project/plain", b"x".to_vec(), 0o644)
        .await
        .unwrap();
    command.argv = vec!["./plain".into()];
    assert_eq!(sandbox.run(command.clone()).await.unwrap().exit_code, 126);
    command.argv = Vec::new();
    assert_eq!(sandbox.run(command.clone()).await.unwrap().exit_code, 127);
    command.cwd = "/workspace/project/nowhere".into();
    let err = sandbox.run(command).await.unwrap_err();
    assert!(
        matches!(&err, SandboxError::Failed(why) if why.contains("nowhere")),
        "{err}"
    );
    sandbox.remove().await.unwrap();
}

async fn commands_run_in_the_folder_they_name(bench: Bench) {
    let sandbox = bench.start().await;
    let root = sandbox.workspace_root().to_owned();
    assert_eq!(bench.kind == Kind::Alone, root != "/workspace");
    assert_eq!(
        sandbox.output("pwd; mkdir sub").await,
        format!("{root}/project")
    );
    let mut command = shell("pwd");
    for cwd in ["sub", "/workspace/project/sub"] {
        command.cwd = cwd.into();
        let result = sandbox.run(command.clone()).await.unwrap();
        assert_eq!(text(&result.stdout).trim(), format!("{root}/project/sub"));
    }
    sandbox.remove().await.unwrap();
}

async fn the_environment_is_clean(bench: Bench) {
    let sandbox = bench.start().await;
    let mut command = shell("env; umask > /dev/null; ulimit -c");
    command.env.insert("ADDED".into(), "yes".into());
    let output = text(&sandbox.run(command).await.unwrap().stdout);
    // This test's own environment is full of these.
    assert!(
        !output.contains("CARGO_MANIFEST_DIR") && !output.contains("NEXTEST"),
        "{output}"
    );
    let root = sandbox.workspace_root();
    let web = sandbox.ports().1;
    for line in [
        format!("HOME={root}/tmp/home"),
        format!("TMPDIR={root}/tmp"),
        format!("HTTPS_PROXY=http://127.0.0.1:{web}"),
        "NO_PROXY=127.0.0.1,localhost".into(),
        "LANG=C.UTF-8".into(),
        "TERM=dumb".into(),
        "GIT_TERMINAL_PROMPT=0".into(),
        "ADDED=yes".into(),
        "0".into(),
    ] {
        assert!(
            output.lines().any(|seen| seen == line),
            "no {line} in {output}"
        );
    }
    sandbox
        .output("command -v git && command -v mcp-server-text-editor && touch $HOME/x")
        .await;
    sandbox.remove().await.unwrap();
}

async fn stdin_is_fed_and_closed(bench: Bench) {
    let sandbox = bench.start().await;
    let mut command = shell("wc -c");
    command.stdin = vec![b'x'; 3_000_000];
    let result = sandbox.run(command.clone()).await.unwrap();
    assert_eq!(text(&result.stdout).trim(), "3000000");
    // A program that does not read it all is no error.
    command.argv = vec!["/bin/true".into()];
    assert_eq!(sandbox.run(command).await.unwrap().exit_code, 0);
    assert_eq!(sandbox.output("cat; echo end").await, "end");
    sandbox.remove().await.unwrap();
}

async fn files_are_put_and_read_under_the_workspace_only(bench: Bench) {
    let sandbox = bench.start().await;
    let content: Vec<u8> = (0..=255).cycle().take(1_000_000).collect();
    let path = "/workspace/project/a/b.sh";
    sandbox
        .put_file(path, content.clone(), 0o755)
        .await
        .unwrap();
    assert_eq!(
        sandbox.get_file(path, 1_000_000).await.unwrap().unwrap(),
        content
    );
    assert_eq!(sandbox.output("stat -c %a a/b.sh").await, "755");
    assert!(matches!(
        sandbox.get_file(path, 999).await,
        Err(SandboxError::Failed(_))
    ));
    assert_eq!(
        sandbox
            .get_file("/workspace/project/none", 10)
            .await
            .unwrap(),
        None
    );
    sandbox
        .output("ln -s /etc etc; ln -s /etc/passwd passwd; mkfifo pipe")
        .await;
    for path in [
        "/etc/passwd",
        "/workspace/../etc/passwd",
        "/workspace/project/etc/passwd",
        "/workspace/project/passwd",
        "/workspace/project/pipe",
    ] {
        let err = sandbox.get_file(path, 10_000).await.unwrap_err();
        assert!(matches!(err, SandboxError::Failed(_)), "{path}: {err}");
    }
    for path in ["/etc/x", "/workspace/project/etc/x", "/workspace/project/a"] {
        let err = sandbox
            .put_file(path, b"x".to_vec(), 0o644)
            .await
            .unwrap_err();
        assert!(matches!(err, SandboxError::Failed(_)), "{path}: {err}");
    }
    assert!(sandbox.disk_used().await.unwrap() >= 1_000_000);
    sandbox.remove().await.unwrap();
}

async fn a_stdio_program_echoes_and_its_stderr_is_kept(bench: Bench) {
    let sandbox = bench.start().await;
    let argv = [
        "bash",
        "-c",
        "echo $$ > ../tmp/pid; echo ready >&2; cat; sleep 300",
    ];
    let argv: Vec<String> = argv.map(str::to_owned).into();
    let mut program = sandbox.start_stdio(argv, BTreeMap::new()).await.unwrap();
    let mut buffer = [0; 5];
    for _ in 0..3 {
        program.stream.write_all(b"hello").await.unwrap();
        program.stream.flush().await.unwrap();
        program.stream.read_exact(&mut buffer).await.unwrap();
        assert_eq!(&buffer, b"hello");
    }
    assert_eq!(sandbox.stdio_stderr(program.id).await.unwrap(), "ready\n");
    drop(program.stream);
    sandbox.until("! kill -0 $(cat ../tmp/pid)").await;
    assert_eq!(sandbox.stdio_stderr(program.id).await.unwrap(), "ready\n");
    let missing = sandbox
        .start_stdio(vec!["no-such-program".into()], BTreeMap::new())
        .await;
    assert!(matches!(missing, Err(SandboxError::Failed(why)) if why.contains("no-such-program")));
    sandbox.remove().await.unwrap();
}

async fn the_end_of_a_stdio_program_is_told_at_once(bench: Bench) {
    let sandbox = bench.start().await;
    // What it leaves behind holds its stdout, and goes with it.
    let line = "sleep 300 & echo $! > ../tmp/left; read x; echo bye; exit 7";
    let argv = ["bash", "-c", line].map(str::to_owned).to_vec();
    let mut program = sandbox.start_stdio(argv, BTreeMap::new()).await.unwrap();
    let begun = Instant::now();
    program.stream.write_all(b"\n").await.unwrap();
    program.stream.flush().await.unwrap();
    let end = sandbox.stdio_ended(program.id).await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(1));
    assert_eq!(end.to_string(), "exit code 7");
    let mut rest = String::new();
    program.stream.read_to_string(&mut rest).await.unwrap();
    assert_eq!(rest, "bye\n");
    sandbox.output("! kill -0 $(cat ../tmp/left)").await;
    // It is still known, and another is not.
    assert_eq!(sandbox.stdio_ended(program.id).await.unwrap(), end);
    assert!(matches!(
        sandbox.stdio_ended(99).await,
        Err(SandboxError::Failed(_))
    ));
    let argv = ["bash", "-c", "kill -9 $$"].map(str::to_owned).to_vec();
    let program = sandbox.start_stdio(argv, BTreeMap::new()).await.unwrap();
    let end = sandbox.stdio_ended(program.id).await.unwrap();
    assert_eq!(end.to_string(), "signal 9");
    sandbox.remove().await.unwrap();
}

async fn a_stopped_stdio_program_leaves_nothing(bench: Bench) {
    let sandbox = bench.start().await;
    // It hears SIGTERM and goes on, has a child in its group and one that left it.
    let line = "trap 'echo term >> ../tmp/heard' TERM; echo $$ > ../tmp/pids; \
                sleep 300 & echo $! >> ../tmp/pids; \
                setsid sh -c 'echo $$ >> ../tmp/pids; exec sleep 300' & \
                until [ $(wc -l < ../tmp/pids) = 3 ]; do sleep 0.02; done; echo ready; \
                while true; do sleep 0.1; done";
    let argv = ["bash", "-c", line].map(str::to_owned).to_vec();
    let mut program = sandbox.start_stdio(argv, BTreeMap::new()).await.unwrap();
    let mut ready = [0; 6];
    program.stream.read_exact(&mut ready).await.unwrap();
    let grace = Duration::from_millis(500);
    let begun = Instant::now();
    sandbox.stop_stdio(program.id, grace).await.unwrap();
    assert!(begun.elapsed() >= 2 * grace, "{:?}", begun.elapsed());
    sandbox
        .until("! (for pid in $(cat ../tmp/pids); do kill -0 $pid && exit; done; exit 1)")
        .await;
    assert_eq!(
        sandbox
            .output("wc -l < ../tmp/pids; cat ../tmp/heard")
            .await,
        "3\nterm"
    );
    let end = sandbox.stdio_ended(program.id).await.unwrap();
    assert_eq!(end.signal, Some(9));
    sandbox.remove().await.unwrap();
}

async fn a_stdio_program_that_reads_nothing_is_stopped_too(bench: Bench) {
    let sandbox = bench.start().await;
    let argv = ["sleep", "300"].map(str::to_owned).to_vec();
    let mut program = sandbox.start_stdio(argv, BTreeMap::new()).await.unwrap();
    // More than its pipe holds.
    program.stream.write_all(&[b'x'; 200_000]).await.unwrap();
    program.stream.flush().await.unwrap();
    let grace = Duration::from_millis(100);
    sandbox.stop_stdio(program.id, grace).await.unwrap();
    let end = sandbox.stdio_ended(program.id).await.unwrap();
    assert_eq!(end.to_string(), "signal 15");
    sandbox.remove().await.unwrap();
}

async fn connections_out_arrive_with_their_kind(bench: Bench) {
    let sandbox = bench.start().await;
    let (git, web) = sandbox.ports();
    for (port, kind) in [(git, OutboundKind::Git), (web, OutboundKind::Web)] {
        let line = format!("exec 3<>/dev/tcp/127.0.0.1/{port}; printf ping >&3; cat <&3");
        let serve = async {
            let mut outbound = sandbox.next_outbound().await.unwrap();
            assert_eq!(outbound.kind, kind);
            let mut buffer = [0; 4];
            outbound.stream.read_exact(&mut buffer).await.unwrap();
            assert_eq!(&buffer, b"ping");
            outbound
                .stream
                .write_all(&vec![b'y'; 2_000_000])
                .await
                .unwrap();
            outbound.stream.shutdown().await.unwrap();
        };
        let mut command = shell(&format!("{{ {line}; }} | wc -c"));
        command.max_output = 100;
        let (result, ()) = tokio::join!(sandbox.run(command), serve);
        assert_eq!(text(&result.unwrap().stdout).trim(), "2000000");
    }
    sandbox.remove().await.unwrap();
}

async fn there_is_no_network(bench: Bench) {
    let sandbox = bench.start().await;
    if bench.kind != Kind::Alone {
        let interfaces = sandbox
            .output("tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '")
            .await;
        assert_eq!(interfaces, "lo");
    }
    // The machine's own address, which a container would reach over a bridge.
    let probe = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
    let own = probe
        .connect("192.0.2.1:9")
        .and_then(|()| probe.local_addr());
    let own = own.map_or(Ipv4Addr::LOCALHOST.into(), |address| address.ip());
    let loopback = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let everywhere = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
    let loopback = loopback.local_addr().unwrap().port();
    let open = everywhere.local_addr().unwrap().port();
    for target in [
        format!("127.0.0.1/{loopback}"),
        format!("127.0.0.1/{open}"),
        format!("{own}/{open}"),
        format!("172.17.0.1/{open}"),
        "192.0.2.1/80".to_owned(),
    ] {
        let result = sandbox
            .shell(&format!("timeout 5 bash -c 'echo > /dev/tcp/{target}'"))
            .await;
        assert_eq!(result.exit_code, 1, "{target}: {}", text(&result.stderr));
    }
    if bench.kind == Kind::Alone {
        let udp = "python3 -c 'import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM)'";
        assert!(text(&sandbox.shell(udp).await.stderr).contains("PermissionError"));
        let unix = "python3 -c 'import socket; socket.socketpair(); socket.socket(socket.AF_UNIX)'";
        assert!(text(&sandbox.shell(unix).await.stderr).contains("PermissionError"));
        let listen = "python3 -c 'import socket; socket.socket().listen()'";
        assert!(text(&sandbox.shell(listen).await.stderr).contains("PermissionError"));
    }
    drop(everywhere);
    sandbox.remove().await.unwrap();
}

async fn nothing_of_the_host_is_seen_or_changed(bench: Bench) {
    let secret = tempfile::tempdir_in(scratch()).unwrap();
    std::fs::write(secret.path().join("secret"), "s").unwrap();
    let sandbox = bench.start().await;
    let secret = secret.path().join("secret").display().to_string();
    for line in [
        format!("cat {secret}").as_str(),
        "cat /etc/shadow",
        "cat /root/.bashrc",
        "touch /usr/x",
        "touch /etc/x",
        "touch /opt/agentmine/bin/agentmine-guest",
        "unshare -U true",
        "unshare -m true",
        "mount -t tmpfs none /tmp",
    ] {
        let result = sandbox.shell(line).await;
        assert_ne!(result.exit_code, 0, "{line}: {}", text(&result.stdout));
    }
    if bench.kind != Kind::Alone {
        assert_eq!(sandbox.output("id -u; id -g").await, "1000\n1000");
        let processes = sandbox.output("ls /proc | grep -c '^[0-9]*$'").await;
        assert!(processes.parse::<u32>().unwrap() < 12, "{processes}");
    }
    if bench.kind == Kind::Alone {
        let own = std::process::id();
        for line in [format!("cat /proc/{own}/environ"), format!("kill -0 {own}")] {
            assert_ne!(sandbox.shell(&line).await.exit_code, 0, "{line}");
        }
    }
    let capabilities = sandbox.output("grep CapEff /proc/self/status").await;
    assert!(
        capabilities.ends_with("\t0000000000000000"),
        "{capabilities}"
    );
    assert!(
        sandbox
            .output("grep NoNewPrivs /proc/self/status")
            .await
            .ends_with('1')
    );
    assert_eq!(sandbox.warnings().is_empty(), bench.kind != Kind::Alone);
    sandbox.remove().await.unwrap();
}

async fn a_sandbox_is_the_first_to_go_when_memory_runs_out(bench: Bench) {
    let sandbox = bench.start().await;
    assert_eq!(sandbox.output("cat /proc/self/oom_score_adj").await, "1000");
    sandbox.remove().await.unwrap();
}

/// Both jails show the machine's certificates; what lies beside them stays unseen.
#[tokio::test]
async fn private_keys_of_the_machine_cannot_be_read() {
    for kind in [Kind::Namespaces, Kind::Alone] {
        let bench = bench(kind).await;
        let sandbox = bench.start().await;
        for folder in ["/etc/ssl/private", "/etc/pki/tls/private"] {
            let listed = sandbox.shell(&format!("ls {folder}")).await;
            assert_ne!(listed.exit_code, 0, "{kind:?}: {}", text(&listed.stdout));
            // Where the machine has some that this test may read, the sandbox must not.
            for key in std::fs::read_dir(folder).into_iter().flatten().flatten() {
                let read = sandbox
                    .shell(&format!("cat '{}'", key.path().display()))
                    .await;
                assert_ne!(read.exit_code, 0, "{kind:?}: {:?}", key.path());
            }
        }
        if std::path::Path::new("/etc/ssl/certs/ca-certificates.crt").exists() {
            sandbox
                .output("head -c 1 /etc/ssl/certs/ca-certificates.crt")
                .await;
        }
        sandbox.remove().await.unwrap();
    }
}

/// Without namespaces the terminals are the machine's, and other processes are the user's own.
#[tokio::test]
async fn without_namespaces_no_terminal_and_no_other_process_is_reached() {
    let bench = bench(Kind::Alone).await;
    let sandbox = bench.start().await;
    for line in ["ls /dev/pts", "exec 3<> /dev/ptmx", "head -c 0 /dev/tty"] {
        let result = sandbox.shell(line).await;
        assert!(
            text(&result.stderr).contains("Permission denied"),
            "{line}: {}",
            text(&result.stderr)
        );
    }
    sandbox
        .output("for d in zero random urandom; do head -c 1 /dev/$d > /dev/null; done")
        .await;
    // As root, which drops its capabilities, too: the scope refuses it, not the owner.
    let own = std::process::id();
    let signalled = sandbox.shell(&format!("kill -0 {own}")).await;
    assert!(
        text(&signalled.stderr).contains("not permitted"),
        "{}",
        text(&signalled.stderr)
    );
    sandbox.remove().await.unwrap();
}

const REPOSITORY: &str = "git init -q -b main . && git config user.name a && git config user.email a@b \
     && echo '*.log' > .gitignore && echo one > kept && echo two > removed && mkdir d && echo x > d/f \
     && GIT_COMMITTER_DATE=@1700000000+0000 GIT_AUTHOR_DATE=@1700000000+0000 sh -c 'git add . && git commit -q -m base' \
     && git update-ref refs/remotes/origin/main HEAD";

async fn a_snapshot_restores_files_and_commits_elsewhere(bench: Bench) {
    let first = bench.start().await;
    first.output(REPOSITORY).await;
    let none = first.snapshot(None, 1 << 20).await.unwrap();
    first
        .output(
            "git checkout -q -b work && echo new > added && git add added && git commit -qm mine",
        )
        .await;
    first
        .output("rm removed && echo changed > kept && echo u > 'un tracked' && echo l > x.log")
        .await;
    first
        .output("printf '\\0\\377' > binary && chmod +x d/f && ln -s kept link")
        .await;
    let status = first
        .output("git status --porcelain; cat .git/index | sha256sum")
        .await;
    let one = first.snapshot(Some(&none.commit), 1 << 20).await.unwrap();
    assert_eq!(
        first
            .output("git status --porcelain; cat .git/index | sha256sum")
            .await,
        status
    );
    let same = first.snapshot(Some(&one.commit), 1 << 20).await.unwrap();
    assert_eq!(
        (same.commit.as_str(), same.bundle),
        (one.commit.as_str(), None)
    );
    first
        .output("echo more >> 'un tracked'; git commit -qam second")
        .await;
    let tiny = first.snapshot(Some(&one.commit), 10).await.unwrap_err();
    assert!(tiny.to_string().contains("cap is 10"), "{tiny}");
    let two = first.snapshot(Some(&one.commit), 1 << 20).await.unwrap();
    let state = "git symbolic-ref HEAD; git rev-parse HEAD; git status --porcelain; \
         find . -path ./.git -prune -o -type f ! -name '*.log' -print0 | sort -z | xargs -0 sha256sum; \
         stat -c %a d/f; readlink link";
    let wanted = first.output(state).await;
    first.remove().await.unwrap();

    let second = bench.start().await;
    second.output(REPOSITORY).await;
    second.output("echo leftover > leftover").await;
    let bundles: Vec<Vec<u8>> = [none.bundle, one.bundle, two.bundle]
        .into_iter()
        .flatten()
        .collect();
    second.restore(bundles.clone(), &two.commit).await.unwrap();
    assert_eq!(second.output(state).await, wanted);
    let again = second.snapshot(Some(&two.commit), 1 << 20).await.unwrap();
    assert_eq!((again.commit, again.bundle), (two.commit.clone(), None));
    let wrong = second.restore(bundles, &"0".repeat(40)).await.unwrap_err();
    assert!(matches!(wrong, SandboxError::Failed(_)), "{wrong}");
    let garbage = second
        .restore(vec![b"garbage".to_vec()], &two.commit)
        .await
        .unwrap_err();
    assert!(matches!(garbage, SandboxError::Failed(_)), "{garbage}");
    second.remove().await.unwrap();
}

async fn removal_leaves_nothing_and_a_second_one_succeeds(bench: Bench) {
    let task = TaskId::new();
    let sandbox = Running(bench.backend.start(&spec(task)).await.unwrap());
    let name = format!("coding-agent-exec-{task}");
    assert_eq!(sandbox.name(), name);
    sandbox
        .output("mkdir -p locked/in && chmod 500 locked/in locked; (setsid sleep 300 &)")
        .await;
    let gone = bench.found(&name).await;
    assert_eq!((gone.task, gone.epoch), (Some(task), Some(Epoch(3))));
    assert!((chrono::Utc::now() - gone.created_at).num_seconds().abs() < 60);
    let volumes = volumes_of(&bench, &name).await;
    sandbox.remove().await.unwrap();
    assert!(
        !bench
            .backend
            .list()
            .await
            .unwrap()
            .iter()
            .any(|found| found.name == name)
    );
    for volume in volumes {
        assert!(
            !docker(&["volume", "inspect", &volume]).0,
            "{volume} is left"
        );
    }
    sandbox.remove().await.unwrap();
    bench.backend.remove(&gone).await.unwrap();
    let foreign = FoundSandbox {
        name: "another".into(),
        ..gone
    };
    assert!(bench.backend.remove(&foreign).await.is_err());
    assert!(matches!(
        sandbox.run(shell("true")).await,
        Err(SandboxError::Gone(_))
    ));
}

async fn volumes_of(bench: &Bench, name: &str) -> Vec<String> {
    if bench.kind != Kind::Docker {
        return Vec::new();
    }
    let (ok, out) = docker(&["inspect", "-f", "{{range .Mounts}}{{.Name}} {{end}}", name]);
    let volumes: Vec<String> = out.split_whitespace().map(str::to_owned).collect();
    assert!(ok && volumes.len() == 2, "{out}");
    volumes
}

fn docker(args: &[&str]) -> (bool, String) {
    let output = std::process::Command::new("docker")
        .args(args)
        .output()
        .unwrap();
    (output.status.success(), text(&output.stdout))
}

/// A sweep that read the list a moment ago, and a worker that lost its lease, both come too late.
async fn a_late_removal_leaves_the_successor_alone(bench: Bench) {
    let task = TaskId::new();
    let first = Running(bench.backend.start(&spec(task)).await.unwrap());
    let listed = bench.found(first.name()).await;
    let second = Running(bench.backend.start(&spec(task)).await.unwrap());
    bench.backend.remove(&listed).await.unwrap();
    first.remove().await.unwrap();
    assert_eq!(second.output("echo here").await, "here");
    second.remove().await.unwrap();
}

async fn an_existing_sandbox_is_replaced(bench: Bench) {
    let task = TaskId::new();
    let first = Running(bench.backend.start(&spec(task)).await.unwrap());
    first.output("touch old").await;
    let second = Running(bench.backend.start(&spec(task)).await.unwrap());
    assert_eq!(second.output("ls").await, "");
    first.gone().await;
    let found = bench.backend.list().await.unwrap();
    assert_eq!(
        found
            .iter()
            .filter(|found| found.name == second.name())
            .count(),
        1
    );
    let mut verify = spec(task);
    verify.role = "verify".into();
    let third = Running(bench.backend.start(&verify).await.unwrap());
    assert_eq!(third.name(), format!("coding-agent-exec-{task}-verify"));
    second.output("true").await;
    second.remove().await.unwrap();
    third.output("true").await;
    third.remove().await.unwrap();
}

async fn a_paused_sandbox_stands_still(bench: Bench) {
    let sandbox = bench.start().await;
    sandbox.output("true").await;
    sandbox.pause().await.unwrap();
    let call = sandbox.run(shell("true"));
    tokio::pin!(call);
    let waited = tokio::time::timeout(Duration::from_millis(300), &mut call).await;
    assert!(waited.is_err(), "it runs");
    sandbox.unpause().await.unwrap();
    assert_eq!(call.await.unwrap().exit_code, 0);
    sandbox.pause().await.unwrap();
    sandbox.remove().await.unwrap();
}

async fn a_sandbox_that_ends_is_seen(bench: Bench) {
    let sandbox = bench.start().await;
    // From outside: a sandbox that is removed behind its owner's back.
    let found = bench.found(sandbox.name()).await;
    bench.backend.remove(&found).await.unwrap();
    tokio::time::timeout(Duration::from_secs(10), sandbox.gone())
        .await
        .unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(10), sandbox.next_outbound()).await;
    assert!(ended.unwrap().is_none());
    assert!(matches!(
        sandbox.run(shell("true")).await,
        Err(SandboxError::Gone(_))
    ));
    sandbox.remove().await.unwrap();
}

async fn orphans_are_collected(bench: Bench) {
    let sandbox = bench.start().await;
    sandbox
        .output("for i in 1 2 3 4 5; do (setsid sleep 0.1 &) ; done")
        .await;
    sandbox
        .until("! ps -eo stat=,comm= 2>/dev/null | grep -q '^Z.*sleep'")
        .await;
    let zombies = "cat /proc/[0-9]*/stat 2>/dev/null | grep -c '(sleep) Z' || true";
    sandbox.until(&format!("[ \"$({zombies})\" = 0 ]")).await;
    sandbox.remove().await.unwrap();
}

#[tokio::test]
async fn our_text_editor_starts_in_every_backend() {
    for kind in [Kind::Docker, Kind::Namespaces, Kind::Alone] {
        let bench = bench(kind).await;
        let sandbox = bench.start().await;
        let argv = vec!["mcp-server-text-editor".to_owned()];
        let mut program = sandbox.start_stdio(argv, BTreeMap::new()).await.unwrap();
        let hello = concat!(
            r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","#,
            r#""capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#,
            "\n"
        );
        program.stream.write_all(hello.as_bytes()).await.unwrap();
        program.stream.flush().await.unwrap();
        let mut answer = vec![0; 4096];
        let n = program.stream.read(&mut answer).await.unwrap();
        assert!(
            text(&answer[..n]).contains("serverInfo"),
            "{kind:?}: {}",
            text(&answer[..n])
        );
        drop(program);
        sandbox.remove().await.unwrap();
    }
}

#[tokio::test]
async fn a_command_that_fills_the_disk_is_killed_and_told() {
    let state = tempfile::tempdir_in(scratch()).unwrap();
    let mut config = CommandExecutor::default();
    config.docker.resources.disk_limit = "20m".into();
    let backend = LocalBackend::new(&config, state.path()).unwrap();
    let sandbox = Running(backend.start(&spec(TaskId::new())).await.unwrap());
    let result = sandbox
        .shell("head -c 60M /dev/zero > big; sleep 20; echo not reached")
        .await;
    assert_eq!(text(&result.stdout), "");
    assert!(
        text(&result.stderr).contains("the limit is 20971520"),
        "{}",
        text(&result.stderr)
    );
    // What frees space may run.
    sandbox.output("sleep 1; rm big; sleep 1").await;
    sandbox.output("sleep 1; echo fine").await;
    sandbox.remove().await.unwrap();
}

#[tokio::test]
async fn a_container_has_the_whole_profile() {
    let backend = DockerBackend::connect(&docker_config()).await;
    let backend = backend.unwrap_or_else(|err| panic!("{err}\nrun tests/run"));
    let task = TaskId::new();
    let sandbox = Running(backend.start(&spec(task)).await.unwrap());
    let (ok, json) = docker(&["inspect", sandbox.name()]);
    assert!(ok);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let (host, config) = (&json[0]["HostConfig"], &json[0]["Config"]);
    assert_eq!(host["NetworkMode"], "none");
    assert_eq!(host["CapDrop"], serde_json::json!(["ALL"]));
    assert_eq!(
        host["SecurityOpt"],
        serde_json::json!(["no-new-privileges:true"])
    );
    assert_eq!(host["PidsLimit"], 1024);
    assert_eq!(host["Memory"], 4_i64 << 30);
    assert_eq!(host["MemorySwap"], 4_i64 << 30);
    assert!(host["NanoCpus"].as_i64().unwrap() > 0);
    assert_eq!(host["Init"], true);
    assert_eq!(host["Privileged"], false);
    assert_eq!(
        host["Ulimits"],
        serde_json::json!([{"Name": "core", "Hard": 0, "Soft": 0}])
    );
    assert_eq!(host["LogConfig"]["Config"]["max-size"], "1m");
    assert!(host["Binds"].is_null());
    assert!(!host["MaskedPaths"].as_array().unwrap().is_empty());
    assert_eq!(config["User"], "1000:1000");
    assert_eq!(config["Labels"]["agentmine.task"], task.to_string());
    assert_eq!(config["Labels"]["agentmine.epoch"], "3");
    assert_eq!(config["Labels"]["agentmine.role"], "main");
    for mount in json[0]["Mounts"].as_array().unwrap() {
        assert_eq!(mount["Type"], "volume");
    }
    sandbox.remove().await.unwrap();
}

#[tokio::test]
async fn an_image_that_allows_it_gets_a_read_only_root() {
    let mut config = docker_config();
    let tag = format!("agentmine-test-readonly:{}", TaskId::new().short());
    let (ok, base) = docker(&["create", &config.docker.base_image]);
    assert!(ok, "run tests/run");
    let label = "LABEL agentmine.readonly-root=true";
    assert!(docker(&["commit", "--change", label, base.trim(), &tag]).0);
    docker(&["rm", base.trim()]);
    config.docker.base_image = tag.clone();
    let backend = DockerBackend::connect(&config).await.unwrap();
    let sandbox = Running(backend.start(&spec(TaskId::new())).await.unwrap());
    sandbox
        .output("touch /tmp/x /run/x file ../tmp/home/x")
        .await;
    let elsewhere = sandbox.shell("touch /var/tmp/x").await;
    assert!(
        text(&elsewhere.stderr).contains("Read-only"),
        "{}",
        text(&elsewhere.stderr)
    );
    sandbox.remove().await.unwrap();
    docker(&["rmi", &tag]);
}

/// An engine behind TCP shares no file system with the worker as far as the worker knows.
#[tokio::test]
async fn an_engine_behind_tcp_works() {
    let mut config = docker_config();
    let socket = config
        .docker
        .host
        .clone()
        .unwrap_or_else(|| "unix:///var/run/docker.sock".into());
    if let Some(socket) = socket.strip_prefix("unix://") {
        let socket = socket.to_owned();
        let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .unwrap();
        config.docker.host = Some(format!("tcp://{}", listener.local_addr().unwrap()));
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let mut engine = tokio::net::UnixStream::connect(&socket).await.unwrap();
                tokio::spawn(async move {
                    let _ = tokio::io::copy_bidirectional(&mut client, &mut engine).await;
                });
            }
        });
    }
    let backend = DockerBackend::connect(&config).await;
    let backend = backend.unwrap_or_else(|err| panic!("{err}\nrun tests/run"));
    let sandbox = Running(backend.start(&spec(TaskId::new())).await.unwrap());
    assert_eq!(sandbox.output("echo far").await, "far");
    sandbox.remove().await.unwrap();
}

#[tokio::test]
async fn what_an_engine_lacks_is_told_with_what_to_do() {
    let mut config = docker_config();
    config.docker.base_image = "127.0.0.1:1/agentmine-none:latest".into();
    let backend = DockerBackend::connect(&config).await.unwrap();
    let err = backend
        .start(&spec(TaskId::new()))
        .await
        .err()
        .unwrap()
        .to_string();
    assert!(
        err.contains("agentmine-none") && err.contains("docker/executor-default"),
        "{err}"
    );
    config.docker.runtime = Some("kata".into());
    let err = DockerBackend::connect(&config).await.unwrap_err();
    assert!(
        matches!(&err, SandboxError::Refused(why) if why.contains("kata")),
        "{err}"
    );
    config.docker.host = Some("unix:///nowhere/docker.sock".into());
    let err = DockerBackend::connect(&config).await.unwrap_err();
    assert!(
        matches!(&err, SandboxError::Unavailable(why) if why.contains("hint:")),
        "{err}"
    );
}

/// A guest that a command killed takes everything with it, even where no namespace does.
#[tokio::test]
async fn nothing_survives_the_guest_without_namespaces() {
    let bench = bench(Kind::Alone).await;
    let sandbox = bench.start().await;
    let pid = sandbox
        .output("(setsid sleep 300 < /dev/null > /dev/null 2>&1 & echo $!)")
        .await;
    let pid: u32 = pid.parse().unwrap();
    let alive = || std::path::Path::new(&format!("/proc/{pid}/cmdline")).exists();
    assert!(alive());
    let killed = sandbox.run(shell("kill -9 $PPID; sleep 10")).await;
    assert!(matches!(killed, Err(SandboxError::Gone(_))), "{killed:?}");
    sandbox.gone().await;
    let deadline = Instant::now() + Duration::from_secs(10);
    while alive() && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(!alive());
    sandbox.remove().await.unwrap();
}

//! Stdio programs.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;

contract![
    a_stdio_program_echoes_and_its_stderr_is_kept,
    the_end_of_a_stdio_program_is_reported_at_once,
    a_stopped_stdio_program_leaves_nothing,
    a_stdio_program_that_reads_nothing_is_stopped_too,
];

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

async fn the_end_of_a_stdio_program_is_reported_at_once(bench: Bench) {
    let sandbox = bench.start().await;
    // What it leaves behind holds its stdout open, and is killed.
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
    // It is still known, and an unknown one is an error.
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
    // It ignores SIGTERM, has one child in its process group and one that left the group.
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

//! Running commands.

use super::*;

contract![
    a_command_returns_its_exit_code_and_both_outputs,
    a_long_output_keeps_head_and_tail_and_marks_the_cut,
    the_time_limit_kills_the_whole_group,
    a_background_child_does_not_block_the_call,
    a_dropped_call_kills_its_group,
    what_cannot_be_started_fails_as_in_a_shell,
    commands_run_in_the_folder_they_name,
    the_environment_is_clean,
    stdin_is_fed_and_closed,
];

async fn a_command_returns_its_exit_code_and_both_outputs(bench: Bench) {
    let sandbox = bench.start().await;
    let result = sandbox.shell("echo out; echo err >&2; exit 7").await;
    assert_eq!(
        (result.exit_code, result.timed_out, result.stdout.is_cut()),
        (7, false, false)
    );
    assert_eq!(
        (text(&result.stdout), text(&result.stderr)),
        ("out\n".into(), "err\n".into())
    );
    assert_eq!(sandbox.shell("kill -TERM $$").await.exit_code, 128 + 15);
    sandbox.remove().await.unwrap();
}

async fn a_long_output_keeps_head_and_tail_and_marks_the_cut(bench: Bench) {
    let sandbox = bench.start().await;
    let mut command = shell("seq 1 1000000; seq 1 100000 >&2");
    command.max_output = 1000;
    let result = sandbox.run(command).await.unwrap();
    for (output, last) in [(result.stdout, 1_000_000), (result.stderr, 100_000)] {
        assert!(output.is_cut());
        let all: usize = (1..=last).map(|n: u32| n.to_string().len() + 1).sum();
        let output = output.excerpt().fit(1000).into_text("");
        let (head, rest) = output.split_once("[... ").unwrap();
        let (note, tail) = rest.split_once(" left out ...]\n").unwrap();
        assert!(head.starts_with("1\n2\n3\n"), "{output}");
        assert!(tail.ends_with(&format!("{last}\n")), "{output}");
        let (bytes, lines) = note.split_once(" bytes, ").unwrap();
        let kept = head.len() + tail.len();
        assert!(kept <= 1000);
        assert_eq!(bytes.parse(), Ok(all - kept));
        let missing = last as usize - head.lines().count() - tail.lines().count();
        assert!(
            lines.starts_with(&missing.to_string()),
            "{lines}, {missing}"
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

async fn a_background_child_does_not_block_the_call(bench: Bench) {
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
    // It keeps running, and a write to the closed pipe does not kill it.
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

async fn what_cannot_be_started_fails_as_in_a_shell(bench: Bench) {
    let sandbox = bench.start().await;
    let mut command = shell("");
    command.argv = vec!["no-such-program".into()];
    let result = sandbox.run(command.clone()).await.unwrap();
    assert_eq!(result.exit_code, 127);
    assert!(text(&result.stderr).contains("no-such-program"));
    sandbox.output("echo x > plain; chmod 644 plain").await;
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
    let mut command = shell("env; umask; ulimit -c");
    command.env.insert("ADDED".into(), "yes".into());
    let output = text(&sandbox.run(command).await.unwrap().stdout);
    // This test's own environment is full of these.
    assert!(
        !output.contains("CARGO_MANIFEST_DIR") && !output.contains("NEXTEST"),
        "{output}"
    );
    let root = sandbox.workspace_root();
    let web = sandbox.ports().web;
    for line in [
        format!("HOME={root}/tmp/home"),
        format!("TMPDIR={root}/tmp"),
        format!("HTTPS_PROXY=http://127.0.0.1:{web}"),
        "NO_PROXY=127.0.0.1,localhost,0.0.0.0,sandbox".into(),
        "LANG=C.UTF-8".into(),
        "TERM=dumb".into(),
        "GIT_TERMINAL_PROMPT=0".into(),
        "ADDED=yes".into(),
        "0022".into(),
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

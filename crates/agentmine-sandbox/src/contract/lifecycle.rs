//! From start to removal.

use super::*;

contract![
    removal_leaves_nothing_and_a_second_one_succeeds,
    a_late_removal_leaves_the_successor_alone,
    a_late_start_leaves_the_successor_alone,
    an_existing_sandbox_is_replaced,
    a_paused_sandbox_does_nothing,
    the_end_of_a_sandbox_is_noticed,
    orphans_are_collected,
];

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
            !docker_cli(&["volume", "inspect", &volume]).0,
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

/// A worker that was stalled since its claim starts its sandbox when a later lease has one already.
async fn a_late_start_leaves_the_successor_alone(bench: Bench) {
    let task = TaskId::new();
    let of_epoch = |epoch| SandboxSpec {
        epoch: Epoch(epoch),
        ..spec(task)
    };
    let second = Running(bench.backend.start(&of_epoch(4)).await.unwrap());
    let late = bench.backend.start(&of_epoch(3)).await;
    let why = late
        .err()
        .map(|error| error.to_string())
        .unwrap_or_default();
    assert!(why.contains("a later lease"), "{why}");
    assert_eq!(second.output("echo here").await, "here");
    let third = Running(bench.backend.start(&of_epoch(5)).await.unwrap());
    second.gone().await;
    assert_eq!(third.output("echo here").await, "here");
    third.remove().await.unwrap();
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
    verify.role = SandboxRole::Verify;
    let third = Running(bench.backend.start(&verify).await.unwrap());
    assert_eq!(third.name(), format!("coding-agent-exec-{task}-verify"));
    second.output("true").await;
    second.remove().await.unwrap();
    third.output("true").await;
    third.remove().await.unwrap();
}

async fn a_paused_sandbox_does_nothing(bench: Bench) {
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

async fn the_end_of_a_sandbox_is_noticed(bench: Bench) {
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

async fn volumes_of(bench: &Bench, name: &str) -> Vec<String> {
    if bench.kind != Kind::Docker {
        return Vec::new();
    }
    let (ok, out) = docker_cli(&["inspect", "-f", "{{range .Mounts}}{{.Name}} {{end}}", name]);
    let of_programs = |name: &str| name.starts_with("agentmine-programs-");
    let (programs, own): (Vec<_>, Vec<_>) = out
        .split_whitespace()
        .map(str::to_owned)
        .partition(|name| of_programs(name));
    assert!(ok && (programs.len(), own.len()) == (1, 1), "{out}");
    own
}

//! Sandboxes that are started ahead, and the tasks that take them.

use super::*;

contract![
    a_task_takes_a_spare_one_under_its_own_name,
    a_task_that_takes_a_spare_one_replaces_its_own_earlier_one,
    a_late_task_takes_no_spare_one,
    a_spare_one_is_held_until_its_worker_is_gone,
];

impl Bench {
    /// The spare ones of this test; on an engine that others use too, all that were not there before.
    async fn spares(&self, before: &[FoundSandbox]) -> Vec<FoundSandbox> {
        let all = self.backend.list().await.unwrap();
        let is_new = |found: &FoundSandbox| {
            found.is_spare && before.iter().all(|it| it.instance != found.instance)
        };
        all.into_iter().filter(is_new).collect()
    }

    async fn assigned(&self, spec: &SandboxSpec) -> Running {
        let mut spare = self.backend.start_spare(None).await.unwrap();
        spare.assign(spec).await.unwrap();
        Running(spare.into_sandbox())
    }
}

async fn a_task_takes_a_spare_one_under_its_own_name(bench: Bench) {
    let task = TaskId::new();
    for role in [SandboxRole::Main, SandboxRole::Verify] {
        let spec = SandboxSpec { role, ..spec(task) };
        let sandbox = bench.assigned(&spec).await;
        assert_eq!(sandbox.name(), crate::name::sandbox_name(&spec));
        let found = bench.found(sandbox.name()).await;
        assert_eq!((found.task, found.epoch), (Some(task), Some(Epoch(3))));
        assert!(!found.is_spare);
        assert_eq!(sandbox.output("ls -A").await, "");
        sandbox.write("file", "content").await;
        assert_eq!(sandbox.output("cat file").await, "content");
        sandbox.remove().await.unwrap();
        let left = bench.backend.list().await.unwrap();
        assert!(left.iter().all(|it| it.instance != found.instance));
        bench.backend.remove(&found).await.unwrap();
    }
}

async fn a_task_that_takes_a_spare_one_replaces_its_own_earlier_one(bench: Bench) {
    let task = TaskId::new();
    let of_epoch = |epoch| SandboxSpec {
        epoch: Epoch(epoch),
        ..spec(task)
    };
    let first = Running(bench.backend.start(&of_epoch(3)).await.unwrap());
    let second = bench.assigned(&of_epoch(4)).await;
    first.gone().await;
    let third = bench.assigned(&of_epoch(5)).await;
    second.gone().await;
    // Removals that come too late.
    first.remove().await.unwrap();
    second.remove().await.unwrap();
    let fourth = Running(bench.backend.start(&of_epoch(6)).await.unwrap());
    third.gone().await;
    third.remove().await.unwrap();
    assert_eq!(fourth.output("echo here").await, "here");
    fourth.remove().await.unwrap();
}

async fn a_late_task_takes_no_spare_one(bench: Bench) {
    let task = TaskId::new();
    let of_epoch = |epoch| SandboxSpec {
        epoch: Epoch(epoch),
        ..spec(task)
    };
    let late = |error: Option<SandboxError>| {
        let why = error.map(|error| error.to_string()).unwrap_or_default();
        assert!(why.contains("a later lease"), "{why}");
    };
    let second = bench.assigned(&of_epoch(4)).await;
    late(bench.backend.start(&of_epoch(3)).await.err());
    let mut spare = bench.backend.start_spare(None).await.unwrap();
    late(spare.assign(&of_epoch(3)).await.err());
    spare.remove().await.unwrap();
    assert_eq!(second.output("echo here").await, "here");
    second.remove().await.unwrap();
}

async fn a_spare_one_is_held_until_its_worker_is_gone(bench: Bench) {
    let before = bench.backend.list().await.unwrap();
    let spare = bench.backend.start_spare(None).await.unwrap();
    let found = bench.spares(&before).await;
    let is_ours = |it: &&FoundSandbox| bench.kind != Kind::Docker || it.task.is_none();
    assert!(found.iter().filter(is_ours).count() >= 1);
    assert!(found.iter().any(|it| it.worker == WorkerState::Alive));
    assert!(found.iter().all(|it| (it.task, it.epoch) == (None, None)));
    assert!(!spare.has_ended());
    // As with a worker that was killed: its connections and locks end.
    drop(spare);
    let begun = Instant::now();
    let abandoned = loop {
        let found = bench.spares(&before).await;
        let abandoned = |it: &FoundSandbox| it.worker == WorkerState::Gone;
        if let Some(found) = found.into_iter().find(abandoned) {
            break found;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "it is held");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    bench.backend.remove(&abandoned).await.unwrap();
}

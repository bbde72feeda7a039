//! Sandboxes that consumers start ahead (`consumer.warm_sandboxes`).

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use tokio::process::Command;

use crate::endpoint::{free_address, get};
use crate::gate::{Gate, Service};
use crate::rig::{PATIENCE, Process, Rig, assert_done, containers, solves_demo};

/// How many sandboxes each consumer keeps.
const SIZE: usize = 2;

#[derive(Clone, Copy, PartialEq, Eq)]
enum On {
    Docker,
    Jail,
}

/// A consumer with a pool.
struct Warm {
    process: Process,
    metrics: String,
}

impl Rig {
    async fn with_pools(on: On) -> Self {
        let mut rig = match on {
            On::Docker => Self::new(solves_demo()).await,
            On::Jail => Self::local(solves_demo()).await.on_disk(),
        };
        rig.config["consumer"]["warm_sandboxes"] = SIZE.into();
        rig.config["consumer"]["concurrency"] = 1.into();
        // Each has a file system of that size.
        rig.config["command_executor"]["docker"]["resources"]["disk_limit"] = "200m".into();
        rig
    }

    fn state(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    async fn warm_consumer(&mut self, engine: Option<&Gate>) -> Warm {
        let metrics = free_address();
        self.config["http"]["listen"] = metrics.clone().into();
        let mut command = self.program("consumer");
        command.env("XDG_STATE_HOME", self.state());
        if let Some(engine) = engine {
            command.env("DOCKER_HOST", format!("tcp://{}", engine.address()));
        }
        let process = Process::spawn(&mut command);
        // The producer must not use the same one.
        self.config["http"] = serde_json::json!({});
        process.wait_for("consumer ready").await;
        let warm = Warm { process, metrics };
        warm.until("agentmine_warm_sandboxes", SIZE).await;
        warm
    }

    /// What distinguishes the sandboxes of no task that these consumers started.
    async fn spares(&self, on: On, of: &[u32]) -> BTreeSet<String> {
        match on {
            On::Docker => {
                let mut found = BTreeSet::new();
                for pid in of {
                    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
                    let label = format!("label=agentmine.worker={}/{pid}", host.trim());
                    let mut docker = Command::new("docker");
                    docker.args(["ps", "-a", "--filter", &label]);
                    docker.args(["--format", "{{.Names}} {{.ID}}"]);
                    let out = docker.output().await.unwrap();
                    assert!(out.status.success(), "{out:?}");
                    let lines = String::from_utf8_lossy(&out.stdout).into_owned();
                    let spares = lines.lines().filter(|it| it.contains("-exec-spare-"));
                    found.extend(spares.map(str::to_owned));
                }
                found
            }
            On::Jail => {
                let folder = self.state().join("agentmine/sandboxes");
                let entries = std::fs::read_dir(folder).unwrap().flatten();
                let names = entries.map(|it| it.file_name().into_string().unwrap());
                names.filter(|it| it.contains("-exec-spare-")).collect()
            }
        }
    }
}

impl Warm {
    async fn metric(&self, series: &str) -> usize {
        let (_, metrics) = get(&self.metrics, "/metrics").await;
        let line = metrics
            .lines()
            .find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        let value: f64 = line
            .unwrap_or_else(|| panic!("no {series}"))
            .parse()
            .unwrap();
        value as usize
    }

    async fn until(&self, series: &str, expected: usize) {
        let begun = Instant::now();
        while self.metric(series).await != expected {
            let late = begun.elapsed() > PATIENCE;
            assert!(!late, "{series} is not {expected}:\n{}", self.process.log());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn taken(&self, from: &str) -> usize {
        let series = format!("agentmine_sandboxes_taken_total{{from=\"{from}\"}}");
        self.metric(&series).await
    }

    async fn drain(self) -> String {
        self.process.terminate();
        let (status, log) = self.process.end().await;
        assert!(status.success(), "{status}\n{log}");
        log
    }
}

async fn tasks_take_sandboxes_that_were_started_ahead(on: On) {
    let mut rig = Rig::with_pools(on).await;
    let consumer = rig.warm_consumer(None).await;
    let pid = consumer.process.pid();
    let first = rig.spares(on, &[pid]).await;
    assert_eq!(first.len(), SIZE);
    rig.model.hold_at(2);
    rig.produce_issue().await;
    rig.model.wait_for_held(1).await;
    let task = rig.task().await;
    if on == On::Docker {
        // It is found by its task, and its epoch is in its name.
        let working = containers(std::slice::from_ref(&task)).await;
        assert_eq!(working, [format!("coding-agent-exec-{}.1", task.id)]);
    }
    // The sweep of every second leaves the task's sandbox and the pool alone.
    consumer.until("agentmine_warm_sandboxes", SIZE).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    rig.model.release();
    for task in rig.wait_ended(1).await {
        assert_done(&task);
    }
    // The agent's, and the one in which its result was checked.
    assert_eq!(
        (consumer.taken("pool").await, consumer.taken("new").await),
        (2, 0)
    );
    consumer.until("agentmine_warm_sandboxes", SIZE).await;
    let log = consumer.drain().await;
    // Spare ones of others, whose consumers were killed, may go.
    let removed = log
        .lines()
        .filter(|it| it.contains("removed a stale sandbox"));
    let own: Vec<&str> = first
        .iter()
        .filter_map(|own| own.split(' ').next())
        .collect();
    let is_ours = |line: &&str| own.iter().any(|own| line.contains(own));
    let ours: Vec<&str> = removed.filter(is_ours).collect();
    assert_eq!(ours, Vec::<&str>::new(), "{log}");
    assert_eq!(rig.spares(on, &[pid]).await, BTreeSet::new());
    assert_eq!(containers(&[task]).await, Vec::<String>::new());
}

#[tokio::test]
async fn in_docker_tasks_take_sandboxes_that_were_started_ahead() {
    tasks_take_sandboxes_that_were_started_ahead(On::Docker).await;
}

#[tokio::test]
async fn in_the_jail_tasks_take_sandboxes_that_were_started_ahead() {
    tasks_take_sandboxes_that_were_started_ahead(On::Jail).await;
}

async fn a_killed_workers_pool_is_removed_and_a_living_ones_stays(on: On) {
    let mut rig = Rig::with_pools(on).await;
    let killed = rig.warm_consumer(None).await;
    let of_killed = killed.process.pid();
    let doomed = rig.spares(on, &[of_killed]).await;
    let living = rig.warm_consumer(None).await;
    let of_living = living.process.pid();
    let both = rig.spares(on, &[of_killed, of_living]).await;
    assert_eq!((doomed.len(), both.len()), (SIZE, 2 * SIZE));
    killed.process.kill_nine();
    let begun = Instant::now();
    let kept: BTreeSet<String> = both.difference(&doomed).cloned().collect();
    while rig.spares(on, &[of_killed, of_living]).await != kept {
        let late = begun.elapsed() > PATIENCE;
        assert!(!late, "they are left:\n{}", living.process.log());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    rig.produce_issue().await;
    for task in rig.wait_ended(1).await {
        assert_done(&task);
    }
    assert_eq!(living.taken("new").await, 0);
    living.drain().await;
    let left = rig.spares(on, &[of_killed, of_living]).await;
    assert_eq!(left, BTreeSet::new());
}

#[tokio::test]
async fn in_docker_a_killed_workers_pool_is_removed_and_a_living_ones_stays() {
    a_killed_workers_pool_is_removed_and_a_living_ones_stays(On::Docker).await;
}

#[tokio::test]
async fn in_the_jail_a_killed_workers_pool_is_removed_and_a_living_ones_stays() {
    a_killed_workers_pool_is_removed_and_a_living_ones_stays(On::Jail).await;
}

/// The engine ends the containers with the connection, and another connection finds what is left of them.
#[tokio::test]
async fn the_pool_is_filled_again_when_the_engine_is_back() {
    let engine = Gate::before(Service::Unix("/var/run/docker.sock".into())).await;
    let mut rig = Rig::with_pools(On::Docker).await;
    let consumer = rig.warm_consumer(Some(&engine)).await;
    let pid = consumer.process.pid();
    let lost = rig.spares(On::Docker, &[pid]).await;
    engine.take_away();
    consumer.until("agentmine_warm_sandboxes", 0).await;
    consumer
        .process
        .logged("no sandbox can be started ahead")
        .await;
    engine.give_back();
    consumer.until("agentmine_warm_sandboxes", SIZE).await;
    rig.produce_issue().await;
    for task in rig.wait_ended(1).await {
        assert_done(&task);
    }
    assert_eq!(
        (consumer.taken("pool").await, consumer.taken("new").await),
        (2, 0)
    );
    let begun = Instant::now();
    while !rig.spares(On::Docker, &[pid]).await.is_disjoint(&lost) {
        let late = begun.elapsed() > PATIENCE;
        assert!(!late, "they are left:\n{}", consumer.process.log());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    consumer.drain().await;
    assert_eq!(rig.spares(On::Docker, &[pid]).await, BTreeSet::new());
}

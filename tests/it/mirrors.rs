//! Clones from a mirror, in a fleet of several consumers on one machine.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::endpoint::{free_address, get};
use crate::rig::{PATIENCE, Process, Rig, assert_done, solves_demo};

impl Rig {
    /// Starts a consumer with an address for its metrics.
    pub(crate) async fn measured_consumer(&mut self) -> (Process, String) {
        let address = free_address();
        self.config["http"]["listen"] = address.clone().into();
        let consumer = self.spawn("consumer", &[]);
        // The producer must not use the same one.
        self.config["http"] = serde_json::json!({});
        consumer.wait_for("consumer ready").await;
        (consumer, address)
    }

    fn mirrors(&self) -> Vec<PathBuf> {
        let folder = self.folder.path().join("state/mirrors");
        let entries = std::fs::read_dir(folder).into_iter().flatten();
        let paths = entries.map(|entry| entry.unwrap().path());
        paths.filter(|path| path.join("whole").exists()).collect()
    }
}

/// How many clones were answered by `from`.
async fn clones(address: &str, from: &str) -> u64 {
    let (_, metrics) = get(address, "/metrics").await;
    let series = format!("agentmine_gateway_clones_total{{from=\"{from}\"}} ");
    let values = metrics
        .lines()
        .filter_map(|line| line.strip_prefix(&series));
    values
        .filter_map(|value| value.trim().parse::<u64>().ok())
        .sum()
}

async fn later_tasks_are_cloned_from_the_mirror(mut rig: Rig) {
    rig.config["consumer"]["concurrency"] = 1.into();
    rig.config["consumer"]["mirrors"]["templates"] = false.into();
    let (first, of_first) = rig.measured_consumer().await;
    rig.produce_issue().await;
    rig.wait_ended(1).await;
    assert!(
        clones(&of_first, "host").await > 0,
        "there was no mirror yet"
    );
    let begun = Instant::now();
    while rig.mirrors().is_empty() {
        assert!(begun.elapsed() < PATIENCE, "no mirror was filled");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let (second, of_second) = rig.measured_consumer().await;
    let before = clones(&of_first, "mirror").await;
    for _ in 0..3 {
        rig.label_issue();
    }
    rig.produce().await;
    for task in rig.wait_ended(4).await {
        assert_done(&task);
    }
    // For each task the agent's clone and the one that its result is checked on.
    let mirrored = clones(&of_first, "mirror").await + clones(&of_second, "mirror").await;
    assert_eq!(mirrored - before, 6);
    for address in [&of_first, &of_second] {
        assert_eq!(clones(address, "failed").await, 0);
    }
    assert_eq!(rig.mirrors().len(), 1, "both consumers share it");
    for consumer in [first, second] {
        consumer.terminate();
        assert!(consumer.end().await.0.success());
    }
}

#[tokio::test]
async fn in_docker_later_tasks_are_cloned_from_the_mirror() {
    later_tasks_are_cloned_from_the_mirror(Rig::new(solves_demo()).await).await;
}

/// On GitLab alone: the mirror of the other test is of a repository on GitHub.
#[tokio::test]
async fn in_the_jail_later_tasks_are_cloned_from_the_mirror() {
    later_tasks_are_cloned_from_the_mirror(Rig::local_gitlab(solves_demo()).await).await;
}

#[tokio::test]
async fn without_mirrors_nothing_is_kept() {
    let mut rig = Rig::local(solves_demo()).await;
    rig.config["consumer"]["mirrors"]["enabled"] = false.into();
    rig.produce_issue().await;
    rig.consume().await;
    assert_done(&rig.task().await);
    assert!(!rig.folder.path().join("state").exists());
}

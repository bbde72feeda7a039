//! CPU time and memory of an agent's processes, those in its containers included.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use agentmine_process::descendants;
use bollard::Docker;
use bollard::query_parameters::{ListContainersOptionsBuilder, TopOptionsBuilder};

use crate::step::{container_time, time_of};

/// The processes of one agent.
pub(crate) struct Tree {
    pid: i32,
    /// The containers that were there before it; `None` if it starts none.
    before: Option<BTreeSet<String>>,
}

impl Tree {
    pub(crate) fn new(pid: i32, before: Option<BTreeSet<String>>) -> Self {
        Self { pid, before }
    }

    /// CPU time so far, with that of every process that was waited for.
    pub(crate) async fn cpu(&self) -> anyhow::Result<Duration> {
        let mut sum: Duration = self.pids().map(|pid| time_of(pid, true)).sum();
        for container in self.containers().await? {
            sum += container_time(&container).await?;
        }
        Ok(sum)
    }

    /// Proportional set size, in KiB: pages that several processes share are counted once, in parts.
    pub(crate) async fn memory(&self) -> anyhow::Result<u64> {
        let mut sum = self.pids().map(memory_of).sum();
        for container in self.containers().await? {
            // It may have ended since.
            sum += memory_of_container(&container).await.unwrap_or(0);
        }
        Ok(sum)
    }

    fn pids(&self) -> impl Iterator<Item = i32> {
        let below = descendants(self.pid).into_iter();
        std::iter::once(self.pid).chain(below.map(|process| process.pid()))
    }

    async fn containers(&self) -> anyhow::Result<Vec<String>> {
        let Some(before) = &self.before else {
            return Ok(Vec::new());
        };
        let now = containers().await?;
        Ok(now.difference(before).cloned().collect())
    }
}

/// The ids of the running containers of tasks.
pub(crate) async fn containers() -> anyhow::Result<BTreeSet<String>> {
    let filters = HashMap::from([("label", vec!["agentmine.task"])]);
    let options = ListContainersOptionsBuilder::new()
        .filters(&filters)
        .build();
    let engine = Docker::connect_with_defaults()?;
    let found = engine.list_containers(Some(options)).await?;
    Ok(found.into_iter().filter_map(|one| one.id).collect())
}

/// Of an engine on this machine, whose processes are visible here.
async fn memory_of_container(id: &str) -> anyhow::Result<u64> {
    let options = TopOptionsBuilder::new().ps_args("-eo pid").build();
    let top = Docker::connect_with_defaults()?
        .top_processes(id, Some(options))
        .await?;
    let rows = top.processes.unwrap_or_default().into_iter().flatten();
    Ok(rows.filter_map(|pid| pid.parse().ok()).map(memory_of).sum())
}

/// 0 if the process has ended.
fn memory_of(pid: i32) -> u64 {
    let all = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let line = all.lines().find_map(|line| line.strip_prefix("Pss:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

//! CPU time and memory of processes, of all that they started, and of containers.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use agentmine_process::descendants;
use anyhow::Context as _;
use bollard::Docker;
use bollard::query_parameters::{
    ListContainersOptionsBuilder, StatsOptionsBuilder, TopOptionsBuilder,
};
use futures::StreamExt as _;

/// A process, all that it started, and the containers of sandboxes that appeared since.
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
        let mut sum: u64 = self.pids().map(memory_of).sum();
        for container in self.containers().await? {
            // It may have ended since.
            let pids = pids_of(&container).await.unwrap_or_default();
            sum += pids.into_iter().map(memory_of).sum::<u64>();
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

/// The ids of the running containers that are sandboxes.
pub(crate) async fn containers() -> anyhow::Result<BTreeSet<String>> {
    let filters = HashMap::from([("label", vec!["agentmine.role"])]);
    let options = ListContainersOptionsBuilder::new()
        .filters(&filters)
        .build();
    let engine = Docker::connect_with_defaults()?;
    let found = engine.list_containers(Some(options)).await?;
    Ok(found.into_iter().filter_map(|one| one.id).collect())
}

/// The id of the running container of a sandbox. One that was started before its task has the task's epoch after its name.
pub(crate) async fn container_of(sandbox: &str) -> anyhow::Result<String> {
    let filters = HashMap::from([("name", vec![sandbox])]);
    let options = ListContainersOptionsBuilder::new()
        .filters(&filters)
        .build();
    let engine = Docker::connect_with_defaults()?;
    let found = engine.list_containers(Some(options)).await?;
    let is_it = |name: &String| {
        let rest = name.trim_start_matches('/').strip_prefix(sandbox);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    let mut found = found.into_iter();
    let one = found.find(|one| one.names.iter().flatten().any(is_it));
    one.and_then(|one| one.id)
        .with_context(|| format!("no container of {sandbox} runs"))
}

/// The processes of a container, if its engine is on this machine.
pub(crate) async fn pids_of(container: &str) -> anyhow::Result<Vec<i32>> {
    let options = TopOptionsBuilder::new().ps_args("-eo pid").build();
    let engine = Docker::connect_with_defaults()?;
    let top = engine.top_processes(container, Some(options)).await?;
    let rows = top.processes.unwrap_or_default().into_iter().flatten();
    Ok(rows.filter_map(|pid| pid.parse().ok()).collect())
}

/// 0 if the process has ended.
fn memory_of(pid: i32) -> u64 {
    let all = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let line = all.lines().find_map(|line| line.strip_prefix("Pss:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// The CPU time of a process, and of those of its children that it has waited for.
pub(crate) fn time_of(pid: i32, with_children: bool) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // After the name: the state, which is field 3; the times are fields 14 to 17.
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let times = fields.split_whitespace().skip(11);
    let times = times.take(if with_children { 4 } else { 2 });
    let ticks: u64 = times.filter_map(|time| time.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}

/// The CPU time of this process's children, also of those that have ended: a jail, and what it has waited for. It never decreases.
pub(crate) fn sandboxes_time() -> Duration {
    let own = std::process::id().cast_signed();
    let running = descendants(own).into_iter();
    let running: Duration = running.map(|process| time_of(process.pid(), true)).sum();
    running + time_of(own, true).saturating_sub(time_of(own, false))
}

/// The CPU time of a container.
pub(crate) async fn container_time(name: &str) -> anyhow::Result<Duration> {
    let engine = Docker::connect_with_defaults()?;
    let options = StatsOptionsBuilder::new()
        .stream(false)
        .one_shot(true)
        .build();
    let stats = engine.stats(name, Some(options)).next().await;
    let stats = stats.context("the engine knows no such container")??;
    let usage = stats.cpu_stats.and_then(|cpu| cpu.cpu_usage?.total_usage);
    Ok(Duration::from_nanos(usage.context("no CPU time")?))
}

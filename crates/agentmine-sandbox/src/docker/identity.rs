//! What a container is called, and what its labels say of it.
//!
//! Labels cannot be changed. A container that was started for no task gets its name when a task takes it, with the
//! epoch at its end ([`crate::name::with_epoch`]); one that was started for a task has the epoch in its labels.

use std::collections::HashMap;

use agentmine_domain::Epoch;
use bollard::models::{ContainerSummary, ContainerSummaryStateEnum as State};
use bollard::query_parameters::ListContainersOptions;
use chrono::DateTime;

use super::engine::Engine;
use crate::backend::{FoundSandbox, WorkerState};
use crate::error::SandboxError;
use crate::name::{PREFIX, is_spare, sandbox_name, spare_name, task_of, without_epoch};
use crate::spec::SandboxSpec;

const TASK: &str = "agentmine.task";
const EPOCH: &str = "agentmine.epoch";
const ROLE: &str = "agentmine.role";
const WORKER: &str = "agentmine.worker";

/// The name and the labels of a new container.
pub(super) struct Identity {
    pub(super) name: String,
    pub(super) labels: HashMap<String, String>,
}

impl Identity {
    /// Of a task's.
    pub(super) fn of(spec: &SandboxSpec) -> Self {
        Self::new(
            sandbox_name(spec),
            &[
                (TASK, spec.task.to_string()),
                (EPOCH, spec.epoch.to_string()),
                (ROLE, spec.role.to_string()),
            ],
        )
    }

    /// Of one that belongs to no task. The worker's name is for people.
    pub(super) fn spare() -> Self {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let worker = format!("{}/{}", host.trim(), std::process::id());
        Self::new(
            spare_name(),
            &[(ROLE, "spare".to_owned()), (WORKER, worker)],
        )
    }

    fn new(name: String, labels: &[(&str, String)]) -> Self {
        let labels = labels.iter();
        Self {
            name,
            labels: labels
                .map(|(key, value)| ((*key).to_owned(), value.clone()))
                .collect(),
        }
    }
}

/// The containers whose name begins so.
pub(super) async fn list(engine: &Engine, name: &str) -> Result<Vec<FoundSandbox>, SandboxError> {
    let options = ListContainersOptions {
        all: true,
        filters: Some(HashMap::from([("name".to_owned(), vec![name.to_owned()])])),
        ..ListContainersOptions::default()
    };
    let containers = engine.call("listing containers", |docker| {
        let options = options.clone();
        async move { docker.list_containers(Some(options)).await }
    });
    Ok(containers.await?.into_iter().filter_map(found).collect())
}

/// Removes the containers of this name that an earlier lease, or an earlier try of this one, left behind. They go
/// by their ids: the name may have passed to the container of a later lease since.
pub(super) async fn make_way(
    engine: &Engine,
    name: &str,
    epoch: Epoch,
) -> Result<(), SandboxError> {
    let all = list(engine, name).await?;
    let namesakes = || all.iter().filter(|found| found.name == name);
    if namesakes().any(|found| found.epoch.is_some_and(|of| of > epoch)) {
        return Err(SandboxError::superseded(name));
    }
    for found in namesakes() {
        engine.remove(&found.instance).await?;
    }
    Ok(())
}

/// The engine's filter matches the prefix anywhere in a name; here it must be at the start.
fn found(container: ContainerSummary) -> Option<FoundSandbox> {
    let names = container.names.unwrap_or_default();
    let called = names
        .iter()
        .filter_map(|name| name.strip_prefix('/'))
        .find(|name| name.starts_with(PREFIX))?;
    let (name, epoch) = without_epoch(called);
    let labels = container.labels.unwrap_or_default();
    let label = |key: &str| labels.get(key).map(String::as_str);
    Some(FoundSandbox {
        task: label(TASK)
            .and_then(|task| task.parse().ok())
            .or_else(|| task_of(name)),
        epoch: label(EPOCH).and_then(|epoch| epoch.parse().ok()).or(epoch),
        is_spare: is_spare(name),
        worker: match is_spare(name) {
            true => worker_of_spare(container.state),
            // One that has ended may still be examined by its worker.
            false => WorkerState::Unknown,
        },
        created_at: DateTime::from_timestamp(container.created.unwrap_or(0), 0)?,
        instance: container.id?,
        name: name.to_owned(),
    })
}

/// A container ends with the connection of the worker that started it, so that of a running one is there.
fn worker_of_spare(state: Option<State>) -> WorkerState {
    match state {
        Some(State::CREATED | State::EMPTY) => WorkerState::Starting,
        Some(State::RUNNING | State::PAUSED | State::RESTARTING | State::STOPPING) | None => {
            WorkerState::Alive
        }
        Some(State::EXITED | State::DEAD | State::REMOVING) => WorkerState::Gone,
    }
}

#[cfg(test)]
mod tests {
    use agentmine_domain::TaskId;

    use super::*;

    fn summary(called: &str, state: State, labels: &[(&str, &str)]) -> ContainerSummary {
        let labels = labels.iter();
        ContainerSummary {
            id: Some("id".into()),
            names: Some(vec![format!("/{called}")]),
            created: Some(1),
            state: Some(state),
            labels: Some(
                labels
                    .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                    .collect(),
            ),
            ..ContainerSummary::default()
        }
    }

    #[test]
    fn a_container_is_known_by_its_labels_or_by_its_name() {
        let task = TaskId::new();
        let name = format!("{PREFIX}{task}-verify");
        let labels = [("agentmine.epoch", "7")];
        let labelled = found(summary(&name, State::RUNNING, &labels)).unwrap();
        let renamed = found(summary(&format!("{name}.7"), State::RUNNING, &[])).unwrap();
        for found in [labelled, renamed] {
            assert_eq!((found.task, found.epoch), (Some(task), Some(Epoch(7))));
            assert_eq!((found.name, found.is_spare), (name.clone(), false));
            assert_eq!(found.worker, WorkerState::Unknown);
        }
    }

    #[test]
    fn a_spare_container_that_does_not_run_is_abandoned() {
        for (state, worker) in [
            (State::RUNNING, WorkerState::Alive),
            (State::CREATED, WorkerState::Starting),
            (State::EXITED, WorkerState::Gone),
        ] {
            let found = found(summary(&spare_name(), state, &[])).unwrap();
            assert_eq!((found.is_spare, found.worker), (true, worker));
        }
    }
}

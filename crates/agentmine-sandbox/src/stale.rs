//! Removal of stale sandboxes: those whose worker died or lost its lease.
//!
//! A reconciler: it looks at what is there, and may run anywhere, any number of times, at the same time
//! as others. What the store knows of a sandbox's lease decides. Where no row knows the task, as that of another
//! fleet on this machine, the sandbox goes with its worker; age decides only where nothing shows whether the worker
//! lives. Nothing is removed while the store cannot be read. A sandbox of the same name that was
//! created after the list was read is another instance, and is left alone. A spare sandbox, which no task has taken
//! yet, stays as long as its worker is connected to it.

use std::fmt::Display;
use std::future::Future;
use std::time::Duration;

use agentmine_domain::{Epoch, SandboxFate, TaskId};
use agentmine_runtime::failpoint::around;
use chrono::Utc;

use crate::backend::{Backend, FoundSandbox, WorkerState};
use crate::error::SandboxError;

/// How long a sandbox may be without its epoch while it is made.
const MAKING: Duration = Duration::from_secs(60);

/// Removes stale sandboxes. `fate` asks the store about the lease of one sandbox. A sandbox that cannot
/// be removed now is logged, and left for the next round. Returns how many are left.
///
/// # Errors
/// When the sandboxes cannot be listed.
pub async fn remove_stale<F, A, E>(
    backend: &dyn Backend,
    max_age: Duration,
    fate: F,
) -> Result<u32, SandboxError>
where
    F: Fn(TaskId, Epoch) -> A,
    A: Future<Output = Result<SandboxFate, E>>,
    E: Display,
{
    if let Err(error) = backend.remove_unused(max_age).await {
        tracing::debug!(%error, "what the engine keeps for starts cannot be listed");
    }
    let mut left = 0;
    for found in backend.list().await? {
        let known = match found.task {
            None => SandboxFate::Unknown,
            Some(task) => match fate(task, found.epoch.unwrap_or(Epoch(0))).await {
                Ok(known) => known,
                Err(error) => {
                    tracing::warn!(sandbox.name = found.name, %error, "the store cannot be read, so the sandbox is kept");
                    continue;
                }
            },
        };
        if !is_stale(&found, known, max_age) {
            continue;
        }
        match around("sandbox.remove_stale", backend.remove(&found)).await {
            Ok(()) => tracing::info!(sandbox.name = found.name, "removed a stale sandbox"),
            Err(error) => {
                left += 1;
                tracing::warn!(sandbox.name = found.name, %error, "a stale sandbox could not be removed");
            }
        }
    }
    Ok(left)
}

fn is_stale(found: &FoundSandbox, fate: SandboxFate, max_age: Duration) -> bool {
    let is_older = |limit| {
        let age = (Utc::now() - found.created_at).to_std();
        age.is_ok_and(|age| age >= limit)
    };
    if found.is_spare {
        return match found.worker {
            WorkerState::Gone => true,
            WorkerState::Starting => is_older(MAKING.min(max_age)),
            // Its worker renews it long before.
            WorkerState::Alive | WorkerState::Unknown => is_older(max_age),
        };
    }
    match fate {
        SandboxFate::Alive => false,
        // Without an epoch nobody knows whose it is: it may be in the making.
        SandboxFate::Dead => found.epoch.is_some() || is_older(MAKING.min(max_age)),
        SandboxFate::Unknown => match found.worker {
            WorkerState::Gone => true,
            WorkerState::Alive => false,
            WorkerState::Starting | WorkerState::Unknown => is_older(max_age),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use async_trait::async_trait;

    use super::*;
    use crate::sandbox::Sandbox;
    use crate::spec::SandboxSpec;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    /// An engine with sandboxes that only exist in its list.
    #[derive(Default)]
    struct Engine {
        sandboxes: Mutex<Vec<FoundSandbox>>,
        /// Removals of this one fail.
        stuck: Option<&'static str>,
    }

    #[async_trait]
    impl Backend for Engine {
        async fn check(&self) -> Result<(), SandboxError> {
            Ok(())
        }
        async fn disk_limit(&self) -> String {
            "none".into()
        }
        async fn start(&self, _: &SandboxSpec) -> Result<Box<dyn Sandbox>, SandboxError> {
            Err(SandboxError::Refused("this engine starts nothing".into()))
        }
        async fn list(&self) -> Result<Vec<FoundSandbox>, SandboxError> {
            Ok(self.sandboxes.lock().unwrap().clone())
        }
        async fn remove(&self, found: &FoundSandbox) -> Result<(), SandboxError> {
            if self.stuck == Some(found.name.as_str()) {
                return Err(SandboxError::Unavailable("busy".into()));
            }
            let mut all = self.sandboxes.lock().unwrap();
            all.retain(|it| it.instance != found.instance);
            Ok(())
        }
    }

    impl Engine {
        /// Sandboxes by name, with their task and age.
        fn with(sandboxes: &[(&str, Option<TaskId>, Duration)]) -> Self {
            let found = sandboxes.iter().map(|&(name, task, age)| FoundSandbox {
                name: name.into(),
                instance: name.into(),
                task,
                epoch: Some(Epoch(1)),
                is_spare: false,
                worker: WorkerState::Unknown,
                created_at: Utc::now() - age,
            });
            Self {
                sandboxes: Mutex::new(found.collect()),
                stuck: None,
            }
        }

        async fn names_after(
            &self,
            fate: impl Fn(TaskId) -> Result<SandboxFate, String>,
        ) -> Vec<String> {
            let asked = |task, epoch| {
                assert_eq!(epoch, Epoch(1));
                std::future::ready(fate(task))
            };
            remove_stale(self, DAY, asked).await.unwrap();
            let all = self.sandboxes.lock().unwrap();
            all.iter().map(|found| found.name.clone()).collect()
        }
    }

    #[tokio::test]
    async fn the_lease_decides_and_age_does_not() {
        let (alive, dead) = (TaskId::new(), TaskId::new());
        let engine = Engine::with(&[
            ("old and alive", Some(alive), 10 * DAY),
            ("young and dead", Some(dead), Duration::ZERO),
        ]);
        let kept = engine.names_after(|task| {
            Ok(if task == alive {
                SandboxFate::Alive
            } else {
                SandboxFate::Dead
            })
        });
        assert_eq!(kept.await, ["old and alive"]);
    }

    #[tokio::test]
    async fn one_that_is_being_made_is_left_alone() {
        let engine = Engine::with(&[
            ("in the making", Some(TaskId::new()), MAKING / 2),
            ("never finished", Some(TaskId::new()), MAKING),
        ]);
        for found in engine.sandboxes.lock().unwrap().iter_mut() {
            found.epoch = None;
        }
        let dead = |_, epoch| {
            assert_eq!(epoch, Epoch(0));
            std::future::ready(Ok::<_, String>(SandboxFate::Dead))
        };
        remove_stale(&engine, DAY, dead).await.unwrap();
        let all = engine.sandboxes.lock().unwrap();
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].name, "in the making");
    }

    #[tokio::test]
    async fn where_no_row_knows_the_task_age_decides() {
        let engine = Engine::with(&[
            ("old", Some(TaskId::new()), 2 * DAY),
            ("young", Some(TaskId::new()), DAY / 2),
            ("old without a task", None, 2 * DAY),
            ("young without a task", None, DAY / 2),
        ]);
        let kept = engine.names_after(|_| Ok(SandboxFate::Unknown)).await;
        assert_eq!(kept, ["young", "young without a task"]);
    }

    #[tokio::test]
    async fn one_of_another_fleet_stays_as_long_as_its_worker() {
        let (alive, of_others) = (TaskId::new(), TaskId::new());
        let engine = Engine::with(&[
            ("leased here", Some(alive), DAY / 2),
            ("of another fleet", Some(of_others), 2 * DAY),
        ]);
        let set = |worker| {
            for found in engine.sandboxes.lock().unwrap().iter_mut() {
                found.worker = worker;
            }
        };
        let fate = |task| match task == alive {
            true => Ok(SandboxFate::Alive),
            false => Ok(SandboxFate::Unknown),
        };
        set(WorkerState::Alive);
        assert_eq!(engine.names_after(fate).await.len(), 2);
        set(WorkerState::Gone);
        assert_eq!(engine.names_after(fate).await, ["leased here"]);
    }

    #[tokio::test]
    async fn a_spare_one_stays_as_long_as_its_worker_lives() {
        let engine = Engine::with(&[
            ("of a worker that lives", None, DAY / 2),
            ("of a worker that died", None, Duration::ZERO),
            ("starting", None, MAKING / 2),
            ("never started", None, MAKING),
            ("kept by a connection that nobody closed", None, 2 * DAY),
            ("of another machine", None, DAY / 2),
            ("left behind by another machine", None, 2 * DAY),
        ]);
        let workers = [
            WorkerState::Alive,
            WorkerState::Gone,
            WorkerState::Starting,
            WorkerState::Starting,
            WorkerState::Alive,
            WorkerState::Unknown,
            WorkerState::Unknown,
        ];
        for (found, worker) in engine.sandboxes.lock().unwrap().iter_mut().zip(workers) {
            found.is_spare = true;
            found.worker = worker;
        }
        let kept = engine.names_after(|_| Ok(SandboxFate::Unknown)).await;
        assert_eq!(
            kept,
            ["of a worker that lives", "starting", "of another machine"]
        );
    }

    #[tokio::test]
    async fn nothing_with_a_task_is_removed_while_the_store_cannot_be_read() {
        let engine = Engine::with(&[("old", Some(TaskId::new()), 10 * DAY)]);
        let kept = engine.names_after(|_| Err("no connection".into())).await;
        assert_eq!(kept, ["old"]);
    }

    #[tokio::test]
    async fn one_that_cannot_be_removed_does_not_hold_up_the_rest() {
        let mut engine = Engine::with(&[
            ("stuck", Some(TaskId::new()), DAY),
            ("next", Some(TaskId::new()), DAY),
        ]);
        engine.stuck = Some("stuck");
        let kept = engine.names_after(|_| Ok(SandboxFate::Dead)).await;
        assert_eq!(kept, ["stuck"]);
        let dead = |_, _| std::future::ready(Ok::<_, String>(SandboxFate::Dead));
        assert_eq!(remove_stale(&engine, DAY, dead).await.unwrap(), 1);
        engine.stuck = None;
        assert_eq!(remove_stale(&engine, DAY, dead).await.unwrap(), 0);
    }
}

//! Names of sandboxes, the same on every backend.

use agentmine_domain::{Epoch, TaskId};

use crate::role::SandboxRole;
use crate::spec::SandboxSpec;

/// The host name in every sandbox. The guest's `NO_PROXY` contains it too.
pub(crate) const HOSTNAME: &str = "sandbox";
/// The beginning of every sandbox's name.
pub(crate) const PREFIX: &str = "coding-agent-exec-";
/// The beginning of the name of one that no task has taken yet.
const SPARE: &str = "coding-agent-exec-spare-";

/// `coding-agent-exec-{uuid}`, with `-{role}` where the role is not `main`.
pub(crate) fn sandbox_name(spec: &SandboxSpec) -> String {
    match spec.role {
        SandboxRole::Main => format!("{PREFIX}{}", spec.task),
        role => format!("{PREFIX}{}-{role}", spec.task),
    }
}

/// A new name for a sandbox of no task.
pub(crate) fn spare_name() -> String {
    format!("{SPARE}{}", uuid::Uuid::new_v4().simple())
}

/// Whether it is the name of a sandbox of no task.
pub(crate) fn is_spare(name: &str) -> bool {
    name.starts_with(SPARE)
}

/// The task in a sandbox's name.
pub(crate) fn task_of(name: &str) -> Option<TaskId> {
    name.strip_prefix(PREFIX)?.get(..36)?.parse().ok()
}

/// What a container is called that was started for no task: its labels cannot be changed, so the epoch of the task
/// that took it is in its name.
pub(crate) fn with_epoch(name: &str, epoch: Epoch) -> String {
    format!("{name}.{epoch}")
}

/// A sandbox's name, and the epoch if it is in what the container is called.
pub(crate) fn without_epoch(called: &str) -> (&str, Option<Epoch>) {
    let parts = called.rsplit_once('.');
    let found = parts.and_then(|(name, epoch)| Some((name, Epoch(epoch.parse().ok()?))));
    found.map_or((called, None), |(name, epoch)| (name, Some(epoch)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_contains_its_task() {
        let task = TaskId::new();
        let mut spec = SandboxSpec {
            task,
            epoch: Epoch(1),
            role: SandboxRole::Main,
            image: None,
            template: None,
        };
        assert_eq!(task_of(&sandbox_name(&spec)), Some(task));
        spec.role = SandboxRole::Verify;
        assert!(sandbox_name(&spec).ends_with("-verify"));
        assert_eq!(task_of(&sandbox_name(&spec)), Some(task));
        assert_eq!(task_of("coding-agent-exec-x"), None);
        assert_eq!(task_of(&spare_name()), None);
        assert!(is_spare(&spare_name()) && !is_spare(&sandbox_name(&spec)));
    }

    #[test]
    fn the_epoch_of_a_renamed_container_is_read_from_its_name() {
        let name = format!("{PREFIX}{}", TaskId::new());
        let called = with_epoch(&name, Epoch(12));
        assert_eq!(without_epoch(&called), (name.as_str(), Some(Epoch(12))));
        assert_eq!(without_epoch(&name), (name.as_str(), None));
    }
}

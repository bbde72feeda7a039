//! Names of sandboxes, the same on every backend.

use agentmine_domain::TaskId;

use crate::backend::SandboxSpec;
use crate::role::SandboxRole;

/// The beginning of every sandbox's name.
pub(crate) const PREFIX: &str = "coding-agent-exec-";

/// `coding-agent-exec-{uuid}`, with `-{role}` where the role is not `main`.
pub(crate) fn sandbox_name(spec: &SandboxSpec) -> String {
    match spec.role {
        SandboxRole::Main => format!("{PREFIX}{}", spec.task),
        role => format!("{PREFIX}{}-{role}", spec.task),
    }
}

/// The task in a sandbox's name.
pub(crate) fn task_of(name: &str) -> Option<TaskId> {
    name.strip_prefix(PREFIX)?.get(..36)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use agentmine_domain::Epoch;

    use super::*;

    #[test]
    fn a_name_contains_its_task() {
        let task = TaskId::new();
        let mut spec = SandboxSpec {
            task,
            epoch: Epoch(1),
            role: SandboxRole::Main,
            image: None,
        };
        assert_eq!(task_of(&sandbox_name(&spec)), Some(task));
        spec.role = SandboxRole::Verify;
        assert!(sandbox_name(&spec).ends_with("-verify"));
        assert_eq!(task_of(&sandbox_name(&spec)), Some(task));
        assert_eq!(task_of("coding-agent-exec-x"), None);
    }
}

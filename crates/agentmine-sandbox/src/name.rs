//! Names of sandboxes, the same on every backend.

use agentmine_domain::TaskId;

use crate::SandboxSpec;

/// What every sandbox's name begins with.
pub const PREFIX: &str = "coding-agent-exec-";

/// `coding-agent-exec-{uuid}`, and `-{role}` where the role is not `main`.
#[must_use]
pub fn sandbox_name(spec: &SandboxSpec) -> String {
    if spec.role == "main" {
        format!("{PREFIX}{}", spec.task)
    } else {
        format!("{PREFIX}{}-{}", spec.task, spec.role)
    }
}

/// The task that a name tells of.
pub(crate) fn task_of(name: &str) -> Option<TaskId> {
    name.strip_prefix(PREFIX)?.get(..36)?.parse().ok()
}

/// Whether a role can stand in a name.
pub(crate) fn is_valid_role(role: &str) -> bool {
    (1..=32).contains(&role.len())
        && role
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

#[cfg(test)]
mod tests {
    use agentmine_domain::Epoch;

    use super::*;

    #[test]
    fn a_name_tells_its_task() {
        let task = TaskId::new();
        let mut spec = SandboxSpec {
            task,
            epoch: Epoch(1),
            role: "main".into(),
            image: None,
        };
        assert_eq!(task_of(&sandbox_name(&spec)), Some(task));
        spec.role = "verify".into();
        assert!(sandbox_name(&spec).ends_with("-verify"));
        assert_eq!(task_of(&sandbox_name(&spec)), Some(task));
        assert_eq!(task_of("coding-agent-exec-x"), None);
    }
}

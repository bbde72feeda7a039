//! Paths in requests of the worker. They must be under `/workspace` by their text; the guest checks again
//! with symbolic links resolved.

use crate::error::SandboxError;

/// Checks that a path stays under `/workspace`.
pub(crate) fn check(path: &str) -> Result<(), SandboxError> {
    let inside = path.strip_prefix("/workspace/").is_some_and(|rest| {
        !rest.is_empty() && !rest.contains('\0') && rest.split('/').all(|part| part != "..")
    });
    if inside {
        Ok(())
    } else {
        Err(SandboxError::Failed(format!(
            "{path:?} is outside /workspace"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_under_the_workspace_pass() {
        assert!(check("/workspace/project/a").is_ok());
        for path in [
            "/etc/passwd",
            "/workspace/../etc",
            "/workspace",
            "a",
            "/workspace/a\0",
            "/workspaces/a",
        ] {
            assert!(check(path).is_err(), "{path:?}");
        }
    }
}

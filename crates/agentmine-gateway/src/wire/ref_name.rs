//! Names of branches.

use crate::printable::printable;

/// The text cannot be the name of a branch.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not a valid branch name")]
pub(crate) struct InvalidBranch(String);

/// The full name of a branch (`refs/heads/…`). Stricter than git: what could be read as an option or a
/// revision is refused.
pub(crate) fn branch_ref(branch: &str) -> Result<String, InvalidBranch> {
    let bad = branch.is_empty()
        || branch.len() > 250
        || branch.starts_with(['-', '/', '.'])
        || branch.ends_with(['/', '.'])
        || branch.ends_with(".lock")
        || branch.contains("..")
        || branch.contains("//")
        || branch.contains("@{")
        || branch.contains("/.")
        || branch
            .chars()
            .any(|c| c.is_control() || c.is_whitespace() || "~^:?*[\\".contains(c));
    if bad {
        return Err(InvalidBranch(printable(branch)));
    }
    Ok(format!("refs/heads/{branch}"))
}

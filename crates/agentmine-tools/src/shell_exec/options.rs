//! How `shell_exec` works.

use std::time::Duration;

use crate::roots::AllowedRoots;

/// The time limit of a command by default.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(120);

/// How `shell_exec` works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShellOptions {
    /// Where commands may run.
    pub roots: AllowedRoots,
    /// A command that runs longer is killed, with all processes that it has started.
    pub timeout: Duration,
    /// Further commands that are refused, as words: `git push --force`.
    pub deny: Vec<String>,
    /// Further commands that run only if the user agrees.
    pub ask: Vec<String>,
    /// Commands that run although the built-in lists refuse them or ask about them.
    pub allow: Vec<String>,
}

impl ShellOptions {
    /// The default policy in these folders.
    #[must_use]
    pub fn new(roots: AllowedRoots) -> Self {
        Self {
            roots,
            timeout: DEFAULT_TIMEOUT,
            deny: Vec::new(),
            ask: Vec::new(),
            allow: Vec::new(),
        }
    }
}

//! What was settled before the agent began.

use serde::{Deserialize, Serialize};

/// What the work is measured from and by. Recorded before the agent begins, so that no later attempt
/// takes it from what the agent has pushed meanwhile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// The commit that the work begins from.
    pub base: String,
    /// How the repository is set up and checked.
    pub project: Project,
}

/// How a repository is set up and checked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Project {
    /// Shell lines that prepare a fresh clone.
    pub setup: Vec<String>,
    /// Shell lines that must pass.
    pub checks: Vec<String>,
    /// Where the checks come from.
    pub checks_from: String,
    /// Nobody named the checks: one whose tools are missing in the sandbox is no verdict on the work.
    pub guessed: bool,
    /// Why the repository's own file was not used.
    pub warning: Option<String>,
}

impl Start {
    pub(crate) fn redacted(self, redact: &dyn Fn(String) -> String) -> Self {
        let Self { base, project } = self;
        let Project {
            setup,
            checks,
            checks_from,
            guessed,
            warning,
        } = project;
        Self {
            base: redact(base),
            project: Project {
                setup: setup.into_iter().map(redact).collect(),
                checks: checks.into_iter().map(redact).collect(),
                checks_from: redact(checks_from),
                guessed,
                warning: warning.map(redact),
            },
        }
    }
}

//! The start of the work: the base commit and the project's set-up and checks.

use serde::{Deserialize, Serialize};

/// The base commit and the checks that the work is measured against. Recorded before the agent begins,
/// so that a later attempt does not read them from commits that the agent has pushed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// The base commit.
    pub base: String,
    /// How the repository is set up and checked.
    pub project: Project,
}

/// How a repository is set up and checked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Project {
    /// Shell commands that prepare a fresh clone.
    pub setup: Vec<String>,
    /// Shell commands that must succeed.
    pub checks: Vec<String>,
    /// Where the checks come from.
    pub checks_from: String,
    /// Whether the checks were guessed: one that cannot start in the sandbox does not count.
    pub guessed: bool,
    /// Why the repository's settings file was not used.
    pub warning: Option<String>,
    /// What was left out of the set-up, and why.
    #[serde(default)]
    pub notes: Vec<String>,
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
            notes,
        } = project;
        Self {
            base: redact(base),
            project: Project {
                setup: setup.into_iter().map(redact).collect(),
                checks: checks.into_iter().map(redact).collect(),
                checks_from: redact(checks_from),
                guessed,
                warning: warning.map(redact),
                notes: notes.into_iter().map(redact).collect(),
            },
        }
    }
}

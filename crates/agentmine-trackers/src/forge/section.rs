//! Where in the configuration a tracker is described, for messages.

use std::fmt;

use agentmine_runtime::config::Trackers;

/// A section: `trackers.github`, or `trackers.more.github.NAME` of one with a name.
#[derive(Debug, Clone)]
pub(crate) struct Section {
    place: String,
    named: bool,
}

impl Section {
    /// `kind` is `github` or `gitlab`.
    pub(crate) fn of(kind: &str, name: Option<&str>) -> Self {
        Self {
            place: Trackers::key(kind, name),
            named: name.is_some(),
        }
    }

    /// What a person sets to give it a token: the variable is for the section without a name alone.
    pub(crate) fn token(&self, variable: &str) -> String {
        match self.named {
            true => format!("{self}.token"),
            false => variable.to_owned(),
        }
    }
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.place)
    }
}

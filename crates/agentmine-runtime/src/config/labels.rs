//! The names of the labels, and when two names are one label.

use schemars::JsonSchema;
use serde::Deserialize;

/// The names of the labels.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Labels {
    /// Requests work.
    pub request: String,
    /// The work is in progress.
    pub processing: String,
    /// The pull request is open.
    pub done: String,
    /// The task is paused.
    pub paused: String,
    /// A person stopped the task.
    pub stopped: String,
    /// The task failed.
    pub failed: String,
    /// People pause the task with it: it pauses while its item has the label. The fleet neither adds nor removes it.
    pub pause: String,
}

impl Labels {
    /// Every label that shows or requests work, with its configuration key.
    #[must_use]
    pub fn entries(&self) -> [(&'static str, &String); 6] {
        let Self {
            request,
            processing,
            done,
            paused,
            stopped,
            failed,
            pause: _,
        } = self;
        [
            ("request", request),
            ("processing", processing),
            ("done", done),
            ("paused", paused),
            ("stopped", stopped),
            ("failed", failed),
        ]
    }

    /// Whether an item with these labels is to be paused.
    #[must_use]
    pub fn asks_for_pause(&self, labels: &[String]) -> bool {
        has_label(labels, &self.pause)
    }
}

impl Default for Labels {
    fn default() -> Self {
        Self {
            request: "coding agent".into(),
            processing: "coding agent processing".into(),
            done: "coding agent done".into(),
            paused: "coding agent paused".into(),
            stopped: "coding agent stopped".into(),
            failed: "coding agent failed".into(),
            pause: "coding agent pause".into(),
        }
    }
}

/// Whether two names are the same label to the fleet: without regard to case, as on GitHub, which refuses a label
/// `Bug` beside `bug` ("already_exists") and finds one by the name of the other.
///
/// To GitLab they are two labels (gitlab-org/gitlab!87809: "Labels are case-sensitive"). So its adapter asks for a
/// label, and reads its events, by the exact name; everybody else compares names here, and the configuration refuses
/// two names that differ by case alone.
#[must_use]
pub fn same_label(one: &str, other: &str) -> bool {
    one.to_lowercase() == other.to_lowercase()
}

/// Whether one of these labels has the name.
#[must_use]
pub fn has_label(labels: &[String], name: &str) -> bool {
    labels.iter().any(|own| same_label(own, name))
}

/// Whether two labels have the same scope (`scope::name`). Of the labels with one scope an item of GitLab carries one: the other
/// is removed when it gets this one.
#[must_use]
pub fn share_scope(one: &str, other: &str) -> bool {
    let scope = |name: &str| Some(name.rsplit_once("::")?.0.trim().to_lowercase());
    let own = scope(one);
    own.is_some() && own == scope(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_share_all_that_is_before_their_last_colons() {
        assert!(share_scope("Agent::todo", "agent::done"));
        assert!(share_scope("a::b::c", "a::b::d"));
        for (one, other) in [
            ("agent", "agent::done"),
            ("agent", "agent"),
            ("a::b::c", "a::d"),
        ] {
            assert!(!share_scope(one, other), "{one} {other}");
        }
    }

    #[test]
    fn names_of_labels_are_compared_without_case() {
        assert!(same_label("Coding Agent", "coding agent"));
        assert!(same_label("ÜBERPRÜFT", "überprüft"));
        assert!(!same_label("coding agent", "coding-agent"));
        let labels = Labels::default();
        assert!(labels.asks_for_pause(&["bug".into(), "Coding Agent PAUSE".into()]));
        assert!(!labels.asks_for_pause(&["coding agent paused".into()]));
    }
}

//! The words in the name of a work branch.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::card::TaskType;
use crate::names::{UnknownName, named};

named!(
    /// What kind of change a branch is for.
    BranchType, "branch type" {
        /// A defect is corrected.
        Fix = "fix",
        /// Something new.
        Feature = "feature",
        /// Documentation alone.
        Docs = "docs",
        /// A change of structure alone.
        Refactor = "refactor",
        /// Tests alone.
        Test = "test",
        /// Anything else.
        Task = "task",
    }
);

impl BranchType {
    /// What the labels of an item say, by their English words: `bug`, `kind/bug`, `type: documentation`.
    #[must_use]
    pub fn of_labels<'a>(labels: impl IntoIterator<Item = &'a str>) -> Option<Self> {
        let of_word = |word: &str| match word.to_ascii_lowercase().as_str() {
            "bug" | "bugfix" | "fix" | "defect" | "regression" => Some(Self::Fix),
            "feature" | "enhancement" => Some(Self::Feature),
            "doc" | "docs" | "documentation" => Some(Self::Docs),
            "refactor" | "refactoring" | "cleanup" => Some(Self::Refactor),
            "test" | "tests" | "testing" => Some(Self::Test),
            _ => None,
        };
        let mut words = labels
            .into_iter()
            .flat_map(|label| label.split(|c: char| !c.is_ascii_alphanumeric()));
        words.find_map(of_word)
    }
}

impl From<TaskType> for BranchType {
    fn from(kind: TaskType) -> Self {
        match kind {
            TaskType::Task => Self::Task,
            TaskType::Feature => Self::Feature,
            TaskType::Bug => Self::Fix,
            TaskType::Refactor => Self::Refactor,
        }
    }
}

/// The ASCII words of a text in lower case, joined by `-`: at most `most` bytes, and whole words unless the first one is
/// longer. Empty if the text has none.
#[must_use]
pub fn slug(text: &str, most: usize) -> String {
    let mut slug = String::new();
    for word in text.split(|c: char| !c.is_ascii_alphanumeric()) {
        let between = usize::from(!slug.is_empty());
        if word.is_empty() {
            continue;
        }
        if slug.len() + between + word.len() <= most {
            slug.push_str(&"-"[..between]);
            slug.push_str(&word.to_ascii_lowercase());
            continue;
        }
        if slug.is_empty() {
            slug = word[..most.min(word.len())].to_ascii_lowercase();
        }
        break;
    }
    slug
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slug_has_the_ascii_words_alone() {
        for (text, expected) in [
            ("`greet.sh` greets nobody!", "greet-sh-greets-nobody"),
            ("--force -D../../HEAD", "force-d-head"),
            ("挨拶の bug を直す", "bug"),
            ("挨拶", ""),
            ("", ""),
            (
                "one two three four five six seven",
                "one-two-three-four-five",
            ),
            ("ABCDEFGHIJKLMNOPQRSTUVWXYZ x", "abcdefghijklmnopqrstuvwx"),
            ("abcdefghijklmnopqrst uvw", "abcdefghijklmnopqrst-uvw"),
            ("abcdefghijklmnopqrst uvwx", "abcdefghijklmnopqrst"),
            ("a\u{0}b\nc\u{202e}d", "a-b-c-d"),
        ] {
            assert_eq!(slug(text, 24), expected, "{text:?}");
        }
    }

    #[test]
    fn labels_say_what_kind_of_change_it_is_by_their_words() {
        for (labels, expected) in [
            (&["coding agent", "kind/Bug"][..], Some(BranchType::Fix)),
            (&["type: documentation"], Some(BranchType::Docs)),
            (&["enhancement", "bug"], Some(BranchType::Feature)),
            (&["tech-debt", "cleanup"], Some(BranchType::Refactor)),
            (&["needs tests"], Some(BranchType::Test)),
            (&["debugging", "prio: high"], None),
            (&[], None),
        ] {
            let found = BranchType::of_labels(labels.iter().copied());
            assert_eq!(found, expected, "{labels:?}");
        }
    }
}

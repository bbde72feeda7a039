//! The files that a task may change, so that two tasks that would change the same ones do not run at once.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Patterns in one scope.
const MAX_PATTERNS: usize = 32;
/// Characters of one pattern.
const MAX_LENGTH: usize = 200;

/// A pattern that cannot be used: which one, and why.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("write scope {pattern:?}: {why}")]
pub struct ScopeError {
    pattern: String,
    why: &'static str,
}

/// The files that a task may change, as patterns of paths from the top of the repository.
///
/// A path is matched part by part, between slashes. `*` is any characters within one part, `**` as a whole part is
/// any number of parts, and everything else is itself. A pattern that names a folder includes all that is in it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<String>", into = "Vec<String>")]
pub struct WriteScope(Vec<String>);

impl WriteScope {
    /// The patterns, each of them checked.
    ///
    /// # Errors
    /// [`ScopeError`] for too many patterns, or one that is not a relative path of ordinary length.
    pub fn new(patterns: Vec<String>) -> Result<Self, ScopeError> {
        if patterns.len() > MAX_PATTERNS {
            return Err(ScopeError {
                pattern: format!("{} patterns", patterns.len()),
                why: "expected at most 32 patterns",
            });
        }
        for pattern in &patterns {
            if let Some(why) = fault(pattern) {
                let pattern = pattern.chars().take(MAX_LENGTH).collect();
                return Err(ScopeError { pattern, why });
            }
        }
        Ok(Self(patterns))
    }

    /// The patterns.
    #[must_use]
    pub fn patterns(&self) -> &[String] {
        &self.0
    }

    /// Whether nothing is known of what the task may change.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        self.0.is_empty()
    }

    /// Two patterns, one of each, that can match the same path. `None` also where one of the scopes is not known.
    #[must_use]
    pub fn conflict<'a>(&'a self, other: &'a Self) -> Option<(&'a str, &'a str)> {
        let pairs = self
            .0
            .iter()
            .flat_map(|own| other.0.iter().map(move |their| (own, their)));
        pairs
            .map(|(own, their)| (own.as_str(), their.as_str()))
            .find(|(own, their)| meet(own, their))
    }
}

impl TryFrom<Vec<String>> for WriteScope {
    type Error = ScopeError;

    fn try_from(patterns: Vec<String>) -> Result<Self, ScopeError> {
        Self::new(patterns)
    }
}

impl From<WriteScope> for Vec<String> {
    fn from(scope: WriteScope) -> Self {
        scope.0
    }
}

/// One pattern in each line, as the store holds it.
impl fmt::Display for WriteScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("\n"))
    }
}

impl FromStr for WriteScope {
    type Err = ScopeError;

    fn from_str(text: &str) -> Result<Self, ScopeError> {
        Self::new(text.lines().map(ToOwned::to_owned).collect())
    }
}

fn fault(pattern: &str) -> Option<&'static str> {
    let mut parts = pattern.split('/');
    if pattern.is_empty() || pattern.chars().count() > MAX_LENGTH {
        Some("expected 1 to 200 characters")
    } else if pattern.starts_with('/') {
        Some("expected a path from the top of the repository, without a slash at its beginning")
    } else if pattern.contains(['\\', '\n', '\0']) {
        Some("expected a path with slashes alone")
    } else if parts.any(|part| part == ".." || part == ".") {
        Some("expected a path without . and ..")
    } else {
        None
    }
}

/// Whether a path exists that both patterns match.
fn meet(one: &str, other: &str) -> bool {
    let parts = |pattern: &str| -> Vec<String> {
        let parts = pattern.split('/').filter(|part| !part.is_empty());
        // A folder includes what is in it.
        parts.chain(["**"]).map(ToOwned::to_owned).collect()
    };
    overlap(&parts(one), &parts(other), &|part| part == "**", &|a, b| {
        let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
        overlap(&a, &b, &|c| *c == '*', &|a, b| a == b)
    })
}

/// Whether a sequence exists that both patterns match. `is_any` is an element that matches any number of others.
/// Takes time in proportion to the product of the lengths.
fn overlap<T>(
    one: &[T],
    other: &[T],
    is_any: &dyn Fn(&T) -> bool,
    same: &dyn Fn(&T, &T) -> bool,
) -> bool {
    // `meets[j]`: the rest of `one` from `i` and the rest of `other` from `j` overlap.
    let mut after = vec![false; other.len() + 1];
    for i in (0..=one.len()).rev() {
        let mut meets = vec![false; other.len() + 1];
        for j in (0..=other.len()).rev() {
            meets[j] = match (one.get(i), other.get(j)) {
                (None, None) => true,
                (Some(a), Some(b)) => {
                    ((is_any(a) || is_any(b)) && (after[j] || meets[j + 1]))
                        || (!is_any(a) && !is_any(b) && same(a, b) && after[j + 1])
                }
                (Some(a), None) => is_any(a) && after[j],
                (None, Some(b)) => is_any(b) && meets[j + 1],
            };
        }
        after = meets;
    }
    after[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(patterns: &[&str]) -> WriteScope {
        WriteScope::new(patterns.iter().map(ToString::to_string).collect()).unwrap()
    }

    #[test]
    fn scopes_conflict_where_a_path_can_be_in_both() {
        for (one, other) in [
            ("src/main.rs", "src/main.rs"),
            ("src", "src/main.rs"),
            ("src/", "src/a/b.rs"),
            ("src/*.rs", "src/main.*"),
            ("**/*.md", "docs"),
            ("**", "anything/at/all"),
            ("a/**/z", "a/b/**"),
            ("crates/*/src", "crates/store/src/lib.rs"),
        ] {
            assert!(meet(one, other) && meet(other, one), "{one} and {other}");
        }
    }

    #[test]
    fn scopes_without_a_common_path_do_not_conflict() {
        for (one, other) in [
            ("src/main.rs", "src/lib.rs"),
            ("src", "srcs/main.rs"),
            ("docs/*.md", "src/*.md"),
            ("*.rs", "src/main.rs"),
            ("crates/*/src", "crates/store/tests"),
            ("a/*b", "a/*c"),
        ] {
            assert!(!meet(one, other) && !meet(other, one), "{one} and {other}");
        }
        assert_eq!(scope(&[]).conflict(&scope(&["src"])), None);
        let found = scope(&["docs", "src/a.rs"]);
        let other = scope(&["src"]);
        assert_eq!(found.conflict(&other), Some(("src/a.rs", "src")));
    }

    #[test]
    fn a_pattern_that_leads_elsewhere_is_refused() {
        for pattern in ["/etc", "../x", "a/./b", "", "a\\b", "a\nb"] {
            assert!(
                WriteScope::new(vec![pattern.into()]).is_err(),
                "{pattern:?}"
            );
        }
        assert!(WriteScope::new(vec!["a".repeat(201)]).is_err());
        assert!(WriteScope::new(vec!["a".into(); 33]).is_err());
    }

    #[test]
    fn a_scope_is_stored_as_lines() {
        let stored = scope(&["src", "docs/*.md"]);
        assert_eq!(stored.to_string(), "src\ndocs/*.md");
        assert_eq!(stored.to_string().parse(), Ok(stored));
        assert_eq!("".parse(), Ok(WriteScope::default()));
    }

    #[test]
    fn hostile_patterns_take_no_exponential_time() {
        let stars = "*a".repeat(90);
        assert!(meet(&stars, &stars));
        let parts = vec!["**"; 60].join("/");
        assert!(meet(&parts, &format!("{parts}/x")));
    }

    #[test]
    fn a_scope_is_the_list_of_its_patterns() {
        let list = vec!["src".to_owned(), "docs/*.md".to_owned()];
        let scope = WriteScope::try_from(list.clone()).unwrap();
        assert_eq!(scope.patterns(), list);
        assert!(!scope.is_unknown() && WriteScope::default().is_unknown());
        assert_eq!(Vec::from(scope), list);
        assert!(WriteScope::try_from(vec!["/etc".to_owned()]).is_err());
    }

    #[test]
    fn a_pattern_has_two_hundred_characters_at_most() {
        assert!(WriteScope::new(vec!["語".repeat(200)]).is_ok());
        assert!(WriteScope::new(vec!["語".repeat(201)]).is_err());
        assert!(WriteScope::new(vec!["a".into(); 32]).is_ok());
    }
}

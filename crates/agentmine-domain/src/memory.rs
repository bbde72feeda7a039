//! The memory of a project: what its people decided, as records that agents are given.

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::names::{UnknownName, named};

named!(
    /// Whether agents are given a record.
    MemoryStatus, "memory status" {
        /// Proposed: agents are not given it until a person activates it.
        Draft = "draft",
        /// Agents are given it.
        Active = "active",
        /// Kept for people; agents are not given it.
        Archived = "archived",
    }
);

named!(
    /// Who recorded it.
    MemorySource, "memory source" {
        /// A person.
        Human = "human",
        /// A session proposed it.
        Session = "session",
    }
);

named!(
    /// How certain it is. Where not all records fit, the surer ones go first.
    Confidence, "confidence" {
        /// A guess.
        Low = "low",
        /// Probable.
        Medium = "medium",
        /// Decided.
        High = "high",
    }
);

/// The limits of a record.
pub mod limits {
    /// Characters of an id.
    pub const ID: usize = 64;
    /// Characters of a category, and of a tag.
    pub const CATEGORY: usize = 40;
    /// Characters of a title.
    pub const TITLE: usize = 200;
    /// Characters of a summary.
    pub const SUMMARY: usize = 1000;
    /// Bytes of the content.
    pub const CONTENT: usize = 16 * 1024;
    /// Tags of a record.
    pub const TAGS: usize = 20;
    /// Records of a project.
    pub const RECORDS: u32 = 1000;
}

/// A record's id within its project: `[a-z0-9][a-z0-9-]*`, at most 64 characters. It is also the name of its file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct MemoryId(String);

impl MemoryId {
    /// The id.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for MemoryId {
    type Err = MemoryFault;

    fn from_str(text: &str) -> Result<Self, MemoryFault> {
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        let fits = (1..=limits::ID).contains(&text.len())
            && text.bytes().all(plain)
            && !text.starts_with('-');
        match fits {
            true => Ok(Self(text.to_owned())),
            false => Err(MemoryFault {
                field: "id",
                seen: format!("{:?}", brief(text)),
                expected: "1 to 64 of a-z, 0-9 and -, not beginning with -".into(),
            }),
        }
    }
}

impl fmt::Display for MemoryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a record holds, without its version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MemoryEntry {
    /// Its id.
    pub id: MemoryId,
    /// What it is about, e.g. `tooling`.
    pub category: String,
    /// One line.
    pub title: String,
    /// Used instead of the content if that does not fit. May be empty.
    pub summary: String,
    /// Markdown. May be empty.
    pub content: String,
    /// Whether agents are given it.
    pub status: MemoryStatus,
    /// For filters.
    pub tags: Vec<String>,
    /// Who recorded it.
    pub source: MemorySource,
    /// How certain it is.
    pub confidence: Confidence,
    /// Agents do not receive it from then on. In whole milliseconds.
    pub expires_at: Option<DateTime<Utc>>,
}

/// A record as the store holds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MemoryRecord {
    /// What it holds.
    #[serde(flatten)]
    pub entry: MemoryEntry,
    /// Counts its changes, from 1. A change names the version that it was made from.
    pub version: i64,
    /// When it was added, by the database's clock.
    pub created_at: DateTime<Utc>,
    /// When it was last changed.
    pub updated_at: DateTime<Utc>,
}

/// A field that does not have the required form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {seen}, expected {expected}")]
pub struct MemoryFault {
    /// The field.
    pub field: &'static str,
    /// What was found.
    pub seen: String,
    /// What was expected.
    pub expected: String,
}

impl MemoryEntry {
    /// All fields that do not have the required form.
    #[must_use]
    pub fn faults(&self) -> Vec<MemoryFault> {
        let Self {
            id: _,
            category,
            title,
            summary,
            content,
            status: _,
            tags,
            source: _,
            confidence: _,
            expires_at: _,
        } = self;
        let mut faults = Vec::new();
        faults.extend(one_line("category", category, limits::CATEGORY));
        faults.extend(one_line("title", title, limits::TITLE));
        faults.extend(at_most("summary", summary, limits::SUMMARY));
        if content.len() > limits::CONTENT || content.contains('\0') {
            faults.push(MemoryFault {
                field: "content",
                seen: match content.contains('\0') {
                    true => "a NUL character".into(),
                    false => format!("{} bytes", content.len()),
                },
                expected: format!("text of at most {} bytes", limits::CONTENT),
            });
        }
        if tags.len() > limits::TAGS {
            faults.push(MemoryFault {
                field: "tags",
                seen: format!("{} tags", tags.len()),
                expected: format!("at most {}", limits::TAGS),
            });
        }
        let tag = |tag: &String| one_line("tags", tag, limits::CATEGORY);
        faults.extend(tags.iter().take(limits::TAGS).filter_map(tag));
        let twice = |(at, tag): (usize, &String)| tags[..at].contains(tag).then(|| tag.clone());
        faults.extend(
            tags.iter()
                .enumerate()
                .find_map(twice)
                .map(|tag| MemoryFault {
                    field: "tags",
                    seen: format!("{:?} twice", brief(&tag)),
                    expected: "each tag once".into(),
                }),
        );
        faults
    }
}

/// Neither empty nor longer than a line of `max` characters, and the same when it is trimmed.
fn one_line(field: &'static str, text: &str, max: usize) -> Option<MemoryFault> {
    let length = text.chars().count();
    let seen = match length {
        0 => "an empty text".into(),
        n if n > max => format!("{n} characters"),
        _ if text.chars().any(char::is_control) => "a control character or a line break".into(),
        _ if text.trim() != text => "spaces around it".into(),
        _ => return None,
    };
    Some(MemoryFault {
        field,
        seen,
        expected: format!("one line of 1 to {max} characters"),
    })
}

fn at_most(field: &'static str, text: &str, max: usize) -> Option<MemoryFault> {
    let length = text.chars().count();
    let seen = match length > max {
        true => format!("{length} characters"),
        false if text.contains('\0') => "a NUL character".into(),
        false => return None,
    };
    let expected = format!("text of at most {max} characters");
    Some(MemoryFault {
        field,
        seen,
        expected,
    })
}

fn brief(text: &str) -> String {
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> MemoryEntry {
        MemoryEntry {
            id: "linter".parse().unwrap(),
            category: "tooling".into(),
            title: "Clippy is the linter".into(),
            summary: String::new(),
            content: String::new(),
            status: MemoryStatus::Active,
            tags: vec!["rust".into()],
            source: MemorySource::Human,
            confidence: Confidence::High,
            expires_at: None,
        }
    }

    #[test]
    fn an_id_is_safe_as_a_name_of_a_file() {
        for good in ["a", "linter", "2026-plan", &"a".repeat(64)] {
            assert!(good.parse::<MemoryId>().is_ok(), "{good}");
        }
        for bad in ["", "-a", "A", "a/b", "..", "a.md", "a\n", &"a".repeat(65)] {
            assert!(bad.parse::<MemoryId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn every_field_that_does_not_fit_is_named() {
        assert_eq!(entry().faults(), []);
        let bad = MemoryEntry {
            category: String::new(),
            title: "a\nb".into(),
            summary: "x".repeat(limits::SUMMARY + 1),
            content: "x".repeat(limits::CONTENT + 1),
            tags: vec!["a".into(), " b".into(), "a".into()],
            ..entry()
        };
        let fields: Vec<&str> = bad.faults().iter().map(|fault| fault.field).collect();
        let expected = ["category", "title", "summary", "content", "tags", "tags"];
        assert_eq!(fields, expected);
        let largest = MemoryEntry {
            summary: "語".repeat(limits::SUMMARY),
            content: "x".repeat(limits::CONTENT),
            title: "語".repeat(limits::TITLE),
            ..entry()
        };
        assert_eq!(largest.faults(), []);
    }

    #[test]
    fn a_record_at_its_limits_fits_and_one_beyond_does_not() {
        let tags = |n: usize| (0..n).map(|n| format!("t{n}")).collect::<Vec<_>>();
        let at = MemoryEntry {
            category: "x".repeat(40),
            title: "x".repeat(200),
            summary: "x".repeat(1000),
            content: "x".repeat(16_384),
            tags: tags(20),
            ..entry()
        };
        assert_eq!(at.faults(), []);
        let beyond = MemoryEntry {
            category: "x".repeat(41),
            title: "x".repeat(201),
            summary: "x".repeat(1001),
            content: "x".repeat(16_385),
            tags: tags(21),
            ..entry()
        };
        let faults = beyond.faults();
        let seen: Vec<&str> = faults.iter().map(|fault| fault.seen.as_str()).collect();
        let expected = [
            "41 characters",
            "201 characters",
            "1001 characters",
            "16385 bytes",
            "21 tags",
        ];
        assert_eq!(seen, expected);
    }

    #[test]
    fn nul_characters_and_repeated_tags_are_told() {
        let bad = MemoryEntry {
            summary: "a\0".into(),
            content: "\0".into(),
            tags: vec!["rust".into(), "rust".into()],
            ..entry()
        };
        let faults = bad.faults();
        let seen: Vec<&str> = faults.iter().map(|fault| fault.seen.as_str()).collect();
        assert_eq!(
            seen,
            ["a NUL character", "a NUL character", "\"rust\" twice"]
        );
    }

    #[test]
    fn an_id_is_displayed_as_it_is_and_a_bad_one_quoted_in_part() {
        let id: MemoryId = "linter".parse().unwrap();
        assert_eq!(
            (id.as_str(), id.to_string()),
            ("linter", "linter".to_owned())
        );
        let fault = "A".repeat(100).parse::<MemoryId>().unwrap_err();
        assert_eq!(fault.seen, format!("{:?}", "A".repeat(80)));
    }
}

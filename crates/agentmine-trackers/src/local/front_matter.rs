//! The front matter of a Markdown file: YAML between two lines of `---`.
//!
//! Guaranteed: an edit replaces the `labels` entry and nothing else. The result is parsed again before
//! it is used; a file whose front matter this module does not understand is refused, never damaged.

use std::collections::BTreeSet;

use serde::Deserialize;

use super::error::refused;
use crate::error::TrackerError;

/// A file, parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Document {
    pub(super) head: Head,
    /// What follows the front matter, unchanged.
    pub(super) body: String,
}

/// The keys of the front matter. Other keys belong to the user.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct Head {
    pub(super) number: Option<u64>,
    pub(super) title: Option<String>,
    pub(super) state: State,
    #[serde(deserialize_with = "names")]
    pub(super) labels: Vec<String>,
    #[serde(deserialize_with = "names")]
    pub(super) assignees: Vec<String>,
    pub(super) author: Option<String>,
    pub(super) created_at: Option<String>,
    pub(super) head: Option<String>,
    pub(super) base: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    #[default]
    Open,
    Closed,
    Merged,
}

/// A list of names, one name, or names separated by commas; nothing is an empty list.
fn names<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Names {
        List(Vec<String>),
        One(String),
        Nothing(()),
    }
    Ok(match Names::deserialize(deserializer)? {
        Names::List(list) => list,
        Names::One(text) => text
            .split(',')
            .map(str::trim)
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect(),
        Names::Nothing(()) => Vec::new(),
    })
}

/// Where the YAML and the body are in a text.
struct Layout {
    yaml: std::ops::Range<usize>,
    body: usize,
}

fn layout(text: &str) -> Option<Result<Layout, usize>> {
    let begin = if text.starts_with('\u{feff}') { 3 } else { 0 };
    let rest = text.get(begin..)?;
    let first = rest.split_inclusive('\n').next()?;
    if first.trim_end() != "---" {
        return None;
    }
    let start = begin + first.len();
    let mut at = start;
    for line in text.get(start..)?.split_inclusive('\n') {
        if matches!(line.trim_end(), "---" | "...") {
            return Some(Ok(Layout {
                yaml: start..at,
                body: at + line.len(),
            }));
        }
        at += line.len();
    }
    Some(Err(1))
}

/// Parses a file; `name` is for errors, which also name the line.
pub(super) fn parse(name: &str, text: &str) -> Result<Document, TrackerError> {
    let layout = match layout(text) {
        None => {
            return Ok(Document {
                head: Head::default(),
                body: text.trim_start_matches('\u{feff}').to_owned(),
            });
        }
        Some(Err(line)) => return Err(broken(name, line, "the front matter has no closing `---`")),
        Some(Ok(layout)) => layout,
    };
    let yaml = &text[layout.yaml];
    let head = if yaml
        .lines()
        .all(|line| line.trim().is_empty() || line.starts_with('#'))
    {
        Head::default()
    } else {
        serde_saphyr::from_str(yaml).map_err(|error| {
            let line = error.location().map_or(1, |at| at.line());
            let line = usize::try_from(line).unwrap_or(1) + 1;
            broken(name, line, &error.without_snippet().to_string())
        })?
    };
    Ok(Document {
        head,
        body: text[layout.body..].to_owned(),
    })
}

fn broken(name: &str, line: usize, what: &str) -> TrackerError {
    refused(format!("{name}:{line}: {what}"))
}

/// The same text with other labels; every other byte is kept.
pub(super) fn with_labels(
    name: &str,
    text: &str,
    labels: &[String],
) -> Result<String, TrackerError> {
    let before = parse(name, text)?;
    let newline = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let entry = format!("labels: [{}]{newline}", quoted(labels));
    let mut edited = text.to_owned();
    match layout(text) {
        Some(Ok(layout)) => {
            let (start, end) = labels_entry(&text[layout.yaml.clone()])
                .unwrap_or((layout.yaml.len(), layout.yaml.len()));
            edited.replace_range(layout.yaml.start + start..layout.yaml.start + end, &entry);
        }
        Some(Err(_)) | None => {
            let begin = if text.starts_with('\u{feff}') { 3 } else { 0 };
            edited.insert_str(begin, &format!("---{newline}{entry}---{newline}"));
        }
    }
    let after = parse(name, &edited)?;
    let set = |labels: &[String]| labels.iter().cloned().collect::<BTreeSet<_>>();
    let same = after.body == before.body
        && set(&after.head.labels) == set(labels)
        && Head {
            labels: Vec::new(),
            ..after.head
        } == Head {
            labels: Vec::new(),
            ..before.head
        };
    if same {
        Ok(edited)
    } else {
        Err(refused(format!(
            "{name}: the labels cannot be edited. hint: write them as `labels: [a, b]` on one line"
        )))
    }
}

/// The range of the `labels` entry: its line, and below it what is indented or a list at its level.
fn labels_entry(yaml: &str) -> Option<(usize, usize)> {
    let mut at = 0;
    let mut found: Option<(usize, usize)> = None;
    for line in yaml.split_inclusive('\n') {
        let next = at + line.len();
        match &mut found {
            None if line
                .strip_prefix("labels")
                .is_some_and(|rest| rest.trim_start().starts_with(':')) =>
            {
                found = Some((at, next));
            }
            None => {}
            Some((_, end)) => {
                let continues = line.starts_with([' ', '\t', ']']) || line.starts_with("- ");
                if !continues || line.trim().is_empty() {
                    break;
                }
                *end = next;
            }
        }
        at = next;
    }
    found
}

/// Names as the inside of a YAML flow list. A JSON string is a YAML string.
fn quoted(names: &[String]) -> String {
    let all: Vec<String> = names.iter().map(|name| quote(name)).collect();
    all.join(", ")
}

/// A text as a YAML scalar on one line.
pub(super) fn quote(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// The title: that of the front matter, else the first heading, else the file's name.
pub(super) fn title(document: &Document, stem: &str) -> String {
    let own = document
        .head
        .title
        .clone()
        .filter(|title| !title.trim().is_empty());
    let heading = || {
        let line = document
            .body
            .lines()
            .find_map(|line| line.strip_prefix("# "))?;
        Some(line.trim().trim_end_matches('#').trim().to_owned())
    };
    own.or_else(heading)
        .filter(|title| !title.is_empty())
        .unwrap_or_else(|| stem.to_owned())
}

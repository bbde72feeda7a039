//! The hidden marker by which a comment of AgentMine is recognised.

use agentmine_domain::TrackerKind;

use crate::error::TrackerError;

/// With this begins the marker of every comment that the fleet writes.
pub const FLEET_MARKER: &str = "agentmine:task=";

/// An HTML comment, which readers do not see.
///
/// Most comments are recognised by this very marker. The one on an item that all of its tasks share is recognised by the
/// name at the end of its last marker, whatever task that names: see [`Self::shared`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marker {
    /// The whole HTML comment.
    text: String,
    shared: Option<Shared>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Shared {
    /// The task that writes.
    task: String,
    name: String,
    /// Tasks whose text stays.
    newer: Vec<String>,
}

impl Marker {
    /// Takes a marker's text, or the whole HTML comment.
    ///
    /// # Errors
    /// If it is not one short line without `--`.
    pub fn new(tracker: TrackerKind, text: &str) -> Result<Self, TrackerError> {
        let bare = text.trim();
        let bare = bare.strip_prefix("<!--").unwrap_or(bare);
        let bare = bare.strip_suffix("-->").unwrap_or(bare).trim();
        let plain = !bare.is_empty()
            && bare.len() <= 500
            && !bare.contains("--")
            && !bare.contains(char::is_control);
        if plain {
            Ok(Self {
                text: format!("<!-- {bare} -->"),
                shared: None,
            })
        } else {
            Err(TrackerError::invalid(
                tracker,
                format!("{bare:?} is not a marker: one short line without `--`"),
            ))
        }
    }

    /// The marker of the one comment of this name that all tasks of an item share, for the task that writes. What a
    /// task in `newer` wrote is not overwritten.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn shared(
        tracker: TrackerKind,
        task: &str,
        name: &str,
        newer: Vec<String>,
    ) -> Result<Self, TrackerError> {
        Ok(Self {
            shared: Some(Shared {
                task: task.to_owned(),
                name: name.to_owned(),
                newer,
            }),
            ..Self::new(tracker, &format!("{FLEET_MARKER}{task}:{name}"))?
        })
    }

    /// A text with the marker below it, once.
    #[must_use]
    pub fn append(&self, body: &str) -> String {
        let body = body.replace(&self.text, "");
        format!("{}\n\n{}", body.trim_end(), self.text)
    }

    /// Whether a text carries this marker, or that of another task that shares the comment.
    #[must_use]
    pub fn is_in(&self, body: &str) -> bool {
        match &self.shared {
            Some(shared) => shared.task_of(body).is_some(),
            None => body.contains(&self.text),
        }
    }

    /// Whether a comment shows the task that writes.
    #[must_use]
    pub fn is_own(&self, body: &str) -> bool {
        match &self.shared {
            Some(shared) => shared.task_of(body) == Some(&shared.task),
            None => self.is_in(body),
        }
    }

    /// Whether a comment shows a newer task, whose text stays.
    #[must_use]
    pub fn yields_to(&self, body: &str) -> bool {
        let Some(shared) = &self.shared else {
            return false;
        };
        let shown = shared.task_of(body);
        shown.is_some_and(|task| shared.newer.iter().any(|newer| newer == task))
    }
}

impl Shared {
    /// The task that the last marker of the fleet in a text names, if it is of this name. A separate line: what is
    /// quoted is none.
    fn task_of<'b>(&self, body: &'b str) -> Option<&'b str> {
        let marked = |line: &'b str| {
            let bare = line.strip_prefix("<!-- ")?.strip_suffix(" -->")?;
            bare.strip_prefix(FLEET_MARKER)
        };
        let last = body.lines().rev().find_map(marked)?;
        last.strip_suffix(&self.name)?.strip_suffix(':')
    }
}

/// A text of at most `max` characters, with a note at the end if it was cut.
pub(crate) fn cut(text: &str, max: usize) -> String {
    const NOTE: &str = "\n\n_(cut: the text was longer than the tracker allows)_";
    if text.chars().count() <= max {
        return text.to_owned();
    }
    let kept: String = text.chars().take(max - NOTE.chars().count()).collect();
    kept + NOTE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_comment_is_recognised_by_its_last_marker() {
        let newer = vec!["9".to_owned()];
        let marker = Marker::shared(TrackerKind::GitHub, "7", "progress", newer).unwrap();
        let of = |task: &str| format!("Text.\n\n<!-- agentmine:task={task}:progress -->");
        for task in ["7", "5", "9", "none"] {
            assert!(marker.is_in(&of(task)), "{task}");
            assert!(marker.is_in(&(of(task) + "\nAdded by a person.")));
            assert_eq!(marker.is_own(&of(task)), task == "7");
            assert_eq!(marker.yields_to(&of(task)), task == "9");
        }
        let other = "<!-- agentmine:task=7:editor -->";
        for text in [
            other.to_owned(),
            // In a text that this comment quotes.
            format!("```text\n{}\n```\n\n{other}", of("7")),
            format!("> {}", of("7").replace('\n', "\n> ")),
            "<!-- agentmine:task=7 -->".to_owned(),
        ] {
            assert!(!marker.is_in(&text), "{text}");
        }
        assert_eq!(marker.append("Text."), of("7"));
    }
}

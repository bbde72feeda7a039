//! The hidden marker by which a comment of ours is recognised.

use agentmine_domain::TrackerKind;

use crate::error::TrackerError;

/// An HTML comment, which readers do not see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Marker(String);

impl Marker {
    /// Takes a marker's text, or the whole HTML comment.
    pub(crate) fn new(tracker: TrackerKind, text: &str) -> Result<Self, TrackerError> {
        let bare = text.trim();
        let bare = bare.strip_prefix("<!--").unwrap_or(bare);
        let bare = bare.strip_suffix("-->").unwrap_or(bare).trim();
        let plain = !bare.is_empty()
            && bare.len() <= 500
            && !bare.contains("--")
            && !bare.contains(char::is_control);
        if plain {
            Ok(Self(format!("<!-- {bare} -->")))
        } else {
            Err(TrackerError::invalid(
                tracker,
                format!("{bare:?} is not a marker: one short line without `--`"),
            ))
        }
    }

    /// A text with the marker below it, once.
    pub(crate) fn append(&self, body: &str) -> String {
        let body = body.replace(&self.0, "");
        format!("{}\n\n{}", body.trim_end(), self.0)
    }

    /// Whether a text carries this very marker.
    pub(crate) fn is_in(&self, body: &str) -> bool {
        body.contains(&self.0)
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

//! Texts and values from a server, limited in size.

use agentmine_process::truncate_middle;
use serde_json::Value;

/// Bytes of a server's own words in an error.
pub(crate) const MAX_WORDS: usize = 500;

/// A server's words for an error: at most [`MAX_WORDS`] bytes on one line, without control characters or
/// changes of the reading direction.
pub(crate) fn shortened(words: &str) -> String {
    let plain = |c| if is_control(c) { ' ' } else { c };
    let short = truncate_middle(words, MAX_WORDS);
    short.chars().map(plain).collect()
}

fn is_control(c: char) -> bool {
    c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// At most `max` bytes of the start, whole characters only.
pub(crate) fn head_of(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}

/// At most `max` bytes of the end, whole characters only.
pub(crate) fn tail_of(text: &str, max: usize) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(max))..]
}

/// Estimated bytes of memory that a value takes; never less than its text.
pub(crate) fn weight(value: &Value) -> usize {
    const EACH: usize = 64;
    EACH + match value {
        Value::String(text) => text.len(),
        Value::Array(values) => values.iter().map(weight).sum(),
        Value::Object(values) => values
            .iter()
            .map(|(key, value)| EACH + key.len() + weight(value))
            .sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}

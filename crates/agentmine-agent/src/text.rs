//! Untrusted text, shortened, and without control characters that a terminal or a parser would act on.

use crate::incoming;

/// The first `max` bytes, cut between two characters.
pub(crate) fn cap(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}

/// Lines, by every character that any reader takes for the end of one.
pub(crate) fn lines(text: &str) -> impl Iterator<Item = &str> {
    let ends = |c| {
        matches!(
            c,
            '\n' | '\u{b}' | '\u{c}' | '\u{85}' | '\u{2028}' | '\u{2029}'
        )
    };
    text.split(ends).map(|line| line.trim_end_matches('\r'))
}

pub(crate) fn printable(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '\t' => c,
            c if c.is_control() => '\u{fffd}',
            c => c,
        })
        .collect()
}

pub(crate) fn on_one_line(text: &str, max: usize) -> String {
    let (text, _) = incoming::plain(text);
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    printable(&text).chars().take(max).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_control_characters_the_tab_alone_is_printed() {
        let text = "a\tb\rc\u{1b}[2Jd\u{85}e\u{7f} 日本語";
        assert_eq!(
            printable(text),
            "a\tb\u{fffd}c\u{fffd}[2Jd\u{fffd}e\u{fffd} 日本語"
        );
    }
}

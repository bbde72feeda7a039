//! Text for a terminal. Text from a model, a repository, a sandbox or a server may contain escape sequences.

/// Replaces control characters except newline and tab. Unicode's direction marks are removed: they can make
/// a line look like another.
#[must_use]
pub fn clean(text: &str) -> String {
    text.chars()
        .filter(|c| !matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\r'))
        .map(|c| {
            if c.is_control() && c != '\n' && c != '\t' {
                '\u{fffd}'
            } else {
                c
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_do_not_reach_the_terminal() {
        assert_eq!(
            clean("a\x1b[31mb\x07\r\n\tc"),
            "a\u{fffd}[31mb\u{fffd}\n\tc"
        );
        assert_eq!(clean("a\u{202e}b"), "ab");
    }
}

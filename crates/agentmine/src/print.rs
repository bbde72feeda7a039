//! Text for a terminal. Text from a model, a repository or a sandbox may contain escape sequences; none of
//! them reaches the terminal.

use comfy_table::Table;
use comfy_table::presets::NOTHING;

/// Replaces control characters except newline and tab. Unicode's direction marks are removed: they can make
/// a line look like another.
pub(crate) fn clean(text: &str) -> String {
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

/// On one line, at most `max` characters.
pub(crate) fn one_line(text: &str, max: usize) -> String {
    let line = clean(text).split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= max {
        return line;
    }
    line.chars()
        .take(max.saturating_sub(1))
        .chain(['…'])
        .collect()
}

/// Prints a line to stdout. A closed pipe (`| head`) is not an error and does not interrupt a run.
pub(crate) fn line(text: impl AsRef<str>) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stdout(), "{}", text.as_ref());
}

/// Prints a line to stderr: everything but the result itself.
pub(crate) fn note(text: impl AsRef<str>) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "{}", text.as_ref());
}

/// Prints a foreign text: unchanged to a file or a pipe, cleaned on a terminal.
pub(crate) fn body(text: &str) {
    use std::io::IsTerminal as _;
    if std::io::stdout().is_terminal() {
        line(clean(text));
    } else {
        line(text);
    }
}

/// A table without borders.
pub(crate) fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(header);
    table
}

/// The table's text, without trailing spaces.
pub(crate) fn trimmed(table: &Table) -> String {
    table
        .lines()
        .map(|l| l.trim_end().to_owned())
        .collect::<Vec<_>>()
        .join("\n")
}

/// How this program was called, for hints that can be pasted.
pub(crate) fn program() -> String {
    std::env::args()
        .next()
        .unwrap_or_else(|| "agentmine".into())
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

    #[test]
    fn one_line_is_short() {
        assert_eq!(one_line("a\n  b", 10), "a b");
        assert_eq!(one_line("abcdefgh", 4), "abc…");
    }
}

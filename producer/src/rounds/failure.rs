//! A digest of a failure, by which the same one is recognised in the next round.

use sha2::{Digest as _, Sha256};

/// Lines of the end of a log that count.
const LINES: usize = 200;

/// A digest of the end of a log without what differs each time: digits, hexadecimal names, colours, and times. Empty
/// without a log.
pub(super) fn failure_of(log: Option<&str>, summary: &str) -> String {
    let text = log.filter(|log| !log.trim().is_empty()).unwrap_or(summary);
    // Nothing is known of it, so nothing says that it is the same.
    if text.trim().is_empty() {
        return String::new();
    }
    let lines: Vec<&str> = text.lines().collect();
    let mut digest = Sha256::new();
    for line in &lines[lines.len().saturating_sub(LINES)..] {
        digest.update(steady(line));
        digest.update(b"\n");
    }
    let digest = digest.finalize();
    digest
        .iter()
        .take(16)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// A line without words that have a digit, and without control characters.
fn steady(line: &str) -> String {
    let words = line.split(|c: char| !(c.is_alphanumeric() || c == '_'));
    let words =
        words.filter(|word| !word.is_empty() && !word.contains(|c: char| c.is_ascii_digit()));
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_failure_has_one_digest_and_another_one_does_not() {
        let first = "2026-01-01T10:00:00.123Z \u{1b}[31mFAIL\u{1b}[0m greet in 0.12s\nexpected 3\nat 0x7f2a";
        let again =
            "2026-02-03T11:22:33.456Z \u{1b}[31mFAIL\u{1b}[0m greet in 2.5s\nexpected 3\nat 0x55aa";
        let other = again.replace("greet", "part");
        assert_eq!(failure_of(Some(first), ""), failure_of(Some(again), "x"));
        assert_ne!(failure_of(Some(first), ""), failure_of(Some(&other), ""));
        assert_eq!(
            failure_of(None, "failed"),
            failure_of(Some(" \n"), "failed")
        );
        assert_eq!(failure_of(Some("\n"), " "), "");
    }
}

//! The head and the tail of an output of any length, and the size of what is omitted between them.

use crate::excerpt::{Excerpt, LeftOut};
use crate::tail::Tail;

/// Keeps the first and the last bytes of an output.
#[derive(Debug, Default)]
pub struct HeadTail {
    head: Vec<u8>,
    head_max: usize,
    tail: Tail,
    /// Line ends in all that was pushed.
    lines: u64,
}

/// What was kept of an output: its start, its end, and how much is missing between them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kept {
    /// The first bytes.
    pub head: Vec<u8>,
    /// What follows them.
    pub left_out: LeftOut,
    /// The last bytes.
    pub tail: Vec<u8>,
}

impl HeadTail {
    /// Keeps at most `max` bytes, half of them from the end. With 0 it keeps nothing.
    #[must_use]
    pub fn new(max: usize) -> Self {
        Self {
            head: Vec::new(),
            head_max: max.div_ceil(2),
            tail: Tail::new(max / 2),
            lines: 0,
        }
    }

    /// Adds the next part of the output.
    pub fn push(&mut self, bytes: &[u8]) {
        self.lines += line_ends(bytes);
        let room = self.head_max - self.head.len();
        let (first, rest) = bytes.split_at(room.min(bytes.len()));
        self.head.extend_from_slice(first);
        self.tail.push(rest);
    }

    /// What was kept.
    #[must_use]
    pub fn into_kept(self) -> Kept {
        let tail = self.tail.to_vec();
        let bytes = self.tail.dropped();
        let kept = line_ends(&self.head) + line_ends(&tail);
        Kept {
            left_out: LeftOut {
                bytes,
                lines: self.lines.saturating_sub(kept),
            },
            head: self.head,
            tail,
        }
    }
}

impl Kept {
    /// The output as text. Bytes that are not UTF-8, and characters that were cut, become `U+FFFD`.
    #[must_use]
    pub fn into_excerpt(self) -> Excerpt {
        Excerpt::of_parts(&self.head, self.left_out, &self.tail)
    }
}

fn line_ends(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|byte| **byte == b'\n').count() as u64
}

/// Truncates a text in the middle: keeps at most `max` bytes of its head and tail, whole characters only. A
/// note between them says how many bytes are missing.
#[must_use]
pub fn truncate_middle(text: &str, max: usize) -> String {
    if text.len() <= max {
        return text.to_owned();
    }
    let head = text.floor_char_boundary(max.div_ceil(2));
    let tail = text.ceil_char_boundary(text.len() - max / 2);
    let note = note((tail - head) as u64);
    [&text[..head], &note, &text[tail..]].concat()
}

fn note(cut: u64) -> String {
    format!("\n[... {cut} bytes cut ...]\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_output_is_kept_whole() {
        let mut kept = HeadTail::new(10);
        kept.push(b"01234");
        kept.push(b"56789");
        let kept = kept.into_kept();
        assert_eq!(kept.left_out, LeftOut::default());
        assert_eq!(kept.into_excerpt().into_text(""), "0123456789");
    }

    #[test]
    fn head_and_tail_are_kept_and_what_is_missing_is_counted() {
        let mut kept = HeadTail::new(4);
        for byte in *b"abc\nefg\nij\n" {
            kept.push(&[byte]);
        }
        let kept = kept.into_kept();
        let left_out = LeftOut { bytes: 7, lines: 2 };
        let expected = Kept {
            head: b"ab".to_vec(),
            left_out,
            tail: b"j\n".to_vec(),
        };
        assert_eq!(kept, expected);
        let mut at_once = HeadTail::new(4);
        at_once.push(b"abc\nefg\nij\n");
        assert_eq!(at_once.into_kept(), expected);
    }

    #[test]
    fn character_between_head_and_tail_stays_whole_where_nothing_is_cut() {
        let mut kept = HeadTail::new(4);
        kept.push("aéz".as_bytes());
        assert_eq!(kept.into_kept().into_excerpt().into_text(""), "aéz");
    }

    #[test]
    fn text_is_cut_between_characters_and_the_note_is_exact() {
        assert_eq!(truncate_middle("short", 5), "short");
        assert_eq!(
            truncate_middle("head and tail", 8),
            "head\n[... 5 bytes cut ...]\ntail"
        );
        let text = "é".repeat(100);
        for max in 0..=200 {
            let cut = truncate_middle(&text, max);
            let Some((head, rest)) = cut.split_once("\n[... ") else {
                assert_eq!((max, cut), (200, text.clone()));
                continue;
            };
            let (missing, tail) = rest.split_once(" bytes cut ...]\n").unwrap();
            let missing: usize = missing.parse().unwrap();
            assert_eq!(head.len() + missing + tail.len(), text.len());
            assert!(head.len() + tail.len() <= max);
        }
    }
}

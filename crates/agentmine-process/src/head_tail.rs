//! The head and the tail of an output of any length, with the size of the cut between them.

use crate::tail::Tail;

/// Keeps the first and the last bytes of an output.
#[derive(Debug, Default)]
pub struct HeadTail {
    head: Vec<u8>,
    head_max: usize,
    tail: Tail,
}

impl HeadTail {
    /// Keeps at most `max` bytes, half of them from the end. With 0 it keeps nothing.
    #[must_use]
    pub fn new(max: usize) -> Self {
        Self {
            head: Vec::new(),
            head_max: max.div_ceil(2),
            tail: Tail::new(max / 2),
        }
    }

    /// Adds the next part of the output.
    pub fn push(&mut self, bytes: &[u8]) {
        let room = self.head_max - self.head.len();
        let (first, rest) = bytes.split_at(room.min(bytes.len()));
        self.head.extend_from_slice(first);
        self.tail.push(rest);
    }

    /// Whether something was cut.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.tail.dropped() > 0
    }

    /// The output. Where it was cut, a note says how many bytes are missing.
    #[must_use]
    pub fn into_bytes(mut self) -> Vec<u8> {
        if self.is_cut() {
            let note = note(self.tail.dropped());
            self.head.extend_from_slice(note.as_bytes());
        }
        self.head.extend(self.tail.to_vec());
        self.head
    }

    /// The output as text. Bytes that are not UTF-8, and characters that were cut, become `U+FFFD`.
    #[must_use]
    pub fn into_text(self) -> String {
        String::from_utf8_lossy(&self.into_bytes()).into_owned()
    }
}

/// Truncates a text in the middle: keeps at most `max` bytes of its head and tail, whole characters only. A
/// note between them says how many bytes are missing.
#[must_use]
pub fn truncate_middle(text: &str, max: usize) -> String {
    if text.len() <= max {
        return text.to_owned();
    }
    let mut head = max.div_ceil(2);
    while !text.is_char_boundary(head) {
        head -= 1;
    }
    let mut tail = text.len() - max / 2;
    while !text.is_char_boundary(tail) {
        tail += 1;
    }
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
        assert!(!kept.is_cut());
        assert_eq!(kept.into_bytes(), b"0123456789");
    }

    #[test]
    fn head_and_tail_are_kept_and_the_cut_is_stated() {
        let mut kept = HeadTail::new(4);
        for byte in b'a'..=b'z' {
            kept.push(&[byte]);
        }
        assert_eq!(kept.into_bytes(), b"ab\n[... 22 bytes cut ...]\nyz");
        let mut kept = HeadTail::new(4);
        kept.push(b"abcdefghijklmnopqrstuvwxyz");
        assert_eq!(kept.into_bytes(), b"ab\n[... 22 bytes cut ...]\nyz");
    }

    #[test]
    fn character_between_head_and_tail_stays_whole_where_nothing_is_cut() {
        let mut kept = HeadTail::new(4);
        kept.push("aéz".as_bytes());
        assert_eq!(kept.into_text(), "aéz");
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

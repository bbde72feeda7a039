//! The last bytes of an output of any length.

use std::collections::VecDeque;

/// Keeps the last bytes of an output.
#[derive(Debug, Default)]
pub struct Tail {
    bytes: VecDeque<u8>,
    max: usize,
    dropped: u64,
}

impl Tail {
    /// Keeps at most `max` bytes.
    #[must_use]
    pub fn new(max: usize) -> Self {
        Self {
            max,
            ..Self::default()
        }
    }

    /// Adds the next part of the output.
    pub fn push(&mut self, bytes: &[u8]) {
        let (skipped, kept) = bytes.split_at(bytes.len().saturating_sub(self.max));
        let over = (self.bytes.len() + kept.len()).saturating_sub(self.max);
        self.bytes.drain(..over);
        self.bytes.extend(kept);
        self.dropped += (skipped.len() + over) as u64;
    }

    /// How many bytes came before those that are kept.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// A copy of the bytes that are kept.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        self.bytes.iter().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_bytes_are_kept_and_the_others_counted() {
        let mut tail = Tail::new(4);
        tail.push(b"abc");
        assert_eq!((tail.to_vec(), tail.dropped()), (b"abc".to_vec(), 0));
        tail.push(b"de");
        assert_eq!((tail.to_vec(), tail.dropped()), (b"bcde".to_vec(), 1));
        tail.push(b"fghijk");
        assert_eq!((tail.to_vec(), tail.dropped()), (b"hijk".to_vec(), 7));
    }

    #[test]
    fn default_keeps_nothing() {
        let mut tail = Tail::default();
        tail.push(b"abc");
        assert_eq!((tail.to_vec(), tail.dropped()), (Vec::new(), 3));
    }
}

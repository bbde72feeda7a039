//! Keeps the first and the last part of an output of any length.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncRead, AsyncReadExt};

/// What was kept of an output.
#[derive(Debug, Default)]
pub(crate) struct Capture {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    head_max: usize,
    tail_max: usize,
    cut: u64,
}

impl Capture {
    pub(crate) fn new(max: usize) -> Self {
        Self {
            head_max: max.div_ceil(2),
            tail_max: max / 2,
            ..Self::default()
        }
    }

    pub(crate) fn push(&mut self, mut bytes: &[u8]) {
        let room = self.head_max - self.head.len();
        let (first, rest) = bytes.split_at(room.min(bytes.len()));
        self.head.extend_from_slice(first);
        bytes = rest;
        if bytes.len() > self.tail_max {
            let skipped = bytes.len() - self.tail_max;
            self.cut += skipped as u64;
            bytes = &bytes[skipped..];
        }
        let over = (self.tail.len() + bytes.len()).saturating_sub(self.tail_max);
        self.tail.drain(..over);
        self.cut += over as u64;
        self.tail.extend(bytes);
    }

    pub(crate) fn was_cut(&self) -> bool {
        self.cut > 0
    }

    /// The text, with a note where bytes are missing.
    pub(crate) fn into_bytes(mut self) -> Vec<u8> {
        if self.cut > 0 {
            let note = format!("\n[... {} bytes cut ...]\n", self.cut);
            self.head.extend_from_slice(note.as_bytes());
        }
        self.head.extend(self.tail);
        self.head
    }
}

/// A capture that fills while it is looked at.
#[derive(Debug, Clone)]
pub(crate) struct Shared(Arc<Mutex<Capture>>);

impl Shared {
    pub(crate) fn new(max: usize) -> Self {
        Self(Arc::new(Mutex::new(Capture::new(max))))
    }

    /// Takes what was kept. What comes later is read and dropped, so that a process left in the
    /// background does not die of a closed pipe.
    pub(crate) fn take(&self) -> Capture {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads to the end.
    pub(crate) async fn fill(self, mut from: impl AsyncRead + Unpin) {
        let mut buffer = vec![0; 32 * 1024];
        while let Ok(n @ 1..) = from.read(&mut buffer).await {
            let mut capture = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            capture.push(&buffer[..n]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_output_is_kept_whole() {
        let mut capture = Capture::new(10);
        capture.push(b"01234");
        capture.push(b"56789");
        assert!(!capture.was_cut());
        assert_eq!(capture.into_bytes(), b"0123456789");
    }

    #[test]
    fn head_and_tail_are_kept_and_the_cut_is_told() {
        let mut capture = Capture::new(4);
        for byte in b'a'..=b'z' {
            capture.push(&[byte]);
        }
        assert_eq!(capture.into_bytes(), b"ab\n[... 22 bytes cut ...]\nyz");
        let mut capture = Capture::new(4);
        capture.push(b"abcdefghijklmnopqrstuvwxyz");
        assert_eq!(capture.into_bytes(), b"ab\n[... 22 bytes cut ...]\nyz");
    }

    #[test]
    fn nothing_is_kept_after_the_take() {
        let mut capture = Capture::default();
        capture.push(b"late");
        assert!(capture.head.is_empty() && capture.tail.is_empty());
    }
}

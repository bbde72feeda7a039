//! The output of a command: its beginning and its end, and how much was left out between them.

use std::collections::VecDeque;

use tokio::io::{AsyncRead, AsyncReadExt};

/// Bytes kept of the beginning, and of the end.
const KEPT: usize = 64 * 1024;

pub(super) struct Capture<R> {
    source: Option<R>,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    cut: u64,
}

/// What was captured, as text.
pub(super) struct Captured {
    pub(super) text: String,
}

impl<R: AsyncRead + Unpin> Capture<R> {
    pub(super) fn new(source: R) -> Self {
        Self {
            source: Some(source),
            head: Vec::new(),
            tail: VecDeque::new(),
            cut: 0,
        }
    }

    /// Reads to the end. Nothing is lost where this is dropped on the way and called again.
    pub(super) async fn drain(&mut self) {
        let mut buffer = vec![0_u8; 16 * 1024];
        while let Some(source) = &mut self.source {
            match source.read(&mut buffer).await {
                Ok(0) | Err(_) => self.source = None,
                Ok(read) => self.take(&buffer[..read]),
            }
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        let room = (KEPT - self.head.len()).min(bytes.len());
        self.head.extend_from_slice(&bytes[..room]);
        self.tail.extend(&bytes[room..]);
        let over = self.tail.len().saturating_sub(KEPT);
        self.tail.drain(..over);
        self.cut += over as u64;
    }

    pub(super) fn finish(mut self) -> Captured {
        let tail = self.tail.make_contiguous();
        if self.cut == 0 {
            // One text, so that a character on the border stays whole.
            self.head.extend_from_slice(tail);
            return Captured {
                text: String::from_utf8_lossy(&self.head).into_owned(),
            };
        }
        let head = String::from_utf8_lossy(&self.head);
        let tail = String::from_utf8_lossy(tail);
        Captured {
            text: format!("{head}\n[... {} bytes left out ...]\n{tail}", self.cut),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn beginning_and_end_are_kept_and_the_cut_is_told() {
        let mut bytes = vec![b'a'; KEPT];
        bytes.extend(vec![b'b'; 1000]);
        bytes.extend(vec![b'c'; KEPT]);
        let mut capture = Capture::new(bytes.as_slice());
        capture.drain().await;
        let text = capture.finish().text;
        assert!(text.starts_with("aaa") && text.ends_with("ccc"));
        assert!(text.contains("[... 1000 bytes left out ...]"));
        assert!(
            !text.contains('b') || text.matches('b').count() == 1,
            "only the word bytes"
        );
    }

    #[tokio::test]
    async fn a_character_on_the_border_stays_whole() {
        let text = format!("{}é{}", "a".repeat(KEPT - 1), "z");
        let mut capture = Capture::new(text.as_bytes());
        capture.drain().await;
        assert_eq!(capture.finish().text, text);
    }
}

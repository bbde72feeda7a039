//! The output of a command: its head and its tail.

use agentmine_process::{HeadTail, SEE_ALL};
use tokio::io::{AsyncRead, AsyncReadExt};

/// How much of one output is kept, in bytes.
const KEPT: usize = 128 * 1024;

/// Reads one output of a command.
pub(super) struct Capture<R> {
    source: Option<R>,
    kept: HeadTail,
}

impl<R: AsyncRead + Unpin> Capture<R> {
    pub(super) fn new(source: R) -> Self {
        Self {
            source: Some(source),
            kept: HeadTail::new(KEPT),
        }
    }

    /// Reads to the end. If the future is dropped, nothing is lost and a further call continues.
    pub(super) async fn drain(&mut self) {
        let mut buffer = vec![0_u8; 16 * 1024];
        while let Some(source) = &mut self.source {
            match source.read(&mut buffer).await {
                Ok(0) | Err(_) => self.source = None,
                Ok(read) => self.kept.push(&buffer[..read]),
            }
        }
    }

    /// What was kept, as text of whole lines.
    pub(super) fn into_text(self) -> String {
        self.kept
            .into_kept()
            .into_excerpt()
            .fit(KEPT)
            .into_text(SEE_ALL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn head_and_tail_are_kept_and_the_cut_is_stated() {
        let text: String = (0..100_000).map(|n| format!("{n}\n")).collect();
        let mut capture = Capture::new(text.as_bytes());
        capture.drain().await;
        let kept = capture.into_text();
        let (head, rest) = kept.split_once("[... ").unwrap();
        let (note, tail) = rest.split_once(" ...]\n").unwrap();
        assert!(text.starts_with(head) && head.ends_with('\n'));
        assert!(text.ends_with(tail) && head.len() + tail.len() <= KEPT);
        let bytes = text.len() - head.len() - tail.len();
        let lines = 100_000 - head.lines().count() - tail.lines().count();
        assert_eq!(
            note,
            format!("{bytes} bytes, {lines} lines left out: {SEE_ALL}")
        );
    }
}

//! The output of a command: its head and its tail.

use agentmine_process::HeadTail;
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

    /// What was kept, as text.
    pub(super) fn into_text(self) -> String {
        self.kept.into_text()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn head_and_tail_are_kept_and_the_cut_is_stated() {
        let mut bytes = vec![b'a'; KEPT / 2];
        bytes.extend(vec![b'b'; 1000]);
        bytes.extend(vec![b'c'; KEPT / 2]);
        let mut capture = Capture::new(bytes.as_slice());
        capture.drain().await;
        let expected = [
            "a".repeat(KEPT / 2),
            "\n[... 1000 bytes cut ...]\n".to_owned(),
            "c".repeat(KEPT / 2),
        ];
        assert_eq!(capture.into_text(), expected.concat());
    }
}

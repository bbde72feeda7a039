//! The output of a command, kept while it is read.

use std::sync::{Arc, Mutex, PoisonError};

use agentmine_process::HeadTail;
use tokio::io::{AsyncRead, AsyncReadExt};

/// A capture that can be taken while it is being filled.
#[derive(Debug, Clone)]
pub(crate) struct Capture(Arc<Mutex<HeadTail>>);

impl Capture {
    /// Keeps at most `max` bytes.
    pub(crate) fn new(max: usize) -> Self {
        Self(Arc::new(Mutex::new(HeadTail::new(max))))
    }

    /// Takes what was kept. What comes later is read and dropped, so that a process left in the background
    /// does not die of a closed pipe.
    pub(crate) fn take(&self) -> HeadTail {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads to the end.
    pub(crate) async fn fill(self, mut from: impl AsyncRead + Unpin) {
        let mut buffer = vec![0; 32 * 1024];
        while let Ok(n @ 1..) = from.read(&mut buffer).await {
            let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            kept.push(&buffer[..n]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn nothing_is_kept_after_the_take() {
        let capture = Capture::new(10);
        capture.clone().fill(&b"early"[..]).await;
        assert_eq!(capture.take().into_kept().head, b"early");
        capture.clone().fill(&b"late"[..]).await;
        let late = capture.take().into_kept();
        assert_eq!((late.head.len(), late.left_out.bytes), (0, 4));
    }
}

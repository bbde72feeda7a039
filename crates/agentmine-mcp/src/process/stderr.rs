//! The last of what a server writes to stderr.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agentmine_runtime::config::Secret;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::lock;

/// Bytes that are kept.
const KEPT: usize = 64 * 1024;
/// How long the last words of a process that has ended may take to arrive.
const LAST_WORDS: Duration = Duration::from_millis(250);
/// Characters of a line in the debug log.
const LOGGED: usize = 500;
/// Lines of one process in the debug log.
const MAX_LOGGED: usize = 10_000;
const CHUNK: usize = 4 * 1024;

/// Read without pause, so that the server never waits for us.
pub(super) struct Stderr {
    ring: Arc<Mutex<Ring>>,
    closed: watch::Receiver<bool>,
    secrets: Arc<[Secret]>,
}

#[derive(Default)]
struct Ring {
    bytes: VecDeque<u8>,
    /// Something was dropped at its beginning.
    cut: bool,
}

impl Stderr {
    pub(super) fn read<R>(server: &str, mut pipe: R, secrets: Vec<Secret>) -> Self
    where
        R: AsyncRead + Send + Unpin + 'static,
    {
        let ring = Arc::<Mutex<Ring>>::default();
        let secrets: Arc<[Secret]> = secrets.into();
        let (close, closed) = watch::channel(false);
        let (kept, hidden, server) = (ring.clone(), secrets.clone(), server.to_owned());
        tokio::spawn(async move {
            let mut chunk = vec![0; CHUNK];
            let mut log = Log::new(hidden);
            while let Ok(count @ 1..) = pipe.read(&mut chunk).await {
                let read = chunk.get(..count).unwrap_or_default();
                if tracing::enabled!(tracing::Level::DEBUG) {
                    log.push(read, |line| {
                        tracing::debug!(mcp.server = server, "stderr: {line}");
                    });
                }
                lock(&kept).push(read);
            }
            close.send_replace(true);
        });
        Self {
            ring,
            closed,
            secrets,
        }
    }

    /// As text without control characters and without the secrets that the server was given.
    pub(super) fn text(&self) -> String {
        let bytes = lock(&self.ring).whole_lines();
        plain(&bytes, &self.secrets)
    }

    /// Waits a moment for what a process wrote right before its end.
    pub(super) async fn last_words(&self) {
        let mut closed = self.closed.clone();
        let _ = timeout(LAST_WORDS, closed.wait_for(|closed| *closed)).await;
    }
}

/// Lines for the debug log: only whole ones, since half a secret would not be known, and so many.
struct Log {
    secrets: Arc<[Secret]>,
    line: Vec<u8>,
    left: usize,
}

impl Log {
    fn new(secrets: Arc<[Secret]>) -> Self {
        Self {
            secrets,
            line: Vec::new(),
            left: MAX_LOGGED,
        }
    }

    fn push(&mut self, bytes: &[u8], mut each: impl FnMut(&str)) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            if self.left == 0 {
                return;
            }
            // One byte more than may be shows that it was too long.
            let room = (CHUNK + 1).saturating_sub(self.line.len());
            self.line.extend(piece.iter().take(room));
            if !piece.ends_with(b"\n") {
                continue;
            }
            self.left -= 1;
            if self.line.len() > CHUNK {
                each("(a very long line)");
            } else {
                let line = plain(&self.line, &self.secrets);
                let line: String = line.trim_end().chars().take(LOGGED).collect();
                each(&line);
            }
            self.line.clear();
            if self.left == 0 {
                each("(what follows is not logged)");
            }
        }
    }
}

impl Ring {
    fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
        let excess = self.bytes.len().saturating_sub(KEPT);
        if excess > 0 {
            self.bytes.drain(..excess);
            self.cut = true;
        }
    }

    /// What is kept, from a line's beginning: a secret that was cut would not be known again.
    fn whole_lines(&self) -> Vec<u8> {
        let mut bytes: Vec<u8> = self.bytes.iter().copied().collect();
        if self.cut {
            let line = bytes.iter().position(|byte| *byte == b'\n');
            bytes.drain(..line.map_or(bytes.len(), |end| end + 1));
        }
        bytes
    }
}

fn plain(bytes: &[u8], secrets: &[Secret]) -> String {
    let mut text = String::from_utf8_lossy(bytes).replace("\r\n", "\n");
    for secret in secrets {
        text = text.replace(secret.expose(), "***");
    }
    text.chars()
        .map(|c| match c {
            '\n' | '\t' => c,
            c if c.is_control() => '\u{fffd}',
            c => c,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn last_64_kib_are_kept_from_the_beginning_of_a_line() {
        let mut text = "x".repeat(KEPT);
        text.push_str("\nlast line\n");
        let stderr = Stderr::read("a", std::io::Cursor::new(text), Vec::new());
        stderr.last_words().await;
        assert_eq!(stderr.text(), "last line\n");
        assert_eq!(lock(&stderr.ring).bytes.len(), KEPT);
    }

    #[test]
    fn secret_that_comes_in_two_pieces_is_not_logged() {
        let mut log = Log::new(vec![Secret::new("verysecret")].into());
        let mut lines = Vec::new();
        for piece in [
            "token=very",
            "secret\nnext",
            "\n",
            &"x".repeat(CHUNK),
            "secret\n",
        ] {
            log.push(piece.as_bytes(), |line| lines.push(line.to_owned()));
        }
        assert_eq!(lines, ["token=***", "next", "(a very long line)"]);
        log.push("\n".repeat(MAX_LOGGED).as_bytes(), |line| {
            lines.push(line.to_owned())
        });
        assert_eq!(lines.len(), MAX_LOGGED + 1);
        assert_eq!(lines.last().unwrap(), "(what follows is not logged)");
    }

    #[tokio::test]
    async fn secrets_and_control_characters_are_not_shown() {
        let text = b"token=verysecret \x1b[31mred\x07\r\n\xff".as_slice();
        let stderr = Stderr::read("a", text, vec![Secret::new("verysecret")]);
        stderr.last_words().await;
        assert_eq!(stderr.text(), "token=*** \u{fffd}[31mred\u{fffd}\n\u{fffd}");
    }
}

//! The end of what a server writes to stderr.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use agentmine_process::Tail;
use agentmine_runtime::config::Secret;
use agentmine_runtime::redact::Redactor;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::lock::lock;

/// How much is kept, in bytes.
const KEPT: usize = 64 * 1024;
/// How long the last output of a process that has ended may take to arrive.
const LAST_WORDS: Duration = Duration::from_millis(250);
/// Maximum length of a line in the debug log, in characters.
const LOGGED: usize = 500;
/// Maximum number of lines of one process in the debug log.
const MAX_LOGGED: usize = 10_000;
const CHUNK: usize = 4 * 1024;

/// Reads continuously, so that the server never waits for us.
pub(super) struct Stderr {
    tail: Arc<Mutex<Tail>>,
    closed: watch::Receiver<bool>,
    secrets: Redactor,
}

impl Stderr {
    pub(super) fn read<R>(server: &str, mut pipe: R, secrets: Vec<Secret>) -> Self
    where
        R: AsyncRead + Send + Unpin + 'static,
    {
        let tail = Arc::new(Mutex::new(Tail::new(KEPT)));
        let secrets = Redactor::new(secrets);
        let (close, closed) = watch::channel(false);
        let (kept, hidden, server) = (tail.clone(), secrets.clone(), server.to_owned());
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
            tail,
            closed,
            secrets,
        }
    }

    /// The text, without control characters and without the secrets that the server got.
    pub(super) fn text(&self) -> String {
        let bytes = whole_lines(&lock(&self.tail));
        plain(&bytes, &self.secrets)
    }

    /// Waits briefly for what a process wrote right before its end.
    pub(super) async fn last_words(&self) {
        let mut closed = self.closed.clone();
        let _ = timeout(LAST_WORDS, closed.wait_for(|closed| *closed)).await;
    }
}

/// Lines for the debug log. Only whole lines, since half a secret would not be redacted, and only the first
/// [`MAX_LOGGED`].
struct Log {
    secrets: Redactor,
    line: Vec<u8>,
    left: usize,
}

impl Log {
    fn new(secrets: Redactor) -> Self {
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
            // One byte more than allowed shows that it was too long.
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
                each("(further lines are not logged)");
            }
        }
    }
}

/// What is kept, from the beginning of a line: a truncated secret would not be redacted.
fn whole_lines(tail: &Tail) -> Vec<u8> {
    let mut bytes = tail.to_vec();
    if tail.dropped() > 0 {
        let line = bytes.iter().position(|byte| *byte == b'\n');
        bytes.drain(..line.map_or(bytes.len(), |end| end + 1));
    }
    bytes
}

fn plain(bytes: &[u8], secrets: &Redactor) -> String {
    let text = String::from_utf8_lossy(bytes).replace("\r\n", "\n");
    let text = secrets.redact(text);
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
        assert_eq!(lock(&stderr.tail).to_vec().len(), KEPT);
    }

    #[test]
    fn secret_that_comes_in_two_pieces_is_not_logged() {
        let mut log = Log::new(Redactor::new([Secret::new("verysecret")]));
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
        assert_eq!(lines.last().unwrap(), "(further lines are not logged)");
    }

    #[tokio::test]
    async fn secrets_and_control_characters_are_not_shown() {
        let text = b"token=verysecret \x1b[31mred\x07\r\n\xff".as_slice();
        let stderr = Stderr::read("a", text, vec![Secret::new("verysecret")]);
        stderr.last_words().await;
        assert_eq!(stderr.text(), "token=*** \u{fffd}[31mred\u{fffd}\n\u{fffd}");
    }
}

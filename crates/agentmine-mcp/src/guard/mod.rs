//! What a server writes, line by line, before the protocol sees it.
//!
//! Promised, whatever a server writes and however it is cut into pieces on the way:
//! - a line is what stands before a line feed; blanks around it, a carriage return and a byte order
//!   mark are taken off, and an empty one is nothing. Half a line at the end of the stream is dropped;
//! - a line longer than the limit ends the connection, and no more than the limit is ever held;
//! - a line is read as a message only if it nests at most [`MAX_DEPTH`] deep and holds at most
//!   [`MAX_VALUES`] values, since a value takes many times its text in memory; more than that ends the
//!   connection. What else is no message (invalid UTF-8, NUL bytes, no JSON, no JSON-RPC, an id that
//!   is no whole number and no string) is garbage: dropped, and counted up to [`MAX_GARBAGE`];
//! - an array is a batch, as the revision of 2025-03-26 allowed: up to [`MAX_BATCH`] messages, each
//!   judged on its own.
//!
//! `cargo install cargo-fuzz` and, in `fuzz/`,
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run --sanitizer none line_reader -- -max_total_time=180 -max_len=4096`
//! fuzz it by libFuzzer; `PROPTEST_CASES=100000 cargo test -p agentmine-mcp --release guard` does so by
//! the properties below.

use rmcp::model::ServerJsonRpcMessage;
use serde::Deserializer as _;
use serde::de::{Deserialize, SeqAccess, Visitor};
use serde_json::Value;

/// Lines that are not messages, over the life of a connection.
pub(crate) const MAX_GARBAGE: usize = 1_000;
/// Arrays and objects within each other; one less than what the JSON reader itself refuses.
pub(crate) const MAX_DEPTH: usize = 127;
/// Values (and keys) of one line.
pub(crate) const MAX_VALUES: usize = 250_000;
/// Messages of one batch.
pub(crate) const MAX_BATCH: usize = 1_000;
/// A buffer that has grown past this is let go after its line.
const KEPT: usize = 64 * 1024;

/// Puts lines together.
#[derive(Debug)]
pub(crate) struct Lines {
    max: usize,
    line: Vec<u8>,
}

/// A line was longer than the limit.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooLong;

impl Lines {
    pub(crate) fn new(max: usize) -> Self {
        Self {
            max,
            line: Vec::new(),
        }
    }

    /// Takes what was read, and hands out each line that it completes, without its end.
    pub(crate) fn push(
        &mut self,
        chunk: &[u8],
        mut each: impl FnMut(&[u8]),
    ) -> Result<(), TooLong> {
        for piece in chunk.split_inclusive(|byte| *byte == b'\n') {
            let content = piece.strip_suffix(b"\n").unwrap_or(piece);
            let whole = content.len() < piece.len();
            if self.line.len() + content.len() > self.max {
                self.line = Vec::new();
                return Err(TooLong);
            }
            if whole && self.line.is_empty() {
                each(content);
                continue;
            }
            self.hold(content);
            if whole {
                each(&self.line);
                self.line.clear();
                if self.line.capacity() > KEPT {
                    self.line = Vec::new();
                }
            }
        }
        Ok(())
    }

    /// Whether a line has begun and not ended.
    pub(crate) fn half(&self) -> bool {
        !self.line.is_empty()
    }

    /// Grows by doubling, but never past the limit.
    fn hold(&mut self, content: &[u8]) {
        let needed = self.line.len() + content.len();
        if needed > self.line.capacity() {
            let wanted = needed.max(self.line.capacity() * 2).min(self.max);
            self.line.reserve_exact(wanted - self.line.len());
        }
        self.line.extend_from_slice(content);
    }
}

/// What a line is.
#[derive(Debug)]
pub(crate) enum Line {
    /// Nothing but blanks.
    Empty,
    /// Messages, and how much garbage stood between them.
    Messages(Vec<ServerJsonRpcMessage>, usize),
    /// Not the protocol.
    Garbage,
    /// More than a message may be.
    Monster,
}

/// Reads one line.
pub(crate) fn read(line: &[u8]) -> Line {
    let line = line.trim_ascii();
    let line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line);
    let line = line.trim_ascii_start();
    let first = match line.first() {
        None => return Line::Empty,
        Some(first) => *first,
    };
    if !fits(line) {
        return Line::Monster;
    }
    match first {
        b'{' => match serde_json::from_slice(line) {
            Ok(message) => Line::Messages(vec![message], 0),
            Err(_) => Line::Garbage,
        },
        b'[' => {
            let mut reader = serde_json::Deserializer::from_slice(line);
            match reader
                .deserialize_seq(Batch)
                .map(|batch| (batch, reader.end()))
            {
                Ok(((messages, garbage), Ok(()))) => Line::Messages(messages, garbage),
                _ => Line::Garbage,
            }
        }
        _ => Line::Garbage,
    }
}

/// Counts without reading: commas, colons and brackets outside of strings.
fn fits(line: &[u8]) -> bool {
    let (mut depth, mut values, mut quoted, mut escaped) = (0_usize, 1_usize, false, false);
    for byte in line {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ if quoted => {}
            b'[' | b'{' => {
                depth += 1;
                values += 1;
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            b',' | b':' => values += 1,
            _ => {}
        }
        if depth > MAX_DEPTH || values > MAX_VALUES {
            return false;
        }
    }
    true
}

/// Reads a batch; what is no message in it is counted.
struct Batch;

impl<'de> Visitor<'de> for Batch {
    type Value = (Vec<ServerJsonRpcMessage>, usize);

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a batch")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let (mut messages, mut garbage) = (Vec::new(), 0);
        while let Some(entry) = entries.next_element::<Value>()? {
            match ServerJsonRpcMessage::deserialize(entry) {
                Ok(message) => messages.push(message),
                Err(_) => garbage += 1,
            }
            if messages.len() + garbage > MAX_BATCH {
                return Err(serde::de::Error::custom("too many"));
            }
        }
        Ok((messages, garbage))
    }
}

#[cfg(test)]
mod tests;

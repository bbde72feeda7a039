//! Splits the output of a server into lines, and reads lines as messages.
//!
//! Guaranteed for any output and however it is split into chunks:
//! - A line ends with a line feed. Spaces around it, a carriage return and a byte order mark are removed, and
//!   an empty line is ignored. An incomplete line at the end of the stream is dropped.
//! - A line longer than the limit ends the connection, and no more than the limit is ever kept.
//! - A line is read as a message only if it nests at most [`MAX_DEPTH`] deep and holds at most
//!   [`MAX_VALUES`] values, since a value takes many times its text in memory; more than that ends the
//!   connection. Everything else that is not a message (NUL bytes, not JSON, not JSON-RPC, an id that is
//!   neither a whole number nor a string) is garbage: dropped, and counted up to [`MAX_GARBAGE`] since the last
//!   message.
//! - Invalid UTF-8 is garbage too, but the request that such a line answers fails at once, with the reason.
//! - An array is a batch, as the revision of 2025-03-26 allowed: up to [`MAX_BATCH`] messages, each
//!   read on its own.
//!
//! `cargo install cargo-fuzz` and, in `fuzz/`,
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run --sanitizer none line_reader -- -max_total_time=180 -max_len=4096`
//! fuzz it by libFuzzer; `PROPTEST_CASES=100000 cargo test -p agentmine-mcp --release lines` does so by
//! the properties in its tests.

use rmcp::ErrorData;
use rmcp::model::{
    CustomResult, ErrorCode, JsonRpcMessage, JsonRpcVersion2_0, RequestId, ServerJsonRpcMessage,
    ServerResult,
};
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

/// Lines that are not messages, between two messages: a server may log to stdout for as long as it answers.
pub(crate) const MAX_GARBAGE: usize = 1_000;
/// Arrays and objects within each other; one less than what the JSON reader itself refuses.
pub(crate) const MAX_DEPTH: usize = 127;
/// Values (and keys) of one line.
pub(crate) const MAX_VALUES: usize = 250_000;
/// Messages of one batch.
pub(crate) const MAX_BATCH: usize = 1_000;
/// A buffer that has grown past this is freed after its line.
const KEPT: usize = 64 * 1024;

/// Collects lines.
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

    /// Reads a chunk, and passes on each line that it completes, without its end.
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

    /// Whether a line is incomplete.
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

/// The content of a line.
#[derive(Debug)]
pub(crate) enum Line {
    /// Only spaces.
    Empty,
    /// Messages, and the number of entries of a batch that are not messages.
    Messages(Vec<ServerJsonRpcMessage>, usize),
    /// Not the protocol.
    Garbage,
    /// More than a message may be.
    TooMuch,
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
        return Line::TooMuch;
    }
    match first {
        b'{' => match message(line) {
            Some(message) => Line::Messages(vec![message], 0),
            None => match unreadable_answer(line) {
                Some(failure) => Line::Messages(vec![failure], 1),
                None => Line::Garbage,
            },
        },
        b'[' => match serde_json::from_slice::<Vec<Value>>(line) {
            Ok(entries) if entries.len() <= MAX_BATCH => {
                let count = entries.len();
                let read = entries.into_iter().filter_map(|entry| {
                    result(&entry).or_else(|| ServerJsonRpcMessage::deserialize(entry).ok())
                });
                let messages: Vec<_> = read.collect();
                let garbage = count - messages.len();
                Line::Messages(messages, garbage)
            }
            Ok(_) | Err(_) => Line::Garbage,
        },
        _ => Line::Garbage,
    }
}

/// The message, if it has a result: as JSON, since rmcp's type is found by trying one after the other. Servers that
/// write both `result` and `error`, one of them `null`, are understood.
fn result<'de, D: Deserializer<'de>>(message: D) -> Option<ServerJsonRpcMessage> {
    #[derive(Deserialize)]
    struct Message {
        #[serde(rename = "jsonrpc")]
        _version: JsonRpcVersion2_0,
        id: Option<RequestId>,
        result: Value,
        method: Option<IgnoredAny>,
        error: Option<ErrorData>,
    }
    let message = Message::deserialize(message).ok()?;
    match (message.id, message.error) {
        _ if message.method.is_some() => None,
        (Some(id), None) => {
            let result = ServerResult::CustomResult(CustomResult(message.result));
            Some(JsonRpcMessage::response(result, id))
        }
        (id, Some(error)) if message.result.is_null() => Some(JsonRpcMessage::error(error, id)),
        _ => None,
    }
}

/// One message, of a line that is an object.
fn message(line: &[u8]) -> Option<ServerJsonRpcMessage> {
    let text = std::str::from_utf8(line).ok()?;
    let mut reader = serde_json::Deserializer::from_str(text);
    result(&mut reader)
        .filter(|_| reader.end().is_ok())
        .or_else(|| serde_json::from_str(text).ok())
}

/// In the data of an error that we make when an answer is not valid UTF-8.
pub(crate) const NOT_UTF8: &str = "agentmine/notUtf8";

/// The failure of the request that a line with invalid UTF-8 answers.
fn unreadable_answer(line: &[u8]) -> Option<ServerJsonRpcMessage> {
    let at = std::str::from_utf8(line).err()?.valid_up_to();
    let byte = line.get(at)?;
    let message: Value = serde_json::from_str(&String::from_utf8_lossy(line)).ok()?;
    if message.get("method").is_some() {
        return None;
    }
    let id = RequestId::deserialize(message.get("id")?).ok()?;
    let words =
        format!("its answer is not valid UTF-8: the byte 0x{byte:02x} at offset {at} of the line");
    let data = Some(json!({ NOT_UTF8: true }));
    let error = ErrorData::new(ErrorCode::PARSE_ERROR, words, data);
    Some(JsonRpcMessage::error(error, Some(id)))
}

/// Counts without parsing: commas, colons and brackets outside of strings.
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

#[cfg(test)]
mod tests;

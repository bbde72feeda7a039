//! Server-sent events, as far as model APIs use them.
//!
//! Bytes may be cut anywhere, also in the middle of a character: lines are split as bytes, and only a
//! whole line is read as text. The size of one event is bounded here, that of the whole response by the
//! reader of the body.

/// Bytes of one event at most.
const MAX_EVENT: usize = 8 << 20;

/// An event grew past [`MAX_EVENT`].
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event of the stream is larger than {MAX_EVENT} bytes")]
pub(crate) struct TooLarge;

/// Turns bytes into the data of each complete event.
#[derive(Debug, Default)]
pub(crate) struct Parser {
    /// The current line so far.
    line: Vec<u8>,
    /// The data lines of the current event; `None` before the first one.
    data: Option<Vec<u8>>,
    /// The last byte was a carriage return: a line feed after it belongs to the same line end.
    after_cr: bool,
    /// Something other than a byte order mark has been seen.
    started: bool,
}

impl Parser {
    /// Adds bytes and returns the data of the events that they complete, in order.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<Vec<String>, TooLarge> {
        let mut events = Vec::new();
        for &byte in bytes {
            let after_cr = std::mem::replace(&mut self.after_cr, byte == b'\r');
            match byte {
                b'\n' if after_cr => {}
                b'\n' | b'\r' => self.end_of_line(&mut events),
                _ => self.line.push(byte),
            }
            if self.line.len() + self.data.as_ref().map_or(0, Vec::len) > MAX_EVENT {
                return Err(TooLarge);
            }
        }
        Ok(events)
    }

    /// The last event if no empty line ended it. The standard drops it; some servers omit the last
    /// empty line, and the caller can distinguish a whole event from a cut one.
    pub(crate) fn finish(mut self) -> Option<String> {
        let mut events = Vec::new();
        if !self.line.is_empty() {
            self.end_of_line(&mut events);
        }
        self.end_of_event(&mut events);
        events.pop()
    }

    fn end_of_line(&mut self, events: &mut Vec<String>) {
        let mut line = std::mem::take(&mut self.line);
        if !std::mem::replace(&mut self.started, true) && line.starts_with(b"\xef\xbb\xbf") {
            line.drain(..3);
        }
        if line.is_empty() {
            return self.end_of_event(events);
        }
        // A comment has an empty field name; `event`, `id` and `retry` are not needed.
        let (field, value) = match line.iter().position(|&byte| byte == b':') {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (&line[..], &[][..]),
        };
        if field == b"data" {
            let value = value.strip_prefix(b" ").unwrap_or(value);
            match &mut self.data {
                Some(data) => {
                    data.push(b'\n');
                    data.extend_from_slice(value);
                }
                None => self.data = Some(value.to_vec()),
            }
        }
    }

    fn end_of_event(&mut self, events: &mut Vec<String>) {
        if let Some(data) = self.data.take() {
            events.push(String::from_utf8_lossy(&data).into_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &str = "\u{feff}: a comment\r\nevent: x\r\ndata: {\"a\":\r\ndata: \"挨拶 👋\"}\r\n\r\n\
        data:no space\n\nid: 7\n\ndata\n\n: ping\rdata: three\r\rdata: [DONE]\n\n";

    const EVENTS: [&str; 5] = ["{\"a\":\n\"挨拶 👋\"}", "no space", "", "three", "[DONE]"];

    #[test]
    fn events_are_the_same_however_the_bytes_are_cut() {
        let bytes = STREAM.as_bytes();
        assert_eq!(Parser::default().push(bytes).unwrap(), EVENTS);
        for first in 0..bytes.len() {
            for second in [
                first,
                (first + 1).min(bytes.len()),
                (first + bytes.len()) / 2,
            ] {
                let mut parser = Parser::default();
                let mut seen = Vec::new();
                for part in [&bytes[..first], &bytes[first..second], &bytes[second..]] {
                    seen.extend(parser.push(part).unwrap());
                }
                assert_eq!(seen, EVENTS, "cut at {first} and {second}");
            }
        }
        let mut parser = Parser::default();
        let seen: Vec<_> = bytes
            .iter()
            .flat_map(|&byte| parser.push(&[byte]).unwrap())
            .collect();
        assert_eq!(seen, EVENTS);
    }

    #[test]
    fn an_event_without_its_empty_line_is_given_at_the_end() {
        let mut parser = Parser::default();
        assert!(parser.push(b"data: last").unwrap().is_empty());
        assert_eq!(parser.finish().as_deref(), Some("last"));
        assert_eq!(Parser::default().finish(), None);
    }

    #[test]
    fn bytes_that_are_no_text_are_replaced() {
        let seen = Parser::default().push(b"data: \xff\n\n").unwrap();
        assert_eq!(seen, ["\u{fffd}"]);
    }

    #[test]
    fn an_endless_event_is_refused() {
        let mut parser = Parser::default();
        let block = vec![b'x'; 1 << 20];
        let result = (0..10).try_for_each(|_| parser.push(&block).map(drop));
        assert_eq!(result, Err(TooLarge));

        let mut parser = Parser::default();
        let line = [b"data: ".as_slice(), &block, b"\n"].concat();
        let result = (0..10).try_for_each(|_| parser.push(&line).map(drop));
        assert_eq!(result, Err(TooLarge));
    }
}

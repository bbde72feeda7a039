//! pkt-lines, as far as pushes and lists of refs need them.

use gix_packetline::{PacketLineRef, decode};

/// The bytes are not what git would send.
#[derive(Debug, thiserror::Error)]
#[error("malformed pkt-line")]
pub(crate) struct Malformed;

/// Reads pkt-lines from the front of a buffer.
#[derive(Debug)]
pub(crate) struct Lines<'a> {
    rest: &'a [u8],
    consumed: usize,
}

impl<'a> Lines<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self {
            rest: bytes,
            consumed: 0,
        }
    }

    /// Bytes read so far.
    pub(crate) fn consumed(&self) -> usize {
        self.consumed
    }

    /// The next line, `None` at the end of the buffer. An incomplete line is an error.
    pub(crate) fn next(&mut self) -> Result<Option<PacketLineRef<'a>>, Malformed> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        match decode::streaming(self.rest) {
            Ok(decode::Stream::Complete {
                line,
                bytes_consumed,
            }) => {
                self.rest = self.rest.get(bytes_consumed..).ok_or(Malformed)?;
                self.consumed += bytes_consumed;
                Ok(Some(line))
            }
            Ok(decode::Stream::Incomplete { .. }) | Err(_) => Err(Malformed),
        }
    }
}

/// Appends one data line. `data` is truncated to what one line can hold.
pub(crate) fn data(out: &mut Vec<u8>, data: &[u8]) {
    const MOST: usize = 65_516;
    let data = &data[..data.len().min(MOST)];
    out.extend_from_slice(format!("{:04x}", data.len() + 4).as_bytes());
    out.extend_from_slice(data);
}

/// Appends a flush line.
pub(crate) fn flush(out: &mut Vec<u8>) {
    out.extend_from_slice(b"0000");
}

/// Appends `payload` on a side band, in as many lines as needed.
pub(crate) fn band(out: &mut Vec<u8>, channel: u8, payload: &[u8]) {
    for chunk in payload.chunks(65_515) {
        let mut line = Vec::with_capacity(chunk.len() + 1);
        line.push(channel);
        line.extend_from_slice(chunk);
        data(out, &line);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut out = Vec::new();
        data(&mut out, b"hello\n");
        flush(&mut out);
        let mut lines = Lines::new(&out);
        assert_eq!(
            lines.next().unwrap().unwrap().as_slice(),
            Some(&b"hello\n"[..])
        );
        assert!(matches!(lines.next().unwrap(), Some(PacketLineRef::Flush)));
        assert_eq!(lines.consumed(), out.len());
        assert!(lines.next().unwrap().is_none());
    }

    proptest! {
        #[test]
        fn any_bytes_end_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut lines = Lines::new(&bytes);
            while let Ok(Some(_)) = lines.next() {}
            prop_assert!(lines.consumed() <= bytes.len());
        }

        #[test]
        fn hex_like_bytes_end_without_a_panic(text in "[0-9a-fA-F]{0,64}") {
            let mut lines = Lines::new(text.as_bytes());
            while let Ok(Some(_)) = lines.next() {}
        }
    }
}

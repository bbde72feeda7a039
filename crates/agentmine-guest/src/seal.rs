//! Authenticates the bytes between worker and guest.
//!
//! What a guest starts runs as the same user, and the guest's pipes are files of that user. The kernel keeps them
//! apart where it can; this makes sure that nobody who gets hold of a pipe can speak for the guest. The worker
//! writes a random [`Key`] of this sandbox to the guest's stdin before anything else runs there. From then on
//! both directions consist of records: a length (`u32`, big endian), that many bytes, and the first
//! `TAG` bytes of HMAC-SHA-256 over the direction, the record's number and those bytes. A record that was
//! added, changed, repeated or left out ends the stream with an error. The bytes are not encrypted: there is
//! nobody to hide them from.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use hmac::{Hmac, Mac as _};
use sha2::Sha256;
use tokio::io::{AsyncRead, AsyncWrite, BufReader, ReadBuf};

use crate::mux::End;

/// Bytes of a key.
pub const KEY: usize = 32;
/// Bytes of a tag.
const TAG: usize = 16;
const LENGTH: usize = 4;
/// Maximum number of bytes in a record.
const MAX_RECORD: usize = 64 * 1024;
/// The first bytes of a hello without a seal, which is never passed on.
const UNSEALED_HELLO: [u8; LENGTH] = [
    crate::protocol::MAGIC[0],
    crate::protocol::MAGIC[1],
    crate::protocol::MAGIC[2],
    crate::protocol::MAGIC[3],
];

/// The key of one sandbox.
pub struct Key([u8; KEY]);

impl Key {
    /// A key of these bytes.
    #[must_use]
    pub fn new(bytes: [u8; KEY]) -> Self {
        Self(bytes)
    }

    /// What `end` writes with, and what it reads with.
    #[must_use]
    pub fn halves(&self, end: End) -> (Sealer, Opener) {
        let (ours, theirs) = match end {
            End::Worker => (b'w', b'g'),
            End::Guest => (b'g', b'w'),
        };
        (Sealer(self.tags(ours)), Opener(self.tags(theirs)))
    }

    fn tags(&self, direction: u8) -> Tags {
        #[expect(clippy::expect_used, reason = "HMAC takes keys of any length")]
        let mut keyed = Hmac::new_from_slice(&self.0).expect("any length is valid");
        keyed.update(&[direction]);
        Tags { keyed, next: 0 }
    }
}

/// The tags of one direction.
struct Tags {
    keyed: Hmac<Sha256>,
    next: u64,
}

impl Tags {
    fn next(&mut self, payload: &[u8]) -> Hmac<Sha256> {
        let mut mac = self.keyed.clone();
        mac.update(&self.next.to_be_bytes());
        mac.update(payload);
        self.next += 1;
        mac
    }
}

/// Seals records of one direction.
pub struct Sealer(Tags);

impl Sealer {
    /// Appends the records of `payload` to `out`.
    pub fn seal(&mut self, payload: &[u8], out: &mut Vec<u8>) {
        for payload in payload.chunks(MAX_RECORD) {
            let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
            out.extend(length.to_be_bytes());
            out.extend(payload);
            let tag = self.0.next(payload).finalize().into_bytes();
            out.extend(&tag[..TAG]);
        }
    }
}

/// Opens records of one direction.
pub struct Opener(Tags);

impl Opener {
    fn open(&mut self, payload: &[u8], tag: &[u8]) -> io::Result<()> {
        let checked = self.0.next(payload).verify_truncated_left(tag);
        checked.map_err(|_| forged("a record was not written by its other end"))
    }
}

/// A byte stream whose bytes are sealed.
pub struct Sealed<T> {
    io: BufReader<T>,
    sealer: Sealer,
    opener: Opener,
    /// Records to be written, from `written` on.
    out: Vec<u8>,
    written: usize,
    /// The record that is read, of which `filled` bytes have arrived.
    record: Vec<u8>,
    filled: usize,
    /// Bytes of the record that were checked and not yet passed on.
    ready: std::ops::Range<usize>,
    prefix: Prefix,
}

/// What may precede the first record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Prefix {
    /// Nothing.
    None,
    /// The text of an engine that could not start the guest.
    Text,
    /// Such a text was seen, and everything else belongs to it.
    Seen,
}

impl<T: AsyncRead + AsyncWrite> Sealed<T> {
    /// Seals what is written to `io`, and opens what is read from it. The worker reads the text of an engine that
    /// could not start the guest as it is, but never a hello.
    pub fn new(io: T, end: End, (sealer, opener): (Sealer, Opener)) -> Self {
        Self {
            io: BufReader::with_capacity(MAX_RECORD, io),
            sealer,
            opener,
            out: Vec::new(),
            written: 0,
            record: vec![0; LENGTH],
            filled: 0,
            ready: 0..0,
            prefix: match end {
                End::Worker => Prefix::Text,
                End::Guest => Prefix::None,
            },
        }
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> Sealed<T> {
    /// Reads until the record is full. `false` at the end of the stream.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        while self.filled < self.record.len() {
            let mut buf = ReadBuf::new(&mut self.record[self.filled..]);
            ready!(Pin::new(&mut self.io).poll_read(cx, &mut buf))?;
            match buf.filled().len() {
                0 => return Poll::Ready(Ok(false)),
                n => self.filled += n,
            }
        }
        Poll::Ready(Ok(true))
    }

    /// Makes the next bytes ready. `false` at the end of the stream.
    fn poll_record(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        loop {
            let full = ready!(self.poll_fill(cx))?;
            if self.prefix == Prefix::Seen {
                self.ready = 0..self.filled;
                self.filled = 0;
                return Poll::Ready(Ok(full || !self.ready.is_empty()));
            }
            if !full {
                match (self.filled, self.prefix) {
                    (0, _) => return Poll::Ready(Ok(false)),
                    (_, Prefix::Text) => self.prefix = Prefix::Seen,
                    (_, Prefix::None | Prefix::Seen) => {
                        return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
                    }
                }
                continue;
            }
            if self.record.len() == LENGTH {
                let header = [0, 1, 2, 3].map(|at| self.record[at]);
                let length = u32::from_be_bytes(header) as usize;
                match (length, self.prefix) {
                    (1..=MAX_RECORD, _) => {
                        self.prefix = Prefix::None;
                        self.record.resize(LENGTH + length + TAG, 0);
                    }
                    (_, Prefix::Text) if header != UNSEALED_HELLO => {
                        self.prefix = Prefix::Seen;
                    }
                    _ => return Poll::Ready(Err(forged("a record of an impossible length"))),
                }
                continue;
            }
            let (payload, tag) = self.record[LENGTH..].split_at(self.filled - LENGTH - TAG);
            self.opener.open(payload, tag)?;
            self.ready = LENGTH..self.filled - TAG;
            return Poll::Ready(Ok(true));
        }
    }

    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.written < self.out.len() {
            let rest = &self.out[self.written..];
            match ready!(Pin::new(&mut self.io).poll_write(cx, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                n => self.written += n,
            }
        }
        self.out.clear();
        self.written = 0;
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncRead for Sealed<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.ready.is_empty() {
            if !ready!(this.poll_record(cx))? {
                return Poll::Ready(Ok(()));
            }
            if this.prefix == Prefix::None {
                this.filled = 0;
            }
        }
        let n = this.ready.len().min(buf.remaining());
        buf.put_slice(&this.record[this.ready.start..this.ready.start + n]);
        this.ready.start += n;
        if this.ready.is_empty() && this.prefix == Prefix::None {
            this.record.truncate(LENGTH);
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Sealed<T> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_drain(cx))?;
        let taken = &buf[..buf.len().min(MAX_RECORD)];
        this.sealer.seal(taken, &mut this.out);
        // What the other side does not take now is written by the next call.
        if let Poll::Ready(Err(error)) = this.poll_drain(cx) {
            return Poll::Ready(Err(error));
        }
        Poll::Ready(Ok(taken.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_drain(cx))?;
        Pin::new(&mut this.io).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_drain(cx))?;
        Pin::new(&mut this.io).poll_shutdown(cx)
    }
}

fn forged(what: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("{what}: something else in the sandbox wrote into the guest's stream"),
    )
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

    use super::*;

    fn key() -> Key {
        Key::new([7; KEY])
    }

    fn records(payloads: &[&[u8]]) -> Vec<Vec<u8>> {
        let (mut sealer, _) = key().halves(End::Guest);
        let seal = |payload: &&[u8]| {
            let mut out = Vec::new();
            sealer.seal(payload, &mut out);
            out
        };
        payloads.iter().map(seal).collect()
    }

    /// What the worker reads of these bytes.
    async fn read(bytes: &[u8]) -> io::Result<Vec<u8>> {
        let (ours, mut theirs) = tokio::io::duplex(1 << 20);
        theirs.write_all(bytes).await.unwrap();
        drop(theirs);
        let mut sealed = Sealed::new(ours, End::Worker, key().halves(End::Worker));
        let mut got = Vec::new();
        sealed.read_to_end(&mut got).await.map(|_| got)
    }

    fn ends() -> (Sealed<DuplexStream>, Sealed<DuplexStream>) {
        let (a, b) = tokio::io::duplex(1000);
        (
            Sealed::new(a, End::Worker, key().halves(End::Worker)),
            Sealed::new(b, End::Guest, key().halves(End::Guest)),
        )
    }

    #[tokio::test]
    async fn bytes_of_any_number_arrive_in_both_directions() {
        let (mut worker, mut guest) = ends();
        let sent: Vec<u8> = (0..300_000_u32).map(|n| n as u8).collect();
        let expected = sent.clone();
        let back = tokio::spawn(async move {
            let mut got = vec![0; expected.len()];
            guest.read_exact(&mut got).await.unwrap();
            assert_eq!(got, expected);
            guest.write_all(&got).await.unwrap();
            guest.shutdown().await.unwrap();
        });
        worker.write_all(&sent).await.unwrap();
        worker.flush().await.unwrap();
        let mut got = Vec::new();
        worker.read_to_end(&mut got).await.unwrap();
        assert_eq!(got, sent);
        back.await.unwrap();
    }

    #[tokio::test]
    async fn only_the_other_ends_records_in_their_order_are_read() {
        let sealed = records(&[b"one", b"two"]);
        let (one, two) = (&sealed[0], &sealed[1]);
        assert_eq!(read(&sealed.concat()).await.unwrap(), b"onetwo");
        let mut changed = sealed.concat();
        changed[LENGTH] ^= 1;
        let (mut own, _) = key().halves(End::Worker);
        let (mut other, _) = Key::new([8; KEY]).halves(End::Guest);
        let (mut reflected, mut foreign) = (Vec::new(), Vec::new());
        own.seal(b"one", &mut reflected);
        other.seal(b"one", &mut foreign);
        for forged in [
            changed,
            [one.clone(), one.clone()].concat(),
            two.clone(),
            reflected,
            foreign,
            [one.as_slice(), b"exit 0"].concat(),
            [one.as_slice(), &[0; 40]].concat(),
        ] {
            let error = read(&forged).await.unwrap_err();
            let expected = [io::ErrorKind::InvalidData, io::ErrorKind::UnexpectedEof];
            assert!(expected.contains(&error.kind()), "{error}");
        }
        let cut = read(&one[..one.len() - 1]).await.unwrap_err();
        assert_eq!(cut.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[tokio::test]
    async fn an_engines_text_is_read_and_a_hello_without_a_seal_is_not() {
        let text = b"OCI runtime exec failed: no such file";
        assert_eq!(read(text).await.unwrap(), text);
        assert_eq!(read(b"no").await.unwrap(), b"no");
        let mut hello = crate::protocol::MAGIC.to_vec();
        hello.extend(b"\0\0\0\x02{}");
        let error = read(&hello).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}

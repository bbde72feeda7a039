//! What the guest makes the worker hold, and how fast it may make it work.
//!
//! Yamux limits the bytes of each stream, not the frames: each of a byte costs about a hundred. So the frames that
//! nobody has read are counted, from the data that arrives and the window updates that go back, and small frames
//! are limited in number for each second. A guest that exceeds either ends its tunnel.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Why a tunnel ended that was misused; the rest of the reason follows.
pub(super) const MISUSED: &str = "the sandbox misused its tunnel";

/// Frames that arrived and were not read, of all streams: about 20 MB beside their content.
const MAX_HELD: usize = 200_000;
/// Streams that are known; far more than may be open. The rest have ended while a frame was on its way.
const MAX_KNOWN: usize = 4096;
/// Frames with less content are small.
const SMALL: u32 = 256;
/// Small frames that may arrive at once.
const BURST: f64 = 100_000.0;
/// Small frames that may arrive in each second.
const PER_SECOND: f64 = 20_000.0;

/// Size of the head of a frame (the specification of yamux).
const HEADER: usize = 12;
const DATA: u8 = 0;
const WINDOW_UPDATE: u8 = 1;
const FIN: u16 = 4;
const RST: u16 = 8;

/// A byte stream of yamux whose frames are counted.
#[derive(Debug)]
pub(super) struct Metered<T> {
    io: T,
    arriving: Frames,
    leaving: Frames,
    meter: Meter,
}

impl<T> Metered<T> {
    pub(super) fn new(io: T) -> Self {
        Self {
            io,
            arriving: Frames::default(),
            leaving: Frames::default(),
            meter: Meter::new(Instant::now()),
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Metered<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let this = &mut *self;
        std::task::ready!(Pin::new(&mut this.io).poll_read(cx, buf))?;
        let (meter, now) = (&mut this.meter, Instant::now());
        let counted = this
            .arriving
            .each(&buf.filled()[before..], |frame| meter.arrived(frame, now));
        Poll::Ready(
            counted.map_err(|why| {
                io::Error::new(io::ErrorKind::InvalidData, format!("{MISUSED}: {why}"))
            }),
        )
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Metered<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let written = std::task::ready!(Pin::new(&mut this.io).poll_write(cx, buf))?;
        let meter = &mut this.meter;
        let sent = this.leaving.each(&buf[..written], |frame| {
            meter.left(frame);
            Ok(())
        });
        debug_assert!(sent.is_ok());
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

/// The head of a frame.
#[derive(Debug, Clone, Copy)]
struct Frame {
    kind: u8,
    flags: u16,
    stream: u32,
    length: u32,
}

/// Finds the heads of frames in one direction, in pieces of any size.
#[derive(Debug, Default)]
struct Frames {
    head: [u8; HEADER],
    have: usize,
    /// Bytes of content until the next head.
    content: usize,
}

impl Frames {
    fn each(
        &mut self,
        mut bytes: &[u8],
        mut found: impl FnMut(Frame) -> Result<(), &'static str>,
    ) -> Result<(), &'static str> {
        while !bytes.is_empty() {
            let skipped = self.content.min(bytes.len());
            self.content -= skipped;
            bytes = &bytes[skipped..];
            let taken = (HEADER - self.have).min(bytes.len());
            self.head[self.have..self.have + taken].copy_from_slice(&bytes[..taken]);
            self.have += taken;
            bytes = &bytes[taken..];
            if self.have < HEADER {
                continue;
            }
            self.have = 0;
            let [_, kind, f0, f1, s0, s1, s2, s3, l0, l1, l2, l3] = self.head;
            let frame = Frame {
                kind,
                flags: u16::from_be_bytes([f0, f1]),
                stream: u32::from_be_bytes([s0, s1, s2, s3]),
                length: u32::from_be_bytes([l0, l1, l2, l3]),
            };
            if kind == DATA {
                self.content = frame.length as usize;
            }
            found(frame)?;
        }
        Ok(())
    }
}

/// What the worker holds for the guest.
#[derive(Debug)]
struct Meter {
    /// The content of each frame that was not read, by stream, and which sides have finished.
    held: HashMap<u32, Stream>,
    frames: usize,
    tokens: f64,
    refilled: Instant,
}

#[derive(Debug, Default)]
struct Stream {
    frames: VecDeque<u32>,
    finished_there: bool,
    finished_here: bool,
}

impl Meter {
    fn new(now: Instant) -> Self {
        Self {
            held: HashMap::new(),
            frames: 0,
            tokens: BURST,
            refilled: now,
        }
    }

    fn arrived(&mut self, frame: Frame, now: Instant) -> Result<(), &'static str> {
        let is_small = frame.kind != DATA || frame.length < SMALL;
        if is_small && !self.takes_one(now) {
            return Err("it sent more than 20000 small frames in a second");
        }
        if frame.kind == DATA {
            let stream = self.held.entry(frame.stream).or_default();
            stream.frames.push_back(frame.length);
            self.frames += 1;
        }
        if let Some(stream) = self.held.get_mut(&frame.stream) {
            stream.finished_there |= frame.flags & FIN != 0;
        }
        self.forget_if_done(frame);
        if self.frames > MAX_HELD {
            return Err("it sent more than 200000 frames that nobody has read");
        }
        Ok(())
    }

    /// A window update gives back what was read.
    fn left(&mut self, frame: Frame) {
        if frame.flags & FIN != 0 {
            if self.held.len() > MAX_KNOWN {
                self.held.retain(|_, stream| !stream.frames.is_empty());
            }
            // It may still receive.
            self.held.entry(frame.stream).or_default();
        }
        if let Some(stream) = self.held.get_mut(&frame.stream) {
            let mut read = match frame.kind {
                WINDOW_UPDATE => frame.length,
                _ => 0,
            };
            while let Some(first) = stream.frames.front_mut() {
                if *first > read {
                    *first -= read;
                    break;
                }
                read -= *first;
                stream.frames.pop_front();
                self.frames -= 1;
                if read == 0 {
                    break;
                }
            }
            stream.finished_here |= frame.flags & FIN != 0;
        }
        self.forget_if_done(frame);
    }

    /// The worker has dropped a stream that both sides have finished, or one has reset.
    fn forget_if_done(&mut self, frame: Frame) {
        let is_done = frame.flags & RST != 0
            || self
                .held
                .get(&frame.stream)
                .is_some_and(|stream| stream.finished_here && stream.finished_there);
        if is_done && let Some(stream) = self.held.remove(&frame.stream) {
            self.frames -= stream.frames.len();
        }
    }

    fn takes_one(&mut self, now: Instant) -> bool {
        if self.tokens < 1.0 {
            let passed = now.saturating_duration_since(self.refilled).as_secs_f64();
            self.tokens = (self.tokens + passed * PER_SECOND).min(BURST);
            self.refilled = now;
        }
        if self.tokens < 1.0 {
            return false;
        }
        self.tokens -= 1.0;
        true
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn frame(kind: u8, flags: u16, stream: u32, length: u32) -> Frame {
        Frame {
            kind,
            flags,
            stream,
            length,
        }
    }

    #[test]
    fn frames_that_are_read_are_not_held() {
        let mut now = Instant::now();
        let mut meter = Meter::new(now);
        for _ in 0..20 * MAX_HELD / 1000 {
            for _ in 0..1000 {
                meter.arrived(frame(DATA, 0, 2, 3), now).unwrap();
            }
            meter.left(frame(WINDOW_UPDATE, 0, 2, 3000));
            assert_eq!(meter.frames, 0);
            now += Duration::from_millis(60);
        }
    }

    #[test]
    fn frames_that_nobody_reads_end_the_tunnel() {
        let now = Instant::now();
        let mut meter = Meter::new(now);
        let sent = (0..=MAX_HELD).try_for_each(|n| {
            let stream = 2 * (n as u32 % 100) + 2;
            meter.arrived(frame(DATA, 0, stream, SMALL), now)
        });
        assert!(sent.unwrap_err().contains("nobody has read"));
    }

    #[test]
    fn a_stream_that_ended_holds_nothing() {
        let now = Instant::now();
        let mut meter = Meter::new(now);
        // The worker may have finished before anything arrived.
        meter.left(frame(DATA, FIN, 2, 0));
        meter.arrived(frame(DATA, FIN, 2, 1000), now).unwrap();
        assert!(meter.held.is_empty());
        assert_eq!(meter.frames, 0);
        for (there, here) in [(FIN, FIN), (0, RST), (RST, 0)] {
            meter.arrived(frame(DATA, 0, 2, 1000), now).unwrap();
            meter.arrived(frame(DATA, there, 2, 1000), now).unwrap();
            meter.left(frame(DATA, here, 2, 0));
            assert_eq!(meter.frames, 0);
            assert!(meter.held.is_empty());
        }
    }

    #[test]
    fn small_frames_are_limited_in_each_second() {
        let mut now = Instant::now();
        let mut meter = Meter::new(now);
        let mut send = |now| {
            let arrived = meter.arrived(frame(2, 0, 0, 7), now);
            arrived.is_ok()
        };
        assert!((0..100_000).all(|_| send(now)));
        assert!(!send(now));
        now += Duration::from_millis(500);
        assert!((0..10_000).all(|_| send(now)));
        assert!(!send(now));
    }

    #[test]
    fn heads_are_found_in_pieces_of_any_size() {
        let mut bytes = Vec::new();
        for length in [0u8, 1, 13, 200] {
            bytes.extend([0, DATA, 0, 0, 0, 0, 0, length, 0, 0, 0, length]);
            bytes.extend(vec![9; usize::from(length)]);
        }
        for size in 1..40 {
            let (mut frames, mut seen) = (Frames::default(), Vec::new());
            for piece in bytes.chunks(size) {
                let found = |frame: Frame| {
                    seen.push((frame.stream, frame.length));
                    Ok(())
                };
                frames.each(piece, found).unwrap();
            }
            assert_eq!(seen, [(0, 0), (1, 1), (13, 13), (200, 200)], "{size}");
        }
    }
}

//! Random changes to a recorded conversation, as tests of several crates use them: each takes this file in.
//!
//! A case follows from its number alone. Without `AGENTMINE_FUZZ_SECONDS` the same cases run each time; with it,
//! other ones for that long, and a test that fails prints the number for `AGENTMINE_FUZZ_CASE`.

use std::io::Write as _;
use std::time::{Duration, Instant};

/// Cases of a short run.
const SHORT: u64 = 3000;

/// The numbers of the cases to run.
pub(crate) fn cases() -> Box<dyn Iterator<Item = u64>> {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    if let Some(case) = number("AGENTMINE_FUZZ_CASE") {
        return Box::new(std::iter::once(case));
    }
    let Some(seconds) = number("AGENTMINE_FUZZ_SECONDS") else {
        return Box::new(0..SHORT);
    };
    let began = Instant::now();
    let from = std::time::UNIX_EPOCH
        .elapsed()
        .unwrap_or_default()
        .as_secs()
        << 24;
    let until = move |_: &u64| began.elapsed() < Duration::from_secs(seconds);
    Box::new((from..).take_while(until).inspect(move |case| {
        if case.is_multiple_of(100_000) {
            let _ = writeln!(std::io::stderr(), "{} cases", case - from);
        }
    }))
}

/// The pieces of a conversation after a few changes. Case 0 has none.
pub(crate) fn mutated(pieces: &[Vec<u8>], case: u64) -> Vec<Vec<u8>> {
    let mut random = Random(case);
    let mut pieces = pieces.to_vec();
    let changes = if case == 0 { 0 } else { 1 + random.below(4) };
    for _ in 0..changes {
        change(&mut pieces, &mut random);
    }
    pieces
}

fn change(pieces: &mut Vec<Vec<u8>>, random: &mut Random) {
    if pieces.is_empty() {
        return;
    }
    let (at, other) = (random.below(pieces.len()), random.below(pieces.len()));
    let kind = random.below(13);
    let piece = &mut pieces[at];
    match kind {
        0..=2 if !piece.is_empty() => {
            let byte = random.below(piece.len());
            piece[byte] ^= 1 << random.below(8);
        }
        3 => piece.truncate(random.below(piece.len() + 1)),
        4 if piece.len() >= 4 => {
            // Most likely a length or an identifier, in either of the usual forms.
            let from = random.below(piece.len().min(16) - 3);
            let values = [
                0,
                1,
                2,
                3,
                0x7fff_ffff,
                u32::MAX,
                u32::MAX - 1,
                0x1_0001,
                1 << 24,
            ];
            let value = values[random.below(values.len())];
            piece[from..from + 4].copy_from_slice(&value.to_be_bytes());
        }
        5 if piece.len() >= 4 => {
            let lengths = [
                b"0000", b"0001", b"0002", b"0003", b"0004", b"ffff", b"fff0", b"-001",
            ];
            piece[..4].copy_from_slice(lengths[random.below(lengths.len())]);
        }
        6 => {
            let from = random.below(piece.len() + 1);
            let more: Vec<u8> = (0..random.below(40))
                .map(|_| random.below(256) as u8)
                .collect();
            piece.splice(from..from, more);
        }
        7 => pieces.swap(at, other),
        8 => {
            let copy = pieces[other].clone();
            for _ in 0..=random.below(3) {
                pieces.insert(at, copy.clone());
            }
        }
        9 => digits(piece, random),
        10 | 11 => resize(piece, random),
        _ => {
            pieces.remove(at);
        }
    }
}

/// Other digits in one of the numbers of a text, which stays as long as it was.
fn digits(piece: &mut [u8], random: &mut Random) {
    let is_digit = |at: usize, piece: &[u8]| piece.get(at).is_some_and(u8::is_ascii_digit);
    let starts = 0..piece.len();
    let starts = starts.filter(|&at| is_digit(at, piece) && (at == 0 || !is_digit(at - 1, piece)));
    let starts: Vec<usize> = starts.collect();
    if starts.is_empty() {
        return;
    }
    let mut at = starts[random.below(starts.len())];
    while is_digit(at, piece) {
        piece[at] = b'0' + random.below(10) as u8;
        at += 1;
    }
}

/// Adds or removes a few bytes, and corrects the length in front of them, where there is one.
fn resize(piece: &mut Vec<u8>, random: &mut Random) {
    let before = piece.len();
    let number = |at: usize| {
        let bytes = piece.get(at..at + 4)?.try_into().ok()?;
        Some(u32::from_be_bytes(bytes) as usize)
    };
    // What follows a length is counted, but for a few bytes of its own.
    let counts = |at: usize, n: usize| n > 0 && n + at + 4 <= before && n + 32 >= before;
    let binary = [0, 8]
        .into_iter()
        .find(|&at| number(at).is_some_and(|n| counts(at, n)));
    let hex = piece
        .get(..4)
        .and_then(|text| std::str::from_utf8(text).ok());
    let is_hex = hex.is_some_and(|text| usize::from_str_radix(text, 16) == Ok(before));
    let head = binary.map_or(if is_hex { 4 } else { 0 }, |at| at + 4);
    let length = binary.and_then(number);
    let from = head + random.below(before - head + 1);
    if random.below(2) == 0 {
        let until = from + random.below(9).min(before - from);
        piece.drain(from..until);
    } else {
        let more = vec![random.below(256) as u8; random.below(9)];
        piece.splice(from..from, more);
    }
    match (binary, length) {
        (Some(at), Some(n)) => {
            let now = (n + piece.len()).saturating_sub(before) as u32;
            piece[at..at + 4].copy_from_slice(&now.to_be_bytes());
        }
        _ if is_hex => {
            let now = format!("{:04x}", piece.len());
            piece[..4].copy_from_slice(now.as_bytes());
        }
        _ => {}
    }
}

/// Random numbers that follow from a seed (SplitMix64).
struct Random(u64);

impl Random {
    /// A number below `end`, which must not be 0.
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % end as u64) as usize
    }
}

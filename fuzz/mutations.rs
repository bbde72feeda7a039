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
    let kind = random.below(10);
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
        _ => {
            pieces.remove(at);
        }
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

//! What a server writes, cut into pieces anyhow: the reader never panics, holds no more than its limit,
//! and finds the same lines however they are cut.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[expect(dead_code, reason = "the transport uses more of it")]
#[path = "../../crates/agentmine-mcp/src/client/lines.rs"]
mod lines;

const MAX: usize = 1024;

/// The lines, and whether one was too long.
fn cut(bytes: &[u8], piece: usize) -> (Vec<Vec<u8>>, bool) {
    let mut reader = lines::Lines::new(MAX);
    let mut found = Vec::new();
    for chunk in bytes.chunks(piece) {
        let read = reader.push(chunk, |line| {
            assert!(line.len() <= MAX);
            found.push(line.to_vec());
        });
        if read.is_err() {
            return (found, true);
        }
    }
    (found, false)
}

fuzz_target!(|data: &[u8]| {
    let Some((piece, bytes)) = data.split_first() else {
        return;
    };
    let whole = cut(bytes, usize::MAX);
    let pieces = cut(bytes, usize::from(*piece) + 1);
    assert_eq!(whole, pieces);
    for line in &whole.0 {
        match lines::read(line) {
            lines::Line::Messages(messages, garbage) => {
                assert!(messages.len() + garbage <= lines::MAX_BATCH);
            }
            lines::Line::Empty | lines::Line::Garbage | lines::Line::TooMuch => {}
        }
    }
});

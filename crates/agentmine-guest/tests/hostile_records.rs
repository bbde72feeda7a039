//! Sealed records that something else in the sandbox changed: nothing of it is read as the guest's.

use agentmine_guest::mux::End;
use agentmine_guest::protocol::MAGIC;
use agentmine_guest::seal::{KEY, Key, Sealed};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

#[path = "../../../fuzz/mutations.rs"]
mod mutations;

/// What the guest says, and the records of it.
fn conversation() -> (Vec<u8>, Vec<Vec<u8>>) {
    let mut said = vec![MAGIC.to_vec(), b"\0\0\0\x0b{\"version\":".to_vec()];
    for at in 0..8_u8 {
        said.push(vec![at; usize::from(at) * 37 + 1]);
    }
    let (mut sealer, _) = Key::new([7; KEY]).halves(End::Guest);
    let records = said.iter().map(|piece| {
        let mut record = Vec::new();
        sealer.seal(piece, &mut record);
        record
    });
    let records = records.collect();
    (said.concat(), records)
}

/// What the worker reads before the stream ends, well or with an error.
async fn read(bytes: &[u8]) -> Vec<u8> {
    let (ours, mut theirs) = tokio::io::duplex(1 << 20);
    let sent = theirs.write_all(bytes).await;
    assert!(sent.is_ok(), "{sent:?}");
    drop(theirs);
    let halves = Key::new([7; KEY]).halves(End::Worker);
    let mut sealed = Sealed::new(ours, End::Worker, halves);
    let (mut got, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        match sealed.read(&mut piece).await {
            Ok(0) | Err(_) => return got,
            Ok(n) => got.extend(&piece[..n]),
        }
    }
}

#[tokio::test]
async fn whatever_is_changed_only_what_the_guest_said_is_read() {
    let (said, records) = conversation();
    assert_eq!(read(&records.concat()).await, said);
    // What an attacker would like to be read, somewhere among them.
    let unsealed = [MAGIC.as_slice(), b"\0\0\0\x02{}"].concat();
    let records = [&records[..], &[unsealed]].concat();
    for case in mutations::cases() {
        let bytes = mutations::mutated(&records, case).concat();
        let got = read(&bytes).await;
        // In place of the first record an engine's text may be, which no hello begins.
        let is_text = bytes.starts_with(&got) && !got.starts_with(&MAGIC[..4]);
        assert!(said.starts_with(&got) || is_text, "case {case}: {got:?}");
    }
}

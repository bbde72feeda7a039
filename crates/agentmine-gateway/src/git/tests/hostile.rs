//! What a sandbox may cost the worker.

use std::io::Write as _;
use std::process::Stdio;
use std::time::Duration;

use rstest::rstest;

use super::world::{Kind, World};
use crate::wire::pktline;

/// The head of an object in a pack: its type, and its size unpacked.
fn object_head(kind: u8, size: u64, out: &mut Vec<u8>) {
    let mut byte = (kind << 4) | (size & 0xf) as u8;
    let mut rest = size >> 4;
    while rest > 0 {
        out.push(byte | 0x80);
        byte = (rest & 0x7f) as u8;
        rest >>= 7;
    }
    out.push(byte);
}

fn size(mut size: u64, out: &mut Vec<u8>) {
    while size >= 0x80 {
        out.push((size & 0x7f) as u8 | 0x80);
        size >>= 7;
    }
    out.push(size as u8);
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut out = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
    out.write_all(bytes).unwrap();
    out.finish().unwrap()
}

fn sha1(bytes: &[u8]) -> Vec<u8> {
    let mut child = std::process::Command::new("sha1sum")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(bytes).unwrap();
    let output = child.wait_with_output().unwrap();
    let hex = std::str::from_utf8(&output.stdout[..40]).unwrap();
    (0..40)
        .step_by(2)
        .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
        .collect()
}

/// A pack of two objects: a blob of 15 MiB of zeros, and a delta that copies it `times` over.
fn bomb(times: u64) -> Vec<u8> {
    const BASE: u64 = 15 << 20;
    let mut pack = b"PACK\0\0\0\x02\0\0\0\x02".to_vec();
    let start = pack.len();
    object_head(3, BASE, &mut pack);
    pack.extend(packed(&vec![0; usize::try_from(BASE).unwrap()]));
    let mut delta = Vec::new();
    size(BASE, &mut delta);
    size(BASE * times, &mut delta);
    for _ in 0..times {
        // Copy, with three bytes of size and the offset 0.
        delta.extend([0xf0, 0, 0, 0xf0]);
    }
    let back = pack.len() - start;
    object_head(6, delta.len() as u64, &mut pack);
    // How far back the base is, as git writes it.
    let mut offset = vec![(back & 0x7f) as u8];
    let mut rest = back >> 7;
    while rest > 0 {
        rest -= 1;
        offset.insert(0, (rest & 0x7f) as u8 | 0x80);
        rest >>= 7;
    }
    pack.extend(offset);
    pack.extend(packed(&delta));
    let sum = sha1(&pack);
    pack.extend(sum);
    pack
}

fn push_of(pack: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    let line = format!(
        "{} {} refs/heads/work\0report-status",
        "0".repeat(40),
        "1".repeat(40)
    );
    pktline::data(&mut body, line.as_bytes());
    pktline::flush(&mut body);
    body.extend_from_slice(pack);
    body
}

#[rstest]
#[case(70, true)]
#[case(2, false)]
#[tokio::test(flavor = "multi_thread")]
async fn a_small_pack_that_unpacks_without_end_is_refused(#[case] times: u64, #[case] over: bool) {
    let world = World::new(Kind::Http).await;
    let pack = bomb(times);
    assert!(pack.len() < 20_000, "{}", pack.len());
    let answer = world.raw_push(push_of(&pack)).await;
    // The smaller one shows that the pack is otherwise a good one, although it does not bring the commit.
    assert_eq!(answer.contains("over limit"), over, "{answer}");
    assert_eq!(answer.contains("git's checks"), over, "{answer}");
    assert_eq!(answer.contains("neither in it nor"), !over, "{answer}");
    assert_eq!(world.forge_pushes(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fetch_request_over_two_mebibytes_is_refused() {
    let world = World::new(Kind::Http).await;
    let answer = reqwest::Client::new()
        .post(format!("{}/git-upload-pack", world.url))
        .header("content-type", "application/x-git-upload-pack-request")
        .body(vec![b'x'; 2 * 1024 * 1024 + 1])
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status().as_u16(), 413);
    assert_eq!(world.forge_requests(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn more_fetches_than_allowed_wait_for_their_turn() {
    let world = World::new(Kind::Http).await;
    let mut held = Vec::new();
    for _ in 0..super::super::MAX_FETCHES {
        held.push(world.begin_request("upload-pack", 1000, b"00").await);
    }
    // By their own connections, which the gateway takes in order.
    let home = world.home.path().to_owned();
    let command = format!("clone -q {} late", world.url);
    let late = world.git(&home, &command);
    tokio::pin!(late);
    let waited = tokio::time::timeout(Duration::from_secs(1), &mut late).await;
    assert!(waited.is_err(), "it did not wait");
    held.pop();
    let done = tokio::time::timeout(Duration::from_secs(20), late).await;
    done.expect("a free place is not taken").ok();
    // The places of finished fetches are free again.
    for n in 0..super::super::MAX_FETCHES {
        world.clone_into(&format!("again{n}"), &[]).await;
    }
}

//! A hostile guest: valid conversations, changed at random. Nothing panics, waits without end or makes the worker hold
//! much, and what does not fail has the form that was requested.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use agentmine_guest::mux::{self, End};
use agentmine_guest::protocol::{
    Bytes, GuestReply, Hello, JailReport, MAGIC, OutboundHeader, OutboundKind, OutputDone, RunDone,
    SnapshotDone, VERSION, encode_json, write_json,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::answer::{bytes_answer, run_answer, snapshot_answer};
use crate::tunnel::Tunnel;

#[path = "../../../../fuzz/mutations.rs"]
mod mutations;

/// How long one case may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// The worker's memory may grow by this much, whatever arrives.
const MEMORY: u64 = 200 << 20;
/// And what it reserves by this much: less than any length that cannot be right.
const RESERVED: u64 = 1 << 30;

/// The most memory that this process has had, and the most that it has reserved, in bytes.
#[derive(Clone, Copy)]
struct Memory {
    had: u64,
    reserved: u64,
}

impl Memory {
    fn now() -> Self {
        let text = std::fs::read_to_string("/proc/self/status").unwrap();
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            let number = line.unwrap().trim().trim_end_matches(" kB");
            number.parse::<u64>().unwrap() << 10
        };
        Self {
            had: field("VmHWM:"),
            reserved: field("VmPeak:"),
        }
    }

    fn has_grown(self) -> bool {
        let now = Self::now();
        now.had > self.had + MEMORY || now.reserved > self.reserved + RESERVED
    }
}

/// Notices panics in tasks, which end without a word.
fn panics() -> Arc<AtomicUsize> {
    let count = Arc::<AtomicUsize>::default();
    let (counter, usual) = (Arc::clone(&count), std::panic::take_hook());
    std::panic::set_hook(Box::new(move |info| {
        counter.fetch_add(1, Ordering::SeqCst);
        usual(info);
    }));
    count
}

fn hello() -> Vec<Vec<u8>> {
    let hello = Hello {
        version: VERSION,
        git_port: 1,
        web_port: 2,
        root: "/workspace".into(),
        jail: JailReport::default(),
        error: None,
    };
    vec![MAGIC.to_vec(), encode_json(&hello).unwrap()]
}

fn done(head_len: u64, tail_len: u64) -> OutputDone {
    OutputDone {
        head_len,
        tail_len,
        ..OutputDone::default()
    }
}

/// All that a guest writes while it opens connections and is asked for streams, in pieces as it wrote them.
async fn recorded() -> Vec<Vec<u8>> {
    let (worker, guest) = tokio::io::duplex(1 << 16);
    let (ours, mut tap) = tokio::io::duplex(1 << 16);
    // The guest's end writes into the tap, which records and passes on.
    let (mut from_worker, mut to_worker) = tokio::io::split(guest);
    let recording = tokio::spawn(async move {
        let mut pieces = Vec::new();
        let (mut read, mut write) = tokio::io::split(&mut tap);
        let (mut piece, mut back) = (vec![0; 1 << 16], vec![0; 1 << 16]);
        loop {
            tokio::select! {
                n = read.read(&mut piece) => match n {
                    Ok(n) if n > 0 => {
                        pieces.push(piece[..n].to_vec());
                        // At the end the worker may be gone first.
                        if to_worker.write_all(&piece[..n]).await.is_err() {
                            return pieces;
                        }
                    }
                    _ => return pieces,
                },
                n = from_worker.read(&mut back) => match n {
                    Ok(n) if n > 0 && write.write_all(&back[..n]).await.is_ok() => {}
                    _ => return pieces,
                },
            }
        }
    });
    let mut ours = ours;
    ours.write_all(&hello().concat()).await.unwrap();
    let mut guest = mux::start(ours, End::Guest);
    let tunnel = Tunnel::open(worker).await.unwrap();
    for kind in [OutboundKind::Git, OutboundKind::Web] {
        let mut stream = guest.opener.open().await.unwrap();
        write_json(&mut stream, &OutboundHeader { kind })
            .await
            .unwrap();
        stream.write_all(&[7; 600]).await.unwrap();
        stream.flush().await.unwrap();
        let mut outbound = tunnel.next_outbound().await.unwrap();
        outbound.stream.read_exact(&mut [0; 600]).await.unwrap();
    }
    let mut asked = tunnel.stream().await.unwrap();
    asked.write_all(b"?").await.unwrap();
    asked.flush().await.unwrap();
    let mut asking = guest.inbound.recv().await.unwrap();
    write_json(&mut asking, &GuestReply::Ok(Bytes { len: Some(3) }))
        .await
        .unwrap();
    asking.write_all(b"yes").await.unwrap();
    asking.flush().await.unwrap();
    bytes_answer(&mut asked, 10).await.unwrap().unwrap();
    drop((asked, asking, guest, tunnel));
    recording.await.unwrap()
}

#[tokio::test]
async fn a_tunnel_of_changed_frames_ends_or_works() {
    let pieces = recorded().await;
    assert!(pieces.len() > 5, "{}", pieces.len());
    let (before, panics) = (Memory::now(), panics());
    for case in mutations::cases() {
        let bytes = mutations::mutated(&pieces, case).concat();
        let played = tokio::time::timeout(PATIENCE, play(bytes)).await;
        assert!(played.is_ok(), "case {case} does not end");
        assert_eq!(panics.load(Ordering::SeqCst), 0, "case {case}");
        assert!(!before.has_grown(), "case {case}");
    }
}

/// Opens a tunnel to these bytes, and uses it until it ends.
async fn play(bytes: Vec<u8>) {
    let (worker, mut guest) = tokio::io::duplex(1 << 16);
    let sending = tokio::spawn(async move {
        let (mut read, mut write) = tokio::io::split(&mut guest);
        let mut sink = tokio::io::sink();
        let send = async {
            let _ = write.write_all(&bytes).await;
            let _ = write.shutdown().await;
        };
        let _ = tokio::join!(send, tokio::io::copy(&mut read, &mut sink));
    });
    if let Ok(tunnel) = Tunnel::open(worker).await {
        let asked = async {
            if let Ok(mut stream) = tunnel.stream().await {
                let _ = stream.write_all(b"?").await;
                let _ = stream.flush().await;
                let _ = bytes_answer(&mut stream, 10).await;
            }
        };
        let served = async {
            while let Some(mut outbound) = tunnel.next_outbound().await {
                let _ = outbound.stream.read_to_end(&mut Vec::new()).await;
            }
        };
        tokio::select! {
            _ = tunnel.ended() => {}
            ((), ()) = async { tokio::join!(asked, served) } => {}
        }
    }
    sending.abort();
}

#[tokio::test]
async fn an_answer_of_changed_frames_is_refused_or_within_its_limits() {
    const MOST: usize = 5000;
    /// More than was promised.
    const EXCESS: usize = 30_000;
    let run = RunDone {
        exit_code: 3,
        stdout: done(3000, 1500),
        stderr: done(1000, 0),
        timed_out: false,
        duration_us: 5,
    };
    let snapshot = SnapshotDone {
        commit: "a".repeat(40),
        bundle_len: Some(4000),
        left_out: vec!["big".into()],
    };
    let runs = [
        encode_json(&GuestReply::Ok(run)).unwrap(),
        vec![b'o'; 4500],
        vec![b'e'; 1000],
        vec![b'x'; EXCESS],
    ];
    let snapshots = [
        encode_json(&GuestReply::Ok(snapshot)).unwrap(),
        vec![b'b'; 4000],
        vec![b'x'; EXCESS],
    ];
    let files = [
        encode_json(&GuestReply::Ok(Bytes { len: Some(4000) })).unwrap(),
        vec![b'f'; 4000],
        vec![b'x'; EXCESS],
    ];
    let before = Memory::now();
    for case in mutations::cases() {
        let bytes = mutations::mutated(&runs, case).concat();
        if let Ok(Ok(result)) = run_answer(bytes.as_slice(), MOST).await {
            // Its own notes, where something was omitted, come on top.
            assert!(result.stdout.len() <= MOST + 300, "case {case}");
        }
        let bytes = mutations::mutated(&snapshots, case).concat();
        if let Ok(Ok(result)) = snapshot_answer(bytes.as_slice(), MOST).await {
            let hex = result.commit.bytes().all(|it| it.is_ascii_hexdigit());
            assert!(hex && matches!(result.commit.len(), 40 | 64), "case {case}");
            assert!(
                result.bundle.is_none_or(|it| it.len() <= MOST),
                "case {case}"
            );
        }
        let bytes = mutations::mutated(&files, case).concat();
        if let Ok(Ok(Some(file))) = bytes_answer(bytes.as_slice(), MOST).await {
            assert!(file.len() <= MOST, "case {case}");
        }
        assert!(!before.has_grown(), "case {case}");
    }
}

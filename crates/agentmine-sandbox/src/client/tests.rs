//! Hostile and slow guests, over in-memory streams.

use agentmine_guest::mux::{self, End};
use agentmine_guest::protocol::{
    Bytes, GuestReply, Hello, JailReport, MAGIC, MAX_REQUEST, VERSION, encode_json, read_exactly,
    read_json,
};
use tokio::io::{AsyncWriteExt as _, DuplexStream};

use super::*;

pub(crate) struct Nothing;

#[async_trait]
impl Control for Nothing {
    fn name(&self) -> &str {
        "none"
    }
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }
    async fn assign(&mut self, _: &SandboxSpec) -> Result<(), SandboxError> {
        Ok(())
    }
    async fn pause(&self) -> Result<(), SandboxError> {
        Ok(())
    }
    async fn unpause(&self) -> Result<(), SandboxError> {
        Ok(())
    }
    async fn remove(&self) -> Result<(), SandboxError> {
        Ok(())
    }
}

/// A sandbox over an in-memory stream, and the guest's end of it after the hello.
pub(crate) async fn sandbox() -> (Running<Nothing>, DuplexStream) {
    let (worker, mut guest) = tokio::io::duplex(1 << 16);
    let hello = Hello {
        version: VERSION,
        git_port: 1,
        web_port: 2,
        root: "/workspace".into(),
        jail: JailReport::default(),
        error: None,
    };
    guest.write_all(&MAGIC).await.unwrap();
    write_json(&mut guest, &hello).await.unwrap();
    let tunnel = Tunnel::open(worker).await.unwrap();
    let control = Nothing;
    let running = Running {
        control,
        tunnel,
        volume: OwnVolume::default(),
        frozen: Frozen::default(),
        _observed: None,
    };
    (running, guest)
}

#[track_caller]
fn assert_gone<T: std::fmt::Debug>(asked: Result<T, SandboxError>) {
    assert!(matches!(asked, Err(SandboxError::Gone(_))), "{asked:?}");
}

/// Every request to a guest that does not answer; the time is virtual.
async fn every_request_ends(sandbox: &Running<Nothing>) {
    let began = tokio::time::Instant::now();
    let path = "/workspace/project/x";
    assert_gone(sandbox.stdio_stderr(1).await);
    assert_gone(sandbox.get_file(path, 10).await);
    assert_gone(
        sandbox
            .start_stdio(Vec::new(), BTreeMap::new())
            .await
            .map(drop),
    );
    assert_eq!(began.elapsed().as_secs(), 3 * 60);
    let began = tokio::time::Instant::now();
    assert_gone(sandbox.snapshot(None, 10).await);
    assert_gone(sandbox.restore(vec![vec![0; 1 << 20]; 3], "x").await);
    assert_eq!(began.elapsed().as_secs(), 2 * 300);
    let began = tokio::time::Instant::now();
    let command = Command {
        argv: Vec::new(),
        cwd: String::new(),
        env: BTreeMap::new(),
        stdin: vec![0; 1 << 20],
        timeout: Duration::from_secs(10),
        max_output: 10,
    };
    assert_gone(sandbox.run(command).await);
    assert_eq!(began.elapsed().as_secs(), 40);
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_never_answers_blocks_nobody() {
    let (sandbox, guest) = sandbox().await;
    let mut guest = mux::start(guest, End::Guest);
    let mut held = Vec::new();
    let hold = async {
        while let Some(stream) = guest.inbound.recv().await {
            held.push(stream);
        }
    };
    tokio::select! {
        () = hold => panic!("the tunnel ended"),
        () = every_request_ends(&sandbox) => {}
    }
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_never_reads_blocks_nobody() {
    let (sandbox, _guest) = sandbox().await;
    every_request_ends(&sandbox).await;
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_answers_byte_by_byte_blocks_nobody() {
    let (sandbox, guest) = sandbox().await;
    let mut guest = mux::start(guest, End::Guest);
    let drip = async {
        let mut stream = guest.inbound.recv().await.unwrap();
        read_json::<GuestRequest, _>(&mut stream, MAX_REQUEST)
            .await
            .unwrap();
        let mut frame = encode_json(&GuestReply::Ok(Bytes { len: Some(1 << 20) })).unwrap();
        frame.resize(1 << 20, 0);
        for byte in frame {
            tokio::time::sleep(SHORT / 10).await;
            if stream.write_all(&[byte]).await.is_err() || stream.flush().await.is_err() {
                break;
            }
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = drip => {}
        asked = sandbox.get_file("/workspace/project/x", 1 << 20) => assert_gone(asked),
    }
}

#[tokio::test]
async fn bundles_arrive_whole_and_in_order() {
    let (sandbox, guest) = sandbox().await;
    let mut guest = mux::start(guest, End::Guest);
    let bundles: Vec<Vec<u8>> = (1..=3).map(|n| vec![n; 300_000]).collect();
    let serve = async {
        let mut stream = guest.inbound.recv().await.unwrap();
        let asked: GuestRequest = read_json(&mut stream, MAX_REQUEST).await.unwrap();
        let GuestRequest::Restore { commit, bundles } = asked else {
            panic!("{asked:?}")
        };
        let mut got = Vec::new();
        for len in bundles {
            got.push(read_exactly(&mut stream, len).await.unwrap());
        }
        write_json(&mut stream, &GuestReply::Ok(())).await.unwrap();
        (commit, got)
    };
    let (done, (commit, got)) = tokio::join!(sandbox.restore(bundles.clone(), "abc"), serve);
    done.unwrap();
    assert_eq!(commit, "abc");
    assert!(got == bundles);
}

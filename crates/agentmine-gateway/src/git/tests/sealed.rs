//! A sealed gateway: the branch stays as it is while the worker measures it.

use std::sync::Arc;
use std::time::Duration;

use rstest::rstest;
use tokio::sync::Semaphore;

use super::world::{Kind, World};
use crate::PushFence;

const SOON: Duration = Duration::from_secs(10);

#[rstest]
#[case(Kind::Path)]
#[case(Kind::Http)]
#[tokio::test(flavor = "multi_thread")]
async fn a_sealed_gateway_refuses_pushes_until_it_is_unsealed(#[case] kind: Kind) {
    let world = World::new(kind).await;
    let repo = world.clone_into("repo", &[]).await;
    world.git(&repo, "switch -qc work").await.ok();
    let first = world.commit(&repo, "one.txt").await;
    world.git(&repo, "push -q origin work").await.ok();
    world.gateway.seal().await;
    let second = world.commit(&repo, "two.txt").await;
    let shown = world.git(&repo, "push origin work").await.err();
    assert!(
        shown.contains("pushes are refused while the result is being measured"),
        "{shown}"
    );
    assert_eq!(world.upstream_head("work").await, first);
    assert_eq!(world.gateway.pushed_head(), Some(first));
    world.git(&repo, "fetch -q origin").await.ok();
    world.gateway.unseal();
    world.git(&repo, "push -q origin work").await.ok();
    assert_eq!(world.upstream_head("work").await, second);
}

/// A fence that reports when it is asked, and waits to be opened.
struct Gate {
    asked: Semaphore,
    open: Semaphore,
}

#[async_trait::async_trait]
impl PushFence for Gate {
    async fn check(&self) -> Result<(), String> {
        self.asked.add_permits(1);
        let _ = self.open.acquire().await;
        Ok(())
    }

    fn check_clock(&self) -> Result<(), String> {
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sealing_waits_for_a_push_that_is_being_checked() {
    let gate = Arc::new(Gate {
        asked: Semaphore::new(0),
        open: Semaphore::new(0),
    });
    let fence = gate.clone();
    let world = World::with(Kind::Http, |rights| rights.fence = fence).await;
    let repo = world.clone_into("repo", &[]).await;
    world.git(&repo, "switch -qc work").await.ok();
    let head = world.commit(&repo, "one.txt").await;
    let sealed = async {
        gate.asked.acquire().await.unwrap().forget();
        let seal = world.gateway.seal();
        tokio::pin!(seal);
        let early = tokio::time::timeout(Duration::from_millis(300), &mut seal).await;
        assert!(early.is_err(), "it did not wait");
        gate.open.add_permits(10);
        seal.await;
        world.gateway.pushed_head()
    };
    let (pushed, seen) = tokio::join!(world.git(&repo, "push -q origin work"), sealed);
    pushed.ok();
    assert_eq!(seen, Some(head));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_that_is_still_being_read_does_not_delay_the_seal() {
    use tokio::io::AsyncReadExt as _;
    let world = World::new(Kind::Http).await;
    let mut slow = world.begin_request("receive-pack", 1000, b"00").await;
    // Until the gateway reads it: the next push waits for its turn.
    let second = world.raw_push(b"0000".to_vec());
    tokio::pin!(second);
    let waited = tokio::time::timeout(Duration::from_millis(500), &mut second).await;
    assert!(waited.is_err(), "two pushes were read at once");
    tokio::time::timeout(SOON, world.gateway.seal())
        .await
        .expect("the seal waits for the sender");
    // The slow sender goes away, and the next one has its turn.
    tokio::io::AsyncWriteExt::shutdown(&mut slow).await.unwrap();
    let mut rest = Vec::new();
    let _ = slow.read_to_end(&mut rest).await;
    let answer = tokio::time::timeout(SOON, second).await.unwrap();
    assert!(answer.starts_with("200"), "{answer}");
}

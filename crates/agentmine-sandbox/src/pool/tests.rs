//! The pool over an engine that only counts.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use agentmine_domain::{Epoch, TaskId};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::client::Running;
use crate::client::tests::{Nothing, sandbox};

const IMAGE: &str = "base";
const HOUR: Duration = Duration::from_secs(3600);

/// What became of the sandboxes.
#[derive(Default)]
pub(crate) struct Engine {
    pub(crate) is_away: AtomicBool,
    /// How long it takes to start one.
    pub(crate) takes: Duration,
    /// Whether what it starts ends at once.
    pub(crate) ends: bool,
    pub(crate) asked: AtomicUsize,
    pub(crate) spares: AtomicUsize,
    pub(crate) new: AtomicUsize,
    pub(crate) assigned: Mutex<Vec<TaskId>>,
    pub(crate) removed: AtomicUsize,
    pub(crate) refuses: AtomicBool,
}

struct Counted {
    engine: Arc<Engine>,
    has_ended: AtomicBool,
    sandbox: Running<Nothing>,
}

#[async_trait]
impl Spare for Counted {
    fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::SeqCst)
    }
    async fn assign(&mut self, spec: &SandboxSpec) -> Result<(), SandboxError> {
        if self.engine.refuses.load(Ordering::SeqCst) {
            return Err(SandboxError::Refused("another image".into()));
        }
        self.engine.assigned.lock().unwrap().push(spec.task);
        Ok(())
    }
    fn into_sandbox(self: Box<Self>) -> Box<dyn Sandbox> {
        Box::new(self.sandbox)
    }
    async fn remove(&self) -> Result<(), SandboxError> {
        self.engine.removed.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

#[async_trait]
impl Backend for Arc<Engine> {
    async fn check(&self) -> Result<(), SandboxError> {
        Ok(())
    }
    async fn disk_limit(&self) -> String {
        "none".into()
    }
    async fn start(&self, _: &SandboxSpec) -> Result<Box<dyn Sandbox>, SandboxError> {
        self.new.fetch_add(1, Ordering::SeqCst);
        Ok(Box::new(sandbox().await.0))
    }
    async fn start_spare(
        &self,
        _: Option<WorkspaceTemplate>,
    ) -> Result<Box<dyn Spare>, SandboxError> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        if self.is_away.load(Ordering::SeqCst) {
            return Err(SandboxError::Unavailable("away".into()));
        }
        tokio::time::sleep(self.takes).await;
        self.spares.fetch_add(1, Ordering::SeqCst);
        Ok(Box::new(Counted {
            engine: Arc::clone(self),
            has_ended: AtomicBool::new(self.ends),
            sandbox: sandbox().await.0,
        }))
    }
    async fn list(&self) -> Result<Vec<FoundSandbox>, SandboxError> {
        Ok(Vec::new())
    }
    async fn remove(&self, _: &FoundSandbox) -> Result<(), SandboxError> {
        Ok(())
    }
}

/// A pool of two that is being kept.
struct Kept {
    engine: Arc<Engine>,
    pool: WarmPool,
    stop: CancellationToken,
    keeping: tokio::task::JoinHandle<()>,
}

impl Kept {
    fn start(engine: Engine) -> Self {
        let engine = Arc::new(engine);
        let settings = WarmSettings {
            size: 2,
            image: IMAGE.into(),
            renew_after: HOUR,
        };
        let pool = WarmPool::new(Arc::new(Arc::clone(&engine)), settings);
        let (stop, kept) = (CancellationToken::new(), pool.clone());
        let until = stop.clone();
        let keeping = tokio::spawn(async move { kept.keep(until.cancelled()).await });
        Self {
            engine,
            pool,
            stop,
            keeping,
        }
    }

    /// Lets time pass; it is not the machine's.
    async fn pass(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    async fn start_one(&self, image: Option<&str>, role: SandboxRole) -> TaskId {
        let task = TaskId::new();
        let spec = SandboxSpec {
            task,
            epoch: Epoch(1),
            role,
            image: image.map(str::to_owned),
            template: None,
        };
        self.pool.start(&spec).await.unwrap();
        task
    }

    fn ready(&self) -> usize {
        self.pool.lock().spares.len()
    }

    fn new_ones(&self) -> usize {
        self.engine.new.load(Ordering::SeqCst)
    }

    fn removed(&self) -> usize {
        self.engine.removed.load(Ordering::SeqCst)
    }

    fn assigned(&self) -> Vec<TaskId> {
        self.engine.assigned.lock().unwrap().clone()
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_takes_one_and_another_is_started_a_moment_later() {
    let kept = Kept::start(Engine::default());
    kept.pass(Duration::from_millis(1)).await;
    assert_eq!(kept.ready(), 2);
    let task = kept.start_one(None, SandboxRole::Main).await;
    assert_eq!((kept.assigned(), kept.new_ones()), (vec![task], 0));
    // Not beside the start of the task.
    kept.pass(REFILL_AFTER / 2).await;
    assert_eq!(kept.ready(), 1);
    kept.pass(REFILL_AFTER).await;
    assert_eq!(kept.ready(), 2);
    let other = kept.start_one(Some(IMAGE), SandboxRole::Verify).await;
    assert_eq!(kept.assigned(), [task, other]);
}

#[tokio::test(start_paused = true)]
async fn what_does_not_fit_and_what_an_empty_pool_lacks_is_started_anew() {
    let kept = Kept::start(Engine::default());
    kept.pass(Duration::from_millis(1)).await;
    kept.start_one(Some("another"), SandboxRole::Main).await;
    kept.start_one(None, SandboxRole::Mcp).await;
    assert_eq!((kept.ready(), kept.new_ones()), (2, 2));
    for _ in 0..3 {
        kept.start_one(None, SandboxRole::Main).await;
    }
    assert_eq!((kept.ready(), kept.new_ones()), (0, 3));
}

#[tokio::test(start_paused = true)]
async fn one_that_cannot_be_assigned_is_removed_and_the_task_gets_a_new_one() {
    let kept = Kept::start(Engine::default());
    kept.pass(Duration::from_millis(1)).await;
    kept.engine.refuses.store(true, Ordering::SeqCst);
    kept.start_one(None, SandboxRole::Main).await;
    kept.pass(Duration::from_millis(1)).await;
    assert_eq!((kept.new_ones(), kept.removed(), kept.ready()), (1, 1, 1));
}

#[tokio::test(start_paused = true)]
async fn one_that_ended_is_not_given_to_a_task_and_is_replaced() {
    let kept = Kept::start(Engine::default());
    kept.pass(Duration::from_millis(1)).await;
    let dead = Counted {
        engine: Arc::clone(&kept.engine),
        has_ended: AtomicBool::new(true),
        sandbox: sandbox().await.0,
    };
    kept.pool.lock().spares[0].0 = Box::new(dead);
    let task = kept.start_one(None, SandboxRole::Main).await;
    assert_eq!((kept.assigned(), kept.new_ones()), (vec![task], 0));
    kept.pass(LOOK_EVERY + REFILL_AFTER).await;
    assert_eq!((kept.ready(), kept.removed()), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn one_that_nobody_took_is_renewed() {
    let kept = Kept::start(Engine::default());
    kept.pass(HOUR - LOOK_EVERY).await;
    assert_eq!(kept.engine.spares.load(Ordering::SeqCst), 2);
    kept.pass(2 * LOOK_EVERY).await;
    assert_eq!(kept.engine.spares.load(Ordering::SeqCst), 4);
    assert_eq!((kept.ready(), kept.removed()), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_is_away_is_asked_less_and_less_until_it_is_back() {
    let kept = Kept::start(Engine {
        is_away: AtomicBool::new(true),
        ..Engine::default()
    });
    kept.pass(HOUR).await;
    let asked = kept.engine.asked.load(Ordering::SeqCst);
    assert!((60..300).contains(&asked), "{asked}");
    kept.engine.is_away.store(false, Ordering::SeqCst);
    kept.pass(Duration::from_secs(61)).await;
    assert_eq!(kept.ready(), 2);
}

#[tokio::test(start_paused = true)]
async fn at_its_end_the_pool_is_removed_and_nothing_is_taken_any_more() {
    let kept = Kept::start(Engine::default());
    kept.pass(Duration::from_millis(1)).await;
    kept.stop.cancel();
    let Kept {
        engine,
        pool,
        keeping,
        ..
    } = kept;
    keeping.await.unwrap();
    assert_eq!(engine.removed.load(Ordering::SeqCst), 2);
    assert!(pool.take().is_none());
}

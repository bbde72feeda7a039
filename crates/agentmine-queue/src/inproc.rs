//! A queue in this process, for the embedded mode and for tests.
//!
//! Guaranteed as by a broker: one message per `next`, takeovers first, then the highest class, and an unsettled delivery
//! that is dropped comes again. Its messages end with the process; the sweep publishes new ones.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use agentmine_domain::WakeUp;
use async_trait::async_trait;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::error::QueueError;
use crate::lane::Lane;
use crate::queue::{Delivery, Queue, QueueDepth};

/// The queue.
pub(crate) struct InProcess(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    /// Notified once for each message that is put into a lane.
    arrived: Notify,
    retry: Vec<Duration>,
}

#[derive(Default)]
struct State {
    /// In the order of [`Lane::ORDER`].
    lanes: [VecDeque<WakeUp>; Lane::ORDER.len()],
    dead: VecDeque<(WakeUp, String)>,
    closed: bool,
}

impl InProcess {
    pub(crate) fn new(retry_seconds: &[u64]) -> Self {
        Self(Arc::new(Shared {
            state: Mutex::default(),
            arrived: Notify::new(),
            retry: retry_seconds
                .iter()
                .copied()
                .map(Duration::from_secs)
                .collect(),
        }))
    }
}

impl Shared {
    /// No code under this lock can leave the state half changed, so a poisoned lock is still valid.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, wake_up: WakeUp, end: End) {
        let mut state = self.state();
        let lane = &mut state.lanes[Lane::of(&wake_up).place()];
        match end {
            End::Back => lane.push_back(wake_up),
            End::Front => lane.push_front(wake_up),
        }
        drop(state);
        self.arrived.notify_one();
    }

    fn pop(&self) -> Result<Option<WakeUp>, QueueError> {
        let mut state = self.state();
        if state.closed {
            return Err(closed());
        }
        Ok(state.lanes.iter_mut().find_map(VecDeque::pop_front))
    }
}

enum End {
    Back,
    Front,
}

fn closed() -> QueueError {
    QueueError::Unavailable("the queue is closed".into())
}

#[async_trait]
impl Queue for InProcess {
    async fn publish(&self, wake_up: &WakeUp) -> Result<(), QueueError> {
        if self.0.state().closed {
            return Err(closed());
        }
        self.0.push(wake_up.clone(), End::Back);
        Ok(())
    }

    async fn next(&self, wait: Duration) -> Result<Option<Box<dyn Delivery>>, QueueError> {
        let deadline = Instant::now() + wait;
        loop {
            if let Some(wake_up) = self.0.pop()? {
                return Ok(Some(Box::new(Held::new(&self.0, wake_up, Origin::Lane))));
            }
            // A notification while nobody waits is kept as a permit: none is missed after the `pop`.
            if tokio::time::timeout_at(deadline, self.0.arrived.notified())
                .await
                .is_err()
            {
                let last = self.0.pop()?;
                return Ok(last
                    .map(|wake_up| Box::new(Held::new(&self.0, wake_up, Origin::Lane)) as Box<_>));
            }
        }
    }

    async fn next_dead(&self) -> Result<Option<(Box<dyn Delivery>, String)>, QueueError> {
        let taken = self.0.state().dead.pop_front();
        Ok(taken.map(|(wake_up, reason)| {
            let held = Held::new(&self.0, wake_up, Origin::Dead(reason.clone()));
            (Box::new(held) as Box<dyn Delivery>, reason)
        }))
    }

    async fn healthy(&self) -> Result<(), QueueError> {
        match self.0.state().closed {
            true => Err(closed()),
            false => Ok(()),
        }
    }

    async fn depths(&self) -> Result<Vec<QueueDepth>, QueueError> {
        let state = self.0.state();
        let depth = |name: &str, messages: usize| QueueDepth {
            name: name.to_owned(),
            messages: messages as u64,
        };
        let lanes = Lane::ORDER.iter().zip(&state.lanes);
        let lanes = lanes.map(|(lane, waiting)| depth(lane.as_str(), waiting.len()));
        Ok(lanes.chain([depth("dead", state.dead.len())]).collect())
    }

    async fn close(&self) {
        self.0.state().closed = true;
        self.0.arrived.notify_waiters();
    }
}

/// Where a held message returns to.
enum Origin {
    Lane,
    Dead(String),
}

/// A message that is taken and not settled. Dropping it puts it back.
struct Held {
    queue: Weak<Shared>,
    wake_up: WakeUp,
    /// `None` once settled.
    origin: Option<Origin>,
}

impl Held {
    fn new(queue: &Arc<Shared>, wake_up: WakeUp, origin: Origin) -> Self {
        Self {
            queue: Arc::downgrade(queue),
            wake_up,
            origin: Some(origin),
        }
    }
}

#[async_trait]
impl Delivery for Held {
    fn wake_up(&self) -> Result<&WakeUp, String> {
        Ok(&self.wake_up)
    }

    async fn ack(mut self: Box<Self>) -> Result<(), QueueError> {
        self.origin = None;
        Ok(())
    }

    async fn retry_later(mut self: Box<Self>, step: usize) -> Result<(), QueueError> {
        self.origin = None;
        let Some(queue) = self.queue.upgrade() else {
            return Ok(());
        };
        let step = step.min(queue.retry.len().saturating_sub(1));
        let delay = queue.retry.get(step).copied().unwrap_or_default();
        let (queue, wake_up) = (self.queue.clone(), self.wake_up.clone());
        tokio::spawn(async move {
            tokio::time::sleep(delay).await;
            if let Some(queue) = queue.upgrade() {
                queue.push(wake_up, End::Back);
            }
        });
        Ok(())
    }

    async fn dead_letter(mut self: Box<Self>, reason: &str) -> Result<(), QueueError> {
        self.origin = None;
        if let Some(queue) = self.queue.upgrade() {
            let entry = (self.wake_up.clone(), reason.to_owned());
            queue.state().dead.push_back(entry);
        }
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let (Some(origin), Some(queue)) = (self.origin.take(), self.queue.upgrade()) else {
            return;
        };
        match origin {
            Origin::Lane => queue.push(self.wake_up.clone(), End::Front),
            Origin::Dead(reason) => queue
                .state()
                .dead
                .push_front((self.wake_up.clone(), reason)),
        }
    }
}

//! Sandboxes started ahead, so that a task need not wait for its own.
//!
//! A sandbox of the pool belongs to no task, and nothing of one ever ran in it; a task that takes it keeps it until
//! its end. It ends with the worker that started it, and is found as a spare one until then, so that no other worker
//! removes it. A task whose image is another one, or that finds the pool empty, gets a new sandbox as without a pool.
//!
//! The pool is filled again a moment after a task took something, since a start that runs beside it would cost the
//! task the time that it has just saved.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agentmine_runtime::backoff::Backoff;
use agentmine_runtime::program_pages;
use async_trait::async_trait;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::backend::{Backend, FoundSandbox};
use crate::error::SandboxError;
use crate::role::SandboxRole;
use crate::sandbox::Sandbox;
use crate::spare::{Spare, remove};
use crate::spec::SandboxSpec;
use crate::template::WorkspaceTemplate;

/// How long after a task took a sandbox the next one is started.
const REFILL_AFTER: Duration = Duration::from_secs(1);
/// How often sandboxes that ended by themselves are looked for.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// What a pool keeps ready.
#[derive(Debug, Clone)]
pub struct WarmSettings {
    /// How many sandboxes.
    pub size: usize,
    /// The image that they are of.
    pub image: String,
    /// After which time a sandbox that nobody took is replaced.
    pub renew_after: Duration,
}

/// A backend with a pool. Clones share it.
#[derive(Clone)]
pub struct WarmPool(Arc<Inner>);

struct Inner {
    backend: Arc<dyn Backend>,
    settings: WarmSettings,
    ready: Mutex<Ready>,
    /// That a task took a sandbox.
    taken: Notify,
}

#[derive(Default)]
struct Ready {
    spares: VecDeque<(Box<dyn Spare>, Instant)>,
    is_closed: bool,
}

impl WarmPool {
    /// An empty pool; [`WarmPool::keep`] fills it.
    #[must_use]
    pub fn new(backend: Arc<dyn Backend>, settings: WarmSettings) -> Self {
        Self(Arc::new(Inner {
            backend,
            settings,
            ready: Mutex::default(),
            taken: Notify::new(),
        }))
    }

    /// Keeps the pool full until `until` ends, then removes what is in it.
    pub async fn keep(&self, until: impl Future<Output = ()>) {
        let mut until = std::pin::pin!(until);
        let mut backoff = Backoff::new(Duration::from_secs(2), Duration::from_secs(60));
        let mut was_full = false;
        loop {
            let pause = self.tend(&mut backoff).await;
            // The first sandboxes belong to the start of the program.
            if !was_full && self.lock().spares.len() >= self.0.settings.size {
                was_full = true;
                program_pages::release_those_of_the_start();
            }
            tokio::select! {
                biased;
                () = &mut until => break,
                () = tokio::time::sleep(pause) => {}
                () = self.0.taken.notified() => {
                    tokio::select! {
                        biased;
                        () = &mut until => break,
                        () = tokio::time::sleep(REFILL_AFTER) => {}
                    }
                }
            }
        }
        self.close().await;
    }

    /// Replaces what is of no use, and starts one sandbox if one is missing. Returns how long nothing is to be done.
    async fn tend(&self, backoff: &mut Backoff) -> Duration {
        for useless in self.useless() {
            remove(useless.as_ref()).await;
        }
        if self.lock().spares.len() >= self.0.settings.size {
            return LOOK_EVERY;
        }
        match self.0.backend.start_spare(None).await {
            Ok(spare) => {
                if backoff.failures() > 0 {
                    tracing::info!("sandboxes are started ahead again");
                }
                backoff.reset();
                self.put(spare);
                Duration::ZERO
            }
            Err(error) => {
                // Once for an outage: each task that needs a sandbox has its own error.
                if backoff.failures() == 0 {
                    tracing::warn!(%error, "no sandbox can be started ahead; it is tried again");
                }
                backoff.delay()
            }
        }
    }

    /// Takes out those that ended by themselves or are too old.
    fn useless(&self) -> Vec<Box<dyn Spare>> {
        let mut ready = self.lock();
        let all = std::mem::take(&mut ready.spares);
        let renew_after = self.0.settings.renew_after;
        let is_useless = |(spare, since): &(Box<dyn Spare>, Instant)| {
            spare.has_ended() || since.elapsed() >= renew_after
        };
        let (useless, kept): (Vec<_>, VecDeque<_>) = all
            .into_iter()
            .map(|it| (is_useless(&it), it))
            .fold(Default::default(), |(mut useless, mut kept), (is, it)| {
                match is {
                    true => useless.push(it.0),
                    false => kept.push_back(it),
                }
                (useless, kept)
            });
        ready.spares = kept;
        count_ready(-(useless.len() as f64));
        useless
    }

    fn put(&self, spare: Box<dyn Spare>) {
        self.lock().spares.push_back((spare, Instant::now()));
        count_ready(1.0);
    }

    /// The oldest one that has not ended.
    fn take(&self) -> Option<Box<dyn Spare>> {
        let mut ready = self.lock();
        if ready.is_closed {
            return None;
        }
        let at = ready.spares.iter().position(|(it, _)| !it.has_ended())?;
        let (spare, _) = ready.spares.remove(at)?;
        drop(ready);
        count_ready(-1.0);
        self.0.taken.notify_one();
        Some(spare)
    }

    /// Whether a sandbox of the pool is what this asks for.
    fn fits(&self, spec: &SandboxSpec) -> bool {
        let is_for_a_task = match spec.role {
            SandboxRole::Main | SandboxRole::Verify => true,
            SandboxRole::Mcp | SandboxRole::Check => false,
        };
        let image = spec.image.as_ref();
        is_for_a_task && image.is_none_or(|image| *image == self.0.settings.image)
    }

    async fn warm(&self, spec: &SandboxSpec) -> Option<Box<dyn Sandbox>> {
        if !self.fits(spec) {
            return None;
        }
        let mut spare = self.take()?;
        match spare.assign(spec).await {
            Ok(()) => Some(spare.into_sandbox()),
            Err(error) => {
                tracing::debug!(%error, "a sandbox that was started ahead cannot be used");
                tokio::spawn(async move { remove(spare.as_ref()).await });
                None
            }
        }
    }

    async fn close(&self) {
        let spares = {
            let mut ready = self.lock();
            ready.is_closed = true;
            std::mem::take(&mut ready.spares)
        };
        count_ready(-(spares.len() as f64));
        futures::future::join_all(spares.iter().map(|(spare, _)| remove(spare.as_ref()))).await;
    }

    fn lock(&self) -> MutexGuard<'_, Ready> {
        self.0.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn count_ready(change: f64) {
    metrics::gauge!("agentmine_warm_sandboxes").increment(change);
}

#[async_trait]
impl Backend for WarmPool {
    async fn check(&self) -> Result<(), SandboxError> {
        self.0.backend.check().await
    }

    async fn weaknesses(&self) -> Vec<String> {
        self.0.backend.weaknesses().await
    }

    async fn disk_limit(&self) -> String {
        self.0.backend.disk_limit().await
    }

    async fn start(&self, spec: &SandboxSpec) -> Result<Box<dyn Sandbox>, SandboxError> {
        let (from, sandbox) = match self.warm(spec).await {
            Some(sandbox) => ("pool", sandbox),
            None => ("new", self.0.backend.start(spec).await?),
        };
        metrics::counter!("agentmine_sandboxes_taken_total", "from" => from).increment(1);
        Ok(sandbox)
    }

    async fn start_spare(
        &self,
        template: Option<WorkspaceTemplate>,
    ) -> Result<Box<dyn Spare>, SandboxError> {
        self.0.backend.start_spare(template).await
    }

    async fn list(&self) -> Result<Vec<FoundSandbox>, SandboxError> {
        self.0.backend.list().await
    }

    async fn remove(&self, found: &FoundSandbox) -> Result<(), SandboxError> {
        self.0.backend.remove(found).await
    }

    async fn remove_unused(&self, max_age: Duration) -> Result<(), SandboxError> {
        self.0.backend.remove_unused(max_age).await
    }
}

#[cfg(test)]
pub(crate) mod tests;

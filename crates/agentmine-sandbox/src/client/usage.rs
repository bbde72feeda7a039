//! What running sandboxes use, in this process's metrics: the guest of each is asked again and again.
//!
//! A sandbox that does not answer, as one that is frozen, keeps its last figures.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agentmine_guest::mux::Opener;
use agentmine_guest::protocol::{GuestRequest, SandboxUse, write_json};
use agentmine_runtime::config::BackendKind;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::answer::reply;
use crate::backend_label::{BACKENDS, backend_label};

/// The time from the start to the first question.
const FIRST: Duration = Duration::from_secs(1);
/// The time between two questions.
const EVERY: Duration = Duration::from_secs(5);
/// How long an answer may take.
const LIMIT: Duration = Duration::from_secs(10);
/// More than a sandbox can have; a guest that says so is not believed.
const MOST: SandboxUse = SandboxUse {
    memory_bytes: 1 << 48,
    processes: 1 << 22,
    cpu_ms: u64::MAX,
    disk_bytes: 1 << 48,
};
/// Cores that a sandbox can use at most.
const MOST_CORES: u64 = 4096;

/// One sandbox whose use is counted. What it used last is counted no more when this is dropped.
pub(crate) struct Observed {
    kind: BackendKind,
    /// `None` once it is dropped.
    last: Arc<Mutex<Option<SandboxUse>>>,
    task: AbortHandle,
}

impl Observed {
    pub(super) fn start(kind: BackendKind, guest: Opener) -> Self {
        running(kind, 1.0);
        let last = Arc::new(Mutex::new(Some(SandboxUse::default())));
        let observing = observe(kind, guest, Arc::clone(&last));
        Self {
            kind,
            last,
            task: tokio::spawn(observing).abort_handle(),
        }
    }
}

impl Drop for Observed {
    fn drop(&mut self) {
        self.task.abort();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = last.take() {
            change(self.kind, last, SandboxUse::default());
        }
        running(self.kind, -1.0);
    }
}

async fn observe(kind: BackendKind, guest: Opener, last: Arc<Mutex<Option<SandboxUse>>>) {
    let mut pause = FIRST;
    let mut asked = Instant::now();
    loop {
        tokio::time::sleep(pause).await;
        pause = EVERY;
        let Ok(Some(answered)) = tokio::time::timeout(LIMIT, ask(&guest)).await else {
            continue;
        };
        let since = std::mem::replace(&mut asked, Instant::now()).elapsed();
        let now = SandboxUse {
            memory_bytes: answered.memory_bytes.min(MOST.memory_bytes),
            processes: answered.processes.min(MOST.processes),
            cpu_ms: answered.cpu_ms,
            disk_bytes: answered.disk_bytes.min(MOST.disk_bytes),
        };
        let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
        // It was dropped while the guest answered.
        let Some(before) = last.replace(now) else {
            *last = None;
            return;
        };
        change(kind, before, now);
        let most = MOST_CORES.saturating_mul(since.as_millis() as u64);
        count_cpu(kind, now.cpu_ms.saturating_sub(before.cpu_ms).min(most));
    }
}

async fn ask(guest: &Opener) -> Option<SandboxUse> {
    let mut stream = guest.open().await.ok()?;
    write_json(&mut stream, &GuestRequest::Use).await.ok()?;
    reply::<SandboxUse>(&mut stream).await.ok()?.ok()
}

fn running(kind: BackendKind, change: f64) {
    metrics::gauge!("agentmine_sandboxes_running", "backend" => backend_label(kind))
        .increment(change);
}

fn change(kind: BackendKind, from: SandboxUse, to: SandboxUse) {
    let backend = backend_label(kind);
    let by = |from: u64, to: u64| to as f64 - from as f64;
    metrics::gauge!("agentmine_sandbox_memory_bytes", "backend" => backend)
        .increment(by(from.memory_bytes, to.memory_bytes));
    metrics::gauge!("agentmine_sandbox_processes", "backend" => backend)
        .increment(by(from.processes, to.processes));
    metrics::gauge!("agentmine_sandbox_disk_bytes", "backend" => backend)
        .increment(by(from.disk_bytes, to.disk_bytes));
}

/// Whole seconds are exported; the rest is kept.
fn count_cpu(kind: BackendKind, milliseconds: u64) {
    static SUMS: [AtomicU64; BACKENDS.len()] = [const { AtomicU64::new(0) }; BACKENDS.len()];
    let backend = backend_label(kind);
    let at = BACKENDS.iter().position(|it| *it == backend);
    let Some(sum) = at.and_then(|at| SUMS.get(at)) else {
        return;
    };
    let sum = sum.fetch_add(milliseconds, Ordering::Relaxed) + milliseconds;
    metrics::counter!("agentmine_sandbox_cpu_seconds_total", "backend" => backend)
        .absolute(sum / 1000);
}

/// Makes the series exist.
pub(crate) fn register() {
    for kind in [BackendKind::Docker, BackendKind::Local] {
        running(kind, 0.0);
        change(kind, SandboxUse::default(), SandboxUse::default());
        count_cpu(kind, 0);
    }
}

//! Snapshots of the project's files behind the steps that may have changed them.
//!
//! A snapshot is taken while the model thinks, and is in the store before the next tool call
//! begins. Killed in between, the journal is one step ahead of the files; the resumed conversation
//! is told so.

use std::sync::Arc;

use agentmine_domain::{Lease, Seq};
use agentmine_sandbox::{Sandbox, SandboxError};
use agentmine_store::{Checkpoint, Store, StoreError};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

use crate::journal::SessionJournal;

/// Bytes of one bundle, uncompressed. A larger one is not kept.
const MAX_BUNDLE: usize = 64 * 1024 * 1024;

/// The checkpoints of one session.
pub(crate) struct Checkpoints {
    inner: Arc<Inner>,
    pending: Mutex<Option<JoinHandle<Result<(), String>>>>,
    due: std::sync::atomic::AtomicBool,
}

struct Inner {
    sandbox: Arc<dyn Sandbox>,
    store: Arc<dyn Store>,
    lease: Lease,
    since: Mutex<Option<String>>,
}

impl Checkpoints {
    /// `since`: the snapshot that the sandbox was restored to.
    pub(crate) fn new(
        sandbox: Arc<dyn Sandbox>,
        store: Arc<dyn Store>,
        lease: Lease,
        since: Option<String>,
    ) -> Self {
        let inner = Inner {
            sandbox,
            store,
            lease,
            since: Mutex::new(since),
        };
        Self {
            inner: Arc::new(inner),
            pending: Mutex::new(None),
            due: false.into(),
        }
    }

    /// A call may have changed files: a snapshot is due once its result is recorded.
    pub(crate) fn due(&self) {
        self.due.store(true, std::sync::atomic::Ordering::Relaxed);
    }

    /// Starts the snapshot that is due, behind the newest recorded step. Does not wait for it.
    pub(crate) async fn begin(&self, journal: &SessionJournal) {
        if !self.due.swap(false, std::sync::atomic::Ordering::Relaxed) {
            return;
        }
        let seq = journal.newest().await;
        let inner = Arc::clone(&self.inner);
        let mut pending = self.pending.lock().await;
        *pending = Some(tokio::spawn(async move { inner.take(seq).await }));
    }

    /// Waits for the snapshot under way. An error means that the sandbox is gone.
    pub(crate) async fn settle(&self) -> Result<(), String> {
        match self.pending.lock().await.take() {
            None => Ok(()),
            Some(task) => task
                .await
                .map_err(|e| format!("the snapshot task ended: {e}"))?,
        }
    }
}

impl Inner {
    async fn take(&self, seq: Seq) -> Result<(), String> {
        let mut since = self.since.lock().await;
        let snapshot = match self.sandbox.snapshot(since.as_deref(), MAX_BUNDLE).await {
            Ok(snapshot) => snapshot,
            Err(SandboxError::Failed(reason)) => {
                // The agent may have left the repository in any state; its work goes on without.
                tracing::warn!(task.id = %self.lease.task, reason, "no checkpoint was taken");
                return Ok(());
            }
            Err(error) => return Err(error.to_string()),
        };
        let Some(bundle) = snapshot.bundle else {
            return Ok(());
        };
        let compressed = zstd::encode_all(bundle.as_slice(), 3).map_err(|e| e.to_string())?;
        metrics::counter!("agentmine_checkpoint_bytes_total").increment(compressed.len() as u64);
        let checkpoint = Checkpoint {
            seq,
            commit: snapshot.commit.clone(),
            bundle: compressed,
        };
        match self.store.save_checkpoint(&self.lease, &checkpoint).await {
            Ok(()) => *since = Some(snapshot.commit),
            // The next snapshot is then taken since the one before this.
            Err(StoreError::Unavailable(reason)) => {
                tracing::warn!(task.id = %self.lease.task, reason, "checkpoint not stored")
            }
            Err(error) => tracing::warn!(task.id = %self.lease.task, %error, "checkpoint refused"),
        }
        Ok(())
    }
}

/// Undoes the compression of stored bundles, with a bound.
pub(crate) fn unpack(bundle: &[u8]) -> anyhow::Result<Vec<u8>> {
    use std::io::Read as _;
    let mut out = Vec::new();
    zstd::Decoder::new(bundle)?
        .take(MAX_BUNDLE as u64 + 1)
        .read_to_end(&mut out)?;
    anyhow::ensure!(
        out.len() <= MAX_BUNDLE,
        "a stored checkpoint is larger than {MAX_BUNDLE} bytes"
    );
    Ok(out)
}

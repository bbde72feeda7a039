//! Snapshots of the project's files, taken after each call that may have changed them.
//!
//! A call's snapshot is stored before its result is recorded. If the worker is killed in between, the
//! restored files are those after the call while the journal records its outcome as unknown; never the
//! other way round. A store that is away is waited for. The next call begins after that, so that a snapshot never contains a part of a later call.
//! A snapshot is taken even after a call that seems to have changed nothing: processes that an earlier call
//! left in the background may have; in the sandbox this costs a look and no process.

use std::collections::BTreeSet;
use std::sync::Arc;

use agentmine_agent::Unsaved;
use agentmine_domain::markdown::line;
use agentmine_domain::{Lease, Seq};
use agentmine_runtime::failpoint::around;
use agentmine_sandbox::{Sandbox, SandboxError};
use agentmine_store::{Checkpoint, Store, StoreError};
use tokio::sync::Mutex;

use crate::claim::heartbeat::Heartbeat;
use crate::error::{BundleError, SessionError};

/// Maximum size in bytes of one uncompressed bundle. A larger one is not stored.
const MAX_BUNDLE: usize = 64 * 1024 * 1024;
/// Maximum total size in bytes of a session's uncompressed bundles, all of which a resuming worker
/// holds in memory.
const MAX_TOTAL: usize = 256 * 1024 * 1024;

/// The checkpoints of one session.
pub(crate) struct Checkpoints {
    sandbox: Arc<dyn Sandbox>,
    store: Arc<dyn Store>,
    lease: Lease,
    newest: Mutex<Newest>,
}

struct Newest {
    commit: Option<String>,
    total: usize,
    /// The files of which a note says that they are omitted.
    left_out: BTreeSet<String>,
    /// Why the last changes were not saved, as a note says.
    unsaved: Option<String>,
}

impl Checkpoints {
    /// `since` is the snapshot that the sandbox was restored from, `total` the size of its bundles.
    pub(crate) fn new(
        sandbox: Arc<dyn Sandbox>,
        store: Arc<dyn Store>,
        lease: Lease,
        since: Option<String>,
        total: usize,
    ) -> Self {
        Self {
            sandbox,
            store,
            lease,
            newest: Mutex::new(Newest {
                commit: since,
                total,
                left_out: BTreeSet::new(),
                unsaved: None,
            }),
        }
    }

    /// Takes a snapshot and stores what has changed, under the number of the next step. What is returned belongs in the
    /// transcript. While the store is unavailable, the session waits.
    ///
    /// # Errors
    /// Returns an error if the sandbox is gone, or the session is to end.
    pub(crate) async fn take(
        &self,
        heartbeat: &Heartbeat,
        next: Seq,
    ) -> Result<Option<Unsaved>, SessionError> {
        let mut newest = self.newest.lock().await;
        let room = MAX_BUNDLE.min(MAX_TOTAL.saturating_sub(newest.total));
        if room == 0 {
            let reason = format!("those of the task have {} MiB", MAX_TOTAL >> 20);
            return Ok(newest.unsaved(next, reason));
        }
        let taken = self.sandbox.snapshot(newest.commit.as_deref(), room);
        let snapshot = match around("checkpoint.snapshot", taken).await {
            Ok(snapshot) => snapshot,
            // The agent may have left the repository in any state; it continues without a checkpoint.
            Err(SandboxError::Failed(reason)) => {
                return Ok(newest.unsaved(next, reason));
            }
            Err(error) => return Err(SessionError::SandboxGone(error.to_string())),
        };
        let note = newest.leave_out(snapshot.left_out);
        let Some(bundle) = snapshot.bundle else {
            newest.unsaved = None;
            return Ok(note);
        };
        let size = bundle.len();
        let packed = tokio::task::spawn_blocking(move || pack(&bundle)).await;
        let compressed = match packed.map_err(Into::into).and_then(|done| done) {
            Ok(compressed) => compressed,
            Err(error) => return Ok(newest.unsaved(next, error.to_string())),
        };
        metrics::counter!("agentmine_checkpoint_bytes_total").increment(compressed.len() as u64);
        let checkpoint = Checkpoint {
            seq: next,
            commit: snapshot.commit.clone(),
            bundle: compressed,
        };
        let save = || self.store.save_checkpoint(&self.lease, &checkpoint);
        match heartbeat.patiently(save).await {
            Ok(()) => {
                newest.commit = Some(snapshot.commit);
                newest.total += size;
                newest.unsaved = None;
                Ok(note)
            }
            Err(interrupt @ SessionError::Interrupted(_)) => Err(interrupt),
            // Recording the result is refused next, which ends the session.
            Err(SessionError::Store(StoreError::Fenced(_))) => Ok(None),
            // The next snapshot is then relative to the previous one.
            Err(error) => Ok(newest.unsaved(next, format!("it was not stored: {error}"))),
        }
    }
}

impl Newest {
    /// A note that the changes up to the step `next` are not saved, unless the last one says so for the same reason.
    fn unsaved(&mut self, next: Seq, reason: String) -> Option<Unsaved> {
        let is_new = self.unsaved.as_ref() != Some(&reason);
        self.unsaved = Some(reason.clone());
        is_new.then_some(Unsaved::Changes(next, reason))
    }

    /// A note of the files that are omitted for the first time.
    fn leave_out(&mut self, files: Vec<String>) -> Option<Unsaved> {
        let new: Vec<String> = files
            .into_iter()
            .filter(|file| self.left_out.insert(file.clone()))
            .map(|file| line(&file, 200))
            .collect();
        (!new.is_empty()).then(|| Unsaved::Files(new.join(", ")))
    }
}

/// Compresses a bundle. Its size is known, so a small one takes small tables and not those of the largest window.
fn pack(bundle: &[u8]) -> std::io::Result<Vec<u8>> {
    zstd::bulk::compress(bundle, 3)
}

/// Decompresses a stored bundle, up to the size limit.
pub(crate) fn unpack(bundle: &[u8]) -> Result<Vec<u8>, BundleError> {
    use std::io::Read as _;
    let mut out = Vec::new();
    zstd::Decoder::new(bundle)?
        .take(MAX_BUNDLE as u64 + 1)
        .read_to_end(&mut out)?;
    match out.len() {
        0..=MAX_BUNDLE => Ok(out),
        _ => Err(BundleError::TooLarge(MAX_BUNDLE)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_noted_once_until_changes_are_saved() {
        let mut newest = Newest {
            commit: None,
            total: 0,
            left_out: BTreeSet::new(),
            unsaved: None,
        };
        let mut is_noted = |seq, reason: &str| newest.unsaved(Seq(seq), reason.into()).is_some();
        assert!(is_noted(1, "too large"));
        assert!(!is_noted(3, "too large"));
        assert!(is_noted(5, "too slow"));
        newest.unsaved = None;
        let note = newest.unsaved(Seq(7), "too slow".into());
        assert_eq!(note, Some(Unsaved::Changes(Seq(7), "too slow".into())));
    }
}

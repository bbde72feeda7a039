//! Appends to the journal under the lease.
//!
//! An entry is stored before anything else begins. While the store is unavailable the journal waits,
//! until the store answers or the session ends.

use std::sync::Arc;
use std::time::Duration;

use agentmine_agent::journal::Entry;
use agentmine_domain::{Lease, Seq, Usage};
use agentmine_store::{NewStep, Store};
use tokio::sync::Mutex;

use super::phase::PhaseClock;
use super::redact::Redactor;
use crate::claim::heartbeat::Heartbeat;
use crate::error::SessionError;

/// The journal of one session.
pub(crate) struct SessionJournal {
    store: Arc<dyn Store>,
    lease: Lease,
    heartbeat: Arc<Heartbeat>,
    redactor: Arc<Redactor>,
    newest: Mutex<Seq>,
    phases: PhaseClock,
}

impl SessionJournal {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        lease: Lease,
        heartbeat: Arc<Heartbeat>,
        redactor: Arc<Redactor>,
    ) -> Self {
        Self {
            store,
            phases: PhaseClock::of(&lease),
            lease,
            heartbeat,
            redactor,
            newest: Mutex::new(Seq(0)),
        }
    }

    /// The newest step of this session. Correct only after the first one was appended.
    pub(crate) async fn newest(&self) -> Seq {
        *self.newest.lock().await
    }

    /// The number of the next step, likewise.
    pub(crate) async fn next_seq(&self) -> Seq {
        Seq(self.newest().await.0 + 1)
    }

    /// Redacts and appends an entry. A phase is also stored in the task's row, and a usage in the session's: that of
    /// the session so far, with the name of its model.
    pub(crate) async fn append(
        &self,
        entry: Entry,
        took: Duration,
        used: Option<(&str, Usage)>,
    ) -> Result<(), SessionError> {
        let redactor = &self.redactor;
        let entry = entry.redacted(&|text| redactor.redact(text));
        let step = NewStep::new(entry.kind(), entry.encode()?, millis(took));
        let seq = self
            .heartbeat
            .patiently(|| async {
                let (store, lease) = (&self.store, &self.lease);
                match &used {
                    Some((model, usage)) => {
                        store
                            .append_step_with_usage(lease, &step, model, usage)
                            .await
                    }
                    None => store.append_step(lease, &step).await,
                }
            })
            .await?;
        *self.newest.lock().await = seq;
        if let Entry::Phase { phase } = entry {
            self.phases.begin(phase);
            self.heartbeat
                .patiently(|| self.store.set_phase(&self.lease, phase))
                .await?;
        }
        Ok(())
    }
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

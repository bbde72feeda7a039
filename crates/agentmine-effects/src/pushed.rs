//! That the branch of a task was pushed, so that a later session knows one that a person has removed since.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use agentmine_domain::{EffectKey, TaskId};
use agentmine_store::{EffectState, Store};
use serde_json::json;

use crate::{EffectError, Effects};

/// Records the first push of a session.
pub struct PushRecord {
    store: Arc<dyn Store>,
    task: TaskId,
    key: EffectKey,
    is_written: AtomicBool,
}

impl PushRecord {
    /// Upstream accepted a push. If the record fails, the next push writes it; without one, a session that takes over creates
    /// the branch again, should a person have removed it.
    pub async fn note(&self) {
        if self.is_written.load(Ordering::Relaxed) {
            return;
        }
        // What happened has happened, whoever holds the lease by now.
        let record = json!({});
        match self.store.effect_done(self.task, &self.key, &record).await {
            Ok(()) => self.is_written.store(true, Ordering::Relaxed),
            Err(error) => {
                tracing::warn!(task.id = %self.task, %error, "the push could not be recorded");
            }
        }
    }
}

impl Effects {
    /// The record of pushes to the branch of this task.
    #[must_use]
    pub fn push_record(&self) -> PushRecord {
        PushRecord {
            store: Arc::clone(&self.store),
            task: self.task.id,
            key: EffectKey::branch_push(&self.task.branch()),
            is_written: AtomicBool::new(false),
        }
    }

    /// Whether a session of this task is known to have pushed its branch.
    ///
    /// # Errors
    /// Returns errors of the store.
    pub async fn was_pushed(&self) -> Result<bool, EffectError> {
        let key = EffectKey::branch_push(&self.task.branch());
        let state = self.store.effect(self.task.id, &key).await?;
        Ok(matches!(state, Some(EffectState::Done(_))))
    }
}

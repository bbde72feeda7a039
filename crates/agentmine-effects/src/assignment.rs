//! Whether the bot was among the assignees of an item: only then does its absence say that somebody unassigned it.

use agentmine_domain::EffectKey;
use agentmine_store::EffectState;

use crate::{EffectError, Effects};

impl Effects {
    /// Remembers that the bot is among the assignees.
    ///
    /// # Errors
    /// Returns errors of the store.
    pub async fn note_assignment(&self) -> Result<(), EffectError> {
        self.done(&EffectKey::assignment(), &()).await
    }

    /// Whether it was at some time during the task.
    ///
    /// # Errors
    /// Returns errors of the store.
    pub async fn was_assigned(&self) -> Result<bool, EffectError> {
        let key = EffectKey::assignment();
        let state = self.store.effect(self.task.id, &key).await?;
        Ok(matches!(state, Some(EffectState::Done(_))))
    }
}

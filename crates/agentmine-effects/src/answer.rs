//! How a comment of a person that gave a command is acknowledged: by a reaction. What a reaction does not say is answered in
//! the comment on the item: see [`Effects::answer`].

use agentmine_domain::{EffectKey, ItemRef};
use agentmine_store::EffectState;
use agentmine_trackers::Comment;

use crate::error::is_final;
use crate::{EffectError, Effects};

impl Effects {
    /// Acknowledges a comment by a reaction, once.
    ///
    /// # Errors
    /// Returns errors of the store and temporary ones of the tracker.
    pub async fn acknowledge(&self, on: &ItemRef, comment: &Comment) -> Result<(), EffectError> {
        let key = EffectKey::reaction(&comment.remark_id());
        if let EffectState::Done(_) = self.begin(&key).await? {
            return Ok(());
        }
        match self.tracker.react(on, comment, &self.permit).await {
            // It was deleted, or the conversation was locked.
            Err(error) if is_final(&error) => {
                tracing::warn!(task.id = %self.task.id, comment.id, %error, "a command could not be acknowledged");
            }
            written => written?,
        }
        self.done(&key, &()).await
    }

    /// Whether nothing more is to be done about a comment.
    ///
    /// # Errors
    /// Returns errors of the store.
    pub async fn is_settled(&self, comment: &Comment) -> Result<bool, EffectError> {
        let key = EffectKey::reaction(&comment.remark_id());
        let reaction = self.store.effect(self.task.id, &key).await?;
        Ok(matches!(reaction, Some(EffectState::Done(_))))
    }

    /// Nothing more is to be done about a comment, which gets no reaction.
    ///
    /// # Errors
    /// Returns errors of the store.
    pub async fn settle(&self, comment: &Comment) -> Result<(), EffectError> {
        self.done(&EffectKey::reaction(&comment.remark_id()), &())
            .await
    }
}

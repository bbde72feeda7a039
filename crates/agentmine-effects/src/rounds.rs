//! What rounds write on a pull request: replies to threads, and that no further round is made.

use agentmine_domain::{EffectKey, ItemRef, Round, RoundResult, ThreadAnswer};
use agentmine_store::EffectState;

use crate::error::is_final;
use crate::text::rounds_comment;
use crate::{EffectError, Effects};

impl Effects {
    /// Replies to the threads of the round that the task is, as its result was recorded. Each thread gets one reply.
    ///
    /// # Errors
    /// Returns errors of the store and temporary ones of the tracker.
    pub async fn answer_threads(&self) -> Result<(), EffectError> {
        let Some(number) = self.task.round() else {
            return Ok(());
        };
        let rounds = self.store.rounds(&self.task.item).await?;
        let is_it = |round: &Round| round.number == number;
        let result = rounds.into_iter().find(is_it).and_then(|it| it.result);
        let RoundResult {
            answers, resolve, ..
        } = result.unwrap_or_default();
        for answer in &answers {
            self.answer_thread(answer, resolve).await?;
        }
        Ok(())
    }

    async fn answer_thread(&self, answer: &ThreadAnswer, resolve: bool) -> Result<(), EffectError> {
        let key = EffectKey::thread_reply(&answer.thread);
        if let EffectState::Done(_) = self.begin(&key).await? {
            return Ok(());
        }
        let (tracker, pull) = (&self.tracker, &self.task.item);
        let ThreadAnswer { thread, text } = answer;
        let marker = self.marker(&key);
        let mut written = tracker
            .reply_to_thread(pull, thread, &marker, text, &self.permit)
            .await;
        if resolve && written.is_ok() {
            written = tracker.resolve_thread(pull, thread, &self.permit).await;
        }
        match written {
            // The comment that began it was deleted, or the conversation was locked.
            Err(error) if is_final(&error) => {
                tracing::warn!(task.id = %self.task.id, %error, "a thread could not be answered");
            }
            written => written?,
        }
        self.done(&key, &()).await
    }

    /// Says on the pull request that this task opened that no further round is made, once.
    ///
    /// # Errors
    /// Returns errors of the store and the tracker.
    pub async fn end_rounds(&self, pull: &ItemRef, reason: &str) -> Result<(), EffectError> {
        let key = EffectKey::rounds_comment();
        if let EffectState::Done(_) = self.begin(&key).await? {
            return Ok(());
        }
        let body = rounds_comment(pull, reason, &self.labels.request);
        match self.comment_elsewhere(pull, &key, &body).await {
            // The conversation was locked. Rounds end all the same.
            Err(EffectError::Tracker(error)) if is_final(&error) => {
                tracing::warn!(task.id = %self.task.id, %error, "the end of the rounds could not be reported");
            }
            written => written?,
        }
        self.done(&key, &()).await
    }
}

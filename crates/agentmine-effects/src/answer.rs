//! What people are answered who wrote a command: a reaction, and where that does not say enough, a text in the progress
//! comment.
//!
//! The newest answer is recorded, and every later edit of the comment keeps it, whoever makes it. Accepted: a session
//! that edits its comment while an answer is shown may be overwritten with what the comment said before, until its next
//! edit or the second look at its end.

use agentmine_domain::{EffectKey, ItemKind, ItemRef};
use agentmine_store::EffectState;
use agentmine_trackers::{Comment, FLEET_MARKER};
use serde_json::{Value, json};

use crate::error::is_final;
use crate::{EffectError, Effects, progress_comment};

/// Parts the answer from what is above it. Readers do not see it, and no text of others may contain it.
const ANSWER: &str = "\n\n<!-- agentmine:answer -->\n";

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
                tracing::warn!(task.id = %self.task.id, comment.id, %error, "a command is not acknowledged");
            }
            written => written?,
        }
        self.done(&key, &Value::Null).await
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
        self.done(&EffectKey::reaction(&comment.remark_id()), &Value::Null)
            .await
    }

    /// Answers in the progress comment of the task; `text` is Markdown of ours.
    ///
    /// # Errors
    /// Returns errors of the store and the tracker.
    pub async fn answer(&self, text: &str) -> Result<(), EffectError> {
        let earlier = self.newest_answer().await?;
        let answer = json!({ "text": text });
        self.done(&EffectKey::answer(), &answer).await?;
        if self.task.item.kind == ItemKind::Task {
            return Ok(());
        }
        let marker = self.marker(&EffectKey::progress_comment());
        let comments = self.tracker.comments(&self.task.item).await?;
        let shown = comments
            .into_iter()
            .find(|it| it.ours && it.body.contains(&marker));
        let base = match shown {
            Some(comment) => base(&comment.body, earlier.as_deref()).to_owned(),
            None => {
                let text = format!("AgentMine has this as task {}.", self.task.number);
                progress_comment(&text, "none yet")
            }
        };
        self.comment(&base).await
    }

    /// A text of the progress comment with the newest answer below it.
    pub(crate) async fn with_answer(&self, body: &str) -> Result<String, EffectError> {
        Ok(match self.newest_answer().await? {
            Some(text) => format!("{body}{ANSWER}{text}"),
            None => body.to_owned(),
        })
    }

    async fn newest_answer(&self) -> Result<Option<String>, EffectError> {
        let key = EffectKey::answer();
        let answer = self.store.effect(self.task.id, &key).await?;
        Ok(match answer {
            Some(EffectState::Done(answer)) => answer["text"].as_str().map(str::to_owned),
            Some(EffectState::Fresh | EffectState::Unsure) | None => None,
        })
    }
}

/// What a comment says above the marker and the answer that it shows.
fn base<'b>(body: &'b str, answer: Option<&str>) -> &'b str {
    let marked = format!("<!-- {FLEET_MARKER}");
    let body = body.rsplit_once(&marked).map_or(body, |(text, _)| text);
    let body = body.trim_end();
    let shown = answer.map(|text| format!("{ANSWER}{text}"));
    let above = shown.and_then(|shown| body.strip_suffix(shown.trim_end()));
    above.unwrap_or(body).trim_end()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_above_the_answer_stays() {
        let text = format!("Working.\n\n```text\n{ANSWER}\n```\n\n<sub>x</sub>");
        let marker = "<!-- agentmine:task=1:progress -->";
        let shown = format!("{text}{ANSWER}old\n\n{marker}");
        assert_eq!(base(&shown, Some("old")), text);
        let without = format!("{text}\n\n{marker}");
        assert_eq!(base(&without, None), text);
        assert_eq!(base(&without, Some("old")), text);
    }
}

//! The reply that the model is writing, for people who follow the session.
//!
//! It is a convenience: nothing waits for it, nothing depends on it, and an error is not one of the session. It is written only
//! while somebody follows the session; until then the store is asked now and then. A step that is recorded meanwhile
//! ends what was shown before it.

use std::time::Duration;

use agentmine_domain::Seq;
use agentmine_llm::Delta;
use tokio::time::Instant;

use crate::session::context::SessionContext;

/// How often it is written while somebody follows.
const FOLLOWED: Duration = Duration::from_millis(500);
/// How often the store is asked whether somebody does.
const UNFOLLOWED: Duration = Duration::from_secs(2);
/// Time for one write.
const WRITE: Duration = Duration::from_secs(2);
/// Bytes of it that are shown: the newest.
const MOST: usize = 16 * 1024;

/// Shows people what the model writes.
pub(super) struct ReplyView<'a> {
    ctx: &'a SessionContext,
    /// The newest step when the text began.
    after: Seq,
    text: String,
    /// What the store has of it; `None` while nobody follows.
    written: Option<String>,
    due: Instant,
}

impl<'a> ReplyView<'a> {
    pub(super) fn new(ctx: &'a SessionContext) -> Self {
        Self {
            ctx,
            after: Seq(0),
            text: String::new(),
            written: None,
            due: Instant::now() + FOLLOWED,
        }
    }

    /// Takes a piece of a reply.
    pub(super) async fn add(&mut self, piece: &Delta) {
        let newest = self.ctx.journal.newest().await;
        if newest != self.after {
            self.after = newest;
            self.text.clear();
            // Of this reply the store has nothing.
            self.written = self.written.take().map(|_| String::new());
        }
        add(&mut self.text, piece);
    }

    /// Resolves when the store is to be written to again.
    pub(super) async fn due(&self) {
        tokio::time::sleep_until(self.due).await;
    }

    /// Writes what there is of the reply.
    pub(super) async fn show(&mut self) {
        if let Some(shown) = self.unwritten().await {
            self.written = self.write(&shown).await.then_some(shown);
        }
        let pause = match self.written {
            Some(_) => FOLLOWED,
            None => UNFOLLOWED,
        };
        self.due = Instant::now() + pause;
    }

    /// Whether somebody follows.
    async fn write(&self, shown: &str) -> bool {
        let store = &self.ctx.deps.store;
        let writing = store.show_reply(&self.ctx.lease, self.after, shown);
        match tokio::time::timeout(WRITE, writing).await {
            Ok(Ok(is_followed)) => is_followed,
            Ok(Err(error)) => {
                tracing::debug!(%error, "the reply in progress could not be shown");
                false
            }
            Err(_) => false,
        }
    }

    /// The text to write; `None` if the store has it, or if there is nothing to show.
    async fn unwritten(&self) -> Option<String> {
        let has_text = !self.text.is_empty() || self.written.is_some();
        if !has_text || self.ctx.journal.newest().await != self.after {
            return None;
        }
        let shown = newest(self.ctx.redactor.redact_open(&self.text));
        (self.written.as_ref() != Some(&shown)).then_some(shown)
    }
}

fn add(text: &mut String, piece: &Delta) {
    match piece {
        Delta::Text(more) => text.push_str(more),
        Delta::Call(name) => {
            if !text.is_empty() && !text.ends_with('\n') {
                text.push('\n');
            }
            text.push_str(&format!("calls {name}\n"));
        }
        // What was written before belongs to an answer that broke off.
        Delta::Waiting(_) => text.clear(),
    }
}

/// The end of a long text, from the beginning of a line where there is one.
fn newest(text: String) -> String {
    if text.len() <= MOST {
        return text;
    }
    let end = &text[text.ceil_char_boundary(text.len() - MOST)..];
    let end = end.split_once('\n').map_or(end, |(_, lines)| lines);
    format!("…{end}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_its_text_and_its_calls_and_begins_anew_after_a_wait() {
        let mut text = String::new();
        for piece in [
            Delta::Text("I ".into()),
            Delta::Waiting("no answer for 30 s".into()),
            Delta::Text("Let me ".into()),
            Delta::Text("look.".into()),
            Delta::Call("text_editor".into()),
        ] {
            add(&mut text, &piece);
        }
        assert_eq!(text, "Let me look.\ncalls text_editor\n");
    }

    #[test]
    fn of_a_long_reply_the_newest_lines_are_shown() {
        let long = "é line\n".repeat(4000);
        let shown = newest(long.clone());
        assert!(
            shown.len() <= MOST + 3 && shown.starts_with("…é line\n"),
            "{}",
            shown.len()
        );
        assert!(long.ends_with(shown.trim_start_matches('…')));
        assert_eq!(newest("short".into()), "short");
    }
}

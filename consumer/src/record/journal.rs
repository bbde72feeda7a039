//! Records steps under the lease, and takes checkpoints of the files behind them.
//!
//! A step is in the store before the next thing begins. While the store is silent the journal
//! waits; what ends the wait is the store's answer or the end of the session.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use agentmine_agent::{Halt, Journal, Record};
use agentmine_domain::{Lease, Phase, Seq, StepKind, Usage};
use agentmine_llm::Message;
use agentmine_runtime::backoff::Backoff;
use agentmine_runtime::config::Secret;
use agentmine_store::{NewStep, Store, StoreError};
use async_trait::async_trait;
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::sync::mpsc::UnboundedSender;

use crate::claim::heartbeat::Keeper;
use crate::prepare::Start;
use crate::record::live::Progress;
use crate::report::effects::store_halt;

/// The journal of one session.
pub(crate) struct SessionJournal {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) lease: Lease,
    pub(crate) keeper: Arc<Keeper>,
    pub(crate) model: String,
    pub(crate) secrets: Vec<Secret>,
    /// Those of the operator's MCP servers, known once their file is read.
    pub(crate) server_secrets: OnceLock<Vec<Secret>>,
    pub(crate) usage: Mutex<Usage>,
    pub(crate) newest: Mutex<Seq>,
    pub(crate) watch: Option<UnboundedSender<Progress>>,
}

impl SessionJournal {
    /// The number that the next step will get.
    pub(crate) async fn next_seq(&self) -> Seq {
        Seq(self.newest.lock().await.0 + 1)
    }

    /// Tells whoever looks on.
    pub(crate) fn tell(&self, progress: Progress) {
        if let Some(watch) = &self.watch {
            // Nobody listening is no fault of the session.
            let _ = watch.send(self.shown(progress));
        }
    }

    /// A person who looks on sees no more than whoever reads the transcript.
    fn shown(&self, progress: Progress) -> Progress {
        let clean = |text: String| self.without_secrets(text);
        match progress {
            Progress::Note(text) => Progress::Note(clean(text)),
            Progress::Reply { text, usage } => Progress::Reply {
                text: clean(text),
                usage,
            },
            Progress::ToolBegan { name, summary } => Progress::ToolBegan {
                name: clean(name),
                summary: clean(summary),
            },
            Progress::Facts(facts) => {
                let value = serde_json::to_value(&facts).unwrap_or_default();
                let cleaned = serde_json::from_value(redact(value, &clean));
                Progress::Facts(cleaned.unwrap_or_default())
            }
            Progress::Ended { task, end, reason } => Progress::Ended {
                task,
                end,
                reason: reason.map(clean),
            },
            progress @ (Progress::Began { .. }
            | Progress::Phase(_)
            | Progress::ToolEnded { .. }) => progress,
        }
    }

    /// Records what was settled before the agent began.
    pub(crate) async fn record_start(&self, start: &Start) -> Result<(), Halt> {
        self.append(StepKind::Fact, json!({ "start": start }), 0)
            .await
    }

    /// Records what something other than the loop used of the model.
    pub(crate) async fn record_use(&self, note: &str, used: Usage) -> Result<(), Halt> {
        let payload = json!({ "text": note, "usage": used });
        self.append(StepKind::Note, payload, 0).await?;
        self.count(used).await?;
        self.tell(Progress::Note(note.to_owned()));
        Ok(())
    }

    async fn count(&self, used: Usage) -> Result<(), Halt> {
        let total = {
            let mut usage = self.usage.lock().await;
            *usage += used;
            *usage
        };
        self.unless_halted(|| self.store.record_usage(&self.lease, &self.model, &total))
            .await
    }

    /// Names further secrets, once. The longest are looked for first: one may be part of another.
    pub(crate) fn hide(&self, mut secrets: Vec<Secret>) {
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.expose().len()));
        let _ = self.server_secrets.set(secrets);
    }

    /// The worker's own secrets never reach a sandbox; should one turn up in a text all the same, it
    /// is neither told nor written down. Texts are cleaned before they are cut: half a secret is not
    /// found any more.
    pub(crate) fn without_secrets(&self, text: String) -> String {
        let servers = self.server_secrets.get().map_or(&[][..], Vec::as_slice);
        without(text, self.secrets.iter().chain(servers))
    }

    async fn append(&self, kind: StepKind, payload: Value, duration_ms: u64) -> Result<(), Halt> {
        let step = NewStep {
            kind,
            payload: redact(payload, &|text| self.without_secrets(text)),
            duration_ms,
        };
        let seq = self
            .unless_halted(|| self.store.append_step(&self.lease, &step))
            .await?;
        *self.newest.lock().await = seq;
        Ok(())
    }

    /// Repeats a store call while the store is unavailable and the session goes on.
    pub(crate) async fn unless_halted<T, F>(&self, mut call: impl FnMut() -> F) -> Result<T, Halt>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
        loop {
            match call().await {
                Err(StoreError::Unavailable(reason)) => {
                    tracing::debug!(reason, "the store is silent; the session waits");
                    tokio::select! {
                        biased;
                        halt = self.keeper.halted() => return Err(halt),
                        () = backoff.wait() => {}
                    }
                }
                answer => return answer.map_err(store_halt),
            }
        }
    }

    fn show(&self, record: &Record<'_>, duration_ms: u64) {
        if self.watch.is_none() {
            return;
        }
        match record {
            Record::Phase(phase) => self.tell(Progress::Phase(*phase)),
            Record::Reply(Message::Assistant(reply), usage) => self.tell(Progress::Reply {
                text: reply.text.clone(),
                usage: *usage,
            }),
            Record::ToolResult(Message::Tool { name, is_error, .. }) => {
                self.tell(Progress::ToolEnded {
                    name: name.clone(),
                    is_error: *is_error,
                    duration_ms,
                })
            }
            Record::Facts(facts) => self.tell(Progress::Facts(Box::new((*facts).clone()))),
            Record::Note(text) => self.tell(Progress::Note((*text).to_owned())),
            Record::Prompt(_) | Record::Reply(..) | Record::ToolResult(_) => {}
        }
    }
}

#[async_trait]
impl Journal for SessionJournal {
    async fn record(&self, record: Record<'_>, duration_ms: u64) -> Result<(), Halt> {
        let (kind, payload) = payload(&record);
        self.append(kind, payload, duration_ms).await?;
        match &record {
            Record::Phase(phase) => self.set_phase(*phase).await?,
            Record::Reply(_, used) => self.count(*used).await?,
            Record::ToolResult(_) => self.usage.lock().await.tool_calls += 1,
            Record::Prompt(_) | Record::Facts(_) | Record::Note(_) => {}
        }
        self.show(&record, duration_ms);
        Ok(())
    }

    async fn halted(&self) -> Halt {
        self.keeper.halted().await
    }
}

impl SessionJournal {
    async fn set_phase(&self, phase: Phase) -> Result<(), Halt> {
        self.unless_halted(|| self.store.set_phase(&self.lease, phase))
            .await
    }
}

fn payload(record: &Record<'_>) -> (StepKind, Value) {
    match record {
        Record::Phase(phase) => (StepKind::Phase, json!({ "phase": phase })),
        Record::Prompt(message) => (StepKind::Prompt, json!({ "message": message })),
        Record::Reply(message, usage) => (
            StepKind::ModelReply,
            json!({ "message": message, "usage": usage }),
        ),
        Record::ToolResult(message) => (StepKind::ToolResult, json!({ "message": message })),
        Record::Facts(facts) => (StepKind::Fact, json!({ "facts": facts })),
        Record::Note(text) => (StepKind::Note, json!({ "text": text })),
    }
}

/// Applies `clean` to every text of a value.
fn redact(value: Value, clean: &dyn Fn(String) -> String) -> Value {
    match value {
        Value::String(text) => Value::String(clean(text)),
        Value::Array(items) => items.into_iter().map(|v| redact(v, clean)).collect(),
        Value::Object(fields) => fields
            .into_iter()
            .map(|(k, v)| (k, redact(v, clean)))
            .collect(),
        other => other,
    }
}

pub(crate) fn without<'a>(mut text: String, secrets: impl Iterator<Item = &'a Secret>) -> String {
    // Shorter ones would be found in words that are none.
    for secret in secrets.map(Secret::expose).filter(|s| s.len() >= 8) {
        if text.contains(secret) {
            text = text.replace(secret, "***");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_not_written_down_wherever_it_stands() {
        let value = json!({ "a": ["x canary-token y"], "b": { "c": "canary-token" }, "n": 1 });
        let secret = [Secret::new("canary-token"), Secret::new("short")];
        let clean = redact(value, &|text| without(text, secret.iter()));
        assert_eq!(
            clean,
            json!({ "a": ["x *** y"], "b": { "c": "***" }, "n": 1 })
        );
    }
}

//! What a frame shows, read from the store.

use std::collections::HashMap;

use agentmine_control::queue::{self, QueueStatus};
use agentmine_control::view::{SessionView, detail};
use agentmine_domain::Usage;
use agentmine_store::Store;
use anyhow::Result;
use chrono::{DateTime, SecondsFormat, Utc};
use serde::Serialize;

use crate::control::failure;

/// Sessions that are read, newest first: the totals are of these.
const SESSIONS: u32 = 200;
/// Sessions that have ended, of those that a frame lists.
const ENDED: usize = 20;

/// The fleet at one moment.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Snapshot {
    pub(super) at: String,
    pub(super) queue: QueueStatus,
    /// Those that run, then the newest of those that have ended.
    pub(super) sessions: Vec<Row>,
    pub(super) totals: Totals,
}

/// A session with what is shown of its task.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Row {
    #[serde(flatten)]
    pub(super) session: SessionView,
    pub(super) title: String,
    /// What the worker does now.
    pub(super) phase: Option<String>,
    pub(super) seconds: u64,
}

/// What the newest sessions used.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Totals {
    /// How many sessions these are.
    pub(super) sessions: usize,
    pub(super) running: usize,
    pub(super) input_tokens: u64,
    pub(super) output_tokens: u64,
    pub(super) cost_micros: u64,
    /// Since the frame before; `None` for the first.
    pub(super) tokens_per_minute: Option<u64>,
}

/// Reads one snapshot after another. Titles do not change often, so they are kept.
#[derive(Debug, Default)]
pub(super) struct Reader {
    titles: HashMap<i64, String>,
    before: Option<(DateTime<Utc>, u64)>,
}

impl Reader {
    pub(super) async fn read(&mut self, store: &dyn Store) -> Result<Snapshot> {
        let now = Utc::now();
        let queue = queue::status(store, None).await.map_err(failure)?;
        let all = store.sessions(None, SESSIONS).await?;
        let mut used = Usage::default();
        for session in &all {
            used += session.usage;
        }
        let (running, ended): (Vec<_>, Vec<_>) = all.iter().partition(|it| it.end.is_none());
        let mut sessions = Vec::new();
        for session in running.iter().chain(ended.iter().take(ENDED)) {
            let number = session.task_number;
            let mut phase = None;
            if session.end.is_none() || !self.titles.contains_key(&number.0) {
                let task = store.task_by_number(number).await?;
                if let Some(task) = task {
                    let is_running = session.end.is_none();
                    phase = detail(&task).filter(|_| is_running).map(ToOwned::to_owned);
                    self.titles.insert(number.0, task.title);
                }
            }
            let took = session.ended_at.unwrap_or(now) - session.started_at;
            sessions.push(Row {
                session: SessionView::of(session),
                title: self.titles.get(&number.0).cloned().unwrap_or_default(),
                phase,
                seconds: u64::try_from(took.num_seconds()).unwrap_or(0),
            });
        }
        Ok(Snapshot {
            at: now.to_rfc3339_opts(SecondsFormat::Secs, true),
            queue,
            sessions,
            totals: Totals {
                sessions: all.len(),
                running: running.len(),
                input_tokens: used.input_tokens,
                output_tokens: used.output_tokens,
                cost_micros: used.cost_micros,
                tokens_per_minute: self.rate(now, used.total_tokens()),
            },
        })
    }

    fn rate(&mut self, now: DateTime<Utc>, tokens: u64) -> Option<u64> {
        let (at, before) = self.before.replace((now, tokens))?;
        let millis = u64::try_from((now - at).num_milliseconds())
            .ok()
            .filter(|it| *it > 0)?;
        Some(tokens.saturating_sub(before) * 60_000 / millis)
    }
}

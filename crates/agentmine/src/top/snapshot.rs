//! What a frame shows, read from the store.

use agentmine_control::queue::{self, QueueStatus};
use agentmine_control::view::{SessionView, detail};
use agentmine_domain::{Session, Task, Usage};
use agentmine_store::{Store, WhichSessions};
use anyhow::Result;
use chrono::{DateTime, SecondsFormat, Utc};
use serde::Serialize;

use crate::control::failure;

/// Sessions that are read, newest first: the totals are of these.
const SESSIONS: u32 = 200;
/// Sessions that have ended, of those that a frame lists.
const ENDED: u32 = 20;

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
    /// All that run.
    pub(super) running: usize,
    pub(super) input_tokens: u64,
    pub(super) output_tokens: u64,
    pub(super) cost_micros: u64,
    /// Since the frame before; `None` for the first.
    pub(super) tokens_per_minute: Option<u64>,
}

impl Row {
    fn of(session: &Session, task: &Task, now: DateTime<Utc>) -> Self {
        let is_running = session.end.is_none();
        let took = session.ended_at.unwrap_or(now) - session.started_at;
        Self {
            session: SessionView::of(session),
            title: task.title.clone(),
            phase: detail(task).filter(|_| is_running).map(ToOwned::to_owned),
            seconds: u64::try_from(took.num_seconds()).unwrap_or(0),
        }
    }
}

/// Reads one snapshot after another.
#[derive(Debug, Default)]
pub(super) struct Reader {
    before: Option<(DateTime<Utc>, u64)>,
}

impl Reader {
    pub(super) async fn read(&mut self, store: &dyn Store) -> Result<Snapshot> {
        let now = Utc::now();
        let queue = queue::status(store, None).await.map_err(failure)?;
        let running = store.sessions_with_tasks(WhichSessions::Running, 0).await?;
        let ended = store
            .sessions_with_tasks(WhichSessions::Ended, ENDED)
            .await?;
        let newest = store.sessions(None, SESSIONS).await?;
        let mut used = Usage::default();
        for session in &newest {
            used += session.usage;
        }
        let rows = running.iter().chain(&ended);
        let rows = rows.map(|(session, task)| Row::of(session, task, now));
        Ok(Snapshot {
            at: now.to_rfc3339_opts(SecondsFormat::Secs, true),
            queue,
            sessions: rows.collect(),
            totals: Totals {
                sessions: newest.len(),
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

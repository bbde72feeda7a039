//! The agent's journal: appends, meters and shows each entry, in this order.

use std::sync::Arc;
use std::time::Duration;

use agentmine_agent::Journal;
use agentmine_agent::journal::Entry;
use agentmine_domain::{StepKind, Usage};
use async_trait::async_trait;

use super::journal::SessionJournal;
use super::live::LiveView;
use super::meter::UsageMeter;
use crate::claim::heartbeat::Heartbeat;
use crate::error::SessionError;

/// The journal as the agent and the session's MCP servers use it.
pub(crate) struct Recorder {
    pub(crate) journal: Arc<SessionJournal>,
    pub(crate) live: Arc<LiveView>,
    pub(crate) heartbeat: Arc<Heartbeat>,
    pub(crate) meter: UsageMeter,
}

impl Recorder {
    /// The task's usage so far.
    pub(crate) async fn used(&self) -> Usage {
        self.meter.total().await
    }
}

#[async_trait]
impl Journal<SessionError> for Recorder {
    async fn record(&self, entry: Entry, duration: Duration) -> Result<(), SessionError> {
        let (used, progress) = (entry.usage(), LiveView::of(&entry, duration));
        let is_call = entry.kind() == StepKind::ToolResult;
        let append =
            async |used: Option<(&str, Usage)>| self.journal.append(entry, duration, used).await;
        self.meter.record((used, is_call), append).await?;
        self.live.show_some(progress);
        Ok(())
    }

    async fn interrupted(&self) -> SessionError {
        self.heartbeat.interrupted().await.into()
    }
}

//! The dashboard issues of repositories: which issue it is, what was written, and who may write now.

use std::time::Duration;

use agentmine_domain::{ItemKind, ItemRef, RepositoryRef};
use async_trait::async_trait;
use chrono::{DateTime, Utc};
use uuid::Uuid;

use crate::StoreError;

/// The record of a dashboard issue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dashboard {
    /// Its repository.
    pub repository: RepositoryRef,
    /// The number of the issue; `None` until it is known.
    pub number: Option<u64>,
    /// Counts the texts that were about to be written.
    pub revision: i64,
    /// When the latest one was written, by the tracker's clock.
    pub shown_at: Option<DateTime<Utc>>,
    /// What it shows, without its number; empty if no text was written.
    pub body: String,
    /// What became of the latest tick, Markdown; empty if there was none.
    pub notice: String,
}

impl Dashboard {
    /// The issue; with the number 0 while it is not known.
    #[must_use]
    pub fn item(&self) -> ItemRef {
        let RepositoryRef {
            tracker,
            host,
            repo_id,
            repo_path,
        } = self.repository.clone();
        ItemRef {
            tracker,
            host,
            repo_id,
            repo_path,
            kind: ItemKind::Issue,
            number: self.number.unwrap_or_default(),
        }
    }

    /// Whether this item is the dashboard.
    #[must_use]
    pub fn is(&self, item: &ItemRef) -> bool {
        self.number.is_some() && self.item().key() == item.key()
    }
}

/// A text that a dashboard shows now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownDashboard<'a> {
    /// The number of the issue.
    pub number: u64,
    /// When it was written, by the tracker's clock.
    pub at: DateTime<Utc>,
    /// See [`Dashboard::body`].
    pub body: &'a str,
    /// See [`Dashboard::notice`].
    pub notice: &'a str,
}

/// Dashboards. Only producers write them, and of each only its holder.
#[async_trait]
pub trait DashboardStore: Send + Sync + 'static {
    /// All dashboards.
    async fn dashboards(&self) -> Result<Vec<Dashboard>, StoreError>;

    /// Makes `holder` the one that writes the dashboard of a repository for a time, and records it if it is new. `None`:
    /// somebody else is.
    async fn claim_dashboard(
        &self,
        repository: &RepositoryRef,
        holder: Uuid,
        time: Duration,
    ) -> Result<Option<Dashboard>, StoreError>;

    /// Records that a text is about to be written, at least `apart` after the one before it. Returns its number; `None` if
    /// it is too early, or if the holder is another one by now.
    async fn begin_dashboard_text(
        &self,
        repository: &RepositoryRef,
        holder: Uuid,
        apart: Duration,
    ) -> Result<Option<i64>, StoreError>;

    /// Records the issue, whatever it shows.
    async fn found_dashboard(
        &self,
        repository: &RepositoryRef,
        holder: Uuid,
        number: u64,
    ) -> Result<(), StoreError>;

    /// Records that a text was written.
    async fn dashboard_shows(
        &self,
        repository: &RepositoryRef,
        holder: Uuid,
        shown: &ShownDashboard<'_>,
    ) -> Result<(), StoreError>;

    /// Records what became of the latest tick.
    async fn note_on_dashboard(
        &self,
        repository: &RepositoryRef,
        holder: Uuid,
        notice: &str,
    ) -> Result<(), StoreError>;

    /// The holder is done for now.
    async fn release_dashboard(
        &self,
        repository: &RepositoryRef,
        holder: Uuid,
    ) -> Result<(), StoreError>;
}

//! The dashboard issues of repositories.

use std::time::Duration;

use agentmine_domain::RepositoryRef;
use async_trait::async_trait;
use uuid::Uuid;

use super::arg::args;
use super::db::Dialect;
use super::row::DashboardRow;
use super::store::{LONGEST_HOLD, SqlStore};
use crate::{Dashboard, DashboardStore, ShownDashboard, StoreError};

/// What a record is found by.
fn key(repository: &RepositoryRef) -> [&str; 3] {
    let RepositoryRef {
        tracker,
        host,
        repo_id,
        repo_path: _,
    } = repository;
    [tracker.as_str(), host, repo_id]
}

#[async_trait]
impl<D: Dialect> DashboardStore for SqlStore<D> {
    async fn dashboards(&self) -> Result<Vec<Dashboard>, StoreError> {
        self.select::<DashboardRow, _>(
            "dashboards",
            "SELECT {columns} FROM dashboards ORDER BY tracker, host, repo_path",
            args![],
        )
        .await
    }

    async fn claim_dashboard(
        &self,
        repository: &RepositoryRef,
        holder: Uuid,
        time: Duration,
    ) -> Result<Option<Dashboard>, StoreError> {
        let [tracker, host, repo_id] = key(repository);
        self.run("claim_dashboard", || async {
            let row: Option<DashboardRow> = self
                .connection()
                .await?
                .row(
                    "INSERT INTO dashboards (tracker, host, repo_id, repo_path, holder, held_until)
                     VALUES ($1, $2, $3, $4, $5, {now} + $6{ms})
                     ON CONFLICT (tracker, host, repo_id) DO UPDATE
                     SET repo_path = excluded.repo_path, holder = excluded.holder, held_until = excluded.held_until
                     WHERE dashboards.held_until <= {now} OR dashboards.holder = excluded.holder
                        OR dashboards.held_until > {now} + $7{ms}
                     RETURNING {columns}",
                    args![
                        tracker,
                        host,
                        repo_id,
                        &repository.repo_path,
                        holder,
                        time,
                        LONGEST_HOLD
                    ],
                )
                .await?;
            row.map(Dashboard::try_from).transpose()
        })
        .await
    }

    async fn begin_dashboard_text(
        &self,
        repository: &RepositoryRef,
        holder: Uuid,
        apart: Duration,
    ) -> Result<Option<i64>, StoreError> {
        let [tracker, host, repo_id] = key(repository);
        self.run("begin_dashboard_text", || async {
            self.connection()
                .await?
                .scalar(
                    "UPDATE dashboards
                     SET revision = revision + 1, written_at = {now}
                     WHERE tracker = $1 AND host = $2 AND repo_id = $3 AND holder = $4 AND held_until > {now}
                       AND (written_at IS NULL OR written_at <= {now} - $5{ms})
                     RETURNING revision",
                    args![tracker, host, repo_id, holder, apart],
                )
                .await
        })
        .await
    }

    async fn found_dashboard(
        &self,
        repository: &RepositoryRef,
        holder: Uuid,
        number: u64,
    ) -> Result<(), StoreError> {
        let [tracker, host, repo_id] = key(repository);
        self.execute(
            "found_dashboard",
            "UPDATE dashboards SET number = $5
             WHERE tracker = $1 AND host = $2 AND repo_id = $3 AND holder = $4",
            args![tracker, host, repo_id, holder, number],
        )
        .await
        .map(drop)
    }

    async fn dashboard_shows(
        &self,
        repository: &RepositoryRef,
        holder: Uuid,
        shown: &ShownDashboard<'_>,
    ) -> Result<(), StoreError> {
        let [tracker, host, repo_id] = key(repository);
        self.execute(
            "dashboard_shows",
            "UPDATE dashboards SET number = $5, shown_at = $6, body = $7, notice = $8
             WHERE tracker = $1 AND host = $2 AND repo_id = $3 AND holder = $4",
            args![
                tracker,
                host,
                repo_id,
                holder,
                shown.number,
                shown.at.timestamp_millis(),
                shown.body,
                shown.notice
            ],
        )
        .await
        .map(drop)
    }

    async fn note_on_dashboard(
        &self,
        repository: &RepositoryRef,
        holder: Uuid,
        notice: &str,
    ) -> Result<(), StoreError> {
        let [tracker, host, repo_id] = key(repository);
        self.execute(
            "note_on_dashboard",
            "UPDATE dashboards SET notice = $5
             WHERE tracker = $1 AND host = $2 AND repo_id = $3 AND holder = $4",
            args![tracker, host, repo_id, holder, notice],
        )
        .await
        .map(drop)
    }

    async fn release_dashboard(
        &self,
        repository: &RepositoryRef,
        holder: Uuid,
    ) -> Result<(), StoreError> {
        let [tracker, host, repo_id] = key(repository);
        self.execute(
            "release_dashboard",
            "UPDATE dashboards SET held_until = {now}
             WHERE tracker = $1 AND host = $2 AND repo_id = $3 AND holder = $4",
            args![tracker, host, repo_id, holder],
        )
        .await
        .map(drop)
    }
}

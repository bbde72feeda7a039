//! Pull requests that the fleet opened, and the rounds on them.

use agentmine_domain::{ItemRef, Lease, Round, RoundResult, Task, TaskId, TrackerKind};
use async_trait::async_trait;

use super::arg::args;
use super::db::Dialect;
use super::failure::Failure;
use super::row::{RoundRow, TaskRow};
use super::store::SqlStore;
use crate::{RoundStore, StoreError};

#[async_trait]
impl<D: Dialect> RoundStore for SqlStore<D> {
    async fn watch_pull(&self, task: TaskId) -> Result<(), StoreError> {
        let insert = "INSERT INTO watched_pulls (task) VALUES ($1) ON CONFLICT DO NOTHING";
        self.execute("watch_pull", insert, args![task])
            .await
            .map(drop)
    }

    async fn watched_pulls(
        &self,
        tracker: TrackerKind,
        host: &str,
    ) -> Result<Vec<Task>, StoreError> {
        self.select::<TaskRow, _>(
            "watched_pulls",
            "SELECT {columns} FROM tasks
             WHERE id IN (SELECT task FROM watched_pulls WHERE ended_at IS NULL)
               AND tracker = $1 AND host = $2
             ORDER BY number",
            args![tracker.as_str(), host],
        )
        .await
    }

    async fn unwatch_pull(&self, task: TaskId, reason: &str) -> Result<bool, StoreError> {
        self.execute(
            "unwatch_pull",
            "UPDATE watched_pulls SET ended_at = {now}, ended_by = $2
             WHERE task = $1 AND ended_at IS NULL",
            args![task, reason],
        )
        .await
        .map(|changed| changed > 0)
    }

    async fn begin_round(&self, round: &Round) -> Result<Round, StoreError> {
        self.run("begin_round", || async {
            let cause = serde_json::to_string(&round.cause)?;
            let mut db = self.connection().await?;
            db.execute(
                "INSERT INTO rounds (pull_key, number, origin, head, cause, begun_at)
                 VALUES ($1, $2, $3, $4, $5, {now}) ON CONFLICT DO NOTHING",
                args![
                    &round.pull.key(),
                    round.number,
                    round.origin,
                    &round.head,
                    &cause
                ],
            )
            .await?;
            let recorded: Option<RoundRow> = db
                .row(
                    "SELECT {columns} FROM rounds WHERE pull_key = $1 AND number = $2",
                    args![&round.pull.key(), round.number],
                )
                .await?;
            let recorded = recorded.ok_or_else(|| Failure::Fault("a round vanished".into()))?;
            recorded.of(&round.pull)
        })
        .await
    }

    async fn rounds(&self, pull: &ItemRef) -> Result<Vec<Round>, StoreError> {
        self.run("rounds", || async {
            let rows: Vec<RoundRow> = self
                .connection()
                .await?
                .rows(
                    "SELECT {columns} FROM rounds WHERE pull_key = $1 ORDER BY number",
                    args![&pull.key()],
                )
                .await?;
            rows.into_iter().map(|row| row.of(pull)).collect()
        })
        .await
    }

    async fn round_result(
        &self,
        lease: &Lease,
        number: u32,
        result: &RoundResult,
    ) -> Result<(), StoreError> {
        self.run("round_result", || async {
            let result = serde_json::to_string(result)?;
            let changed = self
                .connection()
                .await?
                .execute(
                    "UPDATE rounds SET result = $5
                     WHERE number = $4 AND pull_key = (SELECT item_key FROM tasks WHERE {held})",
                    args![lease.task, lease.epoch, lease.nonce, number, &result],
                )
                .await?;
            match changed {
                0 => Err(Failure::Fenced(lease.task)),
                _ => Ok(()),
            }
        })
        .await
    }
}

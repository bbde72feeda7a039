//! The figures of the whole fleet, for its metrics.
//!
//! Only rows that are not over are counted, each kind through its own index, so that the time does not grow
//! with the number of ended tasks. Subqueries are counted, not asked for existence: see `migrations/postgres/0017_running.sql`.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::Duration;

use agentmine_domain::Priority;
use async_trait::async_trait;

use super::arg::args;
use super::db::{Db, Dialect};
use super::failure::Failure;
use super::row::{AgeRow, HeldFilesRow, ScopedRow, StandingRow, priority, scope};
use super::store::{SqlStore, refuse_read_only};
use super::totals;
use crate::{Backlog, FigureStore, Figures, StoreError, TaskCount, TaskStanding, Totals};

#[async_trait]
impl<D: Dialect> FigureStore for SqlStore<D> {
    async fn figures(&self) -> Result<Figures, StoreError> {
        self.run("figures", || async {
            let mut db = self.connection().await?;
            // Otherwise they would look up to date during such an outage.
            refuse_read_only(&mut db).await?;
            let slots: Option<i64> = db.scalar("SELECT slots FROM demand", &[]).await?;
            Ok(Figures {
                tasks: tasks(&mut db).await?,
                slots: slots.unwrap_or(0).unsigned_abs(),
                outbox: backlog(
                    &mut db,
                    "SELECT count(*) AS count, COALESCE({millis(}{now} - min(due_at){)millis}, 0) AS oldest
                     FROM outbox WHERE sent_at IS NULL AND due_at <= {now}",
                )
                .await?,
                unreported: backlog(
                    &mut db,
                    "SELECT count(*) AS count, COALESCE({millis(}{now} - min(updated_at){)millis}, 0) AS oldest
                     FROM tasks t
                     WHERE state IN ('done', 'failed', 'stopped', 'paused') AND NOT end_reported
                       AND (SELECT count(*) FROM effects e
                            WHERE {label of t} AND e.done_at IS NOT NULL) = 0",
                )
                .await?,
                effects: backlog(
                    &mut db,
                    "SELECT count(*) AS count, COALESCE({millis(}{now} - min(begun_at){)millis}, 0) AS oldest
                     FROM effects WHERE done_at IS NULL",
                )
                .await?,
            })
        })
        .await
    }

    async fn totals(&self) -> Result<Totals, StoreError> {
        self.run("totals", || async {
            totals::read(self.connection().await?).await
        })
        .await
    }

    async fn fold_totals(&self) -> Result<(), StoreError> {
        self.run("fold_totals", || async {
            totals::fold(self.transaction().await?).await
        })
        .await
    }
}

/// One count for each priority and standing, also where there is no task: a gauge must return to zero.
async fn tasks<D: Dialect>(db: &mut Db<D>) -> Result<Vec<TaskCount>, Failure> {
    let mut rows: Vec<StandingRow> = db
        .rows(
            "SELECT priority, standing, count(*) AS count,
                 COALESCE({millis(}{now} - min(updated_at){)millis}, 0) AS oldest
             FROM (SELECT priority, updated_at, CASE
                       WHEN state = 'leased' THEN 'leased'
                       WHEN EXISTS (SELECT 1 FROM outbox o WHERE o.task = tasks.id AND o.sent_at IS NULL
                                      AND o.due_at > {now}) THEN 'delayed'
                       ELSE 'due' END AS standing
                   FROM tasks WHERE state IN ('queued', 'leased')
                                AND (state = 'leased' OR (write_scope = '' AND {workable}))) AS waiting
             GROUP BY priority, standing",
            &[],
        )
        .await?;
    let paused: Vec<StandingRow> = db
        .rows(
            "SELECT priority, 'paused' AS standing, count(*) AS count,
                 COALESCE({millis(}{now} - min(updated_at){)millis}, 0) AS oldest
             FROM tasks
             WHERE state IN ('done', 'failed', 'stopped', 'paused') AND NOT end_reported AND state = 'paused'
             GROUP BY priority",
            &[],
        )
        .await?;
    rows.extend(paused);
    let waiting: Vec<StandingRow> = db
        .rows(
            "SELECT priority, 'waiting' AS standing, count(*) AS count,
                 COALESCE({millis(}{now} - min(updated_at){)millis}, 0) AS oldest
             FROM tasks WHERE waits_for IS NOT NULL AND state = 'queued' GROUP BY priority",
            &[],
        )
        .await?;
    rows.extend(waiting);
    rows.extend(with_scope(db).await?);
    let mut counts = Vec::new();
    for &of_priority in Priority::ALL {
        for &standing in TaskStanding::ALL {
            let mut count = TaskCount {
                priority: of_priority,
                standing,
                backlog: Backlog::default(),
            };
            for row in &rows {
                if priority(row.priority)? == of_priority && row.standing == standing.as_str() {
                    let more = of(row.count, row.oldest);
                    count.backlog.count += more.count;
                    count.backlog.oldest = count.backlog.oldest.max(more.oldest);
                }
            }
            counts.push(count);
        }
    }
    Ok(counts)
}

/// Those that name their files, a row for each. As long as a running task may change the same files, no worker takes one.
async fn with_scope<D: Dialect>(db: &mut Db<D>) -> Result<Vec<StandingRow>, Failure> {
    let queued: Vec<ScopedRow> = db
        .rows(
            "SELECT priority, CASE WHEN {delayed} THEN 'delayed' ELSE 'due' END AS standing,
                 {millis(}{now} - updated_at{)millis} AS oldest, tracker, host, repo_id, write_scope
             FROM tasks
             WHERE state IN ('queued', 'leased') AND state = 'queued' AND write_scope <> '' AND {workable}",
            &[],
        )
        .await?;
    let mut holders: HashMap<[String; 3], Vec<HeldFilesRow>> = HashMap::new();
    for row in &queued {
        let place = [&row.tracker, &row.host, &row.repo_id].map(Clone::clone);
        if let Entry::Vacant(unknown) = holders.entry(place) {
            let sql = "SELECT {columns} FROM tasks
                       WHERE tracker = $1 AND host = $2 AND repo_id = $3 AND {holds files}";
            let place = args![&row.tracker, &row.host, &row.repo_id];
            unknown.insert(db.rows(sql, place).await?);
        }
    }
    let mut found = Vec::new();
    for row in queued {
        let own = scope(&row.write_scope)?;
        let mut is_held = false;
        let place = [row.tracker, row.host, row.repo_id];
        for holder in holders.get(&place).into_iter().flatten() {
            is_held |= own.conflict(&scope(&holder.write_scope)?).is_some();
        }
        found.push(StandingRow {
            priority: row.priority,
            standing: match is_held {
                true => TaskStanding::Waiting.as_str().to_owned(),
                false => row.standing,
            },
            count: 1,
            oldest: row.oldest,
        });
    }
    Ok(found)
}

async fn backlog<D: Dialect>(db: &mut Db<D>, template: &'static str) -> Result<Backlog, Failure> {
    let row: Option<AgeRow> = db.row(template, &[]).await?;
    Ok(row.map_or_else(Backlog::default, |row| of(row.count, row.oldest)))
}

/// The database's clock may have been set back since the oldest row was written.
fn of(count: i64, oldest: i64) -> Backlog {
    Backlog {
        count: count.unsigned_abs(),
        oldest: Duration::from_millis(u64::try_from(oldest).unwrap_or(0)),
    }
}

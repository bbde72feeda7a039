//! Tasks that wait until a producer admits them.

use std::time::Duration;

use agentmine_domain::{ItemKind, NewTask, Priority, RepositoryKey, Task, TaskId, TrackerKind};
use async_trait::async_trait;

use super::arg::args;
use super::db::{Db, Dialect};
use super::enqueue::wake;
use super::failure::Failure;
use super::row::{AtWorkRow, LeftRow, LoadRow, OpenedRow, TaskRow, WaitingRow, priority_number};
use super::store::SqlStore;
use crate::{
    Admitted, CapacityStore, Enqueued, OpenedPullRequest, RepositoryLoad, Room, StoreError, Turn,
    WaitingRequest,
};

#[async_trait]
impl<D: Dialect> CapacityStore for SqlStore<D> {
    async fn enqueue_waiting(&self, new: &NewTask) -> Result<Enqueued, StoreError> {
        self.record("enqueue_waiting", new, Some("")).await
    }

    async fn waiting_requests(&self) -> Result<Vec<WaitingRequest>, StoreError> {
        self.select::<WaitingRow, _>(
            "waiting_requests",
            "SELECT {columns} FROM tasks WHERE waits_for IS NOT NULL AND state = 'queued'",
            &[],
        )
        .await
    }

    async fn admitted(&self, tracker: TrackerKind, host: &str) -> Result<Vec<Task>, StoreError> {
        // The plus keeps SQLite from going through all tasks in the order of their numbers.
        self.select::<TaskRow, _>(
            "admitted",
            "SELECT {columns} FROM tasks
             WHERE tracker = $1 AND host = $2 AND state IN ('queued', 'leased') AND waits_for IS NULL AND state = 'queued'
             ORDER BY +number DESC",
            args![tracker.as_str(), host],
        )
        .await
    }

    async fn loads(&self) -> Result<Vec<RepositoryLoad>, StoreError> {
        self.select::<LoadRow, _>(
            "loads",
            "SELECT w.tracker, w.host, w.repo_id, w.repo_path, w.waiting,
                 (SELECT count(*) FROM tasks
                  WHERE tracker = w.tracker AND host = w.host AND repo_id = w.repo_id
                    AND state IN ('queued', 'leased') AND waits_for IS NULL AND state = 'queued' AND {workable}) AS queued,
                 (SELECT count(*) FROM tasks
                  WHERE tracker = w.tracker AND host = w.host AND repo_id = w.repo_id
                    AND state IN ('queued', 'leased') AND waits_for IS NULL AND state = 'queued' AND {workable}
                    AND {delayed}) AS delayed,
                 (SELECT count(*) FROM tasks
                  WHERE tracker = w.tracker AND host = w.host AND repo_id = w.repo_id
                    AND state IN ('queued', 'leased') AND waits_for IS NULL AND state = 'leased') AS leased,
                 (SELECT count(*) FROM tasks
                  WHERE tracker = w.tracker AND host = w.host AND repo_id = w.repo_id AND item_kind = 'issue'
                    AND state IN ('queued', 'leased') AND waits_for IS NULL AND (state = 'leased' OR ({workable}))) AS on_issues
             FROM (SELECT tracker, host, repo_id, max(repo_path) AS repo_path, count(*) AS waiting,
                       min(created_at) AS since
                   FROM tasks WHERE waits_for IS NOT NULL AND state = 'queued'
                   GROUP BY tracker, host, repo_id) AS w
             ORDER BY w.since",
            &[],
        )
        .await
    }

    async fn next_waiting(
        &self,
        repository: &RepositoryKey,
        each: u32,
    ) -> Result<Vec<Task>, StoreError> {
        let RepositoryKey {
            tracker,
            host,
            repo_id,
        } = repository;
        self.run("next_waiting", || async {
            let mut db = self.connection().await?;
            let mut rows: Vec<TaskRow> = Vec::new();
            for kind in [ItemKind::Issue, ItemKind::PullRequest] {
                let in_turn: Vec<TaskRow> = db
                    .rows(
                        "SELECT {columns} FROM tasks
                         WHERE tracker = $1 AND host = $2 AND repo_id = $3 AND item_kind = $4
                           AND waits_for IS NOT NULL AND state = 'queued' AND look_at IS NULL
                         ORDER BY priority DESC, created_at, number LIMIT $5",
                        args![tracker.as_str(), host, repo_id, kind.as_str(), each],
                    )
                    .await?;
                rows.extend(in_turn);
            }
            let again: Vec<TaskRow> = db
                .rows(
                    "SELECT {columns} FROM tasks
                     WHERE tracker = $1 AND host = $2 AND repo_id = $3 AND waits_for IS NOT NULL
                       AND state = 'queued' AND look_at <= {now}
                     ORDER BY look_at, number LIMIT $4",
                    args![tracker.as_str(), host, repo_id, each],
                )
                .await?;
            rows.extend(again);
            let tasks: Result<Vec<Task>, Failure> = rows.into_iter().map(Task::try_from).collect();
            let mut tasks = tasks?;
            tasks.sort_by_key(|task| {
                let order = -priority_number(task.priority);
                (order, task.created_at, task.number)
            });
            Ok(tasks)
        })
        .await
    }

    async fn pull_requests_of(
        &self,
        repository: &RepositoryKey,
    ) -> Result<Vec<OpenedPullRequest>, StoreError> {
        let RepositoryKey {
            tracker,
            host,
            repo_id,
        } = repository;
        self.run("pull_requests_of", || async {
            let mut db = self.connection().await?;
            let of_results: Vec<OpenedRow> = db
                .rows(
                    "SELECT {columns} FROM tasks
                     WHERE tracker = $1 AND host = $2 AND repo_id = $3 AND state = 'done'
                       AND item_kind = 'issue' AND pull_request_url IS NOT NULL
                     ORDER BY updated_at DESC LIMIT 300",
                    args![tracker.as_str(), host, repo_id],
                )
                .await?;
            let left: Vec<LeftRow> = db
                .rows(
                    "SELECT item_number,
                         (SELECT min(e.result) FROM effects e
                          WHERE e.task = tasks.id AND e.kind IN ({opening kinds})) AS result
                     FROM tasks
                     WHERE tracker = $1 AND host = $2 AND repo_id = $3
                       AND state IN ('failed', 'stopped', 'paused') AND item_kind = 'issue' AND {opened} > 0
                     ORDER BY updated_at DESC LIMIT 300",
                    args![tracker.as_str(), host, repo_id],
                )
                .await?;
            let of_results = of_results.into_iter().map(OpenedPullRequest::try_from);
            let left = left.into_iter().map(OpenedPullRequest::try_from);
            of_results.chain(left).collect()
        })
        .await
    }

    async fn opened_within(
        &self,
        repository: &RepositoryKey,
        time: Duration,
    ) -> Result<u64, StoreError> {
        let RepositoryKey {
            tracker,
            host,
            repo_id,
        } = repository;
        self.run("opened_within", || async {
            let mut db = self.connection().await?;
            let count: Option<i64> = db
                .scalar(
                    "SELECT (SELECT count(*) FROM tasks
                             WHERE tracker = $1 AND host = $2 AND repo_id = $3 AND state = 'done'
                               AND item_kind = 'issue' AND pull_request_url IS NOT NULL
                               AND updated_at > {now} - $4{ms})
                          + (SELECT count(*) FROM tasks
                             WHERE tracker = $1 AND host = $2 AND repo_id = $3
                               AND state IN ('failed', 'stopped', 'paused') AND item_kind = 'issue'
                               AND updated_at > {now} - $4{ms}
                               AND (SELECT count(*) FROM effects e
                                    WHERE e.task = tasks.id AND e.kind IN ({opening kinds})
                                      AND e.done_at > {now} - $4{ms}) > 0)",
                    args![tracker.as_str(), host, repo_id, time],
                )
                .await?;
            Ok(count.unwrap_or(0).unsigned_abs())
        })
        .await
    }

    async fn hold_repository(
        &self,
        repository: &RepositoryKey,
        reason: &str,
    ) -> Result<(), StoreError> {
        let RepositoryKey {
            tracker,
            host,
            repo_id,
        } = repository;
        self.execute(
            "hold_repository",
            "INSERT INTO repository_waits (tracker, host, repo_id, reason) VALUES ($1, $2, $3, $4)
             ON CONFLICT (tracker, host, repo_id) DO UPDATE SET reason = excluded.reason
             WHERE repository_waits.reason <> excluded.reason",
            args![tracker.as_str(), host, repo_id, reason],
        )
        .await
        .map(drop)
    }

    async fn hold_task(
        &self,
        task: TaskId,
        reason: &str,
        time: Duration,
    ) -> Result<(), StoreError> {
        self.execute(
            "hold_task",
            "UPDATE tasks SET waits_for = $2, look_at = CASE WHEN $2 <> '' THEN {now} + $3{ms} END
             WHERE id = $1 AND {state} = 'queued' AND waits_for IS NOT NULL",
            args![task, reason, time],
        )
        .await
        .map(drop)
    }

    async fn prioritize(&self, task: TaskId, priority: Priority) -> Result<(), StoreError> {
        self.execute(
            "prioritize",
            "UPDATE tasks SET priority = $2
             WHERE id = $1 AND {state} = 'queued' AND waits_for IS NOT NULL",
            args![task, priority_number(priority)],
        )
        .await
        .map(drop)
    }

    async fn admit(&self, task: &Task, room: &Room) -> Result<Admitted, StoreError> {
        self.run("admit", || async {
            let mut tx = self.transaction().await?;
            // Two producers that admit at once: the lock lets the second one see the first one's.
            D::lock_plans(&mut tx).await?;
            if !has_room(&mut tx, task, room).await? {
                return Ok(Admitted::Full);
            }
            if !ends_its_wait(&mut tx, task.id).await? {
                return Ok(Admitted::NotWaiting);
            }
            tx.commit().await?;
            Ok(Admitted::Yes)
        })
        .await
    }

    async fn admit_at_once(&self, task: TaskId) -> Result<bool, StoreError> {
        self.run("admit_at_once", || async {
            let mut tx = self.transaction().await?;
            D::lock_plans(&mut tx).await?;
            let did_wait = ends_its_wait(&mut tx, task).await?;
            tx.commit().await?;
            Ok(did_wait)
        })
        .await
    }

    async fn turn(&self, task: &Task) -> Result<Turn, StoreError> {
        let RepositoryKey {
            tracker,
            host,
            repo_id,
        } = task.item.repository();
        self.run("turn", || async {
            let mut db = self.connection().await?;
            let reason = db
                .scalar(
                    "SELECT reason FROM repository_waits WHERE tracker = $1 AND host = $2 AND repo_id = $3",
                    args![tracker.as_str(), &host, &repo_id],
                )
                .await?;
            let before: Option<i64> = db
                .scalar(
                    "SELECT count(*) FROM tasks
                     WHERE tracker = $1 AND host = $2 AND repo_id = $3 AND item_kind = $4
                       AND waits_for IS NOT NULL AND state = 'queued' AND look_at IS NULL
                       AND (priority > $5 OR (priority = $5 AND number < $6))",
                    args![
                        tracker.as_str(),
                        &host,
                        &repo_id,
                        task.item.kind.as_str(),
                        priority_number(task.priority),
                        task.number.0
                    ],
                )
                .await?;
            Ok(Turn {
                reason,
                before: before.unwrap_or(0).unsigned_abs(),
            })
        })
        .await
    }
}

/// Queues a waiting task, with its wake-up.
async fn ends_its_wait<D: Dialect>(tx: &mut Db<D>, task: TaskId) -> Result<bool, Failure> {
    let rows = tx
        .execute(
            "UPDATE tasks SET waits_for = NULL, look_at = NULL, admitted_at = {now}, updated_at = {now}
             WHERE id = $1 AND {state} = 'queued' AND waits_for IS NOT NULL",
            args![task],
        )
        .await?;
    if rows > 0 {
        wake(tx, task, Duration::ZERO).await?;
    }
    Ok(rows > 0)
}

/// Whether the repository of a task may have one more, by what it has now.
async fn has_room<D: Dialect>(tx: &mut Db<D>, task: &Task, room: &Room) -> Result<bool, Failure> {
    let RepositoryKey {
        tracker,
        host,
        repo_id,
    } = task.item.repository();
    let at_work: Vec<AtWorkRow> = tx
        .rows(
            "SELECT state, item_kind, count(*) AS count,
                 sum(CASE WHEN state = 'queued' AND {delayed} THEN 1 ELSE 0 END) AS delayed
             FROM tasks
             WHERE tracker = $1 AND host = $2 AND repo_id = $3
               AND state IN ('queued', 'leased') AND waits_for IS NULL AND (state = 'leased' OR ({workable}))
             GROUP BY state, item_kind",
            args![tracker.as_str(), &host, &repo_id],
        )
        .await?;
    let delayed: u64 = at_work.iter().map(|row| row.delayed.unsigned_abs()).sum();
    let count = |is_counted: &dyn Fn(&AtWorkRow) -> bool| -> u64 {
        let counted = at_work.iter().filter(|row| is_counted(row));
        counted.map(|row| row.count.unsigned_abs()).sum()
    };
    let queued = count(&|row| row.state == "queued");
    let leased = count(&|row| row.state != "queued");
    let on_issues = count(&|row| row.item_kind == ItemKind::Issue.as_str());
    let ended: Option<i64> = tx
        .scalar(
            "SELECT (SELECT count(*) FROM tasks
                     WHERE tracker = $1 AND host = $2 AND repo_id = $3 AND state = 'done'
                       AND item_kind = 'issue' AND pull_request_url IS NOT NULL AND updated_at >= {epoch} + $4{ms})
                  + (SELECT count(*) FROM tasks
                     WHERE tracker = $1 AND host = $2 AND repo_id = $3
                       AND state IN ('failed', 'stopped', 'paused') AND item_kind = 'issue'
                       AND updated_at >= {epoch} + $4{ms} AND {opened} > 0)",
            args![tracker.as_str(), &host, &repo_id, room.since.millis],
        )
        .await?;
    let on_issues = on_issues + ended.unwrap_or(0).unsigned_abs();
    let below = |count: u64, most: Option<u64>| most.is_none_or(|most| count < most);
    Ok(queued.saturating_sub(delayed) < leased.max(1)
        && below(queued + leased, room.tasks)
        && (task.item.kind != ItemKind::Issue || below(on_issues, room.on_issues)))
}

//! Writes to the outside world: intent, act, done.

use std::time::Duration;

use agentmine_domain::{EffectKey, Lease, Task, TaskId};
use serde_json::Value;
use sqlx::SqlitePool;

use super::{begin as begin_tx, people};
use crate::EffectState;
use crate::failure::Failure;
use crate::row::{clean, millis, task_id};

pub(super) async fn begin(
    pool: &SqlitePool,
    task: TaskId,
    lease: Option<&Lease>,
    key: &EffectKey,
) -> Result<EffectState, Failure> {
    if lease.is_some_and(|lease| lease.task != task) {
        return Err(Failure::Fault(
            "an effect under another task's lease".into(),
        ));
    }
    let (mut tx, now) = begin_tx(pool).await?;
    let held: Option<i32> = sqlx::query_scalar(
        "SELECT 1 FROM tasks WHERE id = $1 AND ($2 IS NULL OR (epoch = $2 AND state = 'leased'))",
    )
    .bind(task.to_string())
    .bind(lease.map(|lease| lease.epoch.0))
    .fetch_optional(&mut *tx)
    .await?;
    match (held, lease) {
        (Some(_), _) => {}
        (None, Some(_)) => return Err(Failure::Fenced(task)),
        (None, None) => return Err(Failure::Fault(format!("there is no task {task}"))),
    }
    let begun = sqlx::query(
        "INSERT INTO effects (task, kind, key, epoch, begun_at)
         VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING",
    )
    .bind(task.to_string())
    .bind(key.kind().as_str())
    .bind(clean(key.key()))
    .bind(key.epoch().0)
    .bind(now)
    .execute(&mut *tx)
    .await?;
    tx.commit().await?;
    if begun.rows_affected() > 0 {
        return Ok(EffectState::Fresh);
    }
    let result: Option<String> = sqlx::query_scalar(
        "SELECT result FROM effects WHERE task = $1 AND kind = $2 AND key = $3 AND epoch = $4",
    )
    .bind(task.to_string())
    .bind(key.kind().as_str())
    .bind(clean(key.key()))
    .bind(key.epoch().0)
    .fetch_one(pool)
    .await?;
    Ok(match result {
        None => EffectState::Unsure,
        Some(text) => EffectState::Done(serde_json::from_str(&text)?),
    })
}

/// Done without a begin is recorded too: what happened, happened.
pub(super) async fn done(
    pool: &SqlitePool,
    task: TaskId,
    key: &EffectKey,
    result: &Value,
) -> Result<(), Failure> {
    let (mut tx, now) = begin_tx(pool).await?;
    sqlx::query(
        "INSERT INTO effects (task, kind, key, epoch, result, begun_at, done_at)
         VALUES ($1, $2, $3, $4, $5, $6, $6)
         ON CONFLICT (task, kind, key, epoch) DO UPDATE
         SET result = excluded.result, done_at = COALESCE(effects.done_at, excluded.done_at)",
    )
    .bind(task.to_string())
    .bind(key.kind().as_str())
    .bind(clean(key.key()))
    .bind(key.epoch().0)
    .bind(serde_json::to_string(result)?)
    .bind(now)
    .execute(&mut *tx)
    .await?;
    tx.commit().await?;
    Ok(())
}

pub(super) async fn unreported(
    pool: &SqlitePool,
    older_than: Duration,
    limit: u32,
) -> Result<Vec<Task>, Failure> {
    let now = super::now(&mut *pool.acquire().await?).await?;
    let ids: Vec<String> = sqlx::query_scalar(
        "SELECT id FROM tasks t
         WHERE state IN ('done', 'failed', 'stopped', 'paused') AND updated_at <= $1
           AND NOT EXISTS (SELECT 1 FROM effects e
                           WHERE e.task = t.id AND e.kind = 'label' AND e.done_at IS NOT NULL
                             AND e.key = t.state AND e.epoch = t.epoch)
         ORDER BY updated_at LIMIT $2",
    )
    .bind(now - millis(older_than))
    .bind(i64::from(limit))
    .fetch_all(pool)
    .await?;
    let mut unreported = Vec::with_capacity(ids.len());
    for id in ids {
        unreported.extend(people::task(pool, task_id(&id)?).await?);
    }
    Ok(unreported)
}

//! Writes to the outside world: intent, act, done.

use std::time::Duration;

use agentmine_domain::{EffectKey, Lease, Task, TaskId};
use serde_json::Value;
use sqlx::PgPool;

use super::people;
use crate::EffectState;
use crate::failure::Failure;
use crate::row::{clean, millis, task_id};

pub(super) async fn begin(
    pool: &PgPool,
    task: TaskId,
    lease: Option<&Lease>,
    key: &EffectKey,
) -> Result<EffectState, Failure> {
    if lease.is_some_and(|lease| lease.task != task) {
        return Err(Failure::Fault(
            "an effect under another task's lease".into(),
        ));
    }
    let (held, begun): (i64, i64) = sqlx::query_as(
        "WITH held AS (
             SELECT id FROM tasks
             WHERE id = $1 AND ($2::bigint IS NULL OR (epoch = $2 AND state = 'leased')) FOR SHARE),
         begun AS (
             INSERT INTO effects (task, kind, key, epoch)
             SELECT id, $3, $4, $5 FROM held ON CONFLICT DO NOTHING RETURNING 1)
         SELECT (SELECT count(*) FROM held), (SELECT count(*) FROM begun)",
    )
    .bind(task.0)
    .bind(lease.map(|lease| lease.epoch.0))
    .bind(key.kind().as_str())
    .bind(clean(key.key()))
    .bind(key.epoch().0)
    .fetch_one(pool)
    .await?;
    match (held, begun) {
        (0, _) if lease.is_some() => return Err(Failure::Fenced(task)),
        (0, _) => return Err(Failure::Fault(format!("there is no task {task}"))),
        (_, 0) => {}
        _ => return Ok(EffectState::Fresh),
    }
    let result: Option<String> = sqlx::query_scalar(
        "SELECT result FROM effects WHERE task = $1 AND kind = $2 AND key = $3 AND epoch = $4",
    )
    .bind(task.0)
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
    pool: &PgPool,
    task: TaskId,
    key: &EffectKey,
    result: &Value,
) -> Result<(), Failure> {
    sqlx::query(
        "INSERT INTO effects (task, kind, key, epoch, result, done_at)
         VALUES ($1, $2, $3, $4, $5, now())
         ON CONFLICT (task, kind, key, epoch) DO UPDATE
         SET result = excluded.result, done_at = COALESCE(effects.done_at, excluded.done_at)",
    )
    .bind(task.0)
    .bind(key.kind().as_str())
    .bind(clean(key.key()))
    .bind(key.epoch().0)
    .bind(serde_json::to_string(result)?)
    .execute(pool)
    .await?;
    Ok(())
}

pub(super) async fn unreported(
    pool: &PgPool,
    older_than: Duration,
    limit: u32,
) -> Result<Vec<Task>, Failure> {
    let ids: Vec<String> = sqlx::query_scalar(
        "SELECT id::text FROM tasks t
         WHERE state IN ('done', 'failed', 'stopped', 'paused')
           AND updated_at <= now() - $1::bigint * interval '1 millisecond'
           AND NOT EXISTS (SELECT 1 FROM effects e
                           WHERE e.task = t.id AND e.kind = 'label' AND e.done_at IS NOT NULL
                             AND e.key = t.state AND e.epoch = t.epoch)
         ORDER BY updated_at LIMIT $2",
    )
    .bind(millis(older_than))
    .bind(i64::from(limit))
    .fetch_all(pool)
    .await?;
    let mut unreported = Vec::with_capacity(ids.len());
    for id in ids {
        unreported.extend(people::task(pool, task_id(&id)?).await?);
    }
    Ok(unreported)
}

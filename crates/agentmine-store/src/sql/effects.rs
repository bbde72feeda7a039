//! Effects: begun and done.

use agentmine_domain::{EffectKey, Epoch, LabelRecord, Lease, TaskId, TaskLabel};
use agentmine_runtime::failpoint::Guard;
use async_trait::async_trait;
use serde_json::Value;
use uuid::Uuid;

use super::arg::args;
use super::db::{Db, Dialect};
use super::effect_state::state_of;
use super::failure::Failure;
use super::store::SqlStore;
use crate::{EffectState, EffectStore, StoreError};

#[async_trait]
impl<D: Dialect> EffectStore for SqlStore<D> {
    async fn effect_begin(
        &self,
        task: TaskId,
        lease: Option<&Lease>,
        key: &EffectKey,
    ) -> Result<EffectState, StoreError> {
        let fence = lease.filter(|_| !Guard::Fence.is_off());
        let epoch: Option<Epoch> = fence.map(|lease| lease.epoch);
        let nonce: Option<Uuid> = fence.map(|lease| lease.nonce);
        self.run("effect_begin", || async {
            if lease.is_some_and(|lease| lease.task != task) {
                let reason = "an effect of one task under another task's lease";
                return Err(Failure::Fault(reason.into()));
            }
            let args = args![
                task,
                epoch,
                key.kind().as_str(),
                key.key(),
                key.epoch(),
                nonce
            ];
            let mut db = self.connection().await?;
            let begun = db
                .execute(
                    "INSERT INTO effects (task, kind, key, epoch, begun_at)
                     SELECT id, $3, $4, $5, {now} FROM tasks
                     WHERE id = $1 AND ($2 IS NULL
                                      OR (epoch = $2 AND nonce = $6 AND {state} = 'leased'
                                          AND lease_until > {clock})){lock shared}
                     ON CONFLICT DO NOTHING",
                    args,
                )
                .await?;
            if begun > 0 {
                return Ok(EffectState::Fresh);
            }
            // Begun before, or refused.
            let result: Option<Option<String>> = db
                .scalar(
                    "SELECT e.result FROM tasks t JOIN effects e ON e.task = t.id
                     WHERE t.id = $1 AND ($2 IS NULL
                                      OR (t.epoch = $2 AND t.nonce = $6 AND {state} = 'leased'
                                          AND t.lease_until > {clock}))
                       AND e.kind = $3 AND e.key = $4 AND e.epoch = $5",
                    args,
                )
                .await?;
            match (result, lease) {
                (Some(result), _) => state_of(result),
                (None, Some(lease)) => Err(refusal(&mut db, lease).await?),
                (None, None) => Err(Failure::Fault(format!("there is no task {task}"))),
            }
        })
        .await
    }

    async fn label_names(&self, task: TaskId) -> Result<Vec<String>, StoreError> {
        self.run("label_names", || async {
            let mut db = self.connection().await?;
            let results: Vec<(String,)> = db
                .rows(
                    "SELECT result FROM effects
                     WHERE task = $1 AND kind = {label} AND result IS NOT NULL",
                    args![task],
                )
                .await?;
            let mut names = Vec::new();
            for (result,) in results {
                // Earlier versions recorded nothing.
                let label: Option<LabelRecord> = serde_json::from_str(&result)?;
                names.extend(label.and_then(|label| label.name));
            }
            names.sort();
            names.dedup();
            Ok(names)
        })
        .await
    }

    async fn effect(
        &self,
        task: TaskId,
        key: &EffectKey,
    ) -> Result<Option<EffectState>, StoreError> {
        self.run("effect", || async {
            let mut db = self.connection().await?;
            let result: Option<Option<String>> = db
                .scalar(
                    "SELECT result FROM effects
                     WHERE task = $1 AND kind = $2 AND key = $3 AND epoch = $4",
                    args![task, key.kind().as_str(), key.key(), key.epoch()],
                )
                .await?;
            result.map(state_of).transpose()
        })
        .await
    }

    /// Recorded also where the effect was never begun: what happened, happened.
    async fn effect_done(
        &self,
        task: TaskId,
        key: &EffectKey,
        result: &Value,
    ) -> Result<(), StoreError> {
        let result = result.to_string();
        self.execute(
            "effect_done",
            "INSERT INTO effects (task, kind, key, epoch, result, begun_at, done_at)
             VALUES ($1, $2, $3, $4, $5, {now}, {now})
             ON CONFLICT (task, kind, key, epoch) DO UPDATE
             SET result = excluded.result, done_at = COALESCE(effects.done_at, excluded.done_at)",
            args![task, key.kind().as_str(), key.key(), key.epoch(), &result],
        )
        .await?;
        Ok(())
    }
}

/// The task leaves its pause, and may be paused again in the same epoch: that pause is shown by a separate label.
/// The name of the label stays known.
pub(super) async fn end_pause<D: Dialect>(tx: &mut Db<D>, task: TaskId) -> Result<(), Failure> {
    let epoch: Option<i64> = tx
        .scalar("SELECT epoch FROM tasks WHERE id = $1", args![task])
        .await?;
    let Some(epoch) = epoch.map(Epoch) else {
        return Ok(());
    };
    let shown = EffectKey::label(TaskLabel::Paused, epoch);
    let ended = EffectKey::ended_pause_label(epoch);
    tx.execute(
        "INSERT INTO effects (task, kind, key, epoch, result, begun_at, done_at)
         SELECT task, kind, $5, epoch, result, begun_at, done_at FROM effects
         WHERE task = $1 AND kind = $2 AND key = $3 AND epoch = $4 AND done_at IS NOT NULL
         ON CONFLICT (task, kind, key, epoch) DO UPDATE
         SET result = excluded.result, done_at = excluded.done_at",
        args![task, shown.kind().as_str(), shown.key(), epoch, ended.key()],
    )
    .await?;
    for over in [shown, EffectKey::label_check(TaskLabel::Paused, epoch)] {
        tx.execute(
            "DELETE FROM effects WHERE task = $1 AND kind = $2 AND key = $3 AND epoch = $4",
            args![task, over.kind().as_str(), over.key(), epoch],
        )
        .await?;
    }
    Ok(())
}

/// Why no effect may begin under this lease.
async fn refusal<D: Dialect>(db: &mut Db<D>, lease: &Lease) -> Result<Failure, Failure> {
    let held: Option<i32> = db
        .scalar(
            "SELECT 1 FROM tasks WHERE {held}",
            args![lease.task, lease.epoch, lease.nonce],
        )
        .await?;
    Ok(match held {
        Some(_) => Failure::Expired(lease.task),
        None => Failure::Fenced(lease.task),
    })
}

//! Steps, usage and checkpoints.
//!
//! A payload is stored as JSON text, not as jsonb: jsonb refuses `\u0000`, and a transcript has to come back
//! as it went in.

use std::time::Duration;

use agentmine_domain::{Lease, Seq, Session, Step, TaskId, Usage};
use async_trait::async_trait;

use super::arg::{Arg, args};
use super::db::Dialect;
use super::failure::Failure;
use super::row::{CheckpointRow, StepRow};
use super::store::SqlStore;
use super::tasks::row_limit;
use crate::{Checkpoint, JournalStore, NewStep, StoreError};

/// How long somebody counts as following a session after a look at its reply.
const FOLLOWING: Duration = Duration::from_secs(20);

impl<D: Dialect> SqlStore<D> {
    /// One statement: the row's counter gives the number, so the journal has no gaps, and a row that is not ours gives none. On
    /// Postgres two attempts at one step at the same time both pass the look for the token; the second one is then rolled back by
    /// the unique token.
    async fn append_once(
        &self,
        lease: &Lease,
        step: &NewStep,
        (statement, args): (&'static str, &[Arg<'_>]),
    ) -> Result<Seq, Failure> {
        let mut db = self.connection().await?;
        match db.scalar::<i64>(statement, args).await {
            Ok(Some(seq)) => {
                self.keep(db);
                return Ok(Seq(seq));
            }
            Ok(None) => {}
            Err(failure) if failure.is_duplicate() => {}
            Err(failure) => return Err(failure),
        }
        let of_token = "SELECT seq FROM steps WHERE token = $1";
        let seq = db.scalar(of_token, args![step.token.0]).await?;
        seq.map(Seq).ok_or(Failure::Fenced(lease.task))
    }
}

/// The arguments of [`Dialect::APPEND_STEP`].
fn step_args<'a>(lease: &Lease, step: &NewStep, payload: &'a str) -> [Arg<'a>; 7] {
    [
        Arg::from(lease.task),
        Arg::from(lease.epoch),
        Arg::from(lease.nonce),
        Arg::from(step.token.0),
        Arg::from(step.kind.as_str()),
        Arg::from(payload),
        Arg::from(step.duration_ms),
    ]
}

/// The session, its model and its usage.
fn usage_args<'a>(lease: &Lease, model: &'a str, usage: &Usage) -> [Arg<'a>; 8] {
    let Usage {
        model_calls,
        tool_calls,
        input_tokens,
        cached_tokens,
        output_tokens,
        cost_micros,
    } = *usage;
    [
        Arg::from(lease.session),
        Arg::from(model),
        Arg::from(model_calls),
        Arg::from(tool_calls),
        Arg::from(input_tokens),
        Arg::from(cached_tokens),
        Arg::from(output_tokens),
        Arg::from(cost_micros),
    ]
}

#[async_trait]
impl<D: Dialect> JournalStore for SqlStore<D> {
    async fn append_step(&self, lease: &Lease, step: &NewStep) -> Result<Seq, StoreError> {
        let payload = step.payload.to_string();
        let args = &step_args(lease, step, &payload);
        self.run("append_step", || {
            self.append_once(lease, step, (D::APPEND_STEP, args))
        })
        .await
    }

    async fn append_step_with_usage(
        &self,
        lease: &Lease,
        step: &NewStep,
        model: &str,
        usage: &Usage,
    ) -> Result<Seq, StoreError> {
        let Some(statement) = D::APPEND_STEP_WITH_USAGE else {
            let seq = self.append_step(lease, step).await?;
            self.record_usage(lease, model, usage).await?;
            return Ok(seq);
        };
        let payload = step.payload.to_string();
        let step_args = step_args(lease, step, &payload);
        let args = &[&step_args[..], &usage_args(lease, model, usage)].concat();
        self.run("append_step", || {
            self.append_once(lease, step, (statement, args))
        })
        .await
    }

    async fn record_usage(
        &self,
        lease: &Lease,
        model: &str,
        usage: &Usage,
    ) -> Result<(), StoreError> {
        let held = args![lease.task, lease.epoch, lease.nonce];
        // `ended_at IS NULL` fences out a claim that commits while this statement waits: a claim ends the
        // session.
        self.execute_held(
            lease,
            "record_usage",
            "UPDATE sessions SET model = $5, model_calls = $6, tool_calls = $7,
                 input_tokens = $8, cached_tokens = $9, output_tokens = $10, cost_micros = $11
             WHERE task = $1 AND epoch = $2 AND id = $4 AND ended_at IS NULL
               AND EXISTS (SELECT 1 FROM tasks WHERE {held})",
            &[&held[..], &usage_args(lease, model, usage)].concat(),
        )
        .await
    }

    /// A second checkpoint of a step replaces the first one: a worker that resumed at the step took it again.
    async fn save_checkpoint(
        &self,
        lease: &Lease,
        checkpoint: &Checkpoint,
    ) -> Result<(), StoreError> {
        let Checkpoint {
            seq,
            commit,
            bundle,
        } = checkpoint;
        self.execute_held(
            lease,
            "save_checkpoint",
            "INSERT INTO checkpoints (task, seq, epoch, commit_hash, bundle, recorded_at)
             SELECT id, $4, $2, $5, $6, {now} FROM tasks WHERE {held}{lock shared}
             ON CONFLICT (task, seq) DO UPDATE SET epoch = excluded.epoch,
                 commit_hash = excluded.commit_hash, bundle = excluded.bundle,
                 recorded_at = excluded.recorded_at",
            args![
                lease.task,
                lease.epoch,
                lease.nonce,
                *seq,
                commit,
                bundle.as_slice()
            ],
        )
        .await
    }

    async fn steps(&self, task: TaskId) -> Result<Vec<Step>, StoreError> {
        let of_task = "SELECT {columns} FROM steps WHERE task = $1 ORDER BY seq";
        self.select::<StepRow, _>("steps", of_task, args![task])
            .await
    }

    async fn session_steps(
        &self,
        session: &Session,
        after: Seq,
        limit: u32,
    ) -> Result<Vec<Step>, StoreError> {
        self.select::<StepRow, _>(
            "session_steps",
            "SELECT {columns} FROM steps WHERE task = $1 AND seq > $3 AND epoch = $2
             ORDER BY seq LIMIT $4",
            args![session.task, session.epoch, after, row_limit(limit)],
        )
        .await
    }

    async fn show_reply(&self, lease: &Lease, after: Seq, text: &str) -> Result<bool, StoreError> {
        let text = text.replace('\0', "\u{fffd}");
        let changed = self
            .execute(
                "show_reply",
                "UPDATE replies SET epoch = $2, after_seq = $4, text = $5
                 WHERE task = $1 AND followed_until > {now} AND EXISTS (SELECT 1 FROM tasks WHERE {held})",
                args![lease.task, lease.epoch, lease.nonce, after, &text],
            )
            .await?;
        Ok(changed > 0)
    }

    async fn follow_reply(&self, session: &Session) -> Result<Option<String>, StoreError> {
        self.run("follow_reply", || async {
            let mut connection = self.connection().await?;
            let fresh: Option<i32> = connection
                .scalar(
                    "SELECT 1 FROM replies WHERE task = $1 AND followed_until > {now} + $2{ms}",
                    args![session.task, FOLLOWING / 2],
                )
                .await?;
            if fresh.is_none() {
                connection
                    .execute(
                        "INSERT INTO replies (task, followed_until)
                         SELECT id, {now} + $3{ms} FROM tasks WHERE id = $1 AND epoch = $2 AND {state} = 'leased'
                         ON CONFLICT (task) DO UPDATE SET followed_until = excluded.followed_until",
                        args![session.task, session.epoch, FOLLOWING],
                    )
                    .await?;
            }
            connection
                .scalar(
                    "SELECT text FROM replies WHERE task = $1 AND epoch = $2 AND text <> ''
                       AND after_seq >= (SELECT last_seq FROM tasks WHERE id = $1)",
                    args![session.task, session.epoch],
                )
                .await
        })
        .await
    }

    async fn checkpoints(&self, task: TaskId) -> Result<Vec<Checkpoint>, StoreError> {
        let of_task = "SELECT {columns} FROM checkpoints WHERE task = $1 ORDER BY seq";
        self.select::<CheckpointRow, _>("checkpoints", of_task, args![task])
            .await
    }
}

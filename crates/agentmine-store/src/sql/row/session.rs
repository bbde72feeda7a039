//! Sessions, their steps and their checkpoints.

use agentmine_domain::{
    Epoch, External, Seq, Session, SessionId, Step, TaskNumber, Usage, WorkerId,
};

use super::column::{Id, Timestamp, unsigned};
use crate::Checkpoint;
use crate::sql::failure::Failure;

row!(SessionRow {
    id: i64,
    task: Id,
    task_number: i64,
    epoch: i64,
    worker: String,
    model: Option<String>,
    started_at: Timestamp,
    ended_at: Option<Timestamp>,
    ending: Option<String>,
    reason: Option<String>,
    model_calls: i32,
    tool_calls: i32,
    input_tokens: i64,
    cached_tokens: i64,
    output_tokens: i64,
    cost_micros: i64,
    client: Option<String>,
    agent: Option<String>,
    worktree: Option<String>,
    exit_code: Option<i64>,
    signal: Option<String>,
    dod_result: Option<String>,
    artifacts: Option<String>,
    error: Option<String>,
});

impl SessionRow {
    fn external(&self) -> Result<Option<External>, Failure> {
        let Some(client) = &self.client else {
            return Ok(None);
        };
        let artifacts = self.artifacts.as_deref().map(serde_json::from_str);
        Ok(Some(External {
            client: client.clone(),
            agent: self.agent.clone().unwrap_or_default(),
            worktree: self.worktree.clone(),
            exit_code: self.exit_code,
            signal: self.signal.clone(),
            dod_result: self.dod_result.as_deref().map(str::parse).transpose()?,
            artifacts: artifacts.transpose()?.unwrap_or_default(),
            error: self
                .error
                .as_deref()
                .map(serde_json::from_str)
                .transpose()?,
        }))
    }
}

impl TryFrom<SessionRow> for Session {
    type Error = Failure;

    fn try_from(row: SessionRow) -> Result<Self, Failure> {
        let external = row.external()?;
        Ok(Self {
            external,
            id: SessionId(row.id),
            task: row.task.into(),
            task_number: TaskNumber(row.task_number),
            epoch: Epoch(row.epoch),
            worker: WorkerId(row.worker),
            model: row.model,
            started_at: row.started_at.0,
            ended_at: row.ended_at.map(|time| time.0),
            end: row.ending.map(|end| end.parse()).transpose()?,
            reason: row.reason,
            usage: Usage {
                model_calls: unsigned(row.model_calls)?,
                tool_calls: unsigned(row.tool_calls)?,
                input_tokens: unsigned(row.input_tokens)?,
                cached_tokens: unsigned(row.cached_tokens)?,
                output_tokens: unsigned(row.output_tokens)?,
                cost_micros: unsigned(row.cost_micros)?,
            },
        })
    }
}

row!(StepRow {
    seq: i64,
    epoch: i64,
    kind: String,
    payload: String,
    duration_ms: i64,
    recorded_at: Timestamp,
});

impl TryFrom<StepRow> for Step {
    type Error = Failure;

    fn try_from(row: StepRow) -> Result<Self, Failure> {
        Ok(Self {
            seq: Seq(row.seq),
            epoch: Epoch(row.epoch),
            kind: row.kind.parse()?,
            payload: row.payload.parse()?,
            duration_ms: unsigned(row.duration_ms)?,
            at: row.recorded_at.0,
        })
    }
}

row!(CheckpointRow {
    seq: i64,
    commit_hash: String,
    bundle: Vec<u8>,
});

impl TryFrom<CheckpointRow> for Checkpoint {
    type Error = Failure;

    fn try_from(row: CheckpointRow) -> Result<Self, Failure> {
        Ok(Self {
            seq: Seq(row.seq),
            commit: row.commit_hash,
            bundle: row.bundle,
        })
    }
}

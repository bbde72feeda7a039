//! The section `store.retention`.

use schemars::JsonSchema;
use serde::Deserialize;

/// What is kept of tasks that are over. Their rows, with their origin and the sums of tokens and cost, are kept for
/// good.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RetentionConfig {
    /// Whether producers remove older data.
    pub enabled: bool,
    /// Hours for which checkpoints are kept that the end of a task left behind. Nobody resumes a task that is over.
    pub checkpoint_hours: u64,
    /// Days for which journals (transcripts) are kept, by the outcome of the task.
    pub journal_days: KeepDays,
    /// Days for which the record of writes to the tracker is kept, by the outcome of the task.
    pub effect_days: KeepDays,
}

/// Days by the outcome of a task; 0 keeps for good.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct KeepDays {
    /// Of tasks that are done.
    pub done: u64,
    /// Of tasks that failed.
    pub failed: u64,
    /// Of tasks that were stopped.
    pub stopped: u64,
}

impl Default for KeepDays {
    fn default() -> Self {
        Self {
            done: 90,
            failed: 90,
            stopped: 90,
        }
    }
}

impl Default for RetentionConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            checkpoint_hours: 1,
            journal_days: KeepDays::default(),
            effect_days: KeepDays::default(),
        }
    }
}

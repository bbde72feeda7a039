//! The section `rounds`.

use schemars::JsonSchema;
use serde::Deserialize;

/// Rounds: further work on pull requests that AgentMine opened, for a review that asks for changes or a mention of the
/// bot by somebody who may start work, for a failed check, and for a conflict with the target branch.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RoundsConfig {
    /// Whether producers begin rounds.
    pub enabled: bool,
    /// Rounds on one pull request. After the last one AgentMine says what is still open, and stops.
    pub max: u32,
    /// Seconds after the first request or failure in which others still belong to the same round.
    pub settle_seconds: u64,
    /// Also resolve the threads that a round answered with a commit on which the project's checks pass.
    pub resolve_threads: bool,
}

impl Default for RoundsConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            max: 3,
            settle_seconds: 60,
            resolve_threads: false,
        }
    }
}

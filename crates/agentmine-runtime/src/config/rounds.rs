//! The section `rounds`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Rounds: further work on pull requests that AgentMine opened, for a review that asks for changes or a mention of the
/// bot by somebody who may start work, for a failed check, and for a conflict with the target branch.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RoundsConfig {
    /// Whether producers begin rounds.
    pub enabled: bool,
    /// Rounds on one pull request. After the last one AgentMine reports what is still open, and stops.
    pub max: u32,
    /// Seconds after the first request or failure in which others still belong to the same round.
    pub settle_seconds: u64,
    /// Also resolve the threads that a round answered with a commit on which the project's checks pass.
    pub resolve_threads: bool,
    /// What a round does about a target branch that has moved and conflicts.
    pub base_conflict: BaseConflictRule,
    /// When the branch of a pull request is removed that AgentMine opened. Only if its newest commit is AgentMine's own.
    pub remove_branch: BranchRemovalRule,
}

/// What a round does about a target branch that has moved and conflicts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum BaseConflictRule {
    /// It merges the target branch into the pull request's branch. The default.
    #[default]
    Merge,
    /// It rebases the pull request's branch onto the target branch, and replaces it by a forced push. Nobody else's
    /// work is overwritten. Where others have pushed since the round began, or the forge refuses forced pushes, it merges.
    Rebase,
}

/// When the branch of an ended pull request is removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum BranchRemovalRule {
    /// The forge or people do it.
    Never,
    /// Once it was merged. The default.
    #[default]
    Merged,
    /// Also when it was closed without being merged. To reopen it, restore the branch on the forge first.
    Closed,
}

impl Default for RoundsConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            max: 3,
            settle_seconds: 60,
            resolve_threads: false,
            base_conflict: BaseConflictRule::default(),
            remove_branch: BranchRemovalRule::default(),
        }
    }
}

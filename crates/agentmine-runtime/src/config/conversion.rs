//! The section `issue_to_mr_conversion`.

use schemars::JsonSchema;
use serde::Deserialize;

/// A pull request (merge request) for an issue that is opened when the work on it begins, instead of when there is a
/// result. It applies to GitHub and GitLab.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct IssueToMrConversion {
    /// Whether it is opened when the work begins, with an empty first commit on its branch.
    pub enabled: bool,
    /// Open it as a draft, which is marked as ready for review once the result is complete.
    pub auto_draft: bool,
    /// Put the comments on the issue into one comment on the pull request.
    pub transfer_comments: bool,
    /// Skip comments by bots there.
    pub exclude_bot_comments: bool,
}

impl Default for IssueToMrConversion {
    fn default() -> Self {
        Self {
            enabled: false,
            auto_draft: true,
            transfer_comments: true,
            exclude_bot_comments: true,
        }
    }
}

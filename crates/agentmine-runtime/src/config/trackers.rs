//! The sections of `config.yaml` about trackers: where the items are, and the labels on them.
//!
//! The comments of these structs become the reference in docs/config.schema.json.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;
use url::Url;

use super::secret::Secret;
use super::who::{GitHubWhoMayStart, GitLabWhoMayStart};
use crate::exit::{Exit, Failure};

/// The trackers to scan. A producer and a consumer need at least one.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Trackers {
    /// GitHub or GitHub Enterprise.
    pub github: Option<GitHub>,
    /// GitLab, the vendor's or a self-managed one from 16.7.
    pub gitlab: Option<GitLab>,
    /// A folder of Markdown issues beside a git repository.
    pub local: Option<LocalTrackerConfig>,
}

impl Trackers {
    /// Checks that a tracker is configured; other commands work without one.
    ///
    /// # Errors
    /// Returns [`Exit::Config`] with a hint if there is none.
    pub fn require_one(&self) -> Result<(), Failure> {
        let Self {
            github,
            gitlab,
            local,
        } = self;
        if github.is_some() || gitlab.is_some() || local.is_some() {
            return Ok(());
        }
        Err(Failure::new(
            Exit::Config,
            "no tracker is configured; expected trackers.github, trackers.gitlab or trackers.local",
        )
        .hint("add `trackers: {github: {repositories: [owner/name]}}` to config.yaml"))
    }
}

/// GitHub through its REST API.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct GitHub {
    /// Base of the REST API; `https://HOST/api/v3/` for GitHub Enterprise.
    pub api_url: Url,
    /// Personal access token; usually set by `GITHUB_PERSONAL_ACCESS_TOKEN`.
    pub token: Option<Secret>,
    /// Repositories to scan, as `owner/name`.
    pub repositories: Vec<String>,
    /// Search qualifiers, instead of `repositories` or in addition, e.g. `org:acme`.
    pub query: Option<String>,
    /// Whose label starts work, and whose comments are heard.
    pub who_may_start: GitHubWhoMayStart,
}

impl Default for GitHub {
    fn default() -> Self {
        Self {
            #[expect(clippy::expect_used, reason = "a literal URL parses")]
            api_url: Url::parse("https://api.github.com/").expect("a literal URL"),
            token: None,
            repositories: Vec::new(),
            query: None,
            who_may_start: GitHubWhoMayStart::default(),
        }
    }
}

/// GitLab through its REST API.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct GitLab {
    /// Base of the REST API; `https://HOST/api/v4/` for a self-managed server.
    pub api_url: Url,
    /// Personal, group or project access token; usually set by `GITLAB_PERSONAL_ACCESS_TOKEN`.
    pub token: Option<Secret>,
    /// A PEM file with the certificate authority of the server, for the API and for git. It is trusted in addition
    /// to the system's.
    pub ca_file: Option<PathBuf>,
    /// Projects to scan, as `group/project` or `group/subgroup/project`.
    pub projects: Vec<String>,
    /// Groups to scan, with all of their subgroups, as `group` or `group/subgroup`.
    pub groups: Vec<String>,
    /// Whose label starts work, and whose comments are heard.
    pub who_may_start: GitLabWhoMayStart,
}

impl Default for GitLab {
    fn default() -> Self {
        Self {
            #[expect(clippy::expect_used, reason = "a literal URL parses")]
            api_url: Url::parse("https://gitlab.com/api/v4/").expect("a literal URL"),
            token: None,
            ca_file: None,
            projects: Vec::new(),
            groups: Vec::new(),
            who_may_start: GitLabWhoMayStart::default(),
        }
    }
}

/// A local folder: `issues/*.md` with front matter, and a git repository.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LocalTrackerConfig {
    /// The git repository that branches are pushed to.
    pub repository: PathBuf,
    /// The folder with the issues. Default: `.agentmine/issues` in the repository.
    #[serde(default)]
    pub issues: Option<PathBuf>,
}

/// The names of the labels.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Labels {
    /// Requests work.
    pub request: String,
    /// The work is in progress.
    pub processing: String,
    /// The pull request is open.
    pub done: String,
    /// The task is paused.
    pub paused: String,
    /// A person stopped the task.
    pub stopped: String,
    /// The task failed.
    pub failed: String,
}

impl Labels {
    /// Every label, with its configuration key.
    #[must_use]
    pub fn entries(&self) -> [(&'static str, &String); 6] {
        let Self {
            request,
            processing,
            done,
            paused,
            stopped,
            failed,
        } = self;
        [
            ("request", request),
            ("processing", processing),
            ("done", done),
            ("paused", paused),
            ("stopped", stopped),
            ("failed", failed),
        ]
    }
}

impl Default for Labels {
    fn default() -> Self {
        Self {
            request: "coding agent".into(),
            processing: "coding agent processing".into(),
            done: "coding agent done".into(),
            paused: "coding agent paused".into(),
            stopped: "coding agent stopped".into(),
            failed: "coding agent failed".into(),
        }
    }
}

//! The sections of `config.yaml` about trackers: where the items are, and the labels on them.
//!
//! The comments of these structs become the reference in docs/config.schema.json.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;
use url::Url;

use super::rotation::secret_in;
use super::secret::Secret;
use super::who::{GitHubWhoMayStart, GitLabWhoMayStart};
use crate::exit::{Exit, Failure};

/// The trackers to scan. A producer and a consumer need at least one. `${NAME}` as a secret of `github` or `gitlab` stands
/// for the environment variable `NAME`.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Trackers {
    /// GitHub or GitHub Enterprise.
    pub github: Option<GitHub>,
    /// GitLab, the vendor's or a self-managed one from 16.7.
    pub gitlab: Option<GitLab>,
    /// A folder of Markdown issues beside a git repository.
    pub local: Option<LocalTrackerConfig>,
    /// Further servers, each with its own name.
    pub more: MoreTrackers,
}

/// Further servers, by their names. Their secrets may be written as `${NAME}`: the environment variable `NAME`, or
/// the content of the file that `NAME_FILE` names.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MoreTrackers {
    /// GitHub Enterprise servers, or GitHub beside one.
    pub github: BTreeMap<String, GitHub>,
    /// GitLab servers.
    pub gitlab: BTreeMap<String, GitLab>,
}

impl Trackers {
    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let none = self.githubs().next().is_none() && self.gitlabs().next().is_none();
        none && self.local.is_none()
    }

    /// All of GitHub, with the names of those that have one.
    pub fn githubs(&self) -> impl Iterator<Item = (Option<&str>, &GitHub)> {
        let more = self.more.github.iter();
        let more = more.map(|(name, github)| (Some(name.as_str()), github));
        self.github.iter().map(|github| (None, github)).chain(more)
    }

    /// All of GitLab, with the names of those that have one.
    pub fn gitlabs(&self) -> impl Iterator<Item = (Option<&str>, &GitLab)> {
        let more = self.more.gitlab.iter();
        let more = more.map(|(name, gitlab)| (Some(name.as_str()), gitlab));
        self.gitlab.iter().map(|gitlab| (None, gitlab)).chain(more)
    }

    /// The key of a section of this kind, `github` or `gitlab`.
    #[must_use]
    pub fn key(kind: &str, name: Option<&str>) -> String {
        match name {
            None => format!("trackers.{kind}"),
            Some(name) => format!("trackers.more.{kind}.{name}"),
        }
    }

    /// Checks that a tracker is configured; other commands work without one.
    ///
    /// # Errors
    /// Returns [`Exit::Config`] with a hint if there is none.
    pub fn require_one(&self) -> Result<(), Failure> {
        if !self.is_empty() {
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
    /// Base of the REST API; `https://HOST/api/v3/` for GitHub Enterprise Server, `https://api.SUBDOMAIN.ghe.com/` for
    /// GHE.com.
    pub api_url: Url,
    /// Personal access token; usually set by `GITHUB_PERSONAL_ACCESS_TOKEN`. Not used beside `app`.
    pub token: Option<Secret>,
    /// A GitHub App, which gets tokens for one hour, one repository and few permissions.
    pub app: Option<GitHubApp>,
    /// A PEM file with the certificate authority of the server, for the API and for git. It is trusted in addition
    /// to the system's.
    pub ca_file: Option<PathBuf>,
    /// The secret of its webhooks; usually set by `GITHUB_WEBHOOK_SECRET`.
    pub webhook_secret: Option<Secret>,
    /// Login names under which this fleet wrote before. Their comments that have the fleet's marker count as its own.
    pub former_logins: Vec<String>,
    /// Repositories to scan, as `owner/name`.
    pub repositories: Vec<String>,
    /// Organizations to scan: all of their repositories that the token sees, or that the App's installation includes,
    /// except archived ones.
    pub organizations: Vec<String>,
    /// Seconds after which the repositories of `organizations` are listed again.
    pub discovery_seconds: u64,
    /// Search qualifiers, instead of `repositories` or in addition, e.g. `org:acme`.
    pub query: Option<String>,
    /// Whose label starts work, and whose comments are read.
    pub who_may_start: GitHubWhoMayStart,
    /// Keep one issue in each repository with tasks that shows what AgentMine works on, what waits, and why, and whose boxes
    /// start, retry and stop tasks.
    pub dashboard_issue: bool,
}

impl Default for GitHub {
    fn default() -> Self {
        Self {
            #[expect(clippy::expect_used, reason = "a literal URL parses")]
            api_url: Url::parse("https://api.github.com/").expect("a literal URL"),
            token: None,
            app: None,
            ca_file: None,
            webhook_secret: None,
            former_logins: Vec::new(),
            repositories: Vec::new(),
            organizations: Vec::new(),
            discovery_seconds: 300,
            query: None,
            who_may_start: GitHubWhoMayStart::default(),
            dashboard_issue: false,
        }
    }
}

/// A GitHub App. It needs read and write on Contents, Issues and Pull requests.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GitHubApp {
    /// Its id, from the App's settings.
    pub id: u64,
    /// A file with its private key, PEM.
    #[serde(default)]
    pub key_file: Option<PathBuf>,
    /// The private key itself; usually set by `GITHUB_APP_PRIVATE_KEY`, or by a file that
    /// `GITHUB_APP_PRIVATE_KEY_FILE` names.
    #[serde(default)]
    pub key: Option<Secret>,
    /// The id of its installation, if it has one. Default: the installation of each repository's owner.
    #[serde(default)]
    pub installation: Option<u64>,
}

/// The longest file with a private key.
const LONGEST_KEY: u64 = 64 << 10;

impl GitHubApp {
    /// The private key, as it was written.
    ///
    /// # Errors
    /// What is wrong with the file, in words that follow "is".
    pub fn pem(&self) -> Result<Secret, String> {
        match (&self.key, &self.key_file) {
            (Some(key), _) => Ok(key.clone()),
            (None, Some(path)) => {
                let of = |error: std::io::Error| format!("a file that cannot be read ({error})");
                let file = std::fs::File::open(path).map_err(of)?;
                let mut text = String::new();
                file.take(LONGEST_KEY)
                    .read_to_string(&mut text)
                    .map_err(of)?;
                Ok(Secret::of_file(&Secret::new(secret_in(&text)), path))
            }
            (None, None) => Err("not set".to_owned()),
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
    /// The signing token of its webhooks (`whsec_…`, GitLab 19.0 and later); usually set by
    /// `GITLAB_WEBHOOK_SIGNING_TOKEN`.
    pub webhook_signing_token: Option<Secret>,
    /// The secret token of its webhooks, which is sent in clear; usually set by `GITLAB_WEBHOOK_SECRET_TOKEN`.
    pub webhook_secret_token: Option<Secret>,
    /// User names under which this fleet wrote before. Their comments that have the fleet's marker count as its own.
    pub former_logins: Vec<String>,
    /// Projects to scan, as `group/project` or `group/subgroup/project`.
    pub projects: Vec<String>,
    /// Groups to scan, with all of their subgroups, as `group` or `group/subgroup`.
    pub groups: Vec<String>,
    /// Whose label starts work, and whose comments are read.
    pub who_may_start: GitLabWhoMayStart,
    /// Keep one issue in each repository with tasks that shows what AgentMine works on, what waits, and why, and whose boxes
    /// start, retry and stop tasks.
    pub dashboard_issue: bool,
}

impl Default for GitLab {
    fn default() -> Self {
        Self {
            #[expect(clippy::expect_used, reason = "a literal URL parses")]
            api_url: Url::parse("https://gitlab.com/api/v4/").expect("a literal URL"),
            token: None,
            ca_file: None,
            webhook_signing_token: None,
            webhook_secret_token: None,
            former_logins: Vec::new(),
            projects: Vec::new(),
            groups: Vec::new(),
            who_may_start: GitLabWhoMayStart::default(),
            dashboard_issue: false,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_order_mark_is_no_part_of_a_private_key() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key.pem");
        let pem = "-----BEGIN PRIVATE KEY-----\ncanary\n-----END PRIVATE KEY-----";
        std::fs::write(&path, format!("\u{feff}{pem}\r\n")).unwrap();
        let app = GitHubApp {
            id: 1,
            key_file: Some(path),
            key: None,
            installation: None,
        };
        assert_eq!(app.pem().unwrap().expose(), pem);
    }
}

//! GitLab's REST API: the client, addresses, projects, and who we are.
//!
//! Guaranteed: items are addressed by the numeric id of their project, so a rename or a transfer of the project
//! changes nothing, and a new project under an old path is not taken for the old one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agentmine_domain::{ItemKind, ItemRef, TrackerKind};
use agentmine_runtime::config::{GitLab, Secret};
use agentmine_runtime::tls::Authority;
use http::header::{HeaderMap, HeaderValue};
use tokio::time::Instant;
use url::Url;

use super::wire::{Project, User};
use crate::error::TrackerError;
use crate::forge::{Call, Client, Dialect, Known, LimitRules, OwnAccount, RequestLimits, Section};
use crate::name::web_root;
use crate::people::{Admission, Person};

/// GitLab takes up to a million characters; nobody reads that many.
pub(super) const MAX_TEXT: usize = 200_000;
/// How long an answer about a project is used again.
pub(super) const PROJECT_TTL: Duration = Duration::from_secs(60);
const TOKEN_NEEDS: &str = "a personal, group or project access token with the scopes `api` and `write_repository`, \
    whose user is a Developer of the project at least";
/// GitLab's "User and IP rate limits". Limits of an application are in no header.
const LIMITS: LimitRules = LimitRules {
    header_prefix: "ratelimit-",
    phrases: &[],
};

/// The API with one token.
#[derive(Debug)]
pub(super) struct Api {
    pub(super) client: Client,
    pub(super) host: String,
    /// The path below which its pages are.
    pub(super) web_root: String,
    pub(super) authority: Option<Authority>,
    pub(super) token: Secret,
    pub(super) former_logins: Vec<String>,
    user: OwnAccount<User>,
    projects: Mutex<HashMap<String, (Instant, Project)>>,
    pub(super) admissions: Known<Admission>,
    pub(super) section: Section,
}

impl Api {
    pub(super) fn new(
        config: &GitLab,
        section: Section,
        limits: RequestLimits,
    ) -> Result<Self, TrackerError> {
        let token = config.token.as_ref().map(Secret::trimmed);
        let Some(token) = token.filter(|token| !token.expose().is_empty()) else {
            return Err(TrackerError::Unauthorized {
                tracker: TrackerKind::GitLab,
                detail: "no token is configured".to_owned(),
                hint: credentials_hint(&section),
            });
        };
        let authority = config.ca_file.as_deref().map(Authority::read).transpose();
        let authority =
            authority.map_err(|error| invalid(format!("{section}.ca_file is {error}")))?;
        if HeaderValue::from_str(token.expose()).is_err() {
            let detail = format!("{section}.token has characters that no HTTP header may have");
            return Err(invalid(detail));
        }
        let dialect = Dialect {
            tracker: TrackerKind::GitLab,
            headers: HeaderMap::new(),
            // All kinds of tokens may be sent as bearers, those of OAuth too.
            credentials: Arc::new(token.clone()),
            credentials_hint: credentials_hint(&section),
            limits: LIMITS,
            own_buckets: &[],
            authority: authority.clone(),
        };
        Ok(Self {
            host: host_of(&config.api_url)?,
            web_root: web_root(&config.api_url),
            client: Client::new(dialect, &config.api_url, limits)?,
            token,
            former_logins: config.former_logins.clone(),
            authority,
            user: OwnAccount::default(),
            projects: Mutex::default(),
            admissions: Known::default(),
            section,
        })
    }

    /// An address of a project, by its id or path.
    pub(super) fn project_url(&self, project: &str, rest: &[&str]) -> Url {
        let segments = ["projects", project].into_iter();
        self.client.url(segments.chain(rest.iter().copied()))
    }

    pub(super) fn item_url(&self, item: &ItemRef, rest: &[&str]) -> Url {
        let number = item.number.to_string();
        let list = match item.kind {
            ItemKind::Issue => "issues",
            ItemKind::PullRequest => "merge_requests",
            // GitLab has no such list, so nothing is found: the number is not that of an issue.
            ItemKind::Task => "agentmine_tasks",
        };
        let mut segments = vec![list, number.as_str()];
        segments.extend(rest);
        self.project_url(&item.repo_id, &segments)
    }

    /// A project by its id or path, not asked for again for `ttl`. A renamed or transferred one is followed.
    pub(super) async fn project(
        &self,
        project: &str,
        ttl: Duration,
    ) -> Result<Project, TrackerError> {
        let known = {
            let projects = self.projects.lock().unwrap_or_else(PoisonError::into_inner);
            projects.get(project).cloned()
        };
        if let Some((at, known)) = known
            && at.elapsed() < ttl
        {
            return Ok(known);
        }
        let reply = self.client.get(self.project_url(project, &[])).await?;
        let found: Project = reply.ok(&format!("project {project}"))?.json()?;
        let mut projects = self.projects.lock().unwrap_or_else(PoisonError::into_inner);
        projects.insert(project.to_owned(), (Instant::now(), found.clone()));
        Ok(found)
    }

    /// The paths, and perhaps the id, by which a project was found, whatever its name is now.
    pub(super) fn paths_of(&self, id: &str) -> Vec<String> {
        let projects = self.projects.lock().unwrap_or_else(PoisonError::into_inner);
        let own = projects.iter();
        let own = own.filter(|(_, (_, project))| project.id.to_string() == id);
        own.map(|(path, _)| path.clone()).collect()
    }

    /// What is known of a project may not be so any more.
    pub(super) fn forget(&self, id: &str) {
        let mut projects = self.projects.lock().unwrap_or_else(PoisonError::into_inner);
        projects.retain(|known, (_, project)| known != id && project.id.to_string() != id);
    }

    /// Who the token belongs to.
    pub(super) async fn me(&self) -> Result<User, TrackerError> {
        self.user.get(self.ask_user()).await
    }

    /// Whether this user was ours before.
    pub(super) fn was_ours(&self, user: Option<&User>) -> bool {
        self.is_former(user.map_or("", |user| user.username.as_str()))
    }

    fn is_former(&self, name: &str) -> bool {
        let mut former = self.former_logins.iter();
        former.any(|ours| ours.eq_ignore_ascii_case(name))
    }

    /// Whether this is our account, or was.
    pub(super) async fn is_us(&self, person: &Person) -> Result<bool, TrackerError> {
        let me = self.me().await?;
        Ok(person.id == Some(me.id) || self.is_former(&person.login))
    }

    pub(super) async fn ask_user(&self) -> Result<User, TrackerError> {
        let call = Call::get(self.client.url(["user"]));
        let reply = self.client.send(&call).await?;
        reply.ok("the token's user")?.json()
    }
}

/// The host in an item's identity.
pub(crate) fn host_of(api: &Url) -> Result<String, TrackerError> {
    if !matches!(api.scheme(), "http" | "https") || !api.username().is_empty() {
        return Err(invalid(
            "api_url must be an http(s) URL without a user name",
        ));
    }
    let host = api.host_str().unwrap_or_default();
    Ok(match api.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    })
}

pub(super) fn refused(detail: impl Into<String>) -> TrackerError {
    TrackerError::refused(TrackerKind::GitLab, detail)
}

pub(super) fn invalid(detail: impl Into<String>) -> TrackerError {
    TrackerError::invalid(TrackerKind::GitLab, detail)
}

pub(super) fn unavailable(detail: impl Into<String>) -> TrackerError {
    TrackerError::unavailable(TrackerKind::GitLab, detail)
}

fn credentials_hint(section: &Section) -> String {
    let token = section.token("GITLAB_PERSONAL_ACCESS_TOKEN");
    format!("set {token} to {TOKEN_NEEDS}")
}

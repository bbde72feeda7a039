//! GitHub and GitHub Enterprise over REST.
//!
//! Promised: a write is either idempotent or looked up before it is sent again; repositories are
//! told apart by their numeric id, so that a rename changes nothing and a new repository under an
//! old name is not taken for the old one.

mod cache;
mod candidates;
mod client;
mod comments;
mod limits;
mod pulls;
mod reply;
mod wire;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use agentmine_domain::{ItemKind, ItemRef, TrackerKind};
use agentmine_runtime::config::{GitHub, Secret};
use async_trait::async_trait;
use base64::Engine;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::sync::OnceCell;
use tokio::time::Instant;
use url::Url;

use crate::marker::Marker;
use crate::{
    Branches, Candidate, Comment, GitSource, Item, NewPullRequest, PullRequest, Repository,
    Tracker, TrackerError,
};
use candidates::Triggers;
use client::{Call, Client, Limits};
use reply::{refused, unauthorized, unavailable};
use wire::{Content, Issue, Pull, Repo, User};

/// How long what is known of a repository is taken as true.
const REPO_TTL: Duration = Duration::from_secs(60);
/// The largest file that [`Tracker::file`] gives.
const MAX_FILE: u64 = 256 << 10;

/// GitHub with one token.
#[derive(Debug)]
pub struct GitHubTracker {
    client: Client,
    host: String,
    repositories: Vec<String>,
    query: Option<String>,
    login: OnceCell<String>,
    triggers: Triggers,
    repos: Mutex<HashMap<String, (Instant, Repo)>>,
}

impl GitHubTracker {
    /// Checks the configuration; asks nothing of GitHub yet.
    ///
    /// # Errors
    /// [`TrackerError::Unauthorized`] without a token, [`TrackerError::Refused`] if the
    /// configuration names nothing to scan or a malformed repository.
    pub fn new(config: &GitHub) -> Result<Self, TrackerError> {
        Self::with_limits(config, Limits::default())
    }

    fn with_limits(config: &GitHub, limits: Limits) -> Result<Self, TrackerError> {
        let token = config
            .token
            .clone()
            .filter(|token| !token.expose().trim().is_empty());
        let token = token.ok_or_else(|| unauthorized("no token is configured".into()))?;
        let token = Secret::new(token.expose().trim());
        let query = config
            .query
            .clone()
            .filter(|query| !query.trim().is_empty());
        if config.repositories.is_empty() && query.is_none() {
            return Err(refused(
                "trackers.github names nothing to scan. hint: set repositories or query".into(),
            ));
        }
        for path in &config.repositories {
            split_path(path)?;
        }
        let host = host_of(&config.api_url)?;
        Ok(Self {
            client: Client::new(&config.api_url, token, limits)?,
            host,
            repositories: config.repositories.clone(),
            query,
            login: OnceCell::new(),
            triggers: Triggers::default(),
            repos: Mutex::default(),
        })
    }

    fn repo_url(&self, path: &str, rest: &[&str]) -> Result<Url, TrackerError> {
        let (owner, name) = split_path(path)?;
        let segments = ["repos", owner, name].into_iter();
        Ok(self.client.url(segments.chain(rest.iter().copied())))
    }

    fn item_url(&self, item: &ItemRef, rest: &[&str]) -> Result<Url, TrackerError> {
        let number = item.number.to_string();
        let mut segments = vec!["issues", &number];
        segments.extend(rest);
        self.repo_url(&item.repo_path, &segments)
    }

    /// The repository that is at a path now; a rename is followed.
    async fn repo_at(&self, path: &str) -> Result<Repo, TrackerError> {
        let known = {
            let repos = self.repos.lock().unwrap_or_else(PoisonError::into_inner);
            repos.get(path).cloned()
        };
        if let Some((at, repo)) = known
            && at.elapsed() < REPO_TTL
        {
            return Ok(repo);
        }
        let url = self.repo_url(path, &[])?;
        let reply = self
            .client
            .get_cached(url)
            .await?
            .ok(&format!("repository {path}"))?;
        let repo: Repo = reply.json()?;
        split_path(&repo.full_name)?;
        let mut repos = self.repos.lock().unwrap_or_else(PoisonError::into_inner);
        repos.insert(path.to_owned(), (Instant::now(), repo.clone()));
        Ok(repo)
    }

    /// The repository of an item, and no other one that took its name.
    async fn repo_of(&self, item: &ItemRef) -> Result<Repo, TrackerError> {
        let repo = self.repo_at(&item.repo_path).await?;
        if repo.id.to_string() == item.repo_id {
            Ok(repo)
        } else {
            Err(TrackerError::NotFound {
                tracker: TrackerKind::GitHub,
                what: format!(
                    "repository {} with id {} (another one has that name now)",
                    item.repo_path, item.repo_id
                ),
            })
        }
    }

    /// The item with its repository's current path.
    async fn current(&self, item: &ItemRef) -> Result<ItemRef, TrackerError> {
        let repo_path = self.repo_of(item).await?.full_name;
        Ok(ItemRef {
            repo_path,
            ..item.clone()
        })
    }

    async fn own_login(&self) -> Result<&str, TrackerError> {
        let login = self.login.get_or_try_init(|| self.ask_login()).await?;
        Ok(login)
    }

    async fn ask_login(&self) -> Result<String, TrackerError> {
        let call = Call::new(Method::GET, self.client.url(["user"]));
        match self.client.send(&call).await.map_err(TrackerError::from) {
            Ok(reply) => Ok(reply.ok("the token's user")?.json::<User>()?.login),
            // An App's installation token has no user, but GraphQL knows its viewer.
            Err(TrackerError::Unauthorized { detail, .. }) if detail.starts_with("403") => {
                self.viewer().await
            }
            Err(error) => Err(error),
        }
    }

    async fn viewer(&self) -> Result<String, TrackerError> {
        let mut url = self.client.url(["graphql"]);
        if let Some(root) = self.client.base().path().strip_suffix("/v3/") {
            url.set_path(&format!("{root}/graphql"));
        }
        let body = json!({ "query": "query { viewer { login } }" });
        let reply = self
            .client
            .send(&Call::new(Method::POST, url).json(&body))
            .await?;
        let value: Value = reply.ok("the token's viewer")?.json()?;
        match value["data"]["viewer"]["login"].as_str() {
            Some(login) if login.ends_with("[bot]") => Ok(login.to_owned()),
            Some(login) => Ok(format!("{login}[bot]")),
            None => Err(unauthorized("the token has neither user nor viewer".into())),
        }
    }

    async fn branches(&self, item: &ItemRef) -> Result<Branches, TrackerError> {
        let number = item.number.to_string();
        let url = self.repo_url(&item.repo_path, &["pulls", &number])?;
        let pull: Pull = self
            .client
            .get_cached(url)
            .await?
            .ok(&item.to_string())?
            .json()?;
        let home = |side: &Option<wire::RepoId>| side.as_ref().map(|repo| repo.id.to_string());
        if home(&pull.head.repo).as_deref() != Some(item.repo_id.as_str()) {
            return Err(refused(format!(
                "{item} comes from a fork, whose branch is not this repository's to push to; \
                 expected a pull request between branches of the repository itself"
            )));
        }
        Ok(Branches {
            source: pull.head.branch,
            target: pull.base.branch,
        })
    }
}

#[async_trait]
impl Tracker for GitHubTracker {
    fn kind(&self) -> TrackerKind {
        TrackerKind::GitHub
    }

    fn host(&self) -> &str {
        &self.host
    }

    async fn candidates(&self, label: &str) -> Result<Vec<Candidate>, TrackerError> {
        self.scan(label).await
    }

    async fn item(&self, item: &ItemRef) -> Result<Item, TrackerError> {
        let item = self.current(item).await?;
        let url = self.item_url(&item, &[])?;
        let issue: Issue = self
            .client
            .get_cached(url)
            .await?
            .ok(&item.to_string())?
            .json()?;
        // A transferred issue is another repository's now.
        if issue
            .repo_path()
            .is_some_and(|path| !path.eq_ignore_ascii_case(&item.repo_path))
        {
            return Err(TrackerError::NotFound {
                tracker: TrackerKind::GitHub,
                what: format!("{item} (it was transferred)"),
            });
        }
        let branches = match item.kind {
            ItemKind::Issue => None,
            ItemKind::PullRequest => Some(self.branches(&item).await?),
        };
        Ok(Item {
            title: issue.title,
            body: issue.body.unwrap_or_default(),
            author: issue
                .user
                .map_or_else(|| "ghost".to_owned(), |user| user.login),
            open: issue.state == "open",
            labels: issue
                .labels
                .iter()
                .map(|label| label.name().to_owned())
                .collect(),
            assignees: issue.assignees.into_iter().map(|user| user.login).collect(),
            url: issue.html_url,
            branches,
            item,
        })
    }

    async fn comments(&self, item: &ItemRef) -> Result<Vec<Comment>, TrackerError> {
        self.all_comments(&self.current(item).await?).await
    }

    async fn set_labels(
        &self,
        item: &ItemRef,
        add: &[String],
        remove: &[String],
    ) -> Result<(), TrackerError> {
        let item = &self.current(item).await?;
        if !add.is_empty() {
            let url = self.item_url(item, &["labels"])?;
            let body = json!({ "labels": add });
            let reply = self
                .client
                .send(&Call::new(Method::POST, url).json(&body))
                .await?;
            reply.ok(&item.to_string())?;
        }
        for label in remove {
            let url = self.item_url(item, &["labels", label])?;
            let reply = self.client.send(&Call::new(Method::DELETE, url)).await?;
            if reply.status != StatusCode::NOT_FOUND {
                reply.ok(&item.to_string())?;
            }
        }
        Ok(())
    }

    async fn upsert_comment(
        &self,
        item: &ItemRef,
        marker: &str,
        body: &str,
    ) -> Result<String, TrackerError> {
        let marker = Marker::new(TrackerKind::GitHub, marker)?;
        self.upsert(&self.current(item).await?, &marker, body).await
    }

    async fn repository(&self, item: &ItemRef) -> Result<Repository, TrackerError> {
        let repo = self.repo_of(item).await?;
        Ok(Repository {
            source: GitSource::Http {
                url: clone_url(&repo.clone_url, self.client.base())?,
                user: "x-access-token".to_owned(),
                password: Some(self.client.token().clone()),
            },
            default_branch: repo.default_branch,
        })
    }

    async fn file(
        &self,
        item: &ItemRef,
        branch: &str,
        path: &str,
    ) -> Result<Option<String>, TrackerError> {
        let segments: Vec<&str> = path.split('/').collect();
        if segments.iter().any(|part| matches!(*part, "" | "." | "..")) {
            return Err(refused(format!("{path:?} is not a path in a repository")));
        }
        let mut all = vec!["contents"];
        all.extend(segments);
        let repo = self.repo_of(item).await?;
        let mut url = self.repo_url(&repo.full_name, &all)?;
        url.query_pairs_mut().append_pair("ref", branch);
        let reply = self.client.get_cached(url).await?;
        if reply.status == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        let value: Value = reply.ok(path)?.json()?;
        if value.is_array() {
            return Ok(None);
        }
        let content = serde_json::from_value(value)
            .map_err(|error| unavailable(format!("{path}: unexpected JSON: {error}")))?;
        text_of(path, content)
    }

    async fn find_pull_request(
        &self,
        item: &ItemRef,
        head: &str,
    ) -> Result<Option<PullRequest>, TrackerError> {
        self.find_pull(item, head).await
    }

    async fn create_pull_request(
        &self,
        item: &ItemRef,
        new: &NewPullRequest,
    ) -> Result<PullRequest, TrackerError> {
        self.open_pull(&self.current(item).await?, new).await
    }

    async fn update_pull_request(
        &self,
        item: &ItemRef,
        number: u64,
        new: &NewPullRequest,
    ) -> Result<(), TrackerError> {
        self.update_pull(item, number, new).await
    }

    async fn login(&self) -> Result<String, TrackerError> {
        // Asked anew: a token that was revoked since is found out.
        self.ask_login().await
    }
}

fn text_of(path: &str, content: Content) -> Result<Option<String>, TrackerError> {
    if content.kind != "file" {
        return Ok(None);
    }
    if content.size > MAX_FILE || content.encoding != "base64" {
        return Err(refused(format!("{path} is larger than {MAX_FILE} bytes")));
    }
    let packed: String = content.content.split_whitespace().collect();
    let bytes = base64::engine::general_purpose::STANDARD
        .decode(packed)
        .map_err(|error| unavailable(format!("{path}: bad base64: {error}")))?;
    let text = String::from_utf8(bytes).map_err(|_| refused(format!("{path} is not UTF-8")))?;
    Ok(Some(text))
}

/// The owner and name in `owner/name`, with nothing in them that could change an address.
fn split_path(path: &str) -> Result<(&str, &str), TrackerError> {
    let fine = |part: &str| {
        !matches!(part, "" | "." | "..")
            && part.len() <= 100
            && part
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'))
    };
    match path.split_once('/') {
        Some((owner, name)) if fine(owner) && fine(name) => Ok((owner, name)),
        _ => Err(refused(format!(
            "{path:?} is not a repository. hint: write it as owner/name"
        ))),
    }
}

/// The host in an item's identity: `github.com` for the public API.
fn host_of(api: &Url) -> Result<String, TrackerError> {
    if !matches!(api.scheme(), "http" | "https") || !api.username().is_empty() {
        return Err(refused(
            "trackers.github.api_url must be an http(s) URL without a user name".into(),
        ));
    }
    let host = api.host_str().unwrap_or_default();
    Ok(match (host, api.port()) {
        ("api.github.com", _) => "github.com".to_owned(),
        (host, Some(port)) => format!("{host}:{port}"),
        (host, None) => host.to_owned(),
    })
}

/// The address to clone from; it gets the token, so it must be as safe as the API's own.
fn clone_url(text: &str, api: &Url) -> Result<Url, TrackerError> {
    let url = Url::parse(text)
        .map_err(|error| unavailable(format!("its clone URL is not a URL: {error}")))?;
    let safe = url.scheme() == "https" || (url.scheme() == "http" && api.scheme() == "http");
    if safe && url.username().is_empty() && url.password().is_none() {
        Ok(url)
    } else {
        Err(unavailable("its clone URL is not plain https".into()))
    }
}

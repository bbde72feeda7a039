//! GitHub's REST API: the client, addresses, repositories by id, and who we are.
//!
//! Guaranteed: repositories are distinguished by their numeric id. A rename changes nothing, and a new
//! repository under an old name is not taken for the old one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agentmine_domain::{ItemKind, ItemRef, TrackerKind};
use agentmine_runtime::config::{GitHub, Secret};
use agentmine_runtime::tls::Authority;
use http::StatusCode;
use http::header::{ACCEPT, HeaderMap, HeaderValue};
use serde_json::{Value, json};
use tokio::time::Instant;
use url::Url;

use super::app::App;
use super::fault::{LIMITS, invalid};
use super::graphql::VIEWER;
use super::wire::{Repo, User};
use crate::error::TrackerError;
use crate::forge::{
    Call, Client, Dialect, Found, Holder, Known, OwnAccount, RequestLimits, Section,
};
use crate::name::web_root;
use crate::people::Admission;

/// GitHub refuses a text of more than 65536 characters.
pub(super) const MAX_TEXT: usize = 65_000;
/// How long an answer about a repository is used again.
pub(super) const REPO_TTL: Duration = Duration::from_secs(60);
/// How long the id of a repository is used again while its lists do not change.
pub(super) const ID_TTL: Duration = Duration::from_secs(3600);
const API_VERSION: &str = "2022-11-28";
const TOKEN_NEEDS: &str = "a token that may read and write the repository: scope `repo` (classic), or read and write \
    on Contents, Issues and Pull requests (fine-grained)";

/// What the API is asked with.
#[derive(Debug)]
pub(super) enum Credentials {
    Token(Secret),
    App(Arc<App>),
}

/// The API with its credentials.
#[derive(Debug)]
pub(super) struct Api {
    pub(super) client: Client,
    pub(super) host: String,
    /// The path below which its pages are.
    pub(super) web_root: String,
    pub(super) credentials: Credentials,
    pub(super) authority: Option<Authority>,
    pub(super) former_logins: Vec<String>,
    login: OwnAccount<String>,
    repos: Mutex<HashMap<String, (Instant, Repo)>>,
    pub(super) admissions: Known<Admission>,
    /// The members of teams.
    pub(super) teams: Known<Vec<String>>,
    pub(super) section: Section,
}

impl Api {
    pub(super) fn new(
        config: &GitHub,
        section: Section,
        limits: RequestLimits,
    ) -> Result<Self, TrackerError> {
        let authority = config.ca_file.as_deref().map(Authority::read).transpose();
        let authority =
            authority.map_err(|error| invalid(format!("{section}.ca_file is {error}")))?;
        let credentials = credentials(config, &section, authority.as_ref(), limits)?;
        let dialect = Dialect {
            tracker: TrackerKind::GitHub,
            headers: headers(),
            credentials: match &credentials {
                Credentials::Token(token) => Arc::new(token.clone()),
                Credentials::App(app) => Arc::<App>::clone(app),
            },
            credentials_hint: credentials_hint(&section),
            limits: LIMITS,
            own_buckets: &["search/", "graphql"],
            authority: authority.clone(),
        };
        Ok(Self {
            host: host_of(&config.api_url)?,
            web_root: web_root(&config.api_url),
            client: Client::new(dialect, &config.api_url, limits)?,
            credentials,
            authority,
            former_logins: config.former_logins.clone(),
            login: OwnAccount::default(),
            repos: Mutex::default(),
            admissions: Known::default(),
            teams: Known::default(),
            section,
        })
    }

    /// Whether it is asked as a GitHub App.
    pub(super) fn is_app(&self) -> bool {
        matches!(self.credentials, Credentials::App(_))
    }

    pub(super) fn repo_url(&self, path: &str, rest: &[&str]) -> Result<Url, TrackerError> {
        let (owner, name) = split_path(path)?;
        let segments = ["repos", owner, name].into_iter();
        Ok(self.client.url(segments.chain(rest.iter().copied())))
    }

    /// Reads what is at `url`, and whose limits that counts against. What an installation of an App has no request left for is
    /// neither asked nor waited for: there may be others to read from.
    pub(super) async fn unless_limited<T>(
        &self,
        url: Url,
        found: &Found<'_>,
        read: impl Future<Output = Result<T, TrackerError>>,
    ) -> (Holder, Result<T, TrackerError>) {
        let (holder, closed) = match self.client.limit_of(url).await {
            Ok((Holder::Token, _)) => (Holder::Token, None),
            Ok((holder, closed)) => (holder, found.limit_of(holder).or(closed)),
            // The request waits for these as for its own.
            Err(TrackerError::RateLimited { .. } | TrackerError::Unavailable { .. }) => {
                (Holder::App, found.limit_of(Holder::App))
            }
            Err(error) => return (Holder::App, Err(error)),
        };
        let limited = |until| TrackerError::RateLimited {
            tracker: TrackerKind::GitHub,
            until,
        };
        match closed {
            Some(until) => (holder, Err(limited(until))),
            None => (holder, read.await),
        }
    }

    pub(super) fn item_url(&self, item: &ItemRef, rest: &[&str]) -> Result<Url, TrackerError> {
        if item.kind == ItemKind::Task {
            // Its number is not that of an issue.
            return Err(TrackerError::NotFound {
                tracker: TrackerKind::GitHub,
                what: format!("an item of {item}"),
            });
        }
        let number = item.number.to_string();
        let mut segments = vec!["issues", &number];
        segments.extend(rest);
        self.repo_url(&item.repo_path, &segments)
    }

    /// The repository that is at a path now; a rename is followed.
    pub(super) async fn repo_at(&self, path: &str) -> Result<Repo, TrackerError> {
        match self.repo_known(path, REPO_TTL) {
            Some(repo) => Ok(repo),
            None => self.repo_now(path).await,
        }
    }

    /// What is known of the repository at a path may not be so any more.
    pub(super) fn forget(&self, path: &str) {
        let mut repos = self.repos.lock().unwrap_or_else(PoisonError::into_inner);
        repos.retain(|known, (_, repo)| known != path && repo.full_name != path);
    }

    /// The repository that was at a path within `ttl`.
    pub(super) fn repo_known(&self, path: &str, ttl: Duration) -> Option<Repo> {
        let repos = self.repos.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, repo) = repos.get(path)?;
        (at.elapsed() < ttl).then(|| repo.clone())
    }

    /// The paths by which a repository was found, whatever its name is now.
    pub(super) fn paths_of(&self, id: &str) -> Vec<String> {
        let repos = self.repos.lock().unwrap_or_else(PoisonError::into_inner);
        let own = repos.iter();
        let own = own.filter(|(_, (_, repo))| repo.id.to_string() == id);
        own.map(|(path, _)| path.clone()).collect()
    }

    /// The same, asked for again.
    pub(super) async fn repo_now(&self, path: &str) -> Result<Repo, TrackerError> {
        let url = self.repo_url(path, &[])?;
        let mut reply = self.client.get(url.clone()).await?;
        if reply.status == StatusCode::NOT_FOUND
            && let Credentials::App(app) = &self.credentials
        {
            app.look_for(path).await?;
            reply = self.client.get(url).await?;
        }
        let repo: Repo = reply.ok(&format!("repository {path}"))?.json()?;
        split_path(&repo.full_name)?;
        self.know(path.to_owned(), repo.clone());
        Ok(repo)
    }

    /// A repository as a list shows it now.
    pub(super) fn learn(&self, repo: Repo) {
        self.know(repo.full_name.clone(), repo);
    }

    /// The same, at a path that it was requested by.
    pub(super) fn know(&self, path: String, repo: Repo) {
        let mut repos = self.repos.lock().unwrap_or_else(PoisonError::into_inner);
        repos.insert(path, (Instant::now(), repo));
    }

    /// The repository of an item, and no other one that took its name.
    pub(super) async fn repo_of(&self, item: &ItemRef) -> Result<Repo, TrackerError> {
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
    pub(super) async fn current(&self, item: &ItemRef) -> Result<ItemRef, TrackerError> {
        let repo_path = self.repo_of(item).await?.full_name;
        Ok(ItemRef {
            repo_path,
            ..item.clone()
        })
    }

    /// Our login name, as it is now.
    pub(super) async fn own_login(&self) -> Result<String, TrackerError> {
        self.login.get(self.ask_login()).await
    }

    /// Whether this is our login name, or one that the configuration names as a former one.
    pub(super) fn is_ours(&self, login: &str, own: &str) -> bool {
        let is_it = |ours: &str| ours.eq_ignore_ascii_case(login);
        let mut former = self.former_logins.iter();
        is_it(own) || former.any(|ours| is_it(ours))
    }

    /// Learns the name under which something was just written. After a rename GitHub shows the new one on all that was written
    /// before, too.
    pub(super) async fn wrote_as(&self, login: &str) {
        if !login.is_empty() {
            self.login.learn(login.to_owned()).await;
        }
    }

    pub(super) async fn ask_login(&self) -> Result<String, TrackerError> {
        if let Credentials::App(app) = &self.credentials {
            return app.login().await;
        }
        let call = Call::get(self.client.url(["user"]));
        match self.client.send(&call).await {
            Ok(reply) => Ok(reply.ok("the token's user")?.json::<User>()?.login),
            // An App's installation token has no user, but GraphQL knows its viewer.
            Err(TrackerError::Forbidden { .. }) => self.viewer().await,
            Err(error) => Err(error),
        }
    }

    async fn viewer(&self) -> Result<String, TrackerError> {
        let asked = self.ask_graphql((VIEWER, json!({})), None, "the token's viewer");
        let value: Value = asked.await?;
        match value["data"]["viewer"]["login"].as_str() {
            Some(login) if login.ends_with("[bot]") => Ok(login.to_owned()),
            Some(login) => Ok(format!("{login}[bot]")),
            None => Err(unauthorized(
                &self.section,
                "the token has neither user nor viewer",
            )),
        }
    }
}

fn credentials(
    config: &GitHub,
    section: &Section,
    authority: Option<&Authority>,
    limits: RequestLimits,
) -> Result<Credentials, TrackerError> {
    if let Some(app) = &config.app {
        let owners = config
            .repositories
            .iter()
            .filter_map(|path| path.split('/').next());
        let mut owners = owners.chain(config.organizations.iter().map(String::as_str));
        let (base, home) = (&config.api_url, owners.next());
        let app = App::new(app, section, base, home, authority, limits)?;
        return Ok(Credentials::App(Arc::new(app)));
    }
    let token = config.token.as_ref().map(Secret::trimmed);
    let Some(token) = token.filter(|token| !token.expose().is_empty()) else {
        return Err(unauthorized(section, "no token is configured"));
    };
    if HeaderValue::from_str(token.expose()).is_err() {
        let detail = format!("{section}.token has characters that no HTTP header may have");
        return Err(invalid(detail));
    }
    Ok(Credentials::Token(token))
}

fn headers() -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(
        ACCEPT,
        HeaderValue::from_static("application/vnd.github+json"),
    );
    headers.insert(
        "X-GitHub-Api-Version",
        HeaderValue::from_static(API_VERSION),
    );
    headers
}

/// The owner and name in `owner/name`, with nothing in them that could change an address.
pub(super) fn split_path(path: &str) -> Result<(&str, &str), TrackerError> {
    let fine = |part: &str| {
        !matches!(part, "" | "." | "..")
            && part.len() <= 100
            && part
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'))
    };
    match path.split_once('/') {
        Some((owner, name)) if fine(owner) && fine(name) => Ok((owner, name)),
        _ => Err(invalid(format!(
            "{path:?} is not a repository. hint: write it as owner/name"
        ))),
    }
}

/// The host in an item's identity: `github.com` for the public API.
pub(crate) fn host_of(api: &Url) -> Result<String, TrackerError> {
    if !matches!(api.scheme(), "http" | "https") || !api.username().is_empty() {
        return Err(invalid(
            "api_url must be an http(s) URL without a user name",
        ));
    }
    let host = api.host_str().unwrap_or_default();
    Ok(match (host, api.port()) {
        ("api.github.com", _) => "github.com".to_owned(),
        (host, Some(port)) => format!("{host}:{port}"),
        (host, None) => pages_of(host).unwrap_or(host).to_owned(),
    })
}

/// The host of the pages and of git, of the API of an Enterprise Cloud with data residency: `api.SUBDOMAIN.ghe.com`.
fn pages_of(api: &str) -> Option<&str> {
    let pages = api.strip_prefix("api.")?;
    pages.ends_with(".ghe.com").then_some(pages)
}

fn unauthorized(section: &Section, detail: &str) -> TrackerError {
    TrackerError::Unauthorized {
        tracker: TrackerKind::GitHub,
        detail: detail.to_owned(),
        hint: credentials_hint(section),
    }
}

fn credentials_hint(section: &Section) -> String {
    let token = section.token("GITHUB_PERSONAL_ACCESS_TOKEN");
    format!("set {token} to {TOKEN_NEEDS}")
}

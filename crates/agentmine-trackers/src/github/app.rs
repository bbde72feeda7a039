//! A GitHub App: tokens of its installations, each for what it is needed for.
//!
//! Guaranteed: what reads gets a token that may not write; what writes gets a token for its repository alone; git gets
//! one of its own for its repository, which is revoked when the session ends. A token is replaced before its hour is
//! over, and when GitHub refuses it before: an App that is uninstalled loses its tokens at once. Nothing is assumed about
//! its form or length.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use agentmine_domain::TrackerKind;
use agentmine_runtime::config::{GitHubApp, Secret};
use agentmine_runtime::live_secret::LiveSecret;
use agentmine_runtime::tls::Authority;
use async_trait::async_trait;
use chrono::{DateTime, TimeDelta, Utc};
use http::Method;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::Mutex;
use url::Url;

use super::app_client::AppClient;
use super::fault::invalid;
use super::permissions::{Permissions, WRITE, for_git, to_read};
use crate::error::TrackerError;
use crate::forge::{Authorize, Holder, Purpose, Renewal, RequestLimits, Section};

/// A token is replaced when it lasts no longer than this.
const SPARE: TimeDelta = TimeDelta::minutes(10);
/// How long a failed try to replace the token of git waits for the next one.
const TRY_AGAIN: Duration = Duration::from_secs(30);
/// How long a refusal is remembered: a permission that was not granted, or an account without the App. Otherwise each request that
/// needs it would use up what the App itself may ask, without which no token is replaced.
const REFUSED: Duration = Duration::from_secs(120);
/// An App that was uninstalled and installed again has another installation, which is looked up once.
const TRIES_OF_INSTALLATION: u32 = 2;

/// The App with its key, and the tokens that are in use.
#[derive(Debug)]
pub(crate) struct App {
    client: AppClient,
    installation: Option<u64>,
    /// Whose installation reads what belongs to no repository.
    home: Option<String>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// By the name of its owner, or by the path of a repository whose owner has another name now; in lower case.
    installations: HashMap<String, u64>,
    tokens: HashMap<Scope, Minted>,
    /// What was refused, and why.
    refused: HashMap<Refused, Refusal>,
    /// The configured installation, once it does not exist any more.
    gone: Option<u64>,
}

impl State {
    /// An installation that may be there no more.
    fn forget(&mut self, installation: u64) {
        self.installations.retain(|_, id| *id != installation);
        self.tokens
            .retain(|scope, _| scope.installation != installation);
        self.refused.clear();
    }

    /// Why the same was refused a moment ago.
    fn refusal(&mut self, of: &Refused) -> Option<TrackerError> {
        self.refused
            .retain(|_, refusal| refusal.at.elapsed() < REFUSED);
        self.refused.get(of).map(Refusal::error)
    }
}

/// Why there is no token.
enum NotMinted {
    /// The installation lacks a permission or the repository.
    Lacks(Refusal),
    /// Anything else, which may pass.
    Other(TrackerError),
}

impl From<NotMinted> for TrackerError {
    fn from(not: NotMinted) -> Self {
        match not {
            NotMinted::Lacks(refusal) => refusal.error(),
            NotMinted::Other(error) => error,
        }
    }
}

/// What may be refused.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Refused {
    Token(Scope),
    /// An installation for `OWNER`, or `OWNER/REPOSITORY`; in lower case.
    Installation(String),
}

#[derive(Debug)]
struct Refusal {
    at: Instant,
    detail: String,
    hint: String,
}

impl Refusal {
    fn now(detail: String, hint: String) -> Self {
        Self {
            at: Instant::now(),
            detail,
            hint,
        }
    }

    fn error(&self) -> TrackerError {
        TrackerError::Forbidden {
            tracker: TrackerKind::GitHub,
            detail: self.detail.clone(),
            hint: self.hint.clone(),
        }
    }
}

/// What a token is for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Scope {
    installation: u64,
    /// All of the installation's if there is none.
    repository: Option<String>,
    permissions: Permissions,
}

#[derive(Debug, Clone)]
struct Minted {
    token: Secret,
    until: DateTime<Utc>,
}

#[derive(Deserialize)]
struct TokenAnswer {
    token: Secret,
    expires_at: DateTime<Utc>,
}

#[derive(Deserialize)]
struct Installation {
    id: u64,
    #[serde(default)]
    permissions: HashMap<String, String>,
    account: Option<Owner>,
}

/// Where it is installed.
#[derive(Deserialize)]
struct Owner {
    #[serde(default)]
    login: String,
}

#[derive(Deserialize)]
struct AppAnswer {
    slug: String,
}

impl App {
    pub(super) fn new(
        config: &GitHubApp,
        section: &Section,
        base: &Url,
        home: Option<&str>,
        authority: Option<&Authority>,
        limits: RequestLimits,
    ) -> Result<Self, TrackerError> {
        Ok(Self {
            client: AppClient::new(config, section, base, authority, limits)?,
            installation: config.installation,
            home: home.map(str::to_owned),
            state: Mutex::default(),
        })
    }

    /// The login name under which the App writes, asked for again.
    pub(super) async fn login(&self) -> Result<String, TrackerError> {
        let app: AppAnswer = self.client.ask(Method::GET, &["app"], None).await?;
        Ok(format!("{}[bot]", app.slug))
    }

    /// A token for git and one repository. It is replaced while somebody holds it, and revoked afterwards.
    pub(super) async fn git_token(
        self: &Arc<Self>,
        path: &str,
    ) -> Result<LiveSecret, TrackerError> {
        let (installation, first) = self.mint_for_git(path).await?;
        let identity = Secret::new(format!(
            "app {} installation {installation}",
            self.client.id
        ));
        let (sender, live) = LiveSecret::replaceable(identity, first.token.clone());
        let (app, path) = (Arc::clone(self), path.to_owned());
        tokio::spawn(async move {
            let mut current = first;
            loop {
                let lasts = (current.until - SPARE - Utc::now()).to_std();
                tokio::select! {
                    () = sender.closed() => break,
                    () = tokio::time::sleep(lasts.unwrap_or_default()) => {}
                }
                match app.mint_for_git(&path).await {
                    Ok((_, next)) => {
                        // A push may be under way with the former one: it ends by itself.
                        current = next;
                        let _ = sender.send(current.token.clone());
                    }
                    Err(error) => {
                        tracing::warn!(%error, "the token for git could not be replaced; it is tried again");
                        tokio::time::sleep(pause_after(&error)).await;
                    }
                }
            }
            app.client.revoke(&current.token).await;
        });
        Ok(live)
    }

    /// A new token for git and the repository `path`, and whose it is.
    async fn mint_for_git(&self, path: &str) -> Result<(u64, Minted), TrackerError> {
        let (owner, name) = path.split_once('/').unwrap_or((path, ""));
        let mut tries = 0..TRIES_OF_INSTALLATION;
        loop {
            tries.next();
            let mut state = self.state.lock().await;
            let of = self.installation_of(&mut state, owner, Some(name));
            let installation = of.await?;
            drop(state);
            // If they cannot be read, git gets the narrow ones.
            let granted = self.granted(&installation.to_string()).await;
            let granted = granted.unwrap_or_else(|error| {
                tracing::warn!(%error, "the App's permissions cannot be read; git may change no workflow until its token is replaced");
                HashMap::new()
            });
            let scope = Scope {
                installation,
                repository: Some(name.to_owned()),
                permissions: for_git(&granted),
            };
            match self.mint(&scope).await {
                Err(NotMinted::Other(TrackerError::NotFound { .. })) if !tries.is_empty() => {
                    self.lose(&mut *self.state.lock().await, installation);
                }
                minted => return Ok((installation, minted?)),
            }
        }
    }

    /// The permissions that an installation was granted.
    async fn granted(&self, id: &str) -> Result<HashMap<String, String>, TrackerError> {
        let path = ["app", "installations", id];
        let asked = self.client.ask::<Installation>(Method::GET, &path, None);
        Ok(asked.await?.permissions)
    }

    /// Revokes the tokens in use. At the end of the process.
    pub(super) async fn close(&self) {
        let tokens = std::mem::take(&mut self.state.lock().await.tokens);
        for minted in tokens.into_values() {
            self.client.revoke(&minted.token).await;
        }
    }

    /// The token of a scope, minted again if it expires soon.
    async fn token(&self, scope: Scope, state: &mut State) -> Result<Secret, TrackerError> {
        if let Some(minted) = state.tokens.get(&scope)
            && minted.until - Utc::now() > SPARE
        {
            return Ok(minted.token.clone());
        }
        // What is needed to write is asked for each time, as after a person granted it.
        let of = Refused::Token(scope.clone());
        let is_remembered = scope.repository.is_none();
        if let Some(refusal) = state.refusal(&of).filter(|_| is_remembered) {
            return Err(refusal);
        }
        let minted = match self.mint(&scope).await {
            Err(NotMinted::Lacks(refusal)) => {
                let error = refusal.error();
                state.refused.insert(of, refusal);
                return Err(error);
            }
            minted => minted?,
        };
        state.tokens.retain(|_, minted| minted.until > Utc::now());
        let token = minted.token.clone();
        state.tokens.insert(scope, minted);
        Ok(token)
    }

    async fn mint(&self, scope: &Scope) -> Result<Minted, NotMinted> {
        let permissions = scope.permissions.iter();
        let permissions: Map<String, Value> = permissions
            .map(|(name, level)| ((*name).to_owned(), Value::from(*level)))
            .collect();
        let mut body = json!({ "permissions": permissions });
        if let Some(repository) = &scope.repository {
            body["repositories"] = json!([repository]);
        }
        let id = scope.installation.to_string();
        let path = ["app", "installations", &id, "access_tokens"];
        let answer = self
            .client
            .ask::<TokenAnswer>(Method::POST, &path, Some(&body))
            .await;
        match answer {
            Ok(TokenAnswer { token, expires_at }) => Ok(Minted {
                token,
                until: expires_at,
            }),
            Err(TrackerError::Refused { detail, .. }) => {
                Err(self.why_not(scope, &id, detail).await)
            }
            Err(error) => Err(NotMinted::Other(error)),
        }
    }

    /// Which of the permissions the installation was not granted.
    async fn why_not(&self, scope: &Scope, id: &str, refusal: String) -> NotMinted {
        let granted = match self.granted(id).await {
            Ok(granted) => granted,
            Err(error) => return NotMinted::Other(error),
        };
        let is_granted = |(name, level): &&(&str, &str)| {
            let own = granted.get(*name).map(String::as_str);
            own == Some(*level) || own == Some("write") || own == Some("admin")
        };
        let missing = scope.permissions.iter().filter(|it| !is_granted(it));
        let missing: Vec<String> = missing
            .map(|(name, level)| format!("{name}={level}"))
            .collect();
        let (detail, hint) = match (missing.is_empty(), &scope.repository) {
            (true, Some(repository)) => (
                format!("the App's installation {id} does not include {repository} ({refusal})"),
                self.how_to_include(),
            ),
            (true, None) => {
                return NotMinted::Other(Refusal::now(refusal, self.client.hint()).error());
            }
            (false, _) => (
                format!(
                    "the App's installation {id} lacks the permission {}",
                    missing.join(" and ")
                ),
                "grant it in the App's settings, and accept the change in the installation's"
                    .into(),
            ),
        };
        NotMinted::Lacks(Refusal::now(detail, hint))
    }

    /// What makes a repository one of an installation's.
    fn how_to_include(&self) -> String {
        format!(
            "give the App's installation access to it; if it was transferred, install the App for its new owner, and \
             correct {}.repositories",
            self.client.section
        )
    }

    /// Finds the installation of a repository that is not found with that of its owner: it may have been transferred.
    ///
    /// # Errors
    /// [`TrackerError::NotFound`] with what can be done, if no other installation includes it.
    pub(super) async fn look_for(&self, path: &str) -> Result<(), TrackerError> {
        let missing = |why: String| TrackerError::NotFound {
            tracker: TrackerKind::GitHub,
            what: format!("repository {path}{why}"),
        };
        let (owner, name) = path.split_once('/').unwrap_or((path, ""));
        let place = ["repos", owner, name, "installation"];
        let asked = self
            .client
            .ask::<Installation>(Method::GET, &place, None)
            .await;
        let found = match asked {
            Ok(installation) => installation.id,
            Err(TrackerError::NotFound { .. }) => {
                let hint = self.how_to_include();
                let why = format!(" (no installation of the App includes it; {hint})");
                return Err(missing(why));
            }
            Err(error) => {
                tracing::debug!(repository = path, %error, "its installation cannot be looked up");
                return Err(missing(String::new()));
            }
        };
        let mut state = self.state.lock().await;
        if let Some(configured) = self.configured(&state).filter(|id| *id != found) {
            return Err(missing(format!(
                " (the App's installation {found} includes it, and {configured} is configured; remove \
                 {}.app.installation)",
                self.client.section
            )));
        }
        if self.installation_of(&mut state, owner, Some(name)).await? == found {
            return Err(missing(String::new()));
        }
        state.installations.insert(path.to_lowercase(), found);
        Ok(())
    }

    /// The installation that is configured, while there is one.
    fn configured(&self, state: &State) -> Option<u64> {
        self.installation.filter(|id| state.gone != Some(*id))
    }

    /// An installation is there no more. In place of the configured one, that of each owner is looked up.
    fn lose(&self, state: &mut State, installation: u64) {
        state.forget(installation);
        if self.configured(state) == Some(installation) {
            tracing::warn!(
                installation,
                "{}.app.installation does not exist any more; that of each repository's owner is looked up instead. hint: correct or remove it",
                self.client.section
            );
            state.gone = Some(installation);
        }
    }

    async fn installation_of(
        &self,
        state: &mut State,
        owner: &str,
        repository: Option<&str>,
    ) -> Result<u64, TrackerError> {
        if let Some(id) = self.configured(state) {
            return Ok(id);
        }
        let key = owner.to_lowercase();
        let of_repository = repository.map(|name| format!("{key}/{}", name.to_lowercase()));
        let of_repository = of_repository.unwrap_or_else(|| key.clone());
        let known = &state.installations;
        if let Some(id) = known.get(&of_repository).or_else(|| known.get(&key)) {
            return Ok(*id);
        }
        let of = Refused::Installation(of_repository.clone());
        if let Some(refusal) = state.refusal(&of) {
            return Err(refusal);
        }
        let segments = match repository {
            Some(name) => vec!["repos", owner, name, "installation"],
            None => vec!["users", owner, "installation"],
        };
        let asked = self
            .client
            .ask::<Installation>(Method::GET, &segments, None)
            .await;
        let installation = match asked {
            Err(TrackerError::NotFound { .. }) => {
                let detail = format!("the App is not installed for {owner}");
                let hint = "install it there, with access to the repositories".to_owned();
                let refusal = Refusal::now(detail, hint);
                let error = refusal.error();
                state.refused.insert(of, refusal);
                return Err(error);
            }
            asked => asked?,
        };
        // The repository may belong to somebody else now, or its owner may have another name: its old path leads there.
        let is_of_owner = installation
            .account
            .is_none_or(|it| it.login.is_empty() || it.login.eq_ignore_ascii_case(owner));
        let key = if is_of_owner { key } else { of_repository };
        state.installations.insert(key, installation.id);
        Ok(installation.id)
    }
}

/// How long a failed try to replace a token of git waits for the next one.
fn pause_after(error: &TrackerError) -> Duration {
    match error {
        TrackerError::RateLimited { until, .. } => {
            let asked = (*until - Utc::now()).to_std().unwrap_or_default();
            asked.max(TRY_AGAIN)
        }
        _ => TRY_AGAIN,
    }
}

#[async_trait]
impl Authorize for App {
    async fn token(&self, path: &str, purpose: Purpose) -> Result<Secret, TrackerError> {
        let mut state = self.state.lock().await;
        let mut tries = 0..TRIES_OF_INSTALLATION;
        loop {
            tries.next();
            let scope = self.scope(path, purpose, &mut state).await?;
            let installation = scope.installation;
            match self.token(scope, &mut state).await {
                Err(TrackerError::NotFound { .. }) if !tries.is_empty() => {
                    self.lose(&mut state, installation);
                }
                token => return token,
            }
        }
    }

    async fn holder(&self, path: &str) -> Result<Holder, TrackerError> {
        let mut state = self.state.lock().await;
        let (installation, _) = self.asked_for(path, &mut state).await?;
        Ok(Holder::Installation(installation))
    }

    async fn refused(&self, token: &Secret) -> Renewal {
        let mut state = self.state.lock().await;
        let mut tokens = state.tokens.iter();
        let of = tokens.find(|(_, minted)| minted.token.expose() == token.expose());
        // Without it, another request has noticed the same.
        if let Some(installation) = of.map(|(scope, _)| scope.installation) {
            tracing::warn!(
                installation,
                "a token of the App's installation was refused before it expired; a new one is requested"
            );
            state.forget(installation);
        }
        Renewal::Possible
    }
}

impl App {
    /// What the token for a request to `path` is for.
    async fn scope(
        &self,
        path: &str,
        purpose: Purpose,
        state: &mut State,
    ) -> Result<Scope, TrackerError> {
        let (installation, repository) = self.asked_for(path, state).await?;
        Ok(match purpose {
            Purpose::Read => Scope {
                installation,
                repository: None,
                permissions: to_read(path),
            },
            Purpose::Write => Scope {
                installation,
                repository,
                permissions: WRITE,
            },
        })
    }

    /// Whose installation a request to `path` is for, and the name of its repository, if there is one.
    async fn asked_for(
        &self,
        path: &str,
        state: &mut State,
    ) -> Result<(u64, Option<String>), TrackerError> {
        let mut segments = path.split('/');
        let repository = match (segments.next(), segments.next(), segments.next()) {
            (Some("repos"), Some(owner), Some(name)) => Some((owner, name)),
            _ => None,
        };
        let owner = path.strip_prefix("orgs/");
        let owner = owner.and_then(|rest| rest.split('/').next());
        let home = owner.or(self.home.as_deref());
        match (repository, home) {
            (Some((owner, name)), _) => {
                let id = self.installation_of(state, owner, Some(name)).await?;
                Ok((id, Some(name.to_owned())))
            }
            (None, Some(home)) => Ok((self.installation_of(state, home, None).await?, None)),
            (None, None) => match self.configured(state) {
                Some(id) => Ok((id, None)),
                None => Err(invalid(format!(
                    "{}.app.installation is needed for a search, and has to exist",
                    self.client.section
                ))),
            },
        }
    }
}

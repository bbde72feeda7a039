//! What a GitHub App asks as itself, with a token that its key signs, and the end of a token that it was given.
//!
//! While GitHub limits the App itself, nothing is requested as the App; the tokens that it has keep working.

use std::sync::{Mutex, MutexGuard, PoisonError};

use agentmine_domain::TrackerKind;
use agentmine_runtime::config::{GitHubApp, Secret};
use agentmine_runtime::tls::Authority;
use chrono::{DateTime, Utc};
use http::{HeaderMap, Method, StatusCode, header};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use url::Url;

use super::fault::{LIMITS, invalid, unavailable};
use super::key_file::AppKeyFile;
use crate::error::TrackerError;
use crate::forge::{RequestLimits, Section, explained, http_client, own_address};

/// GitHub accepts ten minutes at most, and clocks differ.
const JWT_LASTS: i64 = 540;
const CLOCK_SKEW: i64 = 60;
/// The longest answer to a request for a token.
const MAX_ANSWER: usize = 1 << 20;
/// A repository that was renamed is at the address of its id.
const MAX_REDIRECTS: usize = 3;

/// The App with its key.
#[derive(Debug)]
pub(super) struct AppClient {
    pub(super) section: Section,
    pub(super) id: String,
    key: AppKeyFile,
    base: Url,
    http: reqwest::Client,
    /// Until when nothing is asked. The App's limits are not those of its installations.
    closed_until: Mutex<Option<DateTime<Utc>>>,
}

impl AppClient {
    pub(super) fn new(
        config: &GitHubApp,
        section: &Section,
        base: &Url,
        authority: Option<&Authority>,
        limits: RequestLimits,
    ) -> Result<Self, TrackerError> {
        let pem = config
            .pem()
            .map_err(|error| invalid(format!("{section}.app.key_file is {error}")))?;
        let key = AppKeyFile::new(pem)
            .map_err(|error| invalid(format!("{section}.app: the key is {error}")))?;
        Ok(Self {
            section: section.clone(),
            id: config.id.to_string(),
            key,
            base: base.clone(),
            http: http_client(TrackerKind::GitHub, base, authority, limits)?,
            closed_until: Mutex::default(),
        })
    }

    /// Sends a request as the App itself.
    pub(super) async fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        segments: &[&str],
        body: Option<&Value>,
    ) -> Result<T, TrackerError> {
        let mut url = self.url(segments);
        let mut redirects = 0;
        let (status, headers, answer) = loop {
            let answered = self.send(method.clone(), url.clone(), body).await?;
            let (status, headers, _) = &answered;
            let is_moved = matches!(status.as_u16(), 301 | 302 | 307 | 308);
            if !is_moved || redirects == MAX_REDIRECTS {
                break answered;
            }
            url = self.redirect_target(&url, headers)?;
            redirects += 1;
        };
        if status.is_success() {
            return serde_json::from_slice(&answer)
                .map_err(|_| unavailable("its answer about the App has an unexpected form"));
        }
        if let Some(limited) = LIMITS.read(status, &headers, &answer, Utc::now()) {
            let mut closed = self.closed_until();
            *closed = closed.max(Some(limited.until));
            return Err(limited_until(limited.until));
        }
        let message: Value = serde_json::from_slice(&answer).unwrap_or_default();
        let message = message["message"].as_str().unwrap_or("no message");
        let message: String = message
            .chars()
            .filter(|c| !c.is_control())
            .take(300)
            .collect();
        let detail = format!("{status}: {message}");
        let tracker = TrackerKind::GitHub;
        Err(match status {
            StatusCode::UNAUTHORIZED => TrackerError::Unauthorized {
                tracker,
                detail,
                hint: self.hint(),
            },
            StatusCode::FORBIDDEN => TrackerError::Forbidden {
                tracker,
                detail,
                hint: self.hint(),
            },
            StatusCode::NOT_FOUND => TrackerError::NotFound {
                tracker,
                what: format!("{} of the App", segments.join("/")),
            },
            status if status.is_client_error() => TrackerError::Refused { tracker, detail },
            _ => unavailable(detail),
        })
    }

    /// Sends one request. Returns the status, the headers and the body of the answer.
    async fn send(
        &self,
        method: Method,
        url: Url,
        body: Option<&Value>,
    ) -> Result<(StatusCode, HeaderMap, Vec<u8>), TrackerError> {
        self.check_limit()?;
        let jwt = self.jwt()?;
        let mut request = self
            .http
            .request(method, url)
            .bearer_auth(jwt.expose())
            .header("accept", "application/vnd.github+json");
        if let Some(body) = body {
            request = request.json(body);
        }
        let away = |error: reqwest::Error| unavailable(explained(error));
        let mut response = request.send().await.map_err(away)?;
        let (status, headers) = (response.status(), response.headers().clone());
        let mut answer = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(away)? {
            if answer.len() + chunk.len() > MAX_ANSWER {
                return Err(unavailable("its answer about the App is too large"));
            }
            answer.extend_from_slice(&chunk);
        }
        Ok((status, headers, answer))
    }

    /// Where a redirect leads, at the origin that the App's token belongs to.
    fn redirect_target(&self, from: &Url, headers: &HeaderMap) -> Result<Url, TrackerError> {
        let target = headers
            .get(header::LOCATION)
            .and_then(|value| value.to_str().ok())
            .and_then(|text| from.join(text).ok())
            .ok_or_else(|| unavailable("it redirects to no address"))?;
        // With a slash at its end.
        let base = self.url(&[""]);
        own_address(&base, target).map_err(unavailable)
    }

    /// # Errors
    /// If GitHub limits what the App itself asks for.
    fn check_limit(&self) -> Result<(), TrackerError> {
        let closed = self.closed_until().filter(|until| *until > Utc::now());
        closed.map_or(Ok(()), |until| Err(limited_until(until)))
    }

    fn closed_until(&self) -> MutexGuard<'_, Option<DateTime<Utc>>> {
        let closed = self.closed_until.lock();
        closed.unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn hint(&self) -> String {
        format!(
            "check {}.app: its id, its key, and what the App's installation may see and do",
            self.section
        )
    }

    fn jwt(&self) -> Result<Secret, TrackerError> {
        let now = Utc::now().timestamp();
        let claims =
            json!({ "iat": now - CLOCK_SKEW, "exp": now - CLOCK_SKEW + JWT_LASTS, "iss": self.id });
        let signed = self.key.current().sign(&claims);
        signed.map_err(|error| invalid(format!("{}.app: {error}", self.section)))
    }

    fn url(&self, segments: &[&str]) -> Url {
        let mut url = self.base.clone();
        // Only a URL that cannot be a base has no segments, and the configuration refuses those.
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(segments);
        }
        url
    }

    pub(super) async fn revoke(&self, token: &Secret) {
        let url = self.url(&["installation", "token"]);
        let sent = self
            .http
            .delete(url)
            .bearer_auth(token.expose())
            .send()
            .await;
        if let Err(error) = sent {
            tracing::debug!(error = %error.without_url(), "a token could not be revoked; it expires within the hour");
        }
    }
}

fn limited_until(until: DateTime<Utc>) -> TrackerError {
    TrackerError::RateLimited {
        tracker: TrackerKind::GitHub,
        until,
    }
}

//! Webhooks: a forge says that something happened, and the repository is scanned at once.
//!
//! A delivery is only a hint where to look: nothing in it is believed, and the scan remains the truth. Guaranteed: what
//! is not signed with a configured secret is refused with 401 and causes nothing; a delivery that was seen before causes
//! nothing; however many come, each repository is looked at once in [`hints::APART`].

mod hints;
mod signed;

use std::borrow::Cow;
use std::sync::Arc;

use agentmine_domain::TrackerKind;
use agentmine_runtime::config::Secret;
use agentmine_runtime::http::serve_router;
use agentmine_runtime::shutdown::Shutdown;
use agentmine_trackers::{Tracker, host_of_github, host_of_gitlab};
use anyhow::Result;
use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::routing::post;
use chrono::Utc;
use serde_json::Value;

use crate::deps::ProducerDeps;
use hints::Hints;
use signed::{Genuine, github, gitlab};

/// The longest delivery.
const MAX_BODY: usize = 1 << 20;
const FORM: &[u8] = b"application/x-www-form-urlencoded";

#[derive(Clone)]
struct Receiver {
    deps: Arc<ProducerDeps>,
    hints: Arc<Hints>,
}

/// Describes the metrics.
pub(crate) fn describe_metrics() {
    metrics::describe_counter!(
        "agentmine_webhooks_total",
        "Deliveries of webhooks by forge and outcome: accepted, repeated, ignored, refused."
    );
    for forge in ["github", "gitlab"] {
        for outcome in ["accepted", "repeated", "ignored", "refused"] {
            metrics::counter!("agentmine_webhooks_total", "forge" => forge, "outcome" => outcome)
                .increment(0);
        }
    }
}

/// Listens for deliveries, if `producer.webhooks.listen` says so, and looks where they point until the process drains.
///
/// # Errors
/// If the address cannot be bound.
pub(crate) async fn serve(deps: &Arc<ProducerDeps>, stop: &Shutdown) -> Result<()> {
    let Some(listen) = &deps.config.producer.webhooks.listen else {
        return Ok(());
    };
    let hints = Arc::new(Hints::default());
    let receiver = Receiver {
        deps: Arc::clone(deps),
        hints: Arc::clone(&hints),
    };
    let app = Router::new()
        .route("/webhooks/github", post(of_github))
        .route("/webhooks/gitlab", post(of_gitlab))
        .route("/webhooks/github/{name}", post(of_named_github))
        .route("/webhooks/gitlab/{name}", post(of_named_gitlab))
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .with_state(receiver);
    serve_router(listen, "producer.webhooks.listen", app, stop).await?;
    tokio::spawn(hints::look(Arc::clone(deps), hints, stop.draining()));
    Ok(())
}

async fn of_github(
    State(receiver): State<Receiver>,
    headers: HeaderMap,
    body: Bytes,
) -> StatusCode {
    receiver.of_github(None, &headers, &body)
}

async fn of_named_github(
    State(receiver): State<Receiver>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> StatusCode {
    receiver.of_github(Some(&name), &headers, &body)
}

async fn of_gitlab(
    State(receiver): State<Receiver>,
    headers: HeaderMap,
    body: Bytes,
) -> StatusCode {
    receiver.of_gitlab(None, &headers, &body)
}

async fn of_named_gitlab(
    State(receiver): State<Receiver>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> StatusCode {
    receiver.of_gitlab(Some(&name), &headers, &body)
}

/// The JSON of a delivery, which a webhook of GitHub sends in a field of a form if it is not configured otherwise.
fn json_of<'b>(headers: &HeaderMap, body: &'b [u8]) -> Cow<'b, [u8]> {
    let kind = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    if !kind.is_some_and(|kind| kind.to_ascii_lowercase().starts_with(FORM)) {
        return Cow::Borrowed(body);
    }
    let mut fields = url::form_urlencoded::parse(body);
    let payload = fields.find(|(name, _)| name == "payload");
    Cow::Owned(payload.map_or_else(Vec::new, |(_, json)| json.into_owned().into_bytes()))
}

/// Which server a delivery is from.
struct Origin {
    kind: TrackerKind,
    host: String,
}

impl Receiver {
    /// A delivery to the section with this name. One to a section that is not there is refused as one without a valid
    /// signature is.
    fn of_github(&self, name: Option<&str>, headers: &HeaderMap, body: &[u8]) -> StatusCode {
        let mut sections = self.deps.config.trackers.githubs();
        let config = sections.find(|(own, _)| *own == name).map(|(_, it)| it);
        let genuine = config.and_then(|config| {
            let secret = config.webhook_secret.as_ref()?;
            github(&secret.current(), headers, body)
        });
        let host = config.and_then(|config| host_of_github(config).ok());
        let from = Origin {
            kind: TrackerKind::GitHub,
            host: host.unwrap_or_default(),
        };
        let place = |body: &Value| body["repository"]["full_name"].as_str().map(str::to_owned);
        // The signature is of the body as it was sent.
        self.take(&from, genuine, &json_of(headers, body), place)
    }

    /// The same of GitLab.
    fn of_gitlab(&self, name: Option<&str>, headers: &HeaderMap, body: &[u8]) -> StatusCode {
        let mut sections = self.deps.config.trackers.gitlabs();
        let config = sections.find(|(own, _)| *own == name).map(|(_, it)| it);
        let genuine = config.and_then(|config| {
            let signing = config.webhook_signing_token.as_ref();
            let secret = config.webhook_secret_token.as_ref();
            gitlab(
                signing.map(Secret::current).as_ref(),
                secret.map(Secret::current).as_ref(),
                headers,
                body,
                Utc::now(),
            )
        });
        let host = config.and_then(|config| host_of_gitlab(config).ok());
        let from = Origin {
            kind: TrackerKind::GitLab,
            host: host.unwrap_or_default(),
        };
        let place = |body: &Value| {
            let path = &body["project"]["path_with_namespace"];
            path.as_str().map(str::to_owned)
        };
        self.take(&from, genuine, body, place)
    }
}

impl Receiver {
    /// The answer to a delivery, after the place where it points was noted.
    fn take(
        &self,
        from: &Origin,
        genuine: Option<Genuine>,
        body: &[u8],
        place: impl Fn(&Value) -> Option<String>,
    ) -> StatusCode {
        let forge = from.kind;
        let (outcome, status) = match genuine {
            None => {
                tracing::debug!(%forge, "a delivery without a valid signature was refused");
                ("refused", StatusCode::UNAUTHORIZED)
            }
            Some(genuine) if !self.hints.is_new(forge, &genuine) => ("repeated", StatusCode::OK),
            Some(_) => {
                let body: Value = serde_json::from_slice(body).unwrap_or_default();
                let noted = place(&body).is_some_and(|path| self.note(from, &path));
                (
                    if noted { "accepted" } else { "ignored" },
                    StatusCode::ACCEPTED,
                )
            }
        };
        let name = match forge {
            TrackerKind::GitHub => "github",
            TrackerKind::GitLab => "gitlab",
            TrackerKind::Local => "local",
        };
        metrics::counter!("agentmine_webhooks_total", "forge" => name, "outcome" => outcome)
            .increment(1);
        status
    }

    /// Notes a repository that is scanned by one of our trackers.
    fn note(&self, from: &Origin, path: &str) -> bool {
        let trackers = self.deps.trackers.iter().enumerate();
        let is_it = |it: &dyn Tracker| it.kind() == from.kind && it.host() == from.host;
        let mut of_forge = trackers.filter(|(_, tracker)| is_it(tracker.as_ref()));
        match of_forge.find(|(_, tracker)| tracker.scans(path)) {
            Some((at, _)) => {
                self.hints.note(at, path);
                true
            }
            None => false,
        }
    }
}

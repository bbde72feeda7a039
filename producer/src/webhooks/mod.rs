//! Webhooks: a forge says that something happened, and the repository is scanned at once.
//!
//! A delivery is only a hint where to look: nothing in it is believed, and the scan remains the truth. Guaranteed: what
//! is not signed with a configured secret is refused with 401 and causes nothing; a delivery that was seen before causes
//! nothing; however many come, each repository is checked once in [`hints::APART`].

mod hints;
mod large;
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
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};
use chrono::Utc;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::deps::ProducerDeps;
use crate::scan;
use hints::Hints;
use signed::{Genuine, github, gitlab};

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
    let hints = Arc::new(Hints::of(deps.trackers.len()));
    let receiver = Receiver {
        deps: Arc::clone(deps),
        hints: Arc::clone(&hints),
    };
    let app = Router::new()
        .route("/webhooks/github", post(of_github))
        .route("/webhooks/gitlab", post(of_gitlab))
        .route("/webhooks/github/{name}", post(of_named_github))
        .route("/webhooks/gitlab/{name}", post(of_named_gitlab))
        .layer(DefaultBodyLimit::max(large::MAX_BODY))
        .layer(from_fn_with_state(large::places(), large::few_at_once))
        .route("/", get(alive))
        .with_state(receiver);
    serve_router(listen, "producer.webhooks.listen", app, stop).await?;
    tokio::spawn(look(Arc::clone(deps), hints, stop.draining()));
    Ok(())
}

/// Looks where deliveries point.
async fn look(deps: Arc<ProducerDeps>, hints: Arc<Hints>, draining: CancellationToken) {
    let looks = |tracker: usize, path: String| {
        let deps = Arc::clone(&deps);
        async move { look_at(&deps, tracker, &path).await }
    };
    hints.each(&draining, looks).await;
}

/// Looks at one repository. An error is left to the next scan.
async fn look_at(deps: &ProducerDeps, tracker: usize, path: &str) {
    let Some(tracker) = deps.trackers.get(tracker) else {
        return;
    };
    match scan::look(deps, tracker, path).await {
        Ok(found) => {
            let enqueued = found.enqueued;
            tracing::debug!(path, enqueued, "checked what a webhook reported");
        }
        Err(error) => {
            tracing::debug!(
                path,
                error = format!("{error:#}"),
                "checking what a webhook reported failed; the next scan tries again"
            );
        }
    }
}

/// For load balancers, some of which deliver nothing to a server whose `/` does not answer with 200.
async fn alive() -> &'static str {
    "ok\n"
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

/// The repository that a delivery names.
struct Pointed {
    path: Option<String>,
    id: Option<String>,
}

impl Pointed {
    fn new(repository: &Value, path: &str) -> Option<Self> {
        Some(Self {
            path: Some(repository[path].as_str()?.to_owned()),
            id: id_of(&repository["id"]),
        })
    }

    /// What is said of a job of GitLab's CI: older servers give the id of its project alone.
    fn of_job(body: &Value) -> Option<Self> {
        Some(Self {
            path: None,
            id: Some(id_of(&body["project_id"])?),
        })
    }
}

fn id_of(value: &Value) -> Option<String> {
    value.as_u64().map(|id| id.to_string())
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
        let place = |body: &Value| Pointed::new(&body["repository"], "full_name");
        // The signature is of the body as it was sent.
        let json = match genuine.is_some() {
            true => json_of(headers, body),
            false => Cow::Borrowed(body),
        };
        self.take(&from, genuine, &json, place)
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
            Pointed::new(&body["project"], "path_with_namespace").or_else(|| Pointed::of_job(body))
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
        place: impl Fn(&Value) -> Option<Pointed>,
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
                let noted = place(&body).is_some_and(|pointed| self.note(from, &pointed));
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

    /// Notes a repository that is scanned by one of our trackers. One that was renamed since it was scanned is known by its
    /// id, and is checked by both names: its tasks are recorded by the name that it had at the time.
    fn note(&self, from: &Origin, pointed: &Pointed) -> bool {
        let Pointed { path, id } = pointed;
        let trackers = self.deps.trackers.iter().enumerate();
        let is_it = |it: &dyn Tracker| it.kind() == from.kind && it.host() == from.host;
        let mut of_forge = trackers.filter(|(_, tracker)| is_it(tracker.as_ref()));
        let found = of_forge.find_map(|(at, tracker)| match path {
            Some(path) if tracker.scans(path) => Some((at, path.clone())),
            Some(_) | None => Some((at, tracker.scanned_as(id.as_deref()?)?)),
        });
        let Some((at, scanned)) = found else {
            return false;
        };
        self.hints.note(at, &scanned);
        if let Some(path) = path
            && !scanned.eq_ignore_ascii_case(path)
        {
            tracing::debug!(
                path,
                scanned,
                "a webhook names a repository that was renamed"
            );
            self.hints.note(at, path);
        }
        true
    }
}

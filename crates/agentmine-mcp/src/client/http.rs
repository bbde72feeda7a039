//! Streamable HTTP.
//!
//! Headers of the configuration are secret: they are sent to the configured origin only (redirects to
//! others are not followed), are marked so that nothing prints them, and errors contain no query of a URL,
//! which often has a key in it. Sizes are limited: an event by [`McpLimits::max_line`], a body by rmcp (16 MiB,
//! 64 KiB of an error). Time is limited by the callers, and for connecting by [`CONNECT`].
//!
//! A session that the server no longer knows is replaced by rmcp, which then sends the request once more. That is
//! safe, since the server has refused the request before reading it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use agentmine_runtime::config::Secret;
use futures::stream::BoxStream;
use http::{HeaderName, HeaderValue};
use reqwest::redirect::Policy;
use rmcp::model::{ClientJsonRpcMessage, ClientRequest, RequestId, ServerJsonRpcMessage};
use rmcp::service::RoleClient;
use rmcp::transport::Transport;
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpClientTransport,
    StreamableHttpClientTransportConfig, StreamableHttpError, StreamableHttpPostResponse,
};
use serde_json::{Map, Value, json};
use tokio::sync::watch;
use url::Url;

use super::ending::Ending;
use crate::McpLimits;
use crate::text::shortened;

/// Time limit for connecting.
const CONNECT: Duration = Duration::from_secs(10);
/// Time limit for opening the stream of the server's requests after the handshake.
const LISTEN: Duration = Duration::from_secs(3);
const MAX_REDIRECTS: usize = 5;
/// rmcp sets this header and rejects a configured one, although vendors' examples name it.
const ACCEPT: &str = "accept";
/// Shorter values are not secrets, and redacting them would make texts unreadable.
const MIN_SECRET: usize = 6;
/// Words of servers that do not know a session, in lower case. The protocol demands HTTP 404, but the examples of the
/// TypeScript SDK and older versions of the Python SDK and of mcp-go return 400.
const LOST_SESSION: [&str; 4] = [
    "session id",
    "session not found",
    "session expired",
    "server not initialized",
];

/// A transport to this URL. An error is a fault of the configuration, as a text.
pub(super) fn transport(
    url: &Url,
    headers: &BTreeMap<String, Secret>,
    limits: &McpLimits,
    ending: &Ending,
) -> Result<(impl Transport<RoleClient> + 'static + use<>, Listening), String> {
    let mut custom = HashMap::new();
    for (name, value) in headers {
        if name.eq_ignore_ascii_case(ACCEPT) {
            continue;
        }
        let shown = shortened(name);
        let name = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| format!("{shown:?} is not the name of a header"))?;
        let mut value = HeaderValue::from_str(value.expose()).map_err(|_| {
            format!("the value of header {shown:?} has characters that are not allowed in headers")
        })?;
        value.set_sensitive(true);
        custom.insert(name, value);
    }
    let origin = url.origin();
    let same_origin = Policy::custom(move |attempt| {
        if attempt.url().origin() != origin {
            attempt.error("a redirect to another origin is not followed")
        } else if attempt.previous().len() > MAX_REDIRECTS {
            attempt.error("too many redirects")
        } else {
            attempt.follow()
        }
    });
    let config = agentmine_runtime::tls::http_config(url, None);
    let client = reqwest::Client::builder()
        .tls_backend_preconfigured(config.map_err(|error| error.to_string())?)
        .user_agent(concat!("agentmine/", env!("CARGO_PKG_VERSION")))
        .redirect(same_origin)
        .connect_timeout(CONNECT)
        .build();
    let client = client.map_err(|error| {
        format!(
            "the HTTP client could not be built: {}",
            error.without_url()
        )
    })?;
    let mut config = StreamableHttpClientTransportConfig::with_uri(url.as_str());
    config.custom_headers = custom;
    config.max_sse_event_size = limits.max_line;
    let (state, listening) = watch::channel(State::default());
    let redacting = Redacting {
        client,
        ending: ending.clone(),
        secrets: secrets(url, headers).into(),
        state: Arc::new(state),
        max_event: limits.max_line,
    };
    let transport = StreamableHttpClientTransport::with_client(redacting, config);
    Ok((transport, Listening(listening)))
}

/// The request as rmcp's type for its method: its transport looks at some of them.
pub(super) fn request(
    method: &str,
    params: Map<String, Value>,
) -> serde_json::Result<ClientRequest> {
    serde_json::from_value(json!({"method": method, "params": params}))
}

/// Whether the stream for the server's own requests is open.
pub(super) struct Listening(watch::Receiver<State>);

#[derive(Clone, Copy, Default)]
pub(super) struct State {
    /// There is a session, so rmcp opens the stream right after the handshake.
    session: bool,
    /// The stream is open, or was refused.
    listening: bool,
}

impl Listening {
    /// Waits for the stream, at most [`LISTEN`]. A server drops requests that it makes before the stream is
    /// open, and the call that caused such a request would never end.
    pub(super) async fn opened(mut self) {
        let opened = self.0.wait_for(|state| !state.session || state.listening);
        let _ = tokio::time::timeout(LISTEN, opened).await;
    }
}

/// A failure to connect, with the next step.
pub(super) fn explained(url: &Url, detail: &str) -> String {
    let detail = without_query(detail, url);
    let has = |parts: &[&str]| parts.iter().any(|part| detail.contains(part));
    let advice = if has(&["403"]) {
        "check what `headers` of this server allow"
    } else if has(&["401"]) {
        "it requires authentication: set `headers` of this server, such as \"Authorization\""
    } else if has(&["HTTP 404", "HTTP 405", "text/html"]) {
        "is this its streamable HTTP endpoint? The older HTTP with SSE (an `/sse` endpoint) is not supported"
    } else {
        return detail;
    };
    format!("{detail}; {advice}")
}

/// Whether the server refused access, so that another attempt would fail too.
pub(super) fn is_refusal(detail: &str) -> bool {
    ["HTTP 401", "HTTP 403"]
        .iter()
        .any(|code| detail.contains(code))
}

fn without_query(words: &str, url: &Url) -> String {
    let mut bare = url.clone();
    bare.set_query(None);
    let _ = bare.set_username("");
    let _ = bare.set_password(None);
    words.replace(url.as_str(), bare.as_str())
}

/// Whether a server has refused the request of this id since it does not know the session. An error of a tool, which
/// may have the same words, has the id of its request.
fn has_lost_session(posted: &Result<StreamableHttpPostResponse, Error>, id: &RequestId) -> bool {
    let words = match posted {
        Ok(StreamableHttpPostResponse::Json(ServerJsonRpcMessage::Error(error), _))
            if error.id.as_ref().map(ToString::to_string) != Some(id.to_string()) =>
        {
            &*error.error.message
        }
        Err(StreamableHttpError::UnexpectedServerResponse(words))
            if words.starts_with("HTTP 400") =>
        {
            &**words
        }
        _ => return false,
    };
    let words = words.to_lowercase();
    LOST_SESSION.iter().any(|lost| words.contains(lost))
}

/// A body that is an error answers the request of this id, although its own id is often another one or `null`: servers
/// refuse a request by its headers before they read it.
fn with_id(response: StreamableHttpPostResponse, id: RequestId) -> StreamableHttpPostResponse {
    match response {
        StreamableHttpPostResponse::Json(ServerJsonRpcMessage::Error(error), session) => {
            let error = ServerJsonRpcMessage::error(error.error, Some(id));
            StreamableHttpPostResponse::Json(error, session)
        }
        response => response,
    }
}

type Error = StreamableHttpError<reqwest::Error>;
type Headers = HashMap<HeaderName, HeaderValue>;
type Events = BoxStream<'static, Result<sse_stream::Sse, SseError>>;

/// The client, without URLs and secrets in its errors.
#[derive(Clone)]
struct Redacting {
    client: reqwest::Client,
    ending: Ending,
    secrets: Arc<[Secret]>,
    state: Arc<watch::Sender<State>>,
    max_event: usize,
}

/// The secrets that a server gets from us and might repeat in an error, longest first.
fn secrets(url: &Url, headers: &BTreeMap<String, Secret>) -> Vec<Secret> {
    let headers = headers.values().map(Secret::expose);
    let headers = headers.flat_map(|value| std::iter::once(value).chain(value.split_whitespace()));
    let decoded = url.query_pairs().map(|(_, value)| value.into_owned());
    let raw = url
        .query()
        .into_iter()
        .flat_map(|query| query.split(['&', '=']));
    let mut all: Vec<String> = headers
        .chain(raw)
        .chain(url.password())
        .map(str::to_owned)
        .chain(decoded)
        .filter(|secret| secret.len() >= MIN_SECRET)
        .collect();
    all.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    all.into_iter().map(Secret::new).collect()
}

impl Redacting {
    fn redacted(&self, error: Error) -> Error {
        let words = match error {
            StreamableHttpError::Client(error) if error.is_redirect() => {
                "a redirect to another origin is not followed".to_owned()
            }
            StreamableHttpError::Client(error) => {
                return StreamableHttpError::Client(error.without_url());
            }
            StreamableHttpError::AuthRequired(_) => "HTTP 401 Unauthorized".to_owned(),
            StreamableHttpError::InsufficientScope(_) => "HTTP 403 Forbidden".to_owned(),
            StreamableHttpError::UnexpectedServerResponse(words) => {
                let secrets = self.secrets.iter();
                secrets.fold(words.into_owned(), |words, secret| {
                    words.replace(secret.expose(), "***")
                })
            }
            other => return other,
        };
        StreamableHttpError::UnexpectedServerResponse(words.into())
    }
}

impl StreamableHttpClient for Redacting {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        auth: Option<String>,
        headers: Headers,
    ) -> Result<StreamableHttpPostResponse, Error> {
        let max = self.max_event;
        self.post_message_with_max_sse_event_size(uri, message, session, auth, headers, max)
            .await
    }

    async fn post_message_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        auth: Option<String>,
        headers: Headers,
        max: usize,
    ) -> Result<StreamableHttpPostResponse, Error> {
        let asked = match &message {
            ClientJsonRpcMessage::Request(request) => Some(request.id.clone()),
            _ => None,
        };
        let in_session = session.is_some();
        let posted = self
            .client
            .post_message_with_max_sse_event_size(uri, message, session, auth, headers, max);
        let posted = posted.await.map_err(|error| self.redacted(error));
        let posted = match asked {
            Some(id) if in_session && has_lost_session(&posted, &id) => {
                Err(StreamableHttpError::SessionExpired)
            }
            Some(id) => posted.map(|response| with_id(response, id)),
            None => posted,
        };
        match &posted {
            Ok(
                StreamableHttpPostResponse::Json(_, Some(_))
                | StreamableHttpPostResponse::Sse(_, Some(_)),
            ) => self.state.send_modify(|state| state.session = true),
            // Nothing else shows that a server went away while it was idle, so the connection must be made
            // again.
            Err(StreamableHttpError::Client(error)) if error.is_connect() || error.is_request() => {
                self.ending.end("it cannot be reached");
            }
            _ => {}
        }
        posted
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        auth: Option<String>,
        headers: Headers,
    ) -> Result<(), Error> {
        let deleted = self.client.delete_session(uri, session, auth, headers);
        deleted.await.map_err(|error| self.redacted(error))
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        auth: Option<String>,
        headers: Headers,
    ) -> Result<Events, Error> {
        let max = self.max_event;
        self.get_stream_with_max_sse_event_size(uri, session, last_event, auth, headers, max)
            .await
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        auth: Option<String>,
        headers: Headers,
        max: usize,
    ) -> Result<Events, Error> {
        let client = &self.client;
        let stream =
            client.get_stream_with_max_sse_event_size(uri, session, last_event, auth, headers, max);
        let stream = stream.await.map_err(|error| self.redacted(error));
        self.state.send_modify(|state| state.listening = true);
        stream
    }
}

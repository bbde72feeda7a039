//! Headers and responses that fetches and pushes share.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use agentmine_runtime::shortage::is_shortage;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use http_body_util::BodyExt as _;

use crate::events::Ledger;
use crate::http::{Body, text, watched};
use crate::upstream::{Encoding, UpstreamError};

/// Time limit between two chunks of a response to a fetch.
const RESPONSE_IDLE: Duration = Duration::from_secs(330);

/// Why a push could not be stored.
const NO_ROOM: &str = "the worker's disk is full or cannot be written, or its machine has no memory or open files left; \
                       the push itself is not at fault";

/// The encoding of the body; any but these is refused.
pub(super) fn encoding(headers: &HeaderMap) -> Result<Encoding, Box<Response<Body>>> {
    match headers
        .get(header::CONTENT_ENCODING)
        .map(HeaderValue::as_bytes)
    {
        None | Some(b"identity") => Ok(Encoding::Identity),
        Some(b"gzip" | b"x-gzip") => Ok(Encoding::Gzip),
        Some(_) => Err(Box::new(text(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "unsupported content encoding",
        ))),
    }
}

pub(super) fn has_type(headers: &HeaderMap, expected: &str) -> bool {
    headers
        .get(header::CONTENT_TYPE)
        .is_some_and(|value| value.as_bytes() == expected.as_bytes())
}

pub(super) fn answer(content_type: &str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    if let Ok(value) = HeaderValue::from_str(content_type) {
        headers.insert(header::CONTENT_TYPE, value);
    }
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

/// A response of upstream. `held` is dropped at the end of the body. A body that breaks off is recorded: git
/// in the sandbox sees only that it ended early.
pub(super) fn forwarded(
    ledger: Arc<Ledger>,
    content_type: &str,
    body: Body,
    held: impl Send + 'static,
) -> Response<Body> {
    ledger.host_answered();
    let counter = metrics::counter!("agentmine_gateway_git_bytes_total", "direction" => "fetched");
    let body = watched(body, RESPONSE_IDLE, counter, held).map_err(move |error| {
        ledger.host_failed("the connection to the repository's host broke during the transfer");
        error
    });
    answer(content_type, body.boxed_unsync())
}

/// Upstream's failure as git shows it. Never a 401, which would make git ask for a password.
pub(super) fn failed(ledger: &Ledger, error: &UpstreamError) -> Response<Body> {
    note(ledger, error);
    let status = match error {
        UpstreamError::Auth(_) | UpstreamError::Refused(_) => StatusCode::FORBIDDEN,
        UpstreamError::Rejected(_) => StatusCode::BAD_REQUEST,
        UpstreamError::NotFound => StatusCode::NOT_FOUND,
        UpstreamError::Network(_) => StatusCode::BAD_GATEWAY,
    };
    text(status, &error.to_string())
}

/// Records refused credentials, a host that refuses all else, and one that is away.
pub(super) fn note(ledger: &Ledger, error: &UpstreamError) {
    match error {
        UpstreamError::Auth(status) => ledger.auth(*status),
        UpstreamError::Network(what) => ledger.host_failed(what),
        UpstreamError::Refused(what) => ledger.host_refused(what),
        UpstreamError::NotFound | UpstreamError::Rejected(_) => ledger.host_answered(),
    }
}

/// The response to a push of which the file could not be read or written to its end.
pub(super) fn unspooled(ledger: &Ledger, error: &io::Error) -> Response<Body> {
    let (status, reason) = match note_shortage(ledger, error) {
        true => (StatusCode::SERVICE_UNAVAILABLE, NO_ROOM),
        false => (StatusCode::BAD_REQUEST, "the push could not be read"),
    };
    ledger.push_refused(reason);
    text(status, reason)
}

/// Whether the worker's machine is short of something. That is recorded like a host that is away: the push is not at fault.
pub(super) fn note_shortage(ledger: &Ledger, error: &io::Error) -> bool {
    let is_short = is_shortage(error);
    if is_short {
        tracing::warn!(%error, "the worker's machine cannot store a push");
        ledger.host_failed(NO_ROOM);
    }
    is_short
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::http::streamed;

    #[tokio::test]
    async fn a_transfer_that_breaks_off_is_recorded() {
        let ledger = Arc::new(Ledger::default());
        let chunks = [
            Ok(Bytes::from_static(b"PACK")),
            Err(std::io::Error::other("reset")),
        ];
        let body = streamed(futures::stream::iter(chunks));
        let response = forwarded(Arc::clone(&ledger), "text/plain", body, ());
        assert_eq!(ledger.host_failure(), None);
        assert!(response.into_body().collect().await.is_err());
        assert!(ledger.host_failure().unwrap().contains("broke"));
    }

    #[tokio::test]
    async fn a_push_that_the_disk_has_no_room_for_is_an_outage_that_names_the_disk() {
        let ledger = Ledger::default();
        let broken = unspooled(&ledger, &io::ErrorKind::UnexpectedEof.into());
        assert_eq!(broken.status(), StatusCode::BAD_REQUEST);
        assert_eq!(ledger.host_failure(), None);
        let full = unspooled(&ledger, &io::ErrorKind::StorageFull.into());
        assert_eq!(full.status(), StatusCode::SERVICE_UNAVAILABLE);
        let body = full.into_body().collect().await.unwrap().to_bytes();
        let body = String::from_utf8_lossy(&body);
        assert!(body.contains("the worker's disk is full"), "{body}");
        assert!(ledger.host_failure().unwrap().contains("disk"));
    }
}

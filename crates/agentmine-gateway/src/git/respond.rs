//! Headers and responses that fetches and pushes share.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use http_body_util::BodyExt as _;

use crate::events::Ledger;
use crate::http::{Body, text, watched};
use crate::upstream::{Encoding, UpstreamError};

/// Time limit between two chunks of a response to a fetch.
const RESPONSE_IDLE: Duration = Duration::from_secs(330);

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
        UpstreamError::Auth(_) => StatusCode::FORBIDDEN,
        UpstreamError::NotFound => StatusCode::NOT_FOUND,
        UpstreamError::Network(_) => StatusCode::BAD_GATEWAY,
    };
    text(status, &error.to_string())
}

/// Records refused credentials, and a host that is away.
pub(super) fn note(ledger: &Ledger, error: &UpstreamError) {
    match error {
        UpstreamError::Auth(status) => ledger.auth(*status),
        UpstreamError::Network(what) => ledger.host_failed(what),
        UpstreamError::NotFound => ledger.host_answered(),
    }
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
}

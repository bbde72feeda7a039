//! Large deliveries, of which few are held in memory at once.
//!
//! GitLab sends the texts of an issue up to three times, and turns a webhook off after several refused deliveries in a row
//! (docs.gitlab.com, "Auto-disabled webhooks"). So nobody must be able to have deliveries refused by writing long texts.

use std::future::ready;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use futures::{StreamExt as _, stream};
use tokio::sync::Semaphore;

/// The longest delivery: neither forge sends a longer one.
pub(super) const MAX_BODY: usize = 25 << 20;
/// Up to this size, any number is received at a time.
const SMALL: usize = 1 << 20;
/// Larger deliveries that are received at a time. The others wait, at most as long as a connection may take.
const AT_ONCE: usize = 2;

/// Counts the large deliveries that are being received.
pub(super) fn places() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(AT_ONCE))
}

/// Lets small deliveries pass, and large ones once there is a place. What has come counts, and not what was announced: a proxy
/// may send small ones without their length, and a slow client must not take a place with a few bytes.
pub(super) async fn few_at_once(
    State(places): State<Arc<Semaphore>>,
    request: Request,
    next: Next,
) -> Response {
    let (head, body) = request.into_parts();
    let mut rest = body.into_data_stream();
    let mut begin = Vec::new();
    while begin.len() <= SMALL {
        match rest.next().await {
            Some(Ok(bytes)) => begin.extend_from_slice(&bytes),
            Some(Err(_)) => return StatusCode::BAD_REQUEST.into_response(),
            None => {
                let whole = Body::from(begin);
                return next.run(Request::from_parts(head, whole)).await;
            }
        }
    }
    match places.acquire().await {
        Ok(_place) => {
            let begin = stream::once(ready(Ok(Bytes::from(begin))));
            let whole = Body::from_stream(begin.chain(rest));
            next.run(Request::from_parts(head, whole)).await
        }
        Err(_) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

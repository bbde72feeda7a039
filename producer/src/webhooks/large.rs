//! Large deliveries, of which few are held in memory at once.
//!
//! GitLab sends the texts of an issue up to three times, and turns a webhook off after several refused deliveries in a row
//! (docs.gitlab.com, "Auto-disabled webhooks"). So nobody must be able to have deliveries refused by writing long texts.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_LENGTH;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use tokio::sync::Semaphore;

/// The longest delivery: neither forge sends a longer one.
pub(super) const MAX_BODY: usize = 25 << 20;
/// Up to this size, any number is received at a time.
const SMALL: u64 = 1 << 20;
/// Larger deliveries that are received at a time. The others wait, at most as long as a connection may take.
const AT_ONCE: usize = 2;

/// Counts the large deliveries that are being received.
pub(super) fn places() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(AT_ONCE))
}

/// Lets small deliveries pass, and large ones once there is a place.
pub(super) async fn few_at_once(
    State(places): State<Arc<Semaphore>>,
    request: Request,
    next: Next,
) -> Response {
    let length = request.headers().get(CONTENT_LENGTH);
    let length = length.and_then(|it| it.to_str().ok()?.parse::<u64>().ok());
    if length.is_some_and(|length| length <= SMALL) {
        return next.run(request).await;
    }
    match places.acquire().await {
        Ok(_place) => next.run(request).await,
        Err(_) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

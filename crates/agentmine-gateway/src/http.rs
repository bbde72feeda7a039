//! The HTTP/1.1 server on one stream of the sandbox, and its responses.

use std::convert::Infallible;
use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Body as HttpBody, Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use metrics::Counter;

use crate::stream::GatewayStream;

/// Time limit for the head of a request, and for the next one on a kept-alive connection.
const HEAD_TIMEOUT: Duration = Duration::from_secs(60);
/// Header fields of one request.
const MAX_HEADERS: usize = 100;
/// Size of the head of one request.
const MAX_HEAD_BYTES: usize = 64 * 1024;

pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;
pub(crate) type Body = UnsyncBoxBody<Bytes, BoxError>;

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// With something that is not a valid request; it got status 400 and reached no handler.
    Unreadable,
    /// In any other way.
    Otherwise,
}

/// Serves requests on `stream` until it ends. A fault of the connection only ends it.
pub(crate) async fn serve<F, R>(stream: impl GatewayStream, handle: F) -> Ended
where
    F: Fn(Request<Incoming>) -> R + Send,
    R: Future<Output = Response<Body>> + Send,
{
    let service = service_fn(|request| {
        let response = handle(request);
        async { Ok::<_, Infallible>(response.await) }
    });
    let ended = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_headers(MAX_HEADERS)
        .max_buf_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades()
        .await;
    match ended {
        Ok(()) => Ended::Otherwise,
        Err(error) => {
            tracing::debug!(%error, "a connection of the sandbox ended early");
            match error.is_parse() {
                true => Ended::Unreadable,
                false => Ended::Otherwise,
            }
        }
    }
}

/// A short message that git and curl show to the user.
pub(crate) fn text(status: StatusCode, message: &str) -> Response<Body> {
    let mut response = Response::new(full(format!("agentmine: {message}\n")));
    *response.status_mut() = status;
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    response
}

pub(crate) fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into())
        .map_err(|never| match never {})
        .boxed_unsync()
}

/// `body` with its bytes counted. It fails when no frame arrives for `idle`; `held` is dropped at its
/// end.
pub(crate) fn watched<B, G>(body: B, idle: Duration, counter: Counter, held: G) -> Body
where
    G: Send + 'static,
    B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<BoxError>,
{
    let frames = futures::stream::unfold(Some((body, held)), move |state| {
        let counter = counter.clone();
        async move {
            let (mut body, held) = state?;
            match tokio::time::timeout(idle, body.frame()).await {
                Ok(None) => None,
                Ok(Some(Ok(frame))) => {
                    counter.increment(frame.data_ref().map_or(0, |data| data.len() as u64));
                    Some((Ok(frame), Some((body, held))))
                }
                Ok(Some(Err(error))) => Some((Err(error.into()), None)),
                Err(_) => Some((Err("no data for too long".into()), None)),
            }
        }
    });
    BodyExt::boxed_unsync(StreamBody::new(frames))
}

/// A body made of the chunks of `stream`.
pub(crate) fn streamed<S, E>(stream: S) -> Body
where
    S: futures::Stream<Item = Result<Bytes, E>> + Send + 'static,
    E: Into<BoxError>,
{
    let frames = stream.map(|item| item.map(Frame::data).map_err(Into::into));
    BodyExt::boxed_unsync(StreamBody::new(frames))
}

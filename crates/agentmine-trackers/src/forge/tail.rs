//! The end of a long text, which a forge may keep on another host.
//!
//! Guaranteed: the token goes to the configured origin alone, and not again after a redirect has left it; the text is
//! read in pieces, and no more than its end is kept.

use std::collections::VecDeque;

use agentmine_runtime::config::Secret;
use agentmine_runtime::redact::Redactor;
use http::{HeaderValue, StatusCode, header};
use url::Url;

use super::authorize::Renewal;
use super::transport::{Call, Outcome, Transport};
use crate::error::TrackerError;

const MAX_REDIRECTS: usize = 5;
/// Bytes that are kept.
const KEPT: usize = 256 * 1024;
/// Bytes that are read. What is longer has an end that nobody waits for.
const MOST: usize = 256 * 1024 * 1024;

/// What a text came to.
enum Tail {
    End(String),
    /// There is none.
    None,
    /// The token was refused.
    Refused,
}

impl Transport {
    /// The end of the text at `url`; `None` if there is none. A token that is refused is replaced once.
    pub(super) async fn end_of(&self, url: Url) -> Result<Option<String>, TrackerError> {
        let call = Call::get(self.at_own_origin(url)?);
        let mut renewal = Renewal::Possible;
        loop {
            let (token, redactor) = self.token(&call).await.map_err(|outcome| match outcome {
                Outcome::Denied(error) => error,
                Outcome::Failed(fault, _) => self.unavailable(fault.detail),
                Outcome::NoToken(until) => TrackerError::RateLimited {
                    tracker: self.dialect().tracker,
                    until,
                },
                Outcome::Limited(_) | Outcome::Reply(_) | Outcome::TooLarge(_) => {
                    self.unavailable("it returned no token")
                }
            })?;
            match self.end_with(call.url.clone(), &token, &redactor).await? {
                Tail::End(end) => return Ok(Some(end)),
                Tail::None => return Ok(None),
                Tail::Refused if renewal == Renewal::Possible => {
                    self.dialect().credentials.refused(&token).await;
                    renewal = Renewal::None;
                }
                Tail::Refused => {
                    return Err(self.unavailable("a log cannot be read: the token is refused"));
                }
            }
        }
    }

    async fn end_with(
        &self,
        mut url: Url,
        token: &Secret,
        redactor: &Redactor,
    ) -> Result<Tail, TrackerError> {
        let mut bearer =
            HeaderValue::from_str(&format!("Bearer {}", token.expose())).map_err(|_| {
                self.unavailable("its token has characters that no HTTP header may have")
            })?;
        bearer.set_sensitive(true);
        let mut is_own = true;
        for _ in 0..=MAX_REDIRECTS {
            is_own &= url.origin() == self.base().origin();
            let mut request = self.http().get(url.clone());
            if is_own {
                request = request
                    .headers(self.dialect().headers.clone())
                    .header(header::AUTHORIZATION, bearer.clone());
            }
            let failed = |error: reqwest::Error| {
                let detail = redactor.redact(error.without_url().to_string());
                self.unavailable(format!("a log cannot be read: {detail}"))
            };
            let response = request.send().await.map_err(failed)?;
            match response.status() {
                status if status.is_redirection() => {
                    url = self.elsewhere(&url, response.headers())?;
                }
                StatusCode::NOT_FOUND | StatusCode::GONE | StatusCode::NO_CONTENT => {
                    return Ok(Tail::None);
                }
                StatusCode::UNAUTHORIZED if is_own => return Ok(Tail::Refused),
                status if status.is_success() => {
                    let end = end(response).await.map_err(failed)?;
                    return Ok(Tail::End(redactor.redact(end)));
                }
                status => {
                    return Err(self.unavailable(format!("a log cannot be read: {status}")));
                }
            }
        }
        Err(self.unavailable("a log redirects without end"))
    }

    /// Where a redirect leads: never from an encrypted connection to a plain one.
    fn elsewhere(&self, from: &Url, headers: &http::HeaderMap) -> Result<Url, TrackerError> {
        let target = headers
            .get(header::LOCATION)
            .and_then(|value| value.to_str().ok())
            .and_then(|text| from.join(text).ok());
        let fine = |to: &Url| to.scheme() == "https" || to.scheme() == from.scheme();
        target
            .filter(fine)
            .ok_or_else(|| self.unavailable("a log redirects to no address that may be followed"))
    }
}

async fn end(mut response: reqwest::Response) -> Result<String, reqwest::Error> {
    let (mut kept, mut read): (VecDeque<u8>, usize) = (VecDeque::new(), 0);
    while let Some(chunk) = response.chunk().await? {
        read += chunk.len();
        kept.extend(&chunk);
        kept.drain(..kept.len().saturating_sub(KEPT));
        if read > MOST {
            break;
        }
    }
    let kept: Vec<u8> = kept.into();
    Ok(String::from_utf8_lossy(&kept).into_owned())
}

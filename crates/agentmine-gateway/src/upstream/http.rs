//! A repository behind smart HTTP. The token is added here.
//!
//! Redirects are followed for the list of refs only, within the same origin, and remembered for later
//! requests: a renamed repository works, and the token goes nowhere else.

use std::io::Write as _;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use agentmine_runtime::config::Secret;
use agentmine_runtime::live_secret::LiveSecret;
use agentmine_runtime::tls::{self, Authority};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{Method, StatusCode, header};
use reqwest::{Client, RequestBuilder, Response};
use tempfile::NamedTempFile;
use tokio_util::io::ReaderStream;
use url::Url;

use super::error::UpstreamError;
use super::service::{Encoding, ProtocolVersion, Service};
use crate::GatewayError;
use crate::printable::printable;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// Time limit between two chunks of a response. Servers send keep-alive data every few seconds.
const READ_TIMEOUT: Duration = Duration::from_secs(300);
/// Pauses between the tries of a request that changes nothing.
const RETRY_DELAYS: [Duration; 2] = [Duration::from_millis(300), Duration::from_millis(1500)];
const MAX_REDIRECTS: usize = 4;
/// Time limit for the text with which the host explains a refusal.
const EXPLANATION_TIMEOUT: Duration = Duration::from_secs(10);
/// What is read of that text, in bytes.
const MAX_EXPLANATION: usize = 500;
/// Some hosts respond only to what looks like git.
const USER_AGENT: &str = concat!("git/2.40.0 (agentmine ", env!("CARGO_PKG_VERSION"), ")");

#[derive(Debug)]
pub(crate) struct HttpUpstream {
    client: Client,
    user: String,
    password: Option<LiveSecret>,
    /// For git's own processes, which trust the authorities of one file: the added one and the system's.
    authorities: Option<NamedTempFile>,
    /// Where the repository is, without a slash at the end.
    base: Mutex<Url>,
}

impl HttpUpstream {
    pub(crate) fn new(
        mut url: Url,
        user: String,
        password: Option<LiveSecret>,
        authority: Option<Authority>,
    ) -> Result<Self, GatewayError> {
        if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
            return Err(GatewayError::Url);
        }
        // A token in the URL would appear in error messages.
        let _ = url.set_username("");
        let _ = url.set_password(None);
        url.set_query(None);
        url.set_fragment(None);
        let path = url.path().trim_end_matches('/').to_owned();
        url.set_path(&path);
        let config = tls::http_config(&url, authority.as_ref());
        let config = config.map_err(|error| GatewayError::Client(error.to_string()))?;
        let client = Client::builder()
            .tls_backend_preconfigured(config)
            .user_agent(USER_AGENT)
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(READ_TIMEOUT)
            .redirect(reqwest::redirect::Policy::none())
            .referer(false)
            .build()?;
        Ok(Self {
            client,
            user,
            password,
            authorities: authority.as_ref().map(authorities).transpose()?,
            base: Mutex::new(url),
        })
    }

    /// The file of authorities for git's own processes, if one was added to the system's.
    pub(crate) fn authorities(&self) -> Option<&Path> {
        self.authorities.as_ref().map(NamedTempFile::path)
    }

    /// The user, and who the token stands for.
    pub(crate) fn identity(&self) -> (&str, Option<&Secret>) {
        (&self.user, self.password.as_ref().map(LiveSecret::identity))
    }

    /// The repository's URL, after the redirects seen so far.
    pub(crate) fn base(&self) -> Url {
        self.base
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// The value of the `Authorization` header.
    pub(crate) fn authorization(&self) -> Option<Secret> {
        let password = self.password.as_ref()?;
        let pair = format!("{}:{}", self.user, password.get().expose());
        Some(Secret::new(format!("Basic {}", STANDARD.encode(pair))))
    }

    fn request(
        &self,
        method: Method,
        url: Url,
        version: Option<ProtocolVersion>,
    ) -> RequestBuilder {
        let mut request = self.client.request(method, url);
        if let Some(password) = &self.password {
            request = request.basic_auth(&self.user, Some(password.get().expose()));
        }
        if let Some(version) = version {
            request = request.header("Git-Protocol", version.text());
        }
        request
    }

    /// The list of refs. Tried again if the host does not answer.
    pub(crate) async fn advertise(
        &self,
        service: Service,
        version: Option<ProtocolVersion>,
    ) -> Result<Response, UpstreamError> {
        patiently(|| self.advertise_once(service, version)).await
    }

    async fn advertise_once(
        &self,
        service: Service,
        version: Option<ProtocolVersion>,
    ) -> Result<Response, UpstreamError> {
        let mut url = below(&self.base(), "/info/refs");
        url.set_query(Some(&format!("service={}", service.name())));
        for _ in 0..=MAX_REDIRECTS {
            let response = self
                .request(Method::GET, url.clone(), version)
                .send()
                .await
                .map_err(network)?;
            if !response.status().is_redirection() {
                let response = classified(response).await?;
                check_type(&response, &service.advertisement_type())?;
                self.remember(&url);
                return Ok(response);
            }
            let next = response
                .headers()
                .get(header::LOCATION)
                .and_then(|value| value.to_str().ok())
                .and_then(|value| url.join(value).ok())
                .ok_or_else(|| {
                    UpstreamError::Network(
                        "the repository's host redirects without a valid target".into(),
                    )
                })?;
            if next.origin() != url.origin() {
                return Err(UpstreamError::Refused(format!(
                    "the repository redirects to another host, {}. hint: if it was moved there, configure that address; if it is a login page, check that the token may read the repository without one",
                    next.host_str().unwrap_or_default()
                )));
            }
            if !next.path().ends_with("/info/refs") {
                return Err(UpstreamError::Refused(format!(
                    "the repository's host {} redirects to a page that is not a repository, such as a login. hint: check that the token may read the repository without a login",
                    url.host_str().unwrap_or_default()
                )));
            }
            url = next;
        }
        Err(UpstreamError::Refused(
            "the repository's host redirects without end. hint: check the address of the repository".into(),
        ))
    }

    /// Fetches objects. Tried again if the host does not answer.
    pub(crate) async fn upload_pack(
        &self,
        body: bytes::Bytes,
        encoding: Encoding,
        version: Option<ProtocolVersion>,
    ) -> Result<Response, UpstreamError> {
        patiently(|| self.upload_pack_once(body.clone(), encoding, version)).await
    }

    async fn upload_pack_once(
        &self,
        body: bytes::Bytes,
        encoding: Encoding,
        version: Option<ProtocolVersion>,
    ) -> Result<Response, UpstreamError> {
        let service = Service::UploadPack;
        let url = below(&self.base(), "/git-upload-pack");
        let mut request = self
            .request(Method::POST, url, version)
            .header(header::CONTENT_TYPE, service.request_type())
            .header(header::ACCEPT, service.result_type());
        if encoding == Encoding::Gzip {
            request = request.header(header::CONTENT_ENCODING, "gzip");
        }
        let response = request.body(body).send().await.map_err(network)?;
        let response = classified(response).await?;
        check_type(&response, &service.result_type())?;
        Ok(response)
    }

    /// Sends a whole push. `file` is at its beginning and holds `length` bytes.
    pub(crate) async fn receive_pack(
        &self,
        file: std::fs::File,
        length: u64,
    ) -> Result<Response, UpstreamError> {
        let service = Service::ReceivePack;
        let url = below(&self.base(), "/git-receive-pack");
        let stream = ReaderStream::with_capacity(tokio::fs::File::from_std(file), 64 * 1024);
        let response = self
            .request(Method::POST, url, None)
            .header(header::CONTENT_TYPE, service.request_type())
            .header(header::ACCEPT, service.result_type())
            .header(header::CONTENT_LENGTH, length)
            .body(reqwest::Body::wrap_stream(stream))
            .send()
            .await
            .map_err(network)?;
        let response = classified(response).await?;
        check_type(&response, &service.result_type())?;
        Ok(response)
    }

    fn remember(&self, url: &Url) {
        let Some(path) = url.path().strip_suffix("/info/refs") else {
            return;
        };
        let mut base = url.clone();
        base.set_path(path);
        base.set_query(None);
        *self.base.lock().unwrap_or_else(PoisonError::into_inner) = base;
    }
}

/// Writes an authority and those of the system into a file, PEM.
fn authorities(authority: &Authority) -> std::io::Result<NamedTempFile> {
    let mut pem = authority.pem().to_vec();
    for certificate in rustls_native_certs::load_native_certs().certs {
        pem.extend_from_slice(b"\n-----BEGIN CERTIFICATE-----\n");
        for line in STANDARD.encode(&certificate).as_bytes().chunks(64) {
            pem.extend_from_slice(line);
            pem.push(b'\n');
        }
        pem.extend_from_slice(b"-----END CERTIFICATE-----\n");
    }
    let mut file = NamedTempFile::new()?;
    file.write_all(&pem)?;
    Ok(file)
}

/// Repeats a request that changes nothing while the host is unavailable, for about [`RETRY_DELAYS`].
async fn patiently<F>(request: impl Fn() -> F) -> Result<Response, UpstreamError>
where
    F: Future<Output = Result<Response, UpstreamError>>,
{
    for delay in RETRY_DELAYS {
        match request().await {
            Err(UpstreamError::Network(what)) => {
                tracing::debug!(what, "the request to the repository's host is repeated");
                tokio::time::sleep(delay).await;
            }
            done => return done,
        }
    }
    request().await
}

fn below(base: &Url, rest: &str) -> Url {
    let mut url = base.clone();
    url.set_path(&format!("{}{rest}", base.path().trim_end_matches('/')));
    url
}

async fn classified(response: Response) -> Result<Response, UpstreamError> {
    let status = response.status();
    if status == StatusCode::OK {
        return Ok(response);
    }
    let host = response.url().host_str().unwrap_or_default().to_owned();
    let explanation = tokio::time::timeout(EXPLANATION_TIMEOUT, explanation(response)).await;
    Err(failed(status, &host, &explanation.unwrap_or_default()))
}

/// The start of the text that a host sends to the user of git; empty if it sends a page.
async fn explanation(mut response: Response) -> String {
    let found = response.headers().get(header::CONTENT_TYPE);
    if !found.is_some_and(|value| value.as_bytes().starts_with(b"text/plain")) {
        return String::new();
    }
    let start = response.chunk().await.ok().flatten().unwrap_or_default();
    let start = start.get(..MAX_EXPLANATION).unwrap_or(&start);
    printable(&String::from_utf8_lossy(start))
}

/// What a status means, with what the host said. GitHub explains a 403 for git in words alone.
fn failed(status: StatusCode, host: &str, said: &str) -> UpstreamError {
    let code = status.as_u16();
    let said = said.trim_end_matches('.');
    let lower = said.to_lowercase();
    let says = |signs: &[&str]| signs.iter().any(|sign| lower.contains(sign));
    match status {
        StatusCode::FORBIDDEN if says(&["rate limit"]) => UpstreamError::Network(format!(
            "the repository's host {host} limits requests (HTTP {code})"
        )),
        StatusCode::FORBIDDEN if says(&["saml", "single sign-on"]) => {
            UpstreamError::Refused(format!(
                "the repository's host {host} requires single sign-on (HTTP {code}): {said}. hint: authorize the worker's token for the organization"
            ))
        }
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN
            if says(&["suspended", "blocked", "disabled"]) =>
        {
            UpstreamError::Refused(format!(
                "the repository's host {host} has blocked the account or the repository (HTTP {code}): {said}. hint: see their pages there"
            ))
        }
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => UpstreamError::Auth(code),
        StatusCode::NOT_FOUND | StatusCode::GONE => UpstreamError::NotFound,
        StatusCode::UNAVAILABLE_FOR_LEGAL_REASONS => UpstreamError::Refused(format!(
            "the repository's host {host} has blocked the repository for legal reasons (HTTP {code}). hint: see its page there"
        )),
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS => {
            responded(UpstreamError::Network, host, code)
        }
        status if status.is_redirection() => UpstreamError::Refused(format!(
            "the repository's host {host} redirects a request for objects (HTTP {code}). hint: check the address of the repository, and that the token may read it without a login"
        )),
        status if status.is_client_error() => responded(UpstreamError::Rejected, host, code),
        _ => responded(UpstreamError::Network, host, code),
    }
}

fn responded(error: fn(String) -> UpstreamError, host: &str, code: u16) -> UpstreamError {
    error(format!(
        "the repository's host {host} responded with HTTP {code}"
    ))
}

fn check_type(response: &Response, expected: &str) -> Result<(), UpstreamError> {
    let found = response.headers().get(header::CONTENT_TYPE);
    if found.is_some_and(|value| value.as_bytes() == expected.as_bytes()) {
        return Ok(());
    }
    Err(UpstreamError::Network(
        "the repository's host does not offer git's smart HTTP at this URL".into(),
    ))
}

/// The kind of failure, without the URL.
pub(crate) fn network(error: reqwest::Error) -> UpstreamError {
    let host = error.url().and_then(Url::host_str).unwrap_or_default();
    let what = if error.is_timeout() {
        format!("the repository's host {host} did not respond in time")
    } else if error.is_connect() {
        format!("the repository's host {host} cannot be reached")
    } else {
        format!("the connection to the repository's host {host} broke")
    };
    tracing::debug!(error = %error.without_url(), "git upstream");
    UpstreamError::Network(what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_person_has_to_change_is_no_outage() {
        let sso = "The 'x' organization has enabled or enforced SAML SSO.";
        for (status, said, kind, words) in [
            (401, "", "auth", "credentials (HTTP 401)"),
            (403, "", "auth", "credentials (HTTP 403)"),
            (403, sso, "refused", "hint: authorize the worker's token"),
            (
                403,
                "Your account is suspended.",
                "refused",
                "has blocked the account",
            ),
            (403, "API rate limit exceeded", "network", "limits requests"),
            (404, "", "not found", "renamed or moved"),
            (410, "", "not found", "deleted"),
            (451, "", "refused", "legal reasons"),
            (302, "", "refused", "without a login"),
            (413, "", "rejected", "HTTP 413"),
            (429, "", "network", "HTTP 429"),
            (503, "", "network", "HTTP 503"),
        ] {
            let error = failed(StatusCode::from_u16(status).unwrap(), "h", said);
            let found = match &error {
                UpstreamError::Auth(_) => "auth",
                UpstreamError::NotFound => "not found",
                UpstreamError::Refused(_) => "refused",
                UpstreamError::Rejected(_) => "rejected",
                UpstreamError::Network(_) => "network",
            };
            assert_eq!(found, kind, "{status} {said}");
            assert!(error.to_string().contains(words), "{error}");
        }
    }
}

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

const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// Time limit between two chunks of a response. Servers send keep-alive data every few seconds.
const READ_TIMEOUT: Duration = Duration::from_secs(300);
/// Pauses between the tries of a request that changes nothing.
const RETRY_DELAYS: [Duration; 2] = [Duration::from_millis(300), Duration::from_millis(1500)];
const MAX_REDIRECTS: usize = 4;
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
                let response = classified(response)?;
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
                return Err(UpstreamError::Network(
                    "the repository redirects to another host".into(),
                ));
            }
            url = next;
        }
        Err(UpstreamError::Network("too many redirects".into()))
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
        let response = classified(response)?;
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
        let response = classified(response)?;
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

fn classified(response: Response) -> Result<Response, UpstreamError> {
    match response.status() {
        StatusCode::OK => Ok(response),
        status @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
            Err(UpstreamError::Auth(status.as_u16()))
        }
        StatusCode::NOT_FOUND | StatusCode::GONE => Err(UpstreamError::NotFound),
        status => Err(UpstreamError::Network(format!(
            "the repository's host {} responded with HTTP {}",
            response.url().host_str().unwrap_or_default(),
            status.as_u16()
        ))),
    }
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

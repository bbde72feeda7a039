//! The HTTP client of a model API: its headers, its certificates, its proxy.

use std::time::Duration;

use agentmine_runtime::config::{ModelConfig, Provider, Secret};
use agentmine_runtime::tls;
use anyhow::Context;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Url};

use super::body::chain;

/// How an API takes its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyHeader {
    /// `Authorization: Bearer KEY`.
    Bearer,
    /// `x-api-key: KEY`, as Anthropic does.
    ApiKey,
}

impl KeyHeader {
    pub(crate) fn name(self) -> HeaderName {
        match self {
            Self::Bearer => AUTHORIZATION,
            Self::ApiKey => HeaderName::from_static("x-api-key"),
        }
    }

    /// The environment variable that the key usually comes from.
    pub(crate) fn variable(self) -> &'static str {
        match self {
            Self::Bearer => Provider::OpenAi.key_variable(),
            Self::ApiKey => Provider::Anthropic.key_variable(),
        }
    }

    /// Its value for a key.
    pub(crate) fn value(self, key: &Secret) -> anyhow::Result<HeaderValue> {
        let key = key.expose().trim();
        let value = match self {
            Self::Bearer => Secret::new(format!("Bearer {key}")),
            Self::ApiKey => Secret::new(key),
        };
        secret_value(&value, "model.api_key")
    }

    /// The key of the configuration in its header, if there is one.
    pub(crate) fn with_key(self, config: &ModelConfig) -> anyhow::Result<HeaderMap> {
        let mut headers = HeaderMap::new();
        if let Some(key) = key(config) {
            headers.insert(self.name(), self.value(key)?);
        }
        Ok(headers)
    }

    /// The key, unless a header of the configuration takes its place.
    pub(super) fn key_in_use(self, config: &ModelConfig) -> Option<Secret> {
        let own = self.name();
        let mut names = config.headers.keys();
        let is_replaced = names.any(|name| name.eq_ignore_ascii_case(own.as_str()));
        key(config).filter(|_| !is_replaced).cloned()
    }
}

fn key(config: &ModelConfig) -> Option<&Secret> {
    let key = config.api_key.as_ref();
    key.filter(|key| !key.expose().trim().is_empty())
}

/// The headers of every request: an API's own, and over them those of the configuration.
pub(crate) fn headers(config: &ModelConfig, own: HeaderMap) -> anyhow::Result<HeaderMap> {
    let mut headers = own;
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    for (name, secret) in &config.headers {
        let value = secret_value(secret, &format!("model.headers.{name}"))?;
        let name: HeaderName = name
            .parse()
            .with_context(|| format!("model.headers.{name} is not a header name"))?;
        headers.insert(name, value);
    }
    Ok(headers)
}

/// A header value that is never printed; `what` names it in errors.
fn secret_value(secret: &Secret, what: &str) -> anyhow::Result<HeaderValue> {
    let mut value = HeaderValue::from_str(secret.expose())
        .map_err(|_| anyhow::anyhow!("{what} has characters that no HTTP header may have"))?;
    value.set_sensitive(true);
    Ok(value)
}

pub(super) fn http_client(config: &ModelConfig, headers: HeaderMap) -> anyhow::Result<Client> {
    let mut builder = Client::builder()
        .tls_backend_preconfigured(tls::http_config(&config.base_url, None)?)
        .user_agent(concat!("agentmine/", env!("CARGO_PKG_VERSION")))
        .default_headers(headers)
        .connect_timeout(Duration::from_secs(config.connect_timeout_seconds))
        // A redirect would turn the POST into a GET, or send the conversation to another server.
        .redirect(reqwest::redirect::Policy::none());
    if is_loopback(&config.base_url) {
        // No proxy can reach this machine's own loopback address.
        builder = builder.no_proxy();
    }
    builder.build().map_err(|error| {
        anyhow::anyhow!(
            "cannot create an HTTP client: {}",
            chain(&error.without_url())
        )
    })
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(ip)) => ip.is_loopback(),
        Some(url::Host::Ipv6(ip)) => ip.is_loopback(),
        None => false,
    }
}

//! The HTTP client of a model API: its headers, its certificates, its proxy.

use std::time::Duration;

use agentmine_runtime::config::{ModelConfig, Secret};
use agentmine_runtime::tls;
use anyhow::Context;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Url};

use super::body::chain;

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

/// The header `Authorization` for an API's key.
pub(crate) fn bearer(key: &Secret) -> anyhow::Result<HeaderValue> {
    let bearer = Secret::new(format!("Bearer {}", key.expose().trim()));
    secret_value(&bearer, "model.api_key")
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

//! The address to clone a repository from.

use agentmine_domain::TrackerKind;
use url::Url;

use crate::error::TrackerError;

/// Reads the address from a forge's reply. The token is sent there, so it must be as safe as the API's own.
pub(crate) fn clone_url(tracker: TrackerKind, text: &str, api: &Url) -> Result<Url, TrackerError> {
    let bad = |detail| Err(TrackerError::unavailable(tracker, detail));
    let mut url = match Url::parse(text) {
        Ok(url) => url,
        Err(error) => return bad(format!("its clone URL is not a URL: {error}")),
    };
    // A server behind a proxy that ends TLS may not know that it is reached by https.
    if url.scheme() == "http" && api.scheme() == "https" && url.host() == api.host() {
        let is_set = url.set_scheme("https").is_ok() && url.set_port(api.port()).is_ok();
        debug_assert!(is_set, "both are web addresses");
    }
    let safe = url.scheme() == "https" || (url.scheme() == "http" && api.scheme() == "http");
    if safe && url.username().is_empty() && url.password().is_none() {
        Ok(url)
    } else {
        bad("its clone URL is not plain https".to_owned())
    }
}

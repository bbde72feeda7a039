//! Addresses that a server names, for requests with its token.

use url::Url;

/// An address that the server names, at the origin of `base`, which ends with a slash. A server behind a proxy names the
/// origin that it is configured with; so the same path of its API counts as an address here.
///
/// # Errors
/// For any other address that would take the token to another host.
pub(crate) fn own_address(base: &Url, url: Url) -> Result<Url, String> {
    if url.origin() == base.origin() {
        return Ok(url);
    }
    let api = base.path();
    if api.len() > 1 && url.path().starts_with(api) {
        let mut own = base.clone();
        own.set_path(url.path());
        own.set_query(url.query());
        return Ok(own);
    }
    let host = url.host_str().unwrap_or("no host");
    Err(format!(
        "it points to another origin ({host}); the token is not sent there"
    ))
}

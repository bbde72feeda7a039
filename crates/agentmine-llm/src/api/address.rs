//! Where an API is, from the base that is configured.

use anyhow::ensure;
use reqwest::Url;

/// `BASE/REST`, whether the base ends with a slash or is the whole address already. A query is kept: some gateways expect
/// their version there.
pub(crate) fn endpoint(base: &Url, rest: &[&str]) -> anyhow::Result<Url> {
    let mut url = base.clone();
    let shown = base.host_str().unwrap_or_default();
    ensure!(
        matches!(url.scheme(), "http" | "https"),
        "model.base_url must begin with http:// or https://, not {}:",
        url.scheme()
    );
    let whole = format!("/{}", rest.join("/"));
    if url.path().trim_end_matches('/').ends_with(&whole) {
        return Ok(url);
    }
    url.path_segments_mut()
        .map_err(|()| anyhow::anyhow!("model.base_url for {shown} cannot have a path"))?
        .pop_if_empty()
        .extend(rest);
    Ok(url)
}

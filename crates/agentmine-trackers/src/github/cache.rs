//! Conditional requests and pages: what did not change costs GitHub nothing.
//!
//! Each page has its own `ETag`: that page 1 is the same says nothing about page 2, so every page
//! is asked for, conditionally. A 304 does not count against the rate limit.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

use http::{Method, StatusCode, header};
use serde::de::DeserializeOwned;
use url::Url;

use super::client::{Call, Client};
use super::reply::{Reply, unavailable};
use crate::TrackerError;

/// All replies kept, in bytes. Past it the cache starts anew: it is only a cache.
const MAX_BYTES: usize = 8 << 20;
const MAX_PAGES: usize = 200;

/// Replies by address, with their `ETag`.
#[derive(Debug, Default)]
pub(super) struct Cache(Mutex<HashMap<Url, (String, Reply)>>);

impl Cache {
    fn get(&self, url: &Url) -> Option<(String, Reply)> {
        let entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.get(url).cloned()
    }

    fn put(&self, url: Url, reply: &Reply) {
        let etag = reply
            .headers
            .get(header::ETAG)
            .and_then(|value| value.to_str().ok());
        let Some(etag) = etag.filter(|_| reply.body.len() < MAX_BYTES / 4) else {
            return;
        };
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let held: usize = entries.values().map(|(_, reply)| reply.body.len()).sum();
        if held + reply.body.len() > MAX_BYTES {
            entries.clear();
        }
        entries.insert(url, (etag.to_owned(), reply.clone()));
    }
}

impl Client {
    /// A GET that is conditional where a former reply is known.
    pub(super) async fn get_cached(&self, url: Url) -> Result<Reply, TrackerError> {
        let known = self.cache.get(&url);
        let mut call = Call::new(Method::GET, url);
        call.etag = known.as_ref().map(|(etag, _)| etag.clone());
        let reply = self.send(&call).await?;
        if reply.status == StatusCode::NOT_MODIFIED {
            return match known {
                Some((_, reply)) => Ok(reply),
                None => Err(unavailable(
                    "it answered 304 to an unconditional request".into(),
                )),
            };
        }
        if reply.status == StatusCode::OK {
            self.cache.put(call.url, &reply);
        }
        Ok(reply)
    }

    /// All pages of a list, each conditional.
    pub(super) async fn list<T: DeserializeOwned>(
        &self,
        first: Url,
        what: &str,
    ) -> Result<Vec<T>, TrackerError> {
        self.pages(first, what, |reply| reply.json::<Vec<T>>())
            .await
    }

    /// All pages, each read by `items`.
    pub(super) async fn pages<T>(
        &self,
        first: Url,
        what: &str,
        items: impl Fn(&Reply) -> Result<Vec<T>, TrackerError>,
    ) -> Result<Vec<T>, TrackerError> {
        let mut all = Vec::new();
        let mut seen = HashSet::new();
        let mut next = Some(first);
        while let Some(url) = next {
            if seen.len() >= MAX_PAGES || !seen.insert(url.clone()) {
                return Err(unavailable(format!("{what}: its pages have no end")));
            }
            let reply = self.get_cached(url).await?.ok(what)?;
            all.extend(items(&reply)?);
            next = match reply.link("next") {
                Some(address) => Some(self.next_page(&address)?),
                None => None,
            };
        }
        Ok(all)
    }

    fn next_page(&self, address: &str) -> Result<Url, TrackerError> {
        let url = Url::parse(address)
            .map_err(|error| unavailable(format!("its next page has no address: {error}")))?;
        self.same_origin(url)
    }
}

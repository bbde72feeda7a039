//! Replies with their `ETag`, for conditional requests: what did not change costs no rate limit.
//!
//! Guaranteed: at most [`MAX_BYTES`] of replies are kept; the replies that were not used for longest are
//! dropped first. Each page of a list has its own `ETag`: that page 1 is the same says nothing about
//! page 2.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};

use http::header;
use url::Url;

use super::reply::Reply;

/// Bytes of all replies that are kept.
const MAX_BYTES: usize = 8 << 20;
/// What a kept reply takes beside its body: address, headers, tables.
const OVERHEAD: usize = 4 << 10;
/// A body larger than this is not kept: it would drive out too many others.
const MAX_BODY: usize = MAX_BYTES / 4 - OVERHEAD;

/// Replies by address.
#[derive(Debug, Default)]
pub(crate) struct Cache(Mutex<Entries>);

#[derive(Debug, Default)]
struct Entries {
    by_url: HashMap<Url, Entry>,
    /// Addresses by their last use, oldest first.
    by_use: BTreeMap<u64, Url>,
    uses: u64,
    bytes: usize,
}

#[derive(Debug)]
struct Entry {
    etag: String,
    reply: Reply,
    used: u64,
}

impl Cache {
    /// The kept reply of an address and its `ETag`.
    pub(crate) fn get(&self, url: &Url) -> Option<(String, Reply)> {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = entries.remove(url)?;
        let found = (entry.etag.clone(), entry.reply.clone());
        entries.insert(url.clone(), entry.etag, entry.reply);
        Some(found)
    }

    /// Keeps a reply that has an `ETag`.
    pub(crate) fn put(&self, url: Url, reply: &Reply) {
        let etag = reply.headers.get(header::ETAG);
        let etag = etag.and_then(|value| value.to_str().ok());
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Whatever was kept is out of date now.
        entries.remove(&url);
        if let Some(etag) = etag
            && reply.body.len() <= MAX_BODY
        {
            entries.make_room(reply.body.len());
            entries.insert(url, etag.to_owned(), reply.clone());
        }
    }
}

impl Entries {
    fn insert(&mut self, url: Url, etag: String, reply: Reply) {
        self.uses += 1;
        let used = self.uses;
        self.bytes += reply.body.len() + OVERHEAD;
        self.by_use.insert(used, url.clone());
        self.by_url.insert(url, Entry { etag, reply, used });
    }

    fn remove(&mut self, url: &Url) -> Option<Entry> {
        let entry = self.by_url.remove(url)?;
        self.by_use.remove(&entry.used);
        self.bytes -= entry.reply.body.len() + OVERHEAD;
        Some(entry)
    }

    fn make_room(&mut self, bytes: usize) {
        while self.bytes + bytes + OVERHEAD > MAX_BYTES
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            self.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use agentmine_domain::TrackerKind;
    use http::{HeaderMap, StatusCode};

    use super::*;

    fn reply(bytes: usize, etag: Option<&str>) -> Reply {
        let mut headers = HeaderMap::new();
        if let Some(etag) = etag {
            headers.insert(header::ETAG, etag.parse().unwrap());
        }
        Reply {
            tracker: TrackerKind::GitHub,
            status: StatusCode::OK,
            headers,
            body: vec![0; bytes].into(),
            redactor: Default::default(),
        }
    }

    fn url(name: &str) -> Url {
        Url::parse("https://forge.test/")
            .unwrap()
            .join(name)
            .unwrap()
    }

    #[test]
    fn a_full_cache_drops_what_was_not_used_for_longest() {
        let cache = Cache::default();
        let known = |name| cache.get(&url(name)).map(|(etag, _)| etag);
        for name in ["a", "b", "c", "d"] {
            cache.put(url(name), &reply(MAX_BODY, Some(name)));
        }
        assert_eq!(known("a").as_deref(), Some("a"));
        cache.put(url("e"), &reply(1, Some("e")));
        assert_eq!(known("b"), None);
        for name in ["a", "c", "d", "e"] {
            assert_eq!(known(name).as_deref(), Some(name));
        }
    }

    #[test]
    fn a_replaced_reply_frees_its_bytes() {
        let cache = Cache::default();
        for _ in 0..100 {
            cache.put(url("a"), &reply(MAX_BODY, Some("v")));
            cache.put(url("b"), &reply(MAX_BODY, Some("v")));
        }
        assert!(cache.get(&url("a")).is_some() && cache.get(&url("b")).is_some());
        cache.put(url("a"), &reply(1, None));
        assert!(cache.get(&url("a")).is_none());
        assert!(cache.get(&url("b")).is_some());
    }

    #[test]
    fn what_has_no_etag_or_is_too_large_is_not_kept() {
        let cache = Cache::default();
        cache.put(url("a"), &reply(1, None));
        cache.put(url("b"), &reply(MAX_BODY + 1, Some("v")));
        assert!(cache.get(&url("a")).is_none() && cache.get(&url("b")).is_none());
    }
}

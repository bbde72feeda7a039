//! Lists that every scan reads, kept as what the scan needs of their items.
//!
//! A conditional request costs nothing only while the former answer is known. The answers of a large fleet do not fit
//! into [`super::cache`], which keeps them whole, and a scan in order would drop each one just before its use.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use url::Url;

/// Pages that are kept. Past it, all are forgotten and read again.
const MAX_PAGES: usize = 20_000;

/// Pages by their address and by what was looked for in them.
#[derive(Debug)]
pub(crate) struct Lists<T>(Mutex<HashMap<(Url, String), Page<T>>>);

/// One page as it was read last.
#[derive(Debug)]
pub(crate) struct Page<T> {
    pub(crate) etag: String,
    pub(crate) items: Arc<[T]>,
    pub(crate) next: Option<Url>,
}

impl<T> Clone for Page<T> {
    fn clone(&self) -> Self {
        Self {
            etag: self.etag.clone(),
            items: Arc::clone(&self.items),
            next: self.next.clone(),
        }
    }
}

/// A list that is requested.
#[derive(Debug)]
pub(crate) struct KeptList<'a> {
    /// The address of its first page.
    pub(crate) first: Url,
    /// Its name in errors.
    pub(crate) what: &'a str,
    /// What is looked for in it.
    pub(crate) of: &'a str,
    /// See [`super::Call::within`].
    pub(crate) within: Option<String>,
}

/// How a list stands to what was read of it before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Since {
    /// It was not read before, or is not kept.
    New,
    /// Every page is as it was.
    Same,
    /// A page is not as it was.
    Changed,
}

/// A whole list.
#[derive(Debug)]
pub(crate) struct Listed<T> {
    pub(crate) pages: Vec<Arc<[T]>>,
    pub(crate) since: Since,
}

impl<T> Default for Lists<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Lists<T> {
    /// A page as it was read last.
    pub(crate) fn get(&self, url: &Url, of: &str) -> Option<Page<T>> {
        let pages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pages.get(&(url.clone(), of.to_owned())).cloned()
    }

    /// Keeps a page; one without an `ETag` is forgotten.
    pub(crate) fn put(&self, url: Url, of: &str, page: Option<Page<T>>) {
        let mut pages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (url, of.to_owned());
        match page {
            Some(page) => {
                if pages.len() >= MAX_PAGES {
                    pages.clear();
                }
                pages.insert(key, page);
            }
            None => drop(pages.remove(&key)),
        }
    }
}

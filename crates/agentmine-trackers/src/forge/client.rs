//! The client of one forge: calls with their retries, rate limits and cache, and pages.
//!
//! Guaranteed: a call that may be repeated is repeated until the operation's [`Attempts`] are exhausted.
//! A call that must not happen twice is sent with [`Client::send_once`]: it is repeated only if it
//! cannot have happened, and otherwise reported as [`Sent::Unknown`], for the caller to look first. A page of a list that
//! is larger than a reply may be is read in smaller pages.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use http::{StatusCode, header};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::Semaphore;
use url::Url;

use super::attempts::{Attempts, Fault, RequestLimits};
use super::cache::Cache;
use super::lists::{KeptList, Listed, Lists, Page, Since};
use super::metrics::{self, Remaining};
use super::rate_limit::{Bucket, Gates, Holder, Limited, Scope};
use super::reply::Reply;
use super::smaller_page::{page_size, rows_before};
use super::transport::{Acted, Call, Dialect, Outcome, Transport};
use crate::error::TrackerError;

/// Requests at the same time. GitHub takes a hundred, and asks for few.
const CONCURRENCY: usize = 8;
/// Requests beside those, each without a reply for longer than its turn: what hangs keeps nothing else from the server. It is
/// more than all looks at items of one process that are made at once.
const SLOW: usize = 32;
/// Rows of one list, whatever the size of its pages. A forge whose pages have no end is not followed for ever.
const MAX_ROWS: u64 = 20_000;
/// Rows of a list that are read by [`Client::each_page`].
const MOST_ROWS: u64 = 500_000;
/// Rows that are requested by the numbers of their pages. GitLab refuses an offset above that.
const MOST_NUMBERED: u64 = 50_000;

/// The client. One for each tracker.
#[derive(Debug)]
pub(crate) struct Client {
    transport: Transport,
    limits: RequestLimits,
    gates: Gates,
    remaining: Remaining,
    cache: Cache,
    permits: Semaphore,
    slow: Semaphore,
}

/// What became of a call that must not happen twice.
#[derive(Debug)]
pub(crate) enum Sent {
    Reply(Reply),
    /// It may have happened: look before it is sent again.
    Unknown(Fault),
}

/// How much of a list was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    All,
    /// Its beginning: the server serves no more.
    Part,
}

impl Client {
    pub(crate) fn new(
        dialect: Dialect,
        base: &Url,
        limits: RequestLimits,
    ) -> Result<Self, TrackerError> {
        metrics::describe(dialect.tracker);
        Ok(Self {
            transport: Transport::new(dialect, base, limits)?,
            limits,
            gates: Gates::default(),
            remaining: Remaining::default(),
            cache: Cache::default(),
            permits: Semaphore::new(CONCURRENCY),
            slow: Semaphore::new(SLOW),
        })
    }

    /// The address of the GraphQL API, which is beside the REST API's version where the base ends with that.
    pub(crate) fn graphql(&self, version: &str) -> Url {
        let mut url = self.url(["graphql"]);
        if let Some(root) = self.base().path().strip_suffix(&format!("/{version}/")) {
            url.set_path(&format!("{root}/graphql"));
        }
        url
    }

    /// The base of the API, with a slash at its end.
    pub(crate) fn base(&self) -> &Url {
        self.transport.base()
    }

    /// The budget of a new operation.
    pub(crate) fn attempts(&self) -> Attempts {
        Attempts::new(self.transport.dialect().tracker, self.limits)
    }

    /// An address below the base; each segment is escaped.
    pub(crate) fn url<'s>(&self, segments: impl IntoIterator<Item = &'s str>) -> Url {
        let mut url = self.base().clone();
        // Only a URL that cannot be a base has no segments, and the configuration refuses those.
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(segments);
        }
        url
    }

    /// Sends a call that may be repeated until it has a reply.
    pub(crate) async fn send(&self, call: &Call<'_>) -> Result<Reply, TrackerError> {
        self.send_within(call, &self.attempts()).await
    }

    /// The same within the budget of an operation.
    pub(crate) async fn send_within(
        &self,
        call: &Call<'_>,
        attempts: &Attempts,
    ) -> Result<Reply, TrackerError> {
        loop {
            match self.send_once(call, attempts).await? {
                Sent::Reply(reply) => return Ok(reply),
                Sent::Unknown(fault) => attempts.again(fault).await?,
            }
        }
    }

    /// Sends a call that must not happen twice.
    pub(crate) async fn send_once(
        &self,
        call: &Call<'_>,
        attempts: &Attempts,
    ) -> Result<Sent, TrackerError> {
        let bucket = self.bucket(&call.url);
        let mut smaller = None;
        loop {
            let call = smaller.as_ref().unwrap_or(call);
            let holder = self.holder(call, attempts).await?;
            while let Some(until) = self.gates.closed(holder, bucket, Utc::now()) {
                attempts.wait_until(until).await?;
            }
            let outcome = self.exchange(call).await;
            self.count(holder, bucket, &outcome);
            match outcome {
                Outcome::Reply(reply) => return Ok(Sent::Reply(reply)),
                Outcome::NoToken(until) => attempts.wait_until(self.not_at_once(until)).await?,
                Outcome::Denied(error) => return Err(error),
                // Anybody may write comments so long that a page of them exceeds the limit.
                Outcome::TooLarge(detail) => match call.with_smaller_page() {
                    Some(page) => {
                        let url = page.url.as_str();
                        tracing::debug!(
                            url,
                            "a page of a list is too large; smaller ones are requested"
                        );
                        smaller = Some(page);
                    }
                    None => return Err(self.transport.unavailable(detail)),
                },
                Outcome::Limited(mut limited) => {
                    tracing::warn!(
                        tracker = %self.transport.dialect().tracker,
                        until = %limited.until,
                        ?holder,
                        scope = ?limited.scope,
                        "the tracker limits the rate of requests"
                    );
                    limited.until = self.not_at_once(limited.until);
                    self.gates.close(holder, bucket, limited);
                }
                Outcome::Failed(fault, acted) => {
                    // A server that named a time is not asked before it, by no operation.
                    if let Some(until) = fault.until {
                        let scope = Scope::Server;
                        let limited = Limited { until, scope };
                        self.gates.close(holder, bucket, limited);
                    }
                    match acted {
                        Acted::Maybe => return Ok(Sent::Unknown(fault)),
                        Acted::No => attempts.again(fault).await?,
                    }
                }
            }
        }
    }

    /// Sends one request as soon as there is room for it.
    async fn exchange(&self, call: &Call<'_>) -> Outcome {
        let Ok(room) = self.permits.acquire().await else {
            return self.transport.unavailable("the client is closed").into();
        };
        let mut exchange = pin!(self.transport.exchange(call));
        match tokio::time::timeout(self.limits.turn, &mut exchange).await {
            Ok(outcome) => outcome,
            Err(_) => {
                let _room = self.slow.try_acquire().unwrap_or(room);
                exchange.await
            }
        }
    }

    /// Whose limits a call counts against.
    async fn holder(&self, call: &Call<'_>, attempts: &Attempts) -> Result<Holder, TrackerError> {
        loop {
            match self.transport.holder(call).await {
                Err(TrackerError::Unavailable { detail, until, .. }) => {
                    attempts.again(Fault { detail, until }).await?;
                }
                Err(TrackerError::RateLimited { until, .. }) => {
                    attempts.wait_until(self.not_at_once(until)).await?;
                }
                found => return found,
            }
        }
    }

    /// A server that asks for no wait at all must not be asked without a pause.
    fn not_at_once(&self, until: DateTime<Utc>) -> DateTime<Utc> {
        until.max(Utc::now() + self.limits.pause)
    }

    /// Whose limits a request to `url` counts against, and until when these allow none. Asks for an unknown holder once.
    pub(crate) async fn limit_of(
        &self,
        url: Url,
    ) -> Result<(Holder, Option<DateTime<Utc>>), TrackerError> {
        let bucket = self.bucket(&url);
        let holder = self.transport.holder(&Call::get(url)).await?;
        Ok((holder, self.gates.closed(holder, bucket, Utc::now())))
    }

    fn count(&self, holder: Holder, bucket: Bucket, outcome: &Outcome) {
        let (dialect, now) = (self.transport.dialect(), Utc::now());
        let remaining = match outcome {
            Outcome::Reply(reply) => dialect.limits.remaining(&reply.headers, now),
            Outcome::Limited(limited) => Some((0, limited.until)),
            Outcome::NoToken(_)
            | Outcome::Denied(_)
            | Outcome::TooLarge(_)
            | Outcome::Failed(..) => None,
        };
        metrics::count(dialect.tracker, outcome);
        if let Some(remaining) = remaining {
            let host = self.base().host_str().unwrap_or_default();
            let lowest = self.remaining.lowest(holder, bucket, remaining, now);
            metrics::show((dialect.tracker, host), bucket, lowest);
        }
    }

    /// A GET, conditional if a former reply is kept.
    pub(crate) async fn get(&self, url: Url) -> Result<Reply, TrackerError> {
        self.get_within(Call::get(url), &self.attempts()).await
    }

    async fn get_within(
        &self,
        mut call: Call<'_>,
        attempts: &Attempts,
    ) -> Result<Reply, TrackerError> {
        let known = self.cache.get(&call.url);
        call.etag = known.as_ref().map(|kept| kept.etag().to_owned());
        let reply = self.send_within(&call, attempts).await?;
        match (reply.status, known) {
            (StatusCode::NOT_MODIFIED, Some(kept)) => kept.unpack(reply).map_err(|error| {
                let detail = format!("a reply that was kept cannot be read: {error}");
                self.transport.unavailable(detail)
            }),
            (StatusCode::NOT_MODIFIED, None) => Err(self
                .transport
                .unavailable("it answered 304 to a request without conditions")),
            (StatusCode::OK, _) => {
                self.cache.put(&call.url, &reply);
                Ok(reply)
            }
            _ => Ok(reply),
        }
    }

    /// The end of a long text, which the forge may keep on another host; `None` if there is none.
    pub(crate) async fn end_of(&self, url: Url) -> Result<Option<String>, TrackerError> {
        self.transport.end_of(url).await
    }

    /// All pages of a list; `what` names it in errors. Each page has its own budget.
    pub(crate) async fn list<T: DeserializeOwned>(
        &self,
        first: Url,
        what: &str,
    ) -> Result<Vec<T>, TrackerError> {
        self.pages(first, what, Reply::json::<Vec<T>>).await
    }

    /// All pages, each read by `items`.
    pub(crate) async fn pages<T>(
        &self,
        first: Url,
        what: &str,
        items: impl Fn(&Reply) -> Result<Vec<T>, TrackerError>,
    ) -> Result<Vec<T>, TrackerError> {
        let mut all = Vec::new();
        let take = |reply: &Reply| {
            all.extend(items(reply)?);
            Ok(())
        };
        self.take_pages(first, what, take).await?;
        Ok(all)
    }

    /// All pages, each taken as soon as it is read.
    pub(crate) async fn take_pages(
        &self,
        first: Url,
        what: &str,
        mut take: impl FnMut(&Reply) -> Result<(), TrackerError>,
    ) -> Result<(), TrackerError> {
        let mut pages = Order::new(self, first, what);
        while let Some(reply) = pages.read(self, &self.attempts()).await? {
            take(&reply)?;
        }
        Ok(())
    }

    /// All pages of a long list, one after the other. None is kept: their addresses are others each time.
    pub(crate) async fn each_page(
        &self,
        first: Url,
        what: &str,
        mut take: impl FnMut(&Reply) -> Result<(), TrackerError>,
    ) -> Result<Extent, TrackerError> {
        let all = |reply: &Reply| take(reply).map(ControlFlow::Continue);
        self.pages_until(first, what, all).await
    }

    /// The same until one of them is the last that is wanted.
    pub(crate) async fn pages_until(
        &self,
        first: Url,
        what: &str,
        mut take: impl FnMut(&Reply) -> Result<ControlFlow<()>, TrackerError>,
    ) -> Result<Extent, TrackerError> {
        let mut order = Order::new(self, first, what);
        order.most = MOST_ROWS;
        while let Some(call) = order.next(self)? {
            if rows_before(&call.url).is_some_and(|rows| rows >= MOST_NUMBERED) {
                tracing::warn!(
                    what,
                    "the list is longer than the server shows; only its beginning is read"
                );
                return Ok(Extent::Part);
            }
            let reply = self.send(&call).await?.ok(what)?;
            if take(&reply)?.is_break() {
                return Ok(Extent::Part);
            }
            let next = next_of(self, &reply)?;
            order.go_on(self, next)?;
        }
        Ok(Extent::All)
    }

    /// All pages of a list, each as it was read last if it has not changed since. `items` reads a page.
    pub(crate) async fn kept_list<T>(
        &self,
        kept: &Lists<T>,
        list: KeptList<'_>,
        items: impl Fn(&Reply) -> Result<Vec<T>, TrackerError>,
    ) -> Result<Listed<T>, TrackerError> {
        let mut order = Order::of_kept(self, &list);
        let mut read = Listed {
            pages: Vec::new(),
            since: Since::Same,
        };
        while let Some(call) = order.next(self)? {
            let (page, since) = self.kept_page(kept, call, &list, &items).await?;
            read.since = match (read.since, since) {
                (Since::Same, Since::New) if !read.pages.is_empty() => Since::Changed,
                (Since::Same, since) => since,
                (earlier @ (Since::New | Since::Changed), _) => earlier,
            };
            read.pages.push(page.items);
            order.go_on(self, page.next)?;
        }
        Ok(read)
    }

    /// The first page of a list, as it was read last if it has not changed since.
    pub(crate) async fn kept_first<T>(
        &self,
        kept: &Lists<T>,
        list: KeptList<'_>,
        items: impl Fn(&Reply) -> Result<Vec<T>, TrackerError>,
    ) -> Result<(Arc<[T]>, Since), TrackerError> {
        let first = Order::of_kept(self, &list).call(list.first.clone());
        let (page, since) = self.kept_page(kept, first, &list, &items).await?;
        Ok((page.items, since))
    }

    async fn kept_page<T>(
        &self,
        kept: &Lists<T>,
        mut call: Call<'_>,
        list: &KeptList<'_>,
        items: &impl Fn(&Reply) -> Result<Vec<T>, TrackerError>,
    ) -> Result<(Page<T>, Since), TrackerError> {
        let known = kept.get(&call.url, list.of);
        let since = match &known {
            Some(_) => Since::Changed,
            None => Since::New,
        };
        call.etag = known.as_ref().map(|page| page.etag.clone());
        let reply = self.send(&call).await?;
        let next = next_of(self, &reply)?;
        if let (StatusCode::NOT_MODIFIED, Some(mut page)) = (reply.status, known) {
            // The page may have got a successor without a change of its own.
            page.next = next.or(page.next);
            return Ok((page, Since::Same));
        }
        let reply = reply.ok(list.what)?;
        let etag = reply.headers.get(header::ETAG);
        let etag = etag.and_then(|value| value.to_str().ok());
        let page = Page {
            etag: etag.unwrap_or_default().to_owned(),
            items: items(&reply)?.into(),
            next,
        };
        let is_kept = !page.etag.is_empty();
        kept.put(call.url, list.of, is_kept.then(|| page.clone()));
        Ok((page, since))
    }

    /// All pages of a list, within the budget of an operation.
    pub(crate) async fn list_within<T: DeserializeOwned>(
        &self,
        first: Url,
        what: &str,
        attempts: &Attempts,
    ) -> Result<Vec<T>, TrackerError> {
        let mut pages = Order::new(self, first, what);
        let mut all = Vec::new();
        while let Some(reply) = pages.read(self, attempts).await? {
            all.extend(reply.json::<Vec<T>>()?);
        }
        Ok(all)
    }

    /// The items of a list that have the expected form. An odd one is logged and left out.
    pub(crate) fn fitting<T: DeserializeOwned>(&self, items: Vec<Value>, what: &str) -> Vec<T> {
        let tracker = self.transport.dialect().tracker;
        let fit = |item| match serde_json::from_value(item) {
            Ok(item) => Some(item),
            Err(error) => {
                tracing::warn!(%tracker, what, %error, "an item of a list is skipped");
                None
            }
        };
        items.into_iter().filter_map(fit).collect()
    }

    fn bucket(&self, url: &Url) -> Bucket {
        let path = url.path().strip_prefix(self.base().path());
        // An Enterprise Server has GraphQL beside the base.
        let path = path.or_else(|| url.path().rsplit('/').next());
        let own = self.transport.dialect().own_buckets.iter();
        let mut found = own.filter(|prefix| path.is_some_and(|path| path.starts_with(**prefix)));
        found
            .next()
            .map_or(Bucket::General, |prefix| Bucket::Own(prefix))
    }
}

/// Pages that name their successor in a `Link` header.
///
/// GitHub names it by the repository's id (`repositories/ID/...`), which says nothing about the owner whose token it
/// needs, or what for; so all pages are asked for as the first one is.
struct Order<'a> {
    what: &'a str,
    /// See [`Call::within`].
    within: String,
    /// Rows that are read at most.
    most: u64,
    /// Rows that the pages so far may have had.
    rows: u64,
    next: Option<Url>,
    seen: HashSet<Url>,
}

impl<'a> Order<'a> {
    fn new(client: &Client, first: Url, what: &'a str) -> Self {
        Self {
            what,
            within: client.transport.path_below_base(&first).to_owned(),
            most: MAX_ROWS,
            rows: 0,
            next: Some(first),
            seen: HashSet::new(),
        }
    }

    fn of_kept(client: &Client, list: &KeptList<'a>) -> Self {
        let order = Self::new(client, list.first.clone(), list.what);
        match &list.within {
            Some(within) => Self {
                within: within.clone(),
                ..order
            },
            None => order,
        }
    }

    /// The call for the page that is to be read.
    fn next(&mut self, client: &Client) -> Result<Option<Call<'static>>, TrackerError> {
        let Some(url) = self.next.take() else {
            return Ok(None);
        };
        if self.rows >= self.most || !self.seen.insert(url.clone()) {
            let detail = format!("{}: its pages have no end", self.what);
            return Err(client.transport.unavailable(detail));
        }
        self.rows = self.rows.saturating_add(page_size(&url));
        Ok(Some(self.call(url)))
    }

    fn call(&self, url: Url) -> Call<'static> {
        Call::get(url).within(self.within.clone())
    }

    /// Continues with a page.
    fn go_on(&mut self, client: &Client, next: Option<Url>) -> Result<(), TrackerError> {
        let next = next.map(|url| client.transport.at_own_origin(url));
        self.next = next.transpose()?;
        Ok(())
    }

    /// Reads the next page.
    async fn read(
        &mut self,
        client: &Client,
        attempts: &Attempts,
    ) -> Result<Option<Reply>, TrackerError> {
        let Some(call) = self.next(client)? else {
            return Ok(None);
        };
        let reply = client.get_within(call, attempts).await?.ok(self.what)?;
        let next = next_of(client, &reply)?;
        self.go_on(client, next)?;
        Ok(Some(reply))
    }
}

/// The page that follows, if the reply names one.
fn next_of(client: &Client, reply: &Reply) -> Result<Option<Url>, TrackerError> {
    let Some(address) = reply.link("next") else {
        return Ok(None);
    };
    let next = Url::parse(&address).map_err(|error| {
        let detail = format!("its next page has no valid address: {error}");
        client.transport.unavailable(detail)
    })?;
    Ok(Some(next))
}

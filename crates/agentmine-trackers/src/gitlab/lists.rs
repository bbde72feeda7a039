//! Lists of labelled items, kept as what a scan needs of them.
//!
//! After a whole list only what changed since is requested, whatever its labels are now, until the list is [`WHOLE_LIST`]
//! old: what was deleted or moved away is not among the changes. A page is read, and forgotten but for what is kept,
//! before the next one is requested.
//!
//! Pages are requested by keyset where GitLab has it (the issues of a project, since 18.3): items that leave the list
//! meanwhile make it skip none, and it has no limit. A server that does not know keyset pages ignores the request, and one
//! that refuses it is asked by offset. By offset GitLab serves 50,000 rows; what comes beyond is left to later scans.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agentmine_domain::ItemKind;
use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use serde_json::Value;
use tokio::time::Instant;
use url::Url;

use super::api::Api;
use super::wire::Item;
use crate::error::TrackerError;
use crate::forge::{Extent, Reply};

/// How long only the changes of a list are requested.
const WHOLE_LIST: Duration = Duration::from_secs(3600);
/// How far the server's clock may be behind ours. Changes are requested again for so long.
pub(super) const CLOCK_SKEW: TimeDelta = TimeDelta::minutes(5);

/// What a scan keeps of an item that has the label.
#[derive(Debug)]
pub(super) struct Asking {
    pub(super) id: u64,
    pub(super) iid: u64,
    pub(super) project_id: u64,
    /// The project's current path.
    pub(super) path: Option<String>,
    pub(super) title: String,
    pub(super) url: String,
    pub(super) labels: Vec<String>,
    pub(super) created_at: DateTime<Utc>,
    pub(super) updated_at: DateTime<Utc>,
}

impl From<Item> for Asking {
    fn from(item: Item) -> Self {
        Self {
            id: item.id,
            iid: item.iid,
            project_id: item.project_id,
            path: item.project_path().map(str::to_owned),
            // The title of a confidential issue stays on GitLab.
            title: match item.confidential {
                true => "(confidential)".to_owned(),
                false => item.title,
            },
            url: item.web_url,
            labels: item.labels,
            created_at: item.created_at,
            updated_at: item.updated_at,
        }
    }
}

/// A list of items, and which of them count.
#[derive(Debug, Clone, Copy)]
pub(super) struct Listing<'a> {
    /// `projects` or `groups`.
    pub(super) of: &'static str,
    /// Its id or path.
    pub(super) id: &'a str,
    pub(super) projects: Projects<'a>,
}

impl Listing<'_> {
    /// The list of one kind, as it is named in faults.
    pub(super) fn named(&self, kind: ItemKind) -> String {
        format!("{} of {} {}", list_of(kind), self.of, self.id)
    }
}

/// The projects whose items count.
#[derive(Debug, Clone, Copy)]
pub(super) enum Projects<'a> {
    All,
    Only(&'a BTreeSet<u64>),
}

impl Projects<'_> {
    fn contain(self, id: u64) -> bool {
        match self {
            Self::All => true,
            Self::Only(ids) => ids.contains(&id),
        }
    }
}

/// A list as it was when it was last asked for.
#[derive(Debug, Clone)]
struct Kept {
    /// When all of it was requested.
    whole_at: Instant,
    /// When its changes were, by the server's clock.
    read_at: DateTime<Utc>,
    items: BTreeMap<u64, Arc<Asking>>,
}

impl Kept {
    fn new() -> Self {
        Self {
            whole_at: Instant::now(),
            read_at: Utc::now(),
            items: BTreeMap::new(),
        }
    }

    fn take(&mut self, item: Item, label: &str) {
        if item.is_open() && item.labels.iter().any(|own| own == label) {
            self.items.insert(item.id, Arc::new(item.into()));
        } else {
            self.items.remove(&item.id);
        }
    }
}

/// How pages are requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pages {
    Keyset,
    Offset,
}

/// The lists that one tracker has read.
#[derive(Debug, Default)]
pub(super) struct LabelledLists {
    kept: Mutex<HashMap<String, Kept>>,
    /// The server has refused keyset pages.
    without_keyset: AtomicBool,
}

impl LabelledLists {
    /// The open items with the label.
    pub(super) async fn read(
        &self,
        api: &Api,
        listing: Listing<'_>,
        kind: ItemKind,
        label: &str,
    ) -> Result<Vec<Arc<Asking>>, TrackerError> {
        let key = format!("{}/{}/{}/{label}", listing.of, listing.id, list_of(kind));
        let known = self.kept().get(&key).cloned();
        let known = known.filter(|it| it.whole_at.elapsed() < WHOLE_LIST);
        let began = Utc::now();
        let changes = known.as_ref().map(|known| known.read_at - CLOCK_SKEW);
        let mut list = known.unwrap_or_else(Kept::new);
        let mut last = None;
        let mut asked = None;
        let what = listing.named(kind);
        let take = |reply: &Reply| {
            // The clocks may differ by more than what the next scan goes back.
            asked = asked.or(reply.server_time());
            let page = reply.json::<Vec<Value>>()?;
            for item in api.client.fitting::<Item>(page, &what) {
                last = Some(item.updated_at);
                list.take(item, label);
            }
            Ok(())
        };
        let of = (listing, kind);
        let extent = self.pages(api, of, (label, changes), take).await?;
        list.read_at = match (extent, changes, last) {
            // The next scan continues there.
            (Extent::Part, Some(_), Some(last)) => last,
            (Extent::All | Extent::Part, _, _) => asked.unwrap_or(began),
        };
        let items = list.items.values();
        let items = items.filter(|item| listing.projects.contain(item.project_id));
        let items = items.cloned().collect();
        self.kept().insert(key, list);
        Ok(items)
    }

    async fn pages(
        &self,
        api: &Api,
        (listing, kind): (Listing<'_>, ItemKind),
        (label, changes): (&str, Option<DateTime<Utc>>),
        mut take: impl FnMut(&Reply) -> Result<(), TrackerError>,
    ) -> Result<Extent, TrackerError> {
        let what = listing.named(kind);
        let url = |pages: Pages| {
            let mut url = api.client.url([listing.of, listing.id, list_of(kind)]);
            ask_for(&mut url, label, changes, pages);
            url
        };
        let has_keyset = listing.of == "projects" && kind == ItemKind::Issue;
        if has_keyset && !self.without_keyset.load(Ordering::Relaxed) {
            let read = api.client.each_page(url(Pages::Keyset), &what, &mut take);
            match read.await {
                Err(TrackerError::Refused { detail, .. }) => {
                    tracing::debug!(
                        detail,
                        "keyset pages are refused; pages are requested by offset"
                    );
                    self.without_keyset.store(true, Ordering::Relaxed);
                }
                read => return read,
            }
        }
        let by_offset = url(Pages::Offset);
        api.client.each_page(by_offset, &what, take).await
    }

    fn kept(&self) -> MutexGuard<'_, HashMap<String, Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All open items with the label, or whatever changed since.
fn ask_for(url: &mut Url, label: &str, changes: Option<DateTime<Utc>>, pages: Pages) {
    let mut query = url.query_pairs_mut();
    query
        .append_pair("scope", "all")
        .append_pair("per_page", "100")
        .append_pair("sort", "asc");
    if pages == Pages::Keyset {
        query.append_pair("pagination", "keyset");
    }
    match changes {
        None => query
            .append_pair("state", "opened")
            .append_pair("labels", label)
            .append_pair("order_by", "created_at"),
        Some(since) => query
            .append_pair("state", "all")
            .append_pair("order_by", "updated_at")
            .append_pair("updated_after", &whole_seconds(since)),
    };
}

/// A moment as a list's parameter.
pub(super) fn whole_seconds(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Secs, true)
}

fn list_of(kind: ItemKind) -> &'static str {
    match kind {
        ItemKind::Issue | ItemKind::Task => "issues",
        ItemKind::PullRequest => "merge_requests",
    }
}

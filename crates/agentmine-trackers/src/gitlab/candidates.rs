//! The scan: which open items carry the label, and which event added it.
//!
//! A group is listed with two requests, one for issues and one for merge requests, whatever the number of its
//! projects. Configured projects of one namespace are listed together in the same way, as far as the token may
//! see the group, and otherwise one by one. A list of all items that the token may see is never asked for: on a
//! public server strangers could fill it. Events of labels exist per item only, and are asked for once for each
//! change of an item.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use agentmine_domain::{ItemKind, ItemRef};
use agentmine_runtime::config::GitLab;
use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use futures::future::join_all;
use serde_json::Value;
use tokio::time::Instant;
use url::Url;

use super::api::{Api, invalid};
use super::wire::{Item, person_of};
use crate::error::TrackerError;
use crate::forge::{
    Change, Dated, Faults, Found, LabelChange, Labelled, Trigger, Triggers, concerns_one,
};
use crate::people::Requested;
use crate::tracker::{Candidate, LabelRequest};

/// How long the id of a configured path is used again. A rename changes no id.
const ID_TTL: Duration = Duration::from_secs(3600);
/// How long only the changes of a list are asked for.
const WHOLE_LIST: Duration = Duration::from_secs(3600);
/// How far the server's clock may be behind ours. Changes are asked for again for so long.
const CLOCK_SKEW: TimeDelta = TimeDelta::minutes(5);
/// Unknown triggers that one list asks for in a scan.
const MOST_TRIGGERS: usize = 500;
/// Triggers that are asked for at the same time.
const AT_ONCE: usize = 8;

/// What to scan.
#[derive(Debug)]
pub(super) struct Scan {
    projects: Vec<String>,
    groups: Vec<String>,
    /// Namespaces that cannot be listed as groups: those of users, and what the token may not see.
    no_groups: Mutex<HashSet<String>>,
    lists: Mutex<HashMap<String, Kept>>,
    triggers: Triggers,
    faults: Faults,
}

/// A list as it was when it was last asked for.
#[derive(Debug, Clone)]
struct Kept {
    /// When all of it was asked for.
    whole_at: Instant,
    /// When its changes were, by this machine's clock.
    read_at: DateTime<Utc>,
    items: BTreeMap<u64, Item>,
}

/// A list of items, and which of them count.
#[derive(Debug, Clone, Copy)]
struct Listing<'a> {
    /// `projects` or `groups`.
    of: &'static str,
    /// Its id or path.
    id: &'a str,
    projects: Projects<'a>,
}

/// The projects whose items count.
#[derive(Debug, Clone, Copy)]
enum Projects<'a> {
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

impl Scan {
    pub(super) fn new(config: &GitLab) -> Result<Self, TrackerError> {
        if config.projects.is_empty() && config.groups.is_empty() {
            return Err(invalid(
                "trackers.gitlab names nothing to scan. hint: set projects or groups",
            ));
        }
        Ok(Self {
            projects: config.projects.clone(),
            groups: config.groups.clone(),
            no_groups: Mutex::default(),
            lists: Mutex::default(),
            triggers: Triggers::default(),
            faults: Faults::default(),
        })
    }

    /// The configured projects.
    pub(super) fn projects(&self) -> &[String] {
        &self.projects
    }

    /// What could not be read.
    pub(super) fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Open items with the label, in all configured projects and groups.
    pub(super) async fn run(&self, api: &Api, label: &str) -> Result<Vec<Candidate>, TrackerError> {
        let mut found = Found::new(&self.faults);
        for group in &self.groups {
            let listing = Listing {
                of: "groups",
                id: group,
                projects: Projects::All,
            };
            self.list_both(api, listing, label, &mut found).await?;
        }
        for (namespace, ids) in self.namespaces(api, &mut found).await? {
            self.namespace(api, &namespace, &ids, label, &mut found)
                .await?;
        }
        found.oldest_first()
    }

    /// Whether a project is scanned, by its path.
    pub(super) fn contains(&self, path: &str) -> bool {
        let is_below = |group: &String| {
            let rest = path.get(..group.len());
            rest.is_some_and(|start| start.eq_ignore_ascii_case(group))
                && path[group.len()..].starts_with('/')
        };
        let mut projects = self.projects.iter();
        projects.any(|own| own.eq_ignore_ascii_case(path)) || self.groups.iter().any(is_below)
    }

    /// Open items with the label in one project.
    pub(super) async fn run_in(
        &self,
        api: &Api,
        path: &str,
        label: &str,
    ) -> Result<Vec<Candidate>, TrackerError> {
        let mut found = Found::new(&self.faults);
        let id = api.project(path, ID_TTL).await?.id.to_string();
        let listing = Listing {
            of: "projects",
            id: &id,
            projects: Projects::All,
        };
        self.list_both(api, listing, label, &mut found).await?;
        found.oldest_first()
    }

    /// Whether an item carries the label now, and since which event.
    pub(super) async fn label_request(
        &self,
        api: &Api,
        item: &ItemRef,
        label: &str,
    ) -> Result<LabelRequest, TrackerError> {
        let found = api.wire_item(item).await?;
        if !found.labels.iter().any(|own| own == label) {
            return Ok(LabelRequest::Absent);
        }
        let trigger = self.trigger(api, item, &found, label).await?;
        Ok(Trigger::request(trigger))
    }

    /// The ids of the configured projects by their namespaces.
    async fn namespaces(
        &self,
        api: &Api,
        found: &mut Found<'_>,
    ) -> Result<BTreeMap<String, BTreeSet<u64>>, TrackerError> {
        let mut namespaces: BTreeMap<String, BTreeSet<u64>> = BTreeMap::new();
        for path in &self.projects {
            match api.project(path, ID_TTL).await {
                Ok(project) => {
                    let path = &project.path_with_namespace;
                    let namespace = path.rsplit_once('/').map_or("", |(namespace, _)| namespace);
                    let ids = namespaces.entry(namespace.to_owned()).or_default();
                    ids.insert(project.id);
                }
                Err(error) => add(api, found, path, Err(error)).await?,
            }
        }
        Ok(namespaces)
    }

    /// The projects of one namespace, together if possible.
    async fn namespace(
        &self,
        api: &Api,
        namespace: &str,
        ids: &BTreeSet<u64>,
        label: &str,
        found: &mut Found<'_>,
    ) -> Result<(), TrackerError> {
        if ids.len() > 1 && !self.no_groups().contains(namespace) {
            let listing = Listing {
                of: "groups",
                id: namespace,
                projects: Projects::Only(ids),
            };
            let lists = [ItemKind::Issue, ItemKind::PullRequest];
            let mut all = Vec::new();
            for kind in lists {
                all.push(self.list(api, listing, kind, label).await);
            }
            if all.iter().all(Result::is_ok) {
                return all
                    .into_iter()
                    .try_for_each(|one| found.add(namespace, one));
            }
            for error in all.into_iter().filter_map(Result::err) {
                match error {
                    // A project may be what the group's list cannot be made of.
                    TrackerError::Unavailable { .. } => {}
                    error if !concerns_one(&error) => return Err(error),
                    error => {
                        tracing::debug!(namespace, %error, "its projects are listed one by one");
                        self.no_groups().insert(namespace.to_owned());
                    }
                }
            }
        }
        for id in ids {
            let listing = Listing {
                of: "projects",
                id: &id.to_string(),
                projects: Projects::All,
            };
            self.list_both(api, listing, label, found).await?;
        }
        Ok(())
    }

    fn no_groups(&self) -> std::sync::MutexGuard<'_, HashSet<String>> {
        self.no_groups
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Issues and merge requests; a project may have either of them switched off.
    async fn list_both(
        &self,
        api: &Api,
        listing: Listing<'_>,
        label: &str,
        found: &mut Found<'_>,
    ) -> Result<(), TrackerError> {
        for kind in [ItemKind::Issue, ItemKind::PullRequest] {
            let listed = self.list(api, listing, kind, label).await;
            let what = format!("{} of {} {}", list_of(kind), listing.of, listing.id);
            add(api, found, &what, listed).await?;
        }
        Ok(())
    }

    async fn list(
        &self,
        api: &Api,
        listing: Listing<'_>,
        kind: ItemKind,
        label: &str,
    ) -> Result<Vec<Dated>, TrackerError> {
        let mut items = self.labelled(api, listing, kind, label).await?;
        items.retain(|item| listing.projects.contain(item.project_id));
        self.dated(api, kind, items, label).await
    }

    /// The open items with the label. After a whole list only what changed since is asked for, whatever its labels are
    /// now, until the list is [`WHOLE_LIST`] old: what was deleted or moved away is not among the changes.
    async fn labelled(
        &self,
        api: &Api,
        listing: Listing<'_>,
        kind: ItemKind,
        label: &str,
    ) -> Result<Vec<Item>, TrackerError> {
        let key = format!("{}/{}/{}/{label}", listing.of, listing.id, list_of(kind));
        let known = self.lists().get(&key).cloned();
        let known = known.filter(|it| it.whole_at.elapsed() < WHOLE_LIST);
        let began = Utc::now();
        let mut url = api.client.url([listing.of, listing.id, list_of(kind)]);
        let changes = known.as_ref().map(|known| known.read_at - CLOCK_SKEW);
        ask_for(&mut url, label, changes);
        let what = format!("{} of {} {}", list_of(kind), listing.of, listing.id);
        let found = api.client.list::<Value>(url, &what).await?;
        let mut list = known.unwrap_or_else(|| Kept {
            whole_at: Instant::now(),
            read_at: began,
            items: BTreeMap::new(),
        });
        list.read_at = began;
        for mut item in api.client.fitting::<Item>(found, &what) {
            item.description = None;
            if item.is_open() && item.labels.iter().any(|own| own == label) {
                list.items.insert(item.id, item);
            } else {
                list.items.remove(&item.id);
            }
        }
        let items = list.items.values().cloned().collect();
        self.lists().insert(key, list);
        Ok(items)
    }

    fn lists(&self) -> std::sync::MutexGuard<'_, HashMap<String, Kept>> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The items whose trigger is known, or can be asked for in this scan: each costs a request. Projects take turns, so
    /// that one with many items delays no other; what is left is found by the next scans.
    async fn dated(
        &self,
        api: &Api,
        kind: ItemKind,
        items: Vec<Item>,
        label: &str,
    ) -> Result<Vec<Dated>, TrackerError> {
        let mut identified = Vec::new();
        for found in items {
            match api.identity(kind, &found) {
                Some(item) => identified.push((item, found)),
                None => {
                    let number = found.iid;
                    tracing::warn!(number, "an item is skipped: it names no project");
                }
            }
        }
        let is_known = |(item, found): &(ItemRef, Item)| {
            self.triggers.known(&seen(item, found, label)).is_some()
        };
        let (known, unknown): (Vec<_>, Vec<_>) = identified.into_iter().partition(is_known);
        let mut turns: HashMap<u64, u32> = HashMap::new();
        let mut unknown: Vec<_> = unknown
            .into_iter()
            .map(|one| {
                let turn = turns.entry(one.1.project_id).or_default();
                *turn += 1;
                (*turn, one)
            })
            .collect();
        unknown.sort_by_key(|(turn, (_, found))| (*turn, found.created_at));
        let asked = unknown.into_iter().map(|(_, one)| one).take(MOST_TRIGGERS);
        let all: Vec<_> = known.into_iter().chain(asked).collect();
        let mut dated = Vec::new();
        for some in all.chunks(AT_ONCE) {
            let candidates = some
                .iter()
                .map(|(item, found)| self.candidate(api, item, found, label));
            for candidate in join_all(candidates).await {
                dated.extend(candidate?);
            }
        }
        Ok(dated)
    }

    async fn candidate(
        &self,
        api: &Api,
        item: &ItemRef,
        found: &Item,
        label: &str,
    ) -> Result<Option<Dated>, TrackerError> {
        let trigger = match self.trigger(api, item, found, label).await {
            Ok(Some(trigger)) => trigger,
            Ok(None) => return Ok(None),
            // Deleted or moved since it was listed.
            Err(error) if concerns_one(&error) => {
                tracing::warn!(%item, %error, "an item is skipped");
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        Ok(Some(Dated {
            created_at: found.created_at,
            candidate: Candidate {
                item: item.clone(),
                trigger: trigger.id,
                requested: trigger.requested,
                // The title of a confidential issue stays on GitLab.
                title: match found.confidential {
                    true => "(confidential)".to_owned(),
                    false => found.title.clone(),
                },
                url: found.web_url.clone(),
                labels: found.labels.clone(),
            },
        }))
    }

    async fn trigger(
        &self,
        api: &Api,
        item: &ItemRef,
        found: &Item,
        label: &str,
    ) -> Result<Option<Trigger>, TrackerError> {
        let seen = seen(item, found, label);
        if let Some(known) = self.triggers.known(&seen) {
            return Ok(Some(known));
        }
        let events = api.label_events(item).await?.into_iter();
        let changes = events.filter_map(|event| {
            let change = match event.action.as_str() {
                "add" => Change::Added,
                "remove" => Change::Removed,
                _ => return None,
            };
            let own = event.label?;
            (own.name == label).then_some(LabelChange {
                id: event.id,
                change,
                requested: Requested {
                    by: event.user.map(person_of),
                    at: event.created_at,
                },
            })
        });
        let newest = changes.max_by_key(|change| change.id);
        Ok(self.triggers.decide(&seen, newest))
    }
}

/// All open items with the label, or whatever changed since.
fn ask_for(url: &mut Url, label: &str, changes: Option<DateTime<Utc>>) {
    let mut query = url.query_pairs_mut();
    query
        .append_pair("scope", "all")
        .append_pair("per_page", "100")
        .append_pair("sort", "asc");
    match changes {
        None => query
            .append_pair("state", "opened")
            .append_pair("labels", label)
            .append_pair("order_by", "created_at"),
        Some(since) => query
            .append_pair("state", "all")
            .append_pair("order_by", "updated_at")
            .append_pair(
                "updated_after",
                &since.to_rfc3339_opts(SecondsFormat::Secs, true),
            ),
    };
}

fn seen<'a>(item: &'a ItemRef, found: &Item, label: &'a str) -> Labelled<'a> {
    Labelled {
        item,
        id: found.id,
        label,
        created_at: Some(found.created_at),
        updated_at: found.updated_at,
    }
}

fn list_of(kind: ItemKind) -> &'static str {
    match kind {
        ItemKind::Issue | ItemKind::Task => "issues",
        ItemKind::PullRequest => "merge_requests",
    }
}

/// Adds what `what` came to. If too much fails, the server is asked whether it works at all.
async fn add(
    api: &Api,
    found: &mut Found<'_>,
    what: &str,
    listed: Result<Vec<Dated>, TrackerError>,
) -> Result<(), TrackerError> {
    found.add(what, listed)?;
    if found.doubts_the_server() {
        api.ask_user().await?;
    }
    Ok(())
}

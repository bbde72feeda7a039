//! The scan: which open items carry the label, and which event added it.
//!
//! A group is listed with two requests, one for issues and one for merge requests, whatever the number of its
//! projects. Configured projects of one namespace are listed together in the same way, as far as the token may
//! see the group, and otherwise one by one. A list of all items that the token may see is never asked for: on a
//! public server strangers could fill it. Events of labels exist per item only, and are requested once for each
//! change of an item.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agentmine_domain::{ItemKind, ItemRef};
use agentmine_runtime::config::GitLab;
use futures::future::join_all;

use super::api::{Api, invalid};
use super::lists::{Asking, LabelledLists, Listing, Projects};
use super::wire::{Project, person_of};
use crate::error::TrackerError;
use crate::forge::{
    Change, Dated, Faults, Found, Holder, LabelChange, Labelled, Section, Trigger, Triggers,
    concerns_one,
};
use crate::item::{Candidate, LabelRequest};
use crate::people::Requested;

/// How long the id of a configured path is used again. A rename changes no id.
const ID_TTL: Duration = Duration::from_secs(3600);
/// Unknown triggers that one list asks for in a scan.
const MOST_TRIGGERS: usize = 500;
/// Triggers that are requested at the same time.
const AT_ONCE: usize = 8;
/// Items of a list that a server may fail to show in a scan before the list counts as not read.
const MOST_FAILED: usize = 3;

/// What to scan.
#[derive(Debug)]
pub(super) struct Scan {
    projects: Vec<String>,
    groups: Vec<String>,
    /// Namespaces that cannot be listed as groups: those of users, and what the token may not see.
    no_groups: Mutex<HashSet<String>>,
    lists: LabelledLists,
    triggers: Triggers,
    faults: Faults,
}

impl Scan {
    pub(super) fn new(config: &GitLab, section: &Section) -> Result<Self, TrackerError> {
        if config.projects.is_empty() && config.groups.is_empty() {
            return Err(invalid(format!(
                "{section} names nothing to scan. hint: set projects or groups"
            )));
        }
        Ok(Self {
            projects: config.projects.clone(),
            groups: config.groups.clone(),
            no_groups: Mutex::default(),
            lists: LabelledLists::default(),
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
        let mut projects = self.projects.iter();
        projects.any(|own| own.eq_ignore_ascii_case(path))
            || self.groups.iter().any(|group| is_below(path, group))
    }

    /// The configured groups.
    pub(super) fn groups(&self) -> &[String] {
        &self.groups
    }

    /// Open items with the label in one project.
    pub(super) async fn run_in(
        &self,
        api: &Api,
        path: &str,
        label: &str,
    ) -> Result<Vec<Candidate>, TrackerError> {
        // The next scan begins and ends the faults.
        let faults = Faults::default();
        let mut found = Found::new(&faults);
        let id = match writable(api, path).await {
            // The scan reports it, if it is configured by its name.
            Err(TrackerError::Archived { .. }) => return Ok(Vec::new()),
            project => project?.id.to_string(),
        };
        let listing = Listing {
            of: "projects",
            id: &id,
            projects: Projects::All,
        };
        self.list_both(api, listing, label, &mut found).await?;
        found.oldest_first()
    }

    /// Whether an item has the label now, and since which event.
    pub(super) async fn label_request(
        &self,
        api: &Api,
        item: &ItemRef,
        label: &str,
    ) -> Result<LabelRequest, TrackerError> {
        let found: Asking = api.wire_item(item).await?.into();
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
            match writable(api, path).await {
                Ok(project) => {
                    found.readable(path);
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
                // They may have been listed one by one before, in vain.
                for id in ids {
                    let id = &id.to_string();
                    let alone = Listing {
                        of: "projects",
                        id,
                        projects: Projects::All,
                    };
                    lists
                        .iter()
                        .for_each(|kind| found.readable(&alone.named(*kind)));
                }
                return all
                    .into_iter()
                    .try_for_each(|one| found.add(Holder::Token, namespace, one));
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
            add(api, found, &listing.named(kind), listed).await?;
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
        let items = self.lists.read(api, listing, kind, label).await?;
        self.dated(api, kind, items, label).await
    }

    /// The items whose trigger is known, or can be requested in this scan: each costs a request. Projects take turns, so
    /// that one with many items delays no other; what is left is found by the next scans.
    async fn dated(
        &self,
        api: &Api,
        kind: ItemKind,
        items: Vec<Arc<Asking>>,
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
        let is_known = |(item, found): &(ItemRef, Arc<Asking>)| {
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
        let mut failed = 0;
        for some in all.chunks(AT_ONCE) {
            let candidates = some
                .iter()
                .map(|(item, found)| self.candidate(api, item, found, label));
            for (candidate, (item, _)) in join_all(candidates).await.into_iter().zip(some) {
                match candidate {
                    // One item that the server cannot show keeps no other one from its task.
                    Err(error @ TrackerError::Unavailable { .. }) if failed < MOST_FAILED => {
                        failed += 1;
                        tracing::warn!(%item, %error, "an item is skipped; the next scan asks again");
                    }
                    candidate => dated.extend(candidate?),
                }
            }
        }
        Ok(dated)
    }

    async fn candidate(
        &self,
        api: &Api,
        item: &ItemRef,
        found: &Asking,
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
                title: found.title.clone(),
                url: found.url.clone(),
                labels: found.labels.clone(),
            },
        }))
    }

    async fn trigger(
        &self,
        api: &Api,
        item: &ItemRef,
        found: &Asking,
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

/// The project at a path, if it takes work.
async fn writable(api: &Api, path: &str) -> Result<Project, TrackerError> {
    let mut project = api.project(path, ID_TTL).await?;
    if project.read_only().is_some() {
        // It may have been taken out of the archive since.
        project = api.project(path, Duration::ZERO).await?;
    }
    project.read_only().map_or(Ok(project), Err)
}

/// Whether a project is of a group or of one of its subgroups, by their paths.
pub(super) fn is_below(path: &str, group: &str) -> bool {
    let start = path.get(..group.len());
    start.is_some_and(|start| start.eq_ignore_ascii_case(group))
        && path[group.len()..].starts_with('/')
}

fn seen<'a>(item: &'a ItemRef, found: &Asking, label: &'a str) -> Labelled<'a> {
    Labelled {
        item,
        id: found.id,
        label,
        created_at: Some(found.created_at),
        updated_at: found.updated_at,
    }
}

/// Adds what `what` came to. If too much fails, the server is asked whether it works at all.
async fn add(
    api: &Api,
    found: &mut Found<'_>,
    what: &str,
    listed: Result<Vec<Dated>, TrackerError>,
) -> Result<(), TrackerError> {
    found.add(Holder::Token, what, listed)?;
    if found.doubts_the_server() {
        api.ask_user().await?;
    }
    Ok(())
}

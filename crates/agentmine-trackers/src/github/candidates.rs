//! The scan: which open items carry the label, and which event added it.
//!
//! Configured repositories are listed one by one with conditional requests: one for a repository whose list is as it
//! was. The search index lags by up to minutes, so it is used for `query` alone.

use std::collections::HashMap;
use std::time::Duration;

use agentmine_domain::{ItemKind, ItemRef, TrackerKind};
use agentmine_runtime::config::GitHub;
use chrono::{DateTime, Utc};
use futures::future::join_all;
use serde_json::Value;

use super::api::{Api, ID_TTL, REPO_TTL, split_path};
use super::fault::invalid;
use super::organizations::{Organizations, named_repositories};
use super::owners::Owners;
use super::wire::{Event, Issue, Repo, person_of, same_label};
use crate::error::TrackerError;
use crate::forge::{
    Change, Dated, Faults, Found, Holder, KeptList, LabelChange, Labelled, Lists, Reply, Section,
    Since, Trigger, Triggers, concerns_one,
};
use crate::item::{Candidate, LabelRequest};
use crate::people::Requested;

/// Repositories that are read at the same time.
pub(super) const AT_ONCE: usize = 8;
/// So many unknown triggers in one repository are looked for in its own events first.
const SEVERAL: usize = 2;

/// What a repository came to, and whose limits it counts against.
type Read = (Holder, Result<Vec<Dated>, TrackerError>);

/// The repositories to scan.
#[derive(Debug)]
pub(super) struct Scan {
    repositories: Vec<String>,
    organizations: Organizations,
    owners: Owners,
    query: Option<String>,
    lists: Lists<Asking>,
    triggers: Triggers,
    faults: Faults,
}

impl Scan {
    pub(super) fn new(config: &GitHub, section: &Section) -> Result<Self, TrackerError> {
        let query = config.query.clone();
        let query = query.filter(|query| !query.trim().is_empty());
        if config.repositories.is_empty() && config.organizations.is_empty() && query.is_none() {
            return Err(invalid(format!(
                "{section} names nothing to scan. hint: set repositories, organizations or query"
            )));
        }
        let every = Duration::from_secs(config.discovery_seconds);
        for path in &config.repositories {
            split_path(path)?;
        }
        Ok(Self {
            repositories: config.repositories.clone(),
            organizations: Organizations::new(&config.organizations, every)?,
            owners: Owners::default(),
            query,
            lists: Lists::default(),
            triggers: Triggers::default(),
            faults: Faults::default(),
        })
    }

    /// The configured repositories, and the configured organizations.
    pub(super) fn configured(&self) -> (&[String], &[String]) {
        (&self.repositories, self.organizations.names())
    }

    /// What could not be read.
    pub(super) fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Open items with the label, in all configured repositories and those of the configured organizations.
    pub(super) async fn run(&self, api: &Api, label: &str) -> Result<Vec<Candidate>, TrackerError> {
        let mut found = Found::new(&self.faults);
        let mut paths = self.repositories.clone();
        let mut of_organizations = self.organizations.repositories(api, &mut found).await?;
        of_organizations.retain(|path| !self.is_configured(path));
        self.owners.learn(api, &paths).await?;
        paths.extend(of_organizations);
        // In chunks: what is begun is read to its end before the server is asked anything else.
        for paths in paths.chunks(AT_ONCE) {
            let scans = paths
                .iter()
                .map(|path| self.scan_unless_limited(api, path, label, &found));
            let scans = join_all(scans).await;
            for (path, repository) in paths.iter().zip(scans) {
                add(&mut found, path, repository)?;
            }
            if found.doubts_the_server() {
                api.ask_login().await?;
            }
        }
        if let Some(query) = &self.query {
            self.add_searched(api, query, label, &mut found).await?;
        }
        found.oldest_first()
    }

    /// Whether a repository may be one of those that are scanned, by its path.
    pub(super) fn contains(&self, path: &str) -> bool {
        self.is_configured(path) || self.organizations.may_contain(path)
    }

    fn is_configured(&self, path: &str) -> bool {
        self.repositories
            .iter()
            .any(|own| own.eq_ignore_ascii_case(path))
    }

    /// Whether items are searched for beside the configured repositories.
    pub(super) fn searches(&self) -> bool {
        self.query.is_some()
    }

    /// Open items with the label in one repository.
    pub(super) async fn run_in(
        &self,
        api: &Api,
        path: &str,
        label: &str,
    ) -> Result<Vec<Candidate>, TrackerError> {
        // The next scan begins and ends the faults of repositories. What lists an organization ends those of it.
        let faults = Faults::default();
        let mut found = Found::new(&faults);
        let mut listed = Found::new(&self.faults);
        if self.is_configured(path) || self.organizations.contain(api, path, &mut listed).await? {
            let repository = self.scan_unless_limited(api, path, label, &found).await;
            add(&mut found, path, repository)?;
        }
        found.oldest_first()
    }

    /// Whether an item has the label now, and since which event.
    pub(super) async fn label_request(
        &self,
        api: &Api,
        item: &ItemRef,
        label: &str,
    ) -> Result<LabelRequest, TrackerError> {
        let item = api.current(item).await?;
        let issue = api.issue(&item).await?;
        if !issue.has_label(label) {
            return Ok(LabelRequest::Absent);
        }
        let asking = Asking::from(issue);
        let trigger = self.trigger(api, &asking.labelled(&item, label)).await?;
        Ok(Trigger::request(trigger))
    }

    async fn scan_unless_limited(
        &self,
        api: &Api,
        path: &str,
        label: &str,
        found: &Found<'_>,
    ) -> Read {
        match api.repo_url(path, &[]) {
            Ok(url) => {
                let scan = async {
                    let scanned = Box::pin(self.scan_repository(api, path, label)).await;
                    match scanned {
                        // Another installation of the App may include it by now. Reading the repository finds it.
                        Err(TrackerError::NotFound { .. }) if api.is_app() => {
                            api.repo_now(path).await?;
                            Box::pin(self.scan_repository(api, path, label)).await
                        }
                        scanned => scanned,
                    }
                };
                api.unless_limited(url, found, scan).await
            }
            Err(error) => (Holder::App, Err(error)),
        }
    }

    async fn scan_repository(
        &self,
        api: &Api,
        path: &str,
        label: &str,
    ) -> Result<Vec<Dated>, TrackerError> {
        let known = api.repo_known(path, ID_TTL);
        let full_name = known.as_ref().map_or(path, |repo| repo.full_name.as_str());
        let mut url = api.repo_url(full_name, &["issues"])?;
        url.query_pairs_mut()
            .append_pair("labels", label)
            .append_pair("state", "open")
            .append_pair("sort", "created")
            .append_pair("direction", "asc")
            .append_pair("per_page", "100");
        // `labels` is a list separated by commas: a name that contains one is matched below instead.
        if label.contains(',') {
            url.set_query(Some("state=open&sort=created&direction=asc&per_page=100"));
        }
        let what = format!("repository {path}");
        let asking = |reply: &Reply| {
            let issues = api
                .client
                .fitting::<Issue>(reply.json::<Vec<Value>>()?, &what);
            let asking = issues.into_iter().filter(|it| it.asks_by(label));
            Ok(asking.map(Asking::from).collect())
        };
        let list = KeptList {
            first: url,
            what: &what,
            of: label,
            within: None,
        };
        let list = api.client.kept_list(&self.lists, list, asking).await?;
        let items = list.pages.iter().flat_map(|page| page.iter());
        let items: Vec<&Asking> = items.collect();
        if items.is_empty() {
            return Ok(Vec::new());
        }
        // Another repository may have the name now; its list is another one. It may have been archived since, or taken out of
        // the archive.
        let repo = match (list.since, known) {
            (Since::Same, Some(repo)) if !repo.archived => repo,
            (Since::New, _) => match api.repo_known(path, REPO_TTL) {
                Some(repo) => repo,
                None => api.repo_now(path).await?,
            },
            (Since::Same | Since::Changed, _) => api.repo_now(path).await?,
        };
        if repo.archived {
            return Err(TrackerError::archived(TrackerKind::GitHub, repo.full_name));
        }
        let events = self.recent_events(api, &repo, &items, label).await?;
        let mut found = Vec::new();
        for item in items {
            let newest = events.get(&item.number).cloned();
            found.extend(self.candidate(api, &repo, item, label, newest).await?);
        }
        Ok(found)
    }

    /// The newest changes of the label by number, out of the newest events of the repository, if the triggers of
    /// several items are unknown: one request instead of one for each. What is not among them is requested by itself.
    async fn recent_events(
        &self,
        api: &Api,
        repo: &Repo,
        items: &[&Asking],
        label: &str,
    ) -> Result<HashMap<u64, LabelChange>, TrackerError> {
        let mut newest = HashMap::new();
        let unknown = items.iter().filter(|item| {
            let id = identity(api, repo, item);
            self.triggers.known(&item.labelled(&id, label)).is_none()
        });
        if unknown.count() < SEVERAL {
            return Ok(newest);
        }
        let mut url = api.repo_url(&repo.full_name, &["issues", "events"])?;
        url.query_pairs_mut().append_pair("per_page", "100");
        let what = format!("the events of {}", repo.full_name);
        let reply = match api.client.get(url).await.and_then(|reply| reply.ok(&what)) {
            Ok(reply) => reply,
            Err(error) if concerns_one(&error) => return Ok(newest),
            Err(error) => return Err(error),
        };
        for event in api.client.fitting::<Event>(reply.json()?, &what) {
            if let Some((number, change)) = event
                .issue
                .as_ref()
                .map(|issue| issue.number)
                .zip(change_of(&event, label))
            {
                let known = newest.entry(number).or_insert_with(|| change.clone());
                if change.id > known.id {
                    *known = change;
                }
            }
        }
        Ok(newest)
    }

    pub(super) async fn candidate(
        &self,
        api: &Api,
        repo: &Repo,
        asking: &Asking,
        label: &str,
        newest: Option<LabelChange>,
    ) -> Result<Option<Dated>, TrackerError> {
        let item = identity(api, repo, asking);
        let seen = asking.labelled(&item, label);
        let trigger = match (self.triggers.known(&seen), newest) {
            (Some(known), _) => Ok(Some(known)),
            (None, Some(newest)) => Ok(self.triggers.decide(&seen, Some(newest))),
            (None, None) => self.trigger(api, &seen).await,
        };
        let trigger = match trigger {
            Ok(Some(trigger)) => trigger,
            Ok(None) => return Ok(None),
            // Deleted or transferred since it was listed.
            Err(error) if concerns_one(&error) => {
                tracing::warn!(%item, %error, "an item is skipped");
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        Ok(Some(Dated {
            created_at: asking.created_at.unwrap_or(asking.updated_at),
            candidate: Candidate {
                item,
                trigger: trigger.id,
                requested: trigger.requested,
                title: asking.title.clone(),
                url: asking.url.clone(),
                labels: asking.labels.clone(),
            },
        }))
    }

    /// The trigger by the item's own events.
    async fn trigger(
        &self,
        api: &Api,
        seen: &Labelled<'_>,
    ) -> Result<Option<Trigger>, TrackerError> {
        if let Some(known) = self.triggers.known(seen) {
            return Ok(Some(known));
        }
        let events = api.events(seen.item).await?;
        let changes = events
            .iter()
            .filter_map(|event| change_of(event, seen.label));
        let newest = changes.max_by_key(|change| change.id);
        Ok(self.triggers.decide(seen, newest))
    }
}

/// Adds what a repository came to. A limit is one fault of all the repositories of its owner.
fn add(found: &mut Found<'_>, path: &str, (holder, repository): Read) -> Result<(), TrackerError> {
    let owner = path.split('/').next().unwrap_or_default();
    let of_owner = named_repositories(owner);
    match repository {
        Err(TrackerError::RateLimited { .. }) => found.add(holder, &of_owner, repository),
        Err(_) => found.add(holder, path, repository),
        Ok(_) => {
            // Another one of the owner's may have met the limit meanwhile.
            if found.limit_of(holder).is_none() {
                found.readable(&of_owner);
            }
            found.add(holder, path, repository)
        }
    }
}

/// What a scan keeps of an item that has the label.
#[derive(Debug)]
pub(super) struct Asking {
    id: u64,
    number: u64,
    kind: ItemKind,
    title: String,
    url: String,
    labels: Vec<String>,
    created_at: Option<DateTime<Utc>>,
    updated_at: DateTime<Utc>,
}

impl Asking {
    fn labelled<'a>(&self, item: &'a ItemRef, label: &'a str) -> Labelled<'a> {
        Labelled {
            item,
            id: self.id,
            label,
            created_at: self.created_at,
            updated_at: self.updated_at,
        }
    }
}

impl From<Issue> for Asking {
    fn from(issue: Issue) -> Self {
        Self {
            id: issue.id,
            number: issue.number,
            kind: match issue.pull_request {
                Some(_) => ItemKind::PullRequest,
                None => ItemKind::Issue,
            },
            labels: issue.labels.iter().map(|it| it.name().to_owned()).collect(),
            title: issue.title,
            url: issue.html_url,
            created_at: issue.created_at,
            updated_at: issue.updated_at,
        }
    }
}

fn identity(api: &Api, repo: &Repo, asking: &Asking) -> ItemRef {
    ItemRef {
        tracker: TrackerKind::GitHub,
        host: api.host.clone(),
        repo_id: repo.id.to_string(),
        repo_path: repo.full_name.clone(),
        kind: asking.kind,
        number: asking.number,
    }
}

/// What an event did to the label.
fn change_of(event: &Event, label: &str) -> Option<LabelChange> {
    let own = event.label.as_ref()?;
    let change = match event.event.as_str() {
        "labeled" => Change::Added,
        "unlabeled" => Change::Removed,
        _ => return None,
    };
    same_label(own.name(), label).then_some(LabelChange {
        id: event.id,
        change,
        requested: Requested {
            by: event.actor.clone().map(person_of),
            at: event.created_at,
        },
    })
}

//! The scan: which open items carry the label, and which event added it.
//!
//! Configured repositories are listed one by one with conditional requests. The search index lags by up
//! to minutes, so it is used for `query` alone. The trigger of a task is the id of the newest `labeled`
//! event. Accepted race: the list may show a label before the events do. Such an item is left for the
//! next scan, since a second trigger for the same label would be a second task.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use agentmine_domain::{ItemKind, ItemRef, TrackerKind};
use agentmine_runtime::config::GitHub;
use chrono::{DateTime, TimeDelta, Utc};
use serde_json::Value;

use super::api::{Api, invalid, split_path};
use super::wire::{Event, Issue, Repo, SearchPage, same_label};
use crate::error::TrackerError;
use crate::tracker::{Candidate, LabelRequest};

/// Items without any `labeled` event (imported ones) wait this long for one.
const EVENT_LAG: TimeDelta = TimeDelta::minutes(10);
/// The trigger of an item that changed so recently is not remembered. GitHub shows whole seconds, so the item may
/// be labelled again without a visible change, and the events may lag behind the list of items.
const SETTLED: TimeDelta = TimeDelta::minutes(5);
/// Triggers that are remembered. Past it, all are forgotten and asked for again.
const MAX_TRIGGERS: usize = 10_000;

/// The repositories to scan.
#[derive(Debug)]
pub(super) struct Scan {
    repositories: Vec<String>,
    query: Option<String>,
    triggers: Triggers,
}

/// The newest trigger of each item, as long as the item does not change.
#[derive(Debug, Default)]
struct Triggers(Mutex<HashMap<(u64, String), Known>>);

/// A trigger, and when the item had last changed when it was asked for.
#[derive(Debug)]
struct Known {
    updated_at: DateTime<Utc>,
    trigger: Trigger,
}

/// What put the label on an item.
#[derive(Debug, Clone)]
struct Trigger {
    id: String,
    since: Option<DateTime<Utc>>,
}

impl Triggers {
    fn get(&self, issue: &Issue, label: &str) -> Option<Trigger> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = known.get(&(issue.id, label.to_owned()))?;
        (entry.updated_at == issue.updated_at).then(|| entry.trigger.clone())
    }

    fn put(&self, issue: &Issue, label: &str, trigger: &Trigger) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_TRIGGERS {
            known.clear();
        }
        let entry = Known {
            updated_at: issue.updated_at,
            trigger: trigger.to_owned(),
        };
        known.insert((issue.id, label.to_owned()), entry);
    }
}

/// A candidate, and when its item was opened.
struct Dated {
    created_at: DateTime<Utc>,
    candidate: Candidate,
}

/// What a scan found. What concerns one repository, or the search, skips that and nothing else.
#[derive(Default)]
struct Found {
    candidates: Vec<Dated>,
    /// Whether anything could be read.
    read: bool,
    first_error: Option<TrackerError>,
}

impl Found {
    fn add(
        &mut self,
        what: &str,
        found: Result<Vec<Dated>, TrackerError>,
    ) -> Result<(), TrackerError> {
        match found {
            Ok(more) => {
                self.read = true;
                for dated in more {
                    let key = dated.candidate.item.key();
                    let is_known = |known: &Dated| known.candidate.item.key() == key;
                    if !self.candidates.iter().any(is_known) {
                        self.candidates.push(dated);
                    }
                }
            }
            // The token or the server itself: nothing else can be read either.
            Err(error) if !concerns_one(&error) => return Err(error),
            Err(error) => {
                tracing::warn!(what, %error, "skipped in this scan");
                self.first_error.get_or_insert(error);
            }
        }
        Ok(())
    }

    /// The candidates; an error only if nothing could be read.
    fn oldest_first(mut self) -> Result<Vec<Candidate>, TrackerError> {
        match self.first_error {
            Some(error) if !self.read => return Err(error),
            Some(_) | None => {}
        }
        self.candidates.sort_by_key(|dated| dated.created_at);
        let candidates = self.candidates.into_iter();
        Ok(candidates.map(|dated| dated.candidate).collect())
    }
}

/// Whether an error concerns what was asked for and nothing else.
fn concerns_one(error: &TrackerError) -> bool {
    match error {
        TrackerError::NotFound { .. }
        | TrackerError::Forbidden { .. }
        | TrackerError::Refused { .. }
        | TrackerError::Invalid { .. } => true,
        TrackerError::Unauthorized { .. }
        | TrackerError::RateLimited { .. }
        | TrackerError::Unavailable { .. }
        | TrackerError::NotPermitted { .. } => false,
    }
}

impl Scan {
    pub(super) fn new(config: &GitHub) -> Result<Self, TrackerError> {
        let query = config.query.clone();
        let query = query.filter(|query| !query.trim().is_empty());
        if config.repositories.is_empty() && query.is_none() {
            return Err(invalid(
                "trackers.github names nothing to scan. hint: set repositories or query",
            ));
        }
        for path in &config.repositories {
            split_path(path)?;
        }
        Ok(Self {
            repositories: config.repositories.clone(),
            query,
            triggers: Triggers::default(),
        })
    }

    /// Open items with the label, in all configured repositories.
    pub(super) async fn run(&self, api: &Api, label: &str) -> Result<Vec<Candidate>, TrackerError> {
        let mut found = Found::default();
        for path in &self.repositories {
            let repository = self.scan_repository(api, path, label).await;
            found.add(path, repository)?;
        }
        if let Some(query) = &self.query {
            let searched = self.search(api, query, label).await;
            found.add("the search", searched)?;
        }
        found.oldest_first()
    }

    /// Whether an item carries the label now, and since which event.
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
        let trigger = self.trigger(api, &item, &issue, label).await?;
        Ok(match trigger {
            Some(Trigger { id, since }) => LabelRequest::By { trigger: id, since },
            None => LabelRequest::Unknown,
        })
    }

    async fn scan_repository(
        &self,
        api: &Api,
        path: &str,
        label: &str,
    ) -> Result<Vec<Dated>, TrackerError> {
        let repo = api.repo_at(path).await?;
        let mut url = api.repo_url(&repo.full_name, &["issues"])?;
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
        let issues = api.client.list::<Value>(url, &what).await?;
        let mut found = Vec::new();
        for issue in api.client.fitting::<Issue>(issues, &what) {
            found.extend(self.candidate(api, &repo, issue, label).await?);
        }
        Ok(found)
    }

    async fn search(
        &self,
        api: &Api,
        query: &str,
        label: &str,
    ) -> Result<Vec<Dated>, TrackerError> {
        let mut found = Vec::new();
        // Newer versions of the API refuse a search without one of the two.
        for kind in ["is:issue", "is:pull-request"] {
            for issue in self.search_kind(api, kind, query, label).await? {
                let Some(path) = issue.repo_path() else {
                    tracing::warn!(
                        number = issue.number,
                        "a search result is skipped: it names no repository"
                    );
                    continue;
                };
                let repo = match api.repo_at(&path).await {
                    Ok(repo) => repo,
                    Err(error) if concerns_one(&error) => {
                        tracing::warn!(repository = %path, %error, "a search result is skipped");
                        continue;
                    }
                    Err(error) => return Err(error),
                };
                found.extend(self.candidate(api, &repo, issue, label).await?);
            }
        }
        Ok(found)
    }

    async fn search_kind(
        &self,
        api: &Api,
        kind: &str,
        query: &str,
        label: &str,
    ) -> Result<Vec<Issue>, TrackerError> {
        let quoted = label.replace('\\', "\\\\").replace('"', "\\\"");
        let mut url = api.client.url(["search", "issues"]);
        url.query_pairs_mut()
            .append_pair("q", &format!("is:open {kind} label:\"{quoted}\" {query}"))
            .append_pair("sort", "created")
            .append_pair("order", "asc")
            .append_pair("per_page", "100");
        let items = api
            .client
            .pages(url, "search", |reply| {
                let page: SearchPage = reply.json()?;
                if page.incomplete_results {
                    tracing::warn!(
                        "GitHub's search result is incomplete; the next scan searches again"
                    );
                }
                Ok(page.items)
            })
            .await?;
        Ok(api.client.fitting(items, "search"))
    }

    async fn candidate(
        &self,
        api: &Api,
        repo: &Repo,
        issue: Issue,
        label: &str,
    ) -> Result<Option<Dated>, TrackerError> {
        if issue.state != "open" || !issue.has_label(label) {
            return Ok(None);
        }
        let item = ItemRef {
            tracker: TrackerKind::GitHub,
            host: api.host.clone(),
            repo_id: repo.id.to_string(),
            repo_path: repo.full_name.clone(),
            kind: match issue.pull_request {
                Some(_) => ItemKind::PullRequest,
                None => ItemKind::Issue,
            },
            number: issue.number,
        };
        let trigger = match self.trigger(api, &item, &issue, label).await {
            Ok(Some(trigger)) => trigger.id,
            Ok(None) => return Ok(None),
            // Deleted or transferred since it was listed.
            Err(error) if concerns_one(&error) => {
                tracing::warn!(%item, %error, "an item is skipped");
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        Ok(Some(Dated {
            created_at: issue.created_at.unwrap_or(issue.updated_at),
            candidate: Candidate {
                item,
                trigger,
                title: issue.title,
                url: issue.html_url,
            },
        }))
    }

    async fn trigger(
        &self,
        api: &Api,
        item: &ItemRef,
        issue: &Issue,
        label: &str,
    ) -> Result<Option<Trigger>, TrackerError> {
        if let Some(known) = self.triggers.get(issue, label) {
            return Ok(Some(known));
        }
        let mut url = api.item_url(item, &["events"])?;
        url.query_pairs_mut().append_pair("per_page", "100");
        let events = api.client.list::<Value>(url, &item.to_string()).await?;
        let events: Vec<Event> = api.client.fitting(events, &item.to_string());
        let newest = events
            .iter()
            .filter(|event| matches!(event.event.as_str(), "labeled" | "unlabeled"))
            .filter(|event| {
                event
                    .label
                    .as_ref()
                    .is_some_and(|own| same_label(own.name(), label))
            })
            .max_by_key(|event| event.id);
        let trigger = match newest {
            Some(event) if event.event == "labeled" => Trigger {
                id: event.id.to_string(),
                since: event.created_at,
            },
            None if Utc::now() - issue.updated_at > EVENT_LAG => Trigger {
                id: format!("item-{}", issue.id),
                since: issue.created_at,
            },
            Some(_) | None => return Ok(None),
        };
        if Utc::now() - issue.updated_at > SETTLED {
            self.triggers.put(issue, label, &trigger);
        }
        Ok(Some(trigger))
    }
}

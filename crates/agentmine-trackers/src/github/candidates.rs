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

use super::api::{Api, invalid, refused, split_path};
use super::wire::{Event, Issue, Repo, SearchPage, same_label};
use crate::error::TrackerError;
use crate::tracker::{Candidate, LabelRequest};

/// Items without any `labeled` event (imported ones) wait this long for one.
const EVENT_LAG: TimeDelta = TimeDelta::minutes(10);
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
    trigger: String,
}

impl Triggers {
    fn get(&self, issue: &Issue, label: &str) -> Option<String> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = known.get(&(issue.id, label.to_owned()))?;
        (entry.updated_at == issue.updated_at).then(|| entry.trigger.clone())
    }

    fn put(&self, issue: &Issue, label: &str, trigger: &str) {
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
        let mut found: Vec<Candidate> = Vec::new();
        for path in &self.repositories {
            match self.scan_repository(api, path, label).await {
                Ok(more) => found.extend(more),
                // A repository that was deleted or hidden must not stop the others.
                Err(error @ TrackerError::NotFound { .. }) => {
                    tracing::warn!(repository = %path, %error, "a repository is skipped");
                }
                Err(error) => return Err(error),
            }
        }
        if let Some(query) = &self.query {
            for candidate in self.search(api, query, label).await? {
                if !found
                    .iter()
                    .any(|known| known.item.key() == candidate.item.key())
                {
                    found.push(candidate);
                }
            }
        }
        Ok(found)
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
        Ok(trigger.map_or(LabelRequest::Unknown, LabelRequest::By))
    }

    async fn scan_repository(
        &self,
        api: &Api,
        path: &str,
        label: &str,
    ) -> Result<Vec<Candidate>, TrackerError> {
        let repo = api.repo_at(path).await?;
        let mut url = api.repo_url(&repo.full_name, &["issues"])?;
        url.query_pairs_mut()
            .append_pair("labels", label)
            .append_pair("state", "open")
            .append_pair("per_page", "100");
        // `labels` is a list separated by commas: a name that contains one is matched below instead.
        if label.contains(',') {
            url.set_query(Some("state=open&per_page=100"));
        }
        let issues = api
            .client
            .list::<Issue>(url, &format!("repository {path}"))
            .await?;
        let mut found = Vec::new();
        for issue in issues {
            found.extend(self.candidate(api, &repo, issue, label).await?);
        }
        Ok(found)
    }

    async fn search(
        &self,
        api: &Api,
        query: &str,
        label: &str,
    ) -> Result<Vec<Candidate>, TrackerError> {
        let mut found = Vec::new();
        // Newer versions of the API refuse a search without one of the two.
        for kind in ["is:issue", "is:pull-request"] {
            for issue in self.search_kind(api, kind, query, label).await? {
                let Some(path) = issue.repo_path() else {
                    return Err(refused("a search result names no repository"));
                };
                let repo = match api.repo_at(&path).await {
                    Ok(repo) => repo,
                    Err(TrackerError::NotFound { .. }) => continue,
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
        api.client
            .pages(url, "search", |reply| {
                let page: SearchPage = reply.json()?;
                if page.incomplete_results {
                    tracing::warn!(
                        "GitHub's search result is incomplete; the next scan searches again"
                    );
                }
                Ok(page.items)
            })
            .await
    }

    async fn candidate(
        &self,
        api: &Api,
        repo: &Repo,
        issue: Issue,
        label: &str,
    ) -> Result<Option<Candidate>, TrackerError> {
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
        let Some(trigger) = self.trigger(api, &item, &issue, label).await? else {
            return Ok(None);
        };
        Ok(Some(Candidate {
            item,
            trigger,
            title: issue.title,
            url: issue.html_url,
        }))
    }

    async fn trigger(
        &self,
        api: &Api,
        item: &ItemRef,
        issue: &Issue,
        label: &str,
    ) -> Result<Option<String>, TrackerError> {
        if let Some(known) = self.triggers.get(issue, label) {
            return Ok(Some(known));
        }
        let mut url = api.item_url(item, &["events"])?;
        url.query_pairs_mut().append_pair("per_page", "100");
        let events = api.client.list::<Event>(url, &item.to_string()).await?;
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
            Some(event) if event.event == "labeled" => event.id.to_string(),
            None if Utc::now() - issue.updated_at > EVENT_LAG => format!("item-{}", issue.id),
            Some(_) | None => return Ok(None),
        };
        self.triggers.put(issue, label, &trigger);
        Ok(Some(trigger))
    }
}

//! The scan: which open items carry the label, and which event put it on.
//!
//! Configured repositories are listed one by one, conditionally; the search index lags by up to
//! minutes, so it serves `query` alone. What sets a task off is the id of the newest `labeled`
//! event. Accepted race: the list may show a label before the events do. Such an item is left for
//! the next scan, since a second trigger for the same label would be a second task.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use agentmine_domain::{ItemKind, ItemRef, TrackerKind};
use chrono::{DateTime, TimeDelta, Utc};

use super::GitHubTracker;
use super::reply::refused;
use super::wire::{Event, Issue, Repo, SearchPage, same_label};
use crate::{Candidate, TrackerError};

/// Items without any `labeled` event (imported ones) wait this long for one.
const EVENT_LAG: TimeDelta = TimeDelta::minutes(10);
/// Triggers remembered; past it all are forgotten and asked again.
const MAX_TRIGGERS: usize = 10_000;

/// The newest trigger of each item, for as long as the item was not touched.
#[derive(Debug, Default)]
pub(super) struct Triggers(Mutex<HashMap<(u64, String), Known>>);

/// A trigger, and when the item had last changed as it was asked for.
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

impl GitHubTracker {
    pub(super) async fn scan(&self, label: &str) -> Result<Vec<Candidate>, TrackerError> {
        let mut found: Vec<Candidate> = Vec::new();
        for path in &self.repositories {
            match self.scan_repository(path, label).await {
                Ok(more) => found.extend(more),
                // One that was deleted or hidden must not stop the others.
                Err(error @ TrackerError::NotFound { .. }) => {
                    tracing::warn!(repository = %path, %error, "repository is skipped");
                }
                Err(error) => return Err(error),
            }
        }
        if let Some(query) = &self.query {
            for candidate in self.search(query, label).await? {
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

    async fn scan_repository(
        &self,
        path: &str,
        label: &str,
    ) -> Result<Vec<Candidate>, TrackerError> {
        let repo = self.repo_at(path).await?;
        let mut url = self.repo_url(&repo.full_name, &["issues"])?;
        url.query_pairs_mut()
            .append_pair("labels", label)
            .append_pair("state", "open")
            .append_pair("per_page", "100");
        // `labels` is a list parted by commas: a name that holds one is matched here instead.
        if label.contains(',') {
            url.set_query(Some("state=open&per_page=100"));
        }
        let issues = self
            .client
            .list::<Issue>(url, &format!("repository {path}"))
            .await?;
        let mut found = Vec::new();
        for issue in issues {
            found.extend(self.candidate(&repo, issue, label).await?);
        }
        Ok(found)
    }

    async fn search(&self, query: &str, label: &str) -> Result<Vec<Candidate>, TrackerError> {
        let mut found = Vec::new();
        // Newer API versions refuse a search that does not say which of the two it wants.
        for kind in ["is:issue", "is:pull-request"] {
            for issue in self.search_kind(kind, query, label).await? {
                let Some(path) = issue.repo_path() else {
                    return Err(refused("a search result names no repository".into()));
                };
                let repo = match self.repo_at(&path).await {
                    Ok(repo) => repo,
                    Err(TrackerError::NotFound { .. }) => continue,
                    Err(error) => return Err(error),
                };
                found.extend(self.candidate(&repo, issue, label).await?);
            }
        }
        Ok(found)
    }

    async fn search_kind(
        &self,
        kind: &str,
        query: &str,
        label: &str,
    ) -> Result<Vec<Issue>, TrackerError> {
        let quoted = label.replace('\\', "\\\\").replace('"', "\\\"");
        let mut url = self.client.url(["search", "issues"]);
        url.query_pairs_mut()
            .append_pair("q", &format!("is:open {kind} label:\"{quoted}\" {query}"))
            .append_pair("sort", "created")
            .append_pair("order", "asc")
            .append_pair("per_page", "100");
        self.client
            .pages(url, "search", |reply| {
                let page: SearchPage = reply.json()?;
                if page.incomplete_results {
                    tracing::warn!("GitHub's search was incomplete; the next scan asks again");
                }
                Ok(page.items)
            })
            .await
    }

    async fn candidate(
        &self,
        repo: &Repo,
        issue: Issue,
        label: &str,
    ) -> Result<Option<Candidate>, TrackerError> {
        if issue.state != "open" || !issue.has_label(label) {
            return Ok(None);
        }
        let item = ItemRef {
            tracker: TrackerKind::GitHub,
            host: self.host.clone(),
            repo_id: repo.id.to_string(),
            repo_path: repo.full_name.clone(),
            kind: match issue.pull_request {
                Some(_) => ItemKind::PullRequest,
                None => ItemKind::Issue,
            },
            number: issue.number,
        };
        let Some(trigger) = self.trigger(&item, &issue, label).await? else {
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
        item: &ItemRef,
        issue: &Issue,
        label: &str,
    ) -> Result<Option<String>, TrackerError> {
        if let Some(known) = self.triggers.get(issue, label) {
            return Ok(Some(known));
        }
        let mut url = self.item_url(item, &["events"])?;
        url.query_pairs_mut().append_pair("per_page", "100");
        let events = self.client.list::<Event>(url, &item.to_string()).await?;
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

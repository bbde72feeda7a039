//! The scan: which open items carry the label, and which event added it.
//!
//! Configured repositories are listed one by one with conditional requests. The search index lags by up
//! to minutes, so it is used for `query` alone.

use agentmine_domain::{ItemKind, ItemRef, TrackerKind};
use agentmine_runtime::config::GitHub;
use serde_json::Value;

use super::api::{Api, invalid, split_path};
use super::wire::{Event, Issue, Repo, SearchPage, same_label};
use crate::error::TrackerError;
use crate::forge::{Change, Dated, Found, LabelChange, Labelled, Trigger, Triggers, concerns_one};
use crate::tracker::{Candidate, LabelRequest};

/// The repositories to scan.
#[derive(Debug)]
pub(super) struct Scan {
    repositories: Vec<String>,
    query: Option<String>,
    triggers: Triggers,
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

    /// The configured repositories.
    pub(super) fn repositories(&self) -> &[String] {
        &self.repositories
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
        Ok(Trigger::request(trigger))
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
        let seen = Labelled {
            item,
            id: issue.id,
            label,
            created_at: issue.created_at,
            updated_at: issue.updated_at,
        };
        if let Some(known) = self.triggers.known(&seen) {
            return Ok(Some(known));
        }
        let mut url = api.item_url(item, &["events"])?;
        url.query_pairs_mut().append_pair("per_page", "100");
        let events = api.client.list::<Value>(url, &item.to_string()).await?;
        let events: Vec<Event> = api.client.fitting(events, &item.to_string());
        let changes = events.iter().filter_map(|event| {
            let own = event.label.as_ref()?;
            let change = match event.event.as_str() {
                "labeled" => Change::Added,
                "unlabeled" => Change::Removed,
                _ => return None,
            };
            same_label(own.name(), label).then_some(LabelChange {
                id: event.id,
                change,
                at: event.created_at,
            })
        });
        let newest = changes.max_by_key(|change| change.id);
        Ok(self.triggers.decide(&seen, newest))
    }
}

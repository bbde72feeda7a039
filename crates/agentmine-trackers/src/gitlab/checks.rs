//! The checks of a commit: jobs of pipelines and statuses of others, in one list.

use std::collections::HashSet;

use agentmine_domain::{ItemRef, RedCheck};
use chrono::{DateTime, Utc};
use serde::Deserialize;
use serde_json::Value;

use super::api::Api;
use crate::error::TrackerError;
use crate::rounds::Checks;

/// States of what goes on, or waits for something else than a person.
const PENDING: [&str; 7] = [
    "created",
    "waiting_for_resource",
    "preparing",
    "waiting_for_callback",
    "pending",
    "running",
    "scheduled",
];

#[derive(Debug, Deserialize)]
struct Status {
    /// Of a job, its own.
    id: u64,
    name: String,
    status: String,
    #[serde(default)]
    allow_failure: bool,
    description: Option<String>,
    finished_at: Option<DateTime<Utc>>,
}

#[derive(Debug, Deserialize)]
struct Pipeline {
    id: u64,
    status: String,
    updated_at: Option<DateTime<Utc>>,
}

#[derive(Debug, Deserialize)]
struct Branch {
    commit: Commit,
}

#[derive(Debug, Deserialize)]
struct Commit {
    id: String,
}

impl Api {
    /// How the checks of a commit stand. A pipeline that failed without a failed job counts too: its configuration may
    /// be invalid.
    pub(super) async fn checks(&self, item: &ItemRef, of: &str) -> Result<Checks, TrackerError> {
        let what = format!("the checks of {of} in {}", item.repo_path);
        let place = ["repository", "commits", of, "statuses"];
        let mut url = self.project_url(&item.repo_id, &place);
        url.query_pairs_mut().append_pair("per_page", "100");
        let found = self.client.list::<Value>(url, &what).await?;
        let mut checks = Checks::default();
        let found = self.client.fitting::<Status>(found, &what);
        for status in newest_of_each(found.into_iter().collect()) {
            status.count(&mut checks);
        }
        let mut url = self.project_url(&item.repo_id, &["pipelines"]);
        url.query_pairs_mut()
            .append_pair("sha", of)
            .append_pair("per_page", "1");
        let reply = self.client.get(url).await?.ok(&what)?;
        let newest = self.client.fitting::<Pipeline>(reply.json()?, &what).pop();
        if let Some(pipeline) = newest {
            checks.pending |= PENDING.contains(&pipeline.status.as_str());
            if pipeline.status == "failed" && checks.red.is_empty() {
                let red = RedCheck {
                    name: "pipeline".to_owned(),
                    log: None,
                    summary: format!(
                        "pipeline {} failed, and none of its jobs did: its configuration may be invalid",
                        pipeline.id
                    ),
                    failure: String::new(),
                };
                checks.add(red, pipeline.updated_at);
            }
        }
        Ok(checks)
    }

    /// The same of the commit that a branch is at.
    pub(super) async fn checks_of_branch(
        &self,
        item: &ItemRef,
        branch: &str,
    ) -> Result<Checks, TrackerError> {
        let url = self.project_url(&item.repo_id, &["repository", "branches", branch]);
        let reply = self.client.get(url).await?;
        let found: Branch = reply.ok(&format!("branch {branch}"))?.json()?;
        self.checks(item, &found.commit.id).await
    }

    /// The end of a job's log.
    pub(super) async fn check_log(
        &self,
        item: &ItemRef,
        log: &str,
    ) -> Result<Option<String>, TrackerError> {
        let url = self.project_url(&item.repo_id, &["jobs", log, "trace"]);
        self.client.end_of(url).await
    }
}

/// The newest of each name: the list has the jobs of all pipelines of the commit, so also of those that were started anew.
fn newest_of_each(mut statuses: Vec<Status>) -> Vec<Status> {
    statuses.sort_by_key(|status| std::cmp::Reverse(status.id));
    let mut seen = HashSet::new();
    statuses.retain(|status| seen.insert(status.name.clone()));
    statuses.reverse();
    statuses
}

impl Status {
    fn count(self, checks: &mut Checks) {
        checks.pending |= PENDING.contains(&self.status.as_str());
        if self.status == "failed" && !self.allow_failure {
            let red = RedCheck {
                name: self.name,
                log: Some(self.id.to_string()),
                summary: self.description.unwrap_or_default(),
                failure: String::new(),
            };
            checks.add(red, self.finished_at);
        }
    }
}

//! The checks of a commit: jobs of pipelines and statuses of others, in one list, and the jobs of child pipelines.
//!
//! The checks of a merge request's head are also those of the commit that GitLab makes of it and the target branch, where
//! the project has pipelines for merged results.

use std::collections::{HashSet, VecDeque};

use agentmine_domain::{ItemKind, ItemRef, RedCheck, TrackerKind};
use chrono::{DateTime, Utc};
use http::StatusCode;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::api::Api;
use crate::error::TrackerError;
use crate::forge::concerns_one;
use crate::rounds::Checks;

/// States of what continues, or waits for something else than a person.
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

/// Child pipelines may have children of their own, and these none.
const DEEPEST: usize = 2;
/// Pipelines whose children are checked, for one commit.
const MOST_PIPELINES: usize = 20;

#[derive(Debug, Deserialize)]
struct Pipeline {
    id: u64,
    status: String,
    updated_at: Option<DateTime<Utc>>,
    #[serde(default)]
    sha: String,
    #[serde(default, rename = "ref")]
    reference: String,
}

/// A pipeline, as far as its configuration goes.
#[derive(Debug, Default, Deserialize)]
struct Configured {
    yaml_errors: Option<String>,
}

/// A merge request, as far as its newest pipeline goes. Not every token sees that.
#[derive(Debug, Deserialize)]
struct Head {
    #[serde(default)]
    head_pipeline: Option<Pipeline>,
}

#[derive(Debug, Deserialize)]
struct Parents {
    parent_ids: Vec<String>,
}

/// A job that begins another pipeline. Where it waits for that, it fails with it.
#[derive(Debug, Deserialize)]
struct Bridge {
    name: String,
    status: String,
    #[serde(default)]
    allow_failure: bool,
    downstream_pipeline: Option<Child>,
}

#[derive(Debug, Deserialize)]
struct Child {
    id: u64,
    /// A pipeline of another project does not count.
    project_id: u64,
    status: String,
}

impl Bridge {
    /// The pipeline of the project `id` with which it failed.
    fn failed_with(&self, id: &str) -> Option<u64> {
        let counts = self.status == "failed" && !self.allow_failure;
        let child = self.downstream_pipeline.as_ref().filter(|_| counts)?;
        let is_own = child.status == "failed" && child.project_id.to_string() == id;
        is_own.then_some(child.id)
    }
}

impl Api {
    /// How the checks of a commit stand, which is the head of a merge request.
    pub(super) async fn checks(&self, item: &ItemRef, of: &str) -> Result<Checks, TrackerError> {
        let head = match item.kind {
            ItemKind::PullRequest => self.head_pipeline(item, of).await?,
            ItemKind::Issue | ItemKind::Task => None,
        };
        self.checks_of(item, of, head).await
    }

    /// The newest pipeline of a merge request, if it is of this head, or of what the head would be merged to.
    async fn head_pipeline(
        &self,
        item: &ItemRef,
        of: &str,
    ) -> Result<Option<Pipeline>, TrackerError> {
        let reply = self.client.get(self.item_url(item, &[])).await?;
        let Head { head_pipeline } = reply.ok(&item.to_string())?.json()?;
        let pipeline = match head_pipeline {
            Some(pipeline) if pipeline.sha == of => return Ok(Some(pipeline)),
            Some(pipeline) if pipeline.reference.ends_with("/merge") => pipeline,
            Some(_) | None => return Ok(None),
        };
        // It may be that of an earlier head.
        let place = ["repository", "commits", &pipeline.sha];
        let url = self.project_url(&item.repo_id, &place);
        let reply = self.client.get(url).await?;
        if reply.status == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        let what = format!("commit {}", pipeline.sha);
        let Parents { parent_ids } = reply.ok(&what)?.json()?;
        let is_current = parent_ids.iter().any(|parent| parent == of);
        Ok(is_current.then_some(pipeline))
    }

    /// The same with the pipeline that counts, if that is known. A pipeline that failed without a failed job counts too:
    /// its configuration may be invalid.
    async fn checks_of(
        &self,
        item: &ItemRef,
        of: &str,
        pipeline: Option<Pipeline>,
    ) -> Result<Checks, TrackerError> {
        let what = format!("the checks of {of} in {}", item.repo_path);
        let merged = pipeline.as_ref().map(|it| it.sha.as_str());
        let merged = merged.filter(|sha| *sha != of);
        let mut found = Vec::new();
        for commit in std::iter::once(of).chain(merged) {
            let place = ["repository", "commits", commit, "statuses"];
            let mut url = self.project_url(&item.repo_id, &place);
            url.query_pairs_mut().append_pair("per_page", "100");
            let listed = self.client.list::<Value>(url, &what).await?;
            found.extend(self.client.fitting::<Status>(listed, &what));
        }
        let pipeline = match pipeline {
            Some(pipeline) => Some(pipeline),
            None => self.newest_pipeline(item, of, &what).await?,
        };
        let mut checks = Checks::default();
        let failed = pipeline.as_ref().filter(|it| it.status == "failed");
        let below = match failed {
            Some(pipeline) => self.failed_below(item, pipeline.id).await?,
            None => Vec::new(),
        };
        for status in newest_of_each(found) {
            // What says why it failed is below it.
            if !below.iter().any(|(bridge, _)| *bridge == status.name) {
                status.count(&mut checks);
            }
        }
        for (_, job) in below {
            job.count(&mut checks);
        }
        if let Some(pipeline) = pipeline {
            checks.pending |= PENDING.contains(&pipeline.status.as_str());
            if pipeline.status == "failed" && checks.red.is_empty() {
                let red = RedCheck {
                    name: "pipeline".to_owned(),
                    log: None,
                    summary: self.failed_without_job(item, pipeline.id).await?,
                    failure: String::new(),
                };
                checks.add(red, pipeline.updated_at);
            }
        }
        Ok(checks)
    }

    /// Why a pipeline failed of which no job failed.
    async fn failed_without_job(
        &self,
        item: &ItemRef,
        pipeline: u64,
    ) -> Result<String, TrackerError> {
        let place = ["pipelines", &pipeline.to_string()];
        let reply = self.client.get(self.project_url(&item.repo_id, &place));
        let read = async { reply.await?.ok("the pipeline")?.json::<Configured>() };
        let found = match read.await {
            // Not every token sees it.
            Err(error) if concerns_one(&error) => Configured::default(),
            read => read?,
        };
        Ok(match found.yaml_errors {
            Some(errors) => {
                format!("pipeline {pipeline} failed, since its configuration is invalid: {errors}")
            }
            None => format!(
                "pipeline {pipeline} failed, and none of its jobs did: its configuration may be invalid"
            ),
        })
    }

    async fn newest_pipeline(
        &self,
        item: &ItemRef,
        of: &str,
        what: &str,
    ) -> Result<Option<Pipeline>, TrackerError> {
        let mut url = self.project_url(&item.repo_id, &["pipelines"]);
        url.query_pairs_mut()
            .append_pair("sha", of)
            .append_pair("per_page", "1");
        let reply = self.client.get(url).await?.ok(what)?;
        Ok(self.client.fitting(reply.json()?, what).pop())
    }

    /// The failed jobs of the child pipelines with which jobs of a pipeline failed, each with the name of that job. Their
    /// own names begin with it.
    async fn failed_below(
        &self,
        item: &ItemRef,
        pipeline: u64,
    ) -> Result<Vec<(String, Status)>, TrackerError> {
        let mut found = Vec::new();
        let mut parents = VecDeque::from([(pipeline, Vec::<String>::new())]);
        for _ in 0..MOST_PIPELINES {
            let Some((parent, path)) = parents.pop_front() else {
                break;
            };
            let bridges: Vec<Bridge> = self.of_pipeline(item, parent, "bridges", None).await?;
            for bridge in bridges {
                let Some(child) = bridge.failed_with(&item.repo_id) else {
                    continue;
                };
                let mut path = path.clone();
                path.push(bridge.name);
                let jobs = self.of_pipeline(item, child, "jobs", Some("failed"));
                let jobs: Vec<Status> = jobs.await?;
                found.extend(jobs.into_iter().map(|mut job| {
                    job.name = format!("{} / {}", path.join(" / "), job.name);
                    (path[0].clone(), job)
                }));
                if path.len() < DEEPEST {
                    parents.push_back((child, path));
                }
            }
        }
        Ok(found)
    }

    /// A list of a pipeline; nothing where it is not shown, or the pipeline was deleted.
    async fn of_pipeline<T: DeserializeOwned>(
        &self,
        item: &ItemRef,
        pipeline: u64,
        list: &str,
        scope: Option<&str>,
    ) -> Result<Vec<T>, TrackerError> {
        let place = ["pipelines", &pipeline.to_string(), list];
        let mut url = self.project_url(&item.repo_id, &place);
        url.query_pairs_mut().append_pair("per_page", "100");
        if let Some(scope) = scope {
            url.query_pairs_mut().append_pair("scope[]", scope);
        }
        let what = format!("the {list} of pipeline {pipeline} in {}", item.repo_path);
        match self.client.list::<Value>(url, &what).await {
            Ok(found) => Ok(self.client.fitting(found, &what)),
            Err(TrackerError::NotFound { .. } | TrackerError::Forbidden { .. }) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// The same of the commit that a branch is at.
    pub(super) async fn checks_of_branch(
        &self,
        item: &ItemRef,
        branch: &str,
    ) -> Result<Checks, TrackerError> {
        let Some(commit) = self.branch_commit(item, branch).await? else {
            return Err(TrackerError::NotFound {
                tracker: TrackerKind::GitLab,
                what: format!("branch {branch} of {}", item.repo_path),
            });
        };
        self.checks_of(item, &commit, None).await
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

/// The newest of each name: the list has the jobs of all pipelines of the commit, so also of those that were started again.
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

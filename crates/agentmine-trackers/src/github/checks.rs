//! The checks of a commit: check runs of Apps, and statuses, which are older.

use agentmine_domain::{ItemRef, RedCheck};
use chrono::{DateTime, Utc};
use serde::Deserialize;
use serde_json::Value;

use super::api::Api;
use crate::error::TrackerError;
use crate::forge::Reply;
use crate::rounds::Checks;

/// The App whose check runs are jobs with a log, under the same number.
const ACTIONS: &str = "github-actions";
/// Workflows of a commit whose jobs are read.
const MOST_WORKFLOWS: usize = 20;
/// Conclusions of a check run that a change of the code may turn.
const RED: [&str; 3] = ["failure", "timed_out", "startup_failure"];

#[derive(Debug, Deserialize)]
struct Runs {
    check_runs: Vec<Value>,
}

/// A check run, or a job of GitHub Actions.
#[derive(Debug, Deserialize)]
struct Run {
    id: u64,
    name: String,
    /// `queued`, `in_progress`, `completed`, and more on Enterprise Server.
    status: String,
    conclusion: Option<String>,
    completed_at: Option<DateTime<Utc>>,
    app: Option<RunApp>,
    #[serde(default)]
    output: Output,
}

#[derive(Debug, Deserialize)]
struct RunApp {
    slug: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
struct Output {
    title: Option<String>,
    summary: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Workflows {
    workflow_runs: Vec<Value>,
}

/// A run of a workflow of GitHub Actions.
#[derive(Debug, Deserialize)]
struct Workflow {
    id: u64,
    status: String,
    conclusion: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Jobs {
    jobs: Vec<Value>,
}

#[derive(Debug, Deserialize)]
struct Combined {
    statuses: Vec<Value>,
}

#[derive(Debug, Deserialize)]
struct Status {
    context: String,
    /// `error`, `failure`, `pending` or `success`.
    state: String,
    description: Option<String>,
    updated_at: Option<DateTime<Utc>>,
}

impl Api {
    /// How the checks of a commit, or of a branch, stand, as far as the token may see them: a fine-grained personal token sees
    /// no check runs, but the jobs of GitHub Actions.
    ///
    /// # Errors
    /// [`TrackerError::Forbidden`] or [`TrackerError::NotFound`] if none of it is shown.
    pub(super) async fn checks(&self, item: &ItemRef, of: &str) -> Result<Checks, TrackerError> {
        let item = &self.current(item).await?;
        let what = format!("the checks of {of} in {}", item.repo_path);
        let mut checks = Checks::default();
        let mut hidden = None;
        if let Some(runs) = shown(self.runs(item, of, &what).await, &mut hidden)? {
            for run in self.client.fitting::<Run>(runs, &what) {
                run.count(&mut checks);
            }
        } else if let Some(jobs) = shown(self.jobs(item, of, &what).await, &mut hidden)? {
            for job in jobs {
                job.count(&mut checks);
            }
        }
        if let Some(statuses) = shown(self.statuses(item, of, &what).await, &mut hidden)? {
            for status in self.client.fitting::<Status>(statuses, &what) {
                status.count(&mut checks);
            }
        } else if let Some(error) = hidden.filter(|_| checks == Checks::default()) {
            return Err(error);
        }
        Ok(checks)
    }

    async fn runs(&self, item: &ItemRef, of: &str, what: &str) -> Result<Vec<Value>, TrackerError> {
        let mut url = self.repo_url(&item.repo_path, &["commits", of, "check-runs"])?;
        url.query_pairs_mut()
            .append_pair("filter", "latest")
            .append_pair("per_page", "100");
        let read = |reply: &Reply| Ok(reply.json::<Runs>()?.check_runs);
        self.client.pages(url, what, read).await
    }

    async fn statuses(
        &self,
        item: &ItemRef,
        of: &str,
        what: &str,
    ) -> Result<Vec<Value>, TrackerError> {
        let mut url = self.repo_url(&item.repo_path, &["commits", of, "status"])?;
        url.query_pairs_mut().append_pair("per_page", "100");
        let read = |reply: &Reply| Ok(reply.json::<Combined>()?.statuses);
        self.client.pages(url, what, read).await
    }

    /// The jobs of GitHub Actions for a commit, of the workflows that failed or have not ended.
    async fn jobs(&self, item: &ItemRef, of: &str, what: &str) -> Result<Vec<Run>, TrackerError> {
        let is_commit = of.len() >= 40 && of.bytes().all(|it| it.is_ascii_hexdigit());
        let commit = match is_commit {
            true => Some(of.to_owned()),
            false => self.branch_commit(item, of).await?,
        };
        let Some(commit) = commit else {
            return Ok(Vec::new());
        };
        let mut url = self.repo_url(&item.repo_path, &["actions", "runs"])?;
        url.query_pairs_mut()
            .append_pair("head_sha", &commit)
            .append_pair("per_page", "100");
        let read = |reply: &Reply| Ok(reply.json::<Workflows>()?.workflow_runs);
        let workflows = self.client.pages(url, what, read).await?;
        let workflows = self.client.fitting::<Workflow>(workflows, what).into_iter();
        let mut jobs = Vec::new();
        for workflow in workflows.filter(Workflow::matters).take(MOST_WORKFLOWS) {
            let id = workflow.id.to_string();
            let mut url = self.repo_url(&item.repo_path, &["actions", "runs", &id, "jobs"])?;
            url.query_pairs_mut()
                .append_pair("filter", "latest")
                .append_pair("per_page", "100");
            let read = |reply: &Reply| Ok(reply.json::<Jobs>()?.jobs);
            let found = self.client.pages(url, what, read).await?;
            let found = self.client.fitting::<Run>(found, what).into_iter();
            jobs.extend(found.map(|job| Run {
                app: Some(RunApp {
                    slug: Some(ACTIONS.to_owned()),
                }),
                ..job
            }));
        }
        Ok(jobs)
    }

    /// The end of a job's log.
    pub(super) async fn check_log(
        &self,
        item: &ItemRef,
        log: &str,
    ) -> Result<Option<String>, TrackerError> {
        let path = self.current(item).await?.repo_path;
        let url = self.repo_url(&path, &["actions", "jobs", log, "logs"])?;
        self.client.end_of(url).await
    }
}

/// What was answered, unless the token does not see it; the first such error is kept.
fn shown<T>(
    answer: Result<T, TrackerError>,
    hidden: &mut Option<TrackerError>,
) -> Result<Option<T>, TrackerError> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(error @ (TrackerError::Forbidden { .. } | TrackerError::NotFound { .. })) => {
            tracing::debug!(%error, "a part of the checks is not shown");
            hidden.get_or_insert(error);
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

impl Workflow {
    fn matters(&self) -> bool {
        let conclusion = self.conclusion.as_deref().unwrap_or_default();
        self.status != "completed" || RED.contains(&conclusion)
    }
}

impl Run {
    fn count(self, checks: &mut Checks) {
        if self.status != "completed" {
            checks.pending = true;
            return;
        }
        let conclusion = self.conclusion.unwrap_or_default();
        if !RED.contains(&conclusion.as_str()) {
            return;
        }
        let is_job = self.app.and_then(|app| app.slug).as_deref() == Some(ACTIONS);
        let said = [self.output.title, self.output.summary];
        let said: Vec<String> = said.into_iter().flatten().collect();
        let red = RedCheck {
            name: self.name,
            log: is_job.then(|| self.id.to_string()),
            summary: format!("{conclusion} {}", said.join(" ")),
            failure: String::new(),
        };
        checks.add(red, self.completed_at);
    }
}

impl Status {
    fn count(self, checks: &mut Checks) {
        match self.state.as_str() {
            "pending" => checks.pending = true,
            "failure" | "error" => {
                let red = RedCheck {
                    name: self.context,
                    log: None,
                    summary: self.description.unwrap_or_default(),
                    failure: String::new(),
                };
                checks.add(red, self.updated_at);
            }
            _ => {}
        }
    }
}

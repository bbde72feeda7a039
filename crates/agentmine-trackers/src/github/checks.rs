//! The checks of a commit: check runs of Apps, and statuses, which are older.

use agentmine_domain::{ItemRef, RedCheck};
use chrono::{DateTime, Utc};
use serde::Deserialize;
use serde_json::Value;

use super::api::Api;
use crate::error::TrackerError;
use crate::rounds::Checks;

/// The App whose check runs are jobs with a log, under the same number.
const ACTIONS: &str = "github-actions";
/// Conclusions of a check run that a change of the code may turn.
const RED: [&str; 3] = ["failure", "timed_out", "startup_failure"];

#[derive(Debug, Deserialize)]
struct Runs {
    check_runs: Vec<Value>,
}

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
    /// How the checks of a commit, or of a branch, stand.
    pub(super) async fn checks(&self, item: &ItemRef, of: &str) -> Result<Checks, TrackerError> {
        let path = self.current(item).await?.repo_path;
        let what = format!("the checks of {of} in {path}");
        let mut checks = Checks::default();
        let mut url = self.repo_url(&path, &["commits", of, "check-runs"])?;
        url.query_pairs_mut()
            .append_pair("filter", "latest")
            .append_pair("per_page", "100");
        let read = |reply: &crate::forge::Reply| Ok(reply.json::<Runs>()?.check_runs);
        let runs = self.client.pages(url, &what, read).await?;
        for run in self.client.fitting::<Run>(runs, &what) {
            run.count(&mut checks);
        }
        let mut url = self.repo_url(&path, &["commits", of, "status"])?;
        url.query_pairs_mut().append_pair("per_page", "100");
        let read = |reply: &crate::forge::Reply| Ok(reply.json::<Combined>()?.statuses);
        let statuses = self.client.pages(url, &what, read).await?;
        for status in self.client.fitting::<Status>(statuses, &what) {
            status.count(&mut checks);
        }
        Ok(checks)
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

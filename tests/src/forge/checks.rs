//! Check runs, statuses, and jobs of pipelines, with logs that are kept on another host.

use std::sync::Arc;

use axum::extract::{Path, Request};
use chrono::{DateTime, Utc};
use serde_json::{Value, json};

use super::rest::{self, Answer, Ask};
use super::shapes::time;
use super::state::Repo;
use super::{Forge, Inner, git};

/// A check of a commit.
#[derive(Debug, Clone)]
pub(super) struct CheckView {
    pub(super) id: u64,
    pub(super) commit: String,
    pub(super) name: String,
    /// `success`, `failure` or `pending`.
    pub(super) state: String,
    /// Of a job; a status has none.
    pub(super) log: Option<String>,
    /// Of a job of a child pipeline: the name of the job that began this.
    pub(super) bridge: Option<String>,
    pub(super) at: DateTime<Utc>,
}

/// A pipeline of GitLab whose configuration is invalid.
#[derive(Debug, Clone)]
pub(super) struct InvalidPipeline {
    pub(super) id: u64,
    pub(super) commit: String,
    /// What GitLab says of the configuration.
    pub(super) errors: String,
    pub(super) at: DateTime<Utc>,
}

impl Forge {
    /// The pipeline of a commit has no job on GitLab, since its configuration is invalid.
    ///
    /// # Panics
    /// If there is no such repository.
    pub fn add_invalid_pipeline(&self, repo: &str, commit: &str, errors: &str) {
        let id = self.inner.lock().id();
        self.with_repo_mut(repo, |repo| {
            repo.invalid.push(InvalidPipeline {
                id,
                commit: commit.to_owned(),
                errors: errors.to_owned(),
                at: Utc::now(),
            });
        });
    }

    /// A job of the forge's own CI comes to `success`, `failure` or `pending`, with a log.
    ///
    /// # Panics
    /// If there is no such repository.
    pub fn add_job(&self, repo: &str, commit: &str, name: &str, state: &str, log: &str) {
        self.add_check(repo, commit, (name, state), (Some(log), None));
    }

    /// A job of a child pipeline on GitLab, which a job `bridge` began and waits for.
    ///
    /// # Panics
    /// If there is no such repository.
    pub fn add_child_job(
        &self,
        repo: &str,
        commit: &str,
        bridge: &str,
        (name, state): (&str, &str),
        log: &str,
    ) {
        self.add_check(repo, commit, (name, state), (Some(log), Some(bridge)));
    }

    /// GitLab makes the commit for a merged-results pipeline of a merge request as it is now; returns it.
    ///
    /// # Panics
    /// If there is no such merge request, or git fails.
    pub fn merged_result(&self, repo: &str, number: u64) -> String {
        let dir = self.git_dir(repo);
        let mut pulls = self.pulls(repo).into_iter();
        let pull = pulls.find(|it| it.number == number).expect("it exists");
        let [head, base] = [&pull.head, &pull.base].map(|it| format!("refs/heads/{it}"));
        let tree = git::must(&dir, &["merge-tree", "--write-tree", &base, &head]);
        let made = [
            "-c",
            "user.name=GitLab",
            "-c",
            "user.email=gitlab@forge.invalid",
        ];
        let commit = [
            "commit-tree",
            tree.trim(),
            "-p",
            &base,
            "-p",
            &head,
            "-m",
            "Merge",
        ];
        let sha = git::must(&dir, &[&made[..], &commit[..]].concat());
        let name = format!("refs/merge-requests/{}/merge", pull.iid);
        git::must(&dir, &["update-ref", &name, sha.trim()]);
        sha.trim().to_owned()
    }

    /// Somebody else's service sets the status of a commit.
    ///
    /// # Panics
    /// If there is no such repository.
    pub fn add_status(&self, repo: &str, commit: &str, name: &str, state: &str) {
        self.add_check(repo, commit, (name, state), (None, None));
    }

    fn add_check(
        &self,
        repo: &str,
        commit: &str,
        (name, state): (&str, &str),
        (log, bridge): (Option<&str>, Option<&str>),
    ) {
        let id = self.inner.lock().id();
        self.with_repo_mut(repo, |repo| {
            // The newest of a name is shown.
            repo.checks
                .retain(|it| it.commit != commit || it.name != name);
            repo.checks.push(CheckView {
                id,
                commit: commit.to_owned(),
                name: name.to_owned(),
                state: state.to_owned(),
                log: log.map(str::to_owned),
                bridge: bridge.map(str::to_owned),
                at: Utc::now(),
            });
        });
    }
}

/// Serves logs on its own port: where a token arrives, it has leaked.
pub(super) fn serve_logs(inner: &Arc<Inner>, listener: std::net::TcpListener) {
    let inner = Arc::clone(inner);
    let serve = move |Path(id): Path<u64>, request: Request| {
        let inner = Arc::clone(&inner);
        async move {
            let mut state = inner.lock();
            let headers = request.headers();
            if headers.contains_key("authorization") || headers.contains_key("private-token") {
                let leak = format!("a token was sent to the host of logs: {}", request.uri());
                state.leaks.push(leak);
            }
            let mut checks = state.repos.iter().flat_map(|repo| &repo.checks);
            let log = checks.find(|it| it.id == id).and_then(|it| it.log.clone());
            log.unwrap_or_default()
        }
    };
    let app = axum::Router::new().route("/logs/{id}", axum::routing::get(serve));
    tokio::spawn(async move {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        axum::serve(listener, app).await
    });
}

impl CheckView {
    /// As GitHub's GraphQL shows it among the checks of a commit.
    pub(super) fn of_rollup(&self) -> Value {
        let upper = self.state.to_uppercase();
        if self.log.is_none() {
            return json!({
                "__typename": "StatusContext", "context": self.name, "state": upper,
                "targetUrl": "", "createdAt": time(self.at), "description": "said by a service",
            });
        }
        let is_over = self.state != "pending";
        json!({
            "__typename": "CheckRun", "name": self.name, "detailsUrl": "",
            "checkSuite": { "workflowRun": { "workflow": { "name": "tests" } } },
            "status": if is_over { "COMPLETED" } else { "IN_PROGRESS" },
            "conclusion": if is_over { upper.as_str() } else { "" },
            "startedAt": time(self.at), "completedAt": time(self.at),
        })
    }
}

/// The checks of a commit, or of the commit that a branch is at.
pub(super) fn of<'r>(repo: &'r Repo, named: &str) -> Vec<&'r CheckView> {
    let commit = repo.sha(named).unwrap_or_else(|| named.to_owned());
    let checks = repo.checks.iter();
    checks.filter(|it| it.commit == commit).collect()
}

/// GitHub: `/repos/O/R/commits/REF/check-runs`.
pub(super) fn runs(inner: &Inner, ask: &Ask, repo: &Repo, named: &str) -> Answer {
    let runs = of(repo, named).into_iter().filter(|it| it.log.is_some());
    let runs: Vec<_> = runs.collect();
    let total = runs.len();
    let (runs, link) = rest::cut(inner, ask, runs);
    let runs: Vec<Value> = runs
        .into_iter()
        .map(|it| {
            let is_over = it.state != "pending";
            json!({
                "id": it.id, "name": it.name, "head_sha": it.commit,
                "status": if is_over { "completed" } else { "in_progress" },
                "conclusion": is_over.then_some(&it.state),
                "started_at": time(it.at), "completed_at": is_over.then(|| time(it.at)),
                "app": { "id": 15368, "slug": "github-actions", "name": "GitHub Actions" },
                "output": { "title": null, "summary": null, "text": null, "annotations_count": 0 },
            })
        })
        .collect();
    Answer {
        link,
        ..Answer::ok(json!({ "total_count": total, "check_runs": runs }))
    }
}

/// GitHub: `/repos/O/R/commits/REF/status`.
pub(super) fn status(repo: &Repo, named: &str) -> Answer {
    let statuses = of(repo, named).into_iter().filter(|it| it.log.is_none());
    let statuses: Vec<Value> = statuses
        .map(|it| {
            json!({
                "id": it.id, "context": it.name, "state": it.state, "description": "said by a service",
                "target_url": null, "created_at": time(it.at), "updated_at": time(it.at),
            })
        })
        .collect();
    Answer::ok(json!({ "sha": named, "total_count": statuses.len(), "statuses": statuses }))
}

/// GitHub: `/repos/O/R/actions/jobs/ID/logs`, which leads to another host.
pub(super) fn log(inner: &Inner, repo: &Repo, id: &str) -> Answer {
    match repo
        .checks
        .iter()
        .any(|it| it.id.to_string() == id && it.log.is_some())
    {
        true => Answer {
            location: Some(format!("{}/logs/{id}", inner.logs)),
            ..Answer::new(302, Value::Null)
        },
        false => Answer::not_found(),
    }
}

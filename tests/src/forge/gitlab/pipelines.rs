//! Pipelines with their jobs, child pipelines, and those for merged results.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::super::checks::{CheckView, InvalidPipeline};
use super::super::rest::{Answer, Ask};
use super::super::shapes::time;
use super::super::state::{Issue, Repo, State};
use super::super::{Inner, git};
use super::missing;

/// Ids of pipelines, and of the jobs that begin others, by the first check in them.
const PIPELINE: u64 = 5_000_000;
const BRIDGE: u64 = 6_000_000;
const CHILD: u64 = 7_000_000;

pub(in super::super) fn word(state: &str) -> &'static str {
    match state {
        "failure" => "failed",
        "pending" => "running",
        _ => "success",
    }
}

/// How several checks stand together.
fn worst(of: &[&CheckView]) -> &'static str {
    let states = ["failure", "pending"];
    let mut found = states
        .iter()
        .filter(|state| of.iter().any(|it| it.state == **state));
    word(found.next().copied().unwrap_or("success"))
}

fn of_commit<'r>(repo: &'r Repo, commit: &str) -> Vec<&'r CheckView> {
    let checks = repo.checks.iter();
    checks.filter(|it| it.commit == commit).collect()
}

/// What is below a project for its checks; `None` if the request is about something else.
pub(super) fn dispatch(
    inner: &Inner,
    state: &State,
    ask: &Ask,
    name: &str,
    rest: &[&str],
) -> Option<Answer> {
    let repo = state.repo(name)?;
    match (ask.method.as_str(), rest) {
        ("GET", ["repository", "commits", commit]) => {
            let shown = ["rev-list", "--parents", "-n", "1", *commit];
            let Some(line) = git::try_out(&repo.git_dir, &shown) else {
                return Some(missing("Commit"));
            };
            // A name of a branch is answered with its commit.
            let mut commits = line.split_whitespace();
            let id = commits.next()?;
            let parents: Vec<&str> = commits.collect();
            Some(Answer::ok(json!({
                "id": id, "short_id": &id[..8], "title": "a commit", "message": "a commit", "parent_ids": parents,
            })))
        }
        ("GET", ["repository", "commits", commit, "statuses"]) => {
            let checks = of_commit(repo, commit);
            let own = checks.iter().filter(|it| it.bridge.is_none());
            let own = own.map(|it| status(it, it.id, &it.name, word(&it.state)));
            let bridges = bridges(&checks).into_iter();
            let bridges = bridges
                .map(|(name, jobs)| status(jobs[0], jobs[0].id + BRIDGE, name, worst(&jobs)));
            Some(Answer::page(inner, ask, own.chain(bridges).collect()))
        }
        ("GET", ["pipelines"]) => {
            let sha = ask.param("sha").unwrap_or_default();
            let found = pipeline(repo, sha, "x");
            Some(Answer::page(inner, ask, found.into_iter().collect()))
        }
        ("GET", ["pipelines", id]) => {
            let invalid = repo.invalid.iter().find(|it| it.id.to_string() == *id);
            let found = invalid.map(|invalid| {
                let mut value = of_invalid(repo, invalid, "x");
                value["yaml_errors"] = invalid.errors.as_str().into();
                Answer::ok(value)
            });
            Some(found.unwrap_or_else(|| missing("")))
        }
        ("GET", ["pipelines", id, "bridges" | "jobs"])
            if repo.invalid.iter().any(|it| it.id.to_string() == *id) =>
        {
            Some(Answer::page(inner, ask, Vec::new()))
        }
        ("GET", ["pipelines", id, list @ ("bridges" | "jobs")]) => Some(below(
            inner,
            ask,
            repo,
            id.parse().unwrap_or_default(),
            list,
        )),
        ("GET", ["jobs", id, "trace"]) => {
            let found = repo.checks.iter().find(|it| it.id.to_string() == *id);
            Some(match found.and_then(|it| it.log.clone()) {
                Some(log) => Answer::ok(Value::String(log)),
                None => Answer::new(404, json!({ "message": "404 Not Found" })),
            })
        }
        _ => None,
    }
}

/// A job or the status of a service, in the list of a commit.
fn status(of: &CheckView, id: u64, name: &str, status: &str) -> Value {
    json!({
        "id": id, "sha": of.commit, "ref": null, "name": name, "status": status,
        "allow_failure": false, "description": null, "target_url": null,
        "created_at": time(of.at), "started_at": time(of.at), "finished_at": time(of.at),
        "coverage": null, "author": null,
    })
}

/// The jobs that began child pipelines, with the jobs of these.
fn bridges<'c>(checks: &[&'c CheckView]) -> Vec<(&'c str, Vec<&'c CheckView>)> {
    let names: BTreeSet<&str> = checks
        .iter()
        .filter_map(|it| it.bridge.as_deref())
        .collect();
    let of = |name: &str| {
        let jobs = checks.iter().copied();
        jobs.filter(|it| it.bridge.as_deref() == Some(name))
            .collect()
    };
    names.into_iter().map(|name| (name, of(name))).collect()
}

/// The pipeline of a commit, if it has one. Child pipelines are in no list.
pub(in super::super) fn pipeline(repo: &Repo, commit: &str, reference: &str) -> Option<Value> {
    if let Some(invalid) = repo.invalid.iter().find(|it| it.commit == commit) {
        return Some(of_invalid(repo, invalid, reference));
    }
    let checks = of_commit(repo, commit);
    let first = checks.first()?;
    let source = match reference {
        "x" => "push",
        _ => "merge_request_event",
    };
    Some(json!({
        "id": first.id + PIPELINE, "iid": 1, "project_id": repo.id, "sha": commit, "ref": reference,
        "status": worst(&checks), "source": source,
        "created_at": time(first.at), "updated_at": time(first.at),
    }))
}

/// A pipeline without a job.
fn of_invalid(repo: &Repo, invalid: &InvalidPipeline, reference: &str) -> Value {
    json!({
        "id": invalid.id, "iid": 1, "project_id": repo.id, "sha": invalid.commit, "ref": reference,
        "status": "failed", "source": "push",
        "created_at": time(invalid.at), "updated_at": time(invalid.at),
    })
}

/// The newest pipeline of a merge request. As with some versions of GitLab, that for a merged result stays when the head
/// moves.
pub(super) fn of_head(repo: &Repo, issue: &Issue) -> Option<Value> {
    let reference = format!("refs/merge-requests/{}/merge", issue.iid);
    let merged = git::try_out(&repo.git_dir, &["rev-parse", "--verify", "-q", &reference]);
    let merged = merged.and_then(|sha| pipeline(repo, sha.trim(), &reference));
    let head = issue.pull.as_ref().and_then(|pull| repo.sha(&pull.head));
    merged.or_else(|| pipeline(repo, &head?, "x"))
}

/// What is in a pipeline: its jobs, or those of them that began others.
fn below(inner: &Inner, ask: &Ask, repo: &Repo, id: u64, list: &str) -> Answer {
    let is_failed = ask.param("scope[]") == Some("failed");
    let commits: BTreeSet<&str> = repo.checks.iter().map(|it| it.commit.as_str()).collect();
    for commit in commits {
        let checks = of_commit(repo, commit);
        let children = bridges(&checks);
        let job = |it: &&CheckView| {
            let mut job = status(it, it.id, &it.name, word(&it.state));
            job["stage"] = "test".into();
            job["failure_reason"] = (it.state == "failure").then_some("script_failure").into();
            job
        };
        let jobs = |all: &[&CheckView]| {
            let all = all.iter().filter(|it| !is_failed || it.state == "failure");
            Answer::page(inner, ask, all.map(job).collect())
        };
        if checks[0].id + PIPELINE == id {
            return match list {
                "jobs" => {
                    let own = checks.iter().copied();
                    let own: Vec<&CheckView> = own.filter(|it| it.bridge.is_none()).collect();
                    jobs(&own)
                }
                _ => {
                    let all = children.iter();
                    let all = all.map(|(name, jobs)| bridge(repo, name, jobs));
                    Answer::page(inner, ask, all.collect())
                }
            };
        }
        if let Some((_, own)) = children.iter().find(|(_, own)| own[0].id + CHILD == id) {
            return match list {
                "jobs" => jobs(own),
                _ => Answer::page(inner, ask, Vec::new()),
            };
        }
    }
    missing("")
}

fn bridge(repo: &Repo, name: &str, jobs: &[&CheckView]) -> Value {
    let mut value = status(jobs[0], jobs[0].id + BRIDGE, name, worst(jobs));
    value["stage"] = "test".into();
    value["downstream_pipeline"] = json!({
        "id": jobs[0].id + CHILD, "iid": 2, "project_id": repo.id, "sha": jobs[0].commit, "ref": "x",
        "status": worst(jobs), "source": "parent_pipeline",
        "created_at": time(jobs[0].at), "updated_at": time(jobs[0].at),
    });
    value
}

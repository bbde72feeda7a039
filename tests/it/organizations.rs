//! Organizations and groups: their repositories are found, and found again when they change.

use std::time::Duration;

use agentmine_runtime::config::{GitHub, GitLab};
use agentmine_tests::forge::{DEMO, Fault, Forge, write_demo};
use agentmine_trackers::{GitHubTracker, GitLabTracker, Tracker, TrackerError};
use chrono::TimeDelta;
use serde_json::json;

use crate::rig::{REQUEST, Rig, assert_done, solves_demo};

const LATER: &str = "octo/later";

fn config(forge: &Forge, organizations: &[&str], discovery_seconds: u64) -> GitHub {
    GitHub {
        organizations: organizations.iter().map(ToString::to_string).collect(),
        discovery_seconds,
        ..forge.config(&[])
    }
}

async fn places(tracker: &dyn Tracker) -> Vec<String> {
    let found = tracker.candidates(REQUEST).await.unwrap();
    let mut places: Vec<_> = found.iter().map(|it| it.item.to_string()).collect();
    places.sort_unstable();
    places
}

fn skipped(tracker: &dyn Tracker) -> Vec<String> {
    let skipped = tracker.skipped().into_iter();
    skipped.map(|it| it.what).collect()
}

fn asked(forge: &Forge, path: &str) -> usize {
    let requests = forge.requests();
    let to = requests.iter().filter(|it| it.target.contains(path));
    to.count()
}

/// A forge whose organization has these repositories, each with a labelled issue.
async fn forge_with(names: &[&str]) -> Forge {
    agentmine_runtime::tls::install_default_provider();
    let forge = Forge::start().await;
    for name in names {
        add(&forge, name);
    }
    forge
}

fn add(forge: &Forge, name: &str) {
    forge.add_repo_without_git(name);
    forge.add_issue(name, "Asked", "", &[REQUEST]);
}

#[tokio::test]
async fn repositories_of_an_organization_come_and_go_without_a_restart() {
    let forge = forge_with(&["octo/one", "octo/two", "elsewhere/three"]).await;
    let tracker = GitHubTracker::new(&config(&forge, &["Octo"], 0)).unwrap();
    assert_eq!(places(&tracker).await, ["octo/one#1", "octo/two#1"]);
    add(&forge, LATER);
    forge.archive("octo/two", true);
    assert_eq!(places(&tracker).await, ["octo/later#1", "octo/one#1"]);
    forge.archive("octo/two", false);
    forge.hide("octo/one", true);
    forge.rename_repo(LATER, "octo/renamed");
    assert_eq!(places(&tracker).await, ["octo/renamed#1", "octo/two#1"]);
    // What left is no fault.
    assert_eq!(skipped(&tracker), Vec::<String>::new());
}

#[tokio::test]
async fn a_repository_that_is_named_and_of_an_organization_is_scanned_once() {
    let forge = forge_with(&["octo/one", "octo/two"]).await;
    let config = GitHub {
        repositories: vec!["Octo/One".into()],
        ..config(&forge, &["octo"], 300)
    };
    let tracker = GitHubTracker::new(&config).unwrap();
    assert_eq!(places(&tracker).await, ["octo/one#1", "octo/two#1"]);
    assert_eq!(asked(&forge, "/repos/octo/one/issues?"), 0);
    assert_eq!(asked(&forge, "/repos/Octo/One/issues?"), 1);
}

#[tokio::test]
async fn an_organization_is_listed_once_in_its_interval() {
    let forge = forge_with(&["octo/one"]).await;
    let tracker = GitHubTracker::new(&config(&forge, &["octo"], 300)).unwrap();
    for _ in 0..3 {
        assert_eq!(places(&tracker).await, ["octo/one#1"]);
    }
    assert_eq!(asked(&forge, "/orgs/octo/repos"), 1);
    // A webhook names what nobody has listed yet.
    assert!(tracker.scans("octo/unknown") && !tracker.scans("elsewhere/unknown"));
    let found = tracker.candidates_in("octo/unknown", REQUEST).await;
    assert_eq!(found.unwrap(), []);
    assert_eq!(asked(&forge, "/repos/octo/unknown"), 0);
}

#[tokio::test]
async fn a_webhook_from_a_new_repository_of_an_organization_is_followed() {
    let forge = forge_with(&["octo/one"]).await;
    let tracker = GitHubTracker::new(&config(&forge, &["octo"], 0)).unwrap();
    assert_eq!(places(&tracker).await, ["octo/one#1"]);
    add(&forge, LATER);
    let found = tracker.candidates_in(LATER, REQUEST).await.unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(asked(&forge, "/orgs/octo/repos"), 2);
}

/// Three pages.
#[tokio::test]
async fn all_pages_of_an_organization_are_read_and_an_unchanged_one_is_free() {
    agentmine_runtime::tls::install_default_provider();
    let forge = Forge::start().await;
    for n in 0..230 {
        forge.add_repo_without_git(&format!("octo/r{n}"));
    }
    for n in [0, 120, 229] {
        forge.add_issue(&format!("octo/r{n}"), "Asked", "", &[REQUEST]);
    }
    // Triggers of items that have just changed are not remembered.
    forge.age(TimeDelta::hours(1));
    let tracker = GitHubTracker::new(&config(&forge, &["octo"], 0)).unwrap();
    assert_eq!(places(&tracker).await.len(), 3);
    assert_eq!(asked(&forge, "/orgs/octo/repos"), 3);
    // The lists name the repositories: nothing else is asked but their items, and the events of three of these.
    assert_eq!(forge.requests().len(), 3 + 230 + 3);
    let before = forge.requests().len();
    assert_eq!(places(&tracker).await.len(), 3);
    let requests = forge.requests();
    let new = &requests[before..];
    assert_eq!(new.len(), 3 + 230);
    assert!(new.iter().all(|it| it.status == 304));
}

/// A list of the owner's repositories names them all.
#[tokio::test]
async fn many_configured_repositories_of_one_owner_cost_three_requests_each_at_first() {
    let names: Vec<String> = (0..60).map(|n| format!("octo/r{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let forge = forge_with(&names).await;
    for name in &names {
        forge.add_issue(name, "Asked too", "", &[REQUEST]);
    }
    forge.age(TimeDelta::hours(1));
    let tracker = GitHubTracker::new(&forge.config(&names)).unwrap();
    assert_eq!(places(&tracker).await.len(), 120);
    tracker.candidates("coding agent processing").await.unwrap();
    assert_eq!(forge.requests().len(), 1 + 3 * 60);
    let before = forge.requests().len();
    assert_eq!(places(&tracker).await.len(), 120);
    let requests = forge.requests();
    assert_eq!(requests.len() - before, 60);
    assert!(requests[before..].iter().all(|it| it.status == 304));
    // That of a user is asked for one by one.
    forge.make_user_namespace("octo");
    let tracker = GitHubTracker::new(&forge.config(&names)).unwrap();
    assert_eq!(places(&tracker).await.len(), 120);
}

#[tokio::test]
async fn an_organization_that_cannot_be_listed_stops_no_other_one() {
    let forge = forge_with(&["octo/one", "closed/two"]).await;
    for status in [403, 404] {
        let refused = Fault::on("GET", "/orgs/closed/repos")
            .times(2)
            .status(status);
        forge.inject(refused.body("{\"message\":\"not for you\"}"));
        let organizations = ["closed", "octo"];
        let tracker = GitHubTracker::new(&config(&forge, &organizations, 300)).unwrap();
        for _ in 0..2 {
            assert_eq!(places(&tracker).await, ["octo/one#1"]);
            assert_eq!(skipped(&tracker), ["organization closed"]);
        }
        assert_eq!(places(&tracker).await, ["closed/two#1", "octo/one#1"]);
        assert_eq!(skipped(&tracker), Vec::<String>::new());
        let access = tracker.access().await.unwrap();
        assert_eq!(access.missing, Vec::<String>::new());
    }
    let only = GitHubTracker::new(&config(&forge, &["gone"], 300)).unwrap();
    let error = only.candidates(REQUEST).await.unwrap_err();
    assert!(matches!(error, TrackerError::NotFound { .. }), "{error}");
    let missing = only.access().await.unwrap().missing.concat();
    assert!(
        missing.contains("organization gone does not exist"),
        "{missing}"
    );
}

/// While the server is away, what was listed before is still known.
#[tokio::test]
async fn an_outage_forgets_no_repository_of_an_organization() {
    let forge = forge_with(&["octo/one"]).await;
    let tracker = GitHubTracker::new(&config(&forge, &["octo"], 0)).unwrap();
    assert_eq!(places(&tracker).await, ["octo/one#1"]);
    forge.inject(Fault::on("GET", "/orgs/octo/repos").times(20).status(502));
    assert_eq!(places(&tracker).await, ["octo/one#1"]);
    assert_eq!(skipped(&tracker), ["organization octo"]);
}

/// The producer's log names an organization that is gone once, and what was made after its start becomes a pull request.
#[tokio::test]
async fn an_issue_of_a_later_repository_of_an_organization_becomes_a_pull_request() {
    let mut rig = Rig::local(solves_demo()).await;
    let github = json!({
        "api_url": rig.forge.api_url(), "organizations": ["gone", "octo"], "discovery_seconds": 1,
    });
    rig.config["trackers"] = json!({ "github": github });
    becomes_a_pull_request(&rig, LATER, "organization gone").await;
}

#[tokio::test]
async fn an_issue_of_a_later_project_of_a_subgroup_becomes_a_merge_request() {
    let mut rig = Rig::local_gitlab(solves_demo()).await;
    rig.config["trackers"]["gitlab"]["projects"] = json!([]);
    rig.config["trackers"]["gitlab"]["groups"] = json!(["gone", "octo"]);
    becomes_a_pull_request(&rig, "octo/sub/later", "issues of groups gone").await;
}

async fn becomes_a_pull_request(rig: &Rig, later: &str, gone: &str) {
    let producer = rig.spawn("producer", &[]);
    producer.wait_for("scanned").await;
    rig.forge.add_repo(later, write_demo);
    rig.forge.add_issue(
        later,
        "greet.sh greets nobody",
        "It should greet.",
        &[REQUEST],
    );
    rig.wait("the task", |tasks| tasks.len() == 1).await;
    let scans = || asked(&rig.forge, "/issues?");
    let before = scans();
    rig.forge
        .wait_until("two more scans", Duration::from_secs(20), |_| {
            scans() > before + 6
        })
        .await;
    producer.terminate();
    let (status, log) = producer.end().await;
    assert!(status.success(), "{log}");
    let reported = log
        .lines()
        .filter(|line| line.contains(gone) && line.contains("skipped until it can"));
    assert_eq!(reported.count(), 1, "{log}");
    rig.consume().await;
    let task = rig.task().await;
    assert_done(&task);
    assert_eq!(task.item.repo_path, later);
    let pulls = rig.forge.pulls(later);
    assert_eq!(pulls.len(), 1);
    assert_eq!(rig.forge.pulls(DEMO).len(), 0);
}

#[tokio::test]
async fn a_group_that_cannot_be_listed_stops_no_other_one() {
    let forge = forge_with(&["octo/sub/one", "closed/two"]).await;
    let refused = Fault::on("GET", "/groups/closed/").times(2).status(403);
    forge.inject(refused.body("{\"message\":\"403 Forbidden\"}"));
    let config = GitLab {
        groups: vec!["closed".into(), "octo".into()],
        ..forge.gitlab_config(&[])
    };
    let tracker = GitLabTracker::new(&config).unwrap();
    assert_eq!(places(&tracker).await, ["octo/sub/one#1"]);
    let expected = ["issues of groups closed", "merge_requests of groups closed"];
    assert_eq!(skipped(&tracker), expected);
    assert_eq!(places(&tracker).await, ["closed/two#1", "octo/sub/one#1"]);
    assert_eq!(skipped(&tracker), Vec::<String>::new());
}

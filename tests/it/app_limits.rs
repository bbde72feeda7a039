//! The rate limits of a GitHub App: each installation has its own, and one that is exhausted stops no other owner's work.

use std::time::Duration;

use agentmine_runtime::config::{GitHub, GitHubApp};
use agentmine_tests::forge::{App, DEMO, Fault, Forge, Installation, write_demo};
use agentmine_trackers::{GitHubTracker, Tracker, TrackerError};
use serde_json::json;
use tempfile::TempDir;

use crate::apps::{app, key_in};
use crate::rig::{REQUEST, Rig, solves_demo};

const OTHER: &str = "other/demo";
const HOUR: Duration = Duration::from_secs(3600);
/// The installations of the owners of both repositories.
const OF_DEMO: u64 = 12;
const OF_OTHER: u64 = 13;

/// The App, installed for both owners.
fn with_two_owners(mut app: App) -> App {
    let permissions = app.installations[0].permissions.clone();
    app.installations.push(Installation {
        id: OF_OTHER,
        owner: "other".into(),
        permissions,
    });
    app
}

struct World {
    forge: Forge,
    tracker: GitHubTracker,
    _folder: TempDir,
}

/// An issue of each owner, and a repository more of the first one.
async fn world() -> World {
    let folder = tempfile::tempdir().unwrap();
    let forge = Forge::start_tls().await;
    for repo in [DEMO, OTHER, "octo/more"] {
        forge.add_repo_without_git(repo);
    }
    for repo in [DEMO, OTHER] {
        forge.add_issue(repo, "title", "text", &[REQUEST]);
    }
    let key = key_in(folder.path());
    forge.add_app(with_two_owners(app(&key)));
    let config = GitHub {
        token: None,
        app: Some(GitHubApp {
            id: 4711,
            key_file: Some(key),
            key: None,
            installation: None,
        }),
        ..forge.config(&[DEMO, "octo/more", OTHER])
    };
    World {
        tracker: GitHubTracker::new(&config).unwrap(),
        forge,
        _folder: folder,
    }
}

impl World {
    /// Whose issues a scan finds.
    async fn found(&self) -> Vec<String> {
        let found = self.tracker.candidates(REQUEST).await.unwrap();
        let mut paths: Vec<String> = found.into_iter().map(|it| it.item.repo_path).collect();
        paths.sort_unstable();
        paths
    }

    /// What is reported as not readable, which is a limit.
    fn limited(&self) -> Vec<String> {
        let skipped = self.tracker.skipped();
        for it in &skipped {
            let is_limit = it.reason.contains("limits the rate of requests until 20");
            assert!(is_limit, "{}", it.reason);
        }
        skipped.into_iter().map(|it| it.what).collect()
    }

    fn asked(&self, part: &str) -> usize {
        let all = self.forge.requests();
        all.iter().filter(|it| it.target.contains(part)).count()
    }
}

#[tokio::test]
async fn an_exhausted_installation_is_reported_and_the_others_are_scanned() {
    let world = world().await;
    assert_eq!(world.found().await, [DEMO, OTHER]);
    assert_eq!(world.limited(), Vec::<String>::new());
    world.forge.limit_installation(OF_DEMO, 0, HOUR);
    world
        .forge
        .add_issue("octo/more", "title", "text", &[REQUEST]);
    assert_eq!(world.found().await, [OTHER]);
    assert_eq!(world.limited(), ["repositories of octo"]);
    // Its gate is closed: nothing is asked any more.
    let asked = world.asked("/repos/octo/");
    assert_eq!(world.found().await, [OTHER]);
    assert_eq!(world.asked("/repos/octo/"), asked);
    let of_webhook = world.tracker.candidates_in(DEMO, REQUEST).await;
    let error = of_webhook.unwrap_err();
    assert!(matches!(error, TrackerError::RateLimited { .. }), "{error}");
    assert_eq!(world.asked("/repos/octo/"), asked);

    // Nothing can be read.
    world.forge.limit_installation(OF_OTHER, 0, HOUR);
    let error = world.tracker.candidates(REQUEST).await.unwrap_err();
    assert!(matches!(error, TrackerError::RateLimited { .. }), "{error}");
    let both = ["repositories of octo", "repositories of other"];
    assert_eq!(world.limited(), both);
}

/// GitHub does not say whom a secondary limit holds for. The other installation learns of it by its own request.
#[tokio::test]
async fn a_secondary_limit_closes_the_gates_of_its_installation() {
    let world = world().await;
    let limited = Fault::on("GET", "/repos/octo/demo/issues")
        .status(403)
        .header("retry-after", "600")
        .body("{\"message\":\"You have exceeded a secondary rate limit.\"}");
    world.forge.inject(limited);
    assert_eq!(world.found().await, [OTHER]);
    assert_eq!(world.limited(), ["repositories of octo"]);
    // Nothing is asked again, and the other one is not held up.
    let asked = world.asked("/repos/octo/");
    assert_eq!(world.found().await, [OTHER]);
    assert_eq!(world.limited(), ["repositories of octo"]);
    assert_eq!(world.asked("/repos/octo/"), asked);
}

/// Tokens are requested as the App, which has its own limits.
#[tokio::test]
async fn a_limit_of_the_app_itself_leaves_the_tokens_that_it_has() {
    let world = world().await;
    let found = world.tracker.candidates_in(DEMO, REQUEST).await;
    assert_eq!(found.unwrap().len(), 1);
    let limited = Fault::on("POST", "/app/installations/13/access_tokens")
        .status(403)
        .header("retry-after", "600")
        .body("{\"message\":\"You have exceeded a secondary rate limit.\"}");
    world.forge.inject(limited);
    for _ in 0..2 {
        assert_eq!(world.found().await, [DEMO]);
        assert_eq!(world.limited(), ["repositories of other"]);
    }
    assert_eq!(world.asked("/app/installations/13/access_tokens"), 1);
}

/// One of the two waits for the reset of its limit, and the other one does not.
#[tokio::test]
async fn an_exhausted_installation_delays_no_other_owners_task() {
    let mut rig = Rig::local(solves_demo()).await;
    rig.forge.add_repo(OTHER, write_demo);
    let key = key_in(rig.folder.path());
    rig.forge.add_app(with_two_owners(app(&key)));
    rig.config["trackers"]["github"]["repositories"] = json!([DEMO, OTHER]);
    rig.config["trackers"]["github"]["app"] = json!({ "id": 4711, "key_file": key });
    rig.label_issue();
    rig.forge
        .add_issue(OTHER, "Say hello", "It should greet.", &[REQUEST]);
    rig.forge.limit_installation(OF_DEMO, 0, HOUR);
    rig.produce().await;
    assert_eq!(rig.task().await.item.repo_path, OTHER);
    rig.forge.limit_installation(OF_DEMO, 5000, HOUR);
    rig.produce().await;
    let tasks = rig.tasks().await;
    let mut paths: Vec<&str> = tasks.iter().map(|it| it.item.repo_path.as_str()).collect();
    paths.sort_unstable();
    assert_eq!(paths, [DEMO, OTHER]);
}

/// A limit of the only token holds for all: the scan ends where it is met.
#[tokio::test]
async fn an_exhausted_token_ends_the_scan_at_once() {
    let world = world().await;
    let names: Vec<String> = (0..40).map(|n| format!("octo/r{n}")).collect();
    names
        .iter()
        .for_each(|it| world.forge.add_repo_without_git(it));
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let tracker = GitHubTracker::new(&world.forge.config(&names)).unwrap();
    world.forge.limit_rate(0, HOUR);
    for _ in 0..2 {
        let error = tracker.candidates(REQUEST).await.unwrap_err();
        assert!(matches!(error, TrackerError::RateLimited { .. }), "{error}");
        // It is no fault of single repositories, each of which would be skipped.
        let skipped = tracker.skipped();
        assert!(skipped.is_empty(), "{skipped:?}");
    }
    // Those that were requested together.
    let asked = world.asked("/repos/octo/r");
    assert!((1..=8).contains(&asked), "{asked}");
}

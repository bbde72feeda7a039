//! GitHub Apps: tokens for one repository and few permissions, and a client of others that gets some too.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agentmine_domain::ItemRef;
use agentmine_runtime::app_key::AppKey;
use agentmine_runtime::config::{self, GitHub, GitHubApp, Sources};
use agentmine_runtime::live_secret::LiveSecret;
use agentmine_tests::forge::{App, AskedGraphql, DEMO, Fault, Forge, Installation};
use agentmine_trackers::github::GRAPHQL_TEXTS;
use agentmine_trackers::{GitHubTracker, GitSource, NewPullRequest, Tracker, TrackerError};
use chrono::TimeDelta;
use serde_json::json;
use tempfile::TempDir;

use crate::forge_clients::node;
use crate::rig::{PATIENCE, REQUEST, Rig, assert_done, solves_demo};
use crate::trackers::{new_pull, permit};

const LOGIN: &str = "miner[bot]";

/// A key as GitHub hands it out.
pub(crate) fn key_in(folder: &Path) -> PathBuf {
    let file = folder.join("app.pem");
    let made = std::process::Command::new("openssl")
        .args(["genrsa", "-traditional", "-out"])
        .arg(&file)
        .arg("2048")
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    file
}

pub(crate) fn app(key: &Path) -> App {
    let key = AppKey::parse(&std::fs::read_to_string(key).unwrap()).unwrap();
    let permissions = ["contents", "issues", "metadata", "pull_requests"];
    let permissions = permissions.map(|name| (name.to_owned(), "write".to_owned()));
    App {
        id: 4711,
        slug: "miner".into(),
        public_key: key.public().to_vec(),
        installations: vec![Installation {
            id: 12,
            owner: "octo".into(),
            permissions: BTreeMap::from(permissions),
        }],
        lasts: TimeDelta::hours(1),
    }
}

pub(crate) struct World {
    pub(crate) forge: Forge,
    pub(crate) config: GitHub,
    key: PathBuf,
    _folder: TempDir,
}

impl World {
    /// The App is installed again, so that its tokens end.
    pub(crate) fn installs_as(&self, id: u64) {
        let change = |apps: &mut Vec<App>| apps[0].installations[0].id = id;
        self.forge.change_apps(change);
    }

    pub(crate) fn uninstalls(&self) {
        let change = |apps: &mut Vec<App>| apps[0].installations.clear();
        self.forge.change_apps(change);
    }

    /// They last for what is spare, and two seconds.
    pub(crate) fn tokens_are_replaced_in_two_seconds(&self) {
        let change = |apps: &mut Vec<App>| apps[0].lasts = TimeDelta::seconds(602);
        self.forge.change_apps(change);
    }
}

/// The same configuration with the App in place of the token.
pub(crate) fn with_app(config: GitHub, key: &Path) -> GitHub {
    GitHub {
        token: None,
        app: Some(GitHubApp {
            id: 4711,
            key_file: Some(key.to_owned()),
            key: None,
            installation: None,
        }),
        ..config
    }
}

/// A forge over TLS, as an Enterprise Server under its own authority.
async fn world() -> World {
    let folder = tempfile::tempdir().unwrap();
    let forge = Forge::start_tls().await;
    forge.add_repo(DEMO, agentmine_tests::forge::write_demo);
    let key = key_in(folder.path());
    forge.add_app(app(&key));
    let config = with_app(forge.config(&[DEMO]), &key);
    World {
        forge,
        config,
        key,
        _folder: folder,
    }
}

/// With one issue that asks for work.
pub(crate) async fn world_with_issue() -> World {
    let world = world().await;
    world.forge.add_issue(DEMO, "title", "text", &[REQUEST]);
    world
}

/// A tracker, and the first item that it finds.
pub(crate) async fn found(config: &GitHub) -> (GitHubTracker, ItemRef) {
    let tracker = GitHubTracker::new(config).unwrap();
    let item = tracker.candidates(REQUEST).await.unwrap().remove(0).item;
    (tracker, item)
}

pub(crate) fn assert_not_installed(error: &TrackerError) {
    let text = error.to_string();
    assert!(text.contains("is not installed for octo"), "{text}");
}

pub(crate) async fn git_token(tracker: &GitHubTracker) -> LiveSecret {
    let item = tracker.candidates(REQUEST).await.unwrap().remove(0).item;
    match tracker.repository(&item).await.unwrap().source {
        GitSource::Http { password, .. } => password.unwrap(),
        GitSource::Path(path) => panic!("{}", path.display()),
    }
}

pub(crate) async fn until(what: &str, is_so: impl Fn() -> bool) {
    let begun = std::time::Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "waited for {what} in vain");
        // The forge's records are no events.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn tokens_read_everywhere_write_in_one_repository_and_are_revoked_at_the_end() {
    let world = world_with_issue().await;
    let tracker = GitHubTracker::new(&world.config).unwrap();
    assert_eq!(tracker.login().await.unwrap(), LOGIN);
    let item = tracker.candidates(REQUEST).await.unwrap().remove(0).item;
    let permit = permit();
    for text in ["one", "two"] {
        let written = tracker.upsert_comment(&item, "m", text, &permit);
        written.await.unwrap();
    }
    let git = git_token(&tracker).await;
    let minted = world.forge.minted();
    let asked: Vec<_> = minted.iter().map(|(_, asked)| asked.clone()).collect();
    let read = json!({ "contents": "read", "issues": "read", "metadata": "read", "pull_requests": "read" });
    let write = json!({ "contents": "write", "issues": "write", "metadata": "read", "pull_requests": "write" });
    assert_eq!(
        asked,
        [
            json!({ "permissions": read }),
            json!({ "permissions": write, "repositories": ["demo"] }),
            json!({ "permissions": { "contents": "write", "metadata": "read" }, "repositories": ["demo"] }),
        ]
    );
    assert!(minted.iter().all(|(token, _)| token.len() > 255));
    assert_eq!(git.get().expose(), minted[2].0);
    let comments = world.forge.comments(DEMO, item.number);
    assert_eq!(comments.len(), 1);
    assert_eq!(comments[0].author, LOGIN);

    drop(git);
    until("the token of git to be revoked", || {
        world.forge.revoked() == [minted[2].0.clone()]
    })
    .await;
    tracker.close().await;
    assert_eq!(world.forge.revoked().len(), 3);
    assert_eq!(world.forge.leaks(), Vec::<String>::new());
}

#[tokio::test]
async fn a_token_is_minted_anew_before_it_expires() {
    let world = world_with_issue().await;
    world.tokens_are_replaced_in_two_seconds();
    let tracker = GitHubTracker::new(&world.config).unwrap();
    let git = git_token(&tracker).await;
    let first = git.get();
    until("another token", || git.get().expose() != first.expose()).await;
    let before = world.forge.minted().len();
    tokio::time::sleep(Duration::from_secs(3)).await;
    tracker.candidates(REQUEST).await.unwrap();
    assert!(world.forge.minted().len() > before);
}

#[tokio::test]
async fn git_may_change_workflows_where_the_installation_may() {
    let world = world_with_issue().await;
    world.forge.change_apps(|apps| {
        apps[0].installations[0]
            .permissions
            .insert("workflows".into(), "write".into());
    });
    let tracker = GitHubTracker::new(&world.config).unwrap();
    drop(git_token(&tracker).await);
    let (_, asked) = world.forge.minted().pop().unwrap();
    let permissions = json!({ "contents": "write", "metadata": "read", "workflows": "write" });
    assert_eq!(asked["permissions"], permissions);
}

#[tokio::test]
async fn what_an_installation_lacks_is_named() {
    let world = world_with_issue().await;
    world.forge.change_apps(|apps| {
        apps[0].installations[0]
            .permissions
            .insert("issues".into(), "read".into());
    });
    let (tracker, item) = found(&world.config).await;
    let permit = permit();
    let refused = tracker.set_labels(&item, &["x".into()], &[], &permit).await;
    let error = refused.unwrap_err();
    assert!(matches!(error, TrackerError::Forbidden { .. }), "{error}");
    assert!(
        error
            .to_string()
            .contains("lacks the permission issues=write"),
        "{error}"
    );

    world.uninstalls();
    let tracker = GitHubTracker::new(&world.config).unwrap();
    let error = tracker.candidates(REQUEST).await.unwrap_err();
    assert_not_installed(&error);

    let other = tempfile::tempdir().unwrap();
    let mut config = world.config.clone();
    config.app.as_mut().unwrap().key_file = Some(key_in(other.path()));
    let tracker = GitHubTracker::new(&config).unwrap();
    let error = tracker.candidates(REQUEST).await.unwrap_err();
    assert!(
        matches!(error, TrackerError::Unauthorized { .. }),
        "{error}"
    );
}

#[tokio::test]
async fn a_key_that_does_not_fit_is_refused_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let openssl = |args: &[&str]| {
        let made = std::process::Command::new("openssl")
            .args(args)
            .current_dir(&folder)
            .output();
        assert!(made.unwrap().status.success());
    };
    openssl(&["genrsa", "-traditional", "-out", "short.pem", "1024"]);
    openssl(&["genpkey", "-algorithm", "ed25519", "-out", "other.pem"]);
    openssl(&["genrsa", "-out", "fits.pem", "2048"]);
    std::fs::write(folder.path().join("none.pem"), "no key\n").unwrap();
    let check = |key: &str| {
        let file = folder.path().join(key);
        let text = format!(
            "trackers:\n  github:\n    repositories: [octo/demo]\n    app: {{id: 1, key_file: {}}}\n",
            file.display()
        );
        let loaded = config::load(&Sources::from_text("config.yaml", text));
        loaded.map(drop).map_err(|errors| errors.to_string())
    };
    check("fits.pem").unwrap();
    for (key, said) in [
        ("short.pem", "cannot be used"),
        ("other.pem", "not RSA"),
        ("none.pem", "without a private key"),
        ("absent.pem", "cannot be read"),
    ] {
        let faults = check(key).unwrap_err();
        assert!(faults.contains("config.yaml:4"), "{faults}");
        assert!(faults.contains("trackers.github.app.key_file"), "{faults}");
        assert!(faults.contains(said), "{faults}");
    }
}

/// What changes something through GraphQL names no repository in its address.
#[tokio::test]
async fn what_is_changed_through_graphql_has_a_token_for_one_repository() {
    let world = world().await;
    world.forge.commit(DEMO, "x", "main", |dir| {
        std::fs::write(dir.join("x.txt"), "x\n").unwrap();
    });
    let number = world
        .forge
        .add_pull(DEMO, "x", "main", "A pull", &[REQUEST]);
    world
        .forge
        .add_line_comment(DEMO, number, ("x.txt", 1), "Why?");
    let (tracker, item) = found(&world.config).await;
    let thread = world.forge.thread_ids(DEMO, number)[0].to_string();
    tracker.edits(&item, chrono::Utc::now()).await.unwrap();
    let resolved = tracker.resolve_thread(&item, &thread, &permit()).await;
    resolved.unwrap();
    assert!(world.forge.line_threads(DEMO, number)[0].1);
    let new = NewPullRequest {
        draft: true,
        ..new_pull("y")
    };
    world.forge.commit(DEMO, "y", "main", |dir| {
        std::fs::write(dir.join("y.txt"), "y\n").unwrap();
    });
    let permit = permit();
    let opened = tracker.create_pull_request(&item, &new, &permit);
    let opened = opened.await.unwrap();
    assert!(world.forge.pulls(DEMO)[1].draft);
    for _ in 0..2 {
        let marked = tracker.mark_ready(&item, opened.number, &permit);
        marked.await.unwrap();
    }
    assert!(!world.forge.pulls(DEMO)[1].draft);
    let asked = world.forge.graphql();
    let known = |it: &AskedGraphql| GRAPHQL_TEXTS.iter().any(|(_, text)| *text == it.text);
    assert!(asked.iter().all(known), "{asked:#?}");
    let changes = asked.iter().filter(|it| it.text.starts_with("mutation"));
    let scopes: Vec<_> = changes.map(|it| it.repositories.clone()).collect();
    assert_eq!(scopes, vec![Some(vec!["demo".to_owned()]); 2]);
}

/// Git over HTTPS uses a minted token through the gateway, and the bot's own comments are known again.
#[tokio::test]
async fn an_app_turns_an_issue_into_a_pull_request() {
    let mut rig = Rig::local(solves_demo()).await;
    let key = key_in(rig.folder.path());
    rig.forge.add_app(app(&key));
    rig.config["trackers"]["github"]["app"] = json!({ "id": 4711, "key_file": key });
    let number = rig.produce_issue().await;
    rig.consume().await;
    assert_done(&rig.task().await);
    let pulls = rig.forge.pulls(DEMO);
    assert_eq!((pulls.len(), pulls[0].author.as_str()), (1, LOGIN));
    let comments = rig.forge.comments(DEMO, number);
    assert_eq!((comments.len(), comments[0].author.as_str()), (1, LOGIN));
    assert!(rig.forge.revoked().len() >= 2, "{:?}", rig.forge.revoked());
    assert_eq!(rig.forge.leaks(), Vec::<String>::new());
}

#[tokio::test]
async fn a_limit_of_new_tokens_is_waited_for() {
    let world = world_with_issue().await;
    let limited = || {
        Fault::on("POST", "/access_tokens")
            .status(403)
            .body("{\"message\":\"You have exceeded a secondary rate limit.\"}")
    };
    world.forge.inject(limited().header("retry-after", "1"));
    let (tracker, item) = found(&world.config).await;
    world.forge.inject(limited().header("retry-after", "600"));
    let permit = permit();
    let written = tracker.upsert_comment(&item, "m", "text", &permit);
    let error = written.await.unwrap_err();
    assert!(matches!(error, TrackerError::RateLimited { .. }), "{error}");
}

#[tokio::test]
async fn a_former_accounts_comment_is_kept() {
    let world = world_with_issue().await;
    let permit = permit();
    let (before, item) = found(&world.forge.config(&[DEMO])).await;
    before
        .upsert_comment(&item, "m", "before", &permit)
        .await
        .unwrap();
    let login = before.login().await.unwrap();
    let config = GitHub {
        former_logins: vec![login.to_uppercase()],
        ..world.config.clone()
    };
    let after = GitHubTracker::new(&config).unwrap();
    let comments = after.comments(&item).await.unwrap();
    assert!(comments.iter().all(|comment| comment.ours), "{comments:?}");
    let stranger = GitHubTracker::new(&world.config).unwrap();
    assert!(!stranger.comments(&item).await.unwrap()[0].ours);
}

/// Breaks a field of an answer in turn: the client must notice each time.
#[tokio::test]
async fn a_client_of_others_gets_tokens_from_the_fake_forge() {
    let world = world().await;
    let key = world.key.to_str().unwrap().to_owned();
    let api = world.forge.api_url().to_string();
    let api = api.trim_end_matches('/').to_owned();
    let authority = world.forge.authority().unwrap().to_owned();
    let walk = async || {
        let args = [api.as_str(), "4711", key.as_str(), DEMO];
        node("auth-app.mjs", &args, &authority).await
    };
    assert_eq!(walk().await.unwrap(), "miner miner[bot]");
    let minted = world.forge.minted();
    assert_eq!(minted.len(), 1);
    assert_eq!(world.forge.revoked(), [minted[0].0.clone()]);
    world.uninstalls();
    walk().await.unwrap_err();
    world
        .forge
        .change_apps(|apps| *apps = vec![app(&world.key)]);
    world
        .forge
        .change_apps(|apps| apps[0].public_key.truncate(200));
    walk().await.unwrap_err();
}

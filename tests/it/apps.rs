//! GitHub Apps: tokens for one repository and few permissions, and a client of others that gets some too.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

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

struct World {
    forge: Forge,
    config: GitHub,
    key: PathBuf,
    _folder: TempDir,
}

/// A forge over TLS, as an Enterprise Server under an authority of its own.
async fn world() -> World {
    let folder = tempfile::tempdir().unwrap();
    let forge = Forge::start_tls().await;
    forge.add_repo(DEMO, agentmine_tests::forge::write_demo);
    let key = key_in(folder.path());
    forge.add_app(app(&key));
    let config = GitHub {
        token: None,
        app: Some(GitHubApp {
            id: 4711,
            key_file: Some(key.clone()),
            key: None,
            installation: None,
        }),
        ..forge.config(&[DEMO])
    };
    World {
        forge,
        config,
        key,
        _folder: folder,
    }
}

async fn git_token(tracker: &GitHubTracker) -> LiveSecret {
    let item = tracker.candidates(REQUEST).await.unwrap().remove(0).item;
    match tracker.repository(&item).await.unwrap().source {
        GitSource::Http { password, .. } => password.unwrap(),
        GitSource::Path(path) => panic!("{}", path.display()),
    }
}

async fn until(what: &str, is_so: impl Fn() -> bool) {
    let begun = std::time::Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "waited for {what} in vain");
        // The forge's records are no events.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn an_organization_is_what_the_apps_installation_in_it_includes() {
    let world = world().await;
    world.forge.add_issue(DEMO, "title", "text", &[REQUEST]);
    world.forge.add_repo_without_git("other/one");
    world
        .forge
        .add_issue("other/one", "title", "text", &[REQUEST]);
    let config = GitHub {
        repositories: Vec::new(),
        organizations: vec!["other".into(), "octo".into()],
        ..world.config.clone()
    };
    let tracker = GitHubTracker::new(&config).unwrap();
    let found = tracker.candidates(REQUEST).await.unwrap();
    let found: Vec<_> = found.iter().map(|it| it.item.repo_path.as_str()).collect();
    assert_eq!(found, [DEMO]);
    let skipped = tracker.skipped();
    assert_eq!(skipped.len(), 1);
    let reason = &skipped[0].reason;
    assert!(reason.contains("not installed for other"), "{reason}");
    let requests = world.forge.requests();
    let lists = |path: &str| {
        requests
            .iter()
            .filter(|it| it.target.contains(path))
            .count()
    };
    assert_eq!(lists("/installation/repositories"), 1);
    assert_eq!(lists("/orgs/octo/repos"), 0);
}

#[tokio::test]
async fn tokens_read_everywhere_write_in_one_repository_and_are_revoked_at_the_end() {
    let world = world().await;
    world.forge.add_issue(DEMO, "title", "text", &[REQUEST]);
    let tracker = GitHubTracker::new(&world.config).unwrap();
    assert_eq!(tracker.login().await.unwrap(), LOGIN);
    let item = tracker.candidates(REQUEST).await.unwrap().remove(0).item;
    let permit = agentmine_runtime::permit::Permit::of(
        agentmine_runtime::permit::BootInstant::now(),
        PATIENCE,
    );
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
    let world = world().await;
    world.forge.add_issue(DEMO, "title", "text", &[REQUEST]);
    // What is spare, and two seconds.
    world
        .forge
        .change_apps(|apps| apps[0].lasts = TimeDelta::seconds(602));
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
async fn the_token_of_git_is_replaced_by_one_of_the_new_installation() {
    let world = world().await;
    world.forge.add_issue(DEMO, "title", "text", &[REQUEST]);
    // What is spare, and two seconds.
    world
        .forge
        .change_apps(|apps| apps[0].lasts = TimeDelta::seconds(602));
    let tracker = GitHubTracker::new(&world.config).unwrap();
    let git = git_token(&tracker).await;
    let first = git.get();
    world
        .forge
        .change_apps(|apps| apps[0].installations[0].id = 21);
    until("another token", || git.get().expose() != first.expose()).await;
}

#[tokio::test]
async fn what_an_installation_lacks_is_named() {
    let world = world().await;
    world.forge.add_issue(DEMO, "title", "text", &[REQUEST]);
    world.forge.change_apps(|apps| {
        apps[0].installations[0]
            .permissions
            .insert("issues".into(), "read".into());
    });
    let tracker = GitHubTracker::new(&world.config).unwrap();
    let item = tracker.candidates(REQUEST).await.unwrap().remove(0).item;
    let permit = agentmine_runtime::permit::Permit::of(
        agentmine_runtime::permit::BootInstant::now(),
        PATIENCE,
    );
    let refused = tracker.set_labels(&item, &["x".into()], &[], &permit).await;
    let error = refused.unwrap_err();
    assert!(matches!(error, TrackerError::Forbidden { .. }), "{error}");
    assert!(
        error
            .to_string()
            .contains("lacks the permission issues=write"),
        "{error}"
    );

    world
        .forge
        .change_apps(|apps| apps[0].installations.clear());
    let tracker = GitHubTracker::new(&world.config).unwrap();
    let error = tracker.candidates(REQUEST).await.unwrap_err();
    assert!(
        error.to_string().contains("is not installed for octo"),
        "{error}"
    );

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
    let tracker = GitHubTracker::new(&world.config).unwrap();
    let item = tracker.candidates(REQUEST).await.unwrap().remove(0).item;
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

/// Another owner's installation sees nothing of its repositories, neither by REST nor by GraphQL.
#[tokio::test]
async fn an_app_works_for_each_owner_who_installed_it() {
    const OTHER: &str = "other/demo";
    let mut rig = Rig::local(solves_demo()).await;
    rig.forge
        .add_repo(OTHER, agentmine_tests::forge::write_demo);
    let key = key_in(rig.folder.path());
    let mut app = app(&key);
    let permissions = app.installations[0].permissions.clone();
    app.installations.push(Installation {
        id: 13,
        owner: "other".into(),
        permissions,
    });
    rig.forge.add_app(app);
    rig.config["trackers"]["github"]["repositories"] = json!([DEMO, OTHER]);
    rig.config["trackers"]["github"]["app"] = json!({ "id": 4711, "key_file": key });
    rig.forge.add_issue(
        OTHER,
        "greet.sh greets nobody",
        "It should greet.",
        &[REQUEST],
    );
    rig.produce().await;
    rig.consume().await;
    assert_done(&rig.task().await);
    assert_eq!(rig.forge.pulls(OTHER).len(), 1);
    let asked = rig.forge.graphql();
    assert!(
        asked.iter().any(|it| it.text.contains("userContentEdits")),
        "{asked:#?}"
    );

    // What a review and a protected branch are read by.
    let config = GitHub {
        token: None,
        app: Some(GitHubApp {
            id: 4711,
            key_file: Some(key),
            key: None,
            installation: None,
        }),
        ..rig.forge.config(&[DEMO, OTHER])
    };
    let pull = rig.forge.pulls(OTHER)[0].number;
    rig.forge
        .add_line_comment(OTHER, pull, ("greet.sh", 1), "Why?");
    rig.forge.add_label(OTHER, pull, REQUEST);
    let tracker = GitHubTracker::new(&config).unwrap();
    let item = tracker.candidates(REQUEST).await.unwrap().remove(0).item;
    assert_eq!(tracker.threads(&item).await.unwrap().len(), 1);
    rig.forge.protect(OTHER, "main");
    let objection = tracker.push_objection(&item, "main").await.unwrap();
    assert!(objection.is_some_and(|it| it.contains("branch protection")));
}

#[tokio::test]
async fn an_app_that_is_installed_anew_is_used_without_a_restart() {
    let world = world().await;
    world.forge.add_issue(DEMO, "title", "text", &[REQUEST]);
    let tracker = GitHubTracker::new(&world.config).unwrap();
    let item = tracker.candidates(REQUEST).await.unwrap().remove(0).item;
    let move_to = |id| {
        world
            .forge
            .change_apps(|apps| apps[0].installations[0].id = id);
    };
    move_to(21);
    let permit = permit();
    let written = tracker.upsert_comment(&item, "m", "text", &permit);
    written.await.unwrap();
    move_to(22);
    drop(git_token(&tracker).await);
    // A token that has to be minted yet, of an installation that is known.
    move_to(23);
    let add = ["x".to_owned()];
    let labelled = tracker.set_labels(&item, &add, &[], &permit);
    labelled.await.unwrap();
    // One that is not installed any more is reported, after one look.
    world
        .forge
        .change_apps(|apps| apps[0].installations.clear());
    let refused = tracker.repository(&item).await.unwrap_err();
    assert!(
        refused.to_string().contains("is not installed for octo"),
        "{refused}"
    );
}

/// The tokens of an installation end with it, long before their hour.
#[tokio::test]
async fn a_refused_token_is_replaced_once_a_request() {
    let world = world().await;
    world.forge.add_issue(DEMO, "title", "text", &[REQUEST]);
    let tracker = GitHubTracker::new(&world.config).unwrap();
    let item = tracker.candidates(REQUEST).await.unwrap().remove(0).item;
    world
        .forge
        .change_apps(|apps| apps[0].installations[0].id = 21);
    assert_eq!(tracker.item(&item).await.unwrap().title, "title");
    assert_eq!(world.forge.minted().len(), 2);

    let address = format!("/issues/{}$", item.number);
    let refused = Fault::on("GET", &address).status(401).times(usize::MAX);
    world.forge.inject(refused);
    let error = tracker.item(&item).await.unwrap_err();
    assert!(
        matches!(error, TrackerError::Unauthorized { .. }),
        "{error}"
    );
    let requests = world.forge.requests();
    let refused = requests.iter().filter(|it| it.status == 401).count();
    assert_eq!((refused, world.forge.minted().len()), (1 + 2, 3));
}

#[tokio::test]
async fn a_configured_installation_that_is_gone_is_looked_up_anew() {
    let world = world().await;
    world.forge.add_issue(DEMO, "title", "text", &[REQUEST]);
    let mut config = world.config.clone();
    config.app.as_mut().unwrap().installation = Some(12);
    let tracker = GitHubTracker::new(&config).unwrap();
    let item = tracker.candidates(REQUEST).await.unwrap().remove(0).item;
    world
        .forge
        .change_apps(|apps| apps[0].installations[0].id = 21);
    let permit = permit();
    let written = tracker.upsert_comment(&item, "m", "text", &permit);
    written.await.unwrap();
    drop(git_token(&tracker).await);
    world
        .forge
        .change_apps(|apps| apps[0].installations.clear());
    let refused = tracker.item(&item).await.unwrap_err();
    assert!(
        refused.to_string().contains("is not installed for octo"),
        "{refused}"
    );
}

#[tokio::test]
async fn a_limit_of_new_tokens_is_waited_for() {
    let world = world().await;
    world.forge.add_issue(DEMO, "title", "text", &[REQUEST]);
    let limited = || {
        Fault::on("POST", "/access_tokens")
            .status(403)
            .body("{\"message\":\"You have exceeded a secondary rate limit.\"}")
    };
    world.forge.inject(limited().header("retry-after", "1"));
    let tracker = GitHubTracker::new(&world.config).unwrap();
    let item = tracker.candidates(REQUEST).await.unwrap().remove(0).item;
    world.forge.inject(limited().header("retry-after", "600"));
    let permit = permit();
    let written = tracker.upsert_comment(&item, "m", "text", &permit);
    let error = written.await.unwrap_err();
    assert!(matches!(error, TrackerError::RateLimited { .. }), "{error}");
}

#[tokio::test]
async fn a_former_accounts_comment_is_kept() {
    let world = world().await;
    world.forge.add_issue(DEMO, "title", "text", &[REQUEST]);
    let permit = agentmine_runtime::permit::Permit::of(
        agentmine_runtime::permit::BootInstant::now(),
        PATIENCE,
    );
    let before = GitHubTracker::new(&world.forge.config(&[DEMO])).unwrap();
    let item = before.candidates(REQUEST).await.unwrap().remove(0).item;
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
    world
        .forge
        .change_apps(|apps| apps[0].installations.clear());
    walk().await.unwrap_err();
    world
        .forge
        .change_apps(|apps| *apps = vec![app(&world.key)]);
    world
        .forge
        .change_apps(|apps| apps[0].public_key.truncate(200));
    walk().await.unwrap_err();
}

//! Installations of a GitHub App: one for each owner, which ends, or is another one tomorrow.

use agentmine_runtime::config::GitHub;
use agentmine_tests::forge::{DEMO, Fault, Installation};
use agentmine_trackers::{Admission, GitHubTracker, Person, Tracker, TrackerError};
use serde_json::json;

use crate::apps::{
    app, assert_not_installed, found, git_token, key_in, until, with_app, world_with_issue,
};
use crate::rig::{REQUEST, Rig, assert_done, solves_demo};
use crate::trackers::permit;

#[tokio::test]
async fn an_organization_is_what_the_apps_installation_in_it_includes() {
    let world = world_with_issue().await;
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
async fn the_token_of_git_is_replaced_by_one_of_the_new_installation() {
    let world = world_with_issue().await;
    world.tokens_are_replaced_in_two_seconds();
    let tracker = GitHubTracker::new(&world.config).unwrap();
    let git = git_token(&tracker).await;
    let first = git.get();
    world.installs_as(21);
    until("another token", || git.get().expose() != first.expose()).await;
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
    let config = with_app(rig.forge.config(&[DEMO, OTHER]), &key);
    let pull = rig.forge.pulls(OTHER)[0].number;
    rig.forge
        .add_line_comment(OTHER, pull, ("greet.sh", 1), "Why?");
    rig.forge.add_label(OTHER, pull, REQUEST);
    let (tracker, item) = found(&config).await;
    assert_eq!(tracker.threads(&item).await.unwrap().len(), 1);
    rig.forge.protect(OTHER, "main");
    let objection = tracker.push_objection(&item, "main").await.unwrap();
    assert!(objection.is_some_and(|it| it.contains("branch protection")));
}

#[tokio::test]
async fn an_app_that_is_installed_anew_is_used_without_a_restart() {
    let world = world_with_issue().await;
    let (tracker, item) = found(&world.config).await;
    world.installs_as(21);
    let permit = permit();
    let written = tracker.upsert_comment(&item, "m", "text", &permit);
    written.await.unwrap();
    world.installs_as(22);
    drop(git_token(&tracker).await);
    // A token that has to be minted yet, of an installation that is known.
    world.installs_as(23);
    let add = ["x".to_owned()];
    let labelled = tracker.set_labels(&item, &add, &[], &permit);
    labelled.await.unwrap();
    // One that is not installed any more is reported, after one look.
    world.uninstalls();
    let refused = tracker.repository(&item).await.unwrap_err();
    assert_not_installed(&refused);
}

/// The tokens of an installation end with it, long before their hour.
#[tokio::test]
async fn a_refused_token_is_replaced_once_a_request() {
    let world = world_with_issue().await;
    let (tracker, item) = found(&world.config).await;
    world.installs_as(21);
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
    let world = world_with_issue().await;
    let mut config = world.config.clone();
    config.app.as_mut().unwrap().installation = Some(12);
    let (tracker, item) = found(&config).await;
    world.installs_as(21);
    let permit = permit();
    let written = tracker.upsert_comment(&item, "m", "text", &permit);
    written.await.unwrap();
    drop(git_token(&tracker).await);
    world.uninstalls();
    let refused = tracker.item(&item).await.unwrap_err();
    assert_not_installed(&refused);
}

/// GitHub redirects the question for its installation too.
#[tokio::test]
async fn a_repository_that_was_renamed_before_the_start_is_found() {
    let world = world_with_issue().await;
    world.forge.rename_repo(DEMO, "octo/renamed");
    let (tracker, item) = found(&world.config).await;
    assert_eq!(item.repo_path, "octo/renamed");
    let permit = permit();
    let written = tracker.upsert_comment(&item, "m", "text", &permit);
    written.await.unwrap();
}

/// The installation of its former owner does not include it any more, and is known by the owner's other repositories.
#[tokio::test]
async fn a_repository_that_was_transferred_is_one_of_its_new_owners_installation() {
    for is_installed in [true, false] {
        let world = world_with_issue().await;
        world.forge.change_apps(|apps| {
            let permissions = apps[0].installations[0].permissions.clone();
            apps[0].installations.push(Installation {
                id: 13,
                owner: "other".into(),
                permissions,
            });
            apps[0]
                .installations
                .truncate(if is_installed { 2 } else { 1 });
        });
        let (tracker, _) = found(&world.config).await;
        world.forge.rename_repo(DEMO, "other/demo");
        let candidates = tracker.candidates(REQUEST).await;
        if is_installed {
            let candidates = candidates.unwrap();
            let paths: Vec<_> = candidates.iter().map(|it| &it.item.repo_path).collect();
            assert_eq!(paths, ["other/demo"]);
            assert_eq!(tracker.skipped(), []);
        } else {
            let text = candidates.unwrap_err().to_string();
            for part in [
                "install the App for its new owner",
                "trackers.github.repositories",
            ] {
                assert!(text.contains(part), "{text}");
            }
        }
    }
}

#[tokio::test]
async fn the_members_of_a_team_are_read_with_the_permission_for_that() {
    let mut world = world_with_issue().await;
    world.forge.set_team("octo/core", &["mona"]);
    world.forge.set_permission(DEMO, "mona", "read");
    world.config.who_may_start.allow.teams = vec!["octo/core".into()];
    let (tracker, item) = found(&world.config).await;
    let mona = Person {
        login: "mona".into(),
        id: None,
        is_bot: false,
    };
    let error = tracker.may_start(&item, &mona).await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("lacks the permission members=read"), "{text}");
    world.forge.change_apps(|apps| {
        let permissions = &mut apps[0].installations[0].permissions;
        permissions.insert("members".into(), "read".into());
    });
    // A refusal is remembered for two minutes, so that it does not use up what the App may ask.
    let asked = || {
        let requests = world.forge.requests();
        let tokens = requests.iter().map(|it| it.target.as_str());
        tokens.filter(|it| it.ends_with("/access_tokens")).count()
    };
    let before = asked();
    tracker.may_start(&item, &mona).await.unwrap_err();
    assert_eq!(asked(), before);
    let (tracker, item) = found(&world.config).await;
    let admission = tracker.may_start(&item, &mona).await.unwrap();
    assert_eq!(admission, Admission::Granted);
}

/// GitHub names a list's further pages by the repository's id alone.
#[tokio::test]
async fn each_page_of_a_list_is_read_with_the_token_of_its_first() {
    const OTHER: &str = "other/one";
    let mut world = world_with_issue().await;
    world.forge.add_repo_without_git(OTHER);
    for n in 0..101 {
        let title = format!("title {n}");
        world.forge.add_issue(OTHER, &title, "text", &[REQUEST]);
    }
    world.forge.change_apps(|apps| {
        let first = &apps[0].installations[0];
        let mut permissions = first.permissions.clone();
        permissions.insert("checks".into(), "read".into());
        apps[0].installations.push(Installation {
            id: 13,
            owner: "other".into(),
            permissions,
        });
    });
    let repositories = world.forge.config(&[DEMO, OTHER]).repositories;
    world.config.repositories = repositories;
    let tracker = GitHubTracker::new(&world.config).unwrap();
    let found = tracker.candidates(REQUEST).await.unwrap();
    assert_eq!(found.len(), 102, "{:?}", tracker.skipped());
    let item = &found[1].item;
    assert_eq!(item.repo_path, OTHER);
    let commit = "0123456789012345678901234567890123456789";
    for n in 0..101 {
        let name = format!("check {n}");
        world.forge.add_job(OTHER, commit, &name, "failure", "");
    }
    let checks = tracker.checks(item, commit).await.unwrap();
    assert_eq!(checks.red.len(), 101);
}

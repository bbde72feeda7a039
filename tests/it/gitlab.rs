//! GitLab: what only its adapter does, and the main stories over its API and TLS.

use std::sync::LazyLock;
use std::time::Duration;

use agentmine_domain::{EndState, ItemKind, ItemRef, SessionEnd, TaskState};
use agentmine_runtime::config::{GitLab, Secret};
use agentmine_runtime::permit::Permit;
use agentmine_tests::forge::{BOT, DEMO, Fault, Forge, HUMAN, Keyset};
use agentmine_tests::model::{Scenario, commit_and_push, edit_replace, say};
use agentmine_trackers::{
    CheckMarks, CommentKind, GitLabTracker, GitSource, LinePlace, NewIssue, NewPullRequest,
    OurIssue, Tracker, TrackerError,
};

use crate::rig::{PATIENCE, REQUEST, Rig, assert_done, assert_done_at_attempt, solves_demo};
use crate::trackers::{
    DONE, LABEL, OnGitLab, PROJECT, basic, git, git_output, new_pull, permit, seed,
};

/// A permit that lasts for the whole test.
static PERMIT: LazyLock<Permit> = LazyLock::new(permit);

const PROCESSING: &str = "coding agent processing";

fn no_action_ran(forge: &Forge) {
    let of_ours = forge.quick_actions();
    let of_ours: Vec<_> = of_ours.iter().filter(|it| it.starts_with(BOT)).collect();
    assert!(of_ours.is_empty(), "{of_ours:?}");
}

#[tokio::test]
async fn a_comment_and_a_merge_request_whose_responses_were_lost_are_written_once() {
    let world = OnGitLab::new().await;
    let item = world.issue().await;
    world
        .forge
        .inject(Fault::on("POST", "/notes").answer_lost());
    world
        .forge
        .inject(Fault::on("POST", "/notes").done_but_status(502));
    for marker in ["m", "n"] {
        let write = world.tracker.upsert_comment(&item, marker, "text", &PERMIT);
        write.await.unwrap();
    }
    assert_eq!(world.forge.comments(PROJECT, item.number).len(), 2);
    commit(&world.forge, "x");
    world
        .forge
        .inject(Fault::on("POST", "/merge_requests").answer_lost());
    let new = new_pull("x");
    let opened = world.tracker.create_pull_request(&item, &new, &PERMIT);
    let opened = opened.await.unwrap();
    let pulls = world.forge.pulls(PROJECT);
    assert_eq!(pulls.len(), 1);
    assert_eq!(
        (pulls[0].iid, pulls[0].author.as_str()),
        (opened.number, BOT)
    );
    assert_eq!(world.forge.faults_left(), 0);
    // The second request was a look.
    let posts = world.forge.writes();
    let posts = posts
        .iter()
        .filter(|it| it.path.ends_with("/merge_requests"));
    assert_eq!(posts.count(), 1);
}

fn commit(forge: &Forge, branch: &str) {
    forge.commit(PROJECT, branch, "main", |dir| {
        std::fs::write(dir.join("new.txt"), "new\n").unwrap();
    });
}

#[tokio::test]
async fn two_writers_of_one_note_leave_one() {
    let world = OnGitLab::new().await;
    let item = world.issue().await;
    let slow = Fault::on("POST", "/notes").times(2);
    // Both have looked, and found nothing, before either has written.
    world.forge.inject(slow.delay(Duration::from_millis(500)));
    let other = GitLabTracker::new(&world.forge.gitlab_config(&[PROJECT])).unwrap();
    let (a, b) = tokio::join!(
        world.tracker.upsert_comment(&item, "m", "text", &PERMIT),
        other.upsert_comment(&item, "m", "text", &PERMIT),
    );
    assert_eq!(a.unwrap(), b.unwrap());
    assert_eq!(world.forge.comments(PROJECT, item.number).len(), 1);
}

#[tokio::test]
async fn a_label_moves_with_one_write() {
    let world = OnGitLab::new().await;
    let item = world.issue().await;
    let (add, remove) = ([DONE.to_owned()], [LABEL.to_owned(), "absent".to_owned()]);
    let moved = world.tracker.set_labels(&item, &add, &remove, &PERMIT);
    moved.await.unwrap();
    assert_eq!(world.forge.labels(PROJECT, item.number), [DONE]);
    assert_eq!(world.forge.writes().len(), 1);
    let comma = ["a,b".to_owned()];
    let refused = world.tracker.set_labels(&item, &comma, &[], &PERMIT);
    let error = refused.await.unwrap_err();
    assert!(matches!(error, TrackerError::Invalid { .. }), "{error}");
}

#[tokio::test]
async fn a_renamed_project_is_followed() {
    let world = OnGitLab::new().await;
    let item = world.issue().await;
    commit(&world.forge, "x");
    world.forge.rename_repo(PROJECT, "octo/new");
    // Another process, which has the old path from its configuration and its row.
    let tracker = GitLabTracker::new(&world.forge.gitlab_config(&[PROJECT])).unwrap();
    let found = tracker.candidates(LABEL).await.unwrap().remove(0);
    assert_eq!(found.item.key(), item.key());
    assert_eq!(found.item.repo_path, "octo/new");
    let (add, remove) = ([DONE.to_owned()], [LABEL.to_owned()]);
    let moved = tracker.set_labels(&item, &add, &remove, &PERMIT);
    moved.await.unwrap();
    assert_eq!(world.forge.labels("octo/new", 1), [DONE]);
    let new = new_pull("x");
    let opened = tracker.create_pull_request(&item, &new, &PERMIT).await;
    opened.unwrap();
    let GitSource::Http { url, .. } = tracker.repository(&item).await.unwrap().source else {
        panic!("not over HTTP");
    };
    assert!(url.path().ends_with("/octo/new.git"), "{url}");
}

fn targets(forge: &Forge, from: usize) -> Vec<String> {
    let requests = forge.requests();
    let path = |target: &str| target.split('?').next().unwrap().to_owned();
    requests[from..].iter().map(|it| path(&it.target)).collect()
}

#[tokio::test]
async fn a_group_is_scanned_with_its_subgroups_by_two_lists() {
    let world = OnGitLab::new().await;
    world.forge.add_repo("octo/other", seed);
    world.forge.add_repo("elsewhere/demo", seed);
    commit(&world.forge, "x");
    let first = world.forge.add_issue(PROJECT, "One", "", &[LABEL]);
    world.forge.add_issue("octo/other", "Two", "", &[LABEL]);
    world
        .forge
        .add_issue("elsewhere/demo", "Three", "", &[LABEL]);
    let request = world
        .forge
        .add_pull(PROJECT, "x", "main", "A request", &[LABEL]);
    let config = GitLab {
        groups: vec!["octo".to_owned()],
        ..world.forge.gitlab_config(&[])
    };
    let tracker = GitLabTracker::new(&config).unwrap();
    let found = tracker.candidates(LABEL).await.unwrap();
    let places: Vec<_> = found
        .iter()
        .map(|it| (it.item.to_string(), it.item.kind))
        .collect();
    let expected = [
        (format!("{PROJECT}#{first}"), ItemKind::Issue),
        ("octo/other#1".to_owned(), ItemKind::Issue),
        (
            format!("{PROJECT}!{}", world.forge.iid(PROJECT, request)),
            ItemKind::PullRequest,
        ),
    ];
    assert_eq!(places, expected);
    let lists = targets(&world.forge, 0);
    let lists: Vec<_> = lists
        .iter()
        .filter(|it| !it.ends_with("/resource_label_events"))
        .collect();
    let expected = [
        "/api/v4/groups/octo/issues",
        "/api/v4/groups/octo/merge_requests",
    ];
    assert_eq!(lists, expected.each_ref());
}

/// The items that a scan finds of 150, while the first one loses its label between two pages.
async fn found_while_one_leaves(keyset: Keyset, second_page: &str) -> usize {
    let world = OnGitLab::new().await;
    for _ in 0..150 {
        world.forge.add_issue(PROJECT, "title", "", &[LABEL]);
    }
    world.forge.serve_keyset(keyset);
    let second = Fault::on("GET", second_page).times(1);
    world.forge.inject(second.delay(Duration::from_secs(1)));
    let tracker = GitLabTracker::new(&world.forge.gitlab_config(&[PROJECT])).unwrap();
    let scan = tokio::spawn(async move { tracker.candidates(LABEL).await });
    let is_read = |forge: &Forge| {
        forge
            .requests()
            .iter()
            .any(|it| it.target.contains("/issues?"))
    };
    world
        .forge
        .wait_until("a page was read", PATIENCE, is_read)
        .await;
    world.forge.remove_label(PROJECT, 1, LABEL);
    let found = scan.await.unwrap().unwrap();
    assert_eq!(world.forge.faults_left(), 0);
    found.iter().filter(|it| it.item.number > 1).count()
}

/// By offset the second page begins one row too late.
#[tokio::test]
async fn an_item_that_leaves_a_list_hides_no_other_one_where_there_are_keyset_pages() {
    assert_eq!(found_while_one_leaves(Keyset::Served, "cursor=").await, 149);
    assert_eq!(found_while_one_leaves(Keyset::Ignored, "page=2").await, 148);
}

#[tokio::test]
async fn a_server_that_refuses_keyset_pages_is_asked_by_offset_from_then_on() {
    let world = OnGitLab::new().await;
    for _ in 0..101 {
        world.forge.add_issue(PROJECT, "title", "", &[LABEL]);
    }
    world.forge.serve_keyset(Keyset::Refused);
    let tracker = GitLabTracker::new(&world.forge.gitlab_config(&[PROJECT])).unwrap();
    for _ in 0..2 {
        assert_eq!(tracker.candidates(LABEL).await.unwrap().len(), 101);
    }
    assert_eq!(tracker.skipped(), []);
    let requests = world.forge.requests();
    let lists: Vec<_> = requests
        .iter()
        .filter(|it| it.target.contains("/issues?"))
        .collect();
    let refused = lists.iter().filter(|it| it.status == 405).count();
    let by_keyset = lists
        .iter()
        .filter(|it| it.target.contains("pagination=keyset"));
    // Two pages, and two of changes, since all of the items have changed lately.
    assert_eq!((refused, by_keyset.count(), lists.len()), (1, 1, 5));
}

/// More than a hundred are requested as a whole once, and then for what changed.
#[tokio::test]
async fn many_merge_requests_of_ours_cost_one_request_while_nothing_changes() {
    let world = OnGitLab::new().await;
    let of = [world.issue().await];
    for n in 0..250 {
        world
            .forge
            .add_pull(PROJECT, &format!("b{n}"), "main", "title", &[]);
    }
    world.forge.age(chrono::TimeDelta::hours(1));
    // Whose merge requests these are.
    let config = GitLab {
        token: Some(Secret::new(world.forge.human_token())),
        ..world.forge.gitlab_config(&[PROJECT])
    };
    let tracker = GitLabTracker::new(&config).unwrap();
    let lists = || {
        let all = targets(&world.forge, 0);
        all.iter()
            .filter(|it| *it == "/api/v4/merge_requests")
            .count()
    };
    let open = async || tracker.open_pulls(&of).await.unwrap().pulls;
    assert_eq!((open().await.len(), lists()), (250, 3));
    let before = open().await;
    assert_eq!((before.len(), lists()), (250, 4));
    let [closed, written] =
        [&before[7], &before[8]].map(|it| world.forge.merge_request(PROJECT, it.number));
    world.forge.close(PROJECT, closed);
    world.forge.add_comment(PROJECT, written, HUMAN, "a word");
    let after = open().await;
    assert_eq!((after.len(), lists()), (249, 5));
    assert_eq!(after[7].number, before[8].number);
    assert!(after[7].updated_at > before[8].updated_at);
    assert_eq!(after[8], before[9]);
}

#[tokio::test]
async fn how_the_checks_of_all_merge_requests_stand_costs_a_request_for_a_hundred() {
    let world = OnGitLab::new().await;
    let of = [world.issue().await];
    for n in 0..250 {
        let head = format!("b{n}");
        world.forge.add_pull(PROJECT, &head, "main", "title", &[]);
    }
    let config = GitLab {
        token: Some(Secret::new(world.forge.human_token())),
        ..world.forge.gitlab_config(&[PROJECT])
    };
    let tracker = GitLabTracker::new(&config).unwrap();
    let pulls = tracker.open_pulls(&of).await.unwrap().pulls;
    let (changed, other) = (&pulls[217], &pulls[216]);
    let write = |dir: &std::path::Path| std::fs::write(dir.join("new.txt"), "text").unwrap();
    world.forge.commit(PROJECT, &changed.head, "main", write);
    let before = world.forge.requests().len();
    let marks = async || tracker.check_marks().await.unwrap();
    let first = marks().await;
    assert_eq!(world.forge.requests().len() - before, 3);
    let known = |marks: &CheckMarks| pulls.iter().all(|pull| marks.of(pull).is_some());
    assert!(known(&first));
    assert_eq!(first, marks().await);

    let job = |state| {
        let commit = world.forge.branch_sha(PROJECT, &changed.head).unwrap();
        world
            .forge
            .add_job(PROJECT, &commit, "test", state, "a log");
    };
    for state in ["pending", "failure"] {
        let before = marks().await;
        job(state);
        let after = marks().await;
        assert_ne!(before.of(changed), after.of(changed), "{state}");
        assert_eq!(before.of(other), after.of(other), "{state}");
    }
    // Those of a former account, and of one that is gone.
    let config = GitLab {
        former_logins: vec![HUMAN.to_owned(), "nobody".to_owned()],
        ..world.forge.gitlab_config(&[PROJECT])
    };
    let marks = GitLabTracker::new(&config).unwrap().check_marks().await;
    assert!(known(&marks.unwrap()));
}

#[tokio::test]
async fn commands_in_a_group_are_looked_for_where_something_changed() {
    let world = OnGitLab::new().await;
    let names = ["octo/one", "octo/sub/two", "octo/three", "elsewhere/four"];
    for name in names {
        world.forge.add_repo_without_git(name);
        world.forge.add_issue(name, "title", "", &[LABEL]);
    }
    world.forge.age(chrono::TimeDelta::hours(1));
    let config = GitLab {
        groups: vec!["octo".to_owned()],
        ..world.forge.gitlab_config(&["elsewhere/four"])
    };
    let tracker = GitLabTracker::new(&config).unwrap();
    let found = tracker.candidates(LABEL).await.unwrap();
    let all: Vec<_> = found.into_iter().map(|it| it.item).collect();
    let news = async |places: &[agentmine_domain::ItemRef]| {
        let news = tracker.with_news(places.to_vec()).await.unwrap();
        let mut paths: Vec<_> = news.into_iter().map(|it| it.repo_path).collect();
        paths.sort_unstable();
        paths
    };
    assert_eq!(news(&all).await.len(), 4, "at first");
    let before = world.forge.requests().len();
    assert_eq!(news(&all).await, ["elsewhere/four"]);
    let expected = [
        "/api/v4/groups/octo/issues",
        "/api/v4/groups/octo/merge_requests",
    ];
    assert_eq!(targets(&world.forge, before), expected);
    world.forge.say("octo/sub/two", 1, HUMAN, "/agentmine stop");
    assert_eq!(news(&all).await, ["elsewhere/four", "octo/sub/two"]);
    // Few are checked without the lists, and all of them where the lists are refused.
    let few: Vec<_> = all.iter().take(2).cloned().collect();
    assert_eq!(news(&few).await.len(), 2);
    let refused = Fault::on("GET", "/groups/octo/").times(1).status(403);
    world.forge.inject(refused.body("{}"));
    assert_eq!(news(&all).await.len(), 4);
}

#[tokio::test]
async fn projects_of_one_namespace_are_listed_together_where_it_is_a_group() {
    let forge = Forge::start_tls().await;
    let projects = ["octo/one", "octo/two", "octo/three", "mona/one", "mona/two"];
    for project in projects {
        forge.add_repo(project, seed);
        forge.add_issue(project, "Asked", "", &[LABEL]);
    }
    forge.make_user_namespace("mona");
    let wanted = ["octo/one", "octo/two", "mona/one", "mona/two"];
    let tracker = GitLabTracker::new(&forge.gitlab_config(&wanted)).unwrap();
    let paths = async || {
        let found = tracker.candidates(LABEL).await.unwrap();
        found
            .into_iter()
            .map(|it| it.item.repo_path)
            .collect::<Vec<_>>()
    };
    // What is in the group and not configured is left alone.
    assert_eq!(paths().await, wanted);
    let before = forge.requests().len();
    assert_eq!(paths().await, wanted);
    let lists = targets(&forge, before);
    let lists = lists
        .iter()
        .filter(|it| !it.ends_with("/resource_label_events"));
    // Two for the group, and two for each project of the person.
    assert_eq!(lists.count(), 6);
}

#[tokio::test]
async fn a_hidden_or_forbidden_project_stops_no_other() {
    let world = OnGitLab::new().await;
    let item = world.issue().await;
    world.forge.add_repo("mona/closed", seed);
    let config = world
        .forge
        .gitlab_config(&["gone/project", "mona/closed", PROJECT]);
    let forbidden = Fault::on("GET", "/issues").times(1).status(403);
    world
        .forge
        .inject(forbidden.body("{\"message\":\"403 Forbidden\"}"));
    let tracker = GitLabTracker::new(&config).unwrap();
    let found = tracker.candidates(LABEL).await.unwrap();
    let found: Vec<_> = found.into_iter().map(|it| it.item).collect();
    assert_eq!(found, [item]);
    assert_eq!(world.forge.faults_left(), 0);
    let only = GitLabTracker::new(&world.forge.gitlab_config(&["gone/project"])).unwrap();
    let error = only.candidates(LABEL).await.unwrap_err();
    assert!(matches!(error, TrackerError::NotFound { .. }), "{error}");
}

#[tokio::test]
async fn a_confidential_issue_is_refused_and_internal_notes_are_not_read() {
    let world = OnGitLab::new().await;
    let item = world.issue().await;
    world
        .forge
        .add_comment(PROJECT, item.number, HUMAN, "public");
    world
        .forge
        .add_internal_note(PROJECT, item.number, "internal");
    let comments = world.tracker.comments(&item).await.unwrap();
    let bodies: Vec<_> = comments.iter().map(|it| it.body.as_str()).collect();
    assert_eq!(bodies, ["public"]);
    // What obeys a command says so in public.
    let command = "/agentmine status";
    world.forge.add_internal_note(PROJECT, item.number, command);
    let heard = world.tracker.recent_comments(&item).await.unwrap();
    assert!(heard.is_empty(), "{heard:?}");
    world
        .forge
        .add_comment(PROJECT, item.number, HUMAN, command);
    let heard = world.tracker.recent_comments(&item).await.unwrap();
    assert_eq!(heard.len(), 1, "{heard:?}");
    world.forge.make_confidential(PROJECT, item.number);
    let found = world.tracker.candidates(LABEL).await.unwrap();
    assert_eq!(found[0].title, "(confidential)");
    let error = world.tracker.item(&item).await.unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, TrackerError::Confidential { .. }), "{text}");
    assert!(
        text.contains("is confidential") && text.contains("hint:"),
        "{text}"
    );
    assert!(!text.contains("title"), "{text}");
}

#[tokio::test]
async fn no_text_of_ours_runs_as_a_quick_action() {
    let world = OnGitLab::new().await;
    let item = world.issue().await;
    commit(&world.forge, "x");
    // The forge ends a code block at the first line of three backticks.
    let text = "/close\n````text\n```\n/close\n````\n  /label ~bug\n/cl\rose\n/merge";
    for text in [text, "/close", "and\n/unassign @mona"] {
        let written = world.tracker.upsert_comment(&item, "m", text, &PERMIT);
        written.await.unwrap();
    }
    let new = NewPullRequest {
        title: "/close".to_owned(),
        body: text.to_owned(),
        ..new_pull("x")
    };
    let opened = world.tracker.create_pull_request(&item, &new, &PERMIT);
    let number = opened.await.unwrap().number;
    let changed = world
        .tracker
        .update_pull_request(&item, number, &new, &PERMIT);
    changed.await.unwrap();
    let pull = ItemRef {
        kind: ItemKind::PullRequest,
        number,
        ..item.clone()
    };
    let shown = world.forge.number_of(&pull);
    world
        .forge
        .add_line_comment(PROJECT, shown, ("new.txt", 1), "Rename it.");
    let thread = world.tracker.threads(&pull).await.unwrap().remove(0).id;
    let reply = world
        .tracker
        .reply_to_thread(&pull, &thread, "m", text, &PERMIT);
    reply.await.unwrap();
    let marker = "<!-- agentmine:dashboard 1 -->";
    let body = format!("{text}\n{marker}");
    let new = NewIssue {
        title: "/close",
        body: &body,
        marker,
    };
    let shown = world.tracker.issue_of_ours(&item, &new, &PERMIT);
    let OurIssue::Opened { number: shown, .. } = shown.await.unwrap() else {
        panic!("there was none");
    };
    let dashboard = ItemRef {
        number: shown,
        ..item.clone()
    };
    no_action_ran(&world.forge);
    let edited = world.tracker.edit_issue(&dashboard, &body, &PERMIT);
    edited.await.unwrap();
    no_action_ran(&world.forge);
    for item in [&item, &pull, &dashboard] {
        let number = world.forge.number_of(item);
        assert!(world.forge.is_open(PROJECT, number), "{item}");
    }
}

#[tokio::test]
async fn an_update_keeps_the_title_of_a_merge_request_and_whether_it_is_a_draft() {
    let world = OnGitLab::new().await;
    let item = world.issue().await;
    commit(&world.forge, "x");
    let draft = NewPullRequest {
        draft: true,
        ..new_pull("x")
    };
    let opened = world.tracker.create_pull_request(&item, &draft, &PERMIT);
    let number = opened.await.unwrap().number;
    let shown = || {
        let pull = world.forge.pulls(PROJECT).remove(0);
        (pull.draft, pull.title)
    };
    let opened = (true, "Draft: Fix \"it\": now".to_owned());
    assert_eq!(shown(), opened);
    let later = NewPullRequest {
        title: "Later".to_owned(),
        body: "Later".to_owned(),
        ..draft.clone()
    };
    let update = async |new: &NewPullRequest| {
        let update = world
            .tracker
            .update_pull_request(&item, number, new, &PERMIT);
        update.await.unwrap();
    };
    update(&later).await;
    assert_eq!(shown(), opened);
    assert_eq!(world.forge.pulls(PROJECT).remove(0).body, "Later");
    // A person marks it as ready.
    let url = world.forge.gitlab_url();
    let path = format!("projects/{}/merge_requests/{number}", item.repo_id);
    let authority = std::fs::read(world.forge.authority().unwrap()).unwrap();
    let trusted = reqwest::Certificate::from_pem(&authority).unwrap();
    let client = reqwest::Client::builder()
        .tls_certs_merge([trusted])
        .build();
    let ready = client.unwrap().put(url.join(&path).unwrap());
    let ready = ready.header("PRIVATE-TOKEN", world.forge.human_token());
    let ready = ready.json(&serde_json::json!({ "title": "Ready" })).send();
    assert!(ready.await.unwrap().status().is_success());
    update(&later).await;
    assert_eq!(shown(), (false, "Ready".to_owned()));
}

#[tokio::test]
async fn other_conflicts_than_a_second_merge_request_are_final() {
    let world = OnGitLab::new().await;
    let item = world.issue().await;
    let new = new_pull("main");
    let error = world.tracker.create_pull_request(&item, &new, &PERMIT);
    let error = error.await.unwrap_err();
    assert!(matches!(error, TrackerError::Refused { .. }), "{error}");
    assert!(error.to_string().contains("same project/branch"), "{error}");
}

#[tokio::test]
async fn a_merge_request_has_its_branches_and_the_comments_on_its_lines() {
    let world = OnGitLab::new().await;
    commit(&world.forge, "x");
    let number = world
        .forge
        .add_pull(PROJECT, "x", "main", "Asked", &[LABEL]);
    world.forge.add_comment(PROJECT, number, HUMAN, "please");
    let place = ("new.txt", 1);
    world
        .forge
        .add_line_comment(PROJECT, number, place, "rename this");
    let item = world
        .tracker
        .candidates(LABEL)
        .await
        .unwrap()
        .remove(0)
        .item;
    assert_eq!(item.kind, ItemKind::PullRequest);
    let branches = world.tracker.item(&item).await.unwrap().branches.unwrap();
    assert_eq!(
        (branches.source.as_str(), branches.target.as_str()),
        ("x", "main")
    );
    let comments = world.tracker.comments(&item).await.unwrap();
    let kinds: Vec<_> = comments.into_iter().map(|it| it.kind).collect();
    let on_line = CommentKind::OnLine {
        path: "new.txt".to_owned(),
        place: LinePlace::Lines { first: 1, last: 1 },
    };
    assert_eq!(kinds, [CommentKind::Plain, on_line]);
    // An issue of that number is another item.
    let mut other = item.clone();
    other.kind = ItemKind::Issue;
    let error = world.tracker.item(&other).await.unwrap_err();
    assert!(matches!(error, TrackerError::NotFound { .. }), "{error}");
}

#[tokio::test]
async fn a_weak_token_names_the_scope_and_a_revoked_one_its_variable() {
    let world = OnGitLab::new().await;
    let item = world.issue().await;
    let config = GitLab {
        token: Some(Secret::new(world.forge.reader_token())),
        ..world.forge.gitlab_config(&[PROJECT])
    };
    let weak = GitLabTracker::new(&config).unwrap();
    let error = weak.set_labels(&item, &[DONE.into()], &[], &PERMIT).await;
    let error = error.unwrap_err();
    assert!(matches!(error, TrackerError::Forbidden { .. }), "{error}");
    assert!(error.to_string().contains("needs the scope api"), "{error}");
    world.forge.revoke(world.forge.token());
    let error = world.tracker.login().await.unwrap_err().to_string();
    assert!(error.contains("GITLAB_PERSONAL_ACCESS_TOKEN"), "{error}");
    assert!(!error.contains(world.forge.token()), "{error}");
}

#[tokio::test]
async fn a_limit_in_plain_text_is_reported_with_its_end() {
    let world = OnGitLab::new().await;
    world.forge.limit_rate(0, Duration::from_secs(3600));
    for _ in 0..2 {
        let error = world.tracker.candidates(LABEL).await.unwrap_err();
        let TrackerError::RateLimited { until, .. } = error else {
            panic!("{error}");
        };
        assert!((until - chrono::Utc::now()).num_seconds() > 3000, "{until}");
    }
    assert_eq!(world.forge.requests().len(), 1, "it is not asked again");
}

#[tokio::test]
async fn only_a_server_of_the_named_authority_is_trusted() {
    let world = OnGitLab::new().await;
    let config = GitLab {
        ca_file: None,
        ..world.forge.gitlab_config(&[PROJECT])
    };
    let error = GitLabTracker::new(&config)
        .unwrap()
        .login()
        .await
        .unwrap_err();
    assert!(matches!(error, TrackerError::Unavailable { .. }), "{error}");
    assert!(error.to_string().contains("certificate"), "{error}");
    assert!(error.to_string().contains("in `ca_file`"), "{error}");
    let empty = tempfile::NamedTempFile::new().unwrap();
    let config = GitLab {
        ca_file: Some(empty.path().to_path_buf()),
        ..config
    };
    let error = GitLabTracker::new(&config).unwrap_err();
    assert!(
        error.to_string().contains("without a certificate"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn git_is_served_to_the_user_oauth2() {
    let world = OnGitLab::new().await;
    let item = world.issue().await;
    let source = world.tracker.repository(&item).await.unwrap().source;
    let GitSource::Http {
        url,
        user,
        password,
        authority,
    } = source
    else {
        panic!("not over HTTP");
    };
    assert_eq!(
        (user.as_str(), &url),
        ("oauth2", &world.forge.git_url(PROJECT))
    );
    let token = password.unwrap().get();
    let file = world.forge.authority().unwrap();
    assert_eq!(authority.unwrap().pem(), std::fs::read(file).unwrap());
    let dir = tempfile::tempdir().unwrap();
    let trusted = format!("http.sslCAInfo={}", file.display());
    let auth = basic(&user, token.expose());
    let clone = [
        "-c",
        &trusted,
        "-c",
        &auth,
        "clone",
        "-q",
        url.as_str(),
        "demo",
    ];
    git(dir.path(), &clone);
    let demo = dir.path().join("demo");
    git(&demo, &["switch", "-q", "-c", "x"]);
    git(&demo, &["commit", "-q", "--allow-empty", "-m", "Empty"]);
    let reader = basic(&user, world.forge.reader_token());
    let push = |auth: &str| {
        git_output(
            &demo,
            &["-c", &trusted, "-c", auth, "push", "-q", "origin", "x"],
        )
    };
    assert!(!push(&reader).status.success());
    assert!(push(&auth).status.success());
    assert_eq!(world.forge.pushes(PROJECT).len(), 1);
}

/// The model's last words try to close the issue and to merge.
#[tokio::test]
async fn an_issue_becomes_a_merge_request() {
    let scenario = Scenario::new("solves the sample").replies([
        edit_replace("greet.sh", "name=\"\"", "name=\"${1:-world}\""),
        commit_and_push("Greet the person named"),
        say("Done.\n\n/close\n/merge\n/label ~owned\n"),
    ]);
    let rig = Rig::on_gitlab(scenario).await;
    let title = "greet.sh greets nobody";
    let number = rig
        .forge
        .add_issue(DEMO, title, "It should greet.", &[REQUEST, "bug"]);
    rig.forge
        .add_internal_note(DEMO, number, "the canary of the team");
    rig.produce().await;
    assert_eq!(rig.forge.labels(DEMO, number), ["bug", PROCESSING]);
    rig.consume().await;

    let task = rig.task().await;
    assert_done(&task);
    let pulls = rig.forge.pulls(DEMO);
    assert_eq!(pulls.len(), 1);
    let pull = &pulls[0];
    let branches = (pull.head.clone(), pull.base.as_str(), pull.draft);
    assert_eq!(branches, (task.branch(), "main", false));
    assert!(
        pull.body.contains(&format!("Closes #{number}")),
        "{}",
        pull.body
    );
    assert!(pull.body.contains("| `sh test.sh` | 0 |"), "{}", pull.body);
    let file = rig.forge.file_at(DEMO, &pull.head, "greet.sh").unwrap();
    assert!(file.contains("${1:-world}"));

    assert_eq!(rig.forge.labels(DEMO, number), ["bug", "coding agent done"]);
    let comments = rig.forge.comments(DEMO, number);
    let ours: Vec<_> = comments.iter().filter(|it| it.author == BOT).collect();
    assert_eq!(ours.len(), 1, "{comments:#?}");
    let address = format!("/{DEMO}/-/merge_requests/{}", pull.iid);
    assert!(ours[0].body.contains(&address), "{}", ours[0].body);
    no_action_ran(&rig.forge);
    assert!(rig.forge.is_open(DEMO, number) && rig.forge.is_open(DEMO, pull.number));
    assert_eq!(rig.forge.leaks(), Vec::<String>::new());
    let transcript = rig.transcript(&task).await;
    assert!(!transcript.contains("the canary of the team"));
    assert!(!transcript.contains(rig.forge.token()));
}

#[tokio::test]
async fn a_labelled_merge_request_gets_commits_on_its_branch() {
    let rig = Rig::local_gitlab(solves_demo()).await;
    let number = rig.produce_pull_request().await;
    rig.consume().await;
    assert_done(&rig.task().await);
    assert_eq!(rig.forge.pulls(DEMO).len(), 1, "a second one was opened");
    let file = rig.forge.file_at(DEMO, "feature", "greet.sh").unwrap();
    assert!(file.contains("${1:-world}"));
    assert!(rig.forge.file_at(DEMO, "feature", "more.txt").is_some());
    let comments = rig.forge.comments(DEMO, number);
    assert!(comments[0].body.contains("sh test.sh"), "{comments:#?}");
    assert_eq!(rig.forge.labels(DEMO, number), ["coding agent done"]);
    no_action_ran(&rig.forge);
}

#[tokio::test]
async fn a_killed_consumer_doubles_nothing_on_gitlab() {
    let rig = Rig::local_gitlab(solves_demo()).await;
    rig.produce_issue().await;
    rig.model.hold_at(2);
    let victim = rig.spawn("consumer", &[]);
    rig.model.wait_for_held(1).await;
    victim.kill_nine();
    victim.end().await;
    rig.model.release();
    // The second one dies between the answer to its POST and its report.
    let kill = "tracker.pull_request_create.after=kill";
    let (status, log) = rig.spawn_failing("consumer", kill).end().await;
    assert!(!status.success(), "{log}");
    let third = rig.spawn("consumer", &[]);
    let task = rig.wait_ended(1).await.remove(0);
    third.terminate();
    third.end().await;
    assert_done_at_attempt(&task, 3);
    assert_eq!(rig.forge.pulls(DEMO).len(), 1);
    let comments = rig.forge.comments(DEMO, task.item.number);
    assert_eq!(comments.len(), 1, "{comments:#?}");
    let sessions = rig.sessions().await;
    let expired = sessions
        .iter()
        .filter(|it| it.end == Some(SessionEnd::Expired));
    assert_eq!(expired.count(), 2);
}

#[tokio::test]
async fn removing_the_label_on_gitlab_stops_the_work() {
    let rig = Rig::local_gitlab(solves_demo()).await;
    let number = rig.produce_issue().await;
    // After the edit, before the push.
    rig.model.hold_at(2);
    let consumer = rig.spawn("consumer", &[]);
    rig.model.wait_for_held(1).await;
    rig.forge.remove_label(DEMO, number, PROCESSING);
    let task = rig.wait_ended(1).await.remove(0);
    assert_eq!(task.state, TaskState::Ended(EndState::Stopped));
    let comments = rig.forge.comments(DEMO, number);
    let reason = "the label `coding agent processing` was removed";
    assert!(comments[0].body.contains(reason), "{}", comments[0].body);
    assert_eq!(rig.forge.labels(DEMO, number), ["coding agent stopped"]);
    assert_eq!(rig.forge.pushes(DEMO), Vec::<String>::new());
    consumer.terminate();
    assert!(consumer.end().await.0.success());
}

#[tokio::test]
async fn a_confidential_issue_fails_with_its_reason_and_reaches_no_model() {
    let rig = Rig::local_gitlab(solves_demo()).await;
    let number = rig.label_issue();
    rig.forge.make_confidential(DEMO, number);
    rig.produce().await;
    rig.consume().await;
    let task = rig.task().await;
    assert_eq!(task.state, TaskState::Ended(EndState::Failed));
    assert_eq!(rig.model.requests().len(), 0);
    assert!(rig.forge.pulls(DEMO).is_empty());
    let comments = rig.forge.comments(DEMO, number);
    assert!(
        comments[0].body.contains("is confidential"),
        "{comments:#?}"
    );
}

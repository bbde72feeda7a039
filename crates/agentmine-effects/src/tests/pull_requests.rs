//! The pull request of a result, and what is known of one that an earlier attempt opened.

use std::collections::BTreeSet;

use agentmine_domain::EffectKey;
use agentmine_store::EffectState;
use agentmine_trackers::{NewPullRequest, PullRequest, Tracker};
use serde_json::json;

use super::forge::unavailable;
use super::world::{NONE, World, ours, permit, pull, second_round};
use crate::{EarlierPullRequest, EffectError, Pushers, ReportedCommit};

const URL: &str = "https://forge.example/pull/21";

/// The pull request of the task.
fn pull_of(world: &World, title: &str) -> NewPullRequest {
    NewPullRequest {
        head: world.task.branch(),
        ..pull(title)
    }
}

fn opened() -> PullRequest {
    PullRequest {
        number: 21,
        url: URL.into(),
        open: true,
        merged: false,
        head_sha: String::new(),
    }
}

#[tokio::test]
async fn a_pull_request_whose_response_was_lost_is_not_opened_again() {
    let world = World::new().await;
    let effects = world.session(world.claim().await);
    // The first attempt was killed between the tracker's write and the record of it.
    let key = EffectKey::pull_request("agentmine/issue-7");
    effects.begin(&key).await.unwrap();
    let item = &world.task.item;
    world
        .tracker
        .create_pull_request(item, &pull("old"), &permit())
        .await
        .unwrap();
    let opened = effects
        .pull_request(&pull("new"), &ours("commit-1"), None)
        .await
        .unwrap();
    assert_eq!(opened.number, 21);
    let forge = world.tracker.forge();
    assert_eq!(forge.pulls.len(), 1);
    assert_eq!(forge.pulls[0].1.body, "new");
    assert_eq!(forge.pulls[0].1.title, "old", "a person may have worded it");
}

#[tokio::test]
async fn an_open_pull_request_is_updated_only_for_another_commit() {
    let world = World::new().await;
    let effects = world.session(world.claim().await);
    effects
        .pull_request(&pull("one"), &ours("commit-1"), None)
        .await
        .unwrap();
    effects
        .pull_request(&pull("same"), &ours("commit-1"), None)
        .await
        .unwrap();
    assert_eq!(world.writes(), 1);
    effects
        .pull_request(&pull("two"), &ours("commit-2"), None)
        .await
        .unwrap();
    assert_eq!(world.tracker.forge().pulls[0].1.body, "two");
    assert_eq!(world.writes(), 2);
    world.tracker.forge().pulls[0].0.open = false;
    let closed = effects
        .pull_request(&pull("three"), &ours("commit-3"), None)
        .await
        .unwrap();
    assert!(!closed.open);
    assert_eq!(world.writes(), 2);
}

/// A worker was lost after it opened the pull request, and the checks of the next one end in another way.
#[tokio::test]
async fn a_pull_request_says_what_the_newest_measurement_of_its_commit_showed() {
    let world = World::new().await;
    let effects = world.session(world.claim().await);
    let (partial, complete) = (pull_of(&world, "partial"), pull_of(&world, "complete"));
    let missing = Some("the check failed");
    for (new, missing, requests) in [
        (&partial, missing, vec!["create_pull_request"]),
        (&partial, missing, vec![]),
        (
            &complete,
            None,
            vec!["update_pull_request 21", "mark_ready 21"],
        ),
        (&complete, None, vec![]),
        (&partial, missing, vec!["update_pull_request 21"]),
    ] {
        let shown = effects.pull_request(new, &ours("commit-1"), missing).await;
        assert_eq!(shown.unwrap(), opened());
        assert_eq!(world.requests(), requests);
        assert_eq!(world.tracker.forge().pulls[0].1.body, new.body);
        let earlier = effects.earlier_pull_request().await.unwrap().unwrap();
        assert_eq!(earlier.missing.as_deref(), missing);
    }
}

#[tokio::test]
async fn a_partial_draft_whose_response_was_lost_becomes_ready_with_a_complete_result() {
    let world = World::new().await;
    let effects = world.session(world.claim().await);
    let new = pull_of(&world, "one");
    world.tracker.forge().lost.push("create_pull_request");
    let result = ours("commit-1");
    let lost = effects.pull_request(&new, &result, Some("the check failed"));
    lost.await.unwrap_err();
    effects
        .pull_request(&new, &ours("commit-1"), None)
        .await
        .unwrap();
    let requests = [
        "create_pull_request",
        "update_pull_request 21",
        "mark_ready 21",
    ];
    assert_eq!(world.requests(), requests);
}

#[tokio::test]
async fn what_a_pull_request_was_about_to_say_of_another_commit_is_not_taken_for_said() {
    let world = World::new().await;
    let effects = world.session(world.claim().await);
    let new = NewPullRequest {
        head: world.task.branch(),
        ..pull("one")
    };
    effects
        .pull_request(&new, &ours("commit-1"), None)
        .await
        .unwrap();
    world.tracker.forge().refusals.push(unavailable());
    let result = ours("commit-2");
    let update = effects.pull_request(&new, &result, Some("the check failed"));
    update.await.unwrap_err();
    let earlier = effects.earlier_pull_request().await.unwrap().unwrap();
    assert_eq!(earlier.missing, None, "the text reports on commit-1");
}

#[tokio::test]
async fn a_pull_request_that_was_recorded_is_known_while_the_tracker_is_away() {
    let world = World::new().await;
    let effects = world.session(world.claim().await);
    let head = world.task.branch();
    let new = NewPullRequest {
        head: head.clone(),
        ..pull("one")
    };
    world.tracker.forge().hides_pulls = true;
    let key = EffectKey::pull_request(&head);
    effects.begin(&key).await.unwrap();
    let unsure = effects.earlier_pull_request().await.unwrap_err();
    assert!(matches!(unsure, EffectError::Tracker(_)), "{unsure}");
    world.tracker.forge().hides_pulls = false;
    let result = ours("commit-1");
    let opened = effects.pull_request(&new, &result, Some("tests"));
    let opened = opened.await.unwrap();
    world.tracker.forge().hides_pulls = true;
    let earlier = effects.earlier_pull_request().await.unwrap().unwrap();
    assert_eq!(earlier.pull, opened);
    assert_eq!(earlier.missing.as_deref(), Some("tests"));
}

/// A changed record means that pull requests of earlier versions are not known any more.
#[tokio::test]
async fn a_pull_request_and_its_text_are_recorded_as_earlier_versions_recorded_them() {
    let world = World::new().await;
    let effects = world.session(world.claim().await);
    let new = pull_of(&world, "one");
    let missing = Some("the check failed");
    let shown = effects.pull_request(&new, &ours("commit-1"), missing).await;
    assert_eq!(shown.unwrap(), opened());
    let record =
        json!({ "number": 21, "url": URL, "commit": "commit-1", "missing": "the check failed" });
    let key = EffectKey::pull_request(&new.head);
    assert_eq!(
        effects.begin(&key).await.unwrap(),
        EffectState::Done(record)
    );
    let text = json!({ "commit": "commit-1", "missing": "the check failed" });
    let key = EffectKey::pull_request_text(&new.head);
    assert_eq!(effects.begin(&key).await.unwrap(), EffectState::Done(text));

    let world = World::new().await;
    let effects = world.session(world.claim().await);
    let new = pull_of(&world, "one");
    effects.begin_draft().await.unwrap();
    effects
        .pull_request(&new, &ours("commit-1"), None)
        .await
        .unwrap();
    let whole = json!({ "base": "main", "title": "one", "body": "one", "draft": false });
    let text = json!({ "commit": "commit-1", "missing": null, "whole": whole });
    let key = EffectKey::pull_request_text(&new.head);
    assert_eq!(effects.begin(&key).await.unwrap(), EffectState::Done(text));
}

#[tokio::test]
async fn a_record_that_cannot_be_read_is_an_error_that_names_it() {
    let world = World::new().await;
    let effects = world.session(world.claim().await);
    let key = EffectKey::pull_request(&world.task.branch());
    effects.done(&key, &"x").await.unwrap();
    let unreadable = effects.earlier_pull_request().await.unwrap_err();
    let begin = format!(
        "the record of pull_request {} cannot be read: ",
        world.task.branch()
    );
    let shown = unreadable.to_string();
    assert!(shown.starts_with(&begin), "{shown}");
    assert!(matches!(unreadable, EffectError::Record { .. }));
}

#[tokio::test]
async fn a_pull_request_that_no_attempt_began_to_open_is_not_looked_for() {
    let world = World::new().await;
    let effects = world.reconciler().await;
    world.tracker.forge().hides_pulls = true;
    assert_eq!(effects.earlier_pull_request().await.unwrap(), None);
    assert!(!effects.result_is_unsure().await.unwrap());
    assert_eq!(effects.reported_commit().await.unwrap(), None);
}

/// The answer was lost: what it was about to say is known.
#[tokio::test]
async fn an_earlier_pull_request_is_found_with_what_it_reports_as_missing() {
    for missing in [None, Some("the check failed")] {
        let world = World::new().await;
        let effects = world.session(world.claim().await);
        let new = pull_of(&world, "one");
        world.tracker.forge().lost.push("create_pull_request");
        let lost = effects.pull_request(&new, &ours("commit-1"), missing).await;
        lost.unwrap_err();
        assert!(effects.result_is_unsure().await.unwrap());
        let earlier = effects.earlier_pull_request().await.unwrap();
        let expected = EarlierPullRequest {
            pull: opened(),
            missing: missing.map(str::to_owned),
            commit: Some("commit-1".to_owned()),
        };
        assert_eq!(earlier, Some(expected.clone()));
        assert_eq!(effects.reported_commit().await.unwrap(), None);

        let again = effects.pull_request(&new, &ours("commit-1"), missing).await;
        again.unwrap();
        assert!(!effects.result_is_unsure().await.unwrap());
        let earlier = effects.earlier_pull_request().await.unwrap();
        assert_eq!(earlier, Some(expected));
        let commit = ReportedCommit {
            commit: "commit-1".into(),
            pushers: Pushers::Us,
            heard: None,
        };
        assert_eq!(effects.reported_commit().await.unwrap(), Some(commit));
        assert_eq!(
            world.requests(),
            ["create_pull_request", "update_pull_request 21"]
        );
    }
}

/// The result is on its branch, and the comment reports it: nothing is opened or looked up.
#[tokio::test]
async fn a_result_on_the_branch_of_a_pull_request_is_known_without_the_forge() {
    let heard = BTreeSet::from(["review-7".to_owned()]);
    for (pushers, missing, heard) in [
        (Pushers::Us, None, Some(heard)),
        (Pushers::Others, Some("the check failed"), None),
    ] {
        let world = World::of(&second_round()).await;
        let effects = world.session(world.claim().await);
        world.tracker.forge().hides_pulls = true;
        let result = ReportedCommit {
            commit: "commit-1".into(),
            pushers,
            heard,
        };
        effects.pushed_result(&result, missing).await.unwrap();
        let earlier = effects.earlier_pull_request().await.unwrap();
        let expected = EarlierPullRequest {
            pull: opened(),
            missing: missing.map(str::to_owned),
            commit: Some("commit-1".to_owned()),
        };
        assert_eq!(earlier, Some(expected));
        assert_eq!(effects.reported_commit().await.unwrap(), Some(result));
        assert_eq!(world.requests(), NONE);
    }
}

/// A worker that died before it recorded the result: it was on the branch.
#[tokio::test]
async fn a_result_that_was_about_to_be_recorded_is_on_the_branch() {
    let world = World::of(&second_round()).await;
    let effects = world.session(world.claim().await);
    assert_eq!(effects.earlier_pull_request().await.unwrap(), None);
    let key = EffectKey::pull_request(&world.task.branch());
    effects.begin(&key).await.unwrap();
    let earlier = effects.earlier_pull_request().await.unwrap().unwrap();
    assert_eq!(earlier.pull, opened());
    assert_eq!(earlier.missing, None);
}

#[test]
fn what_is_missing_is_followed_by_why_no_later_attempt_did_it() {
    for (missing, failure, expected) in [
        (None, None, None),
        (Some("- a test"), None, Some("- a test")),
        (
            None,
            Some(" no disk\n"),
            Some("- a later attempt failed: no disk"),
        ),
        (
            Some("- a test"),
            Some("no disk"),
            Some("- a test\n- a later attempt failed: no disk"),
        ),
    ] {
        let earlier = EarlierPullRequest {
            pull: opened(),
            missing: missing.map(str::to_owned),
            commit: None,
        };
        assert_eq!(earlier.missing_after(failure).as_deref(), expected);
    }
}

#[tokio::test]
async fn one_that_was_merged_before_the_last_push_is_not_recorded_with_it() {
    let world = World::new().await;
    let effects = world.session(world.claim().await);
    let new = pull_of(&world, "Greet");
    effects
        .pull_request(&new, &ours("commit-1"), None)
        .await
        .unwrap();
    {
        let mut forge = world.tracker.forge();
        let pull = &mut forge.pulls[0].0;
        (pull.open, pull.merged, pull.head_sha) = (false, true, "commit-1".to_owned());
    }
    for (commit, is_without) in [("commit-2", true), ("commit-1", false)] {
        let pull = effects
            .pull_request(&new, &ours(commit), None)
            .await
            .unwrap();
        assert_eq!(pull.was_merged_without(commit), is_without);
        let reported = effects.reported_commit().await.unwrap().unwrap();
        assert_eq!(reported.commit, "commit-1");
        let earlier = effects.earlier_pull_request().await.unwrap().unwrap();
        assert!(!earlier.was_merged_before());
    }
    world.tracker.forge().pulls[0].0.head_sha = "commit-0".to_owned();
    let earlier = effects.earlier_pull_request().await.unwrap().unwrap();
    assert!(earlier.was_merged_before());
}

#[tokio::test]
async fn a_later_session_knows_that_the_branch_was_pushed() {
    let world = World::new().await;
    let effects = world.session(world.claim().await);
    assert!(!effects.was_pushed().await.unwrap());
    let record = effects.push_record();
    for _ in 0..2 {
        record.note().await;
        assert!(effects.was_pushed().await.unwrap());
    }
    effects.push_record().note().await;
    assert!(effects.was_pushed().await.unwrap());
}

#[tokio::test]
async fn who_pushed_is_recorded_with_a_new_pull_request() {
    for pushers in [Pushers::Us, Pushers::Others] {
        let world = World::new().await;
        let effects = world.session(world.claim().await);
        let new = pull_of(&world, "new");
        let result = ReportedCommit {
            pushers,
            ..ours("commit-1")
        };
        effects.pull_request(&new, &result, None).await.unwrap();
        let reported = effects.reported_commit().await.unwrap().unwrap();
        assert_eq!(reported, result);
    }
}

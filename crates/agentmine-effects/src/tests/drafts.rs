//! The pull request that is opened when the work begins.

use agentmine_domain::{EffectKey, EndState};
use agentmine_store::EffectState;
use agentmine_trackers::{NewPullRequest, PullRequest};
use serde_json::json;

use super::forge::{Posted, refused, unauthorized, unavailable};
use super::world::{NONE, World, done, finish, ours, pull, second_round};
use crate::{DraftState, Effects, draft_number};

const URL: &str = "https://forge.example/pull/21";

/// What is opened when the work begins.
fn draft_of(world: &World) -> NewPullRequest {
    NewPullRequest {
        head: world.task.branch(),
        draft: true,
        body: "AgentMine is working on #7.".into(),
        ..pull("Greet")
    }
}

fn result_of(world: &World) -> NewPullRequest {
    NewPullRequest {
        head: world.task.branch(),
        body: "The result.".into(),
        ..pull("Greet")
    }
}

/// A session that has opened the pull request and has no result yet.
async fn begun() -> (World, Effects) {
    let world = World::new().await;
    let effects = world.session(world.claim().await);
    effects.open_draft(&draft_of(&world)).await.unwrap();
    world.requests();
    (world, effects)
}

/// The comment that a draft without a result has.
fn end_comment(world: &World, how: &str) -> String {
    format!(
        "{how}\n\nThis pull request has no result and stays as it is. Its branch `{}` is kept, with anything that was pushed \
         to it. To start again, add the label `coding agent` to #7.\n\n<sub>AgentMine, session ended</sub>",
        world.task.branch()
    )
}

#[tokio::test]
async fn how_far_a_draft_is_is_known_from_its_record_and_the_forge() {
    let world = World::new().await;
    let effects = world.session(world.claim().await);
    let number = async || {
        draft_number(world.store.as_ref(), &world.task)
            .await
            .unwrap()
    };
    assert_eq!(effects.draft().await.unwrap(), DraftState::NotBegun);
    assert_eq!(number().await, None);

    effects.begin_draft().await.unwrap();
    let missing = |recorded| DraftState::Missing { recorded };
    assert_eq!(effects.draft().await.unwrap(), missing(false));
    assert_eq!(number().await, None);

    let opened = effects.open_draft(&draft_of(&world)).await.unwrap();
    assert_eq!((opened.number, opened.url.as_str()), (21, URL));
    assert_eq!(effects.draft().await.unwrap(), DraftState::Found(opened));
    assert_eq!(number().await, Some(21));

    world.tracker.forge().pulls.clear();
    assert_eq!(effects.draft().await.unwrap(), missing(true));
    world.tracker.forge().hides_pulls = true;
    effects.draft().await.unwrap_err();
}

/// A changed record means that drafts of earlier versions are not found any more.
#[tokio::test]
async fn a_draft_is_recorded_by_number_and_address() {
    let (world, effects) = begun().await;
    let key = EffectKey::pull_request_draft(&world.task.branch());
    let record = json!({ "number": 21, "url": URL });
    assert_eq!(
        effects.begin(&key).await.unwrap(),
        EffectState::Done(record)
    );
}

#[tokio::test]
async fn a_draft_is_opened_once_whatever_is_lost() {
    let world = World::new().await;
    let effects = world.session(world.claim().await);
    let draft = draft_of(&world);
    world.tracker.forge().lost.push("create_pull_request");
    effects.open_draft(&draft).await.unwrap_err();
    let found = effects.open_draft(&draft).await.unwrap();
    let again = effects.open_draft(&draft).await.unwrap();
    assert_eq!((found.number, again.number), (21, 21));
    assert_eq!(world.requests(), ["create_pull_request"]);
    // What a person wrote on it meanwhile stays.
    assert_eq!(world.tracker.forge().pulls[0].1, draft);
}

#[tokio::test]
async fn the_comments_on_an_issue_are_transferred_to_its_pull_request_once() {
    let (world, effects) = begun().await;
    let DraftState::Found(draft) = effects.draft().await.unwrap() else {
        panic!("it is there");
    };
    assert!(!effects.comments_are_transferred().await.unwrap());
    world.tracker.forge().lost.push("write_comment");
    let lost = effects.transfer_comments(&draft, Some("Comments.")).await;
    lost.unwrap_err();
    assert!(!effects.comments_are_transferred().await.unwrap());
    let written = effects.transfer_comments(&draft, Some("Comments.")).await;
    written.unwrap();
    assert!(effects.comments_are_transferred().await.unwrap());
    let posted = Posted {
        on: "pull_request 21".into(),
        marker: format!("<!-- agentmine:task={}:transferred -->", world.task.id),
        body: "Comments.".into(),
    };
    assert_eq!(world.tracker.forge().comments, [posted]);
}

/// There are none, or the pull request takes none.
#[tokio::test]
async fn comments_that_cannot_be_transferred_are_done_with() {
    for (body, refusal) in [(None, None), (Some("Comments."), Some(refused()))] {
        let (world, effects) = begun().await;
        let draft = effects.open_draft(&draft_of(&world)).await.unwrap();
        world.tracker.forge().refusals.extend(refusal);
        effects.transfer_comments(&draft, body).await.unwrap();
        assert!(effects.comments_are_transferred().await.unwrap());
        assert_eq!(world.comments_on("pull_request 21"), NONE);
        assert_eq!(world.requests().len(), usize::from(body.is_some()));
    }
    for error in [unavailable(), unauthorized()] {
        let (world, effects) = begun().await;
        let draft = effects.open_draft(&draft_of(&world)).await.unwrap();
        world.tracker.forge().refusals.push(error);
        let written = effects.transfer_comments(&draft, Some("Comments.")).await;
        written.unwrap_err();
        assert!(!effects.comments_are_transferred().await.unwrap());
    }
}

#[tokio::test]
async fn work_that_failed_is_reported_on_its_open_draft_too() {
    let (world, effects) = begun().await;
    effects.report_failed("no disk", "1").await.unwrap();
    let why = "AgentMine could not finish this task:\n\n```text\nno disk\n```";
    assert_eq!(
        world.comments_on("pull_request 21"),
        [end_comment(&world, why)]
    );
    assert_eq!(
        world.comments_on("issue 7"),
        [format!(
            "{why}\n\nIts pull request stays open: {URL}.\n\n<sub>AgentMine, session 1</sub>"
        )]
    );
    assert_eq!(world.labels(), ["bug", "coding agent failed"]);
    assert_eq!(
        world.requests(),
        [
            "write_comment pull_request 21",
            "write_comment issue 7",
            "set_labels issue 7: coding agent failed"
        ]
    );
}

#[tokio::test]
async fn work_that_was_stopped_is_reported_on_its_open_draft_too() {
    let (world, effects) = begun().await;
    effects.report_stopped("enough", "1").await.unwrap();
    assert_eq!(
        world.comments_on("pull_request 21"),
        [end_comment(&world, "AgentMine stopped: enough.")]
    );
    assert_eq!(
        world.comments_on("issue 7"),
        [format!(
            "AgentMine stopped: enough. Its pull request stays open: {URL}. Add the label `coding agent` to queue it again.\
             \n\n<sub>AgentMine, session 1</sub>"
        )]
    );
}

/// A person closed it.
#[tokio::test]
async fn nothing_is_said_on_a_draft_that_is_closed() {
    let (world, effects) = begun().await;
    world.tracker.forge().pulls[0].0.open = false;
    effects.report_failed("no disk", "1").await.unwrap();
    assert_eq!(world.comments_on("pull_request 21"), NONE);
    assert_eq!(
        world.comments_on("issue 7"),
        [
            "AgentMine could not finish this task:\n\n```text\nno disk\n```\n\n<sub>AgentMine, session 1</sub>"
        ]
    );
    effects.report_done(URL, None, "1").await.unwrap();
    let requests = world.requests();
    assert!(
        !requests.contains(&"mark_ready 21".to_owned()),
        "{requests:?}"
    );
}

/// The conversation on the pull request may be locked. Nobody repeats a report for ever for that.
#[tokio::test]
async fn a_draft_that_takes_no_comment_keeps_no_report_from_the_issue() {
    let (world, effects) = begun().await;
    world.tracker.forge().refusals.push(refused());
    effects.report_failed("no disk", "1").await.unwrap();
    assert_eq!(world.comments_on("pull_request 21"), NONE);
    assert_eq!(world.comments_on("issue 7").len(), 1);

    let (world, effects) = begun().await;
    world.tracker.forge().refusals.push(unavailable());
    effects.report_failed("no disk", "1").await.unwrap_err();
    assert_eq!(world.comments_on("issue 7"), NONE);
    effects.report_failed("no disk", "1").await.unwrap();
    assert_eq!(world.comments_on("pull_request 21").len(), 1);
    assert_eq!(world.comments_on("issue 7").len(), 1);
}

#[tokio::test]
async fn a_complete_result_makes_the_draft_ready_for_review_once() {
    let (world, effects) = begun().await;
    let result = result_of(&world);
    effects
        .pull_request(&result, &ours("commit-1"), None)
        .await
        .unwrap();
    effects.report_done(URL, None, "1").await.unwrap();
    assert_eq!(
        world.requests(),
        [
            "update_pull_request 21",
            "mark_ready 21",
            "write_comment issue 7",
            "set_labels issue 7: coding agent done"
        ]
    );
    assert_eq!(world.tracker.forge().pulls[0].1.body, result.body);
    assert_eq!(world.comments_on("pull_request 21"), NONE);
    // A person may have made it a draft again.
    effects.report_done(URL, None, "1").await.unwrap();
    assert_eq!(world.requests(), ["write_comment issue 7"]);
}

#[tokio::test]
async fn a_partial_result_stays_a_draft() {
    let (world, effects) = begun().await;
    let missing = Some("the check failed");
    let result = result_of(&world);
    let opened = effects
        .pull_request(&result, &ours("commit-1"), missing)
        .await;
    opened.unwrap();
    effects.report_done(URL, missing, "1").await.unwrap();
    assert_eq!(
        world.requests(),
        [
            "update_pull_request 21",
            "write_comment issue 7",
            "set_labels issue 7: coding agent done"
        ]
    );
}

#[tokio::test]
async fn a_draft_that_cannot_be_made_ready_keeps_no_result_from_the_issue() {
    for (error, is_again) in [
        (refused(), false),
        (unavailable(), true),
        (unauthorized(), true),
    ] {
        let (world, effects) = begun().await;
        world.tracker.forge().faults.push(("mark_ready", error));
        let report = effects.report_done(URL, None, "1").await;
        assert_eq!(report.is_err(), is_again);
        let key = EffectKey::pull_request_ready(&world.task.branch());
        let state = world.store.effect(world.task.id, &key).await.unwrap();
        let is_done = matches!(state, Some(EffectState::Done(_)));
        assert_eq!(is_done, !is_again);
        world.requests();
        effects.report_done(URL, None, "1").await.unwrap();
        let requests = world.requests();
        assert_eq!(requests.contains(&"mark_ready 21".to_owned()), is_again);
    }
}

/// The work failed, a person asked again, and the next attempt came to a result.
#[tokio::test]
async fn a_result_replaces_what_the_draft_says_of_an_earlier_end() {
    let (world, effects) = begun().await;
    effects.report_failed("no disk", "1").await.unwrap();
    effects.report_done(URL, None, "2").await.unwrap();
    assert_eq!(
        world.comments_on("pull_request 21"),
        [
            "AgentMine continued the work. The result is in the description of this pull request.\n\n\
          <sub>AgentMine, session ended</sub>"
        ]
    );
}

/// The worker died between the record of the text and its write. Whoever reports the result writes it.
#[tokio::test]
async fn the_text_of_a_result_is_written_by_the_next_worker_if_the_first_one_died() {
    for (missing, is_applied) in [(None, false), (Some("the check failed"), true)] {
        let (world, effects) = begun().await;
        let result = result_of(&world);
        match is_applied {
            true => world.tracker.forge().lost.push("update_pull_request"),
            false => world.tracker.forge().refusals.push(unavailable()),
        }
        let opened = effects
            .pull_request(&result, &ours("commit-1"), missing)
            .await;
        opened.unwrap_err();
        let lease = effects.lease.clone().unwrap();
        let reason = missing.map(|it| format!("partial: {it}"));
        let end = done(reason.as_deref());
        world.store.end_lease(&lease, &end).await.unwrap();
        world.requests();

        let sweep = world.reconciler().await;
        sweep.report_state().await.unwrap();
        assert_eq!(world.tracker.forge().pulls[0].1.body, result.body);
        let requests = world.requests();
        assert_eq!(requests[0], "update_pull_request 21");
        assert_eq!(
            requests.contains(&"mark_ready 21".to_owned()),
            missing.is_none()
        );
        // It is recorded like any other result.
        let commit = sweep.reported_commit().await.unwrap();
        assert_eq!(commit.map(|it| it.commit).as_deref(), Some("commit-1"));
        let earlier = sweep.earlier_pull_request().await.unwrap().unwrap();
        assert_eq!(earlier.missing.as_deref(), missing);
        // Not once more.
        let Some(draft) = sweep.open_draft_of_task().await.unwrap() else {
            panic!("it is open");
        };
        sweep.complete_text(&draft).await.unwrap();
        assert_eq!(world.requests(), NONE);
    }
}

/// Without a draft the result opens the pull request, with its text.
#[tokio::test]
async fn a_result_that_was_not_opened_is_not_completed() {
    let world = World::new().await;
    let effects = world.session(world.claim().await);
    world.tracker.forge().refusals.push(unavailable());
    let result = result_of(&world);
    let opened = effects.pull_request(&result, &ours("commit-1"), None).await;
    opened.unwrap_err();
    world.requests();
    let other = PullRequest {
        number: 9,
        url: String::new(),
        open: true,
        merged: false,
        head_sha: String::new(),
    };
    effects.complete_text(&other).await.unwrap();
    assert_eq!(world.requests(), NONE);
}

/// A pull request is worked on as it is.
#[tokio::test]
async fn work_on_a_pull_request_has_no_draft() {
    let world = World::of(&second_round()).await;
    let effects = world.session(world.claim().await);
    effects.open_draft(&draft_of(&world)).await.unwrap();
    assert_eq!(effects.open_draft_of_task().await.unwrap(), None);
    effects.report_failed("no disk", "1").await.unwrap();
    assert_eq!(
        world.comments_on("pull_request 21"),
        [
            "AgentMine could not finish this task:\n\n```text\nno disk\n```\n\n<sub>AgentMine, session 1</sub>"
        ]
    );
}

/// Which end it was is said on the draft also by a sweep.
#[tokio::test]
async fn the_end_of_a_lost_session_is_reported_on_its_draft() {
    let (world, effects) = begun().await;
    let lease = effects.lease.clone().unwrap();
    let end = finish(EndState::Failed, "no disk");
    world.store.end_lease(&lease, &end).await.unwrap();
    world.report_end().await.unwrap();
    let why = "AgentMine could not finish this task:\n\n```text\nno disk\n```";
    assert_eq!(
        world.comments_on("pull_request 21"),
        [end_comment(&world, why)]
    );
    assert_eq!(world.comments_on("issue 7").len(), 1);
}

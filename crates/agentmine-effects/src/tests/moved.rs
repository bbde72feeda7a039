//! A task that is stopped since its item was moved to another repository.

use agentmine_domain::{EffectKey, EndState, ItemRef, TaskLabel};
use agentmine_store::EffectState;
use agentmine_trackers::{Moved, NewPullRequest};
use serde_json::json;

use super::forge::{not_found, unavailable};
use super::world::{NONE, World, finish, ours, pull, requested_by, second_round};

/// Where the issue is now.
fn elsewhere() -> ItemRef {
    ItemRef {
        repo_id: "2".into(),
        repo_path: "octo/other".into(),
        number: 70,
        ..requested_by("").item
    }
}

const MOVED: &str = "AgentMine stopped: the issue was moved.";

#[tokio::test]
async fn a_stop_is_reported_where_the_item_is_now() {
    for (has_pull, work) in [
        (
            false,
            "Anything that was pushed is on the branch `BRANCH` of the repository that this was moved from.",
        ),
        (
            true,
            "Its pull request stays open in the repository that this was moved from.",
        ),
    ] {
        let world = World::new().await;
        let effects = world.session(world.claim().await);
        let branch = world.task.branch();
        if has_pull {
            let new = NewPullRequest {
                head: branch.clone(),
                ..pull("one")
            };
            effects
                .pull_request(&new, &ours("commit-1"), None)
                .await
                .unwrap();
        }
        world.requests();
        {
            let mut forge = world.tracker.forge();
            forge.moved = Some(Moved::To(elsewhere()));
            forge.scanned = vec!["octo/other".into()];
        }
        let stopped = effects.report_stopped("the issue was moved", "1").await;
        stopped.unwrap();
        let work = work.replace("BRANCH", &branch);
        let text = format!("{MOVED} {work}\n\n<sub>AgentMine, session 1</sub>");
        assert_eq!(world.comments_on("issue 70"), [text]);
        assert_eq!(
            world.requests(),
            [
                "write_comment issue 70",
                "set_labels issue 70: coding agent stopped"
            ]
        );
    }
}

/// A label of the fleet there would mean nothing to anybody.
#[tokio::test]
async fn a_moved_item_gets_no_label_where_nobody_scans() {
    let world = World::new().await;
    world.end(finish(EndState::Stopped, "it was moved")).await;
    world.tracker.forge().moved = Some(Moved::To(elsewhere()));
    world.tracker.forge().scanned = vec!["octo/demo".into()];
    world.reconciler().await.report_state().await.unwrap();
    assert_eq!(world.requests(), ["write_comment issue 70"]);
    assert_eq!(world.unreported().await, [], "it is recorded");
    world.reconciler().await.report_state().await.unwrap();
    assert_eq!(world.requests(), NONE);
}

/// Who reads it there may not read the repository that it came from.
#[tokio::test]
async fn nothing_is_said_of_a_stop_where_the_item_is_out_of_reach() {
    let world = World::new().await;
    let why = "it was moved to another owner";
    world.end(finish(EndState::Stopped, "it was moved")).await;
    world.tracker.forge().moved = Some(Moved::OutOfReach(why.into()));
    world.reconciler().await.report_state().await.unwrap();
    assert_eq!(world.requests(), NONE);
    assert_eq!(world.unreported().await, []);
    let row = world.row().await;
    let key = EffectKey::label(TaskLabel::Stopped, row.epoch);
    let recorded = world.store.effect(row.id, &key).await.unwrap();
    let expected = EffectState::Done(json!({ "not_reported": why }));
    assert_eq!(recorded, Some(expected));
}

/// Nobody knows where it is: it is reported in its place, as far as there is one.
#[tokio::test]
async fn an_item_that_cannot_be_looked_for_is_in_its_place() {
    let world = World::new().await;
    let effects = world.session(world.claim().await);
    world.tracker.forge().moved = Some(Moved::To(elsewhere()));
    world.tracker.forge().faults.push(("moved_to", not_found()));
    effects.report_stopped("enough", "1").await.unwrap();
    assert_eq!(world.comments_on("issue 7").len(), 1);
    assert_eq!(world.labels(), ["bug", "coding agent stopped"]);

    let world = World::new().await;
    let effects = world.session(world.claim().await);
    let away = ("moved_to", unavailable());
    world.tracker.forge().faults.push(away);
    effects.report_stopped("enough", "1").await.unwrap_err();
    assert_eq!(world.requests(), NONE);
}

/// Forges move issues alone.
#[tokio::test]
async fn a_pull_request_is_not_looked_for_elsewhere() {
    let world = World::of(&second_round()).await;
    let effects = world.session(world.claim().await);
    world.tracker.forge().moved = Some(Moved::To(elsewhere()));
    effects.report_stopped("enough", "1").await.unwrap();
    assert_eq!(
        world.requests(),
        [
            "write_comment pull_request 21",
            "set_labels pull_request 21: coding agent stopped"
        ]
    );
}

/// The comment there is refused: the label shows the stop.
#[tokio::test]
async fn a_moved_item_that_takes_no_comment_takes_a_label() {
    let world = World::new().await;
    let effects = world.session(world.claim().await);
    {
        let mut forge = world.tracker.forge();
        forge.moved = Some(Moved::To(elsewhere()));
        forge.scanned = vec!["octo/other".into()];
        forge.refusals.push(not_found());
    }
    effects.report_stopped("enough", "1").await.unwrap();
    assert_eq!(world.labels(), ["bug", "coding agent stopped"]);
    assert_eq!(world.comments_on("issue 70"), NONE);
}

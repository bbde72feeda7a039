//! Comments of people that are acknowledged, assignments, and branches that are removed.

use agentmine_domain::EffectKey;
use agentmine_store::EffectState;
use agentmine_trackers::{BranchRemoval, Comment, CommentKind, LinePlace};
use chrono::Utc;
use serde_json::json;

use super::forge::{comment, refused, unauthorized, unavailable};
use super::world::{NONE, World};

/// A command of a person.
fn command(id: &str) -> Comment {
    Comment {
        id: id.into(),
        ..comment(false, "/agentmine stop", Utc::now())
    }
}

#[tokio::test]
async fn a_command_is_acknowledged_once() {
    let world = World::new().await;
    let effects = world.reconciler().await;
    let (item, command) = (&world.task.item, command("12"));
    assert!(!effects.is_settled(&command).await.unwrap());
    world.tracker.forge().refusals.push(unavailable());
    effects.acknowledge(item, &command).await.unwrap_err();
    assert!(!effects.is_settled(&command).await.unwrap());
    world.requests();
    for _ in 0..2 {
        effects.acknowledge(item, &command).await.unwrap();
    }
    assert_eq!(world.requests(), ["react issue 7, comment 12"]);
    assert!(effects.is_settled(&command).await.unwrap());
    // Comments on lines are numbered apart.
    let on_line = Comment {
        kind: CommentKind::OnLine {
            path: "a.txt".into(),
            place: LinePlace::File,
        },
        ..command
    };
    assert!(!effects.is_settled(&on_line).await.unwrap());
}

/// It was deleted, or the conversation was locked.
#[tokio::test]
async fn a_command_that_takes_no_reaction_is_settled() {
    for error in [refused(), unauthorized()] {
        let world = World::new().await;
        let effects = world.reconciler().await;
        world.tracker.forge().refusals.push(error);
        let command = command("12");
        let acknowledged = effects.acknowledge(&world.task.item, &command).await;
        acknowledged.unwrap();
        assert!(effects.is_settled(&command).await.unwrap());
    }
}

#[tokio::test]
async fn a_comment_can_be_settled_without_a_reaction() {
    let world = World::new().await;
    let effects = world.reconciler().await;
    let (one, other) = (command("12"), command("13"));
    effects.settle(&one).await.unwrap();
    assert!(effects.is_settled(&one).await.unwrap());
    assert!(!effects.is_settled(&other).await.unwrap());
    let acknowledged = effects.acknowledge(&world.task.item, &one).await;
    acknowledged.unwrap();
    assert_eq!(world.requests(), NONE);
}

#[tokio::test]
async fn an_assignment_is_remembered() {
    let world = World::new().await;
    let effects = world.reconciler().await;
    assert!(!effects.was_assigned().await.unwrap());
    effects.note_assignment().await.unwrap();
    assert!(effects.was_assigned().await.unwrap());
    assert_eq!(world.requests(), NONE);
}

#[tokio::test]
async fn the_branch_of_a_pull_request_that_ended_is_removed_once() {
    for (removal, what) in [
        (BranchRemoval::Removed, "removed"),
        (BranchRemoval::Gone, "gone"),
        (BranchRemoval::Moved, "moved"),
    ] {
        let world = World::new().await;
        let effects = world.reconciler().await;
        let branch = world.task.branch();
        world.tracker.forge().removal = Some(removal);
        world.tracker.forge().faults = vec![("remove_branch", unavailable())];
        effects.remove_branch("commit-1").await.unwrap_err();
        world.requests();
        for _ in 0..2 {
            effects.remove_branch("commit-1").await.unwrap();
        }
        assert_eq!(
            world.requests(),
            [format!("remove_branch {branch} at commit-1")]
        );
        let key = EffectKey::branch_removal(&branch);
        let record = EffectState::Done(json!({ "branch": what }));
        assert_eq!(effects.begin(&key).await.unwrap(), record);
    }
}

/// A rule of the forge protects it: it stays. A token is renewed.
#[tokio::test]
async fn a_branch_that_may_not_be_removed_stays() {
    let world = World::new().await;
    let effects = world.reconciler().await;
    world.tracker.forge().refusals.push(unauthorized());
    effects.remove_branch("commit-1").await.unwrap_err();
    world.tracker.forge().refusals.push(refused());
    effects.remove_branch("commit-1").await.unwrap();
    world.requests();
    effects.remove_branch("commit-1").await.unwrap();
    assert_eq!(world.requests(), NONE);
    let key = EffectKey::branch_removal(&world.task.branch());
    let record = EffectState::Done(json!({ "branch": "refused" }));
    assert_eq!(effects.begin(&key).await.unwrap(), record);
}

//! A worker writes under its lease alone.

use agentmine_domain::{EndState, TaskLabel};
use agentmine_store::StoreError;
use agentmine_trackers::{Moved, TrackerError};

use super::world::{World, finish, lapsed, ours, pull, requested_by};
use crate::EffectError;

fn is_fenced(error: &EffectError) -> bool {
    matches!(error, EffectError::Store(StoreError::Fenced(_)))
}

fn is_not_permitted(error: &EffectError) -> bool {
    matches!(
        error,
        EffectError::Tracker(TrackerError::NotPermitted { .. })
    )
}

#[tokio::test]
async fn no_effect_begins_under_a_lost_lease() {
    let world = World::new().await;
    let claim = world.claim().await;
    let release = finish(EndState::Stopped, "enough");
    world.store.end_lease(&claim.lease, &release).await.unwrap();
    let effects = world.session(claim);
    let label = effects.label(TaskLabel::Done).await;
    assert!(is_fenced(&label.unwrap_err()));
    let comment = effects.comment("x").await;
    assert!(is_fenced(&comment.unwrap_err()));
    let pull_request = effects.pull_request(&pull("x"), &ours("c"), None).await;
    assert!(is_fenced(&pull_request.unwrap_err()));
    assert_eq!(world.writes(), 0);
}

#[tokio::test]
async fn nothing_is_written_once_the_permit_of_a_session_has_lapsed() {
    let world = World::new().await;
    let effects = world.session_until(world.claim().await, lapsed());
    let label = effects.label(TaskLabel::Done).await;
    assert!(is_not_permitted(&label.unwrap_err()));
    let comment = effects.comment("x").await;
    assert!(is_not_permitted(&comment.unwrap_err()));
    let pull_request = effects.pull_request(&pull("x"), &ours("c"), None).await;
    assert!(is_not_permitted(&pull_request.unwrap_err()));
    assert_eq!(world.writes(), 0);
}

/// The comment is that of a later task by now, which no lease of this worker is for.
#[tokio::test]
async fn an_answer_in_the_comment_of_another_task_is_under_the_same_permit() {
    let world = World::new().await;
    let claim = world.claim().await;
    let end = finish(EndState::Stopped, "enough");
    world.store.end_lease(&claim.lease, &end).await.unwrap();
    world.later_task().await;
    let effects = world.session_until(claim, lapsed());
    let answered = effects.answer("It is stopped.").await.unwrap_err();
    assert!(is_not_permitted(&answered), "{answered}");
    assert_eq!(world.writes(), 0);
}

/// Where the item is now, the task has the same lease.
#[tokio::test]
async fn the_stop_of_a_moved_item_is_not_reported_under_a_lost_lease() {
    let world = World::new().await;
    let claim = world.claim().await;
    let end = finish(EndState::Stopped, "enough");
    world.store.end_lease(&claim.lease, &end).await.unwrap();
    world.tracker.forge().moved = Some(Moved::To(requested_by("").item));
    let stopped = world.session(claim).report_stopped("enough", "1").await;
    assert!(is_fenced(&stopped.unwrap_err()));
    assert_eq!(world.writes(), 0);
}

/// Before the work begins it is recorded that a pull request is about to be opened.
#[tokio::test]
async fn no_pull_request_is_opened_before_the_work_under_a_lost_lease() {
    let world = World::new().await;
    let claim = world.claim().await;
    let end = finish(EndState::Stopped, "enough");
    world.store.end_lease(&claim.lease, &end).await.unwrap();
    let effects = world.session(claim);
    assert!(is_fenced(&effects.begin_draft().await.unwrap_err()));
    let opened = effects.open_draft(&pull("x")).await;
    assert!(is_fenced(&opened.unwrap_err()));
    assert_eq!(world.writes(), 0);
}

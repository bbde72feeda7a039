//! The second look at an end that was reported.

use agentmine_domain::{EffectKey, EndState, TaskLabel, TaskState};
use agentmine_runtime::config::Labels;
use agentmine_trackers::{NewPullRequest, Tracker};

use super::forge::{Posted, refused, unauthorized, unavailable};
use super::world::{MINUTE, NONE, World, finish, ours, pause, permit, pull};
use crate::{EndReport, work_comment};

const FAILED: &str = "AgentMine could not finish this task:\n\n```text\nno disk\n```\n\n<sub>AgentMine, session ended</sub>";

/// A task that failed and whose end is reported.
async fn reported() -> World {
    let world = World::new().await;
    world.end(finish(EndState::Failed, "no disk")).await;
    // No process holds the report after that.
    world.reconciler().await.report_state().await.unwrap();
    assert_eq!(world.comment(), FAILED);
    assert_eq!(world.labels(), ["bug", "coding agent failed"]);
    assert_eq!(world.unconfirmed().await.len(), 1);
    world.requests();
    world
}

#[tokio::test]
async fn an_end_that_is_shown_as_it_was_reported_is_left_alone_and_not_looked_at_again() {
    let world = reported().await;
    let look = world.confirm_end().await.unwrap();
    assert_eq!(look, EndReport::Written);
    assert_eq!(world.requests(), NONE);
    assert_eq!(world.unconfirmed().await, []);
    // Somebody else has listed it before.
    world.tracker.forge().labels = vec!["coding agent processing".into()];
    world.confirm_end().await.unwrap();
    assert_eq!(world.requests(), NONE);
}

#[tokio::test]
async fn an_end_that_another_process_looks_at_is_left_to_it() {
    let world = reported().await;
    let reporter = world.reporter(MINUTE);
    let row = world.row().await;
    let other = reporter.claim(&row).await.unwrap();
    assert!(other.is_some());
    let look = reporter.confirm_end(&row).await.unwrap();
    assert_eq!(look, EndReport::NotOurs);
    assert_eq!(world.unconfirmed().await.len(), 1);
}

#[tokio::test]
async fn a_label_that_a_late_write_changed_is_set_again() {
    let world = reported().await;
    world.tracker.forge().labels = vec!["bug".into(), "coding agent processing".into()];
    world.confirm_end().await.unwrap();
    assert_eq!(world.labels(), ["bug", "coding agent failed"]);
    assert_eq!(world.comment(), FAILED);
    assert_eq!(
        world.requests(),
        ["set_labels issue 7: coding agent failed"]
    );
}

/// A pause has no comment of its own to be corrected: that is the session's.
#[tokio::test]
async fn the_label_of_a_pause_is_looked_at_too() {
    let world = World::new().await;
    let effects = world.session(world.claim().await);
    effects.comment(&work_comment(1, "1")).await.unwrap();
    let lease = effects.lease.clone().unwrap();
    world.store.end_lease(&lease, &pause()).await.unwrap();
    world.reconciler().await.report_state().await.unwrap();
    world.tracker.forge().labels = vec!["coding agent processing".into()];
    world.requests();
    world.confirm_end().await.unwrap();
    assert_eq!(world.labels(), ["coding agent paused"]);
    assert_eq!(
        world.requests(),
        ["set_labels issue 7: coding agent paused"]
    );
}

/// Of a session of the task, of an earlier task, or twice.
#[tokio::test]
async fn a_comment_that_a_late_write_changed_is_written_again() {
    let by = |task: &str, body: &str| Posted {
        on: "issue 7".into(),
        marker: format!("<!-- agentmine:task={task}:progress -->"),
        body: body.into(),
    };
    let work = work_comment(1, "1");
    let earlier = "0190a1b2-0000-7000-8000-0000deadbeef";
    for comments in [
        vec![("own", work.as_str())],
        vec![(earlier, "AgentMine stopped: enough.")],
        vec![("own", FAILED), ("own", FAILED)],
        vec![("own", FAILED), (earlier, "AgentMine stopped: enough.")],
    ] {
        let world = reported().await;
        let own = world.task.id.to_string();
        let late = comments.iter().map(|(task, body)| match *task {
            "own" => by(&own, body),
            task => by(task, body),
        });
        world.tracker.forge().comments = late.collect();
        world.confirm_end().await.unwrap();
        assert_eq!(world.comment(), FAILED, "{comments:?}");
        assert_eq!(world.requests(), ["write_comment issue 7"]);
        assert_eq!(world.labels(), ["bug", "coding agent failed"]);
    }
}

/// A person deleted it.
#[tokio::test]
async fn a_comment_that_is_gone_stays_gone() {
    let world = reported().await;
    world.tracker.forge().comments.clear();
    world.confirm_end().await.unwrap();
    assert_eq!(world.requests(), NONE);
}

#[tokio::test]
async fn a_second_look_that_failed_is_made_again_unless_the_forge_refuses_it() {
    for (error, is_again) in [
        (refused(), false),
        (unavailable(), true),
        (unauthorized(), true),
    ] {
        let world = reported().await;
        let shown = error.to_string();
        world.tracker.forge().faults.push(("item", error));
        let look = world.confirm_end().await;
        assert_eq!(look.is_err(), is_again, "{shown}");
        let left = world.unconfirmed().await;
        assert_eq!(left.len(), usize::from(is_again), "{shown}");
    }
}

/// The request to open it arrived after the end was reported. That makes another end, whose second look comes later.
#[tokio::test]
async fn a_pull_request_that_is_found_at_the_second_look_makes_the_task_done() {
    let world = World::new().await;
    let effects = world.session(world.claim().await);
    let new = NewPullRequest {
        head: world.task.branch(),
        ..pull("one")
    };
    world.tracker.forge().refusals.push(unavailable());
    let opened = effects.pull_request(&new, &ours("commit-1"), None).await;
    opened.unwrap_err();
    let lease = effects.lease.clone().unwrap();
    let end = finish(EndState::Failed, "no disk");
    world.store.end_lease(&lease, &end).await.unwrap();
    world.reconciler().await.report_state().await.unwrap();
    assert_eq!(world.labels(), ["bug", "coding agent failed"]);

    let (item, permit) = (&world.task.item, permit());
    let arrived = world.tracker.create_pull_request(item, &new, &permit);
    arrived.await.unwrap();
    world.confirm_end().await.unwrap();
    assert_eq!(world.row().await.state, TaskState::Ended(EndState::Done));
    assert_eq!(world.labels(), ["bug", "coding agent done"]);
    let text = world.comment();
    assert!(
        text.starts_with("AgentMine opened a pull request with **a partial result**"),
        "{text}"
    );
    let row = world.row().await;
    let check = EffectKey::label_check(TaskLabel::Done, row.epoch);
    let looked = world.store.effect(row.id, &check).await.unwrap();
    assert_eq!(looked, None, "the second look at this end comes later");
}

/// It is no end: nothing is looked at.
#[tokio::test]
async fn a_task_that_continued_is_not_looked_at() {
    let world = World::new().await;
    world.end(pause()).await;
    world.reconciler().await.report_state().await.unwrap();
    let row = world.row().await;
    assert!(world.store.resume(world.task.id).await.unwrap());
    let labels = Labels::default();
    world.tracker.forge().labels = vec![labels.processing.clone()];
    world.requests();
    let look = world.reporter(MINUTE).confirm_end(&row).await;
    assert!(matches!(look, Ok(EndReport::NotOurs)), "{look:?}");
    assert_eq!(world.requests(), NONE);
}

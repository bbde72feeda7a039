//! The label that shows the state of a task.

use std::time::Duration;

use agentmine_domain::{
    EffectKey, EndState, ItemRef, LabelRecord, NewTask, TaskLabel, TrackerKind,
};
use agentmine_runtime::config::Labels;
use agentmine_store::{Attempt, EffectState, LeaseEnd};
use agentmine_trackers::{Tracker, TrackerError};
use chrono::{TimeDelta, Utc};

use super::forge::unavailable;
use super::world::{NONE, World, finish, permit, requested_by};
use crate::{EffectError, Effects, item_labels};

#[tokio::test]
async fn a_label_replaces_the_fleets_labels_and_keeps_foreign_ones() {
    let world = World::new().await;
    let effects = world.session(world.claim().await);
    for label in TaskLabel::ALL {
        effects.label(*label).await.unwrap();
        let expected = [
            "bug".to_owned(),
            item_labels::name(*label, &Labels::default()).clone(),
        ];
        assert_eq!(world.labels(), expected);
    }
}

#[tokio::test]
async fn a_label_is_moved_once_in_each_epoch() {
    let world = World::new().await;
    let first = world.session(world.claim().await);
    first.label(TaskLabel::Paused).await.unwrap();
    first.label(TaskLabel::Paused).await.unwrap();
    assert_eq!(world.writes(), 1);
    let release = LeaseEnd::Release {
        reason: "drain".into(),
        delay: Duration::ZERO,
        attempt: Attempt::Refunded,
    };
    let lease = first.lease.clone().unwrap();
    world.store.end_lease(&lease, &release).await.unwrap();
    let second = world.session(world.claim().await);
    second.label(TaskLabel::Paused).await.unwrap();
    assert_eq!(world.writes(), 2);
}

#[tokio::test]
async fn a_label_that_failed_is_set_by_the_next_call() {
    let world = World::new().await;
    let effects = world.session(world.claim().await);
    world.tracker.forge().refusals.push(unavailable());
    let error = effects.label(TaskLabel::Done).await.unwrap_err();
    assert!(matches!(error, EffectError::Tracker(_)), "{error}");
    effects.label(TaskLabel::Done).await.unwrap();
    assert_eq!(world.labels(), ["bug", &Labels::default().done]);
}

#[tokio::test]
async fn a_request_that_was_made_during_the_work_stays_on_the_item() {
    let world = World::new().await;
    let Labels { request, done, .. } = Labels::default();
    let effects = world.session(world.claim().await);
    effects.label(TaskLabel::Processing).await.unwrap();
    assert!(!world.labels().contains(&request));
    // A person adds the label again.
    world.tracker.forge().labels.push(request.clone());
    world.tracker.forge().trigger = "event-2".into();
    effects.label(TaskLabel::Done).await.unwrap();
    assert_eq!(world.labels(), ["bug", &request, &done]);
}

/// An item of GitLab has one label of each scope.
#[tokio::test]
async fn a_request_that_was_made_during_the_work_is_not_displaced_by_a_label_of_its_scope() {
    let labels = Labels {
        request: "agent::todo".into(),
        processing: "agent::doing".into(),
        done: "agent::done".into(),
        ..Labels::default()
    };
    for (tracker, expected) in [
        (TrackerKind::GitLab, vec!["bug", "agent::todo"]),
        (
            TrackerKind::GitHub,
            vec!["bug", "agent::todo", "agent::done"],
        ),
    ] {
        let requested = requested_by("event-1");
        let item = ItemRef {
            tracker,
            ..requested.item.clone()
        };
        let world = World::of(&NewTask { item, ..requested }).await;
        let effects = Effects {
            labels: labels.clone(),
            ..world.session(world.claim().await)
        };
        {
            let mut forge = world.tracker.forge();
            // GitLab has removed the label of the work.
            forge.labels = vec!["bug".into(), labels.request.clone()];
            forge.trigger = "event-2".into();
        }
        effects.label(TaskLabel::Done).await.unwrap();
        assert_eq!(world.labels(), expected, "{tracker}");
        // One that the task answers is replaced.
        world.tracker.forge().trigger = "event-1".into();
        effects.set(TaskLabel::Done).await.unwrap();
        assert_eq!(world.labels(), ["bug", "agent::done"], "{tracker}");
    }
}

/// Adding a label and removing the others are several requests on GitHub.
#[tokio::test]
async fn a_request_that_an_interrupted_write_left_on_the_item_is_removed() {
    let labels = Labels::default();
    let left = vec!["bug".into(), labels.request.clone(), labels.stopped.clone()];
    let world = World::new().await;
    world.end(finish(EndState::Stopped, "enough")).await;
    let effects = world.reconciler().await;
    let key = EffectKey::label(TaskLabel::Stopped, effects.task.epoch);
    effects.begin(&key).await.unwrap();
    world.tracker.forge().labels = left.clone();
    world.report_end().await.unwrap();
    assert_eq!(world.labels(), ["bug", &labels.stopped]);
    // Nor is it left if it comes back after the report.
    world.tracker.forge().labels = left;
    let effects = world.reconciler().await;
    effects.put_right(TaskLabel::Stopped).await.unwrap();
    assert_eq!(world.labels(), ["bug", &labels.stopped]);
}

#[tokio::test]
async fn a_label_that_was_set_before_a_kill_is_not_set_again() {
    let world = World::new().await;
    let effects = world.session(world.claim().await);
    effects.label(TaskLabel::Processing).await.unwrap();
    let key = EffectKey::label(TaskLabel::Done, effects.task.epoch);
    effects.begin(&key).await.unwrap();
    // The writer was killed between the tracker's write and the record of it.
    let Labels {
        processing, done, ..
    } = Labels::default();
    let item = &world.task.item;
    let (add, remove) = ([done], [processing]);
    let permit = permit();
    let moved = world.tracker.set_labels(item, &add, &remove, &permit);
    moved.await.unwrap();
    let writes = world.writes();
    effects.label(TaskLabel::Done).await.unwrap();
    assert_eq!(world.writes(), writes, "it is looked up first");
    assert!(matches!(
        effects.begin(&key).await.unwrap(),
        EffectState::Done(_)
    ));
}

#[tokio::test]
async fn a_label_under_an_earlier_name_is_replaced_too() {
    let world = World::new().await;
    world.reconciler().await.label_queued().await.unwrap();
    let labels = Labels {
        request: "robot".into(),
        processing: "robot busy".into(),
        stopped: "robot stopped".into(),
        ..Labels::default()
    };
    world.end(finish(EndState::Stopped, "enough")).await;
    let effects = world.relabelled(labels).await;
    effects.label(TaskLabel::Stopped).await.unwrap();
    assert_eq!(world.labels(), ["bug", "robot stopped"]);
}

/// The former name and the one that is written are one label on GitHub.
#[tokio::test]
async fn a_label_whose_name_changed_by_case_alone_stays_on_the_item() {
    let world = World::new().await;
    let former = Labels {
        processing: "Coding Agent Processing".into(),
        ..Labels::default()
    };
    let before = world.relabelled(former).await;
    before.label_queued().await.unwrap();
    let now = world.reconciler().await;
    now.label_answered().await.unwrap();
    assert_eq!(world.labels(), ["bug", &Labels::default().processing]);
}

/// GitHub shows a label by the name that it was made with.
#[tokio::test]
async fn a_request_is_seen_whatever_the_case_of_its_label_is() {
    let labels = Labels::default();
    let world = World::new().await;
    world.end(finish(EndState::Stopped, "enough")).await;
    world.report_end().await.unwrap();
    let requested = vec!["bug".into(), labels.request.to_uppercase()];
    world.tracker.forge().labels = requested.clone();
    world.tracker.forge().trigger = "event-2".into();
    let effects = world.reconciler().await;
    effects.put_right(TaskLabel::Stopped).await.unwrap();
    assert_eq!(world.labels(), requested, "it asks for work again");
}

#[tokio::test]
async fn a_request_that_was_made_after_a_pause_stays_and_one_before_it_does_not() {
    let Labels {
        request, paused, ..
    } = Labels::default();
    for (seconds, expected) in [
        (3, vec!["bug", &request, &paused]),
        // In the second of the pause: who came first is not known.
        (0, vec!["bug", &request, &paused]),
        (-3, vec!["bug", &paused]),
    ] {
        let world = World::new().await;
        let effects = world.session(world.claim().await);
        effects.label(TaskLabel::Processing).await.unwrap();
        let pause = world.store.request_pause(world.task.id, "lunch");
        assert!(pause.await.unwrap());
        {
            let mut forge = world.tracker.forge();
            forge.labels.push(request.clone());
            forge.trigger = "event-2".into();
            forge.since = Some(Utc::now() + TimeDelta::seconds(seconds));
        }
        effects.label(TaskLabel::Paused).await.unwrap();
        assert_eq!(world.labels(), expected, "{seconds}");
    }
}

/// It is not known what put the request label there, as after an import.
#[tokio::test]
async fn a_request_of_an_unknown_time_is_overruled_by_a_pause_alone() {
    let Labels {
        request,
        paused,
        done,
        ..
    } = Labels::default();
    for (label, expected) in [
        (TaskLabel::Paused, vec!["bug", &paused]),
        (TaskLabel::Done, vec!["bug", &request, &done]),
    ] {
        let world = World::new().await;
        let effects = world.session(world.claim().await);
        effects.label(TaskLabel::Processing).await.unwrap();
        {
            let mut forge = world.tracker.forge();
            forge.labels.push(request.clone());
            forge.trigger = "event-2".into();
            forge.since = None;
        }
        effects.label(label).await.unwrap();
        assert_eq!(world.labels(), expected);
    }
}

/// The writer was killed before the request, or somebody removed the label.
#[tokio::test]
async fn a_label_that_was_begun_and_is_not_shown_is_set() {
    let world = World::new().await;
    let effects = world.session(world.claim().await);
    effects.label(TaskLabel::Processing).await.unwrap();
    let key = EffectKey::label(TaskLabel::Done, effects.task.epoch);
    effects.begin(&key).await.unwrap();
    effects.label(TaskLabel::Done).await.unwrap();
    assert_eq!(world.labels(), ["bug", &Labels::default().done]);
    // What was recorded is the name, by which it is found after the configuration changed.
    let name = Some(Labels::default().done);
    let record = serde_json::to_value(LabelRecord { name }).unwrap();
    assert_eq!(
        effects.begin(&key).await.unwrap(),
        EffectState::Done(record)
    );
}

/// An issue may become confidential: it is not read any more.
#[tokio::test]
async fn a_label_that_cannot_be_looked_up_is_set_again_or_fails() {
    let world = World::new().await;
    let effects = world.session(world.claim().await);
    let key = EffectKey::label(TaskLabel::Done, effects.task.epoch);
    effects.begin(&key).await.unwrap();
    world.tracker.forge().faults.push(("item", unavailable()));
    effects.label(TaskLabel::Done).await.unwrap_err();
    assert_eq!(world.requests(), NONE);
    let confidential = TrackerError::Confidential {
        tracker: world.tracker.kind(),
        what: "octo/demo#7".into(),
    };
    world.tracker.forge().faults.push(("item", confidential));
    effects.label(TaskLabel::Done).await.unwrap();
    assert_eq!(world.labels(), ["bug", &Labels::default().done]);
}

/// The answer to the write was lost.
#[tokio::test]
async fn a_label_whose_answer_was_lost_is_looked_up_and_not_set_twice() {
    let world = World::new().await;
    let effects = world.session(world.claim().await);
    world.tracker.forge().lost.push("set_labels");
    effects.label(TaskLabel::Done).await.unwrap_err();
    effects.label(TaskLabel::Done).await.unwrap();
    assert_eq!(world.requests(), ["set_labels issue 7: coding agent done"]);
}

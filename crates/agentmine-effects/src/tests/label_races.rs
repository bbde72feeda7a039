//! Writers of labels that are overtaken: the label that stays is that of the row.

use std::time::Duration;

use agentmine_domain::{EffectKey, EndState, TaskLabel};
use agentmine_runtime::config::Labels;
use agentmine_store::{Attempt, Enqueued, LeaseEnd};

use super::forge::Slow;
use super::world::{MINUTE, NONE, World, finish, in_time, pause, requested_by};
use crate::EffectError;

#[tokio::test]
async fn a_queued_task_is_labelled_once_and_a_claimed_one_is_not() {
    let world = World::new().await;
    let effects = world.reconciler().await;
    effects.label_queued().await.unwrap();
    effects.label_queued().await.unwrap();
    assert_eq!(world.labels(), ["bug", &Labels::default().processing]);
    assert_eq!(world.writes(), 1);

    let world = World::new().await;
    world.claim().await;
    world.reconciler().await.label_queued().await.unwrap();
    assert_eq!(world.writes(), 0);
}

#[tokio::test]
async fn a_task_that_ended_since_it_was_read_does_not_stay_labelled_as_processing() {
    let world = World::new().await;
    let read_before = world.reconciler().await;
    world.end(finish(EndState::Done, "")).await;
    world
        .tracker
        .forge()
        .labels
        .push(Labels::default().processing);
    read_before.label_queued().await.unwrap();
    assert!(!world.labels().contains(&Labels::default().processing));
}

#[tokio::test]
async fn a_task_that_was_claimed_since_it_was_read_keeps_the_label_of_its_worker() {
    let world = World::new().await;
    let read_before = world.reconciler().await;
    let worker = world.session(world.claim().await);
    worker.label(TaskLabel::Processing).await.unwrap();
    let writes = world.writes();
    read_before.label_queued().await.unwrap();
    assert_eq!(world.writes(), writes);
}

#[tokio::test]
async fn the_late_report_of_an_older_task_leaves_the_label_of_the_later_one() {
    let world = World::new().await;
    world.end(finish(EndState::Failed, "no disk")).await;
    world.later_task().await;
    let processing = Labels::default().processing;
    world.tracker.forge().labels = vec!["bug".into(), processing.clone()];
    world.report_end().await.unwrap();
    assert_eq!(world.labels(), ["bug", &processing]);
    assert_eq!(world.requests(), ["write_comment issue 7"]);
    assert!(world.comment().contains("no disk"), "it is reported");
    let left = world.unreported().await;
    assert_eq!(left, [], "nothing is left to report");
}

/// What happens while a writer's first change of labels is under way.
async fn during<T>(
    world: &World,
    writer: impl Future<Output = Result<T, EffectError>>,
    meanwhile: impl Future<Output = ()>,
) {
    let slow = Slow::default();
    world.tracker.forge().slow = Some(slow.clone());
    let meanwhile = async {
        slow.arrived.notified().await;
        meanwhile.await;
        slow.may_go_on.notify_one();
    };
    let (written, ()) = in_time(async { tokio::join!(writer, meanwhile) }).await;
    written.map(drop).unwrap();
}

/// What happens while the label of an end is written.
async fn reported_while(world: &World, meanwhile: impl Future<Output = ()>) {
    during(world, world.report_end_for(MINUTE), meanwhile).await;
}

/// A producer that is stalled for so long that nobody looks at the labels again.
#[tokio::test]
async fn a_task_that_was_labelled_late_as_queued_keeps_the_label_of_its_end_or_pause() {
    let labels = Labels::default();
    for (end, label, name) in [
        (finish(EndState::Done, ""), TaskLabel::Done, &labels.done),
        (pause(), TaskLabel::Paused, &labels.paused),
    ] {
        let world = World::new().await;
        let producer = world.reconciler().await;
        let late = during(&world, producer.label_queued(), async {
            let claim = world.claim().await;
            let lease = claim.lease.clone();
            world.session(claim).label(label).await.unwrap();
            world.store.end_lease(&lease, &end).await.unwrap();
        });
        Box::pin(late).await;
        assert_eq!(world.labels(), ["bug", name]);
    }
}

#[tokio::test]
async fn a_pause_that_is_reported_late_does_not_replace_the_label_of_the_resumed_task() {
    let world = World::new().await;
    world.end(pause()).await;
    Box::pin(reported_while(&world, async {
        assert!(world.store.resume(world.task.id).await.unwrap());
        let worker = world.session(world.claim().await);
        worker.label(TaskLabel::Processing).await.unwrap();
    }))
    .await;
    assert_eq!(world.labels(), ["bug", &Labels::default().processing]);
}

#[tokio::test]
async fn an_end_that_is_reported_late_does_not_replace_the_label_of_a_later_task() {
    let world = World::new().await;
    world.end(finish(EndState::Failed, "no disk")).await;
    Box::pin(reported_while(&world, async {
        let later = world.later_task().await;
        world.tracker.forge().trigger = "event-2".into();
        world.reconciler_of(later).label_queued().await.unwrap();
    }))
    .await;
    assert_eq!(world.labels(), ["bug", &Labels::default().processing]);
}

/// A worker gave it back, and has set its label.
#[tokio::test]
async fn a_queued_task_that_was_begun_before_is_not_labelled_by_a_producer() {
    let world = World::new().await;
    let release = LeaseEnd::Release {
        reason: "drain".into(),
        delay: Duration::ZERO,
        attempt: Attempt::Refunded,
    };
    world.end(release).await;
    world.reconciler().await.label_queued().await.unwrap();
    assert_eq!(world.requests(), NONE);
}

/// The name of the request label is recorded, by which it is removed after the configuration changed.
#[tokio::test]
async fn the_labels_of_a_queued_task_are_recorded_and_those_of_a_claimed_one_are_not() {
    let Labels {
        request,
        processing,
        ..
    } = Labels::default();
    let world = World::new().await;
    world.reconciler().await.label_queued().await.unwrap();
    let names = world.store.label_names(world.task.id).await.unwrap();
    assert_eq!(names, [request.clone(), processing]);

    let world = World::new().await;
    let read_before = world.reconciler().await;
    world.claim().await;
    read_before.label_queued().await.unwrap();
    let names = world.store.label_names(world.task.id).await.unwrap();
    assert_eq!(names, [request]);
    assert_eq!(world.requests(), NONE);
}

/// Nobody would show it, if the first pause counted as shown.
#[tokio::test]
async fn a_second_pause_is_shown_after_one_that_was_shown_late() {
    let world = World::new().await;
    world.end(pause()).await;
    Box::pin(reported_while(&world, async {
        assert!(world.store.resume(world.task.id).await.unwrap());
    }))
    .await;
    assert_eq!(world.labels(), ["bug", &Labels::default().processing]);
    let again = world.store.request_pause(world.task.id, "dinner");
    assert!(again.await.unwrap());
    let unreported = world.unreported().await;
    assert_eq!(unreported.len(), 1, "{unreported:?}");
    // Another process would wait until the claim of the first report runs out.
    let effects = world.reconciler().await;
    effects.report_state().await.unwrap();
    assert_eq!(world.labels(), ["bug", &Labels::default().paused]);
}

/// The tracker may have applied the write before it failed.
#[tokio::test]
async fn a_late_label_gives_way_also_if_its_write_failed() {
    let world = World::new().await;
    world.end(pause()).await;
    world.tracker.forge().lost.push("set_labels");
    let slow = Slow::default();
    world.tracker.forge().slow = Some(slow.clone());
    let meanwhile = async {
        slow.arrived.notified().await;
        assert!(world.store.resume(world.task.id).await.unwrap());
        slow.may_go_on.notify_one();
    };
    let report = world.report_end_for(MINUTE);
    let both = Box::pin(async { tokio::join!(report, meanwhile) });
    let (reported, ()) = in_time(both).await;
    reported.unwrap_err();
    assert_eq!(world.labels(), ["bug", &Labels::default().processing]);
}

/// It is labelled when its turn comes.
#[tokio::test]
async fn a_task_that_waits_for_its_turn_keeps_the_label_of_its_request() {
    let Labels {
        request,
        processing,
        ..
    } = Labels::default();
    let world = World::waiting().await;
    let read_before = world.reconciler().await;
    read_before.label_queued().await.unwrap();
    read_before.label_answered().await.unwrap();
    assert_eq!(world.requests(), NONE);
    assert_eq!(world.labels(), [request, "bug".into()]);
    let key = EffectKey::label(TaskLabel::Processing, world.task.epoch);
    let begun = world.store.effect(world.task.id, &key).await.unwrap();
    assert_eq!(begun, None);

    assert!(world.store.admit_at_once(world.task.id).await.unwrap());
    world.reconciler().await.label_queued().await.unwrap();
    assert_eq!(world.labels(), ["bug", &processing]);
}

/// The label of the pause stays until the turn of the task comes.
#[tokio::test]
async fn a_pause_that_is_shown_late_does_not_show_a_waiting_task_as_processing() {
    let Labels {
        paused, processing, ..
    } = Labels::default();
    let world = World::waiting().await;
    let ask = world.store.request_pause(world.task.id, "lunch");
    assert!(ask.await.unwrap());
    Box::pin(reported_while(&world, async {
        assert!(world.store.resume(world.task.id).await.unwrap());
    }))
    .await;
    assert_eq!(world.labels(), ["bug", &paused]);
    assert_eq!(
        world.requests(),
        ["set_labels issue 7: coding agent paused"]
    );

    assert!(world.store.admit_at_once(world.task.id).await.unwrap());
    world.reconciler().await.label_queued().await.unwrap();
    assert_eq!(world.labels(), ["bug", &processing]);
}

/// A pause of a task that waits is shown late by a producer that is about to show a later request.
#[tokio::test]
async fn a_later_request_does_not_show_a_waiting_task_as_processing() {
    let world = World::waiting().await;
    let producer = world.reconciler().await;
    let ask = world.store.request_pause(world.task.id, "lunch");
    assert!(ask.await.unwrap());
    let Labels {
        request, paused, ..
    } = Labels::default();
    during(&world, producer.label_answered(), async {
        assert!(world.store.resume(world.task.id).await.unwrap());
    })
    .await;
    assert_eq!(world.labels(), [request, "bug".into(), paused]);
}

/// A producer that is stalled while it labels a task: that one has ended, and a later task of the item waits. It keeps the
/// label of its request.
#[tokio::test]
async fn a_late_label_of_a_queued_task_is_removed_where_a_later_task_waits() {
    let Labels {
        request,
        processing,
        ..
    } = Labels::default();
    for (trigger, expected) in [
        ("event-2", vec![request.as_str(), "bug"]),
        // The write has removed the request. Without any label it would seem that a person did.
        ("event-1", vec!["bug", &processing]),
    ] {
        let world = World::new().await;
        let producer = world.reconciler().await;
        world.tracker.forge().trigger = trigger.into();
        let late = during(&world, producer.label_queued(), async {
            world.end(finish(EndState::Stopped, "enough")).await;
            let again = requested_by("event-2");
            let later = world.store.enqueue_waiting(&again).await;
            assert!(matches!(later.unwrap(), Enqueued::Created(_)));
        });
        Box::pin(late).await;
        assert_eq!(world.labels(), expected, "{trigger}");
    }
}

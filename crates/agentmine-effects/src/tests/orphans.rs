//! Items that say that they are worked on although no task is.

use agentmine_domain::{EndState, ItemRef, NewTask, TaskId};
use agentmine_runtime::config::Labels;
use agentmine_store::Enqueued;
use agentmine_trackers::FLEET_MARKER;
use chrono::{DateTime, TimeDelta, Utc};

use super::forge::{Posted, Slow, comment, unavailable};
use super::world::{MINUTE, NONE, World, finish, in_time, pause, requested_by};
use crate::{Orphan, Reporter, is_live};

/// An item without a task, and what corrects its label.
fn orphan_of(world: &World) -> (ItemRef, Reporter) {
    let item = ItemRef {
        number: 8,
        ..world.task.item.clone()
    };
    (item, world.reporter(MINUTE))
}

/// The comment of a task.
fn of_task(task: TaskId) -> String {
    format!("At work.\n\n<!-- {FLEET_MARKER}{task}:progress -->")
}

#[tokio::test]
async fn an_item_of_another_fleet_is_left_alone_for_a_day() {
    let world = World::new().await;
    let (item, reporter) = orphan_of(&world);
    let look = async |hours: i64, task: TaskId, label: String| {
        let since = Utc::now() - TimeDelta::hours(hours);
        {
            let mut forge = world.tracker.forge();
            forge.labels = vec![label];
            forge.since = Some(since);
            forge.found = vec![comment(true, &of_task(task), since)];
        }
        let orphan = reporter.put_orphan_right(&item).await.unwrap();
        (orphan, world.labels())
    };
    let (processing, stopped) = (Labels::default().processing, Labels::default().stopped);
    // As the forge spells it.
    let spelled = processing.to_uppercase();
    let foreign = look(23, TaskId::new(), spelled.clone()).await;
    assert_eq!(foreign, (Orphan::Foreign, vec![spelled]));
    let forgotten = look(25, TaskId::new(), processing.clone()).await;
    assert_eq!(forgotten, (Orphan::PutRight, vec![stopped.clone()]));
    let known = look(23, world.task.id, processing).await;
    assert_eq!(known, (Orphan::PutRight, vec![stopped]));
}

#[tokio::test]
async fn an_orphan_gets_the_label_of_a_task_that_is_made_meanwhile() {
    let world = World::new().await;
    let (item, reporter) = orphan_of(&world);
    let slow = Slow::default();
    {
        let mut forge = world.tracker.forge();
        forge.labels = vec![Labels::default().processing];
        forge.slow = Some(slow.clone());
    }
    let made = async {
        slow.arrived.notified().await;
        let new = NewTask {
            item: item.clone(),
            ..requested_by("event-3")
        };
        let Enqueued::Created(task) = world.store.enqueue(&new).await.unwrap() else {
            panic!("it is known");
        };
        assert!(world.store.request_pause(task.id, "lunch").await.unwrap());
        slow.may_go_on.notify_one();
    };
    let both = async { tokio::join!(reporter.put_orphan_right(&item), made) };
    let (orphan, ()) = in_time(Box::pin(both)).await;
    assert_eq!(orphan.unwrap(), Orphan::Live);
    assert_eq!(world.labels(), [Labels::default().paused]);
}

#[tokio::test]
async fn an_orphan_gets_a_comment_and_the_label_stopped() {
    let world = World::new().await;
    let (item, reporter) = orphan_of(&world);
    world.tracker.forge().labels = vec!["bug".into(), "coding agent processing".into()];
    let orphan = reporter.put_orphan_right(&item).await.unwrap();
    assert_eq!(orphan, Orphan::PutRight);
    assert_eq!(world.labels(), ["bug", "coding agent stopped"]);
    let posted = Posted {
        on: "issue 8".into(),
        marker: "<!-- agentmine:task=none:progress -->".into(),
        body: "AgentMine is not working on this: it has the label `coding agent processing`, but there is no task for it any \
               more. To queue it, add the label `coding agent`."
            .into(),
    };
    assert_eq!(world.tracker.forge().comments, [posted]);
    assert_eq!(
        world.requests(),
        [
            "write_comment issue 8",
            "set_labels issue 8: coding agent stopped"
        ]
    );
    assert_eq!(
        reporter.put_orphan_right(&item).await.unwrap(),
        Orphan::Live
    );
    assert_eq!(world.requests(), NONE);
}

/// After an error it is corrected once more, and says so once.
#[tokio::test]
async fn an_orphan_whose_correction_failed_is_corrected_again() {
    let world = World::new().await;
    let (item, reporter) = orphan_of(&world);
    world.tracker.forge().labels = vec!["coding agent processing".into()];
    world
        .tracker
        .forge()
        .faults
        .push(("set_labels", unavailable()));
    reporter.put_orphan_right(&item).await.unwrap_err();
    reporter.put_orphan_right(&item).await.unwrap();
    assert_eq!(world.comments_on("issue 8").len(), 1);
    assert_eq!(world.labels(), ["coding agent stopped"]);
}

/// It does not say that it is worked on, or it asks for work.
#[tokio::test]
async fn an_item_without_the_label_or_with_a_new_request_is_no_orphan() {
    let Labels {
        request,
        processing,
        ..
    } = Labels::default();
    for labels in [vec!["bug".into()], vec![processing, request]] {
        let world = World::new().await;
        let (item, reporter) = orphan_of(&world);
        world.tracker.forge().labels = labels;
        let orphan = reporter.put_orphan_right(&item).await.unwrap();
        assert_eq!(orphan, Orphan::Live);
        assert_eq!(world.requests(), NONE);
    }
}

#[tokio::test]
async fn an_item_whose_last_task_is_over_gets_the_label_of_its_end() {
    let world = World::new().await;
    let item = &world.task.item;
    assert!(is_live(world.store.as_ref(), item).await.unwrap());
    world.end(finish(EndState::Failed, "no disk")).await;
    assert!(!is_live(world.store.as_ref(), item).await.unwrap());
    world.reconciler().await.report_state().await.unwrap();
    world.requests();
    world.tracker.forge().labels = vec!["coding agent processing".into()];
    let orphan = world.reporter(MINUTE).put_orphan_right(item).await.unwrap();
    assert_eq!(orphan, Orphan::PutRight);
    assert_eq!(world.labels(), ["coding agent failed"]);
    assert_eq!(
        world.requests(),
        ["set_labels issue 7: coding agent failed"]
    );
    let unknown = orphan_of(&world).0;
    assert!(!is_live(world.store.as_ref(), &unknown).await.unwrap());
}

#[tokio::test]
async fn an_item_with_a_task_that_is_not_over_is_left_alone() {
    let world = World::new().await;
    let item = &world.task.item;
    let processing = vec![Labels::default().processing];
    world.tracker.forge().labels = processing.clone();
    let reporter = world.reporter(MINUTE);
    assert_eq!(reporter.put_orphan_right(item).await.unwrap(), Orphan::Live);
    world.end(pause()).await;
    assert!(is_live(world.store.as_ref(), item).await.unwrap());
    assert_eq!(reporter.put_orphan_right(item).await.unwrap(), Orphan::Live);
    assert_eq!(world.labels(), processing);
    assert_eq!(world.requests(), NONE);
}

/// Where the forge does not say since when it has the label, the newest comment on an unknown task counts.
#[tokio::test]
async fn another_fleet_is_known_by_its_own_newest_comment() {
    let unknown = of_task(TaskId::new());
    let ago = |hours: i64| Utc::now() - TimeDelta::hours(hours);
    let look = async |comments: Vec<(bool, &str, DateTime<Utc>)>| {
        let world = World::new().await;
        let (item, reporter) = orphan_of(&world);
        {
            let mut forge = world.tracker.forge();
            forge.labels = vec![Labels::default().processing];
            let found = comments.into_iter();
            forge.found = found
                .map(|(ours, body, at)| comment(ours, body, at))
                .collect();
        }
        reporter.put_orphan_right(&item).await.unwrap()
    };
    let [old, new] = [
        (true, unknown.as_str(), ago(30)),
        (true, unknown.as_str(), ago(2)),
    ];
    assert_eq!(look(vec![old, new]).await, Orphan::Foreign);
    assert_eq!(look(vec![new, old]).await, Orphan::Foreign);
    assert_eq!(look(vec![old]).await, Orphan::PutRight);
    // A person quoted it, or it is of no task.
    let quoted = (false, unknown.as_str(), ago(2));
    assert_eq!(look(vec![old, quoted]).await, Orphan::PutRight);
    let of_none = (true, "<!-- agentmine:task=none:progress -->", ago(2));
    assert_eq!(look(vec![of_none]).await, Orphan::PutRight);
    let unmarked = (true, "At work.", ago(2));
    assert_eq!(look(vec![unmarked]).await, Orphan::PutRight);
}

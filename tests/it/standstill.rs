//! One task, and more than one process that could write for it.

use agentmine_domain::{EndState, TaskState};
use agentmine_tests::forge::DEMO;

use crate::forges::Request;
use crate::rig::{PATIENCE, REQUEST, Rig, on_both_forges, solves_demo};

const DONE: &str = "coding agent done";

/// The machine of the first worker is stalled within a label move, between its two requests where there are two, for
/// longer than the lease.
async fn a_worker_that_stood_still_sends_nothing_more_to_the_tracker(rig: Rig) {
    let number = rig.produce_issue().await;
    // The label is moved again at the start of the work.
    rig.forge.add_label(DEMO, number, REQUEST);
    let stop = format!("{}.before=stop", rig.last_of_a_label_move());
    let first = rig.spawn_failing("consumer", &stop);
    first.stopped().await;
    let second = rig.spawn("consumer", &[]);
    let tasks = rig.wait_ended(1).await;
    assert_eq!(tasks[0].state, TaskState::Ended(EndState::Done));
    let is_done = |rig: &Rig| rig.forge.labels(DEMO, number).contains(&DONE.to_owned());
    assert!(is_done(&rig));
    let before = rig.forge.writes().len();
    first.go_on();
    first.logged("nothing more is written").await;
    let late: Vec<_> = rig.forge.writes().into_iter().skip(before).collect();
    assert!(late.is_empty(), "{late:#?}\n{}", first.log());
    assert_eq!(rig.forge.comments(DEMO, number).len(), 1);
    for consumer in [first, second] {
        consumer.terminate();
        assert!(consumer.end().await.0.success());
    }
}

async fn an_end_is_reported_once_when_consumers_start_together(rig: Rig) {
    let number = rig.produce_issue().await;
    let task = rig.task().await.id;
    assert!(rig.store.request_stop(task, "enough").await.unwrap());
    let sql = rig.sql().await;
    let long_ago = "UPDATE tasks SET updated_at = now() - interval '1 minute'";
    sqlx::query(long_ago).execute(&sql).await.unwrap();
    let slow = rig.fault_of(Request::PostComment).times(9);
    rig.forge
        .inject(slow.delay(std::time::Duration::from_secs(1)));
    let consumers: Vec<_> = (0..4).map(|_| rig.spawn("consumer", &[])).collect();
    let is_reported = || {
        let mut left = rig.forge.labels(DEMO, number);
        left.retain(|label| label == "coding agent stopped");
        left.len() == 1
    };
    rig.forge
        .wait_until("the end is reported", PATIENCE, |_| is_reported())
        .await;
    for consumer in consumers {
        consumer.terminate();
        assert!(consumer.end().await.0.success());
    }
    assert_eq!(rig.written(Request::PostComment), 1);
    assert_eq!(rig.forge.comments(DEMO, number).len(), 1);
}

on_both_forges! { solves_demo() =>
    a_worker_that_stood_still_sends_nothing_more_to_the_tracker,
    an_end_is_reported_once_when_consumers_start_together,
}

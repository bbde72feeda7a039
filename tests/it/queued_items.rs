//! What people do to the item of a task that waits for a worker, on both forges, without a webhook: the task ends within a
//! minute, and no worker has to claim it first.

use agentmine_tests::forge::{BOT, DEMO};

use crate::item_faults::{STOPPED, end, gitlab, over, said};
use crate::rig::{PATIENCE, Rig, solves_demo};

/// No worker runs. Somebody does something to the item of the only task: a producer ends the task with this reason, which
/// the item shows once a worker has reported it.
async fn ends_unclaimed(rig: Rig, prepare: fn(&Rig, u64), does: fn(&Rig, u64), reason: &str) {
    let number = rig.label_issue();
    prepare(&rig, number);
    let producer = rig.spawn("producer", &[]);
    rig.wait("the task", |tasks| tasks.len() == 1).await;
    let is_labelled = |_: &_| rig.forge.labels(DEMO, number) == ["coding agent processing"];
    rig.forge
        .wait_until("it is labelled", PATIENCE, is_labelled)
        .await;
    is_recorded(&rig, "label", "done_at IS NOT NULL").await;
    if rig.forge.assignees(DEMO, number) == [BOT] {
        is_recorded(&rig, "assignment", "done_at IS NOT NULL").await;
    }
    does(&rig, number);
    let task = over(&rig).await;
    assert_eq!(task.state, STOPPED, "{:?}", task.reason);
    assert_eq!(task.reason.as_deref(), Some(reason));
    assert_eq!(task.epoch.0, 0, "no worker claimed it");
    end(producer).await;
    let consumer = rig.spawn("consumer", &[]);
    let is_reported = |_: &_| said(&rig, DEMO, number).contains(reason);
    rig.forge
        .wait_until("it is reported", PATIENCE, is_reported)
        .await;
    end(consumer).await;
    assert!(rig.model.requests().is_empty());
}

/// Waits for an effect of the only task.
pub(crate) async fn is_recorded(rig: &Rig, kind: &str, is_so: &str) {
    let sql = rig.sql().await;
    let count = format!("SELECT count(*) FROM effects WHERE kind = $1 AND {is_so}");
    let begun = std::time::Instant::now();
    loop {
        let count = sqlx::query_scalar::<_, i64>(sqlx::AssertSqlSafe(count.clone()));
        if count.bind(kind).fetch_one(&sql).await.unwrap() > 0 {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "no {kind}");
        // Another process cannot await a change of a row.
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

async fn github() -> Rig {
    Rig::local(solves_demo()).await
}

fn nothing(_: &Rig, _: u64) {}

fn assigns(rig: &Rig, number: u64) {
    rig.forge.assign(DEMO, number, BOT);
}

fn unassigns(rig: &Rig, number: u64) {
    rig.forge.unassign(DEMO, number, BOT);
}

fn closes(rig: &Rig, number: u64) {
    rig.forge.close(DEMO, number);
}

fn removes(rig: &Rig, number: u64) {
    rig.forge
        .remove_label(DEMO, number, "coding agent processing");
}

const UNASSIGNED: &str = "the bot was unassigned";
const CLOSED: &str = "the item was closed";
const REMOVED: &str = "the label `coding agent processing` was removed";

#[tokio::test]
async fn unassigning_the_bot_ends_a_task_that_waits_for_a_worker_on_github() {
    ends_unclaimed(github().await, assigns, unassigns, UNASSIGNED).await;
}

#[tokio::test]
async fn unassigning_the_bot_ends_a_task_that_waits_for_a_worker_on_gitlab() {
    ends_unclaimed(gitlab().await, assigns, unassigns, UNASSIGNED).await;
}

#[tokio::test]
async fn closing_the_item_ends_a_task_that_waits_for_a_worker_on_github() {
    ends_unclaimed(github().await, nothing, closes, CLOSED).await;
}

#[tokio::test]
async fn closing_the_item_ends_a_task_that_waits_for_a_worker_on_gitlab() {
    ends_unclaimed(gitlab().await, nothing, closes, CLOSED).await;
}

#[tokio::test]
async fn removing_the_label_ends_a_task_that_waits_for_a_worker_on_github() {
    ends_unclaimed(github().await, nothing, removes, REMOVED).await;
}

#[tokio::test]
async fn removing_the_label_ends_a_task_that_waits_for_a_worker_on_gitlab() {
    ends_unclaimed(gitlab().await, nothing, removes, REMOVED).await;
}

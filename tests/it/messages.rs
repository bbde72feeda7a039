//! What becomes of a task's message when the claim, the acknowledgement or the broker fails.

use std::time::{Duration, Instant};

use agentmine_domain::{EndState, ItemKind, ItemRef, NewTask, Priority, TaskState, TrackerKind};
use agentmine_runtime::failpoint::Guard;
use agentmine_tests::forge::DEMO;
use serde_json::json;

use crate::endpoint;
use crate::gate::Gate;
use crate::rig::{PATIENCE, Rig, solves_demo};

const DONE: TaskState = TaskState::Ended(EndState::Done);

/// A worker whose claim has no answer gives the message back. Nothing but the message informs the other of the task.
#[tokio::test]
async fn a_task_whose_claim_has_no_answer_is_taken_by_another_worker() {
    let mut rig = Rig::local(solves_demo()).await;
    rig.config["consumer"]["concurrency"] = 1.into();
    rig.produce_issue().await;
    let direct = rig.config["store"]["url"].clone();
    let store = Gate::of_url(&mut rig.config["store"]["url"]).await;
    store.freeze_at(&["attempt = attempt + 1"]);
    let frozen = rig.spawn_without("consumer", Guard::SecondNet);
    // After 30 s, the time limit of a statement.
    frozen.wait_for("claim failed").await;
    rig.config["store"]["url"] = direct;
    let other = rig.spawn_without("consumer", Guard::SecondNet);
    let tasks = rig.wait_ended(1).await;
    assert_eq!((tasks[0].state, tasks[0].attempt), (DONE, 1));
    store.thaw();
    for consumer in [frozen, other] {
        consumer.terminate();
        let (status, log) = consumer.end().await;
        assert!(status.success(), "{status}\n{log}");
    }
    assert_eq!(rig.sessions().await.len(), 1);
}

/// The broker would keep the message for the consumer, for half an hour.
#[tokio::test]
async fn a_message_whose_acknowledgement_was_not_sent_comes_back_at_once() {
    let mut rig = Rig::local(solves_demo()).await;
    rig.produce_issue().await;
    let address = endpoint::free_address();
    rig.config["http"] = json!({ "listen": address });
    let consumer = rig.spawn_failing("consumer", "queue.ack.before=unknown");
    let tasks = rig.wait_ended(1).await;
    assert_eq!((tasks[0].state, tasks[0].attempt), (DONE, 1));
    let begun = Instant::now();
    loop {
        let (_, metrics) = endpoint::get(&address, "/metrics").await;
        if metrics.contains("agentmine_messages_taken_total 2") {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{metrics}");
        // A count in another process.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    consumer.terminate();
    let (status, log) = consumer.end().await;
    assert!(status.success(), "{status}\n{log}");
    assert_eq!(rig.sessions().await.len(), 1);
}

/// Postgres reads the commit of a claim only after the consumer has given it up.
#[tokio::test]
async fn a_claim_whose_commit_timed_out_and_was_made_is_worked_on() {
    let mut rig = Rig::local(solves_demo()).await;
    rig.config["consumer"]["concurrency"] = 1.into();
    rig.produce_issue().await;
    let store = Gate::of_url(&mut rig.config["store"]["url"]).await;
    store.freeze_at(&["attempt = attempt + 1", "COMMIT"]);
    let consumer = rig.spawn("consumer", &[]);
    // After 30 s, the time limit of a statement.
    consumer.wait_for("claim failed").await;
    store.thaw();
    let tasks = rig.wait_ended(1).await;
    consumer.terminate();
    let (_, log) = consumer.end().await;
    assert_eq!((tasks[0].state, tasks[0].attempt), (DONE, 1), "{log}");
    let sessions = rig.sessions().await;
    assert_eq!(sessions.len(), 1, "{sessions:#?}\n{log}");
}

/// Rows that only other consumers serve come first, and the broker is down.
#[tokio::test]
async fn rows_of_a_tracker_that_nobody_serves_hide_no_others_while_the_broker_is_down() {
    let mut rig = Rig::local(solves_demo()).await;
    for number in 1..=220 {
        let new = NewTask {
            item: ItemRef {
                tracker: TrackerKind::Local,
                host: "elsewhere".into(),
                repo_id: "1".into(),
                repo_path: "a/b".into(),
                kind: ItemKind::Issue,
                number,
            },
            trigger: format!("t{number}"),
            title: "foreign".into(),
            url: "u".into(),
            priority: Priority::Medium,
        };
        rig.store.enqueue(&new).await.unwrap();
    }
    let sql = rig.sql().await;
    let begun = "UPDATE tasks SET takeover = true";
    sqlx::query(begun).execute(&sql).await.unwrap();
    let number = rig.produce_issue().await;
    rig.config["queue"]["url"] = "amqp://guest:guest@127.0.0.1:9/%2f".into();
    let consumer = rig.spawn("consumer", &[]);
    rig.forge
        .wait_until("the end is reported", PATIENCE, |forge| {
            forge.labels(DEMO, number) == ["coding agent done"]
        })
        .await;
    consumer.terminate();
    consumer.end().await;
    let served = rig
        .tasks()
        .await
        .into_iter()
        .find(|it| it.title != "foreign");
    assert_eq!(served.unwrap().state, DONE);
}

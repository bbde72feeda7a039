//! `agentmine queue status` and the tool, on both stores and with a broker.

use agentmine_domain::{ItemRef, NewTask, Priority};
use agentmine_tests::model::Scenario;
use serde_json::{Value, json};

use super::World;
use crate::rig::Rig;

pub(super) fn item(number: u64) -> ItemRef {
    serde_json::from_value(json!({
        "tracker": "github", "host": "github.com", "repo_id": "1", "repo_path": "a/b", "kind": "issue", "number": number
    }))
    .unwrap()
}

async fn enqueue(rig: &Rig, number: u64, priority: Priority) {
    let new = NewTask {
        item: item(number),
        trigger: format!("t{number}"),
        title: format!("Item {number}"),
        url: "https://github.com/a/b/issues/1".to_owned(),
        priority,
    };
    rig.store.enqueue(&new).await.unwrap();
}

#[tokio::test]
async fn the_queue_is_counted_by_priority_with_the_brokers_own_counts() {
    let rig = Rig::new(Scenario::new("nothing")).await;
    enqueue(&rig, 1, Priority::High).await;
    enqueue(&rig, 2, Priority::High).await;
    enqueue(&rig, 3, Priority::Low).await;
    let config = rig.config_file().display().to_string();
    let world = World::new();
    let status = world.json(&["--config", &config, "queue", "status"]);
    let due: Vec<(&Value, &Value)> = status["priorities"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| (&it["priority"], &it["due"]))
        .collect();
    let expected = json!([["critical", 0], ["high", 2], ["medium", 0], ["low", 1]]);
    assert_eq!(json!(due), expected);
    assert_eq!(status["unpublished"]["count"], 3, "{status}");
    assert_eq!(status["broker"]["error"], Value::Null);
    let queues = status["broker"]["queues"].as_array().unwrap();
    assert!(
        queues
            .iter()
            .any(|it| it["name"].as_str().unwrap().ends_with(".dead")),
        "{status}"
    );
    let table = world.shown(&["--config", &config, "queue", "status"], 0);
    assert!(table.contains("QUEUE OF THE BROKER"), "{table}");
}

#[tokio::test]
async fn a_broker_that_is_away_does_not_hide_the_tasks() {
    let mut rig = Rig::new(Scenario::new("nothing")).await;
    enqueue(&rig, 1, Priority::Critical).await;
    rig.config["queue"]["url"] = "amqp://guest:hunter2@127.0.0.1:1/%2f".into();
    let config = rig.config_file().display().to_string();
    let status = World::new().json(&["--config", &config, "queue", "status"]);
    assert_eq!(status["priorities"][0]["due"], 1);
    let error = status["broker"]["error"].as_str().unwrap();
    assert!(
        error.contains("127.0.0.1:1") && !error.contains("hunter2"),
        "{error}"
    );
}

//! What an operator configures: services over TLS.

use agentmine_tests::encrypted::Encrypted;
use serde_json::json;

use crate::rig::{Rig, assert_done, solves_demo};

#[tokio::test]
async fn a_fleet_works_over_tls_alone_and_refuses_servers_that_it_cannot_verify() {
    let services = Encrypted::start().await.unwrap();
    let mut rig = Rig::local(solves_demo()).await;
    let url = services.store_url.as_str();
    let verified = format!(
        "{url}?sslmode=verify-full&sslrootcert={}",
        services.authority.display()
    );
    rig.config["store"]["url"] = verified.clone().into();
    rig.config["queue"]["url"] = services.queue_url.as_str().into();
    let authority = ("SSL_CERT_FILE", services.authority.to_str().unwrap());
    rig.label_issue();
    // Not encrypted, and encrypted for an authority that nobody trusts: one clear error, and no secret in it.
    let other = rig.folder.path().join("other.pem");
    std::fs::write(&other, Encrypted::foreign_authority().unwrap()).unwrap();
    for (parameters, part) in [
        ("sslmode=disable".to_owned(), "no encryption"),
        (
            format!("sslmode=verify-full&sslrootcert={}", other.display()),
            "certificate",
        ),
    ] {
        rig.config["store"]["url"] = format!("{url}?{parameters}").into();
        let (status, log) = rig.spawn("producer", &["--once"]).end().await;
        assert!(!status.success(), "{parameters}: {log}");
        assert!(log.contains(part), "{parameters}: {log}");
    }
    rig.config["store"]["url"] = verified.into();
    let producer = rig.spawn_with("producer", authority);
    producer.wait_for("enqueued=1").await;
    producer.terminate();
    let (_, log) = producer.end().await;
    assert!(!log.contains("the queue is unavailable"), "{log}");
    // The broker's certificate is unknown: the task is found by polling, and the log says why.
    let blind = rig.spawn("consumer", &[]);
    blind.wait_for("the queue is unavailable").await;
    assert!(blind.log().contains("ertificate"), "{}", blind.log());
    blind.kill_nine();
    let consumer = rig.spawn_with("consumer", authority);
    let config = serde_json::from_value(json!({ "url": rig.config["store"]["url"] })).unwrap();
    let store = agentmine_store::connect(&config).await.unwrap();
    let task = loop {
        let task = store.tasks(&Default::default()).await.unwrap().remove(0);
        if matches!(task.state, agentmine_domain::TaskState::Ended(_)) {
            break task;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    };
    assert_done(&task);
    consumer.terminate();
    let (status, log) = consumer.end().await;
    assert!(status.success(), "{log}");
    assert!(!log.contains("the queue is unavailable"), "{log}");
}

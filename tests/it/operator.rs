//! What an operator configures: services over TLS, a machine without bubblewrap.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use agentmine_tests::encrypted::Encrypted;
use serde_json::json;

use crate::embedded::demo_repository;
use crate::rig::{Rig, assert_done, binary, solves_demo};

/// As the first process of a container it would ignore a signal that it does not handle.
#[tokio::test]
async fn a_process_that_waits_for_the_schema_ends_when_it_is_stopped() {
    let mut rig = Rig::local(solves_demo()).await;
    let store = &mut rig.config["store"];
    // There is no such database yet.
    store["url"] = format!("{}_later", store["url"].as_str().unwrap()).into();
    store["migrations"] = "wait".into();
    for program in ["producer", "consumer"] {
        let process = rig.spawn(program, &[]);
        process.wait_for("waiting for `producer migrate`").await;
        process.terminate();
        let (status, log) = process.end().await;
        assert!(status.success(), "{status}\n{log}");
    }
}

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
    // The system's authorities count for the database as for the broker.
    rig.config["store"]["url"] = format!("{url}?sslmode=verify-full").into();
    let producer = rig.spawn_with("producer", authority);
    producer.wait_for("enqueued=1").await;
    producer.terminate();
    let (_, log) = producer.end().await;
    rig.config["store"]["url"] = verified.into();
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

/// Without namespaces a command of root's could change the modes of the machine's files.
#[test]
fn a_root_worker_refuses_the_jail_without_namespaces_unless_the_operator_accepts_it() {
    // SAFETY: takes nothing and cannot fail.
    let is_root = unsafe { libc::geteuid() } == 0;
    let home = tempfile::tempdir().unwrap();
    let broken = home.path().join("bin");
    std::fs::create_dir(&broken).unwrap();
    let script = broken.join("bwrap");
    std::fs::write(&script, "#!/bin/sh\nexit 1\n").unwrap();
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&script, executable).unwrap();
    let path = format!("{}:{}", broken.display(), std::env::var("PATH").unwrap());
    let repo = home.path().join("repo");
    demo_repository(&repo);
    std::fs::write(
        home.path().join("issue.md"),
        "# Greet\n\nIt should greet.\n",
    )
    .unwrap();
    let run = |config: &str| {
        std::fs::write(home.path().join("config.yaml"), config).unwrap();
        let mut command = Command::new(binary("agentmine"));
        command
            .args([
                "--config=config.yaml",
                "run",
                "--repo=repo",
                "--issue=issue.md",
            ])
            .arg("--base-url=http://127.0.0.1:9/v1")
            .current_dir(home.path())
            .env_clear()
            .env("PATH", &path)
            .env("HOME", home.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    if is_root {
        let refused = run("model: {max_tries: 1}\n").wait_with_output().unwrap();
        assert!(!refused.status.success());
        let shown = String::from_utf8_lossy(&refused.stderr);
        assert!(
            shown.contains("the worker runs as root, and bubblewrap does not work"),
            "{shown}"
        );
    }
    let mut accepted = run("command_executor: {local: {accept_weaker_limits: true}}\n");
    let lines = BufReader::new(accepted.stdout.take().unwrap()).lines();
    // The jail was checked before.
    let is_disk =
        |line: &std::io::Result<String>| line.as_ref().is_ok_and(|it| it.starts_with("disk "));
    assert!(
        lines.into_iter().any(|line| is_disk(&line)),
        "it did not start"
    );
    accepted.kill().unwrap();
    accepted.wait().unwrap();
}

//! A whole consumer on the engine of another machine: the real engine behind a real sshd, and behind TLS with
//! certificates of both sides. The contract tests of `agentmine-sandbox` show each transport alone.

use std::time::{Duration, Instant};

use agentmine_tests::forge::DEMO;
use tokio::process::Command;

use crate::rig::{Process, Rig, assert_done, containers, solves_demo};

#[path = "../../crates/agentmine-sandbox/src/contract/remote/sshd.rs"]
pub(crate) mod sshd;
#[path = "../../crates/agentmine-sandbox/src/contract/remote/tls_engine.rs"]
pub(crate) mod tls_engine;

use sshd::Sshd;

/// The volumes of a container.
async fn volumes(container: &str) -> Vec<String> {
    let format = "{{range .Mounts}}{{println .Name}}{{end}}";
    let command = ["inspect", "--format", format, container];
    let out = Command::new("docker").args(command).output().await.unwrap();
    assert!(out.status.success(), "{out:?}");
    let names = String::from_utf8_lossy(&out.stdout);
    let names = names.lines().filter(|name| !name.is_empty());
    names.map(ToOwned::to_owned).collect()
}

async fn exists(volume: &str) -> bool {
    let command = ["volume", "inspect", volume];
    let out = Command::new("docker").args(command).output().await.unwrap();
    out.status.success()
}

/// With these variables a consumer makes a pull request of an issue, and leaves nothing on the engine.
async fn assert_works_with(rig: &Rig, variables: &[(&str, &str)]) {
    rig.produce_issue().await;
    rig.model.hold_at(2);
    let mut consumer = rig.program("consumer");
    let consumer = consumer.arg("--once").envs(variables.iter().copied());
    let consumer = Process::spawn(consumer);
    rig.model.wait_for_held(1).await;
    let task = rig.task().await;
    let working = containers(std::slice::from_ref(&task)).await;
    let [container] = working.as_slice() else {
        panic!("{working:?}\n{}", consumer.log());
    };
    let volumes = volumes(container).await;
    assert!(!volumes.is_empty(), "the guest is in a volume");
    rig.model.release();
    let (status, log) = consumer.end().await;
    assert!(status.success(), "{status}\n{log}");
    // The worker's file systems are of no use to an engine elsewhere, which is reported at start.
    let watched = "the engine is not reached over a socket of this machine";
    assert!(log.contains(watched), "{log}");

    let task = rig.task().await;
    assert_done(&task);
    let pulls = rig.forge.pulls(DEMO);
    assert_eq!(pulls.len(), 1);
    let pull = &pulls[0];
    assert!(pull.body.contains("| `sh test.sh` | 0 |"), "{}", pull.body);
    let pushed = rig.forge.file_at(DEMO, &pull.head, "greet.sh").unwrap();
    assert!(pushed.contains("${1:-world}"), "{pushed}");
    assert_eq!(containers(&[task]).await, Vec::<String>::new());
    for volume in volumes {
        // The programs stay for the next containers.
        let is_shared = volume.starts_with("agentmine-programs-");
        assert_eq!(exists(&volume).await, is_shared, "{volume}");
    }
}

#[tokio::test]
async fn an_issue_becomes_a_pull_request_on_an_engine_over_ssh() {
    let mut rig = Rig::new(solves_demo()).await;
    let sshd = Sshd::start(&std::env::var("PATH").unwrap());
    rig.config["command_executor"]["docker"]["ssh_config"] =
        sshd.config().display().to_string().into();
    assert_works_with(&rig, &[("DOCKER_HOST", &sshd.host())]).await;
    let ended = Instant::now();
    while !sshd.clients().is_empty() {
        assert!(ended.elapsed() < Duration::from_secs(10), "ssh is left");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn an_issue_becomes_a_pull_request_on_an_engine_over_tls() {
    let rig = Rig::new(solves_demo()).await;
    let files = tempfile::tempdir().unwrap();
    let ours = tls_engine::authority();
    let server = tls_engine::pair(tls_engine::server("127.0.0.1"), &ours);
    let host = tls_engine::engine(server, &ours).await;
    tls_engine::write_files(files.path(), &ours, &tls_engine::client(&ours));
    let folder = files.path().display().to_string();
    let variables = [
        ("DOCKER_HOST", host.as_str()),
        ("DOCKER_CERT_PATH", folder.as_str()),
    ];
    assert_works_with(&rig, &variables).await;
}

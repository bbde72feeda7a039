//! Over ssh.

use super::sshd::{Sshd, free_port};
use super::*;

fn engine(sshd: &Sshd) -> CommandExecutor {
    let mut config = docker_config();
    config.docker.host = Some(sshd.host());
    config.docker.ssh_config = Some(sshd.config());
    config
}

fn here() -> String {
    std::env::var("PATH").unwrap()
}

#[tokio::test]
async fn an_engine_over_ssh_does_all_that_a_task_needs() {
    let sshd = Sshd::start(&here());
    essentials(&engine(&sshd)).await;
    let began = Instant::now();
    while !sshd.clients().is_empty() {
        assert!(began.elapsed() < Duration::from_secs(10), "ssh is left");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_connection_that_is_cut_ends_the_tunnel_and_not_the_next_call() {
    let sshd = Sshd::start(&here());
    let backend = DockerBackend::connect(&engine(&sshd)).await.unwrap();
    let sandbox = Running(backend.start(&spec(TaskId::new())).await.unwrap());
    assert_eq!(sandbox.output("echo here").await, "here");
    for pid in sshd.clients() {
        let killed = std::process::Command::new("kill")
            .args(["-9", &pid.to_string()])
            .status();
        assert!(killed.is_ok(), "{killed:?}");
    }
    let gone = tokio::time::timeout(Duration::from_secs(20), sandbox.gone()).await;
    assert!(gone.is_ok(), "the end of the tunnel was not noticed");
    sandbox.remove().await.unwrap();
    assert!(!docker_cli(&["inspect", sandbox.name()]).0);
}

#[tokio::test]
async fn an_error_has_what_ssh_and_the_far_side_printed() {
    let sshd = Sshd::start("/nowhere");
    let error = refusal(&engine(&sshd)).await;
    assert!(error.contains("ssh said:"), "{error}");
    assert!(
        error.contains("docker: command not found") || error.contains("docker: not found"),
        "{error}"
    );
    assert!(error.contains("hint: check that `ssh` reaches"), "{error}");

    sshd.client("stranger", "known");
    let error = refusal(&engine(&sshd)).await;
    assert!(error.contains("Permission denied"), "{error}");

    std::fs::write(sshd.folder.path().join("none"), "").unwrap();
    sshd.client("user", "none");
    let error = refusal(&engine(&sshd)).await;
    assert!(error.contains("Host key verification failed"), "{error}");

    let mut config = engine(&sshd);
    config.docker.host = Some(format!("ssh://127.0.0.1:{}", free_port()));
    let error = refusal(&config).await;
    assert!(error.contains("Connection refused"), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
}

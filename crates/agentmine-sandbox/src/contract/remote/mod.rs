//! An engine on another machine: the real engine behind a real sshd, and behind TLS with certificates of both
//! sides.

mod ssh;
mod sshd;
mod tls;
mod tls_engine;

use super::*;

/// What a task needs of an engine: a start with its upload, the tunnel in both directions, and the end.
async fn essentials(config: &CommandExecutor) {
    let backend = DockerBackend::connect(config).await;
    let backend = backend.unwrap_or_else(|err| panic!("{err}\nrun tests/run"));
    backend.check().await.unwrap();
    let task = TaskId::new();
    let sandbox = Running(backend.start(&spec(task)).await.unwrap());
    let content: Vec<u8> = (0..=255).cycle().take(3_000_000).collect();
    let mut write = shell("cat > big");
    write.stdin = content.clone();
    assert_eq!(sandbox.run(write).await.unwrap().exit_code, 0);
    let path = "/workspace/project/big";
    let read = sandbox.get_file(path, content.len()).await.unwrap();
    assert!(read.unwrap() == content, "the file came back changed");
    let (fast, slow) = tokio::join!(
        sandbox.output("echo fast"),
        sandbox.output("sleep 1; echo slow")
    );
    assert_eq!((fast.as_str(), slow.as_str()), ("fast", "slow"));
    sandbox.pause().await.unwrap();
    sandbox.unpause().await.unwrap();
    assert_eq!(sandbox.output("echo again").await, "again");
    let listed = backend.list().await.unwrap();
    assert!(listed.iter().any(|found| found.name == sandbox.name()));
    sandbox.remove().await.unwrap();
    let (left, _) = docker_cli(&["inspect", sandbox.name()]);
    assert!(!left, "the container is still there");
}

/// Why the engine cannot be used.
async fn refusal(config: &CommandExecutor) -> String {
    let error = DockerBackend::connect(config).await.unwrap_err();
    assert!(matches!(error, SandboxError::Unavailable(_)), "{error}");
    error.to_string()
}

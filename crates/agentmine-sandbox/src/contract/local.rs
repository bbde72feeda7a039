//! What only the local jails promise.

use super::*;

/// Both jails show the machine's certificates; what lies beside them stays unseen.
#[tokio::test]
async fn private_keys_of_the_machine_cannot_be_read() {
    for kind in [Kind::Namespaces, Kind::Alone] {
        let bench = bench(kind).await;
        let sandbox = bench.start().await;
        for folder in ["/etc/ssl/private", "/etc/pki/tls/private"] {
            let listed = sandbox.shell(&format!("ls {folder}")).await;
            assert_ne!(listed.exit_code, 0, "{kind:?}: {}", text(&listed.stdout));
            // Where the machine has some that this test may read, the sandbox must not.
            for key in std::fs::read_dir(folder).into_iter().flatten().flatten() {
                let read = sandbox
                    .shell(&format!("cat '{}'", key.path().display()))
                    .await;
                assert_ne!(read.exit_code, 0, "{kind:?}: {:?}", key.path());
            }
        }
        if std::path::Path::new("/etc/ssl/certs/ca-certificates.crt").exists() {
            sandbox
                .output("head -c 1 /etc/ssl/certs/ca-certificates.crt")
                .await;
        }
        sandbox.remove().await.unwrap();
    }
}

/// Without namespaces the terminals are the machine's, and other processes are the user's own.
#[tokio::test]
async fn without_namespaces_no_terminal_and_no_other_process_is_reached() {
    let bench = bench(Kind::Alone).await;
    let sandbox = bench.start().await;
    for line in ["ls /dev/pts", "exec 3<> /dev/ptmx", "head -c 0 /dev/tty"] {
        let result = sandbox.shell(line).await;
        assert!(
            text(&result.stderr).contains("Permission denied"),
            "{line}: {}",
            text(&result.stderr)
        );
    }
    sandbox
        .output("for d in zero random urandom; do head -c 1 /dev/$d > /dev/null; done")
        .await;
    // As root, which drops its capabilities, too: the scope refuses it, not the owner.
    let own = std::process::id();
    let signalled = sandbox.shell(&format!("kill -0 {own}")).await;
    assert!(
        text(&signalled.stderr).contains("not permitted"),
        "{}",
        text(&signalled.stderr)
    );
    sandbox.remove().await.unwrap();
}

#[tokio::test]
async fn a_command_that_fills_the_disk_is_killed_with_the_reason() {
    let state = tempfile::tempdir_in(scratch()).unwrap();
    let mut config = CommandExecutor::default();
    config.docker.resources.disk_limit = "20m".parse().unwrap();
    let backend = LocalBackend::new(&config, state.path()).unwrap();
    let sandbox = Running(backend.start(&spec(TaskId::new())).await.unwrap());
    let result = sandbox
        .shell("head -c 60M /dev/zero > big; sleep 20; echo not reached")
        .await;
    assert_eq!(text(&result.stdout), "");
    assert!(
        text(&result.stderr).contains("the limit is 20971520"),
        "{}",
        text(&result.stderr)
    );
    // What frees space may run.
    sandbox.output("sleep 1; rm big; sleep 1").await;
    sandbox.output("sleep 1; echo fine").await;
    sandbox.remove().await.unwrap();
}

/// A guest that a command killed takes everything with it, even where no namespace does.
#[tokio::test]
async fn nothing_survives_the_guest_without_namespaces() {
    let bench = bench(Kind::Alone).await;
    let sandbox = bench.start().await;
    let pid = sandbox
        .output("(setsid sleep 300 < /dev/null > /dev/null 2>&1 & echo $!)")
        .await;
    let pid: u32 = pid.parse().unwrap();
    let alive = || std::path::Path::new(&format!("/proc/{pid}/cmdline")).exists();
    assert!(alive());
    let killed = sandbox.run(shell("kill -9 $PPID; sleep 10")).await;
    assert!(matches!(killed, Err(SandboxError::Gone(_))), "{killed:?}");
    sandbox.gone().await;
    let deadline = Instant::now() + Duration::from_secs(10);
    while alive() && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(!alive());
    sandbox.remove().await.unwrap();
}

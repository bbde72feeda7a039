//! Checks that end what measures them: the result is a failed check, and not another attempt.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use agentmine_domain::SessionEnd;
use agentmine_tests::forge::{DEMO, PullView};
use tokio::net::{UnixListener, UnixStream};
use tokio::process::Command;
use tokio::sync::watch;

use crate::rig::{PATIENCE, Rig, assert_done, containers, solves_demo};

/// The guest is the first process of a container and of a jail with namespaces, which no such signal from inside ends.
const KILLS_EVERYTHING: &str = "kill -9 $PPID; kill -9 -1; kill -9 1; sleep 1; exit 7";

/// The pull request of a task that had one attempt and one round, with this check before one that passes.
async fn checked_by(mut rig: Rig, check: &str) -> PullView {
    rig.config["agent"] =
        serde_json::json!({ "checks": [check, "test -e greet.sh"], "max_rounds": 1 });
    rig.config["consumer"]["max_attempts"] = 1.into();
    rig.produce_issue().await;
    rig.consume().await;
    let task = rig.task().await;
    let ends: Vec<_> = rig.sessions().await.iter().map(|it| it.end).collect();
    assert_eq!(ends, [Some(SessionEnd::Done)], "{:?}", task.reason);
    let pull = rig.forge.pulls(DEMO).remove(0);
    assert!(pull.draft, "{}", pull.body);
    assert!(
        pull.body.contains("| `test -e greet.sh` | 0 |"),
        "the check after it was not run: {}",
        pull.body
    );
    assert!(!pull.body.contains("Closes #"), "{}", pull.body);
    pull
}

#[tokio::test]
async fn a_check_that_kills_everything_in_its_container_is_measured() {
    let pull = checked_by(Rig::new(solves_demo()).await, KILLS_EVERYTHING).await;
    let row = format!("| `{KILLS_EVERYTHING}` | 7");
    assert!(pull.body.contains(&row), "{}", pull.body);
}

#[tokio::test]
async fn a_check_that_ends_its_container_counts_as_failed() {
    let pull = checked_by(Rig::new(solves_demo()).await, "kill 1; sleep 60").await;
    let row = "| `kill 1; sleep 60` | ended the sandbox";
    assert!(pull.body.contains(row), "{}", pull.body);
}

/// A set-up command installs what a commit names, and so runs what the agent wrote too.
#[tokio::test]
async fn a_set_up_that_ends_its_container_fails_every_check() {
    let mut rig = Rig::new(solves_demo()).await;
    rig.forge.commit(DEMO, "main", "main", |dir| {
        std::fs::write(
            dir.join(".agentmine/config.yaml"),
            "setup: [\"sh ./set-up.sh\"]\nchecks: [\"sh test.sh\"]\n",
        )
        .unwrap();
        std::fs::write(
            dir.join("set-up.sh"),
            "if grep -q world greet.sh; then kill 1; sleep 60; fi\n",
        )
        .unwrap();
    });
    rig.config["agent"]["max_rounds"] = 1.into();
    rig.config["consumer"]["max_attempts"] = 1.into();
    rig.produce_issue().await;
    rig.consume().await;
    let task = rig.task().await;
    assert_eq!(rig.sessions().await.len(), 1, "{:?}", task.reason);
    let pull = rig.forge.pulls(DEMO).remove(0);
    assert!(pull.draft, "{}", pull.body);
    let row = "| `sh test.sh` | not run, since the set-up ended the sandbox |";
    assert!(pull.body.contains(row), "{}", pull.body);
}

#[tokio::test]
async fn a_check_that_kills_everything_in_its_jail_is_measured() {
    let pull = checked_by(Rig::local(solves_demo()).await, KILLS_EVERYTHING).await;
    let row = format!("| `{KILLS_EVERYTHING}` | 7");
    assert!(pull.body.contains(&row), "{}", pull.body);
}

/// A socket in front of the engine's, which can be cut.
struct Cut {
    host: String,
    away: watch::Sender<bool>,
    was_used: Arc<AtomicBool>,
}

impl Cut {
    fn new(folder: &std::path::Path) -> Self {
        let path = folder.join("engine.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let host = std::env::var("DOCKER_HOST").unwrap_or("unix:///var/run/docker.sock".into());
        let engine = PathBuf::from(
            host.strip_prefix("unix://")
                .expect("a socket; run tests/run"),
        );
        let (away, is_away) = watch::channel(false);
        let was_used = Arc::new(AtomicBool::new(false));
        let used = Arc::clone(&was_used);
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let (engine, mut is_away) = (engine.clone(), is_away.clone());
                used.store(true, Ordering::SeqCst);
                tokio::spawn(async move {
                    let relay = async {
                        let mut engine = UnixStream::connect(engine).await?;
                        tokio::io::copy_bidirectional(&mut client, &mut engine).await
                    };
                    tokio::select! {
                        biased;
                        _ = is_away.wait_for(|away| *away) => {}
                        _ = relay => {}
                    }
                });
            }
        });
        Self {
            host: format!("unix://{}", path.display()),
            away,
            was_used,
        }
    }
}

#[tokio::test]
async fn an_engine_that_is_away_during_checks_costs_no_attempt() {
    let mut rig = Rig::new(solves_demo()).await;
    let cut = Cut::new(rig.folder.path());
    let check = "touch /workspace/tmp/checking; sleep 5; sh test.sh";
    rig.config["command_executor"]["docker"]["host"] = cut.host.clone().into();
    rig.config["agent"]["checks"] = serde_json::json!([check]);
    rig.config["consumer"]["max_attempts"] = 1.into();
    rig.produce_issue().await;
    let consumer = rig.spawn("consumer", &[]);
    let begun = std::time::Instant::now();
    while !is_checking(&rig).await {
        assert!(
            begun.elapsed() < PATIENCE,
            "no check began: {}",
            consumer.log()
        );
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    cut.away.send_replace(true);
    let ended = || async { rig.sessions().await.iter().any(|it| it.end.is_some()) };
    while !ended().await {
        assert!(begun.elapsed() < PATIENCE, "{}", consumer.log());
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    cut.away.send_replace(false);
    let task = rig.wait_ended(1).await.remove(0);
    consumer.terminate();
    consumer.end().await;
    assert!(cut.was_used.load(Ordering::SeqCst));
    assert_done(&task);
    assert_eq!(task.attempt, 1);
    let ends: Vec<_> = rig.sessions().await.iter().map(|it| it.end).collect();
    assert!(ends.len() > 1, "{ends:?}");
    assert_eq!(ends[0], Some(SessionEnd::Done));
    assert!(
        ends[1..].iter().all(|it| *it == Some(SessionEnd::Released)),
        "{ends:?}"
    );
    let pull = rig.forge.pulls(DEMO).remove(0);
    assert!(!pull.draft, "{}", pull.body);
}

/// Whether the check of the only task runs in its container. The agent's own is frozen meanwhile, and anybody who looks into
/// it at that moment waits for its end.
async fn is_checking(rig: &Rig) -> bool {
    let names = containers(&rig.tasks().await).await;
    for name in names.iter().filter(|name| name.ends_with("-verify")) {
        let seen = Command::new("docker")
            .args(["exec", name, "test", "-e", "/workspace/tmp/checking"])
            .output()
            .await
            .unwrap();
        if seen.status.success() {
            return true;
        }
    }
    false
}

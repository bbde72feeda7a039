//! Workers die while others are busy with a backlog: what they began is taken over before anything new begins.

use std::time::Duration;

use agentmine_domain::{EndState, Session, SessionEnd, Task, TaskId, TaskState};
use agentmine_tests::forge::DEMO;
use chrono::{DateTime, Utc};

use crate::rig::{Rig, solves_demo};

const REQUEST: &str = "coding agent";
/// In the title of the tasks whose worker dies.
const DOOMED: &str = "doomed";
/// Tasks at work in the consumer that dies; it has as many slots.
const TAKEN: usize = 2;

async fn issues(rig: &Rig, title: &str, count: usize) {
    for n in 0..count {
        let title = format!("{title} ({n})");
        rig.forge
            .add_issue(DEMO, &title, "It should greet.", &[REQUEST]);
    }
    rig.produce().await;
}

/// A takeover, from the moment at which its worker was killed.
struct Takeover {
    /// Until another worker had claimed the task.
    recovery: Duration,
    /// Sessions of other tasks that began after the lease was given up and before the claim.
    overtaken_by: usize,
    /// Sessions that began later: the backlog at that time.
    backlog: usize,
}

fn takeover(task: TaskId, sessions: &[Session], killed: DateTime<Utc>) -> Takeover {
    let of_task = |end: &dyn Fn(&Session) -> bool| {
        let mut found = sessions.iter().filter(|it| it.task == task && end(it));
        let first = found.next_back().expect("no such session");
        (first.started_at, first.ended_at.expect("it has ended"))
    };
    let (_, given_up) = of_task(&|it| it.end == Some(SessionEnd::Expired));
    let (claimed, _) = of_task(&|it| it.end != Some(SessionEnd::Expired));
    let others = sessions.iter().filter(|it| it.task != task);
    let began = others.map(|it| it.started_at);
    Takeover {
        recovery: (claimed - killed).to_std().unwrap_or_default(),
        overtaken_by: began
            .clone()
            .filter(|at| *at > given_up && *at < claimed)
            .count(),
        backlog: began.filter(|at| *at > claimed).count(),
    }
}

/// Kills a consumer with two tasks at work while another one has a backlog.
async fn killed_before_a_backlog(rig: &Rig, backlog: usize) -> Vec<Takeover> {
    issues(rig, DOOMED, TAKEN).await;
    rig.model.hold_when(DOOMED, 2);
    let first = rig.spawn("consumer", &[]);
    rig.model.wait_for_held(TAKEN).await;
    issues(rig, "greet.sh greets nobody", backlog).await;
    let second = rig.spawn("consumer", &[]);
    let ended = |tasks: &[Task]| tasks.iter().any(|t| matches!(t.state, TaskState::Ended(_)));
    rig.wait("the second consumer to be at work", ended).await;
    let killed = Utc::now();
    first.kill_nine();
    rig.model.release();
    let tasks = rig.wait_ended(TAKEN + backlog).await;
    second.terminate();
    let (_, log) = second.end().await;
    for task in &tasks {
        assert_eq!(
            task.state,
            TaskState::Ended(EndState::Done),
            "#{}: {:?}\n{log}",
            task.item.number,
            task.reason
        );
    }
    assert_eq!(rig.forge.pulls(DEMO).len(), TAKEN + backlog);
    let sessions = rig.sessions().await;
    let doomed = tasks.iter().filter(|task| task.title.contains(DOOMED));
    doomed.map(|t| takeover(t.id, &sessions, killed)).collect()
}

#[tokio::test]
async fn what_a_dead_worker_began_goes_before_the_backlog() {
    let rig = Rig::local(solves_demo()).await;
    for taken in killed_before_a_backlog(&rig, 30).await {
        let Takeover {
            recovery,
            overtaken_by,
            backlog,
        } = taken;
        println!("recovery {recovery:?}, overtaken by {overtaken_by}, backlog {backlog}");
        assert!(backlog > 5, "there was no backlog: {backlog}");
        // The other doomed task, and one message in the hand of each slot.
        assert!(overtaken_by <= 3, "behind {overtaken_by} of the backlog");
    }
}

#[tokio::test]
#[ignore = "a measurement of minutes: run by name with --run-ignored all"]
async fn a_takeover_with_the_default_lease_begins_within_90_seconds() {
    let mut recoveries = Vec::new();
    for _ in 0..3 {
        let mut rig = Rig::local(solves_demo()).await;
        let consumer = rig.config["consumer"].as_object_mut().unwrap();
        for key in [
            "heartbeat_seconds",
            "heartbeat_loss_seconds",
            "lease_seconds",
            "sweep_seconds",
            "wakeup_after_seconds",
        ] {
            consumer.remove(key);
        }
        let taken = killed_before_a_backlog(&rig, 60).await;
        recoveries.extend(taken.iter().map(|it| it.recovery));
    }
    recoveries.sort();
    println!("{recoveries:?}");
    let p50 = recoveries[recoveries.len() / 2];
    assert!(p50 < Duration::from_secs(60), "{recoveries:?}");
    assert!(recoveries.iter().all(|it| *it < Duration::from_secs(90)));
}

//! Workers die: what they began is taken over before anything new begins, and a result that is on the tracker
//! is reported as one.

use std::time::Duration;

use agentmine_domain::{EndState, Session, SessionEnd, Task, TaskId, TaskState};
use agentmine_tests::forge::{DEMO, Fault as ForgeFault};
use chrono::{DateTime, Utc};

use tokio::process::Command;

use crate::rig::{Process, REQUEST, Rig, binary, solves_demo};

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
    let taken_over = |tasks: &[Task]| {
        let mut doomed = tasks.iter().filter(|task| task.title.contains(DOOMED));
        doomed.all(|task| matches!(task.state, TaskState::Ended(_)))
    };
    rig.wait("the takeovers to end", taken_over).await;
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

/// A consumer with failpoints.
fn with_failpoints(rig: &Rig, failpoints: &str, args: &[&str]) -> Process {
    Process::spawn(
        Command::new(binary("consumer"))
            .arg("--config")
            .arg(rig.config_file())
            .args(args)
            .env("GITHUB_PERSONAL_ACCESS_TOKEN", rig.forge.token())
            .env("AGENTMINE_FAILPOINTS", failpoints),
    )
}

/// A consumer that a failpoint ends.
async fn killed_at(rig: &Rig, failpoint: &str) {
    let (status, log) = with_failpoints(rig, failpoint, &[]).end().await;
    assert!(!status.success(), "{failpoint} was not reached:\n{log}");
}

fn comment(rig: &Rig, number: u64) -> String {
    let comments = rig.forge.comments(DEMO, number);
    assert_eq!(comments.len(), 1, "{comments:#?}");
    comments[0].body.clone()
}

/// The only attempt dies between the answer to its POST and the end of its report.
#[tokio::test]
async fn a_last_attempt_that_dies_after_its_pull_request_opened_is_done() {
    for failpoint in [
        "tracker.pull_request_create.after=kill",
        "tracker.comment_edit.after=kill",
        "tracker.label_add.before=kill",
    ] {
        let mut rig = Rig::local(solves_demo()).await;
        rig.config["consumer"]["max_attempts"] = 1.into();
        issues(&rig, DOOMED, 1).await;
        killed_at(&rig, failpoint).await;
        assert_eq!(rig.forge.pulls(DEMO).len(), 1, "{failpoint}");
        let asked = rig.model.requests().len();
        let consumer = rig.spawn("consumer", &[]);
        let tasks = rig.wait_ended(1).await;
        consumer.terminate();
        let (_, log) = consumer.end().await;
        let task = &tasks[0];
        let done = TaskState::Ended(EndState::Done);
        assert_eq!(task.state, done, "{failpoint}: {:?}\n{log}", task.reason);
        let pulls = rig.forge.pulls(DEMO);
        assert_eq!(pulls.len(), 1, "{failpoint}");
        let number = task.item.number;
        assert!(comment(&rig, number).contains("opened a pull request"));
        assert_eq!(rig.forge.labels(DEMO, number), ["coding agent done"]);
        assert_eq!(rig.model.requests().len(), asked, "it only reports");
    }
}

#[tokio::test]
async fn an_attempt_that_fails_after_an_earlier_one_opened_the_pull_request_leaves_a_partial_result()
 {
    let mut rig = Rig::local(solves_demo()).await;
    rig.config["consumer"]["max_attempts"] = 2.into();
    issues(&rig, DOOMED, 1).await;
    killed_at(&rig, "tracker.pull_request_create.after=kill").await;
    let refused = ForgeFault::on("GET", "/octo/demo.git/info/refs");
    rig.forge.inject(refused.times(usize::MAX).status(403));
    let consumer = rig.spawn("consumer", &[]);
    let tasks = rig.wait_ended(1).await;
    consumer.terminate();
    consumer.end().await;
    let task = &tasks[0];
    assert_eq!(task.state, TaskState::Ended(EndState::Done));
    let missing = task.missing().unwrap_or_default();
    assert!(missing.contains("a later attempt failed"), "{missing}");
    let comment = comment(&rig, task.item.number);
    assert!(comment.contains("a partial result"), "{comment}");
    assert!(comment.contains("a later attempt failed"), "{comment}");
    assert_eq!(
        rig.forge.labels(DEMO, task.item.number),
        ["coding agent done"]
    );
}

/// The database commits a step, and neither the store's repetitions nor the session learn of it.
#[tokio::test]
async fn a_step_whose_commit_has_an_unknown_outcome_is_recorded_once() {
    let rig = Rig::local(solves_demo()).await;
    issues(&rig, DOOMED, 1).await;
    // More often than the store repeats an operation.
    let lost = (3..40).map(|step| format!("store.append_step.after=unknown*4@{}", 5 * step));
    let failpoints: Vec<String> = lost.collect();
    let consumer = with_failpoints(&rig, &failpoints.join(","), &["--once"]);
    let (status, log) = consumer.end().await;
    assert!(status.success(), "{log}");
    let task = rig.task().await;
    let done = TaskState::Ended(EndState::Done);
    assert_eq!((task.state, task.attempt), (done, 1), "{log}");
    let steps = rig.steps(&task).await;
    assert!(steps.len() > 10, "{}", steps.len());
    for pair in steps.windows(2) {
        let [one, next] = pair else { continue };
        let is_same = (one.kind, &one.payload) == (next.kind, &next.payload);
        assert!(!is_same, "steps {} and {} are one", one.seq, next.seq);
    }
}

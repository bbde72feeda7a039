//! Workers die: what they began is taken over before anything new begins, and a result that is on the tracker
//! is reported as one.

use std::time::Duration;

use agentmine_domain::{EndState, Session, SessionEnd, Task, TaskId, TaskState};
use agentmine_tests::forge::{DEMO, Fault as ForgeFault};
use chrono::{DateTime, Utc};

use crate::rig::{Process, REQUEST, Rig, on_both_forges, solves_demo};

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

/// The lease would last for a minute.
#[tokio::test]
async fn a_worker_that_dies_while_its_machine_lives_is_succeeded_before_its_lease_ends() {
    let mut rig = Rig::local(solves_demo()).await;
    rig.config["consumer"]["lease_seconds"] = 60.into();
    rig.config["consumer"]["heartbeat_loss_seconds"] = 58.into();
    for taken in killed_before_a_backlog(&rig, 10).await {
        let recovery = taken.recovery;
        println!("recovery {recovery:?}, overtaken by {}", taken.overtaken_by);
        assert!(recovery < Duration::from_secs(20), "{recovery:?}");
    }
}

/// Where the workers are that take over.
#[derive(Clone, Copy)]
enum Machines {
    /// All on one.
    One,
    /// Each of those that die on one of its own, as far as another worker can see.
    Many,
}

/// Workers that die, with [`TAKEN`] tasks each.
const DYING: usize = 15;
/// Workers that take over while they are busy with the backlog.
const SURVIVORS: usize = 4;
const BACKLOG: usize = 200;
/// The workers die within this time: not one at a time, and not more than those that are left have slots for.
const SPREAD: Duration = Duration::from_secs(100);

/// What was measured.
struct Recoveries {
    /// From the kill of a worker to the next session of each of its tasks, sorted.
    all: Vec<Duration>,
    /// Tasks of the backlog that were left when all were taken over.
    waiting: usize,
}

/// Kills [`DYING`] workers, each at a random moment, under the default times of leases. Returns how long each of
/// their tasks waited for its next session.
async fn recoveries_with_the_default_lease(machines: Machines) -> Recoveries {
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
    let spawn = |machine: &str| {
        let state = rig.folder.path().join(machine);
        Process::spawn(rig.program("consumer").env("XDG_STATE_HOME", state))
    };
    issues(&rig, DOOMED, DYING * TAKEN).await;
    rig.model.hold_when(DOOMED, 2);
    let machine = |n: usize| match machines {
        Machines::One => "machine-0".to_owned(),
        Machines::Many => format!("machine-{n}"),
    };
    let dying: Vec<Process> = (0..DYING).map(|n| spawn(&machine(n))).collect();
    rig.model.wait_for_held(DYING * TAKEN).await;
    issues(&rig, "greet.sh greets nobody", BACKLOG).await;
    let survivors = (0..SURVIVORS).map(|_| spawn(&machine(DYING)));
    let survivors: Vec<Process> = survivors.collect();
    let ended = |tasks: &[Task]| tasks.iter().any(|t| matches!(t.state, TaskState::Ended(_)));
    rig.wait("the survivors to be at work", ended).await;
    let within = SPREAD.as_millis();
    let moment = |_| (uuid::Uuid::new_v4().as_u128() % within) as u64;
    let mut moments: Vec<u64> = (0..DYING).map(moment).collect();
    moments.sort_unstable();
    let begun = tokio::time::Instant::now();
    let mut killed = std::collections::HashMap::new();
    for (process, moment) in dying.iter().zip(moments) {
        tokio::time::sleep_until(begun + Duration::from_millis(moment)).await;
        killed.insert(process.pid(), Utc::now());
        process.kill_nine();
    }
    rig.model.release();
    let is_over = |task: &Task| matches!(task.state, TaskState::Ended(_));
    let taken_over = |tasks: &[Task]| {
        let mut doomed = tasks.iter().filter(|task| task.title.contains(DOOMED));
        doomed.all(is_over)
    };
    let limit = SPREAD + Duration::from_secs(240);
    while !taken_over(&rig.tasks().await) {
        assert!(begun.elapsed() < limit, "the takeovers do not end");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let waiting = rig.tasks().await.iter().filter(|it| !is_over(it)).count();
    for survivor in survivors {
        survivor.kill_nine();
    }
    let sessions = rig.sessions().await;
    let lost = sessions.iter().filter_map(|held| {
        // `host/pid-salt/slot`
        let process = held.worker.0.split('/').nth_back(1)?;
        let pid: u32 = process.split('-').next()?.parse().ok()?;
        Some((held, killed.get(&pid)?))
    });
    let mut recoveries: Vec<Duration> = lost
        .map(|(held, killed)| {
            let mut next = sessions.iter().filter(|it| it.task == held.task);
            let next = next.find(|it| it.epoch.0 == held.epoch.0 + 1);
            let next = next.expect("a takeover");
            (next.started_at - killed).to_std().unwrap_or_default()
        })
        .collect();
    recoveries.sort();
    Recoveries {
        all: recoveries,
        waiting,
    }
}

impl Recoveries {
    fn percentile(&self, percent: usize) -> Duration {
        self.all[(self.all.len() - 1) * percent / 100]
    }

    fn summary(&self) -> String {
        let Self { all, waiting } = self;
        let (p50, p99) = (self.percentile(50), self.percentile(99));
        let count = all.len();
        format!("{count} takeovers before {waiting} tasks: p50 {p50:.1?}, p99 {p99:.1?}, {all:.1?}")
    }

    fn assert_fast(&self) {
        let summary = self.summary();
        assert!(self.all.len() >= 30, "{summary}");
        assert!(self.percentile(50) < Duration::from_secs(60), "{summary}");
        assert!(self.percentile(99) < Duration::from_secs(90), "{summary}");
    }
}

#[tokio::test]
#[ignore = "a measurement of minutes: run by name with --run-ignored all"]
async fn takeovers_with_the_default_lease_begin_within_90_seconds() {
    let recoveries = recoveries_with_the_default_lease(Machines::Many).await;
    println!("{}", recoveries.summary());
    recoveries.assert_fast();
}

#[tokio::test]
#[ignore = "a measurement of minutes: run by name with --run-ignored all"]
async fn takeovers_on_the_same_machine_begin_within_90_seconds() {
    let recoveries = recoveries_with_the_default_lease(Machines::One).await;
    println!("{}", recoveries.summary());
    recoveries.assert_fast();
}

fn comment(rig: &Rig, number: u64) -> String {
    let comments = rig.forge.comments(DEMO, number);
    assert_eq!(comments.len(), 1, "{comments:#?}");
    comments[0].body.clone()
}

/// The only attempt dies between the answer to its POST and the end of its report.
async fn the_last_attempt_dies_at(mut rig: Rig, point: &str) {
    rig.config["consumer"]["max_attempts"] = 1.into();
    let number = rig.produce_issue().await;
    rig.killed_at("consumer", &[point]).await;
    assert_eq!(rig.forge.pulls(DEMO).len(), 1);
    let asked = rig.model.requests().len();
    let consumer = rig.spawn("consumer", &[]);
    let task = rig.wait_ended(1).await.remove(0);
    consumer.terminate();
    let (_, log) = consumer.end().await;
    let done = TaskState::Ended(EndState::Done);
    assert_eq!(task.state, done, "{:?}\n{log}", task.reason);
    assert_eq!(rig.forge.pulls(DEMO).len(), 1);
    let text = comment(&rig, number);
    let opened = format!(
        "with the measured results: {}",
        task.pull_request_url.unwrap()
    );
    assert!(text.contains(&opened), "{opened} is not in {text}");
    assert_eq!(rig.forge.labels(DEMO, number), ["coding agent done"]);
    assert_eq!(rig.model.requests().len(), asked, "it only reports");
}

async fn a_last_attempt_that_dies_after_its_pull_request_opened_is_done(rig: Rig) {
    the_last_attempt_dies_at(rig, "tracker.pull_request_create.after").await;
}

async fn a_last_attempt_that_dies_after_its_comment_was_edited_is_done(rig: Rig) {
    the_last_attempt_dies_at(rig, "tracker.comment_edit.after").await;
}

async fn a_last_attempt_that_dies_before_its_label_is_moved_is_done(rig: Rig) {
    the_last_attempt_dies_at(rig, "tracker.label_add.before").await;
}

async fn an_attempt_that_fails_after_an_earlier_one_opened_the_pull_request_leaves_a_partial_result(
    mut rig: Rig,
) {
    rig.config["consumer"]["max_attempts"] = 2.into();
    let number = rig.produce_issue().await;
    let kill = "tracker.pull_request_create.after";
    rig.killed_at("consumer", &[kill]).await;
    let gone = ForgeFault::on("GET", "/octo/demo.git/info/refs");
    rig.forge.inject(gone.times(usize::MAX).status(404));
    let consumer = rig.spawn("consumer", &[]);
    let tasks = rig.wait_ended(1).await;
    consumer.terminate();
    consumer.end().await;
    let task = &tasks[0];
    assert_eq!(task.state, TaskState::Ended(EndState::Done));
    let missing = task.missing().unwrap_or_default();
    assert!(missing.contains("a later attempt failed"), "{missing}");
    let comment = comment(&rig, number);
    assert!(comment.contains("a partial result"), "{comment}");
    assert!(comment.contains("a later attempt failed"), "{comment}");
    assert_eq!(rig.forge.labels(DEMO, number), ["coding agent done"]);
}

/// The database commits a step, and neither the store's repetitions nor the session learn of it.
#[tokio::test]
async fn a_step_whose_commit_has_an_unknown_outcome_is_recorded_once() {
    let rig = Rig::local(solves_demo()).await;
    issues(&rig, DOOMED, 1).await;
    // More often than the store repeats an operation.
    let lost = (3..40).map(|step| format!("store.append_step.after=unknown*4@{}", 5 * step));
    let failpoints: Vec<String> = lost.collect();
    let failpoints = failpoints.join(",");
    let failing = ("AGENTMINE_FAILPOINTS", failpoints.as_str());
    let log = rig.consume_with(failing).await;
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

/// The store is away while the files after an edit are saved, for longer than it retries by itself; the next call waits for
/// that, and what it finds outlives the worker.
#[tokio::test]
async fn the_files_of_an_edit_are_stored_before_the_next_call_although_the_store_was_away() {
    let rig = Rig::local(solves_demo()).await;
    rig.produce_issue().await;
    rig.model.hold_at(2);
    let away = "store.save_checkpoint.before=unknown*5";
    let victim = rig.spawn_failing("consumer", away);
    rig.model.wait_for_held(1).await;
    victim.kill_nine();
    victim.end().await;
    rig.model.release();
    let next = rig.spawn("consumer", &[]);
    let task = rig.wait_ended(1).await.remove(0);
    next.terminate();
    next.end().await;
    let transcript = rig.transcript(&task).await;
    assert_eq!(
        task.state,
        TaskState::Ended(EndState::Done),
        "{:?}\n{transcript}",
        task.reason
    );
    assert!(!transcript.contains("was not stored"), "{transcript}");
    assert_eq!(rig.forge.pulls(DEMO).len(), 1);
    // It was done once, by the first worker.
    let results = rig.results(&task).await;
    let edits = results
        .iter()
        .filter(|(_, result)| result.name == "text_editor");
    assert_eq!(edits.count(), 1);
}

on_both_forges! { solves_demo() =>
    a_last_attempt_that_dies_after_its_pull_request_opened_is_done,
    a_last_attempt_that_dies_after_its_comment_was_edited_is_done,
    a_last_attempt_that_dies_before_its_label_is_moved_is_done,
    an_attempt_that_fails_after_an_earlier_one_opened_the_pull_request_leaves_a_partial_result,
}

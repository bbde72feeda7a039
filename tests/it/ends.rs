//! How tasks end when what would report or record it is away: the tracker, the database, the last worker.

use std::time::{Duration, Instant};

use agentmine_domain::{EndState, SessionEnd, TaskState};
use agentmine_tests::forge::{DEMO, Fault as ForgeFault, write_demo};
use agentmine_tests::model::{Scenario, commit_and_push, say, shell};
use serde_json::json;

use crate::gate::Gate;
use crate::rig::{REQUEST, Rig, on_both_forges, solves_demo};

const DONE: TaskState = TaskState::Ended(EndState::Done);
const FAILED: TaskState = TaskState::Ended(EndState::Failed);

/// The tracker's API answers nothing but errors until [`Forge::heal`].
fn take_tracker_away(rig: &Rig) {
    let away = ForgeFault::on("*", "/api/v").times(usize::MAX);
    rig.forge.inject(away.status(503));
}

fn comment(rig: &Rig, number: u64) -> String {
    let comments = rig.forge.comments(DEMO, number);
    assert_eq!(comments.len(), 1, "{comments:#?}");
    comments[0].body.clone()
}

/// Waits until the item has this label alone.
async fn wait_for_label(rig: &Rig, number: u64, label: &str) {
    rig.forge
        .wait_until(label, crate::rig::PATIENCE, |forge| {
            forge.labels(DEMO, number) == [label]
        })
        .await;
}

fn git(dir: &std::path::Path, args: &[&str]) {
    let status = std::process::Command::new("git")
        .current_dir(dir)
        .args(["-c", "user.name=t", "-c", "user.email=t@example.org"])
        .args(args)
        .status();
    assert!(status.unwrap().success(), "{args:?}");
}

/// A local folder as a second tracker, with one issue that asks for work. Returns the issue's file.
fn add_local_tracker(rig: &mut Rig) -> std::path::PathBuf {
    let repository = rig.folder.path().join("local");
    let issues = repository.join(".agentmine/issues");
    std::fs::create_dir_all(&issues).unwrap();
    write_demo(&repository);
    git(&repository, &["init", "-q", "-b", "main"]);
    git(&repository, &["add", "."]);
    git(&repository, &["commit", "-q", "-m", "Add a script"]);
    let issue = issues.join("001-other.md");
    std::fs::write(&issue, format!("---\nlabels: [{REQUEST}]\n---\n# Other\n")).unwrap();
    rig.config["trackers"]["local"] = json!({ "repository": repository });
    issue
}

/// Each report on the slow tracker takes longer than the whole test may.
async fn an_unreachable_tracker_with_many_ends_does_not_delay_the_ends_of_another(mut rig: Rig) {
    const MANY: u64 = 12;
    for n in 0..MANY {
        let title = format!("greet.sh greets nobody ({n})");
        rig.forge
            .add_issue(DEMO, &title, "It should greet.", &[REQUEST]);
    }
    rig.produce().await;
    let issue = add_local_tracker(&mut rig);
    rig.produce().await;
    for task in rig.tasks().await {
        assert!(rig.store.request_stop(task.id, "enough").await.unwrap());
    }
    let away = ForgeFault::on("*", "/api/v").times(usize::MAX);
    rig.forge.inject(away.delay(Duration::from_secs(25)));
    let consumer = rig.spawn("consumer", &[]);
    let begun = Instant::now();
    while !std::fs::read_to_string(&issue)
        .unwrap()
        .contains("coding agent stopped")
    {
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "it waits:\n{}",
            consumer.log()
        );
        // A change of a file by another process.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    consumer.kill_nine();
}

/// Three ends that the tracker never takes are more than a sweep tries in a row.
async fn ends_that_fail_for_ever_do_not_keep_the_others_from_being_reported(mut rig: Rig) {
    const MANY: u64 = 9;
    rig.config["consumer"]["sweep_seconds"] = 1.into();
    let numbers: Vec<u64> = (0..MANY).map(|_| rig.label_issue()).collect();
    rig.produce().await;
    for task in rig.tasks().await {
        assert!(rig.store.request_stop(task.id, "enough").await.unwrap());
    }
    let (never, others) = numbers.split_at(3);
    for number in never {
        let item = ForgeFault::on("*", &format!("/issues/{number}"));
        rig.forge.inject(item.times(usize::MAX).status(503));
    }
    let consumer = rig.spawn("consumer", &[]);
    let stopped = ["coding agent stopped"];
    rig.forge
        .wait_until("all others are reported", crate::rig::PATIENCE, |forge| {
            others.iter().all(|n| forge.labels(DEMO, *n) == stopped)
        })
        .await;
    consumer.kill_nine();
}

/// An operator replaces the token, and what was not reported meanwhile is reported then.
async fn an_end_that_the_tracker_refused_for_an_expired_token_is_reported_with_the_next(
    mut rig: Rig,
) {
    rig.config["consumer"]["sweep_seconds"] = 1.into();
    let number = rig.produce_issue().await;
    let task = rig.task().await;
    assert!(rig.store.request_stop(task.id, "enough").await.unwrap());
    let expired = ForgeFault::on("*", "/issues/");
    rig.forge.inject(expired.times(usize::MAX).status(401));
    let consumer = rig.spawn("consumer", &[]);
    consumer.wait_for("was not reported").await;
    rig.forge.heal();
    wait_for_label(&rig, number, "coding agent stopped").await;
    let text = comment(&rig, number);
    assert!(text.contains("enough"), "{text}");
    consumer.kill_nine();
}

/// The only worker dies while nobody has recorded whether its pull request was opened, and then the tracker is away
/// for longer than any outage may last.
async fn failed_while_unsure(rig: &mut Rig, point: &str, next: &str) -> (crate::rig::Process, u64) {
    rig.config["consumer"]["max_attempts"] = 1.into();
    rig.config["consumer"]["outage_seconds"] = 2.into();
    let number = rig.produce_issue().await;
    rig.killed_at("consumer", &[point]).await;
    take_tracker_away(rig);
    let consumer = rig.spawn_failing("consumer", next);
    let tasks = rig.wait_ended(1).await;
    assert_eq!(tasks[0].state, FAILED, "{}", consumer.log());
    let reason = tasks[0].reason.clone().unwrap_or_default();
    for part in [
        "outage_seconds",
        "It is unknown whether",
        &tasks[0].branch(),
    ] {
        assert!(reason.contains(part), "{part}: {reason}");
    }
    rig.forge.heal();
    (consumer, number)
}

async fn a_task_that_failed_while_its_pull_request_was_unsure_is_done_once_it_is_found(
    mut rig: Rig,
) {
    let created = "tracker.pull_request_create.after";
    // Two workers die around the correction of the row.
    let before = "store.found_result.before=kill";
    let (consumer, number) = failed_while_unsure(&mut rig, created, before).await;
    assert!(!consumer.end().await.0.success());
    assert_eq!(rig.task().await.state, FAILED);
    rig.killed_at("consumer", &["store.found_result.after"])
        .await;
    assert_eq!(rig.task().await.state, DONE);
    let consumer = rig.spawn("consumer", &[]);
    wait_for_label(&rig, number, "coding agent done").await;
    consumer.terminate();
    assert!(consumer.end().await.0.success());
    let task = rig.task().await;
    let pulls = rig.forge.pulls(DEMO);
    assert_eq!((task.state, pulls.len()), (DONE, 1));
    let url = task.pull_request_url.unwrap();
    let shown = rig.shown(pulls[0].number);
    assert!(url.ends_with(&format!("/{shown}")), "{url}");
    let comment = comment(&rig, number);
    assert!(comment.contains(&url), "{comment}");
}

async fn a_task_that_failed_while_its_pull_request_was_unsure_says_that_there_is_none(
    mut rig: Rig,
) {
    let created = "tracker.pull_request_create.before";
    let (consumer, number) = failed_while_unsure(&mut rig, created, "").await;
    wait_for_label(&rig, number, "coding agent failed").await;
    consumer.terminate();
    assert!(consumer.end().await.0.success());
    assert_eq!(rig.task().await.state, FAILED);
    let comment = comment(&rig, number);
    let looked = "The tracker is reachable again: there is no";
    assert!(comment.contains(looked), "{comment}");
}

fn leaves_the_check_red() -> Scenario {
    Scenario::new("leaves the check red").replies([
        shell("echo more >> README.md"),
        commit_and_push("Say more"),
        say("Done."),
    ])
}

/// The check fails, so the result is partial; the worker dies before it has recorded the answer to its POST.
async fn a_partial_result_is_reported_as_one_if_its_worker_dies_after_the_post(mut rig: Rig) {
    rig.config["consumer"]["max_attempts"] = 1.into();
    rig.config["agent"]["max_rounds"] = 1.into();
    let number = rig.produce_issue().await;
    let created = "tracker.pull_request_create.after";
    rig.killed_at("consumer", &[created]).await;
    let consumer = rig.spawn("consumer", &[]);
    let tasks = rig.wait_ended(1).await;
    consumer.terminate();
    consumer.end().await;
    assert_eq!(tasks[0].state, DONE);
    let missing = tasks[0].missing().unwrap_or_default();
    assert!(missing.contains("sh test.sh"), "{missing:?}");
    let comment = comment(&rig, number);
    assert!(comment.contains("a partial result"), "{comment}");
}

/// The only attempt at a pull request dies after its push. Returns the comment.
async fn last_worker_of_a_pull_request_dies_at(mut rig: Rig, point: &str) -> String {
    rig.config["consumer"]["max_attempts"] = 1.into();
    let number = rig.produce_pull_request().await;
    rig.killed_at("consumer", &[point]).await;
    let asked = rig.model.requests().len();
    let consumer = rig.spawn("consumer", &[]);
    let tasks = rig.wait_ended(1).await;
    consumer.terminate();
    let (_, log) = consumer.end().await;
    assert_eq!(tasks[0].state, DONE, "{:?}\n{log}", tasks[0].reason);
    assert_eq!(rig.forge.pulls(DEMO).len(), 1);
    assert_eq!(rig.forge.labels(DEMO, number), ["coding agent done"]);
    assert_eq!(rig.model.requests().len(), asked, "it only reports");
    let comment = comment(&rig, number);
    assert!(comment.contains("pushed its work"), "{comment}");
    comment
}

const EVIDENCE: &str = "Measured on the pushed commit";

async fn a_pull_request_whose_last_worker_dies_before_its_comment_is_edited_is_done(rig: Rig) {
    let edit = "tracker.comment_edit.before";
    let comment = last_worker_of_a_pull_request_dies_at(rig, edit).await;
    assert!(!comment.contains(EVIDENCE), "{comment}");
}

async fn a_pull_request_whose_last_worker_dies_before_its_label_is_moved_is_done(rig: Rig) {
    let label = "tracker.label_add.before";
    let comment = last_worker_of_a_pull_request_dies_at(rig, label).await;
    assert!(comment.contains(EVIDENCE), "{comment}");
}

/// The pull request is open and recorded; then the tracker is away for longer than any outage may last.
async fn a_task_whose_pull_request_is_open_is_done_although_its_tracker_stays_away(mut rig: Rig) {
    rig.config["consumer"]["outage_seconds"] = 1.into();
    let number = rig.produce_issue().await;
    rig.killed_at("consumer", &["tracker.comment_edit.before"])
        .await;
    take_tracker_away(&rig);
    let consumer = rig.spawn("consumer", &[]);
    let tasks = rig.wait_ended(1).await;
    assert_eq!(tasks[0].state, DONE, "{:?}", tasks[0].reason);
    assert!(tasks[0].pull_request_url.is_some());
    rig.forge.heal();
    wait_for_label(&rig, number, "coding agent done").await;
    consumer.terminate();
    assert!(consumer.end().await.0.success());
    assert!(comment(&rig, number).contains("outage_seconds"));
}

/// As above, and the consumer has to end meanwhile.
async fn a_drain_while_the_tracker_is_away_after_the_pull_request_opened_loses_nothing(
    mut rig: Rig,
) {
    rig.config["consumer"]["drain_seconds"] = 2.into();
    let number = rig.produce_issue().await;
    let consumer = rig.spawn_failing("consumer", "tracker.comment_edit.before=stop");
    consumer.stopped().await;
    assert_eq!(rig.forge.pulls(DEMO).len(), 1);
    take_tracker_away(&rig);
    consumer.terminate();
    consumer.go_on();
    let (status, log) = consumer.end().await;
    assert!(status.success(), "{status}\n{log}");
    rig.forge.heal();
    rig.config["consumer"]["drain_seconds"] = 60.into();
    let successor = rig.spawn("consumer", &[]);
    wait_for_label(&rig, number, "coding agent done").await;
    successor.terminate();
    assert!(successor.end().await.0.success());
    let task = rig.task().await;
    assert_eq!((task.state, task.attempt), (DONE, 1), "{log}");
    assert_eq!(rig.forge.pulls(DEMO).len(), 1);
    let (text, url) = (comment(&rig, number), task.pull_request_url.unwrap());
    assert!(text.contains(&url), "{url} is not in {text}");
}

/// The database is away for two seconds just as the session of a paused task closes its lease.
#[tokio::test]
async fn a_short_failure_of_the_store_at_the_end_of_a_paused_session_costs_no_attempt() {
    let mut rig = Rig::local(solves_demo()).await;
    rig.config["consumer"]["max_attempts"] = 1.into();
    let store = Gate::of_url(&mut rig.config["store"]["url"]).await;
    rig.produce_issue().await;
    rig.model.hold_at(2);
    let consumer = rig.spawn_failing("consumer", "store.end_lease.before=stop");
    rig.model.wait_for_held(1).await;
    let task = rig.task().await.id;
    assert!(rig.store.request_pause(task, "lunch").await.unwrap());
    consumer.stopped().await;
    store.take_away();
    consumer.go_on();
    // The outage itself is a length of time.
    tokio::time::sleep(Duration::from_secs(2)).await;
    store.give_back();
    let paused = |tasks: &[agentmine_domain::Task]| tasks[0].state == TaskState::Paused;
    rig.wait("the pause", paused).await;
    let sessions = rig.sessions().await;
    assert_eq!(
        sessions[0].end,
        Some(SessionEnd::Paused),
        "{}",
        consumer.log()
    );
    assert_eq!(rig.task().await.attempt, 0);
    assert!(rig.store.resume(task).await.unwrap());
    rig.model.release();
    let tasks = rig.wait_ended(1).await;
    consumer.terminate();
    let (_, log) = consumer.end().await;
    assert_eq!((tasks[0].state, tasks[0].attempt), (DONE, 1), "{log}");
}

on_both_forges! { solves_demo() =>
    ends_that_fail_for_ever_do_not_keep_the_others_from_being_reported,
    an_unreachable_tracker_with_many_ends_does_not_delay_the_ends_of_another,
    an_end_that_the_tracker_refused_for_an_expired_token_is_reported_with_the_next,
    a_task_that_failed_while_its_pull_request_was_unsure_is_done_once_it_is_found,
    a_task_that_failed_while_its_pull_request_was_unsure_says_that_there_is_none,
    a_pull_request_whose_last_worker_dies_before_its_comment_is_edited_is_done,
    a_pull_request_whose_last_worker_dies_before_its_label_is_moved_is_done,
    a_task_whose_pull_request_is_open_is_done_although_its_tracker_stays_away,
    a_drain_while_the_tracker_is_away_after_the_pull_request_opened_loses_nothing,
}

on_both_forges! { leaves_the_check_red() =>
    a_partial_result_is_reported_as_one_if_its_worker_dies_after_the_post,
}

//! Why no further round is made on a pull request of AgentMine, on both forges: each reason is counted and reported once.

use agentmine_domain::{EndState, TaskState};
use agentmine_tests::forge::{DEMO, HUMAN, PullView};
use agentmine_tests::model::{Scenario, Script, commit_and_push, say, shell};

use crate::dashboard_issue::rewritten;
use crate::rig::{PATIENCE, REQUEST, Rig, assert_done, solves_demo};
use crate::round_branches::push_of_a_person;
use crate::rounds::{counted, head, opened, rounds, script};

/// The pull request of a task that is done, on GitHub.
async fn github(script: Script) -> (Rig, PullView) {
    opened(Rig::local(script).await).await
}

/// The same on GitLab.
async fn gitlab(script: Script) -> (Rig, PullView) {
    opened(Rig::local_gitlab(script).await).await
}

/// What was written on the pull request about the end of the rounds.
fn reported_ends(rig: &Rig, pull: &PullView) -> Vec<String> {
    let comments = rig.forge.comments(DEMO, pull.number).into_iter();
    let texts = comments.map(|it| it.body);
    texts.filter(|it| it.contains("no further work")).collect()
}

/// Rounds ended for this reason, which is counted, and reported once with these words; a further request begins none.
async fn ended(rig: &mut Rig, pull: &PullView, reason: &str, words: &[&str]) {
    counted(rig, "ended", reason).await;
    let begun = rounds(rig).await.len();
    rig.forge
        .add_review(DEMO, pull.number, "CHANGES_REQUESTED", "Once more.");
    rig.produce().await;
    rig.produce().await;
    assert_eq!(rounds(rig).await.len(), begun);
    let reported = reported_ends(rig, pull);
    assert_eq!(reported.len(), 1, "{reported:#?}");
    assert_eq!(
        reported[0].matches("no further work").count(),
        1,
        "{}",
        reported[0]
    );
    for part in words {
        assert!(
            reported[0].contains(part),
            "{part} is not in {}",
            reported[0]
        );
    }
}

/// An agent that answers a red check with words alone.
fn only_talks() -> Script {
    Script::new()
        .scenario(
            Scenario::new("talks")
                .when("this is round 1 on it")
                .replies([say("It works on my machine."), say("It does.")]),
        )
        .scenario(solves_demo())
}

async fn a_failed_round_ends_them((mut rig, pull): (Rig, PullView)) {
    rig.config["consumer"]["max_attempts"] = 1.into();
    let head = head(&rig, &pull);
    rig.forge
        .add_job(DEMO, &head, "test", "failure", "expected Hello");
    rig.produce().await;
    rig.consume().await;
    let round = rounds(&rig).await.remove(0);
    assert_eq!(
        round.state,
        TaskState::Ended(EndState::Failed),
        "{round:#?}"
    );
    ended(&mut rig, &pull, "failed", &["round 1 failed"]).await;
}

#[tokio::test]
async fn a_round_that_failed_ends_the_rounds_on_github() {
    a_failed_round_ends_them(github(only_talks()).await).await;
}

#[tokio::test]
async fn a_round_that_failed_ends_the_rounds_on_gitlab() {
    a_failed_round_ends_them(gitlab(only_talks()).await).await;
}

/// The operator stops the task of a round while it is at work.
async fn a_stopped_round_ends_them((mut rig, pull): (Rig, PullView)) {
    rig.forge
        .add_review(DEMO, pull.number, "CHANGES_REQUESTED", "Please.");
    rig.produce().await;
    rig.model.hold_at(1);
    let consumer = rig.spawn("consumer", &[]);
    rig.model.wait_for_held(1).await;
    let round = rounds(&rig).await.remove(0);
    rig.store
        .request_stop(round.id, "the operator stopped it")
        .await
        .unwrap();
    rig.wait_ended(2).await;
    rig.model.release();
    consumer.terminate();
    consumer.end().await;
    ended(
        &mut rig,
        &pull,
        "stopped",
        &["round 1 was stopped", "the operator stopped it"],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_round_that_was_stopped_ends_the_rounds_on_github() {
    a_stopped_round_ends_them(github(script()).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_round_that_was_stopped_ends_the_rounds_on_gitlab() {
    a_stopped_round_ends_them(gitlab(script()).await).await;
}

/// A person removes the branch while a round works on it, and leaves the pull request open where the forge does.
async fn a_removed_branch_ends_them((mut rig, pull): (Rig, PullView)) {
    rig.forge
        .add_review(DEMO, pull.number, "CHANGES_REQUESTED", "Please.");
    rig.produce().await;
    rig.model.hold_at(1);
    let consumer = rig.spawn("consumer", &[]);
    rig.model.wait_for_held(1).await;
    rig.forge.remove_branch(DEMO, &pull.head);
    rig.model.release();
    rig.wait_ended(2).await;
    consumer.terminate();
    consumer.end().await;
    let round = rounds(&rig).await.remove(0);
    assert_eq!(
        round.state,
        TaskState::Ended(EndState::Stopped),
        "{round:#?}"
    );
    ended(&mut rig, &pull, "stopped", &["round 1 was stopped"]).await;
    assert_eq!(rig.forge.branch_sha(DEMO, &pull.head), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_that_a_person_removed_during_a_round_ends_the_rounds_on_gitlab() {
    a_removed_branch_ends_them(gitlab(script()).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_that_a_person_removed_during_a_round_ends_the_rounds_on_github() {
    a_removed_branch_ends_them(github(script()).await).await;
}

/// An agent that works on something else than the conflict.
fn leaves_the_conflict() -> Script {
    let changes = [
        shell("echo more >> more.txt"),
        commit_and_push("Add more"),
        say("I solved it."),
    ];
    Script::new()
        .scenario(
            Scenario::new("leaves it")
                .when("conflicts with this branch")
                .replies(changes),
        )
        .scenario(solves_demo())
}

async fn the_same_conflict_ends_them((mut rig, pull): (Rig, PullView)) {
    let conflicts = |rig: &Rig, name: &str| {
        let line = format!("name=\"{name}\"");
        rig.forge.commit(DEMO, "main", "main", |dir| {
            let text = std::fs::read_to_string(dir.join("greet.sh")).unwrap();
            let text: String = text
                .lines()
                .map(|it| match it.starts_with("name=") {
                    true => format!("{line}\n"),
                    false => format!("{it}\n"),
                })
                .collect();
            std::fs::write(dir.join("greet.sh"), text).unwrap();
        });
    };
    conflicts(&rig, "you");
    rig.produce().await;
    rig.consume().await;
    let tasks = rounds(&rig).await;
    assert_eq!(tasks.len(), 1, "{tasks:#?}");
    assert_done(&tasks[0]);

    // The target branch moved again, so this is another conflict.
    conflicts(&rig, "them");
    rig.produce().await;
    rig.consume().await;
    let tasks = rounds(&rig).await;
    assert_eq!(tasks.len(), 2, "{tasks:#?}");
    assert_done(&tasks[1]);
    ended(
        &mut rig,
        &pull,
        "same_conflict",
        &["round 2 did not resolve the conflict"],
    )
    .await;
}

#[tokio::test]
async fn a_conflict_that_a_round_left_ends_the_rounds_on_github() {
    the_same_conflict_ends_them(github(leaves_the_conflict()).await).await;
}

#[tokio::test]
async fn a_conflict_that_a_round_left_ends_the_rounds_on_gitlab() {
    the_same_conflict_ends_them(gitlab(leaves_the_conflict()).await).await;
}

/// The pull request itself is deleted: there is no place to report it.
async fn a_deleted_pull_request_ends_them((mut rig, pull): (Rig, PullView)) {
    rig.forge.delete_issue(DEMO, pull.number);
    counted(&mut rig, "ended", "gone").await;
    rig.produce().await;
    assert!(rounds(&rig).await.is_empty());
    assert!(rig.forge.branch_sha(DEMO, &pull.head).is_some());
}

#[tokio::test]
async fn a_pull_request_that_is_gone_ends_the_rounds_on_github() {
    a_deleted_pull_request_ends_them(github(script()).await).await;
}

#[tokio::test]
async fn a_merge_request_that_is_gone_ends_the_rounds_on_gitlab() {
    a_deleted_pull_request_ends_them(gitlab(script()).await).await;
}

/// A project that is not shown for a while is not gone.
async fn a_hidden_repository_ends_nothing((rig, pull): (Rig, PullView)) {
    rig.forge.hide(DEMO, true);
    let producer = rig.spawn("producer", &["--once"]);
    producer.end().await;
    rig.forge.hide(DEMO, false);
    rig.forge
        .add_review(DEMO, pull.number, "CHANGES_REQUESTED", "Please.");
    rig.produce().await;
    assert_eq!(rounds(&rig).await.len(), 1);
    assert!(reported_ends(&rig, &pull).is_empty());
}

#[tokio::test]
async fn a_repository_that_was_hidden_for_a_while_still_has_rounds_on_github() {
    a_hidden_repository_ends_nothing(github(script()).await).await;
}

#[tokio::test]
async fn a_project_that_was_hidden_for_a_while_still_has_rounds_on_gitlab() {
    a_hidden_repository_ends_nothing(gitlab(script()).await).await;
}

/// A person pushes while a round works that changes nothing: the branch is theirs now.
async fn a_push_during_a_round_ends_them((mut rig, pull): (Rig, PullView)) {
    rig.config["rounds"]["remove_branch"] = "closed".into();
    rig.forge
        .add_review(DEMO, pull.number, "CHANGES_REQUESTED", "Why?");
    rig.produce().await;
    rig.model.hold_at(1);
    let consumer = rig.spawn("consumer", &[]);
    rig.model.wait_for_held(1).await;
    push_of_a_person(&rig, &pull);
    let theirs = head(&rig, &pull);
    rig.model.release();
    rig.wait_ended(2).await;
    consumer.terminate();
    consumer.end().await;
    let round = rounds(&rig).await.remove(0);
    assert_done(&round);
    let comments = rig.forge.comments(DEMO, pull.number);
    let reported = comments
        .iter()
        .any(|it| it.body.contains("changed nothing"));
    assert!(
        reported,
        "their push is not the work of the round: {comments:#?}"
    );
    ended(&mut rig, &pull, "pushed", &["somebody else pushed"]).await;
    rig.forge.close(DEMO, pull.number);
    rig.produce().await;
    assert_eq!(head(&rig, &pull), theirs);
}

/// An agent that answers.
fn answers() -> Script {
    Script::new()
        .scenario(
            Scenario::new("answers")
                .when("this is round 1 on it")
                .replies([shell("ls"), say("It is as it has to be.")]),
        )
        .scenario(solves_demo())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_of_a_person_during_a_round_that_changes_nothing_ends_the_rounds_on_github() {
    a_push_during_a_round_ends_them(github(answers()).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_of_a_person_during_a_round_that_changes_nothing_ends_the_rounds_on_gitlab() {
    a_push_during_a_round_ends_them(gitlab(answers()).await).await;
}

/// After a round that changed nothing.
async fn a_push_after_a_round_ends_them((mut rig, pull): (Rig, PullView)) {
    rig.forge
        .add_review(DEMO, pull.number, "CHANGES_REQUESTED", "Why?");
    rig.produce().await;
    rig.consume().await;
    assert_done(&rounds(&rig).await[0]);
    push_of_a_person(&rig, &pull);
    ended(&mut rig, &pull, "pushed", &["somebody else pushed"]).await;
}

#[tokio::test]
async fn a_push_of_a_person_after_a_round_that_changed_nothing_ends_the_rounds_on_github() {
    a_push_after_a_round_ends_them(github(answers()).await).await;
}

#[tokio::test]
async fn a_push_of_a_person_after_a_round_that_changed_nothing_ends_the_rounds_on_gitlab() {
    a_push_after_a_round_ends_them(gitlab(answers()).await).await;
}

/// After a task that was requested by label and left no result.
async fn a_push_after_labelled_work_ends_them((mut rig, pull): (Rig, PullView)) {
    rig.forge.add_label(DEMO, pull.number, REQUEST);
    rig.produce().await;
    let task = rounds(&rig).await.remove(0);
    assert_eq!(task.round(), None);
    let stopped = rig.store.request_stop(task.id, "the operator stopped it");
    stopped.await.unwrap();
    push_of_a_person(&rig, &pull);
    rig.forge
        .add_review(DEMO, pull.number, "CHANGES_REQUESTED", "Please.");
    let words = ["ended without a result", "of somebody else"];
    ended(&mut rig, &pull, "pushed", &words).await;
}

#[tokio::test]
async fn a_push_of_a_person_after_labelled_work_without_a_result_ends_the_rounds_on_github() {
    a_push_after_labelled_work_ends_them(github(script()).await).await;
}

#[tokio::test]
async fn a_push_of_a_person_after_labelled_work_without_a_result_ends_the_rounds_on_gitlab() {
    a_push_after_labelled_work_ends_them(gitlab(script()).await).await;
}

/// How a person stops the work on a pull request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stops {
    ByCommand,
    ByTick,
}

/// A person stops a task at work on the pull request, which is a round or was requested by label: no further round begins.
async fn a_person_stops_them((mut rig, pull): (Rig, PullView), work: &str, how: Stops) {
    for forge in ["github", "gitlab"] {
        if rig.config["trackers"][forge].is_object() {
            rig.config["trackers"][forge]["dashboard_issue"] = true.into();
        }
    }
    match work {
        "round" => {
            let number = pull.number;
            rig.forge
                .add_review(DEMO, number, "CHANGES_REQUESTED", "Please.");
        }
        _ => rig.forge.add_label(DEMO, pull.number, REQUEST),
    }
    rig.produce().await;
    rig.model.hold_at(1);
    let consumer = rig.spawn("consumer", &[]);
    rig.model.wait_for_held(1).await;
    let reason = match how {
        Stops::ByCommand => {
            rig.forge.say(DEMO, pull.number, HUMAN, "/agentmine stop");
            "wrote `/agentmine stop`"
        }
        Stops::ByTick => {
            let shown = rewritten(&rig).await;
            rig.forge.let_a_second_pass(DEMO, shown.number);
            let mark = "agentmine:box stop task 2 ";
            assert!(rig.forge.tick(DEMO, shown.number, mark, HUMAN), "{shown:?}");
            "ticked a box on the dashboard"
        }
    };
    counted(&mut rig, "ended", "stopped").await;
    let task = rig.wait_ended(2).await.remove(0);
    assert_eq!(task.state, TaskState::Ended(EndState::Stopped), "{task:#?}");
    rig.model.release();
    let stopped = ["coding agent stopped".to_owned()];
    rig.forge
        .wait_until("the label says so", PATIENCE, |forge| {
            forge.labels(DEMO, pull.number) == stopped
        })
        .await;
    consumer.terminate();
    consumer.end().await;
    let begun = rounds(&rig).await.len();
    rig.forge
        .add_review(DEMO, pull.number, "CHANGES_REQUESTED", "Once more.");
    rig.produce().await;
    rig.produce().await;
    assert_eq!(rounds(&rig).await.len(), begun);
    let reported = reported_ends(&rig, &pull);
    assert_eq!(reported.len(), 1, "{reported:#?}");
    assert_eq!(
        reported[0].matches("no further work").count(),
        1,
        "{}",
        reported[0]
    );
    assert!(reported[0].contains(reason), "{}", reported[0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tick_that_stops_a_round_ends_the_rounds_on_github() {
    a_person_stops_them(github(script()).await, "round", Stops::ByTick).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tick_that_stops_a_round_ends_the_rounds_on_gitlab() {
    a_person_stops_them(gitlab(script()).await, "round", Stops::ByTick).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tick_that_stops_labelled_work_on_a_pull_request_ends_the_rounds_on_github() {
    a_person_stops_them(github(script()).await, "label", Stops::ByTick).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tick_that_stops_labelled_work_on_a_merge_request_ends_the_rounds_on_gitlab() {
    a_person_stops_them(gitlab(script()).await, "label", Stops::ByTick).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_stops_a_round_ends_the_rounds_on_github() {
    a_person_stops_them(github(script()).await, "round", Stops::ByCommand).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_stops_a_round_ends_the_rounds_on_gitlab() {
    a_person_stops_them(gitlab(script()).await, "round", Stops::ByCommand).await;
}

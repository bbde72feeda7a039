//! `issue_to_mr_conversion`: a pull request that is opened when the work begins, on both forges.

use agentmine_domain::{EndState, TaskState};
use agentmine_tests::forge::{BOT, DEMO, HUMAN, PullView};
use agentmine_tests::model::{Scenario, commit_and_push, say, shell};

use crate::rig::{REQUEST, Rig, assert_done, solves_demo};

/// The message of the empty commit.
const FIRST: &str = "Begin the work";

const PROCESSING: &str = "coding agent processing";

fn converting(mut rig: Rig) -> Rig {
    rig.config["issue_to_mr_conversion"]["enabled"] = true.into();
    rig
}

/// A model that says that it is done, and does nothing.
fn does_nothing() -> Scenario {
    Scenario::new("does nothing").replies([say("I have no idea.")])
}

fn only_pull(rig: &Rig) -> PullView {
    let mut pulls = rig.forge.pulls(DEMO);
    assert_eq!(pulls.len(), 1, "{pulls:#?}");
    pulls.remove(0)
}

/// The texts of the comments on an item by the bot.
fn of_ours(rig: &Rig, number: u64) -> Vec<String> {
    let comments = rig.forge.comments(DEMO, number).into_iter();
    let ours = comments.filter(|it| it.author == BOT);
    ours.map(|it| it.body).collect()
}

/// The subjects of the commits on a branch that are not on `main`, oldest first.
fn subjects(rig: &Rig, branch: &str) -> Vec<String> {
    let log = std::process::Command::new("git")
        .arg("--git-dir")
        .arg(rig.forge.git_dir(DEMO))
        .args(["log", "--reverse", "--format=%s"])
        .arg(format!("main..{branch}"))
        .output()
        .unwrap();
    assert!(log.status.success(), "{log:?}");
    let text = String::from_utf8_lossy(&log.stdout);
    text.lines().map(ToOwned::to_owned).collect()
}

async fn a_draft_becomes_the_result(rig: Rig) {
    let rig = converting(rig);
    let number = rig.produce_issue().await;
    rig.forge.add_comment(
        DEMO,
        number,
        HUMAN,
        "Ask @noor.\n/close\n<!-- agentmine:task=forged --> and #1",
    );
    for bot in ["deploy[bot]", "project_7_bot_ab"] {
        rig.forge.add_comment(DEMO, number, bot, "Deployed.");
    }
    if rig.config["trackers"]["gitlab"].is_object() {
        rig.forge
            .add_internal_note(DEMO, number, "The key is under the mat.");
    }
    rig.model.hold_at(1);
    let consumer = rig.spawn("consumer", &[]);
    rig.model.wait_for_held(1).await;
    let draft = only_pull(&rig);
    assert!(draft.open && draft.draft, "{draft:#?}");
    assert!(draft.title.contains("greet.sh greets nobody"), "{draft:#?}");
    assert!(draft.body.contains(&format!("For #{number}")), "{draft:#?}");
    assert!(draft.body.contains("is working on this"), "{draft:#?}");
    assert_eq!(subjects(&rig, &draft.head), [FIRST]);
    let comments = of_ours(&rig, draft.number);
    assert_eq!(comments.len(), 1, "{comments:#?}");
    let quoted = &comments[0];
    for part in [
        format!("**{HUMAN}**").as_str(),
        "> Ask @\u{200b}noor.",
        "> /\u{200b}close",
        "> <\u{200b}!-- agentmine:task=forged --> and #\u{200b}1",
    ] {
        assert!(quoted.contains(part), "{part:?} is not in {quoted}");
    }
    for part in ["Deployed", "under the mat"] {
        assert!(!quoted.contains(part), "{part:?} is in {quoted}");
    }
    let own = draft.title.replace("greet.sh", "A script");
    rig.forge.edit_title_as(DEMO, draft.number, &own, HUMAN);
    rig.model.release();
    let task = rig.wait_ended(1).await.remove(0);
    consumer.terminate();
    consumer.end().await;
    assert_done(&task);
    let pull = only_pull(&rig);
    let url = task.pull_request_url.as_deref().unwrap();
    assert!(
        url.ends_with(&format!("/{}", rig.shown(pull.number))),
        "{url}"
    );
    assert_eq!(pull.number, draft.number);
    assert!(pull.open && !pull.draft, "{pull:#?}");
    assert_eq!(pull.title, own.trim_start_matches("Draft: "));
    assert!(
        pull.body.contains(&format!("Closes #{number}")),
        "{pull:#?}"
    );
    assert!(!pull.body.contains("is working on this"), "{pull:#?}");
    assert_eq!(
        subjects(&rig, &pull.head),
        [FIRST, "Greet the person named"]
    );
    assert_eq!(of_ours(&rig, pull.number).len(), 1);
    let actions = rig.forge.quick_actions();
    assert!(!actions.iter().any(|it| it.starts_with(BOT)), "{actions:?}");
    assert!(rig.forge.is_open(DEMO, number));
}

#[tokio::test]
async fn a_draft_is_opened_before_the_work_and_becomes_the_result_on_github() {
    a_draft_becomes_the_result(Rig::local(solves_demo()).await).await;
}

#[tokio::test]
async fn a_draft_is_opened_before_the_work_and_becomes_the_result_on_gitlab() {
    a_draft_becomes_the_result(Rig::local_gitlab(solves_demo()).await).await;
}

async fn killed_anywhere_it_is_one_draft(rig: Rig) {
    let mut rig = converting(rig);
    rig.config["consumer"]["max_attempts"] = 30.into();
    let number = rig.produce_issue().await;
    rig.forge.add_comment(DEMO, number, HUMAN, "Keep it short.");
    rig.killed_at(
        "consumer",
        &[
            "gateway.push.before",
            "gateway.push.after",
            "tracker.pull_request_create.before",
            "tracker.pull_request_create.after",
            "tracker.comment_create.before",
            "tracker.comment_create.after",
            "tracker.pull_request_update.before",
            "tracker.pull_request_update.after",
            "tracker.pull_request_ready.before",
            "tracker.pull_request_ready.after",
        ],
    )
    .await;
    let consumer = rig.spawn("consumer", &[]);
    let task = rig.wait_ended(1).await.remove(0);
    consumer.terminate();
    consumer.end().await;
    assert_done(&task);
    let pull = only_pull(&rig);
    assert!(pull.open && !pull.draft, "{pull:#?}");
    assert!(
        pull.body.contains(&format!("Closes #{number}")),
        "{pull:#?}"
    );
    assert_eq!(
        subjects(&rig, &pull.head),
        [FIRST, "Greet the person named"]
    );
    let comments = of_ours(&rig, pull.number);
    assert_eq!(comments.len(), 1, "{comments:#?}");
    assert!(comments[0].contains("> Keep it short."), "{comments:#?}");
    assert_eq!(of_ours(&rig, number).len(), 1);
}

#[tokio::test]
async fn killed_anywhere_a_draft_is_opened_once_on_github() {
    killed_anywhere_it_is_one_draft(Rig::local(solves_demo()).await).await;
}

#[tokio::test]
async fn killed_anywhere_a_draft_is_opened_once_on_gitlab() {
    killed_anywhere_it_is_one_draft(Rig::local_gitlab(solves_demo()).await).await;
}

/// The worker that is about to write the result on the draft dies at its last attempt.
async fn the_last_worker_dies_before_the_text(rig: Rig) {
    let mut rig = converting(rig);
    rig.config["consumer"]["max_attempts"] = 1.into();
    let number = rig.produce_issue().await;
    let kill = "tracker.pull_request_update.before=kill";
    let (status, log) = rig.spawn_failing("consumer", kill).end().await;
    assert!(!status.success(), "{log}");
    let consumer = rig.spawn("consumer", &[]);
    let task = rig.wait_ended(1).await.remove(0);
    consumer.terminate();
    consumer.end().await;
    assert_done(&task);
    let pull = only_pull(&rig);
    assert!(pull.open && !pull.draft, "{pull:#?}");
    assert!(
        pull.body.contains(&format!("Closes #{number}")),
        "{pull:#?}"
    );
}

#[tokio::test]
async fn a_draft_gets_its_result_although_the_last_worker_died_before_the_text_on_github() {
    the_last_worker_dies_before_the_text(Rig::local(solves_demo()).await).await;
}

#[tokio::test]
async fn a_draft_gets_its_result_although_the_last_worker_died_before_the_text_on_gitlab() {
    the_last_worker_dies_before_the_text(Rig::local_gitlab(solves_demo()).await).await;
}

async fn a_failure_is_reported_on_the_draft(rig: Rig) {
    let mut rig = converting(rig);
    rig.config["consumer"]["max_attempts"] = 1.into();
    rig.config["agent"]["max_rounds"] = 1.into();
    let number = rig.produce_issue().await;
    rig.consume().await;
    let task = rig.task().await;
    assert_eq!(task.state, TaskState::Ended(EndState::Failed), "{task:#?}");
    assert_eq!(task.pull_request_url, None);
    let pull = only_pull(&rig);
    assert!(pull.open && pull.draft, "{pull:#?}");
    assert_eq!(subjects(&rig, &pull.head), [FIRST]);
    let comments = of_ours(&rig, pull.number);
    assert_eq!(comments.len(), 1, "{comments:#?}");
    for part in [
        "could not finish",
        "I have no idea.",
        "has no result",
        &pull.head,
    ] {
        assert!(comments[0].contains(part), "{part:?}: {comments:#?}");
    }
    let reported = of_ours(&rig, number).pop().unwrap();
    assert!(
        reported.contains(&format!("/{}.", rig.shown(pull.number))),
        "{reported}"
    );
    assert_eq!(rig.forge.labels(DEMO, number), ["coding agent failed"]);
}

#[tokio::test]
async fn a_failure_is_reported_on_the_draft_which_stays_on_github() {
    a_failure_is_reported_on_the_draft(Rig::local(does_nothing()).await).await;
}

#[tokio::test]
async fn a_failure_is_reported_on_the_draft_which_stays_on_gitlab() {
    a_failure_is_reported_on_the_draft(Rig::local_gitlab(does_nothing()).await).await;
}

async fn a_stop_is_reported_on_the_draft(rig: Rig) {
    let rig = converting(rig);
    let number = rig.produce_issue().await;
    rig.model.hold_at(1);
    let consumer = rig.spawn("consumer", &[]);
    rig.model.wait_for_held(1).await;
    rig.forge.remove_label(DEMO, number, PROCESSING);
    let task = rig.wait_ended(1).await.remove(0);
    rig.model.release();
    consumer.terminate();
    consumer.end().await;
    assert_eq!(task.state, TaskState::Ended(EndState::Stopped), "{task:#?}");
    let pull = only_pull(&rig);
    assert!(pull.open && pull.draft, "{pull:#?}");
    let comments = of_ours(&rig, pull.number);
    assert_eq!(comments.len(), 1, "{comments:#?}");
    for part in ["AgentMine stopped", REQUEST, &pull.head] {
        assert!(comments[0].contains(part), "{part:?}: {comments:#?}");
    }
    assert!(rig.forge.branch_sha(DEMO, &pull.head).is_some());
    let reported = of_ours(&rig, number).pop().unwrap();
    assert!(
        reported.contains(&format!("/{}.", rig.shown(pull.number))),
        "{reported}"
    );
}

#[tokio::test]
async fn a_stop_is_reported_on_the_draft_which_stays_on_github() {
    a_stop_is_reported_on_the_draft(Rig::local(solves_demo()).await).await;
}

#[tokio::test]
async fn a_stop_is_reported_on_the_draft_which_stays_on_gitlab() {
    a_stop_is_reported_on_the_draft(Rig::local_gitlab(solves_demo()).await).await;
}

/// A worker dies with the draft open, and a person closes that, or removes its branch, before the next one comes.
async fn a_withdrawn_draft_stops(rig: Rig, does: impl Fn(&Rig, &PullView), reported: &str) {
    let rig = converting(rig);
    let number = rig.produce_issue().await;
    let kill = "tracker.pull_request_create.after=kill";
    let (status, log) = rig.spawn_failing("consumer", kill).end().await;
    assert!(!status.success(), "{log}");
    let pull = only_pull(&rig);
    does(&rig, &pull);
    let head = rig.forge.branch_sha(DEMO, &pull.head);
    let consumer = rig.spawn("consumer", &[]);
    let task = rig.wait_ended(1).await.remove(0);
    consumer.terminate();
    consumer.end().await;
    assert_eq!(task.state, TaskState::Ended(EndState::Stopped), "{task:#?}");
    assert!(rig.model.requests().is_empty(), "no model call is paid for");
    assert_eq!(only_pull(&rig).number, pull.number);
    assert_eq!(rig.forge.branch_sha(DEMO, &pull.head), head);
    let comment = of_ours(&rig, number).pop().unwrap();
    assert!(comment.contains(reported), "{comment}");
}

fn closes(rig: &Rig, pull: &PullView) {
    rig.forge.close(DEMO, pull.number);
}

fn removes(rig: &Rig, pull: &PullView) {
    rig.forge.remove_branch(DEMO, &pull.head);
}

#[tokio::test]
async fn a_draft_that_a_person_closed_is_not_opened_again_on_github() {
    let rig = Rig::local(solves_demo()).await;
    a_withdrawn_draft_stops(rig, closes, "somebody closed the pull request").await;
}

#[tokio::test]
async fn a_draft_that_a_person_closed_is_not_opened_again_on_gitlab() {
    let rig = Rig::local_gitlab(solves_demo()).await;
    a_withdrawn_draft_stops(rig, closes, "somebody closed the merge request").await;
}

/// GitHub closes a pull request whose branch is removed, GitLab does not.
#[tokio::test]
async fn the_branch_of_a_draft_that_a_person_removed_is_not_brought_back_on_github() {
    let rig = Rig::local(solves_demo()).await;
    let removes = |rig: &Rig, pull: &PullView| {
        removes(rig, pull);
        closes(rig, pull);
    };
    a_withdrawn_draft_stops(rig, removes, "somebody closed the pull request").await;
}

#[tokio::test]
async fn the_branch_of_a_draft_that_a_person_removed_is_not_brought_back_on_gitlab() {
    let rig = Rig::local_gitlab(solves_demo()).await;
    a_withdrawn_draft_stops(rig, removes, "somebody deleted the branch").await;
}

/// The check fails, so there is something missing.
async fn a_partial_result_stays_a_draft(rig: Rig) {
    let mut rig = converting(rig);
    rig.config["agent"]["max_rounds"] = 1.into();
    let number = rig.produce_issue().await;
    rig.consume().await;
    let task = rig.task().await;
    assert!(task.missing().is_some(), "{task:#?}");
    let pull = only_pull(&rig);
    assert!(pull.open && pull.draft, "{pull:#?}");
    assert!(pull.body.contains(&format!("For #{number}")), "{pull:#?}");
    assert!(pull.body.contains("Partial result"), "{pull:#?}");
    assert!(pull.body.contains("sh test.sh"), "{pull:#?}");
}

pub(crate) fn leaves_the_check_red() -> Scenario {
    Scenario::new("leaves the check red").replies([
        shell("echo more >> README.md"),
        commit_and_push("Say more"),
        say("Done."),
    ])
}

#[tokio::test]
async fn a_partial_result_stays_a_draft_on_github() {
    a_partial_result_stays_a_draft(Rig::local(leaves_the_check_red()).await).await;
}

#[tokio::test]
async fn a_partial_result_stays_a_draft_on_gitlab() {
    a_partial_result_stays_a_draft(Rig::local_gitlab(leaves_the_check_red()).await).await;
}

/// What the other keys do, each against its default.
async fn the_keys_are_obeyed(rig: Rig) {
    let mut rig = converting(rig);
    rig.config["issue_to_mr_conversion"]["auto_draft"] = false.into();
    rig.config["issue_to_mr_conversion"]["exclude_bot_comments"] = false.into();
    let number = rig.produce_issue().await;
    rig.forge
        .add_comment(DEMO, number, "deploy[bot]", "Deployed.");
    rig.model.hold_at(1);
    let consumer = rig.spawn("consumer", &[]);
    rig.model.wait_for_held(1).await;
    let pull = only_pull(&rig);
    assert!(pull.open && !pull.draft, "{pull:#?}");
    let comments = of_ours(&rig, pull.number);
    assert!(comments[0].contains("> Deployed."), "{comments:#?}");
    rig.model.release();
    assert_done(&rig.wait_ended(1).await[0]);
    consumer.terminate();
    consumer.end().await;

    rig.config["issue_to_mr_conversion"]["transfer_comments"] = false.into();
    let other = rig
        .forge
        .add_issue(DEMO, "Again", "It should greet.", &[REQUEST]);
    rig.forge.add_comment(DEMO, other, HUMAN, "Keep it short.");
    rig.produce().await;
    rig.consume().await;
    let pulls = rig.forge.pulls(DEMO);
    assert_eq!(pulls.len(), 2, "{pulls:#?}");
    assert!(of_ours(&rig, pulls[1].number).is_empty());
}

#[tokio::test]
async fn the_keys_of_the_conversion_are_obeyed_on_github() {
    the_keys_are_obeyed(Rig::local(solves_demo()).await).await;
}

#[tokio::test]
async fn the_keys_of_the_conversion_are_obeyed_on_gitlab() {
    the_keys_are_obeyed(Rig::local_gitlab(solves_demo()).await).await;
}

/// A person merges what is there, and the agent pushes more.
async fn merged_before_the_work_is_done(rig: Rig) {
    let mut rig = converting(rig);
    rig.config["issue_to_mr_conversion"]["auto_draft"] = false.into();
    let number = rig.produce_issue().await;
    rig.model.hold_at(1);
    let consumer = rig.spawn("consumer", &[]);
    rig.model.wait_for_held(1).await;
    let pull = only_pull(&rig);
    rig.forge.merge(DEMO, pull.number);
    rig.model.release();
    let task = rig.wait_ended(1).await.remove(0);
    consumer.terminate();
    consumer.end().await;
    assert_eq!(task.state, TaskState::Ended(EndState::Stopped));
    let reason = task.reason.unwrap();
    for part in ["somebody merged", &pull.head] {
        assert!(reason.contains(part), "{reason}");
    }
    assert_eq!(subjects(&rig, &pull.head), ["Greet the person named"]);
    assert!(rig.forge.is_open(DEMO, number));
    // The branch of a merged pull request is removed, except where it has more.
    rig.produce().await;
    assert_eq!(subjects(&rig, &pull.head), ["Greet the person named"]);
}

#[tokio::test]
async fn what_is_pushed_after_a_merge_is_not_lost_on_github() {
    merged_before_the_work_is_done(Rig::local(solves_demo()).await).await;
}

#[tokio::test]
async fn what_is_pushed_after_a_merge_is_not_lost_on_gitlab() {
    merged_before_the_work_is_done(Rig::local_gitlab(solves_demo()).await).await;
}

//! What people do with a pull request of AgentMine and its branch, on both forges: it gets no more rounds, and a branch of
//! ours alone is removed.

use std::sync::Arc;

use agentmine_domain::{EndState, TaskState};
use agentmine_tests::forge::{DEMO, PullView, Write};

use crate::rig::{PATIENCE, Rig};
use crate::rounds::{counted, head, opened, rounds, script};

/// What people do with the pull request after it was opened, each followed by a request for changes.
async fn what_people_did_ends_the_rounds(
    rig: Rig,
    does: impl Fn(&Rig, &PullView),
    (code, reported): (&str, &[&str]),
) {
    let (mut rig, pull) = opened(rig).await;
    rig.config["rounds"]["remove_branch"] = "never".into();
    does(&rig, &pull);
    let head = rig.forge.branch_sha(DEMO, &pull.head);
    rig.forge
        .add_review(DEMO, pull.number, "CHANGES_REQUESTED", "Please.");
    // The list of pull requests may lag behind a push, so the second look of a producer decides.
    counted(&mut rig, "ended", code).await;
    assert!(rounds(&rig).await.is_empty());
    assert_eq!(rig.forge.branch_sha(DEMO, &pull.head), head);
    let comments = rig.forge.comments(DEMO, pull.number);
    let texts: Vec<&str> = comments.iter().map(|it| it.body.as_str()).collect();
    let said = texts.iter().filter(|it| it.contains("no further work"));
    let said: Vec<&&str> = said.collect();
    match reported {
        [] => assert!(said.is_empty(), "{texts:#?}"),
        words => {
            assert_eq!(said.len(), 1, "{texts:#?}");
            assert!(words.iter().all(|it| said[0].contains(it)), "{said:?}");
        }
    }
}

/// Waits until the lists of pull requests were read five times.
async fn five_scans(rig: &Rig) {
    let seen = rig.forge.requests().len();
    let is_list = |target: &str| {
        let path = target.split('?').next().unwrap_or_default();
        path.ends_with("/pulls") || path.ends_with("/merge_requests")
    };
    rig.forge
        .wait_until("five scans", PATIENCE, |forge| {
            let requests = forge.requests();
            let lists = requests[seen..].iter().filter(|it| is_list(&it.target));
            lists.count() >= 5
        })
        .await;
}

/// The forge's list shows the head from before a round's push in several looks.
async fn a_list_that_lags_ends_nothing(rig: Rig) {
    let (mut rig, pull) = opened(rig).await;
    let review = |rig: &Rig| {
        let forge = &rig.forge;
        forge.add_review(DEMO, pull.number, "CHANGES_REQUESTED", "Please.");
    };
    let before = head(&rig, &pull);
    review(&rig);
    counted(&mut rig, "begun", "requests").await;
    rig.consume().await;
    let after = head(&rig, &pull);
    assert_ne!(after, before, "the round pushed");
    rig.forge.show_commit(DEMO, &pull.head, &before);
    rig.forge.let_a_second_pass(DEMO, pull.number);
    review(&rig);
    rig.config["producer"]["interval_seconds"] = 1.into();
    let producer = rig.spawn("producer", &[]);
    five_scans(&rig).await;
    assert_eq!(rounds(&rig).await.len(), 1);
    rig.forge.show_commit(DEMO, &pull.head, &after);
    rig.wait("the next round", |tasks| tasks.len() == 3).await;
    producer.terminate();
    producer.end().await;
}

#[tokio::test]
async fn a_list_that_lags_behind_a_push_ends_no_rounds_on_github() {
    a_list_that_lags_ends_nothing(Rig::local(script()).await).await;
}

#[tokio::test]
async fn a_list_that_lags_behind_a_push_ends_no_rounds_on_gitlab() {
    a_list_that_lags_ends_nothing(Rig::local_gitlab(script()).await).await;
}

/// The same after the first result: the pull request was there before its last push.
async fn a_list_that_lags_behind_the_first_result_ends_nothing(rig: Rig) {
    let (mut rig, pull) = opened(rig).await;
    let before = rig.forge.branch_sha(DEMO, "main");
    rig.forge.show_head(DEMO, pull.number, before.as_deref());
    rig.forge
        .add_review(DEMO, pull.number, "CHANGES_REQUESTED", "Please.");
    rig.config["producer"]["interval_seconds"] = 1.into();
    let producer = rig.spawn("producer", &[]);
    five_scans(&rig).await;
    assert!(rounds(&rig).await.is_empty());
    rig.forge.show_head(DEMO, pull.number, None);
    rig.wait("the round", |tasks| tasks.len() == 2).await;
    producer.terminate();
    producer.end().await;
}

#[tokio::test]
async fn a_list_that_lags_behind_the_first_result_ends_no_rounds_on_github() {
    a_list_that_lags_behind_the_first_result_ends_nothing(Rig::local(script()).await).await;
}

#[tokio::test]
async fn a_list_that_lags_behind_the_first_result_ends_no_rounds_on_gitlab() {
    a_list_that_lags_behind_the_first_result_ends_nothing(Rig::local_gitlab(script()).await).await;
}

pub(crate) fn push_of_a_person(rig: &Rig, pull: &PullView) {
    rig.forge.commit(DEMO, &pull.head, &pull.head, |dir| {
        std::fs::write(dir.join("mine.txt"), "mine\n").unwrap();
    });
}

#[tokio::test]
async fn a_push_of_a_person_ends_the_rounds_on_github() {
    let rig = Rig::local(script()).await;
    what_people_did_ends_the_rounds(rig, push_of_a_person, ("pushed", &["somebody else pushed"]))
        .await;
}

#[tokio::test]
async fn a_push_of_a_person_ends_the_rounds_on_gitlab() {
    let rig = Rig::local_gitlab(script()).await;
    what_people_did_ends_the_rounds(rig, push_of_a_person, ("pushed", &["somebody else pushed"]))
        .await;
}

#[tokio::test]
async fn a_closed_or_merged_pull_request_gets_no_round_on_github() {
    let close = |rig: &Rig, pull: &PullView| rig.forge.close(DEMO, pull.number);
    what_people_did_ends_the_rounds(Rig::local(script()).await, close, ("closed", &[])).await;
    let merge = |rig: &Rig, pull: &PullView| rig.forge.merge(DEMO, pull.number);
    what_people_did_ends_the_rounds(Rig::local(script()).await, merge, ("merged", &[])).await;
}

#[tokio::test]
async fn a_closed_or_merged_merge_request_gets_no_round_on_gitlab() {
    let close = |rig: &Rig, pull: &PullView| rig.forge.close(DEMO, pull.number);
    what_people_did_ends_the_rounds(Rig::local_gitlab(script()).await, close, ("closed", &[]))
        .await;
    let merge = |rig: &Rig, pull: &PullView| rig.forge.merge(DEMO, pull.number);
    what_people_did_ends_the_rounds(Rig::local_gitlab(script()).await, merge, ("merged", &[]))
        .await;
}

/// GitLab leaves a merge request open whose branch is gone; GitHub closes it.
#[tokio::test]
async fn a_branch_that_a_person_removed_ends_the_rounds_on_gitlab() {
    let removes = |rig: &Rig, pull: &PullView| rig.forge.remove_branch(DEMO, &pull.head);
    let rig = Rig::local_gitlab(script()).await;
    what_people_did_ends_the_rounds(rig, removes, ("removed", &["somebody deleted"])).await;
}

#[tokio::test]
async fn a_branch_that_a_person_removed_ends_the_rounds_on_github() {
    let removes = |rig: &Rig, pull: &PullView| {
        rig.forge.remove_branch(DEMO, &pull.head);
        rig.forge.close(DEMO, pull.number);
    };
    what_people_did_ends_the_rounds(Rig::local(script()).await, removes, ("closed", &[])).await;
}

/// A person removes the branch while a round works on it.
async fn a_removed_branch_is_not_brought_back(rig: Rig) {
    let (mut rig, pull) = opened(rig).await;
    rig.config["consumer"]["max_attempts"] = 2.into();
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
    assert_eq!(rig.forge.branch_sha(DEMO, &pull.head), None);
    let round = rounds(&rig).await.remove(0);
    assert_ne!(round.state, TaskState::Ended(EndState::Done), "{round:#?}");
    rig.produce().await;
    assert_eq!(rig.forge.branch_sha(DEMO, &pull.head), None);
    assert_eq!(rounds(&rig).await.len(), 1);
}

#[tokio::test]
async fn a_branch_that_a_person_removed_during_a_round_is_not_brought_back_on_github() {
    a_removed_branch_is_not_brought_back(Rig::local(script()).await).await;
}

#[tokio::test]
async fn a_branch_that_a_person_removed_during_a_round_is_not_brought_back_on_gitlab() {
    a_removed_branch_is_not_brought_back(Rig::local_gitlab(script()).await).await;
}

/// Successful removals of branches over the forge's API.
fn removals(rig: &Rig) -> usize {
    let is_removal = |it: &Write| {
        let of_branch = it.path.contains("/git/refs/heads/") || it.path.contains("/branches/");
        it.method == "DELETE" && of_branch && it.status == 204
    };
    rig.forge
        .writes()
        .iter()
        .filter(|it| is_removal(it))
        .count()
}

/// Killed before and after it, the branch is removed once.
async fn the_branch_is_removed(rig: Rig, rule: &str, does: impl Fn(&Rig, &PullView)) {
    let (mut rig, pull) = opened(rig).await;
    rig.config["rounds"]["remove_branch"] = rule.into();
    does(&rig, &pull);
    rig.killed_at(
        "producer",
        &[
            "tracker.branch_remove.before",
            "tracker.branch_remove.after",
        ],
    )
    .await;
    rig.produce().await;
    rig.produce().await;
    assert_eq!(rig.forge.branch_sha(DEMO, &pull.head), None);
    assert_eq!(removals(&rig), 1);
    assert!(rig.forge.branches(DEMO).contains(&"main".to_owned()));
}

fn merges_it(rig: &Rig, pull: &PullView) {
    rig.forge.merge(DEMO, pull.number);
}

fn closes_it(rig: &Rig, pull: &PullView) {
    rig.forge.close(DEMO, pull.number);
}

#[tokio::test]
async fn the_branch_of_a_merged_or_closed_pull_request_is_removed_once_on_github() {
    the_branch_is_removed(Rig::local(script()).await, "merged", merges_it).await;
    the_branch_is_removed(Rig::local(script()).await, "closed", closes_it).await;
}

#[tokio::test]
async fn the_branch_of_a_merged_or_closed_merge_request_is_removed_once_on_gitlab() {
    the_branch_is_removed(Rig::local_gitlab(script()).await, "merged", merges_it).await;
    the_branch_is_removed(Rig::local_gitlab(script()).await, "closed", closes_it).await;
}

/// The branch stays where the rule does not name its end, where a person pushed to it, and where another pull request is
/// for it.
async fn the_branch_stays(rig: Rig, does: impl Fn(&mut Rig, &PullView)) {
    let (mut rig, pull) = opened(rig).await;
    does(&mut rig, &pull);
    rig.produce().await;
    rig.produce().await;
    assert!(rig.forge.branch_sha(DEMO, &pull.head).is_some());
    assert_eq!(removals(&rig), 0);
}

/// A fleet that makes no rounds and removes no branches forgets a pull request that has ended all the same. Otherwise its
/// effects would stay for good, and commands would be looked for in its repository as long.
async fn a_merged_pull_request_is_forgotten_without_rounds(rig: Rig) {
    let (mut rig, pull) = opened(rig).await;
    rig.config["rounds"]["enabled"] = false.into();
    rig.config["rounds"]["remove_branch"] = "never".into();
    let item = rig.task().await.item;
    let store = Arc::clone(&rig.store);
    let watched = async || {
        let watched = store.watched_pulls(item.tracker, &item.host).await;
        watched.unwrap().len()
    };
    rig.produce().await;
    assert_eq!(watched().await, 1, "it is open");
    merges_it(&rig, &pull);
    rig.produce().await;
    assert_eq!(watched().await, 0);
    assert!(rig.forge.branch_sha(DEMO, &pull.head).is_some());
    assert!(rounds(&rig).await.is_empty());
}

#[tokio::test]
async fn a_merged_pull_request_is_forgotten_without_rounds_on_github() {
    a_merged_pull_request_is_forgotten_without_rounds(Rig::local(script()).await).await;
}

#[tokio::test]
async fn a_merged_merge_request_is_forgotten_without_rounds_on_gitlab() {
    a_merged_pull_request_is_forgotten_without_rounds(Rig::local_gitlab(script()).await).await;
}

fn pushes_and_merges(rig: &mut Rig, pull: &PullView) {
    push_of_a_person(rig, pull);
    merges_it(rig, pull);
}

fn only_closes(rig: &mut Rig, pull: &PullView) {
    closes_it(rig, pull);
}

#[tokio::test]
async fn a_branch_that_is_not_ours_alone_or_only_closed_stays_on_github() {
    the_branch_stays(Rig::local(script()).await, pushes_and_merges).await;
    the_branch_stays(Rig::local(script()).await, only_closes).await;
    let stacks = |rig: &mut Rig, pull: &PullView| {
        rig.forge.commit(DEMO, "stacked", &pull.head, |dir| {
            std::fs::write(dir.join("more.txt"), "more\n").unwrap();
        });
        rig.forge
            .add_pull(DEMO, "stacked", &pull.head, "On top", &[]);
        merges_it(rig, pull);
    };
    the_branch_stays(Rig::local(script()).await, stacks).await;
}

#[tokio::test]
async fn a_branch_that_is_not_ours_alone_or_only_closed_stays_on_gitlab() {
    the_branch_stays(Rig::local_gitlab(script()).await, pushes_and_merges).await;
    the_branch_stays(Rig::local_gitlab(script()).await, only_closes).await;
}

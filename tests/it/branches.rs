//! Work branches that the forge protects, and the requester as co-author, on both forges.

use agentmine_domain::{EndState, TaskState};
use agentmine_tests::forge::DEMO;
use agentmine_tests::model::{Scenario, Script, commit_and_push, say, shell};

use crate::rig::{Rig, assert_done, solves_demo};

/// Rules for the branches of the fleet are read before a model is paid for.
async fn a_protected_branch_is_reported(rig: Rig, words: &[&str]) {
    rig.forge.protect(DEMO, "agentmine/*");
    let number = rig.produce_issue().await;
    rig.consume().await;
    let task = rig.task().await;
    assert_eq!(task.state, TaskState::Ended(EndState::Failed), "{task:#?}");
    assert_eq!(task.attempt, 1, "another attempt would fail too");
    assert!(rig.model.requests().is_empty());
    assert!(rig.forge.pushes(DEMO).is_empty());
    let comment = rig.forge.comments(DEMO, number).remove(0).body;
    for part in words
        .iter()
        .chain(&["cannot be pushed to", "agentmine/issue-"])
    {
        assert!(comment.contains(part), "{part:?} is not in {comment}");
    }
}

#[tokio::test]
async fn a_protected_work_branch_is_reported_before_the_work_on_github() {
    let rig = Rig::local(solves_demo()).await;
    let words = ["release branches", "who may create"];
    a_protected_branch_is_reported(rig, &words).await;
}

#[tokio::test]
async fn a_protected_work_branch_is_reported_before_the_work_on_gitlab() {
    let rig = Rig::local_gitlab(solves_demo()).await;
    a_protected_branch_is_reported(rig, &["the protected branch `agentmine/*`"]).await;
}

/// The branch of a pull request exists, and says itself whether it may be pushed to.
async fn a_protected_source_branch_is_reported(rig: Rig, words: &[&str]) {
    rig.forge.protect(DEMO, "feature");
    let number = rig.produce_pull_request().await;
    rig.consume().await;
    let task = rig.task().await;
    assert_eq!(task.state, TaskState::Ended(EndState::Failed), "{task:#?}");
    assert!(rig.model.requests().is_empty());
    let comment = rig.forge.comments(DEMO, number).remove(0).body;
    for part in words.iter().chain(&["cannot be pushed to", "feature"]) {
        assert!(comment.contains(part), "{part:?} is not in {comment}");
    }
}

#[tokio::test]
async fn a_protected_branch_of_a_pull_request_is_reported_before_the_work_on_github() {
    let rig = Rig::local(solves_demo()).await;
    a_protected_source_branch_is_reported(rig, &["the branch protection of `feature`"]).await;
}

#[tokio::test]
async fn a_protected_branch_of_a_merge_request_is_reported_before_the_work_on_gitlab() {
    let rig = Rig::local_gitlab(solves_demo()).await;
    a_protected_source_branch_is_reported(rig, &["it is a protected branch"]).await;
}

/// Other rules and names keep nothing from being pushed.
async fn other_rules_refuse_nothing(rig: Rig) {
    rig.forge.protect(DEMO, "main");
    rig.forge.protect(DEMO, "release/*");
    rig.produce_issue().await;
    rig.consume().await;
    assert_done(&rig.task().await);
}

#[tokio::test]
async fn the_protection_of_other_branches_refuses_nothing_on_github() {
    other_rules_refuse_nothing(Rig::local(solves_demo()).await).await;
}

#[tokio::test]
async fn the_protection_of_other_branches_refuses_nothing_on_gitlab() {
    other_rules_refuse_nothing(Rig::local_gitlab(solves_demo()).await).await;
}

/// Commits in several ways, the last one left to the worker.
fn commits() -> Script {
    Script::new().scenario(Scenario::new("commits").replies([
        shell("sed -i 's/name=\"\"/name=\"${1:-world}\"/' greet.sh && sh test.sh"),
        commit_and_push("Greet the person named"),
        shell("echo more >> README.md && git commit -qam 'Say more' && git commit -q --amend --no-edit"),
        shell("echo and more >> README.md"),
        say("Done."),
    ]))
}

/// The messages of the commits on the branch of the pull request.
fn messages(rig: &Rig) -> Vec<String> {
    let branch = rig.forge.pulls(DEMO).remove(0).head;
    let log = std::process::Command::new("git")
        .arg("--git-dir")
        .arg(rig.forge.git_dir(DEMO))
        .args(["log", "--format=%B%x00"])
        .arg(format!("main..{branch}"))
        .output()
        .unwrap();
    assert!(log.status.success(), "{log:?}");
    let text = String::from_utf8_lossy(&log.stdout).into_owned();
    let all = text.split('\0').map(str::trim).filter(|it| !it.is_empty());
    all.map(ToOwned::to_owned).collect()
}

async fn the_requester_is_co_author(mut rig: Rig, trailer: &str) {
    rig.config["agent"]["co_author_requester"] = true.into();
    rig.produce_issue().await;
    rig.consume().await;
    assert_done(&rig.task().await);
    let messages = messages(&rig);
    assert_eq!(messages.len(), 3, "{messages:#?}");
    for message in &messages {
        assert!(message.ends_with(trailer), "{message}");
        assert_eq!(message.matches("Co-authored-by").count(), 1, "{message}");
    }
}

#[tokio::test]
async fn the_requester_is_co_author_of_each_commit_if_configured_on_github() {
    let rig = Rig::local(commits()).await;
    let trailer = "Co-authored-by: mona <4+mona@users.noreply.127.0.0.1>";
    the_requester_is_co_author(rig, trailer).await;
}

#[tokio::test]
async fn the_requester_is_co_author_of_each_commit_if_configured_on_gitlab() {
    let rig = Rig::local_gitlab(commits()).await;
    let url = rig.forge.gitlab_url();
    let trailer = format!("-mona@users.noreply.{}>", url.host_str().unwrap());
    the_requester_is_co_author(rig, &trailer).await;
}

#[tokio::test]
async fn nobody_is_co_author_by_default() {
    let rig = Rig::local(commits()).await;
    rig.produce_issue().await;
    rig.consume().await;
    assert_done(&rig.task().await);
    let messages = messages(&rig).join("\n");
    assert!(!messages.contains("Co-authored-by"), "{messages}");
}

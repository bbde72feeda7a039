//! Rounds that rebase: the target branch of a pull request of AgentMine has moved and conflicts, on both forges.

use agentmine_agent::journal::Entry;
use agentmine_domain::{EndState, TaskState};
use agentmine_tests::forge::{DEMO, PullView, Push};
use agentmine_tests::model::{Answer, Scenario, Script, say, shell};

use crate::rig::{Rig, assert_done, solves_demo};
use crate::rounds::{counted, opened, rounds, status};

/// Rebases, and keeps the branch's own side of the conflict.
const REBASE: &str = "git fetch -q origin main; git rebase -q origin/main; git checkout -q --theirs greet.sh && git add -A && git -c core.editor=true rebase --continue";
const PUSH: &str = "git push -q --force-with-lease origin HEAD:refs/heads/{branch}";
/// What the prompt says to do where the push is refused: go back, and merge.
const MERGE: &str = "git fetch -q origin && git reset -q --hard origin/{branch} && git merge -q origin/main; git checkout -q --ours greet.sh && git add -A && git commit -qm 'Merge main' && git push -q origin HEAD:refs/heads/{branch}";

/// Solves the sample issue; then gives these replies in a round that is asked to rebase.
fn rebases(replies: impl IntoIterator<Item = Answer>) -> Script {
    Script::new()
        .scenario(
            Scenario::new("rebase")
                .when("rebase your branch onto `origin/main`")
                .replies(replies),
        )
        .scenario(solves_demo())
}

/// A pull request of AgentMine with which `main` conflicts, and a round that is about to rebase it. Returns its head.
async fn conflicting(rig: Rig) -> (Rig, PullView, String) {
    let (mut rig, pull) = opened(rig).await;
    rig.config["rounds"]["base_conflict"] = "rebase".into();
    rig.forge.commit(DEMO, "main", "main", |dir| {
        let text = std::fs::read_to_string(dir.join("greet.sh")).unwrap();
        let text = text.replace("name=\"\"", "name=\"you\"");
        std::fs::write(dir.join("greet.sh"), text).unwrap();
        std::fs::write(dir.join("theirs.txt"), "theirs\n").unwrap();
    });
    let head = head(&rig, &pull);
    counted(&mut rig, "begun", "conflict").await;
    (rig, pull, head)
}

fn head(rig: &Rig, pull: &PullView) -> String {
    rig.forge.branch_sha(DEMO, &pull.head).expect("the branch")
}

/// What git says of the forge's repository.
fn git(rig: &Rig, args: &[&str]) -> (bool, String) {
    let done = std::process::Command::new("git")
        .arg("-C")
        .arg(rig.forge.git_dir(DEMO))
        .args(args)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&done.stdout).trim().to_owned();
    (done.status.success(), text)
}

fn contains(rig: &Rig, branch: &str, commit: &str) -> bool {
    git(rig, &["merge-base", "--is-ancestor", commit, branch]).0
}

/// Whether the branch is `main` and commits on top of it, without a merge.
fn is_linear(rig: &Rig, pull: &PullView) -> bool {
    let range = format!("main..{}", pull.head);
    let (_, merges) = git(rig, &["rev-list", "--count", "--merges", &range]);
    contains(rig, &pull.head, "main") && merges == "0"
}

/// The pushes to the branch that omit what it held.
fn rewrites(rig: &Rig, pull: &PullView) -> Vec<Push> {
    let mut pushes = rig.forge.pushes_by_client(DEMO);
    pushes.retain(|it| it.branch == pull.head && !it.old.starts_with("0000"));
    pushes.retain(|it| !contains(rig, &it.new, &it.old));
    pushes
}

/// The base commits of the round, and what each rebase replaces.
async fn starts(rig: &Rig) -> Vec<(String, Option<String>)> {
    let round = rounds(rig).await.remove(0);
    let steps = rig.steps(&round).await;
    let entries = steps.iter().map(|step| Entry::decode(step).unwrap());
    entries
        .filter_map(|entry| match entry {
            Entry::Start { start } => Some((start.base, start.rebases)),
            _ => None,
        })
        .collect()
}

/// The round is done, reported, and the only one.
async fn is_done_in_one_round(rig: &Rig, pull: &PullView) {
    let tasks = rounds(rig).await;
    assert_eq!(tasks.len(), 1);
    assert_done(&tasks[0]);
    let said = status(&rig.forge.comments(DEMO, pull.number));
    for part in ["a conflict with `main`, onto which", &head(rig, pull)[..7]] {
        assert!(said.contains(part), "{part} is not in {said}");
    }
    // It says what was done.
    let is_merged = said.contains("but which was merged instead");
    assert_eq!(is_merged, !is_linear(rig, pull), "{said}");
    // Our own push is not taken for that of somebody else.
    rig.produce().await;
    rig.produce().await;
    assert_eq!(rounds(rig).await.len(), 1);
    let comments = rig.forge.comments(DEMO, pull.number);
    let ended = comments
        .iter()
        .any(|it| it.body.contains("no further work"));
    assert!(!ended, "{comments:#?}");
    rig.forge.merge(DEMO, pull.number);
}

async fn a_conflict_is_rebased_in_one_round(rig: Rig) {
    let (rig, pull, before) = conflicting(rig).await;
    let base = rig.forge.branch_sha(DEMO, "main");
    rig.consume().await;
    assert_eq!(rig.forge.branch_sha(DEMO, "main"), base);
    assert!(is_linear(&rig, &pull));
    let rewrites = rewrites(&rig, &pull);
    assert_eq!(rewrites.len(), 1, "{rewrites:?}");
    assert_eq!(rewrites[0].old, before);
    // The checks are those of the new base, which was settled before the agent began.
    let starts = starts(&rig).await;
    let expected = (base.expect("main"), Some(before));
    assert_eq!(starts, [expected]);
    is_done_in_one_round(&rig, &pull).await;
}

/// The agent pushes, or leaves that to the worker.
fn rebases_well() -> Script {
    rebases([shell(REBASE), shell(PUSH), say("I rebased it.")])
}

fn rebases_and_does_not_push() -> Script {
    rebases([shell(REBASE), say("I rebased it.")])
}

#[tokio::test]
async fn a_base_that_moved_with_a_conflict_is_rebased_onto_in_one_round_on_github() {
    a_conflict_is_rebased_in_one_round(Rig::local(rebases_well()).await).await;
}

#[tokio::test]
async fn a_base_that_moved_with_a_conflict_is_rebased_onto_in_one_round_on_gitlab() {
    a_conflict_is_rebased_in_one_round(Rig::local_gitlab(rebases_well()).await).await;
}

#[tokio::test]
async fn a_rebase_that_the_agent_has_not_pushed_is_published_by_the_worker() {
    a_conflict_is_rebased_in_one_round(Rig::local(rebases_and_does_not_push()).await).await;
}

/// A person pushes while the agent rebases. Its forced push is refused, even after it fetched.
async fn a_person_who_pushes_meanwhile_is_not_overwritten(rig: Rig) {
    let (rig, pull, _) = conflicting(rig).await;
    rig.model.hold_when("rebase your branch onto", 1);
    let consumer = rig.spawn("consumer", &[]);
    rig.model.wait_for_held(1).await;
    rig.forge.commit(DEMO, &pull.head, &pull.head, |dir| {
        std::fs::write(dir.join("mine.txt"), "mine\n").unwrap();
    });
    let theirs = head(&rig, &pull);
    rig.model.release();
    rig.wait_ended(2).await;
    consumer.terminate();
    consumer.end().await;
    assert!(rewrites(&rig, &pull).is_empty());
    assert!(contains(&rig, &pull.head, &theirs));
    assert!(contains(&rig, &pull.head, "main"));
    assert_done(&rounds(&rig).await[0]);
    // It is theirs now, although the newest commit is ours.
    rig.produce().await;
    rig.produce().await;
    let comments = rig.forge.comments(DEMO, pull.number);
    let mut bodies = comments.iter().map(|it| &it.body);
    assert!(
        bodies.any(|it| it.contains("somebody else pushed")),
        "{comments:#?}"
    );
    assert_eq!(rounds(&rig).await.len(), 1);
}

fn meets_a_person() -> Script {
    rebases([
        shell(REBASE),
        shell(PUSH),
        shell(&format!("git fetch -q origin && {PUSH}")),
        shell(MERGE),
        say("Somebody had pushed, so I merged it."),
    ])
}

#[tokio::test]
async fn a_person_who_pushes_while_a_round_rebases_is_not_overwritten_on_github() {
    a_person_who_pushes_meanwhile_is_not_overwritten(Rig::local(meets_a_person()).await).await;
}

#[tokio::test]
async fn a_person_who_pushes_while_a_round_rebases_is_not_overwritten_on_gitlab() {
    a_person_who_pushes_meanwhile_is_not_overwritten(Rig::local_gitlab(meets_a_person()).await)
        .await;
}

/// The worker dies right after the push. The next one restores files from before it, and continues from what was pushed.
async fn killed_after_the_push_it_continues(rig: Rig) {
    let (mut rig, pull, before) = conflicting(rig).await;
    rig.config["consumer"]["max_attempts"] = 5.into();
    rig.killed_at("consumer", &["gateway.push.after"]).await;
    let pushed = head(&rig, &pull);
    assert_ne!(pushed, before);
    let consumer = rig.spawn("consumer", &[]);
    rig.wait_ended(2).await;
    consumer.terminate();
    consumer.end().await;
    let rewrites = rewrites(&rig, &pull);
    assert_eq!(rewrites.len(), 1, "{rewrites:?}");
    assert!(contains(&rig, &pull.head, &pushed));
    assert!(is_linear(&rig, &pull));
    is_done_in_one_round(&rig, &pull).await;
}

fn continues_after_the_push() -> Script {
    rebases([
        shell("echo '# more' >> test.sh && git commit -qam 'More'"),
        shell(&format!("{REBASE}; {PUSH}")),
        // It does not know what became of it, and tries again: the branch is no longer where the round began.
        shell(&format!("{REBASE}; {PUSH}")),
        shell("git fetch -q origin && git reset -q --hard origin/{branch} && git log --oneline -3"),
        say("I rebased it."),
    ])
}

#[tokio::test]
async fn killed_after_a_rebased_push_a_round_continues_without_another_one_on_github() {
    killed_after_the_push_it_continues(Rig::local(continues_after_the_push()).await).await;
}

#[tokio::test]
async fn killed_after_a_rebased_push_a_round_continues_without_another_one_on_gitlab() {
    killed_after_the_push_it_continues(Rig::local_gitlab(continues_after_the_push()).await).await;
}

/// A ruleset or a protected branch lets nobody force a push: the round merges.
async fn a_forge_without_forced_pushes_gets_a_merge(rig: Rig) {
    let (rig, pull, before) = conflicting(rig).await;
    assert!(git(&rig, &["config", "receive.denyNonFastForwards", "true"]).0);
    rig.consume().await;
    assert!(rewrites(&rig, &pull).is_empty());
    assert!(contains(&rig, &pull.head, &before));
    assert!(contains(&rig, &pull.head, "main"));
    let round = rounds(&rig).await.remove(0);
    let results = rig.results(&round).await;
    let refused = results
        .iter()
        .filter(|(_, it)| it.text.contains("merge instead"));
    assert_eq!(refused.count(), 1, "{results:#?}");
    is_done_in_one_round(&rig, &pull).await;
}

fn is_refused_and_merges() -> Script {
    rebases([
        shell(REBASE),
        shell(PUSH),
        shell(PUSH),
        shell(MERGE),
        say("The forge refused it, so I merged."),
    ])
}

#[tokio::test]
async fn where_the_forge_refuses_forced_pushes_a_round_merges_on_github() {
    a_forge_without_forced_pushes_gets_a_merge(Rig::local(is_refused_and_merges()).await).await;
}

#[tokio::test]
async fn where_the_forge_refuses_forced_pushes_a_round_merges_on_gitlab() {
    a_forge_without_forced_pushes_gets_a_merge(Rig::local_gitlab(is_refused_and_merges()).await)
        .await;
}

/// What was there before the round is no result of it.
#[tokio::test]
async fn a_round_that_rebases_nothing_is_not_done() {
    let rig = Rig::local(rebases([say("It is rebased.")])).await;
    let (mut rig, pull, before) = conflicting(rig).await;
    rig.config["consumer"]["max_attempts"] = 1.into();
    rig.consume().await;
    assert_eq!(head(&rig, &pull), before);
    let round = rounds(&rig).await.remove(0);
    assert_eq!(
        round.state,
        TaskState::Ended(EndState::Failed),
        "{round:#?}"
    );
}

/// Merges what it is asked to merge, after it tried to force a push.
fn forces_and_merges() -> Script {
    Script::new()
        .scenario(Scenario::new("merge").when("Do not rebase.").replies([
            shell(REBASE),
            shell(PUSH),
            shell(MERGE),
            say("I merged it."),
        ]))
        .scenario(solves_demo())
}

async fn is_merged_without_a_forced_push(rig: &Rig, pull: &PullView, before: &str) {
    rig.consume().await;
    assert_done(&rounds(rig).await[0]);
    assert!(rewrites(rig, pull).is_empty());
    assert!(contains(rig, &pull.head, before));
    assert!(contains(rig, &pull.head, "main"));
}

#[tokio::test]
async fn without_the_option_a_forced_push_is_refused_and_the_round_merges() {
    let (mut rig, pull, before) = conflicting(Rig::local(forces_and_merges()).await).await;
    rig.config["rounds"]["base_conflict"] = "merge".into();
    is_merged_without_a_forced_push(&rig, &pull, &before).await;
}

#[tokio::test]
async fn where_a_person_pushed_before_the_agent_began_a_round_merges() {
    let (rig, pull, _) = conflicting(Rig::local(forces_and_merges()).await).await;
    rig.forge.commit(DEMO, &pull.head, &pull.head, |dir| {
        std::fs::write(dir.join("mine.txt"), "mine\n").unwrap();
    });
    let theirs = head(&rig, &pull);
    is_merged_without_a_forced_push(&rig, &pull, &theirs).await;
}

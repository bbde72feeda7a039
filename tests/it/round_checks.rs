//! Rounds for failed checks and for conflicts with the base, on both forges.

use agentmine_tests::forge::{DEMO, HUMAN};
use agentmine_tests::model::{Scenario, Script, commit_and_push, edit_replace, say, shell};

use crate::rig::{Rig, assert_done, on_both_forges, solves_demo};
use crate::rounds::{counted, head, newest_prompt, opened, rounds, script, status};

/// What looks like a key of a cloud, put together here so that no scanner finds one in this file.
fn made_key() -> String {
    format!("AKIA{}", "Q3EGRIZ6JZ5TPXSZ")
}

/// A log with more lines than the model gets, and a secret near its end.
fn log(rig: &Rig, failure: &str) -> String {
    let mut log: String = (0..500).map(|n| format!("line number {n}\n")).collect();
    log.push_str(&format!("export API_TOKEN={}\n", rig.forge.token()));
    log.push_str(&format!("aws_access_key_id = {}\n", made_key()));
    log.push_str(failure);
    log
}

async fn a_red_check_begins_a_round(rig: Rig) {
    let (mut rig, pull) = opened(rig).await;
    let number = pull.number;
    rig.forge
        .add_job(DEMO, &head(&rig, &pull), "test", "pending", "");
    rig.forge.add_job(
        DEMO,
        &head(&rig, &pull),
        "lint",
        "failure",
        &log(&rig, "unused name"),
    );
    rig.forge
        .add_status(DEMO, &head(&rig, &pull), "their/service", "success");
    rig.produce().await;
    assert!(rounds(&rig).await.is_empty(), "a check is still running");
    rig.forge.add_job(
        DEMO,
        &head(&rig, &pull),
        "test",
        "failure",
        &log(&rig, "expected Hello"),
    );
    counted(&mut rig, "begun", "checks").await;
    rig.consume().await;
    let tasks = rounds(&rig).await;
    assert_eq!(tasks.len(), 1);
    assert_done(&tasks[0]);
    let prompt = newest_prompt(&rig);
    for part in [
        "`lint`",
        "> unused name",
        "`test`",
        "> expected Hello",
        "> line number 499",
    ] {
        assert!(prompt.contains(part), "{part} is not in {prompt}");
    }
    for part in [
        "line number 250\\n",
        rig.forge.token(),
        "AKIAQ3EGRIZ6JZ5TPXSZ",
    ] {
        assert!(!prompt.contains(part), "{part} is in {prompt}");
    }
    assert!(rig.forge.leaks().is_empty(), "{:?}", rig.forge.leaks());
    let comments = rig.forge.comments(DEMO, number);
    let last = &status(&comments);
    assert!(
        last.contains("Round 1 was for failed checks (`lint`, `test`)"),
        "{last}"
    );

    // Another failure begins another round, the same one ends the rounds.
    let other = log(&rig, "expected Bye");
    rig.forge
        .add_job(DEMO, &head(&rig, &pull), "test", "failure", &other);
    rig.produce().await;
    rig.consume().await;
    assert_eq!(rounds(&rig).await.len(), 2);
    let again = other.replace("line number 4", "line number 7");
    rig.forge
        .add_job(DEMO, &head(&rig, &pull), "test", "failure", &again);
    counted(&mut rig, "ended", "same_failure").await;
    rig.produce().await;
    assert_eq!(rounds(&rig).await.len(), 2);
    let comments = rig.forge.comments(DEMO, number);
    let reported = comments
        .iter()
        .filter(|it| it.body.contains("failed in the same way"));
    assert_eq!(reported.count(), 1, "{comments:#?}");
    // An answer to a person leaves it there.
    rig.forge.say(DEMO, number, HUMAN, "/agentmine status");
    rig.produce().await;
    let text = status(&rig.forge.comments(DEMO, number));
    for part in ["failed in the same way", "In answer to"] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
}

#[tokio::test]
async fn red_checks_begin_a_round_and_the_same_failure_ends_them_on_github() {
    a_red_check_begins_a_round(Rig::local(script()).await).await;
}

#[tokio::test]
async fn red_jobs_begin_a_round_and_the_same_failure_ends_them_on_gitlab() {
    a_red_check_begins_a_round(Rig::local_gitlab(script()).await).await;
}

async fn a_red_base_ends_the_rounds(rig: Rig) {
    let (mut rig, pull) = opened(rig).await;
    let base = rig.forge.branch_sha(DEMO, "main").unwrap();
    for commit in [&base, &head(&rig, &pull)] {
        rig.forge
            .add_job(DEMO, commit, "test", "failure", "broken since Monday");
    }
    counted(&mut rig, "ended", "red_base").await;
    rig.produce().await;
    assert!(rounds(&rig).await.is_empty());
    let comments = rig.forge.comments(DEMO, pull.number);
    let reported = comments
        .iter()
        .filter(|it| it.body.contains("also fail on `main`"));
    assert_eq!(reported.count(), 1, "{comments:#?}");
}

#[tokio::test]
async fn a_red_base_ends_the_rounds_on_github() {
    a_red_base_ends_the_rounds(Rig::local(script()).await).await;
}

#[tokio::test]
async fn a_red_base_ends_the_rounds_on_gitlab() {
    a_red_base_ends_the_rounds(Rig::local_gitlab(script()).await).await;
}

/// What fails on the target branch too ends the rounds only of a pull request that does not conflict with it.
async fn a_conflict_that_is_found_out_late_begins_a_round(rig: Rig) {
    let (rig, pull) = opened(rig).await;
    rig.forge.find_conflicts_late();
    rig.forge.commit(DEMO, "main", "main", |dir| {
        let text = std::fs::read_to_string(dir.join("greet.sh")).unwrap();
        let text = text.replace("name=\"\"", "name=\"you\"");
        std::fs::write(dir.join("greet.sh"), text).unwrap();
    });
    let base = rig.forge.branch_sha(DEMO, "main").unwrap();
    for commit in [&base, &head(&rig, &pull)] {
        rig.forge
            .add_job(DEMO, commit, "test", "failure", "broken since Monday");
    }
    rig.produce().await;
    assert!(rounds(&rig).await.is_empty(), "nobody knows of a conflict");
    rig.produce().await;
    assert_eq!(rounds(&rig).await.len(), 1);
}

#[tokio::test]
async fn a_conflict_that_is_found_out_late_begins_a_round_on_github() {
    a_conflict_that_is_found_out_late_begins_a_round(Rig::local(merges()).await).await;
}

#[tokio::test]
async fn a_conflict_that_is_found_out_late_begins_a_round_on_gitlab() {
    a_conflict_that_is_found_out_late_begins_a_round(Rig::local_gitlab(merges()).await).await;
}

/// A script that merges the target branch.
fn merges() -> Script {
    let merge = "git fetch -q origin main && git merge -q origin/main; git checkout -q --ours greet.sh && git add -A && git commit -qm 'Merge main' && git push -q origin HEAD";
    Script::new()
        .scenario(
            Scenario::new("merge")
                .when("conflicts with this branch")
                .replies([shell(merge), say("I merged `main` and kept both.")]),
        )
        .scenario(solves_demo())
}

async fn a_conflict_is_merged_in_one_round(rig: Rig) {
    let (mut rig, pull) = opened(rig).await;
    rig.forge.commit(DEMO, "main", "main", |dir| {
        let text = std::fs::read_to_string(dir.join("greet.sh")).unwrap();
        let text = text.replace("name=\"\"", "name=\"you\"");
        std::fs::write(dir.join("greet.sh"), text).unwrap();
        // What others do on `main` is not measured as the agent's.
        let stub = "def theirs():\n    raise NotImplementedError\n";
        std::fs::write(dir.join("theirs.py"), stub).unwrap();
        std::fs::create_dir_all(dir.join(".github/workflows")).unwrap();
        std::fs::write(dir.join(".github/workflows/theirs.yml"), "on: push\n").unwrap();
        std::fs::write(dir.join("theirs.lock"), "theirs\n".repeat(200_000)).unwrap();
    });
    let base = rig.forge.branch_sha(DEMO, "main");
    counted(&mut rig, "begun", "conflict").await;
    rig.consume().await;
    let tasks = rounds(&rig).await;
    assert_eq!(tasks.len(), 1);
    assert_done(&tasks[0]);
    assert_eq!(rig.forge.branch_sha(DEMO, "main"), base);
    let comments = rig.forge.comments(DEMO, pull.number);
    let last = &status(&comments);
    assert!(last.contains("a conflict with `main`"), "{last}");
    assert_eq!(tasks[0].missing(), None, "{last}");
    assert!(!last.contains("theirs"), "{last}");
    rig.produce().await;
    assert_eq!(rounds(&rig).await.len(), 1);
    rig.forge.merge(DEMO, pull.number);
}

#[tokio::test]
async fn a_base_that_moved_with_a_conflict_is_merged_in_one_round_on_github() {
    a_conflict_is_merged_in_one_round(Rig::local(merges()).await).await;
}

#[tokio::test]
async fn a_base_that_moved_with_a_conflict_is_merged_in_one_round_on_gitlab() {
    a_conflict_is_merged_in_one_round(Rig::local_gitlab(merges()).await).await;
}

/// What fails on the commit that was merged is not of the merge's doing.
#[tokio::test]
async fn a_check_that_fails_on_the_merged_branch_is_reported_as_failing_there() {
    let (mut rig, pull) = opened(Rig::local(merges()).await).await;
    rig.config["agent"]["max_rounds"] = 1.into();
    rig.forge.commit(DEMO, "main", "main", |dir| {
        let text = std::fs::read_to_string(dir.join("greet.sh")).unwrap();
        let text = text.replace("name=\"\"", "name=\"you\"");
        std::fs::write(dir.join("greet.sh"), text).unwrap();
        let test = "echo 'FAIL: the network is unreachable'; exit 1\n";
        std::fs::write(dir.join("test.sh"), test).unwrap();
    });
    counted(&mut rig, "begun", "conflict").await;
    rig.consume().await;
    let last = &status(&rig.forge.comments(DEMO, pull.number));
    assert!(last.contains("| 1, as on the target branch |"), "{last}");
    let note = "of the target branch, which was merged.";
    assert!(last.contains(note), "{last}");
    let tasks = rounds(&rig).await;
    let missing = tasks[0].missing().unwrap_or_default();
    let there = "same way on the commit of the target branch";
    assert!(missing.contains(there), "{missing}");
}

/// A status of somebody's service fails; there is no log.
async fn a_red_status_begins_a_round(rig: Rig) {
    let (mut rig, pull) = opened(rig).await;
    let head = head(&rig, &pull);
    rig.forge
        .add_status(DEMO, &head, "their/service", "failure");
    counted(&mut rig, "begun", "checks").await;
    rig.consume().await;
    let tasks = rounds(&rig).await;
    assert_eq!(tasks.len(), 1);
    assert_done(&tasks[0]);
    let prompt = newest_prompt(&rig);
    assert!(prompt.contains("`their/service`"), "{prompt}");
    let last = &status(&rig.forge.comments(DEMO, pull.number));
    let because = "Round 1 was for failed checks (`their/service`)";
    assert!(last.contains(because), "{last}");
}

#[tokio::test]
async fn a_red_status_begins_a_round_on_github() {
    a_red_status_begins_a_round(Rig::local(script()).await).await;
}

#[tokio::test]
async fn a_red_status_begins_a_round_on_gitlab() {
    a_red_status_begins_a_round(Rig::local_gitlab(script()).await).await;
}

/// Solves the sample issue with settings of its own in the same commit, and breaks the program in the round.
fn declares_its_own_checks() -> Script {
    let settings = "checks: [\"true\"]\nsetup: [\"touch from-its-own-set-up\"]\n";
    let declares = format!("printf '%s' '{settings}' > .agentmine/config.yaml");
    Script::new()
        .scenario(Scenario::new("breaks").when("> Please.").replies([
            edit_replace("greet.sh", "${1:-world}", "${1:-nobody}"),
            commit_and_push("Greet nobody"),
            say("Done, all checks pass."),
        ]))
        .scenario(Scenario::new("solves").replies([
            shell(&declares),
            edit_replace("greet.sh", "name=\"\"", "name=\"${1:-world}\""),
            commit_and_push("Greet the person named"),
            say("Done."),
        ]))
}

/// Until the pull request is merged, the checks and the set-up are those of `main`.
async fn what_a_pull_request_declares_has_no_effect_on_its_rounds(rig: Rig) {
    let (mut rig, pull) = opened(rig).await;
    rig.config["agent"]["max_rounds"] = 1.into();
    rig.forge
        .add_review(DEMO, pull.number, "CHANGES_REQUESTED", "Please.");
    rig.produce().await;
    rig.consume().await;
    let round = rounds(&rig).await.remove(0);
    let missing = round.missing().unwrap_or_default();
    assert!(missing.contains("sh test.sh"), "{missing}");
    let last = status(&rig.forge.comments(DEMO, pull.number));
    for part in [
        "| check (from `.agentmine/config.yaml` of the target branch) |",
        "| `sh test.sh` | 1 |",
        "those of the target branch count): `.agentmine/config.yaml`.",
    ] {
        assert!(last.contains(part), "{part} is not in {last}");
    }
    assert!(!last.contains("| `true` |"), "{last}");
    let transcript = rig.transcript(&round).await;
    assert!(!transcript.contains("from-its-own-set-up"), "{transcript}");
}

on_both_forges! {
    declares_its_own_checks() => what_a_pull_request_declares_has_no_effect_on_its_rounds,
}

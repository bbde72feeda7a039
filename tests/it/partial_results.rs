//! Rounds on a pull request whose first result is partial: what its text says after them.

use agentmine_tests::forge::{DEMO, HUMAN, PullView};
use agentmine_tests::model::{Answer, Scenario, Script, commit_and_push, edit_replace, say, shell};

use crate::conversion::leaves_the_check_red;
use crate::rig::{Rig, assert_done, on_both_forges};
use crate::rounds::{counted, head, opened, rounds, status};

/// Leaves the check red, and then does this in the first and in the second round.
fn then(first: Answer, second: Answer) -> Script {
    let round = |name: &str, work: Answer| {
        let begins = Scenario::new(name).when(&format!("this is {name} on it"));
        begins.replies([work, commit_and_push("Do what is asked for"), say("Done.")])
    };
    Script::new()
        .scenario(round("round 1", first))
        .scenario(round("round 2", second))
        .scenario(leaves_the_check_red())
}

fn greets() -> Answer {
    edit_replace("greet.sh", "name=\"\"", "name=\"${1:-world}\"")
}

/// The second round breaks what the first one fixed.
fn fixes_and_breaks() -> Script {
    then(greets(), shell("echo 'echo more' >> greet.sh"))
}

/// A partial result of AgentMine whose CI fails, for which a round has begun.
async fn partial(mut rig: Rig) -> (Rig, PullView) {
    rig.config["agent"]["max_rounds"] = 1.into();
    let (mut rig, pull) = opened(rig).await;
    assert!(pull.draft, "{pull:#?}");
    assert!(
        pull.body.starts_with("> [!WARNING]\n> **Partial result.**"),
        "{pull:#?}"
    );
    let head = head(&rig, &pull);
    rig.forge
        .add_job(DEMO, &head, "test", "failure", "expected Hello");
    counted(&mut rig, "begun", "checks").await;
    (rig, pull)
}

fn now(rig: &Rig) -> PullView {
    rig.forge.pulls(DEMO).remove(0)
}

/// `before` is the pull request with the partial result.
fn assert_completed(rig: &Rig, before: &PullView) {
    let pull = now(rig);
    assert!(pull.open && !pull.draft, "{pull:#?}");
    assert!(!pull.title.to_lowercase().contains("draft"), "{pull:#?}");
    let mut lines = before.body.lines();
    let opening = lines.find(|line| line.starts_with("For #")).unwrap();
    let closing = opening.replace("For #", "Closes #");
    assert!(pull.body.lines().any(|line| line == closing), "{pull:#?}");
    for part in ["Partial result", "Not done"] {
        assert!(!pull.body.contains(part), "{part}: {pull:#?}");
    }
    let note = format!("pass on commit `{}`", pull.head_sha);
    assert_eq!(pull.body.matches(&note).count(), 1, "{pull:#?}");
    // The report on the first result stays.
    let measured = format!("Commit `{}`", before.head_sha);
    assert!(pull.body.contains(&measured), "{pull:#?}");
}

async fn a_round_that_makes_the_checks_pass_completes_a_partial_result(rig: Rig) {
    let (rig, pull) = partial(rig).await;
    rig.consume().await;
    let first = rounds(&rig).await.remove(0);
    assert_done(&first);
    assert_eq!(first.missing(), None);
    assert_completed(&rig, &pull);

    // After that, the comment alone says that a round leaves a partial result.
    let completed = now(&rig);
    rig.forge
        .add_review_as(DEMO, pull.number, HUMAN, "CHANGES_REQUESTED", "One thing.");
    rig.produce().await;
    rig.consume().await;
    let tasks = rounds(&rig).await;
    assert_eq!(tasks.len(), 2);
    assert!(tasks[1].missing().is_some(), "{:#?}", tasks[1]);
    let text = status(&rig.forge.comments(DEMO, pull.number));
    assert!(text.contains("Partial result"), "{text}");
    let after = now(&rig);
    assert_eq!((after.body, after.draft), (completed.body, false));
}

async fn killed_anywhere_a_partial_result_is_completed_once(rig: Rig) {
    let (mut rig, pull) = partial(rig).await;
    rig.config["consumer"]["max_attempts"] = 20.into();
    rig.killed_at(
        "consumer",
        &[
            "tracker.pull_request_update.before",
            "tracker.pull_request_update.after",
            "tracker.pull_request_ready.before",
            "tracker.pull_request_ready.after",
        ],
    )
    .await;
    let consumer = rig.spawn("consumer", &[]);
    rig.wait_ended(2).await;
    consumer.terminate();
    consumer.end().await;
    assert_done(&rounds(&rig).await[0]);
    assert_completed(&rig, &pull);
}

on_both_forges! { fixes_and_breaks() =>
    a_round_that_makes_the_checks_pass_completes_a_partial_result,
    killed_anywhere_a_partial_result_is_completed_once,
}

/// The second round measures its own commit, and that is complete. Only on GitHub: the forge plays no part in the decision.
#[tokio::test]
async fn what_an_earlier_round_left_keeps_a_result_partial() {
    let unfinished = greets().and(shell("echo 'todo!()' > later.rs"));
    let script = then(unfinished, shell("echo '# more' >> greet.sh"));
    let (rig, pull) = partial(Rig::local(script).await).await;
    rig.consume().await;
    let first = rounds(&rig).await.remove(0);
    let missing = first.missing().expect("a placeholder is there");
    assert!(
        missing.starts_with("- a placeholder was added"),
        "{missing}"
    );
    rig.forge
        .add_review_as(DEMO, pull.number, HUMAN, "CHANGES_REQUESTED", "One thing.");
    rig.produce().await;
    rig.consume().await;
    let tasks = rounds(&rig).await;
    assert_eq!(tasks.len(), 2);
    assert_done(&tasks[1]);
    assert_eq!(tasks[1].missing(), None);
    let after = now(&rig);
    assert_eq!((after.body, after.draft), (pull.body, true));
}

//! Rounds that complete a partial result.

use agentmine_domain::{
    EffectKey, EndState, NewTask, PARTIAL_WARNING, Round, RoundCause, not_done, partial_reason,
};
use agentmine_store::{Enqueued, LeaseEnd};
use agentmine_trackers::NewPullRequest;
use serde_json::json;

use super::forge::refused;
use super::world::{NONE, World, done, finish, ours, pull, pull_item, second_round};
use crate::{Effects, Pushers, ReportedCommit};

const URL: &str = "https://forge.example/pull/21";
const MISSING: &str =
    "- `make test` failed with exit code 2 on the pushed commit:\n    expected Hello";
const PLACEHOLDER: &str = "- a placeholder was added: a.rs:1 todo!()";

/// The text of the partial result.
fn partial_text() -> String {
    format!(
        "{PARTIAL_WARNING}For #7\n\n{}### Measured on the pushed commit\n",
        not_done(MISSING)
    )
}

/// The first pull request, whose result lacks this.
async fn opened(missing: Option<&str>) -> World {
    let world = World::new().await;
    let first = world.session(world.claim().await);
    let new = NewPullRequest {
        head: world.task.branch(),
        body: partial_text(),
        draft: true,
        ..pull("Greet")
    };
    first
        .pull_request(&new, &ours("commit-1"), missing)
        .await
        .unwrap();
    end(&world, &first, &ended(missing)).await;
    world
}

/// The end of a task with a result that lacks this.
fn ended(missing: Option<&str>) -> LeaseEnd {
    done(missing.map(partial_reason).as_deref())
}

async fn end(world: &World, effects: &Effects, end: &LeaseEnd) {
    let lease = effects.lease.as_ref().unwrap();
    world.store.end_lease(lease, end).await.unwrap();
}

/// A session of a task on the pull request.
async fn session(world: &World, trigger: &str) -> Effects {
    let new = NewTask {
        trigger: trigger.into(),
        ..second_round()
    };
    let enqueued = world.store.enqueue(&new).await.unwrap();
    let (Enqueued::Created(task) | Enqueued::Known(task)) = enqueued;
    assert_eq!(task.trigger, trigger);
    world.session(world.claim_of(&task).await)
}

/// A session of this round.
async fn round(world: &World, number: u32) -> Effects {
    let round = Round {
        pull: pull_item(),
        number,
        origin: world.task.id,
        head: format!("commit-{number}"),
        cause: RoundCause::default(),
        result: None,
    };
    world.store.begin_round(&round).await.unwrap();
    session(world, &round.trigger()).await
}

/// It has pushed a commit, and the result lacks this.
async fn push(effects: &Effects, commit: &str, missing: Option<&str>) {
    let result = ReportedCommit {
        commit: commit.into(),
        pushers: Pushers::Us,
        heard: None,
    };
    effects.pushed_result(&result, missing).await.unwrap();
    effects.comment("The evidence.").await.unwrap();
}

/// The first round on a partial result, which has pushed a complete one.
async fn pushed() -> (World, Effects) {
    let world = opened(Some(MISSING)).await;
    let effects = round(&world, 1).await;
    push(&effects, "commit-2", None).await;
    world.requests();
    (world, effects)
}

/// The same of a round whose commit completes the partial result.
async fn completing() -> (World, Effects) {
    let (world, effects) = pushed().await;
    effects.begin_completion("commit-2").await.unwrap();
    (world, effects)
}

/// A session of the second round, after the one before it ended like this.
async fn second(world: &World, first: &Effects, ending: &LeaseEnd) -> Effects {
    end(world, first, ending).await;
    round(world, 2).await
}

/// What the results lack that it finds.
async fn missing_after(world: &World, first: &Effects, ending: &LeaseEnd) -> Option<Vec<String>> {
    let second = second(world, first, ending).await;
    second.missing_before().await.unwrap()
}

/// Where the result of a task is recorded.
fn record(effects: &Effects) -> EffectKey {
    EffectKey::pull_request(&effects.task.branch())
}

/// The requests since the last call, without those for labels.
fn writes(world: &World) -> Vec<String> {
    let mut requests = world.requests();
    requests.retain(|it| !it.starts_with("set_labels"));
    requests
}

fn text(world: &World) -> String {
    world.tracker.forge().pulls[0].1.body.clone()
}

fn assert_completed(world: &World) {
    let text = text(world);
    assert!(text.starts_with("> [!NOTE]\n"), "{text}");
    assert!(text.contains("\n\nCloses #7\n\n"), "{text}");
    assert_eq!(text.matches("`commit-2`").count(), 1, "{text}");
    for part in ["Partial result", "Not done", "expected Hello"] {
        assert!(!text.contains(part), "{part}: {text}");
    }
    assert!(text.ends_with("### Measured on the pushed commit\n"));
    assert_eq!(world.tracker.forge().pulls[0].1.title, "Greet");
}

#[tokio::test]
async fn a_completed_partial_result_is_reported_as_complete_once() {
    let (world, effects) = completing().await;
    effects.report_done(URL, None, "1").await.unwrap();
    assert_eq!(writes(&world), ["update_pull_request 21", "mark_ready 21"]);
    assert_completed(&world);
    // A person may have made it a draft again.
    effects.report_done(URL, None, "1").await.unwrap();
    assert_eq!(writes(&world), NONE);
}

/// The worker died before it wrote anything, or before it recorded what it wrote. The sweep does the rest.
#[tokio::test]
async fn a_completion_that_was_interrupted_is_written_once() {
    for (lost, expected) in [
        (None, vec!["update_pull_request 21", "mark_ready 21"]),
        (
            Some("update_pull_request"),
            vec!["update_pull_request 21", "mark_ready 21"],
        ),
        (
            Some("mark_ready"),
            vec!["update_pull_request 21", "mark_ready 21", "mark_ready 21"],
        ),
    ] {
        let (world, effects) = completing().await;
        if let Some(lost) = lost {
            world.tracker.forge().lost.push(lost);
            effects.report_done(URL, None, "1").await.unwrap_err();
        }
        end(&world, &effects, &ended(None)).await;
        let row = world.store.task(effects.task.id).await.unwrap().unwrap();
        let sweep = world.reconciler_of(row);
        sweep.report_state().await.unwrap();
        assert_eq!(writes(&world), expected);
        assert_completed(&world);
    }
}

#[tokio::test]
async fn a_text_that_a_person_changed_stays() {
    let (world, effects) = completing().await;
    let changed = partial_text().replace("Not done", "To do");
    world.tracker.forge().pulls[0].1.body = changed.clone();
    for expected in [vec!["write_comment pull_request 21"], Vec::new()] {
        effects.report_done(URL, None, "1").await.unwrap();
        assert_eq!(writes(&world), expected);
    }
    assert_eq!(text(&world), changed);
    assert_eq!(
        world.comments_on("pull_request 21"),
        [
            "The evidence.\n\n<!-- agentmine:notice -->\nThe result is now complete: the checks that failed now pass on \
          commit-2. Somebody edited the part of this pull request's description that reports the partial result, so AgentMine \
          leaves the description as it is, and a draft stays a draft."
        ]
    );
}

/// What they add elsewhere is kept.
#[tokio::test]
async fn what_a_person_added_to_the_text_is_kept() {
    let (world, effects) = completing().await;
    let added = format!("{}\nPlease look at the greeting first.", partial_text());
    world.tracker.forge().pulls[0].1.body = added;
    effects.report_done(URL, None, "1").await.unwrap();
    let text = text(&world);
    assert!(text.contains("Closes #7\n"), "{text}");
    assert!(
        text.ends_with("\nPlease look at the greeting first."),
        "{text}"
    );
}

/// Its commit completes nothing, its result is partial itself, or the pull request was closed meanwhile.
#[tokio::test]
async fn a_round_that_completes_nothing_leaves_the_text() {
    let (world, effects) = pushed().await;
    effects.report_done(URL, None, "1").await.unwrap();
    assert_eq!(writes(&world), NONE);
    let (world, effects) = completing().await;
    let missing = Some("the check failed");
    effects.report_done(URL, missing, "1").await.unwrap();
    assert_eq!(writes(&world), NONE);
    assert_eq!(text(&world), partial_text());
    let (world, effects) = completing().await;
    world.tracker.forge().pulls[0].0.open = false;
    effects.report_done(URL, None, "1").await.unwrap();
    assert_eq!(writes(&world), NONE);
}

/// The pull request cannot be edited. The round is reported all the same.
#[tokio::test]
async fn a_text_that_cannot_be_written_does_not_hold_up_the_report() {
    let (world, effects) = completing().await;
    let fault = ("update_pull_request", refused());
    world.tracker.forge().faults.push(fault);
    for expected in [vec!["update_pull_request 21"], Vec::new()] {
        effects.report_done(URL, None, "1").await.unwrap();
        assert_eq!(writes(&world), expected);
    }
}

#[tokio::test]
async fn what_each_earlier_result_lacks_counts() {
    let world = opened(Some(MISSING)).await;
    let first = round(&world, 1).await;
    let of_origin = vec![MISSING.to_owned()];
    assert_eq!(first.missing_before().await.unwrap(), Some(of_origin));
    push(&first, "commit-2", Some(PLACEHOLDER)).await;
    let missing = missing_after(&world, &first, &ended(Some(PLACEHOLDER))).await;
    assert_eq!(missing.unwrap(), [MISSING, PLACEHOLDER]);

    // What a worker that took over reports in the row alone, also where the first one was about to complete the result.
    let (world, first) = completing().await;
    let failed = "- a later attempt failed: no reply of the model";
    let missing = missing_after(&world, &first, &ended(Some(failed))).await;
    assert_eq!(missing.unwrap(), [MISSING, failed]);
}

#[tokio::test]
async fn a_complete_first_result_needs_no_completion() {
    let world = opened(None).await;
    let first = round(&world, 1).await;
    assert_eq!(first.missing_before().await.unwrap(), None);
    let of_issue = world.reconciler().await.missing_before().await;
    assert_eq!(of_issue.unwrap(), None);
}

/// Also if a result after it is partial: only the comment says so.
#[tokio::test]
async fn after_a_completion_no_round_looks_at_the_text_again() {
    let (world, first) = completing().await;
    first.report_done(URL, None, "1").await.unwrap();
    let second = second(&world, &first, &ended(None)).await;
    assert_eq!(second.missing_before().await.unwrap(), None);
    for missing in [None, Some(PLACEHOLDER)] {
        push(&second, "commit-3", missing).await;
        world.requests();
        second.report_done(URL, missing, "1").await.unwrap();
        assert_eq!(writes(&world), NONE);
    }
    assert_completed(&world);
    end(&world, &second, &ended(Some(PLACEHOLDER))).await;
    let third = round(&world, 3).await;
    assert_eq!(third.missing_before().await.unwrap(), None);
}

/// Retention removed it, a newer version wrote it, or nobody knows whether the result was reported.
#[tokio::test]
async fn where_an_earlier_record_cannot_be_read_nothing_is_completed() {
    let world = opened(Some(MISSING)).await;
    let first = round(&world, 1).await;
    assert_eq!(missing_after(&world, &first, &ended(None)).await, None);

    let world = opened(Some(MISSING)).await;
    let first = round(&world, 1).await;
    let newer = json!({ "pull": 21 });
    first.done(&record(&first), &newer).await.unwrap();
    assert_eq!(missing_after(&world, &first, &ended(None)).await, None);

    let world = opened(Some(MISSING)).await;
    let first = round(&world, 1).await;
    first.begin(&record(&first)).await.unwrap();
    let failed = finish(EndState::Failed, "no reply");
    assert_eq!(missing_after(&world, &first, &failed).await, None);
}

/// A person requested it and stopped it before it pushed anything.
#[tokio::test]
async fn a_task_without_a_result_lacks_nothing() {
    let world = opened(Some(MISSING)).await;
    let stopped = session(&world, "event-9").await;
    let ending = finish(EndState::Stopped, "by mona");
    let missing = missing_after(&world, &stopped, &ending).await;
    assert_eq!(missing.unwrap(), [MISSING]);
}

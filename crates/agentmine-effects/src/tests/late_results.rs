//! Tasks that failed while nobody knew whether their pull request was opened.

use agentmine_domain::{EffectKey, EndState, Task, TaskState};
use agentmine_trackers::NewPullRequest;

use super::forge::{not_found, unavailable};
use super::world::{NONE, World, finish, ours, pull};
use crate::{EffectError, EndReport};

const URL: &str = "https://forge.example/pull/21";

/// A task that failed after the request to open its pull request. The answer was lost, or the request was not sent.
async fn failed(is_opened: bool, missing: Option<&str>) -> World {
    let world = World::new().await;
    let effects = world.session(world.claim().await);
    let new = NewPullRequest {
        head: world.task.branch(),
        ..pull("one")
    };
    match is_opened {
        true => world.tracker.forge().lost.push("create_pull_request"),
        false => world.tracker.forge().refusals.push(unavailable()),
    }
    let opened = effects.pull_request(&new, &ours("commit-1"), missing).await;
    opened.unwrap_err();
    let lease = effects.lease.clone().unwrap();
    let end = finish(EndState::Failed, "no disk");
    world.store.end_lease(&lease, &end).await.unwrap();
    world.requests();
    world
}

/// How a task is recorded: its state, its pull request, and why.
fn recorded(row: &Task) -> (TaskState, Option<&str>, Option<&str>) {
    let Task {
        state,
        pull_request_url,
        reason,
        ..
    } = row;
    (*state, pull_request_url.as_deref(), reason.as_deref())
}

const FAILED: TaskState = TaskState::Ended(EndState::Failed);
const DONE: TaskState = TaskState::Ended(EndState::Done);

#[tokio::test]
async fn a_failed_task_whose_pull_request_is_found_is_done_with_what_is_missing() {
    for (missing, shown) in [
        (None, "- a later attempt failed: no disk"),
        (
            Some("the check failed"),
            "the check failed\n- a later attempt failed: no disk",
        ),
    ] {
        let world = failed(true, missing).await;
        let report = world.report_end().await.unwrap();
        assert_eq!(report, EndReport::Written);
        let row = world.row().await;
        let reason = format!("partial: {shown}");
        assert_eq!(recorded(&row), (DONE, Some(URL), Some(reason.as_str())));
        assert_eq!(
            world.comment(),
            format!(
                "AgentMine opened a pull request with **a partial result**: {URL}\n\nNot done:\n\n```text\n{shown}\n```\n\n\
                 <sub>AgentMine, session ended</sub>"
            )
        );
        assert_eq!(world.labels(), ["bug", "coding agent done"]);
        assert_eq!(world.unreported().await, []);
    }
}

/// It may be merged by now.
#[tokio::test]
async fn a_pull_request_that_was_merged_is_a_result_and_one_that_was_closed_is_none() {
    let world = failed(true, None).await;
    world.tracker.forge().pulls[0].0.open = false;
    world.tracker.forge().pulls[0].0.merged = true;
    world.report_end().await.unwrap();
    assert_eq!(world.row().await.state, DONE);

    let world = failed(true, None).await;
    world.tracker.forge().pulls[0].0.open = false;
    world.report_end().await.unwrap();
    assert_eq!(
        recorded(&world.row().await),
        (FAILED, None, Some("no disk"))
    );
    assert_eq!(
        world.comment(),
        format!(
            "AgentMine could not finish this task:\n\n```text\nno disk\n\
             The pull request was opened, but somebody has closed it since: {URL}\n```\n\n\
             <sub>AgentMine, session ended</sub>"
        )
    );
    assert_eq!(world.labels(), ["bug", "coding agent failed"]);
}

#[tokio::test]
async fn a_failed_task_without_a_pull_request_says_that_there_is_none() {
    let world = failed(false, None).await;
    world.report_end().await.unwrap();
    assert_eq!(
        recorded(&world.row().await),
        (FAILED, None, Some("no disk"))
    );
    assert_eq!(
        world.comment(),
        format!(
            "AgentMine could not finish this task:\n\n```text\nno disk\n\
             The tracker is reachable again: there is no pull request from `{}`.\n```\n\n\
             <sub>AgentMine, session ended</sub>",
            world.task.branch()
        )
    );
    assert_eq!(world.labels(), ["bug", "coding agent failed"]);
}

/// As long as nobody knows whether there is a result, nothing is said of it. Where the item is gone, nobody will ever know.
#[tokio::test]
async fn a_failed_task_is_not_reported_before_its_pull_request_was_looked_for() {
    let world = failed(true, None).await;
    world.tracker.forge().hides_pulls = true;
    let report = world.report_end().await;
    assert!(matches!(report, Err(EffectError::Tracker(_))), "{report:?}");
    assert_eq!(world.requests(), NONE);
    assert_eq!(world.unreported().await.len(), 1);

    let world = failed(true, None).await;
    let gone = ("find_pull_request", not_found());
    world.tracker.forge().faults.push(gone);
    world.report_end().await.unwrap();
    assert_eq!(
        world.comment(),
        "AgentMine could not finish this task:\n\n```text\nno disk\n```\n\n<sub>AgentMine, session ended</sub>"
    );
    assert_eq!(world.row().await.state, FAILED);
}

/// A person stopped it: a pull request that is found is no result of it.
#[tokio::test]
async fn a_stopped_task_stays_stopped_whatever_is_found() {
    let world = World::new().await;
    let effects = world.session(world.claim().await);
    let key = EffectKey::pull_request(&world.task.branch());
    effects.begin(&key).await.unwrap();
    let lease = effects.lease.clone().unwrap();
    let end = finish(EndState::Stopped, "enough");
    world.store.end_lease(&lease, &end).await.unwrap();
    world.report_end().await.unwrap();
    assert_eq!(
        world.comment(),
        format!(
            "AgentMine stopped: enough. Anything that was pushed is on the branch `{}`. \
             Add the label `coding agent` to queue it again.\n\n<sub>AgentMine, session ended</sub>",
            world.task.branch()
        )
    );
    assert_eq!(world.row().await.reason.as_deref(), Some("enough"));
}

//! An issue of GitLab that somebody makes confidential while the fleet works on it.

use agentmine_domain::{Task, TaskState};
use agentmine_tests::forge::DEMO;
use agentmine_tests::model::{Scenario, Script, say};

use crate::item_faults::{STOPPED, end, gitlab, over, pushed, said, stops};
use crate::rig::{PATIENCE, Process, Rig, solves_demo};

fn makes_confidential(rig: &Rig, number: u64) {
    rig.forge.make_confidential(DEMO, number);
}

const CONFIDENTIAL: &str =
    "the issue is confidential, and its merge request would publish what it says";

#[tokio::test]
async fn an_issue_made_confidential_stops_the_session() {
    stops(gitlab().await, makes_confidential, CONFIDENTIAL, Some(DEMO)).await;
}

/// As GitLab reports it, long before anybody looks by himself.
#[tokio::test]
async fn a_webhook_of_an_issue_made_confidential_stops_the_session() {
    let mut rig = gitlab_unwatched(solves_demo()).await;
    let number = rig.label_issue();
    let producer = crate::webhooks::hearing(&mut rig).await;
    rig.model.hold_at(4);
    let consumer = rig.spawn("consumer", &[]);
    rig.model.wait_for_held(1).await;
    makes_confidential(&rig, number);
    stopped_confidential(&rig, number, consumer).await;
    end(producer).await;
    let events = rig.forge.deliveries().into_iter();
    let mut events = events.map(|it| it.event);
    assert!(events.any(|event| event == "Confidential Issue Hook"));
}

/// A GitLab on which no session looks at its item between two of its steps.
async fn gitlab_unwatched(script: impl Into<Script>) -> Rig {
    let mut rig = Rig::local_gitlab(script).await;
    rig.config["consumer"]["item_check_seconds"] = 3600.into();
    rig
}

/// The session is over, stopped since its issue is confidential, and reported that on the issue.
async fn stopped_confidential(rig: &Rig, number: u64, consumer: Process) {
    let task = over(rig).await;
    assert_eq!(task.state, STOPPED, "{:?}", task.reason);
    assert_eq!(task.reason.as_deref(), Some(CONFIDENTIAL));
    let is_shown = |_: &_| rig.forge.labels(DEMO, number) == ["coding agent stopped"];
    rig.forge
        .wait_until("the label says so", PATIENCE, is_shown)
        .await;
    assert!(said(rig, DEMO, number).contains(CONFIDENTIAL));
    end(consumer).await;
}

#[tokio::test]
async fn no_merge_request_is_opened_for_an_issue_made_confidential_just_before() {
    let rig = gitlab_unwatched(solves_demo()).await;
    let (number, consumer) = pushed(&rig).await;
    makes_confidential(&rig, number);
    rig.model.release();
    stopped_confidential(&rig, number, consumer).await;
    assert!(rig.forge.pulls(DEMO).is_empty());
}

/// The draft stays as it is, and gets neither the result nor the text of the issue.
#[tokio::test]
async fn a_draft_gets_no_result_once_its_issue_is_confidential() {
    let mut rig = gitlab_unwatched(solves_demo()).await;
    rig.config["issue_to_mr_conversion"]["enabled"] = true.into();
    let (number, consumer) = pushed(&rig).await;
    let before = rig.forge.pulls(DEMO).remove(0);
    makes_confidential(&rig, number);
    rig.model.release();
    stopped_confidential(&rig, number, consumer).await;
    let pulls = rig.forge.pulls(DEMO);
    let [draft] = pulls.as_slice() else {
        panic!("{pulls:#?}");
    };
    assert!(draft.open && draft.draft, "{draft:#?}");
    assert_eq!((&draft.title, &draft.body), (&before.title, &before.body));
    let reported = said(&rig, DEMO, draft.number);
    assert!(reported.contains(CONFIDENTIAL), "{reported}");
    assert!(!reported.contains("greet"), "{reported}");
}

/// The issue is confidential by the time its draft is to be opened: the branch is named by then.
#[tokio::test]
async fn no_draft_is_opened_for_an_issue_made_confidential_just_before() {
    let naming = Scenario::new("names").when("<issue>");
    let script = Script::new()
        .scenario(naming.replies([say("greet")]))
        .scenario(solves_demo());
    let mut rig = gitlab_unwatched(script).await;
    rig.config["issue_to_mr_conversion"]["enabled"] = true.into();
    rig.config["agent"]["branch_pattern"] = "{bot}-{number}-{description}".into();
    let number = rig.produce_issue().await;
    rig.model.hold_at(0);
    let consumer = rig.spawn("consumer", &[]);
    rig.model.wait_for_held(1).await;
    makes_confidential(&rig, number);
    rig.model.release();
    stopped_confidential(&rig, number, consumer).await;
    assert!(rig.forge.pulls(DEMO).is_empty());
    assert_eq!(rig.forge.pushes(DEMO), Vec::<String>::new());
}

/// A paused task has no session that looks.
#[tokio::test]
async fn a_paused_task_ends_once_its_issue_is_confidential() {
    let rig = gitlab().await;
    let (number, consumer) = pushed(&rig).await;
    let task = rig.task().await;
    rig.store.request_pause(task.id, "lunch").await.unwrap();
    let is_paused = |tasks: &[Task]| tasks.iter().all(|it| it.state == TaskState::Paused);
    rig.wait("it is paused", is_paused).await;
    rig.model.release();
    makes_confidential(&rig, number);
    let producer = rig.spawn("producer", &[]);
    stopped_confidential(&rig, number, consumer).await;
    end(producer).await;
    assert!(rig.forge.pulls(DEMO).is_empty());
}

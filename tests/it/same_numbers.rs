//! GitLab numbers issues and merge requests apart: #1 and !1 of one project are two items, and everything that belongs to one
//! of them stays with it.

use agentmine_domain::{EndState, Task, TaskState};
use agentmine_tests::forge::{BOT, DEMO, HUMAN, IssueView, PullView};
use agentmine_tests::model::{Scenario, Script, commit_and_push, say, shell};

use crate::commands::ours;
use crate::dashboard_issue::rewritten;
use crate::rig::{PATIENCE, REQUEST, Rig, assert_done, solves_demo};
use crate::webhooks::hearing;

const ISSUE: &str = "octo/demo#1";
const MERGE_REQUEST: &str = "octo/demo!1";

/// Solves the sample issue, and does something else on merge request !1 and in a round on it.
fn script() -> Script {
    let adds = |what: &str, words: &str| {
        Scenario::new(what).when(words).replies([
            shell(&format!("echo '# {what}' >> greet.sh")),
            commit_and_push(&format!("Do what {what} asks for")),
            say(&format!("This is for {what}.")),
        ])
    };
    Script::new()
        .scenario(adds("the round", "this is round 1 on it"))
        .scenario(adds("the label", "Merge request !1"))
        .scenario(solves_demo())
}

async fn gitlab() -> Rig {
    let mut rig = Rig::local_gitlab(script()).await;
    rig.config["trackers"]["gitlab"]["dashboard_issue"] = true.into();
    rig.config["rounds"]["settle_seconds"] = 0.into();
    rig
}

/// Issue #1, whose task opened merge request !1.
async fn opened(rig: &Rig) -> (u64, PullView) {
    let issue = rig.produce_issue().await;
    rig.consume().await;
    assert_done(&rig.task().await);
    let pull = rig.forge.pulls(DEMO).remove(0);
    assert_eq!((rig.shown(issue), pull.iid), (1, 1));
    (issue, pull)
}

/// The newest task of an item.
async fn newest(rig: &Rig, item: &str) -> Task {
    let tasks = rig.tasks().await.into_iter();
    let own = tasks.filter(|task| task.item.to_string() == item);
    let newest = own.max_by_key(|task| task.number);
    newest.unwrap_or_else(|| panic!("no task of {item}"))
}

/// The one comment of the bot on an item.
#[track_caller]
fn comment(rig: &Rig, number: u64) -> String {
    let mut ours = ours(rig, number);
    assert_eq!(ours.len(), 1, "{ours:#?}");
    ours.remove(0)
}

/// The dashboard, the command line and the addresses of the items name both tasks.
async fn told_apart(rig: &Rig, (of_issue, of_pull): (&Task, &Task)) {
    let shown = rewritten(rig).await.body;
    let (_, waiting) = shown.split_once("### Waiting (2)").expect(&shown);
    for (mark, task) in [("[#1](", of_issue), ("[!1](", of_pull)] {
        let named = |line: &&str| line.contains(mark);
        let line = waiting.lines().find(named).expect(&shown);
        let task = format!(", task {}", task.number);
        assert!(line.ends_with(&task), "{task}: {line}");
    }
    let listed = rig.agentmine(&["task", "list"], 0).0;
    for (name, task) in [(ISSUE, of_issue), (MERGE_REQUEST, of_pull)] {
        let number = task.number.to_string();
        let is_own = |line: &&str| line.split_whitespace().next() == Some(number.as_str());
        let row = listed.lines().find(is_own).expect(&listed);
        assert!(row.contains(name), "{name}: {row}");
        for named in [name, task.url.as_str()] {
            assert_eq!(rig.why(named, 0)["id"], task.number.0, "{named}");
        }
    }
}

/// Both are worked on at the same time: a command on one of them concerns its task alone.
async fn worked_on_at_once(rig: &Rig, issue: u64, pull: &PullView) {
    for number in [issue, pull.number] {
        rig.forge.add_label(DEMO, number, REQUEST);
    }
    rig.produce().await;
    assert_eq!(rig.tasks().await.len(), 3);
    let (of_issue, of_pull) = (newest(rig, ISSUE).await, newest(rig, MERGE_REQUEST).await);
    assert_ne!(of_issue.number.0, 1, "it was asked for again");
    told_apart(rig, (&of_issue, &of_pull)).await;
    let opening = comment(rig, issue);

    rig.model.hold_at(1);
    let consumer = rig.spawn("consumer", &[]);
    rig.model.wait_for_held(2).await;
    let status = rig.forge.say(DEMO, pull.number, HUMAN, "/agentmine status");
    rig.produce().await;
    let answer = format!("Task {} is at work", of_pull.number);
    assert!(comment(rig, pull.number).contains(&answer));
    assert!(!comment(rig, issue).contains(&answer));
    let stop = rig.forge.say(DEMO, issue, HUMAN, "/agentmine stop");
    rig.produce().await;
    let acknowledged: Vec<u64> = rig.forge.reactions().iter().map(|it| it.comment).collect();
    assert_eq!(acknowledged, [status, stop]);
    let stopped = TaskState::Ended(EndState::Stopped);
    rig.wait("the issue's task to be stopped", |tasks| {
        tasks
            .iter()
            .any(|it| it.id == of_issue.id && it.state == stopped)
    })
    .await;
    rig.model.release();
    rig.wait_ended(3).await;
    assert_done(&newest(rig, MERGE_REQUEST).await);
    let labelled = |number, label: &str| rig.forge.labels(DEMO, number) == [label];
    rig.forge
        .wait_until("the labels say so", PATIENCE, |_| {
            labelled(issue, "coding agent stopped") && labelled(pull.number, "coding agent done")
        })
        .await;
    consumer.terminate();
    let (status, log) = consumer.end().await;
    assert!(status.success(), "{log}");
    let (on_issue, on_pull) = (comment(rig, issue), comment(rig, pull.number));
    assert_ne!(on_issue, opening);
    assert!(on_issue.contains("wrote `/agentmine stop`"), "{on_issue}");
    assert!(on_pull.contains("This is for the label."), "{on_pull}");
    assert_eq!(rig.forge.pulls(DEMO).len(), 1);
}

/// A review is one of the merge request, and so are the round and what is reported of it.
async fn reviewed(rig: &Rig, issue: u64, pull: &PullView) {
    let before = comment(rig, issue);
    rig.forge
        .add_review(DEMO, pull.number, "CHANGES_REQUESTED", "Please.");
    rig.produce().await;
    let round = newest(rig, MERGE_REQUEST).await;
    assert_eq!(round.round(), Some(1));
    rig.consume().await;
    assert_done(&newest(rig, MERGE_REQUEST).await);
    assert_eq!(rig.tasks().await.len(), 4);
    let text = comment(rig, pull.number);
    assert!(text.contains("This is for the round."), "{text}");
    assert_eq!(comment(rig, issue), before);
    let head = rig.forge.file_at(DEMO, &pull.head, "greet.sh").unwrap();
    for part in ["${1:-world}", "# the label", "# the round"] {
        assert!(head.contains(part), "{part}: {head}");
    }
}

/// What is delivered of one of them is followed there.
async fn delivered(mut rig: Rig, issue: u64, pull: &PullView) {
    let producer = hearing(&mut rig).await;
    rig.forge.add_label(DEMO, pull.number, REQUEST);
    rig.wait("the merge request's task", |tasks| tasks.len() == 5)
        .await;
    assert_eq!(newest(&rig, MERGE_REQUEST).await.number.0, 5);
    let again = rig.forge.say(DEMO, issue, HUMAN, "/agentmine retry");
    rig.wait("the issue's task", |tasks| tasks.len() == 6).await;
    assert_eq!(newest(&rig, ISSUE).await.number.0, 6);
    rig.forge
        .wait_until("it is acknowledged", PATIENCE, |forge| {
            let mut reactions = forge.reactions().into_iter();
            reactions.any(|it| it.login == BOT && it.comment == again)
        })
        .await;
    let deliveries = rig.forge.deliveries();
    let mut bodies = deliveries.iter().map(|it| &it.body);
    let label = bodies.find(|it| it["object_kind"] == "merge_request");
    assert_eq!(label.unwrap()["object_attributes"]["iid"], 1);
    producer.terminate();
    let (status, log) = producer.end().await;
    assert!(status.success(), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn issue_1_and_merge_request_1_are_two_tasks_on_gitlab() {
    let rig = gitlab().await;
    let (issue, pull) = opened(&rig).await;
    worked_on_at_once(&rig, issue, &pull).await;
    reviewed(&rig, issue, &pull).await;
    delivered(rig, issue, &pull).await;
}

/// Somebody ticks a box on the dashboard.
fn tick(rig: &Rig, dashboard: &IssueView, mark: &str) {
    rig.forge.let_a_second_pass(DEMO, dashboard.number);
    let ticked = rig.forge.tick(DEMO, dashboard.number, mark, HUMAN);
    assert!(ticked, "{mark}: {}", dashboard.body);
}

/// Held requests, a confidential issue, and the dashboard itself, each of which has the number of a merge request.
#[tokio::test(flavor = "multi_thread")]
async fn the_dashboard_mixes_no_issue_up_with_the_merge_request_of_its_number_on_gitlab() {
    let rig = gitlab().await;
    rig.forge.set_permission(DEMO, "remy", "read");
    let issue = rig.forge.add_issue(DEMO, "Greet", "It should.", &[]);
    let pulls = ["one", "two"].map(|branch| {
        rig.forge.commit(DEMO, branch, "main", |dir| {
            std::fs::write(dir.join("theirs.txt"), branch).unwrap();
        });
        rig.forge.add_pull(DEMO, branch, "main", branch, &[])
    });
    for number in [issue, pulls[0]] {
        assert_eq!(rig.shown(number), 1);
        rig.forge.add_label_as(DEMO, number, REQUEST, "remy");
    }
    rig.produce().await;
    let shown = rewritten(&rig).await;
    let (_, held) = shown
        .body
        .split_once("### Held requests (2)")
        .expect(&shown.body);
    for part in ["[#1](", "[!1](", "agentmine:box start issue 1 "] {
        assert!(held.contains(part), "{part}: {held}");
    }
    tick(&rig, &shown, "agentmine:box start pull_request 1 ");
    rig.produce().await;
    assert_eq!(rig.task().await.item.to_string(), MERGE_REQUEST);

    // The dashboard is never a task, and the merge request of its number may be one.
    assert_eq!(rig.shown(shown.number), rig.shown(pulls[1]));
    for number in [shown.number, pulls[1]] {
        rig.forge.add_label(DEMO, number, REQUEST);
    }
    rig.produce().await;
    let tasks = rig.tasks().await.into_iter();
    let mut items: Vec<String> = tasks.map(|task| task.item.to_string()).collect();
    items.sort();
    assert_eq!(items, [MERGE_REQUEST, "octo/demo!2"]);

    rig.forge.make_confidential(DEMO, issue);
    let shown = rewritten(&rig).await.body;
    assert!(!shown.contains("[#1]("), "{shown}");
    for part in ["[!1](", "[!2](", "confidential"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
}

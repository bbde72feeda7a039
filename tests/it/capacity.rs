//! Limits on what a repository gets of the fleet, on both forges.

use std::collections::BTreeMap;
use std::time::Duration;

use agentmine_control::tasks;
use agentmine_domain::{EndState, Task, TaskState, WorkerId};
use agentmine_tests::forge::{BOT, DEMO, Fault, Forge, HUMAN};
use agentmine_tests::model::{Scenario, say};
use serde_json::json;
use uuid::Uuid;

use crate::apps::until;
use crate::dashboard_issue::let_it_be_written;
use crate::rig::{PATIENCE, REQUEST, Rig, assert_done, solves_demo};

const PROCESSING: &str = "coding agent processing";
const OTHER: &str = "octo/other";

/// Both forges, with the limits that are the defaults.
async fn limited(gitlab: bool) -> Rig {
    let mut rig = match gitlab {
        false => Rig::local(solves_demo()).await,
        true => Rig::local_gitlab(solves_demo()).await,
    };
    rig.config["capacity"] = json!({});
    rig
}

/// A model that says that it is done, and does nothing.
fn does_nothing() -> Scenario {
    Scenario::new("does nothing").replies([say("I have no idea.")])
}

/// By the forge's number of the item: the reasons for which their tasks wait; empty for those that do not.
async fn reasons(rig: &Rig) -> BTreeMap<u64, String> {
    let mut found = BTreeMap::new();
    for task in rig.tasks().await {
        let why = tasks::reasons(rig.store.as_ref(), task.number.0);
        let why = why.await.unwrap();
        let waits = why.iter();
        let mut waits = waits.filter(|it| it.code == "capacity" || it.code == "waits");
        let reason = waits.next().map_or("", |it| it.message.as_str());
        found.insert(rig.forge.number_of(&task.item), reason.to_owned());
    }
    found
}

async fn waiting(rig: &Rig, said: &str) -> usize {
    let reasons = reasons(rig).await;
    let waiting = reasons.values().filter(|reason| reason.contains(said));
    waiting.count()
}

async fn many_delay_those_of_another_repository_by_one(gitlab: bool) {
    let mut rig = limited(gitlab).await;
    rig.config["consumer"]["concurrency"] = 1.into();
    for _ in 0..3 {
        rig.label_issue();
    }
    rig.produce().await;
    // One is ahead of a worker; the others keep the label of the request, and cost no message.
    let tasks = rig.tasks().await;
    assert_eq!(tasks.len(), 3);
    let admitted: Vec<&Task> = tasks
        .iter()
        .filter(|it| it.card.waits_for.is_none())
        .collect();
    assert_eq!(admitted.len(), 1);
    for task in &tasks {
        let expected = if task.card.waits_for.is_some() {
            REQUEST
        } else {
            PROCESSING
        };
        assert_eq!(rig.forge.labels(DEMO, task.item.number), [expected]);
    }
    let said = reasons(&rig).await;
    for place in [
        "it is the next task of its repository",
        "1 task of its repository is ahead of it",
    ] {
        let there = said.values().filter(|reason| reason.contains(place));
        assert_eq!(there.count(), 1, "{place}: {said:?}");
    }

    rig.forge
        .add_repo(OTHER, agentmine_tests::forge::write_demo);
    let key = if gitlab { "projects" } else { "repositories" };
    let tracker = if gitlab { "gitlab" } else { "github" };
    rig.config["trackers"][tracker][key] = json!([DEMO, OTHER]);
    rig.forge.add_issue(
        OTHER,
        "greet.sh greets nobody",
        "It should greet.",
        &[REQUEST],
    );
    rig.produce().await;
    // One slot, and the producer beside it.
    let _producer = rig.spawn("producer", &[]);
    let _consumer = rig.spawn("consumer", &[]);
    let ended = rig.wait_ended(4).await;
    ended.iter().for_each(assert_done);
    let mut order: Vec<&Task> = ended.iter().collect();
    order.sort_by_key(|task| task.updated_at);
    let place = order.iter().position(|task| task.item.repo_path == OTHER);
    assert!(place <= Some(1), "{place:?} of {order:#?}");
    assert_eq!(rig.forge.pulls(DEMO).len(), 3);
}

#[tokio::test]
async fn many_delay_those_of_another_repository_by_one_on_github() {
    many_delay_those_of_another_repository_by_one(false).await;
}

#[tokio::test]
async fn many_delay_those_of_another_repository_by_one_on_gitlab() {
    many_delay_those_of_another_repository_by_one(true).await;
}

async fn open_pull_requests_and_those_of_a_day_are_limited(gitlab: bool) {
    let mut rig = limited(gitlab).await;
    rig.config["capacity"] = json!({
        "open_pull_requests": 1, "pull_requests_per_day": 2, "running_tasks": 9
    });
    for _ in 0..3 {
        rig.label_issue();
    }
    rig.produce().await;
    assert_eq!(
        waiting(&rig, "1 task of its repository wait for a free worker").await,
        2
    );
    let full = "capacity.open_pull_requests is 1";
    rig.consume().await;
    rig.produce().await;
    assert_eq!(waiting(&rig, full).await, 2);
    assert!(
        reasons(&rig)
            .await
            .values()
            .any(|it| it.contains("1 open pull request of"))
    );
    // A labelled pull request opens none, so it is worked on.
    let pulls = rig.forge.pulls(DEMO);
    let on_pull = rig.produce_pull_request().await;
    assert_eq!(rig.forge.labels(DEMO, on_pull), [PROCESSING]);
    rig.consume().await;
    // A person closes the first one: there is room for one more, and then the day is full.
    rig.forge.close(DEMO, pulls[0].number);
    rig.produce().await;
    rig.consume().await;
    let second = rig.forge.pulls(DEMO);
    let second = second.iter().filter(|it| it.author == pulls[0].author);
    let second = second.map(|it| it.number).max().unwrap();
    rig.forge.close(DEMO, second);
    rig.produce().await;
    assert_eq!(
        waiting(&rig, "capacity.pull_requests_per_day is 2").await,
        1
    );
    rig.config["capacity"] = json!({ "quiet_hours": ["00:00-12:00", "12:00-00:00"] });
    rig.produce().await;
    assert_eq!(waiting(&rig, "quiet hours last until").await, 1);
    // What waited under limits is admitted without them.
    rig.config["capacity"] = json!({
        "open_pull_requests": 0, "pull_requests_per_day": 0, "running_tasks": 0
    });
    rig.produce().await;
    assert_eq!(waiting(&rig, "").await, 4);
    assert!(reasons(&rig).await.values().all(String::is_empty));
}

#[tokio::test]
async fn open_pull_requests_and_those_of_a_day_are_limited_on_github() {
    open_pull_requests_and_those_of_a_day_are_limited(false).await;
}

#[tokio::test]
async fn open_pull_requests_and_those_of_a_day_are_limited_on_gitlab() {
    open_pull_requests_and_those_of_a_day_are_limited(true).await;
}

/// A draft that the fleet opened is open for people whatever became of its task.
async fn a_draft_that_a_task_left_counts_until_it_is_closed(gitlab: bool) {
    let mut rig = match gitlab {
        false => Rig::local(does_nothing()).await,
        true => Rig::local_gitlab(does_nothing()).await,
    };
    rig.config["issue_to_mr_conversion"]["enabled"] = true.into();
    rig.config["consumer"]["max_attempts"] = 1.into();
    rig.config["agent"]["max_rounds"] = 1.into();
    rig.config["capacity"] = json!({ "open_pull_requests": 1, "pull_requests_per_day": 2 });
    for _ in 0..3 {
        rig.label_issue();
    }
    for (ended, full) in [
        (1, "capacity.open_pull_requests is 1"),
        (2, "capacity.pull_requests_per_day is 2"),
    ] {
        rig.produce().await;
        rig.consume().await;
        let tasks = rig.tasks().await;
        let failed = TaskState::Ended(EndState::Failed);
        let failed = tasks.iter().filter(|task| task.state == failed);
        assert_eq!(failed.count(), ended, "{tasks:#?}");
        let pulls = rig.forge.pulls(DEMO);
        assert_eq!(pulls.len(), ended, "{pulls:#?}");
        if ended == 2 {
            rig.forge.close(DEMO, pulls[1].number);
        }
        rig.produce().await;
        assert_eq!(
            waiting(&rig, full).await,
            3 - ended,
            "{:?}",
            reasons(&rig).await
        );
        if ended == 1 {
            rig.forge.close(DEMO, pulls[0].number);
        }
    }
}

#[tokio::test]
async fn a_draft_that_a_task_left_counts_until_it_is_closed_on_github() {
    a_draft_that_a_task_left_counts_until_it_is_closed(false).await;
}

#[tokio::test]
async fn a_draft_that_a_task_left_counts_until_it_is_closed_on_gitlab() {
    a_draft_that_a_task_left_counts_until_it_is_closed(true).await;
}

/// No label asks for a task that a command begins once more, so none can have been removed while it waits.
async fn what_a_command_begins_waits_for_its_turn(gitlab: bool) {
    let mut rig = limited(gitlab).await;
    rig.config["capacity"] = json!({ "open_pull_requests": 1 });
    let number = rig.produce_issue().await;
    rig.consume().await;
    let pull = rig.forge.pulls(DEMO)[0].number;
    assert_eq!(rig.forge.labels(DEMO, number), ["coding agent done"]);
    rig.forge.say(DEMO, number, HUMAN, "/agentmine retry");
    for _ in 0..3 {
        rig.produce().await;
    }
    let newest = async |rig: &Rig| {
        let tasks = rig.tasks().await;
        assert_eq!(tasks.len(), 2, "{tasks:#?}");
        tasks.into_iter().max_by_key(|task| task.number).unwrap()
    };
    let waits = newest(&rig).await;
    assert_eq!(waits.state, TaskState::Queued, "{waits:#?}");
    assert!(waits.card.waits_for.is_some(), "{waits:#?}");
    rig.forge.close(DEMO, pull);
    rig.produce().await;
    rig.consume().await;
    assert_done(&newest(&rig).await);
}

#[tokio::test]
async fn what_a_command_begins_waits_for_its_turn_on_github() {
    what_a_command_begins_waits_for_its_turn(false).await;
}

#[tokio::test]
async fn what_a_command_begins_waits_for_its_turn_on_gitlab() {
    what_a_command_begins_waits_for_its_turn(true).await;
}

#[tokio::test]
async fn labels_of_an_item_give_its_task_a_priority_also_while_it_waits() {
    for gitlab in [false, true] {
        let mut rig = limited(gitlab).await;
        rig.config["capacity"]["priority_labels"] =
            json!({ "high": ["Urgent"], "low": ["someday"] });
        rig.forge
            .add_issue(DEMO, "a", "text", &[REQUEST, "someday"]);
        rig.forge.add_issue(DEMO, "b", "text", &[REQUEST]);
        rig.forge
            .add_issue(DEMO, "c", "text", &[REQUEST, "urgent", "someday"]);
        rig.produce().await;
        let found = async |rig: &Rig| {
            let mut tasks = rig.tasks().await;
            tasks.sort_by_key(|task| task.item.number);
            let found = tasks
                .iter()
                .map(|task| (task.priority.as_str(), task.card.waits_for.is_some()));
            found.collect::<Vec<_>>()
        };
        let expected = [("low", true), ("medium", true), ("high", false)];
        assert_eq!(found(&rig).await, expected);
        rig.forge.add_label(DEMO, 1, "urgent");
        rig.produce().await;
        assert_eq!(found(&rig).await[0], ("high", true));
    }
}

/// A producer that is killed around an admission leaves a task that is admitted once. On GitLab alone: the chaos suite
/// kills one on GitHub there.
#[tokio::test]
async fn a_producer_that_is_killed_while_it_admits_loses_and_doubles_nothing() {
    for point in [
        "store.admit.before",
        "store.admit.after",
        "queue.publish.after",
    ] {
        let mut rig = limited(true).await;
        rig.config["capacity"] = json!({ "running_tasks": 1 });
        rig.label_issue();
        rig.label_issue();
        let kill = format!("{point}=kill");
        let (status, log) = rig.spawn_failing("producer", &kill).end().await;
        assert!(!status.success(), "{log}");
        for _ in 0..2 {
            rig.produce().await;
            rig.consume().await;
        }
        rig.tasks().await.iter().for_each(assert_done);
        assert_eq!(rig.forge.pulls(DEMO).len(), 2, "{point}");
    }
}

async fn a_blocked_item_waits_and_a_cycle_is_reported(gitlab: bool) {
    let mut rig = limited(gitlab).await;
    rig.config["capacity"] = json!({ "running_tasks": 9 });
    let first = rig.forge.add_issue(DEMO, "first", "text", &[]);
    let by_text = format!("Blocked by #{first}.");
    let second = rig.forge.add_issue(DEMO, "second", &by_text, &[REQUEST]);
    let third = rig.forge.add_issue(DEMO, "third", "text", &[REQUEST]);
    rig.forge.block(DEMO, third, first);
    let circle = [third + 1, third + 2];
    for (own, other) in [(0, 1), (1, 0)] {
        let text = format!("Depends on #{}", circle[other]);
        let added = rig.forge.add_issue(DEMO, "circle", &text, &[REQUEST]);
        assert_eq!(added, circle[own]);
    }
    rig.produce().await;
    let waits = reasons(&rig).await;
    for number in [second, third] {
        let reason = format!("It waits: it is blocked by #{first}.");
        assert_eq!(waits[&number], reason, "{waits:?}");
        assert_eq!(rig.forge.labels(DEMO, number), [REQUEST]);
    }
    let [a, b] = circle;
    let reason = format!("in a cycle, #{a} by #{b} by #{a};");
    assert!(waits[&a].contains(&reason), "{waits:?}");
    assert!(rig.model.requests().is_empty());

    // One of them is next, the other one after it.
    rig.forge.close(DEMO, first);
    for admitted in 1..=2 {
        look_again(&rig).await;
        rig.produce().await;
        let waits = reasons(&rig).await;
        let free = [second, third].map(|number| waits[&number].is_empty());
        assert_eq!(
            free.iter().filter(|is_free| **is_free).count(),
            admitted,
            "{waits:?}"
        );
        rig.consume().await;
    }
}

/// As if a minute had passed.
async fn look_again(rig: &Rig) {
    let sql = rig.sql().await;
    let past = "UPDATE tasks SET look_at = now() WHERE look_at IS NOT NULL";
    sqlx::query(past).execute(&sql).await.unwrap();
    sql.close().await;
}

#[tokio::test]
async fn a_blocked_item_waits_and_a_cycle_is_reported_on_github() {
    a_blocked_item_waits_and_a_cycle_is_reported(false).await;
}

#[tokio::test]
async fn a_blocked_item_waits_and_a_cycle_is_reported_on_gitlab() {
    a_blocked_item_waits_and_a_cycle_is_reported(true).await;
}

/// Everybody who can read the dashboard issue reads the reason, and not all of them can read the other repository.
async fn an_item_of_a_private_repository_is_not_named(gitlab: bool) {
    const SECRET: &str = "octo/secret-plans";
    let mut rig = limited(gitlab).await;
    rig.config["capacity"] = json!({ "running_tasks": 9 });
    let tracker = if gitlab { "gitlab" } else { "github" };
    rig.config["trackers"][tracker]["dashboard_issue"] = true.into();
    rig.forge.add_repo_without_git(OTHER);
    rig.forge.publish(OTHER, true);
    rig.forge.add_repo_without_git(SECRET);
    let [open, secret] =
        [OTHER, SECRET].map(|repo| (repo, rig.forge.add_issue(repo, "x", "y", &[])));
    let by_open = rig.label_issue();
    rig.forge.block_by(DEMO, by_open, open);
    let by_secret = rig.label_issue();
    rig.forge.block_by(DEMO, by_secret, secret);
    rig.produce().await;
    let waits = reasons(&rig).await;
    let reason = |by: &str| format!("It waits: it is blocked by {by}.");
    assert_eq!(waits[&by_open], reason("octo/other#1"));
    assert_eq!(waits[&by_secret], reason("an item in another repository"));
    let_it_be_written(&rig).await;
    rig.produce().await;
    let dashboards = rig.forge.issues_of(DEMO, BOT).into_iter();
    let text: String = dashboards.map(|it| it.body).collect();
    assert!(
        text.contains("blocked by an item in another repository"),
        "{text}"
    );
    assert!(!text.contains("secret"), "{text}");
}

#[tokio::test]
async fn an_item_of_a_private_repository_is_not_named_on_github() {
    an_item_of_a_private_repository_is_not_named(false).await;
}

#[tokio::test]
async fn an_item_of_a_private_project_is_not_named_on_gitlab() {
    an_item_of_a_private_repository_is_not_named(true).await;
}

#[tokio::test]
async fn a_confidential_issue_that_blocks_another_one_is_not_named_on_gitlab() {
    let rig = limited(true).await;
    let secret = rig.forge.add_issue(DEMO, "x", "y", &[]);
    rig.forge.make_confidential(DEMO, secret);
    let blocked = rig.label_issue();
    rig.forge.block(DEMO, blocked, secret);
    rig.forge.add_repo_without_git(OTHER);
    rig.forge.publish(OTHER, true);
    let elsewhere = rig.forge.add_issue(OTHER, "x", "y", &[]);
    rig.forge.make_confidential(OTHER, elsewhere);
    let by_other = rig.label_issue();
    rig.forge.block_by(DEMO, by_other, (OTHER, elsewhere));
    rig.produce().await;
    let waits = reasons(&rig).await;
    let reason = "It waits: it is blocked by a confidential issue.";
    assert_eq!(waits[&blocked], reason);
    let reason = "It waits: it is blocked by an item in another repository.";
    assert_eq!(waits[&by_other], reason);
}

async fn an_issue_that_an_open_pull_request_closes_waits(gitlab: bool) {
    let rig = limited(gitlab).await;
    rig.forge.commit(DEMO, "theirs", "main", |dir| {
        std::fs::write(dir.join("theirs.txt"), "x\n").unwrap();
    });
    let pull = rig.forge.add_pull(DEMO, "theirs", "main", "Do it", &[]);
    let issue = rig.label_issue();
    let text = format!("Fixes #{}", rig.shown(issue));
    rig.forge.edit_text_as(DEMO, pull, &text, HUMAN);
    rig.produce().await;
    let waits = reasons(&rig).await;
    assert!(
        waits[&issue].contains("an open pull request closes its issue"),
        "{waits:?}"
    );
    rig.forge.close(DEMO, pull);
    look_again(&rig).await;
    rig.produce().await;
    assert_eq!(reasons(&rig).await[&issue], "");
    rig.consume().await;
    rig.tasks().await.iter().for_each(assert_done);
    // More work on an issue whose pull request of AgentMine is open does not wait for that.
    rig.forge.add_label(DEMO, issue, REQUEST);
    rig.produce().await;
    let waits = rig.tasks().await;
    assert!(
        waits.iter().all(|task| task.card.waits_for.is_none()),
        "{waits:#?}"
    );
    assert_eq!(waits.len(), 2);
}

#[tokio::test]
async fn an_issue_that_an_open_pull_request_closes_waits_on_github() {
    an_issue_that_an_open_pull_request_closes_waits(false).await;
}

#[tokio::test]
async fn an_issue_that_an_open_pull_request_closes_waits_on_gitlab() {
    an_issue_that_an_open_pull_request_closes_waits(true).await;
}

#[tokio::test]
async fn a_waiting_task_ends_when_its_label_is_removed_or_its_item_closed() {
    for gitlab in [false, true] {
        let mut rig = limited(gitlab).await;
        rig.config["capacity"] = json!({ "quiet_hours": ["00:00-12:00", "12:00-00:00"] });
        let numbers = [rig.label_issue(), rig.label_issue(), rig.label_issue()];
        rig.produce().await;
        rig.forge.remove_label(DEMO, numbers[0], REQUEST);
        rig.forge.close(DEMO, numbers[1]);
        rig.produce().await;
        let mut tasks = rig.tasks().await;
        tasks.sort_by_key(|task| task.item.number);
        let found: Vec<_> = tasks
            .iter()
            .map(|it| (it.state, it.reason.as_deref()))
            .collect();
        let stopped = TaskState::Ended(EndState::Stopped);
        let removed = "the label `coding agent` was removed";
        assert_eq!(
            found,
            [
                (stopped, Some(removed)),
                (stopped, Some("the item was closed")),
                (TaskState::Queued, None)
            ]
        );
    }
}

/// After it is resumed, its item has the pause's label until its turn comes. That is not a withdrawal, since AgentMine removed
/// the request label; a person who removes the pause's label withdraws the request.
async fn a_waiting_task_that_was_paused_and_continues_is_worked_on(gitlab: bool) {
    const PAUSED: &str = "coding agent paused";
    let mut rig = limited(gitlab).await;
    rig.config["capacity"] = json!({ "quiet_hours": ["00:00-12:00", "12:00-00:00"] });
    let [kept, withdrawn] = [rig.label_issue(), rig.label_issue()];
    rig.produce().await;
    let order = |verb: &str, tasks: &[Task]| {
        for task in tasks {
            rig.agentmine(&["task", verb, &task.number.to_string()], 0);
        }
    };
    order("pause", &rig.tasks().await);
    let consumer = rig.spawn("consumer", &[]);
    let are_shown = |forge: &Forge| {
        let mut both = [kept, withdrawn].into_iter();
        both.all(|number| forge.labels(DEMO, number) == [PAUSED])
    };
    rig.forge
        .wait_until("the pauses are shown", PATIENCE, are_shown)
        .await;
    consumer.terminate();
    consumer.end().await;
    order("resume", &rig.tasks().await);
    rig.forge.remove_label(DEMO, withdrawn, PAUSED);
    rig.produce().await;
    rig.config["capacity"] = json!({});
    rig.produce().await;
    rig.consume().await;
    for task in rig.tasks().await {
        match task.item.number == kept {
            true => assert_done(&task),
            false => {
                assert_eq!(task.state, TaskState::Ended(EndState::Stopped));
                let reason = "the label `coding agent` was removed";
                assert_eq!(task.reason.as_deref(), Some(reason));
            }
        }
    }
}

#[tokio::test]
async fn a_waiting_task_that_was_paused_and_continues_is_worked_on_on_github() {
    a_waiting_task_that_was_paused_and_continues_is_worked_on(false).await;
}

#[tokio::test]
async fn a_waiting_task_that_was_paused_and_continues_is_worked_on_on_gitlab() {
    a_waiting_task_that_was_paused_and_continues_is_worked_on(true).await;
}

/// A producer whose scan takes long must not take the labels of a worker for those of a person: another one has admitted
/// the task since.
async fn a_slow_scan_stops_nothing_that_another_producer_admitted(gitlab: bool) {
    let mut rig = limited(gitlab).await;
    rig.config["capacity"] = json!({ "quiet_hours": ["00:00-12:00", "12:00-00:00"] });
    let number = rig.label_issue();
    rig.produce().await;
    assert_eq!(waiting(&rig, "quiet hours").await, 1);

    let list = Fault::on("GET", "/issues?*labels=").delay(Duration::from_secs(8));
    rig.forge.inject(list);
    let slow = rig.spawn("producer", &["--once"]);
    until("the list is read", || rig.forge.faults_left() == 0).await;
    rig.config["capacity"] = json!({});
    rig.produce().await;
    let task = rig.task().await.id;
    let (worker, lease) = (WorkerId("a/1/0".into()), Duration::from_secs(600));
    let claim = rig.store.claim(task, &worker, Uuid::new_v4(), lease, 3);
    assert!(claim.await.unwrap().is_some());
    assert_eq!(rig.forge.labels(DEMO, number), [PROCESSING]);

    let (status, log) = slow.end().await;
    assert!(status.success(), "{log}");
    let reason = rig.store.request_reason(task).await.unwrap();
    assert_eq!(reason, None, "{log}");
}

#[tokio::test]
async fn a_slow_scan_stops_nothing_that_another_producer_admitted_on_github() {
    a_slow_scan_stops_nothing_that_another_producer_admitted(false).await;
}

#[tokio::test]
async fn a_slow_scan_stops_nothing_that_another_producer_admitted_on_gitlab() {
    a_slow_scan_stops_nothing_that_another_producer_admitted(true).await;
}

//! The dashboard issue of a repository, on both forges: opened once, rewritten when something changed, and its ticks obeyed.

use std::time::{Duration, Instant};

use agentmine_domain::{EndState, NewTask, Priority, Task, TaskState};
use agentmine_tests::forge::{BOT, DEMO, Fault, Forge, HUMAN, IssueView};
use serde_json::json;

use crate::rig::{PATIENCE, REQUEST, Rig, codes, solves_demo};

/// The story on GitHub.
async fn github() -> Rig {
    let mut rig = Rig::local(solves_demo()).await;
    rig.config["trackers"]["github"]["dashboard_issue"] = true.into();
    rig
}

/// The same on GitLab.
async fn gitlab() -> Rig {
    let mut rig = Rig::local_gitlab(solves_demo()).await;
    rig.config["trackers"]["gitlab"]["dashboard_issue"] = true.into();
    rig
}

/// The bot's issues.
fn dashboards(forge: &Forge) -> Vec<IssueView> {
    forge.issues_of(DEMO, BOT)
}

/// The only one.
#[track_caller]
fn dashboard(rig: &Rig) -> IssueView {
    let all = dashboards(&rig.forge);
    let [one] = all.as_slice() else {
        panic!("{all:#?}");
    };
    assert_eq!(one.title, "AgentMine dashboard");
    one.clone()
}

/// The requests that wrote the text of an issue.
fn edits(rig: &Rig, number: u64) -> usize {
    let end = format!("/issues/{number}");
    let of_text =
        |body: &serde_json::Value| body["body"].is_string() || body["description"].is_string();
    let writes = rig.forge.writes().into_iter();
    let edits = writes.filter(|it| it.path.ends_with(&end) && of_text(&it.body));
    edits.count()
}

/// The half minute between two texts is over, and so is the time of a killed holder.
pub(crate) async fn let_it_be_written(rig: &Rig) {
    let sql = "UPDATE dashboards SET written_at = written_at - interval '31 s', held_until = now() - interval '1 s'";
    sqlx::query(sql).execute(&rig.sql().await).await.unwrap();
}

/// While nothing changes, a scan reads the issue of a dashboard once and writes nothing.
async fn is_idle(rig: Rig) {
    rig.label_issue();
    rig.produce().await;
    let number = rewritten(&rig).await.number;
    let_it_be_written(&rig).await;
    let (writes, requests) = (rig.forge.writes().len(), rig.forge.requests().len());
    for _ in 0..3 {
        let_it_be_written(&rig).await;
        rig.produce().await;
    }
    assert_eq!(rig.forge.writes().len(), writes);
    let own = format!("/issues/{number}");
    let seen = rig.forge.requests().split_off(requests);
    let of_issue = seen.iter().filter(|it| {
        let path = it.target.split('?').next().unwrap_or_default();
        path.ends_with(&own) || path.contains(&format!("{own}/"))
    });
    let of_issue: Vec<_> = of_issue.map(|it| &it.target).collect();
    assert_eq!(of_issue.len(), 3, "{of_issue:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_dashboard_is_read_once_a_scan_and_not_written_on_github() {
    is_idle(github().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_dashboard_is_read_once_a_scan_and_not_written_on_gitlab() {
    is_idle(gitlab().await).await;
}

/// A task at work, one that waits for its turn, and a request of somebody who may not start work.
async fn shows(mut rig: Rig) {
    rig.config["capacity"]["running_tasks"] = 1.into();
    rig.forge.set_permission(DEMO, "remy", "read");
    let first = rig.label_issue();
    let title = "/close `this` @octo <!-- agentmine:dashboard 9 --> #1";
    let second = rig.forge.add_issue(DEMO, title, "It should.", &[REQUEST]);
    let third = rig.forge.add_issue(DEMO, "Also this", "It should.", &[]);
    rig.forge.add_label_as(DEMO, third, REQUEST, "remy");
    rig.model.hold_at(2);
    let producer = rig.spawn("producer", &[]);
    let consumer = rig.spawn("consumer", &[]);
    rig.model.wait_for_held(1).await;
    producer.terminate();
    let (status, log) = producer.end().await;
    assert!(status.success(), "{log}");
    let_it_be_written(&rig).await;
    rig.produce().await;

    let shown = dashboard(&rig);
    let part = |from: &str, to: &str| {
        let (_, rest) = shown
            .body
            .split_once(from)
            .unwrap_or_else(|| panic!("{from}: {}", shown.body));
        rest.split(to).next().unwrap_or_default().to_owned()
    };
    let working = part("### At work (1)", "###");
    assert!(
        working.contains(&format!("[#{first}](")) && working.contains("`working`: A worker is "),
        "{working}"
    );
    let waiting = part("### Waiting (1)", "###");
    assert!(waiting.contains(&format!("[#{second}](")), "{waiting}");
    assert!(
        waiting.contains("`capacity`: It waits for its turn: "),
        "{waiting}"
    );
    let held = part("### Held requests (1)", "\0");
    assert!(held.contains(&format!("[#{third}](")), "{held}");
    assert!(
        held.contains("`not_allowed`: remy added the label and may not start work"),
        "{held}"
    );
    // As `task why` says it.
    let why = rig.why("2", 0);
    assert_eq!(codes(&why)[0], "capacity");
    let sentence = why["reasons"][0]["message"].as_str().unwrap();
    assert!(waiting.contains(sentence), "{sentence}\n{waiting}");
    // The text of a title has no effect.
    assert_eq!(
        shown.body.matches("<!-- agentmine:dashboard ").count(),
        2,
        "one is in a code span: {}",
        shown.body
    );
    assert!(waiting.contains("`/close 'this' @octo"), "{waiting}");
    assert_eq!(rig.forge.quick_actions(), Vec::<String>::new());

    // It is not written without a change.
    let written = edits(&rig, shown.number);
    let_it_be_written(&rig).await;
    rig.produce().await;
    assert_eq!(edits(&rig, shown.number), written);

    // A change is written, but not within the half minute.
    rig.model.release();
    let tasks = rig
        .wait("the first end", |t| {
            t.iter().any(|it| matches!(it.state, TaskState::Ended(_)))
        })
        .await;
    let ended = tasks
        .iter()
        .find(|it| matches!(it.state, TaskState::Ended(_)))
        .unwrap();
    crate::rig::assert_done(ended);
    consumer.terminate();
    consumer.end().await;
    sqlx::query("UPDATE dashboards SET written_at = now()")
        .execute(&rig.sql().await)
        .await
        .unwrap();
    rig.produce().await;
    assert_eq!(edits(&rig, shown.number), written);
    let_it_be_written(&rig).await;
    rig.produce().await;
    assert_eq!(edits(&rig, shown.number), written + 1);
    let now = dashboard(&rig);
    assert!(
        !now.body.contains(&format!("[#{first}](")),
        "it is done: {}",
        now.body
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_dashboard_shows_what_works_what_waits_and_why_on_github() {
    shows(github().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_dashboard_shows_what_works_what_waits_and_why_on_gitlab() {
    shows(gitlab().await).await;
}

/// The producer dies around everything that it does for the dashboard.
async fn survives_kills(rig: Rig) {
    rig.label_issue();
    for point in [
        "store.claim_dashboard.before",
        "store.claim_dashboard.after",
        "store.begin_dashboard_text.before",
        "store.begin_dashboard_text.after",
        "tracker.issue_create.before",
        "tracker.issue_create.after",
        "store.found_dashboard.before",
        "store.found_dashboard.after",
    ] {
        rig.killed_at("producer", &[point]).await;
        let_it_be_written(&rig).await;
    }
    rig.produce().await;
    let shown = dashboard(&rig);
    assert!(shown.body.contains("### Waiting (1)"), "{}", shown.body);
    for point in [
        "tracker.issue_edit.before",
        "tracker.issue_edit.after",
        "store.dashboard_shows.before",
        "store.dashboard_shows.after",
        "store.release_dashboard.before",
        "store.release_dashboard.after",
    ] {
        rig.label_issue();
        let_it_be_written(&rig).await;
        rig.killed_at("producer", &[point]).await;
    }
    let_it_be_written(&rig).await;
    rig.produce().await;
    let shown = dashboard(&rig);
    assert!(shown.body.contains("### Waiting (7)"), "{}", shown.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_producer_killed_around_the_dashboard_opens_one_on_github() {
    survives_kills(github().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_producer_killed_around_the_dashboard_opens_one_on_gitlab() {
    survives_kills(gitlab().await).await;
}

/// Where it may not be opened, it is not looked for again in each look.
async fn is_not_opened_again_and_again(mut rig: Rig, list: &str) {
    rig.config["producer"]["interval_seconds"] = 1.into();
    let refused = Fault::on("POST", "/issues$").status(403);
    rig.forge.inject(refused.times(usize::MAX));
    rig.label_issue();
    let producer = rig.spawn("producer", &[]);
    producer.wait_for("its dashboard cannot be updated").await;
    let_it_be_written(&rig).await;
    let before = rig.forge.requests().len();
    rig.forge
        .wait_until("further scans", PATIENCE, |forge| {
            let requests = forge.requests();
            let lists = requests[before..].iter();
            let lists = lists.filter(|it| it.target.contains("/issues?"));
            lists.count() >= 8
        })
        .await;
    producer.terminate();
    let (status, log) = producer.end().await;
    assert!(status.success(), "{log}");
    let requests = rig.forge.requests();
    let tries = requests
        .iter()
        .filter(|it| it.method == "POST" && it.target.ends_with("/issues"));
    assert_eq!(tries.count(), 1);
    let lists = requests.iter().filter(|it| it.target.contains(list));
    assert_eq!(lists.count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dashboard_that_may_not_be_opened_is_not_tried_in_each_look_on_github() {
    is_not_opened_again_and_again(github().await, "state=all&sort=created&direction=asc").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dashboard_that_may_not_be_opened_is_not_tried_in_each_look_on_gitlab() {
    is_not_opened_again_and_again(gitlab().await, "state=all&order_by=created_at").await;
}

/// A person labels it before its number is recorded.
async fn is_never_a_task(rig: Rig) {
    rig.label_issue();
    rig.killed_at("producer", &["store.dashboard_shows.before"])
        .await;
    let shown = dashboard(&rig);
    rig.forge.add_label(DEMO, shown.number, REQUEST);
    rig.produce().await;
    let numbers: Vec<u64> = rig.tasks().await.iter().map(|it| it.item.number).collect();
    assert_eq!(numbers, [shown.number - 1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dashboard_that_was_opened_a_moment_ago_is_never_a_task_on_github() {
    is_never_a_task(github().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dashboard_that_was_opened_a_moment_ago_is_never_a_task_on_gitlab() {
    is_never_a_task(gitlab().await).await;
}

/// Two producers open one, and a person who closes it is done with it. It is never a task.
async fn is_one_and_may_be_closed(rig: Rig) {
    rig.label_issue();
    let producers = [rig.spawn("producer", &[]), rig.spawn("producer", &[])];
    rig.forge
        .wait_until("there is a dashboard", PATIENCE, |forge| {
            !dashboards(forge).is_empty()
        })
        .await;
    let shown = dashboard(&rig);
    rig.forge.add_label(DEMO, shown.number, REQUEST);
    let next = rig.label_issue();
    rig.wait("the next task", |tasks| {
        tasks.iter().any(|it| it.item.number == next)
    })
    .await;
    for producer in producers {
        producer.terminate();
        let (status, log) = producer.end().await;
        assert!(status.success(), "{log}");
    }
    assert_eq!(edits(&rig, shown.number), 0, "within half a minute");
    rig.produce().await;
    let numbers: Vec<u64> = rig.tasks().await.iter().map(|it| it.item.number).collect();
    assert!(!numbers.contains(&shown.number), "{numbers:?}");
    let why = rig.why(&format!("{DEMO}#{}", shown.number), 0);
    assert_eq!(codes(&why)[0], "refused", "{why}");

    rig.forge.close(DEMO, shown.number);
    let_it_be_written(&rig).await;
    rig.produce().await;
    assert_eq!(edits(&rig, shown.number), 0);
    assert_eq!(dashboard(&rig).body, shown.body);
    // Nor if the record is lost.
    let forget = "DELETE FROM dashboards";
    sqlx::query(forget).execute(&rig.sql().await).await.unwrap();
    rig.produce().await;
    rig.produce().await;
    assert_eq!(
        dashboard(&rig),
        IssueView {
            open: false,
            ..shown
        }
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn two_producers_keep_one_dashboard_and_a_closed_one_stays_closed_on_github() {
    is_one_and_may_be_closed(github().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_producers_keep_one_dashboard_and_a_closed_one_stays_closed_on_gitlab() {
    is_one_and_may_be_closed(gitlab().await).await;
}

/// What somebody who may not start work writes into an issue of their own is not taken for the dashboard.
#[tokio::test(flavor = "multi_thread")]
async fn an_issue_of_somebody_else_with_the_marker_is_not_the_dashboard_on_github() {
    an_issue_with_the_marker_is_not_the_dashboard(github().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_issue_of_somebody_else_with_the_marker_is_not_the_dashboard_on_gitlab() {
    an_issue_with_the_marker_is_not_the_dashboard(gitlab().await).await;
}

async fn an_issue_with_the_marker_is_not_the_dashboard(rig: Rig) {
    let text = "<!-- agentmine:dashboard 1 -->\nmine";
    let foreign = rig.forge.add_issue(DEMO, "AgentMine dashboard", text, &[]);
    rig.label_issue();
    rig.produce().await;
    assert_ne!(dashboard(&rig).number, foreign);
    let own = rig.forge.issues_of(DEMO, HUMAN);
    assert_eq!(own[0].body, text);
}

/// An issue that became confidential is counted, and not named.
#[tokio::test(flavor = "multi_thread")]
async fn a_confidential_issue_is_not_named_on_the_dashboard() {
    let rig = gitlab().await;
    let number = rig
        .forge
        .add_issue(DEMO, "a secret title", "It should.", &[REQUEST]);
    rig.produce().await;
    let shown = dashboard(&rig);
    assert!(shown.body.contains("a secret title"), "{}", shown.body);
    rig.forge.make_confidential(DEMO, number);
    let_it_be_written(&rig).await;
    rig.produce().await;
    let body = dashboard(&rig).body;
    assert!(!body.contains("a secret title"), "{body}");
    assert!(
        body.contains("1 task on a confidential issue is not shown."),
        "{body}"
    );
}

async fn end(process: crate::rig::Process) {
    process.terminate();
    let (status, log) = process.end().await;
    assert!(status.success(), "{log}");
}

/// The next text of the dashboard is written by a scan.
pub(crate) async fn rewritten(rig: &Rig) -> IssueView {
    let_it_be_written(rig).await;
    rig.produce().await;
    dashboard(rig)
}

/// What was ticked is obeyed for people who may start work, and undone for others.
async fn obeys(mut rig: Rig) {
    rig.config["capacity"]["running_tasks"] = 1.into();
    rig.forge.set_permission(DEMO, "remy", "read");
    let first = rig.label_issue();
    let second = rig.label_issue();
    let third = rig.forge.add_issue(DEMO, "Also this", "It should.", &[]);
    rig.forge.add_label_as(DEMO, third, REQUEST, "remy");
    rig.model.hold_at(2);
    let producer = rig.spawn("producer", &[]);
    let consumer = rig.spawn("consumer", &[]);
    rig.model.wait_for_held(1).await;
    end(producer).await;
    let shown = rewritten(&rig).await;
    let number = shown.number;
    let tick = |mark: &str, who: &str| {
        rig.forge.let_a_second_pass(DEMO, number);
        let body = dashboard(&rig).body;
        assert!(rig.forge.tick(DEMO, number, mark, who), "{mark}: {body}");
    };

    // Nobody is heard who may not start work.
    tick("agentmine:box stop task 1 ", "remy");
    let undone = rewritten(&rig).await.body;
    let is_leased = |tasks: &[Task]| {
        tasks
            .iter()
            .any(|it| it.item.number == first && matches!(it.state, TaskState::Leased(_)))
    };
    assert!(is_leased(&rig.tasks().await));
    assert!(
        undone.contains("remy changed this text and may not start work"),
        "{undone}"
    );
    assert!(
        undone.contains("[ ] Stop it <!-- agentmine:box stop task 1 -->"),
        "{undone}"
    );
    assert!(!undone.contains("[x]"), "{undone}");
    let request = rig
        .store
        .request_reason(rig.tasks().await.last().unwrap().id)
        .await
        .unwrap();
    assert_eq!(request, None);

    // A task that waits is started whatever its repository has.
    tick("agentmine:box start task 2 ", HUMAN);
    rig.produce().await;
    let tasks = rig.tasks().await;
    let waiting = tasks.iter().find(|it| it.item.number == second).unwrap();
    assert_eq!(waiting.card.waits_for, None);
    rig.forge
        .wait_until("the label says so", PATIENCE, |forge| {
            forge.labels(DEMO, second) == ["coding agent processing"]
        })
        .await;
    let said = rewritten(&rig).await.body;
    assert!(
        said.contains(&format!("> {HUMAN} ticked a box: task 2 is started.")),
        "{said}"
    );

    // So is one that somebody else may not start.
    tick(&format!("agentmine:box start issue {third} "), HUMAN);
    rig.produce().await;
    let tasks = rig.tasks().await;
    assert!(tasks.iter().any(|it| it.item.number == third), "{tasks:#?}");

    let said = rewritten(&rig).await.body;
    let begun = format!("> {HUMAN} ticked a box: the request is task 3.");
    assert!(said.contains(&begun), "{said}");

    // Work is stopped, and begun once more, once.
    tick("agentmine:box stop task 1 ", HUMAN);
    rig.produce().await;
    let stopped =
        |it: &Task| it.item.number == first && it.state == TaskState::Ended(EndState::Stopped);
    let tasks = rig.wait("a stop", |tasks| tasks.iter().any(stopped)).await;
    let task = tasks.iter().find(|it| stopped(it)).unwrap();
    let reason = format!("{HUMAN} ticked a box on the dashboard");
    assert_eq!(task.reason.as_ref(), Some(&reason));
    rig.model.release();
    end(consumer).await;
    let said = rewritten(&rig).await.body;
    let stopped = format!("> {HUMAN} ticked a box: task 1 is stopped.");
    assert!(said.contains(&stopped), "{said}");
    tick("agentmine:box retry task 1 ", HUMAN);
    for _ in 0..3 {
        rig.produce().await;
    }
    let tasks = rig.tasks().await;
    let again = tasks.iter().filter(|it| it.item.number == first).count();
    assert_eq!(again, 2, "{tasks:#?}");
    let said = rewritten(&rig).await.body;
    assert!(said.contains("task 1 continues as task 4"), "{said}");
    assert!(!said.contains("[x]"), "{said}");
    assert_eq!(rig.forge.quick_actions(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn ticks_start_retry_and_stop_for_people_who_may_start_work_on_github() {
    obeys(github().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ticks_start_retry_and_stop_for_people_who_may_start_work_on_gitlab() {
    obeys(gitlab().await).await;
}

/// A tick that comes while the text is written again is obeyed, and shown as settled.
async fn is_kept_in_a_rewrite(rig: Rig) {
    rig.label_issue();
    rig.produce().await;
    let number = dashboard(&rig).number;
    rig.forge.let_a_second_pass(DEMO, number);
    let_it_be_written(&rig).await;
    rig.label_issue();
    // What was read before is late.
    let read = Fault::on("GET", &format!("/issues/{number}$"));
    rig.forge.inject(read.answered_late(Duration::from_secs(3)));
    let producer = rig.spawn("producer", &["--once"]);
    rig.forge
        .wait_until("it is read", PATIENCE, |forge| forge.faults_left() == 0)
        .await;
    assert!(
        rig.forge
            .tick(DEMO, number, "agentmine:box stop task 1 ", HUMAN)
    );
    let (status, log) = producer.end().await;
    assert!(status.success(), "{log}");
    let tasks = rig.tasks().await;
    assert_eq!(tasks[1].state, TaskState::Ended(EndState::Stopped));
    let said = dashboard(&rig).body;
    assert!(said.contains("### Waiting (1)"), "it was written: {said}");
    assert!(said.contains("task 1 is stopped"), "{said}");
    assert!(!said.contains("[x]"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tick_during_a_rewrite_is_obeyed_on_github() {
    is_kept_in_a_rewrite(github().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tick_during_a_rewrite_is_obeyed_on_gitlab() {
    is_kept_in_a_rewrite(gitlab().await).await;
}

/// Two producers find the same ticks, since the text is not written again at once: what came of each of them is said.
async fn says_what_came_of_each(rig: Rig) {
    let (paused, over, again) = (rig.label_issue(), rig.label_issue(), rig.label_issue());
    rig.produce().await;
    let of = async |number: u64| {
        let tasks = rig.tasks().await;
        let task = tasks.into_iter().find(|it| it.item.number == number);
        task.unwrap()
    };
    let [paused, over, again] = [of(paused).await, of(over).await, of(again).await];
    rig.store.request_pause(paused.id, "lunch").await.unwrap();
    rig.store.request_stop(again.id, "no").await.unwrap();
    let number = rewritten(&rig).await.number;
    rig.forge.let_a_second_pass(DEMO, number);
    rig.store.request_stop(over.id, "no").await.unwrap();
    let boxes = [
        format!("start task {}", paused.number),
        format!("stop task {}", over.number),
        format!("retry task {}", again.number),
    ];
    for one in boxes {
        let mark = format!("agentmine:box {one} ");
        let body = dashboard(&rig).body;
        assert!(rig.forge.tick(DEMO, number, &mark, HUMAN), "{mark}: {body}");
    }
    for _ in 0..3 {
        rig.produce().await;
    }
    assert!(
        dashboard(&rig).body.contains("[x]"),
        "it was not written yet"
    );
    assert_eq!(of(paused.item.number).await.state, TaskState::Queued);
    assert_eq!(rig.tasks().await.len(), 4);
    let said = rewritten(&rig).await.body;
    for part in [
        format!("task {} continues", paused.number),
        format!("task {} was already over", over.number),
        format!("task {} continues as task 4", again.number),
    ] {
        assert!(said.contains(&part), "{part}: {said}");
    }
    assert!(!said.contains("[x]"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_came_of_each_tick_is_said_although_two_producers_found_them_on_github() {
    says_what_came_of_each(github().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_came_of_each_tick_is_said_although_two_producers_found_them_on_gitlab() {
    says_what_came_of_each(gitlab().await).await;
}

/// The producer dies around everything that a tick makes it do.
async fn is_obeyed_once(rig: Rig) {
    rig.label_issue();
    rig.produce().await;
    let task = rig.task().await;
    rig.store.request_stop(task.id, "no").await.unwrap();
    let number = rewritten(&rig).await.number;
    rig.forge.let_a_second_pass(DEMO, number);
    assert!(
        rig.forge
            .tick(DEMO, number, "agentmine:box retry task 1 ", HUMAN)
    );
    for point in [
        "store.enqueue.before",
        "store.enqueue.after",
        "store.note_on_dashboard.before",
        "store.note_on_dashboard.after",
        "tracker.issue_edit.before",
        "tracker.issue_edit.after",
    ] {
        let_it_be_written(&rig).await;
        rig.killed_at("producer", &[point]).await;
    }
    rewritten(&rig).await;
    assert_eq!(rig.tasks().await.len(), 2);
    let said = rewritten(&rig).await.body;
    assert!(
        said.contains("task 1 continues as task 2") && !said.contains("[x]"),
        "{said}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_producer_killed_around_a_tick_obeys_it_once_on_github() {
    is_obeyed_once(github().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_producer_killed_around_a_tick_obeys_it_once_on_gitlab() {
    is_obeyed_once(gitlab().await).await;
}

/// When a delivery comes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Delivery {
    AfterALook,
    /// The producer has read the issue, and holds the dashboard.
    DuringALook,
}

/// How long a look takes during which a delivery comes. The next look of the producer by itself is half a minute after it began.
const LONG_LOOK: Duration = Duration::from_secs(12);

/// A delivery makes the producer look at once; its own looks are too rare.
async fn obeyed_by_webhooks(mut rig: Rig, delivery: Delivery) {
    // Nobody else takes the dashboard from a look that lasts long.
    rig.config["consumer"]["lease_seconds"] = 20.into();
    let hook = crate::webhooks::hook(&mut rig);
    rig.label_issue();
    rig.produce().await;
    let number = dashboard(&rig).number;
    rig.forge.let_a_second_pass(DEMO, number);
    if delivery == Delivery::DuringALook {
        let read = Fault::on("GET", &format!("/issues/{number}$"));
        // A delivery is followed twice, five seconds apart, and there may be another one: this look holds the dashboard each time.
        rig.forge.inject(read.answered_late(LONG_LOOK));
    }
    let looked = rig.forge.requests().len();
    let producer = rig.spawn("producer", &[]);
    let end_of_look = format!("/issues/{number}");
    rig.forge
        .wait_until("it looked by itself", PATIENCE, |forge| {
            let mut later = forge.requests().into_iter().skip(looked);
            match delivery {
                Delivery::AfterALook => later.any(|it| it.target.ends_with(&end_of_look)),
                Delivery::DuringALook => forge.faults_left() == 0,
            }
        })
        .await;
    let begun = Instant::now();
    rig.forge.add_hook(hook);
    assert!(
        rig.forge
            .tick(DEMO, number, "agentmine:box stop task 1 ", HUMAN)
    );
    let task = rig.wait_ended(1).await.remove(0);
    let limit = match delivery {
        Delivery::AfterALook => Duration::from_secs(15),
        Delivery::DuringALook => LONG_LOOK + Duration::from_secs(8),
    };
    assert!(begun.elapsed() < limit, "{:?}", begun.elapsed());
    assert_eq!(task.state, TaskState::Ended(EndState::Stopped));
    end(producer).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_webhooks_a_tick_is_obeyed_within_fifteen_seconds_on_github() {
    obeyed_by_webhooks(github().await, Delivery::AfterALook).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_webhooks_a_tick_is_obeyed_within_fifteen_seconds_on_gitlab() {
    obeyed_by_webhooks(gitlab().await, Delivery::AfterALook).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tick_whose_webhook_comes_during_a_look_is_obeyed_soon_after_it_on_github() {
    obeyed_by_webhooks(github().await, Delivery::DuringALook).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tick_whose_webhook_comes_during_a_look_is_obeyed_soon_after_it_on_gitlab() {
    obeyed_by_webhooks(gitlab().await, Delivery::DuringALook).await;
}

/// More tasks wait than are shown; the dashboard counts them all, and begins with those that are next.
#[tokio::test(flavor = "multi_thread")]
async fn of_many_tasks_that_wait_the_dashboard_shows_the_next_ones_on_github() {
    let mut rig = github().await;
    rig.config["capacity"] = json!({ "quiet_hours": ["00:00-12:00", "12:00-00:00"] });
    rig.label_issue();
    rig.produce().await;
    let first = rig.task().await;
    for number in 1..=599 {
        let mut item = first.item.clone();
        item.number = 10_000 + number;
        let new = NewTask {
            item,
            trigger: "e1".into(),
            title: format!("later {number}"),
            url: first.url.clone(),
            priority: match number {
                7 => Priority::High,
                _ => Priority::Medium,
            },
        };
        rig.store.enqueue_waiting(&new).await.unwrap();
    }
    let_it_be_written(&rig).await;
    rig.produce().await;
    let text = dashboard(&rig).body;
    let (_, waiting) = text.split_once("### Waiting (600)").expect(&text);
    let tasks = waiting.lines().filter(|line| line.contains(", task "));
    let tasks: Vec<&str> = tasks.filter_map(|line| line.rsplit(' ').next()).collect();
    assert_eq!(tasks[..4], ["8", "1", "2", "3"], "{text}");
    assert!(waiting.contains("- and 560 more"), "{text}");
}

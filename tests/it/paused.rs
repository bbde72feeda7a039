//! Many tasks whose items a producer looks at: a pass looks at some of them, the next one at those after them, and scans do not
//! wait for any of it.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use agentmine_domain::{EndState, NewTask, Priority, Task, TaskState, pause_label_reason};
use agentmine_tests::forge::{DEMO, Fault, Forge};

use crate::rig::{PATIENCE, Rig, on_both_forges, solves_demo};

const MANY: usize = 450;
/// So many items one pass looks at, and so many of them at once.
const ONE_PASS: usize = 200;
const AT_ONCE: usize = 8;
const PAUSE: &str = "coding agent pause";

/// The numbers of issues with the pause label, whose tasks are paused by it, oldest first.
async fn paused_by_label(rig: &Rig) -> Vec<u64> {
    rig.produce_issue().await;
    let first = rig.task().await;
    let numbers: Vec<u64> = (0..MANY)
        .map(|_| rig.forge.add_issue(DEMO, "paused", "text", &[PAUSE]))
        .collect();
    let reason = pause_label_reason(PAUSE);
    for number in &numbers {
        let mut item = first.item.clone();
        item.number = *number;
        let new = NewTask {
            item,
            trigger: "e1".into(),
            title: "paused".into(),
            url: first.url.clone(),
            priority: Priority::Medium,
        };
        rig.store.enqueue(&new).await.unwrap();
    }
    for task in rig.tasks().await.iter().filter(|it| it.id != first.id) {
        assert!(rig.store.request_pause(task.id, &reason).await.unwrap());
    }
    numbers
}

/// The reads of these issues, each by itself, in the order of the answers.
fn looks(forge: &Forge, of: &HashSet<u64>) -> Vec<u64> {
    let requests = forge.requests().into_iter();
    let numbers = requests.filter_map(|seen| {
        let (_, number) = seen.target.rsplit_once("/issues/")?;
        number.parse().ok()
    });
    numbers.filter(|number| of.contains(number)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_of_many_paused_tasks_is_looked_at_in_turn_and_scans_do_not_wait() {
    let mut rig = Rig::local(solves_demo()).await;
    rig.config["consumer"]["heartbeat_loss_seconds"] = 2.into();
    rig.config["consumer"]["lease_seconds"] = 3.into();
    let numbers = paused_by_label(&rig).await;
    // The newest, one in the middle, and the oldest.
    let [closed, continued, oldest] = [numbers[MANY - 1], numbers[MANY / 2], numbers[0]];
    rig.forge.close(DEMO, closed);
    for number in [continued, oldest] {
        rig.forge.remove_label(DEMO, number, PAUSE);
    }
    let mut stay: HashSet<u64> = numbers.iter().copied().collect();
    stay.retain(|number| ![closed, continued, oldest].contains(number));

    // A pass takes 25 seconds, and begins once more as soon as it is over.
    let slow = Fault::on("GET", "/issues/").times(usize::MAX);
    rig.forge.inject(slow.delay(Duration::from_secs(1)));
    let producer = rig.spawn("producer", &[]);
    let has_begun = |forge: &Forge| !looks(forge, &stay).is_empty();
    rig.forge
        .wait_until("a pass begins", PATIENCE, has_begun)
        .await;
    let number = rig.label_issue();
    let is_found = |tasks: &[Task]| tasks.iter().any(|task| task.item.number == number);
    rig.wait("a scan to find the issue", is_found).await;
    let meanwhile = looks(&rig.forge, &stay).len();
    assert!(meanwhile < ONE_PASS - AT_ONCE, "after {meanwhile} looks");
    rig.forge.heal();

    let state = |tasks: &[Task], number| {
        let mut all = tasks.iter();
        all.find(|task| task.item.number == number).unwrap().state
    };
    let go_on = |tasks: &[Task]| {
        state(tasks, closed) == TaskState::Ended(EndState::Stopped)
            && [continued, oldest].map(|number| state(tasks, number)) == [TaskState::Queued; 2]
    };
    let tasks = rig.wait("those without a reason go on", go_on).await;
    let paused = tasks.iter().filter(|it| it.state == TaskState::Paused);
    assert_eq!(paused.count(), stay.len());
    // None was looked at twice before each was looked at once, but for those that follow in the same moment.
    let mut left = stay.clone();
    let looks = looks(&rig.forge, &stay);
    let last = looks.iter().position(|number| {
        left.remove(number);
        left.is_empty()
    });
    let last = last.expect("each was looked at");
    assert!(last < stay.len() + AT_ONCE, "{last} looks");
    producer.terminate();
    let (status, log) = producer.end().await;
    assert!(status.success(), "{log}");
}

/// As many items as are looked at at once.
async fn hanging_looks_do_not_delay_a_scan(rig: Rig) {
    let numbers: Vec<u64> = (0..AT_ONCE).map(|_| rig.label_issue()).collect();
    rig.produce().await;
    assert_eq!(rig.tasks().await.len(), AT_ONCE);
    for number in numbers {
        let shown = rig.shown(number);
        let read = Fault::on("GET", &format!("/issues/{shown}$"));
        rig.forge.inject(read.delay(Duration::from_secs(600)));
    }
    let producer = rig.spawn("producer", &[]);
    // No request ends any more that could be awaited.
    rig.wait("all looks to hang", |_| rig.forge.faults_left() == 0)
        .await;
    let begun = Instant::now();
    rig.label_issue();
    rig.wait("a scan to find the issue", |tasks| tasks.len() > AT_ONCE)
        .await;
    // A request without an answer is given up after 30 s.
    let after = begun.elapsed();
    assert!(after < Duration::from_secs(20), "{after:?}");
    producer.kill_nine();
}

on_both_forges! { solves_demo() => hanging_looks_do_not_delay_a_scan }

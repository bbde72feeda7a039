//! The life of a task by the deliveries of the forge alone, on both forges: the scans of the producer and the looks of the
//! worker are an hour apart. Deliveries may be late, repeated, out of order or lost: the scan remains the truth.

use std::time::{Duration, Instant};

use agentmine_domain::{EndState, Task, TaskState};
use agentmine_tests::forge::{BOT, DEMO, Delivery, Forge, HUMAN, Order, Sending, Sent};
use agentmine_tests::model::{Scenario, Script, commit_and_push, say, shell};

use crate::queued_items::is_recorded;
use crate::rig::{PATIENCE, REQUEST, Rig, assert_done, on_both_forges, solves_demo};
use crate::webhooks::{hearing, hook};

/// Within which a change is followed: no look of the fleet by itself is as early.
const LIMIT: Duration = Duration::from_secs(15);

const PROCESSING: &str = "coding agent processing";

/// Solves the sample issue, and commits something in each round.
fn script() -> Script {
    let round = |name: &str| {
        Scenario::new(name)
            .when(&format!("this is {name} on it"))
            .replies([
                shell(&format!("echo '# {name}' >> greet.sh")),
                commit_and_push(&format!("Do {name}")),
                say("I did it."),
            ])
    };
    Script::new()
        .scenario(round("round 1"))
        .scenario(round("round 2"))
        .scenario(solves_demo())
}

fn looks_rarely(rig: &mut Rig) {
    rig.config["consumer"]["item_check_seconds"] = 3600.into();
    rig.config["consumer"]["lease_seconds"] = 60.into();
    rig.config["rounds"]["settle_seconds"] = 0.into();
}

/// A person does something, and it is so within [`LIMIT`].
async fn follows(rig: &Rig, what: &str, act: impl FnOnce(), is_so: impl Fn(&[Task]) -> bool) {
    let begun = Instant::now();
    act();
    rig.wait(what, is_so).await;
    let after = begun.elapsed();
    assert!(after < LIMIT, "{what}: {after:?}");
}

/// A command is obeyed.
async fn wait_for_reaction(rig: &Rig, comment: u64) {
    let is_so = |forge: &Forge| {
        let mut reactions = forge.reactions().into_iter();
        reactions.any(|it| it.login == BOT && it.comment == comment)
    };
    rig.forge.wait_until("the reaction", PATIENCE, is_so).await;
}

/// A label, a command, a review, a red check.
async fn a_life(mut rig: Rig) {
    looks_rarely(&mut rig);
    let producer = hearing(&mut rig).await;
    let consumer = rig.spawn("consumer", &[]);
    let number = rig
        .forge
        .add_issue(DEMO, "greet.sh greets nobody", "It should greet.", &[]);
    let label = || rig.forge.add_label(DEMO, number, REQUEST);
    follows(&rig, "a task", label, |tasks| tasks.len() == 1).await;
    rig.wait_ended(1).await;
    let pull = rig.forge.pulls(DEMO).remove(0);

    // A look of the fleet by itself may find the first one; the next look is 45 s later.
    for _ in 0..2 {
        let begun = Instant::now();
        let asked = rig.forge.say(DEMO, pull.number, HUMAN, "/agentmine status");
        wait_for_reaction(&rig, asked).await;
        assert!(begun.elapsed() < LIMIT, "{:?}", begun.elapsed());
    }

    let review = || {
        rig.forge
            .add_review(DEMO, pull.number, "CHANGES_REQUESTED", "Please.");
    };
    follows(&rig, "a round", review, |tasks| tasks.len() == 2).await;
    rig.wait_ended(2).await;
    let head = rig.forge.branch_sha(DEMO, &pull.head).unwrap();
    assert_ne!(head, pull.head_sha);
    let fails = || {
        rig.forge
            .add_job(DEMO, &head, "test", "failure", "it failed")
    };
    follows(&rig, "a second round", fails, |tasks| tasks.len() == 3).await;
    for task in rig.wait_ended(3).await {
        assert_done(&task);
    }
    assert_ne!(rig.forge.branch_sha(DEMO, &pull.head).unwrap(), head);

    for process in [producer, consumer] {
        process.terminate();
        let (status, log) = process.end().await;
        assert!(status.success(), "{log}");
    }
    // Also what the fleet itself did, by the API and by git.
    let deliveries = rig.forge.deliveries();
    let by_bot = |field: &str| {
        let mut all = deliveries.iter();
        all.any(|it| it.body[field]["login"] == BOT || it.body[field]["username"] == BOT)
    };
    assert!(by_bot("sender") || by_bot("user"));
    let is_push = |it: &Delivery| {
        it.body["action"] == "synchronize" || !it.body["object_attributes"]["oldrev"].is_null()
    };
    assert!(deliveries.iter().filter(|it| is_push(it)).count() >= 2);
}

/// Closing an item stops its session, and removing the label that of another one.
async fn stops(mut rig: Rig) {
    looks_rarely(&mut rig);
    let producer = hearing(&mut rig).await;
    rig.model.hold_at(2);
    let consumer = rig.spawn("consumer", &[]);
    let numbers = [rig.label_issue(), rig.label_issue()];
    rig.model.wait_for_held(2).await;
    let ends = || {
        rig.forge.close(DEMO, numbers[0]);
        for label in rig.forge.labels(DEMO, numbers[1]) {
            rig.forge.remove_label(DEMO, numbers[1], &label);
        }
    };
    let stopped = TaskState::Ended(EndState::Stopped);
    let are_stopped = |tasks: &[Task]| tasks.iter().all(|task| task.state == stopped);
    follows(&rig, "the tasks are stopped", ends, are_stopped).await;
    rig.model.release();
    for process in [producer, consumer] {
        process.terminate();
        assert!(process.end().await.0.success());
    }
}

/// No worker runs: closing an item ends its task, and removing the label that of another one, long before a producer looks by
/// itself.
async fn stops_what_waits(mut rig: Rig) {
    looks_rarely(&mut rig);
    let producer = hearing(&mut rig).await;
    let [closed, withdrawn, third] = [rig.label_issue(), rig.label_issue(), rig.label_issue()];
    rig.wait("the tasks", |tasks| tasks.len() == 3).await;
    let are_labelled = |forge: &Forge| {
        let mut all = [closed, withdrawn, third].into_iter();
        all.all(|number| forge.labels(DEMO, number) == [PROCESSING])
    };
    rig.forge
        .wait_until("they are labelled", PATIENCE, are_labelled)
        .await;
    rig.forge.deliveries_sent().await;
    let ends = || {
        rig.forge.close(DEMO, closed);
        rig.forge.remove_label(DEMO, withdrawn, PROCESSING);
    };
    let are_stopped = |tasks: &[Task]| {
        let mut over = tasks.iter().filter(|task| task.item.number != third);
        over.all(|task| task.state == TaskState::Ended(EndState::Stopped))
    };
    follows(&rig, "the tasks are stopped", ends, are_stopped).await;
    for task in rig.tasks().await {
        let reason = match task.item.number {
            number if number == closed => Some("the item was closed"),
            number if number == withdrawn => {
                Some("the label `coding agent processing` was removed")
            }
            _ => None,
        };
        assert_eq!(task.reason.as_deref(), reason, "{task:?}");
        assert_eq!(task.epoch.0, 0, "no worker claimed it");
    }
    producer.terminate();
    assert!(producer.end().await.0.success());
}

/// The bot is assigned to the item of the only task, and unassigned.
async fn stops_with_the_assignment(rig: &Rig, number: u64) {
    rig.forge.assign(DEMO, number, BOT);
    is_recorded(rig, "assignment", "done_at IS NOT NULL").await;
    let unassigns = || rig.forge.unassign(DEMO, number, BOT);
    let is_stopped = |tasks: &[Task]| tasks[0].state == TaskState::Ended(EndState::Stopped);
    follows(rig, "the task is stopped", unassigns, is_stopped).await;
    let reason = rig.task().await.reason;
    assert_eq!(reason.as_deref(), Some("the bot was unassigned"));
}

async fn unassigning_the_bot_stops_a_session(mut rig: Rig) {
    looks_rarely(&mut rig);
    let producer = hearing(&mut rig).await;
    rig.model.hold_at(2);
    let consumer = rig.spawn("consumer", &[]);
    let number = rig.label_issue();
    rig.model.wait_for_held(1).await;
    stops_with_the_assignment(&rig, number).await;
    rig.model.release();
    for process in [producer, consumer] {
        process.terminate();
        assert!(process.end().await.0.success());
    }
}

/// No worker runs.
async fn unassigning_the_bot_stops_what_waits(mut rig: Rig) {
    looks_rarely(&mut rig);
    let producer = hearing(&mut rig).await;
    let number = rig.label_issue();
    is_recorded(&rig, "label", "key = 'processing' AND done_at IS NOT NULL").await;
    stops_with_the_assignment(&rig, number).await;
    assert_eq!(rig.task().await.epoch.0, 0, "no worker claimed it");
    producer.terminate();
    assert!(producer.end().await.0.success());
}

/// The newest first, and long after things happened: what is true now counts, and not what they say.
async fn out_of_order(mut rig: Rig) {
    let producer = hearing(&mut rig).await;
    rig.forge.send_deliveries(Sending::Held);
    let [wanted, withdrawn, closed] = [rig.label_issue(), rig.label_issue(), rig.label_issue()];
    rig.forge.remove_label(DEMO, withdrawn, REQUEST);
    rig.forge.close(DEMO, closed);
    rig.forge.release_deliveries(Order::Reversed);
    let tasks = rig.wait("the task", |tasks| !tasks.is_empty()).await;
    assert_eq!(tasks[0].item.number, wanted);
    // The first one is written last of all, as it were.
    rig.forge.send_deliveries(Sending::Held);
    let commands = ["/agentmine pause", "/agentmine resume"];
    let said = commands.map(|command| rig.forge.say(DEMO, wanted, HUMAN, command));
    rig.forge.release_deliveries(Order::Reversed);
    for comment in said {
        wait_for_reaction(&rig, comment).await;
    }
    rig.forge.deliveries_sent().await;
    let task = rig.task().await;
    assert_eq!(task.state, TaskState::Queued, "{:?}", task.reason);
    producer.terminate();
    assert!(producer.end().await.0.success());
}

/// Each twice: the second one is known, and there is one task.
async fn twice(mut rig: Rig) {
    let producer = hearing(&mut rig).await;
    rig.forge.send_deliveries(Sending::Twice);
    rig.label_issue();
    rig.wait("the task", |tasks| tasks.len() == 1).await;
    let repeated = [Sent::Answered(202), Sent::Answered(200)];
    let are_known = |forge: &Forge| {
        let all = forge.deliveries();
        all.iter().all(|it| it.attempts == repeated)
    };
    rig.forge
        .wait_until("each was known the second time", PATIENCE, are_known)
        .await;
    assert_eq!(rig.tasks().await.len(), 1);
    producer.terminate();
    assert!(producer.end().await.0.success());
}

/// Seconds late, when the session that they stop has long begun.
async fn late(mut rig: Rig) {
    looks_rarely(&mut rig);
    let producer = hearing(&mut rig).await;
    rig.model.hold_at(2);
    let consumer = rig.spawn("consumer", &[]);
    let by = Duration::from_secs(3);
    rig.forge.send_deliveries(Sending::Late(by));
    let begun = Instant::now();
    let number = rig.label_issue();
    rig.wait("the task", |tasks| tasks.len() == 1).await;
    assert!(begun.elapsed() >= by, "{:?}", begun.elapsed());
    rig.model.wait_for_held(1).await;
    rig.forge.close(DEMO, number);
    let task = rig.wait_ended(1).await.remove(0);
    assert_eq!(task.state, TaskState::Ended(EndState::Stopped));
    rig.model.release();
    for process in [producer, consumer] {
        process.terminate();
        assert!(process.end().await.0.success());
    }
}

/// The listener was down: neither forge tries again, and the first scan finds what they reported.
async fn lost(mut rig: Rig) {
    let hook = hook(&mut rig);
    rig.forge.add_hook(hook);
    let [wanted, withdrawn] = [rig.label_issue(), rig.label_issue()];
    rig.forge.remove_label(DEMO, withdrawn, REQUEST);
    rig.forge.deliveries_sent().await;
    let lost = rig.forge.deliveries();
    for delivery in &lost {
        assert!(
            matches!(delivery.attempts[..], [Sent::Failed(_)]),
            "{delivery:?}"
        );
    }
    let producer = rig.spawn("producer", &[]);
    let tasks = rig.wait("the task", |tasks| tasks.len() == 1).await;
    assert_eq!(tasks[0].item.number, wanted);
    let later = rig.label_issue();
    let tasks = rig.wait("the second task", |tasks| tasks.len() == 2).await;
    assert!(tasks.iter().any(|task| task.item.number == later));
    let now = rig.forge.deliveries();
    assert!(now[..lost.len()].iter().all(|it| !it.arrived()), "{now:?}");
    producer.terminate();
    assert!(producer.end().await.0.success());
}

on_both_forges! { script() => a_life }
on_both_forges! { solves_demo() =>
    stops,
    stops_what_waits,
    unassigning_the_bot_stops_a_session,
    unassigning_the_bot_stops_what_waits,
    out_of_order,
    twice,
    late,
    lost,
}

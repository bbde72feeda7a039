//! Commands in reviews of the fleet's pull requests, on lines of their diffs, and on the draft of a task at work, on both
//! forges.

use std::time::{Duration, Instant};

use agentmine_domain::{EndState, Task, TaskState};
use agentmine_tests::forge::{BOT, DEMO, HUMAN};
use serde_json::json;

use crate::commands::{github, gitlab, ours};
use crate::rig::{PATIENCE, Process, Rig};
use crate::webhooks::hearing;

/// Who may read the repository, and not start work.
const STRANGER: &str = "remy";

/// Whether a forge has reactions to reviews.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reviews {
    TakeReactions,
    TakeNone,
}

/// The comments that have a reaction of the bot, in order.
fn acknowledged(rig: &Rig) -> Vec<u64> {
    let reactions = rig.forge.reactions().into_iter();
    let ours = reactions.filter(|it| it.login == BOT);
    ours.map(|it| it.comment).collect()
}

/// A rig with the pull request of a task that is done; its number.
async fn opened(rig: &Rig) -> u64 {
    rig.forge.set_permission(DEMO, STRANGER, "read");
    rig.produce_issue().await;
    rig.consume().await;
    rig.forge.pulls(DEMO).remove(0).number
}

/// On a line and in a review, each obeyed once although the producer starts again each time.
async fn heard_in_reviews(rig: Rig, reviews: Reviews) {
    let pull = opened(&rig).await;
    rig.forge
        .say_on_line(DEMO, pull, STRANGER, "/agentmine retry");
    rig.forge
        .say_in_review(DEMO, pull, STRANGER, "/agentmine retry");
    rig.produce().await;
    assert_eq!(rig.tasks().await.len(), 1, "a stranger is not heard");

    let retry = rig.forge.say_on_line(DEMO, pull, HUMAN, "/agentmine retry");
    rig.produce().await;
    rig.produce().await;
    let tasks = rig.tasks().await;
    assert_eq!(tasks.len(), 2, "{tasks:#?}");
    assert_eq!(rig.forge.number_of(&tasks[0].item), pull);
    assert_eq!(tasks[0].state, TaskState::Queued);
    assert_eq!(acknowledged(&rig), [retry]);

    let pause = rig
        .forge
        .say_in_review(DEMO, pull, HUMAN, "/agentmine pause\nNot now.");
    rig.produce().await;
    let task = rig.tasks().await.remove(0);
    assert_eq!(task.state, TaskState::Paused);
    let reason = format!("{HUMAN} wrote `/agentmine pause`");
    assert_eq!(task.reason, Some(reason));
    rig.store.resume(task.id).await.unwrap();
    rig.produce().await;
    let task = rig.tasks().await.remove(0);
    assert_eq!(
        task.state,
        TaskState::Queued,
        "the pause is not obeyed again"
    );
    let said = ours(&rig, pull).join("\n");
    match reviews {
        Reviews::TakeReactions => assert_eq!(acknowledged(&rig), [retry, pause]),
        Reviews::TakeNone => {
            assert_eq!(acknowledged(&rig), [retry]);
            let answer = format!("In answer to {HUMAN}'s `/agentmine pause`");
            assert!(
                said.contains(&answer) && said.contains("accepted."),
                "{said}"
            );
        }
    }
    assert!(!said.contains(STRANGER), "{said}");
}

#[tokio::test]
async fn commands_in_reviews_and_on_lines_are_heard_once_on_github() {
    heard_in_reviews(github().await, Reviews::TakeNone).await;
}

#[tokio::test]
async fn commands_in_reviews_and_on_lines_are_heard_once_on_gitlab() {
    heard_in_reviews(gitlab().await, Reviews::TakeReactions).await;
}

/// The producer dies before and after it obeys a command in a review, and before and after it acknowledges it.
async fn survives_kills(rig: Rig, acknowledges: [&str; 2]) {
    let pull = opened(&rig).await;
    rig.forge.say_on_line(DEMO, pull, HUMAN, "/agentmine retry");
    rig.produce().await;
    let points = ["store.obey.before", "store.obey.after"];
    for point in points.into_iter().chain(acknowledges) {
        let task = rig.tasks().await.remove(0);
        if task.state == TaskState::Paused {
            rig.store.resume(task.id).await.unwrap();
        }
        // So that the next answer is another one.
        rig.forge
            .say_in_review(DEMO, pull, HUMAN, "/agentmine deploy");
        rig.produce().await;
        rig.forge
            .say_in_review(DEMO, pull, HUMAN, "/agentmine pause");
        let kill = format!("{point}=kill");
        let (status, log) = rig.spawn_failing("producer", &kill).end().await;
        assert!(!status.success(), "{point}: {log}");
        rig.produce().await;
        let tasks = rig.tasks().await;
        assert_eq!(tasks.len(), 2);
        assert_eq!(tasks[0].state, TaskState::Paused, "{point}");
        rig.store.resume(tasks[0].id).await.unwrap();
        rig.produce().await;
        let task = rig.tasks().await.remove(0);
        assert_eq!(task.state, TaskState::Queued, "{point}: obeyed twice");
        let comments = ours(&rig, pull);
        assert!(comments.len() <= 1, "{point}: {comments:#?}");
    }
}

#[tokio::test]
async fn a_producer_killed_around_a_command_in_a_review_obeys_it_once_on_github() {
    let acknowledges = ["tracker.comment_edit.before", "tracker.comment_edit.after"];
    survives_kills(github().await, acknowledges).await;
}

#[tokio::test]
async fn a_producer_killed_around_a_command_in_a_review_obeys_it_once_on_gitlab() {
    let acknowledges = [
        "tracker.reaction_create.before",
        "tracker.reaction_create.after",
    ];
    survives_kills(gitlab().await, acknowledges).await;
}

/// On the draft that was opened when the work began; a producer that dies after it obeyed acknowledges it later.
async fn heard_on_the_draft(mut rig: Rig) {
    rig.config["issue_to_mr_conversion"]["enabled"] = true.into();
    rig.forge.set_permission(DEMO, STRANGER, "read");
    let number = rig.produce_issue().await;
    rig.model.hold_at(1);
    let consumer = rig.spawn("consumer", &[]);
    rig.model.wait_for_held(1).await;
    let draft = rig.forge.pulls(DEMO).remove(0).number;
    rig.forge.say(DEMO, draft, STRANGER, "/agentmine stop");
    rig.forge
        .say_on_line(DEMO, draft, STRANGER, "/agentmine stop");
    let status = rig.forge.say(DEMO, draft, HUMAN, "/agentmine status");
    rig.produce().await;
    assert_eq!(acknowledged(&rig), [status]);
    assert!(matches!(rig.task().await.state, TaskState::Leased(_)));
    let said = ours(&rig, number).join("\n");
    assert!(said.contains("Task 1 is at work"), "{said}");

    let stop = rig.forge.say_on_line(DEMO, draft, HUMAN, "/agentmine stop");
    let kill = "store.obey.after=kill";
    let (killed, log) = rig.spawn_failing("producer", kill).end().await;
    assert!(!killed.success(), "{log}");
    let task = rig.wait_ended(1).await.remove(0);
    assert_eq!(task.state, TaskState::Ended(EndState::Stopped));
    let reason = format!("{HUMAN} wrote `/agentmine stop`");
    assert_eq!(task.reason, Some(reason));
    rig.produce().await;
    assert_eq!(acknowledged(&rig), [status, stop]);
    rig.model.release();
    rig.forge
        .wait_until("the label says so", PATIENCE, |forge| {
            forge.labels(DEMO, number) == ["coding agent stopped"]
        })
        .await;
    consumer.terminate();
    consumer.end().await;

    // What is begun once more is the issue: the draft has nothing to continue with.
    let retry = rig.forge.say(DEMO, draft, HUMAN, "/agentmine retry");
    rig.produce().await;
    rig.produce().await;
    let tasks = rig.tasks().await;
    assert_eq!(tasks.len(), 2, "{tasks:#?}");
    assert_eq!(rig.forge.number_of(&tasks[0].item), number);
    assert_eq!(acknowledged(&rig), [status, stop, retry]);
}

#[tokio::test]
async fn a_command_on_the_draft_of_a_task_is_for_that_task_on_github() {
    heard_on_the_draft(github().await).await;
}

#[tokio::test]
async fn a_command_on_the_draft_of_a_task_is_for_that_task_on_gitlab() {
    heard_on_the_draft(gitlab().await).await;
}

/// A pull request that a task opened has no label of AgentMine, and a worker may be faster than the producer's next one.
async fn worked_on_before_it_is_labelled(rig: Rig) {
    let pull = opened(&rig).await;
    rig.forge.say(DEMO, pull, HUMAN, "/agentmine retry");
    let kill = "tracker.label_add.before=kill";
    let (status, log) = rig.spawn_failing("producer", kill).end().await;
    assert!(!status.success(), "{log}");
    assert_eq!(rig.forge.labels(DEMO, pull), [""; 0]);
    let asked = rig.model.requests().len();
    rig.consume().await;
    let task = rig.tasks().await.remove(0);
    assert!(task.trigger.starts_with("command-"), "{task:?}");
    // The model of this test changes nothing more.
    assert!(
        !matches!(task.state, TaskState::Ended(EndState::Stopped)),
        "{task:?}"
    );
    assert!(rig.model.requests().len() > asked, "{task:?}");
}

#[tokio::test]
async fn a_retry_is_worked_on_before_it_is_labelled_on_github() {
    worked_on_before_it_is_labelled(github().await).await;
}

#[tokio::test]
async fn a_retry_is_worked_on_before_it_is_labelled_on_gitlab() {
    worked_on_before_it_is_labelled(gitlab().await).await;
}

/// On a pull request that a person closed.
async fn answered_on_a_closed_one(rig: Rig) {
    let pull = opened(&rig).await;
    rig.forge.close(DEMO, pull);
    let retry = rig.forge.say(DEMO, pull, HUMAN, "/agentmine retry");
    rig.produce().await;
    rig.produce().await;
    assert_eq!(rig.tasks().await.len(), 1, "nothing is begun");
    assert_eq!(acknowledged(&rig), [retry]);
    let said = ours(&rig, pull).join("\n");
    assert_eq!(
        said.matches("is closed, merged or locked").count(),
        1,
        "{said}"
    );
    assert!(
        said.contains(&format!("In answer to {HUMAN}'s `/agentmine retry`")),
        "{said}"
    );
}

#[tokio::test]
async fn a_retry_on_a_closed_pull_request_is_answered_and_begins_nothing_on_github() {
    answered_on_a_closed_one(github().await).await;
}

#[tokio::test]
async fn a_retry_on_a_closed_merge_request_is_answered_and_begins_nothing_on_gitlab() {
    answered_on_a_closed_one(gitlab().await).await;
}

/// How a person asks on a pull request of AgentMine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asks {
    ByReview,
    ByMention,
}

/// A producer that scans at the interval that is the default, and hears nothing.
async fn scanning(rig: &mut Rig) -> Process {
    rig.config["producer"] = json!({ "interval_seconds": 60 });
    let producer = rig.spawn("producer", &[]);
    producer.wait_for("scanned").await;
    producer
}

async fn wait_for_reaction(rig: &Rig, comment: u64) {
    rig.forge
        .wait_until("the acknowledgement", PATIENCE, |forge| {
            let mut reactions = forge.reactions().into_iter();
            reactions.any(|it| it.login == BOT && it.comment == comment)
        })
        .await;
}

async fn end(process: Process) {
    process.terminate();
    let (status, log) = process.end().await;
    assert!(status.success(), "{log}");
}

/// What people write on a pull request of AgentMine is heard within 15 s of its webhook, although the scans are an hour apart.
async fn heard_by_webhooks(mut rig: Rig) {
    const LIMIT: Duration = Duration::from_secs(15);
    let pull = opened(&rig).await;
    rig.config["rounds"]["settle_seconds"] = 0.into();
    let producer = hearing(&mut rig).await;
    let consumer = rig.spawn("consumer", &[]);
    for (before, asks) in [Asks::ByReview, Asks::ByMention].into_iter().enumerate() {
        let begun = Instant::now();
        let forge = &rig.forge;
        match asks {
            // The scan may have looked in the same second.
            Asks::ByReview => forge.in_the_same_second(DEMO, pull, || {
                forge.add_review(DEMO, pull, "CHANGES_REQUESTED", "Please.");
            }),
            Asks::ByMention => forge.add_comment(DEMO, pull, HUMAN, "@agentmine-bot why?"),
        }
        let count = before + 2;
        rig.wait("a round", |tasks| tasks.len() == count).await;
        let after = begun.elapsed();
        assert!(after < LIMIT, "{asks:?}: {after:?}");
        rig.wait_ended(count).await;
    }
    let begun = Instant::now();
    let forge = &rig.forge;
    let asked = forge.say_on_line(DEMO, pull, HUMAN, "/agentmine status");
    wait_for_reaction(&rig, asked).await;
    let after = begun.elapsed();
    assert!(after < LIMIT, "the command: {after:?}");
    end(producer).await;
    end(consumer).await;
}

#[tokio::test]
async fn with_webhooks_reviews_and_mentions_are_heard_within_fifteen_seconds_on_github() {
    heard_by_webhooks(github().await).await;
}

#[tokio::test]
async fn with_webhooks_reviews_and_mentions_are_heard_within_fifteen_seconds_on_gitlab() {
    heard_by_webhooks(gitlab().await).await;
}

/// What people write on an item is obeyed within 15 s of its webhook, although the scans are an hour apart.
async fn commands_by_webhooks(mut rig: Rig) {
    // A look without a webhook comes every 15 s, so that one which obeyed a command is this long before the next one.
    const LIMIT: Duration = Duration::from_secs(12);
    let producer = hearing(&mut rig).await;
    let number = rig.label_issue();
    let stopped = TaskState::Ended(EndState::Stopped);
    let steps = [
        ("", 1, TaskState::Queued),
        ("/agentmine pause", 1, TaskState::Paused),
        ("/agentmine resume", 1, TaskState::Queued),
        ("/agentmine stop", 1, stopped),
        ("/agentmine retry", 2, TaskState::Queued),
    ];
    for (command, count, state) in steps {
        let begun = Instant::now();
        let said = match command {
            "" => None,
            command => Some(rig.forge.say(DEMO, number, HUMAN, command)),
        };
        let newest = |tasks: &[Task]| {
            let newest = tasks.iter().max_by_key(|task| task.number);
            tasks.len() == count && newest.is_some_and(|task| task.state == state)
        };
        rig.wait("what the command asks for", newest).await;
        if let Some(comment) = said {
            wait_for_reaction(&rig, comment).await;
        }
        let after = begun.elapsed();
        assert!(after < LIMIT, "{command}: {after:?}");
    }
    end(producer).await;
}

#[tokio::test]
async fn with_webhooks_commands_on_an_item_are_obeyed_within_fifteen_seconds_on_github() {
    commands_by_webhooks(github().await).await;
}

#[tokio::test]
async fn with_webhooks_commands_on_an_item_are_obeyed_within_fifteen_seconds_on_gitlab() {
    commands_by_webhooks(gitlab().await).await;
}

/// Without webhooks a review begins a round, at the interval that scans have by default.
async fn a_round_by_scans(mut rig: Rig) {
    let pull = opened(&rig).await;
    rig.config["rounds"]["settle_seconds"] = 0.into();
    let producer = scanning(&mut rig).await;
    let begun = Instant::now();
    rig.forge
        .add_review(DEMO, pull, "CHANGES_REQUESTED", "Please.");
    rig.wait("a round", |tasks| tasks.len() == 2).await;
    let after = begun.elapsed();
    assert!(after < Duration::from_secs(65), "{after:?}");
    end(producer).await;
}

#[tokio::test]
async fn without_webhooks_a_review_begins_a_round_within_a_minute_on_github() {
    a_round_by_scans(github().await).await;
}

#[tokio::test]
async fn without_webhooks_a_review_begins_a_round_within_a_minute_on_gitlab() {
    a_round_by_scans(gitlab().await).await;
}

/// Without webhooks, at the interval that scans have by default.
async fn heard_by_scans(mut rig: Rig) {
    let pull = opened(&rig).await;
    let producer = scanning(&mut rig).await;
    let begun = Instant::now();
    let forge = &rig.forge;
    let asked = forge.say_on_line(DEMO, pull, HUMAN, "/agentmine status");
    wait_for_reaction(&rig, asked).await;
    let after = begun.elapsed();
    assert!(after < Duration::from_secs(60), "{after:?}");
    end(producer).await;
}

#[tokio::test]
async fn without_webhooks_a_command_in_a_review_is_obeyed_within_a_minute_on_github() {
    heard_by_scans(github().await).await;
}

#[tokio::test]
async fn without_webhooks_a_command_in_a_review_is_obeyed_within_a_minute_on_gitlab() {
    heard_by_scans(gitlab().await).await;
}

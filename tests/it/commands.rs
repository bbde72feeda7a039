//! Commands in comments, the pause label, and what people do to items, on both forges.

use agentmine_domain::{EndState, Task, TaskState};
use agentmine_tests::forge::{BOT, DEMO, Forge, HUMAN};

use crate::rig::{PATIENCE, Process, REQUEST, Rig, assert_done, on_both_forges, solves_demo};
use crate::webhooks::hearing;

const STOPPED: TaskState = TaskState::Ended(EndState::Stopped);
const PAUSE: &str = "coding agent pause";

/// The story on GitHub.
pub(crate) async fn github() -> Rig {
    Rig::local(solves_demo()).await
}

/// The same on GitLab.
pub(crate) async fn gitlab() -> Rig {
    Rig::local_gitlab(solves_demo()).await
}

/// The comments that the bot has acknowledged, in order.
fn acknowledged(rig: &Rig) -> Vec<u64> {
    let reactions = rig.forge.reactions();
    for reaction in &reactions {
        assert_eq!(reaction.login, BOT);
    }
    reactions.iter().map(|it| it.comment).collect()
}

async fn wait_acknowledged(rig: &Rig, comment: u64) {
    let is_so = |_: &Forge| acknowledged(rig).contains(&comment);
    rig.forge
        .wait_until("the command is acknowledged", PATIENCE, is_so)
        .await;
}

/// The bot's comments on an item.
pub(crate) fn ours(rig: &Rig, number: u64) -> Vec<String> {
    let comments = rig.forge.comments(DEMO, number).into_iter();
    let ours = comments.filter(|it| it.author == BOT);
    ours.map(|it| it.body).collect()
}

async fn end(process: Process) {
    process.terminate();
    let (status, log) = process.end().await;
    assert!(status.success(), "{log}");
}

/// A session at work is stopped by somebody who may start work, and by nobody else.
async fn stops(rig: Rig) {
    rig.forge.set_permission(DEMO, "remy", "read");
    let number = rig.produce_issue().await;
    rig.model.hold_at(2);
    let (producer, consumer) = (rig.spawn("producer", &[]), rig.spawn("consumer", &[]));
    rig.model.wait_for_held(1).await;
    let foreign = rig.forge.say(DEMO, number, "remy", "/agentmine stop");
    // It is seen before the one after it.
    let status = rig.forge.say(DEMO, number, HUMAN, "/agentmine status");
    wait_acknowledged(&rig, status).await;
    assert!(matches!(rig.task().await.state, TaskState::Leased(_)));
    let begun = std::time::Instant::now();
    let stop = rig
        .forge
        .say(DEMO, number, HUMAN, "/agentmine stop\nIt is wrong.");
    let task = rig.wait_ended(1).await.remove(0);
    assert!(begun.elapsed().as_secs() < 60, "{:?}", begun.elapsed());
    assert_eq!(task.state, STOPPED, "{:?}", task.reason);
    wait_acknowledged(&rig, stop).await;
    rig.forge
        .wait_until("the label says so", PATIENCE, |forge| {
            forge.labels(DEMO, number) == ["coding agent stopped"]
        })
        .await;
    let comments = ours(&rig, number);
    let [comment] = comments.as_slice() else {
        panic!("{comments:#?}");
    };
    let reason = format!("{HUMAN} wrote `/agentmine stop`");
    assert!(comment.contains(&reason), "{comment}");
    assert!(rig.forge.pulls(DEMO).is_empty());
    assert_eq!(rig.forge.pushes(DEMO), Vec::<String>::new());
    assert_eq!(acknowledged(&rig), [status, stop]);
    assert!(!acknowledged(&rig).contains(&foreign));
    rig.model.release();
    end(producer).await;
    end(consumer).await;
    // Commands are nothing for the model.
    let requests = rig.model.requests();
    let said = requests.iter().map(|it| it.body.to_string());
    assert!(said.into_iter().all(|text| !text.contains("/agentmine")));
    // GitLab leaves them in the note: they are no quick actions of its own.
    assert_eq!(rig.forge.quick_actions(), Vec::<String>::new());
}

#[tokio::test]
async fn a_stop_command_ends_a_session_and_is_acknowledged_on_github() {
    stops(github().await).await;
}

#[tokio::test]
async fn a_stop_command_ends_a_session_and_is_acknowledged_on_gitlab() {
    stops(gitlab().await).await;
}

/// The author may start work later, and the producer starts again.
async fn a_command_that_was_ignored_stays_ignored(rig: Rig) {
    rig.forge.set_permission(DEMO, "remy", "read");
    let number = rig.produce_issue().await;
    let foreign = rig.forge.say(DEMO, number, "remy", "/agentmine stop");
    rig.produce().await;
    rig.forge.set_permission(DEMO, "remy", "write");
    rig.produce().await;
    assert_eq!(rig.task().await.state, TaskState::Queued);
    assert!(!acknowledged(&rig).contains(&foreign));
    // A later one is not.
    let own = rig.forge.say(DEMO, number, "remy", "/agentmine stop");
    rig.produce().await;
    assert_eq!(rig.task().await.state, STOPPED);
    assert_eq!(acknowledged(&rig), [own]);
}

on_both_forges! { solves_demo() =>
    a_command_that_was_ignored_stays_ignored,
}

/// Paused at work, resumed, stopped, and begun again: each command is obeyed once, though the producer starts again each
/// time.
async fn goes_its_way(rig: Rig) {
    let number = rig.produce_issue().await;
    rig.model.hold_at(2);
    let consumer = rig.spawn("consumer", &[]);
    rig.model.wait_for_held(1).await;
    let pause = rig.forge.say(DEMO, number, HUMAN, "/agentmine pause");
    rig.produce().await;
    let tasks = rig
        .wait("a pause", |t| t[0].state == TaskState::Paused)
        .await;
    let reason = format!("{HUMAN} wrote `/agentmine pause`");
    assert_eq!(tasks[0].reason.as_ref(), Some(&reason));
    rig.forge
        .wait_until("the label says so", PATIENCE, |forge| {
            forge.labels(DEMO, number) == ["coding agent paused"]
        })
        .await;
    end(consumer).await;

    let resume = rig.forge.say(DEMO, number, HUMAN, "/agentmine resume");
    rig.produce().await;
    assert_eq!(rig.task().await.state, TaskState::Queued);
    // The pause is not obeyed again.
    rig.produce().await;
    assert_eq!(rig.task().await.state, TaskState::Queued);
    assert_eq!(acknowledged(&rig), [pause, resume]);

    let stop = rig.forge.say(DEMO, number, HUMAN, "/agentmine stop");
    rig.produce().await;
    assert_eq!(rig.task().await.state, STOPPED);
    let retry = rig.forge.say(DEMO, number, HUMAN, "/agentmine retry");
    rig.produce().await;
    rig.produce().await;
    let tasks = rig.tasks().await;
    assert_eq!(tasks.len(), 2);
    assert_eq!(
        tasks[0].state,
        TaskState::Queued,
        "the stop was for the first"
    );
    assert_eq!(acknowledged(&rig), [pause, resume, stop, retry]);
    rig.model.release();
    rig.consume().await;
    assert_done(&rig.tasks().await[0]);
    let again = rig.forge.say(DEMO, number, HUMAN, "/agentmine resume");
    rig.produce().await;
    assert_eq!(acknowledged(&rig).last(), Some(&again));
    let said = ours(&rig, number).join("\n");
    assert!(said.contains("nothing to do. Task 2 is done"), "{said}");
}

#[tokio::test]
async fn pause_resume_stop_and_retry_are_each_obeyed_once_on_github() {
    goes_its_way(github().await).await;
}

#[tokio::test]
async fn pause_resume_stop_and_retry_are_each_obeyed_once_on_gitlab() {
    goes_its_way(gitlab().await).await;
}

/// The producer dies before and after it obeys, and before and after it acknowledges.
async fn survives_kills(rig: Rig) {
    let number = rig.produce_issue().await;
    let mut commands = Vec::new();
    for point in [
        "store.obey.before",
        "store.obey.after",
        "tracker.reaction_create.before",
        "tracker.reaction_create.after",
    ] {
        let task = rig.task().await;
        if task.state == TaskState::Paused {
            rig.store.resume(task.id).await.unwrap();
        }
        let pause = rig.forge.say(DEMO, number, HUMAN, "/agentmine pause");
        let (status, log) = rig
            .spawn_failing("producer", &format!("{point}=kill"))
            .end()
            .await;
        assert!(!status.success(), "{point}: {log}");
        rig.produce().await;
        assert_eq!(rig.task().await.state, TaskState::Paused, "{point}");
        commands.push(pause);
        assert_eq!(acknowledged(&rig), commands, "{point}");
    }
}

#[tokio::test]
async fn a_producer_killed_around_a_command_obeys_and_acknowledges_it_once_on_github() {
    survives_kills(github().await).await;
}

#[tokio::test]
async fn a_producer_killed_around_a_command_obeys_and_acknowledges_it_once_on_gitlab() {
    survives_kills(gitlab().await).await;
}

async fn answers(rig: Rig) {
    let number = rig.produce_issue().await;
    let unknown = rig
        .forge
        .say(DEMO, number, HUMAN, "/agentmine deploy @octo #1");
    rig.produce().await;
    let comments = ours(&rig, number);
    assert_eq!(comments.len(), 1, "{comments:#?}");
    let text = &comments[0];
    assert!(
        text.contains("`/agentmine deploy` is not a command"),
        "{text}"
    );
    assert!(text.contains("`/agentmine retry`"), "{text}");
    assert!(!acknowledged(&rig).contains(&unknown));

    rig.model.hold_at(2);
    let consumer = rig.spawn("consumer", &[]);
    rig.model.wait_for_held(1).await;
    let status = rig.forge.say(DEMO, number, HUMAN, "/agentmine status");
    rig.produce().await;
    assert_eq!(acknowledged(&rig), [status]);
    let comments = ours(&rig, number);
    assert_eq!(comments.len(), 1, "{comments:#?}");
    let text = &comments[0];
    assert!(
        text.contains("Task 1 is at work (running, attempt 1)."),
        "{text}"
    );
    assert!(text.contains("model calls"), "{text}");
    assert!(
        !text.contains("is not a command"),
        "the newest answer: {text}"
    );
    rig.model.release();
    assert_done(&rig.wait_ended(1).await[0]);
    rig.forge
        .wait_until("the end is reported", PATIENCE, |forge| {
            forge.labels(DEMO, number) == ["coding agent done"]
        })
        .await;
    // The report does not keep an answer that is no longer true.
    let comments = ours(&rig, number);
    assert_eq!(comments.len(), 1, "{comments:#?}");
    assert!(
        comments[0].contains("with the measured results"),
        "{comments:?}"
    );
    assert!(!comments[0].contains("In answer to"), "{comments:?}");
    end(consumer).await;

    // What is true of an end stays, once.
    for _ in 0..2 {
        rig.forge.say(DEMO, number, HUMAN, "/agentmine status");
        rig.produce().await;
        let text = ours(&rig, number).join("\n");
        assert_eq!(text.matches("In answer to").count(), 1, "{text}");
        assert!(text.contains("Task 1 is done"), "{text}");
    }
}

#[tokio::test]
async fn status_and_unknown_commands_are_answered_in_the_one_comment_on_github() {
    answers(github().await).await;
}

#[tokio::test]
async fn status_and_unknown_commands_are_answered_in_the_one_comment_on_gitlab() {
    answers(gitlab().await).await;
}

/// On the pull request that the task opened.
async fn heard_on_its_pull_request(rig: Rig) {
    rig.produce_issue().await;
    rig.consume().await;
    let pull = rig.forge.pulls(DEMO).remove(0).number;
    let stop = rig.forge.say(DEMO, pull, HUMAN, "/agentmine stop");
    rig.produce().await;
    assert_eq!(acknowledged(&rig), [stop]);
    let retry = rig.forge.say(DEMO, pull, HUMAN, "/agentmine retry");
    rig.produce().await;
    assert_eq!(acknowledged(&rig), [stop, retry]);
    let tasks = rig.tasks().await;
    assert_eq!(tasks.len(), 2);
    assert_eq!(rig.forge.number_of(&tasks[0].item), pull);
    assert!(tasks[0].round().is_none());
    assert_eq!(tasks[0].state, TaskState::Queued);
}

#[tokio::test]
async fn commands_on_the_fleets_own_pull_request_are_heard_on_github() {
    heard_on_its_pull_request(github().await).await;
}

#[tokio::test]
async fn commands_on_the_fleets_own_merge_request_are_heard_on_gitlab() {
    heard_on_its_pull_request(gitlab().await).await;
}

async fn pauses_by_label(rig: Rig) {
    let number = rig.produce_issue().await;
    rig.model.hold_at(2);
    let consumer = rig.spawn("consumer", &[]);
    rig.model.wait_for_held(1).await;
    rig.forge.add_label(DEMO, number, PAUSE);
    let tasks = rig
        .wait("a pause", |t| t[0].state == TaskState::Paused)
        .await;
    assert_eq!(tasks[0].pause_label(), Some(PAUSE));
    rig.forge
        .wait_until("the label says so", PATIENCE, |forge| {
            forge.labels(DEMO, number) == [PAUSE, "coding agent paused"]
        })
        .await;
    rig.produce().await;
    assert_eq!(rig.task().await.state, TaskState::Paused);
    rig.forge.remove_label(DEMO, number, PAUSE);
    rig.model.release();
    rig.produce().await;
    assert_done(&rig.wait_ended(1).await[0]);
    assert_eq!(rig.forge.labels(DEMO, number), ["coding agent done"]);
    end(consumer).await;
}

#[tokio::test]
async fn the_pause_label_pauses_and_its_removal_resumes_on_github() {
    pauses_by_label(github().await).await;
}

#[tokio::test]
async fn the_pause_label_pauses_and_its_removal_resumes_on_gitlab() {
    pauses_by_label(gitlab().await).await;
}

/// Work that is not to begin does not.
async fn a_task_whose_item_has_the_pause_label_does_not_begin(rig: Rig) {
    let title = "greet.sh greets nobody";
    rig.forge
        .add_issue(DEMO, title, "It should.", &[REQUEST, PAUSE]);
    rig.produce().await;
    rig.consume().await;
    assert_eq!(rig.task().await.state, TaskState::Paused);
    assert_eq!(rig.model.requests().len(), 0);
}

on_both_forges! { solves_demo() =>
    a_task_whose_item_has_the_pause_label_does_not_begin,
}

/// A worker whose own looks are too rare to notice.
fn looks_rarely(rig: &mut Rig) {
    rig.config["consumer"]["item_check_seconds"] = 3600.into();
    rig.config["consumer"]["lease_seconds"] = 60.into();
    rig.config["consumer"]["concurrency"] = 3.into();
}

/// Deliveries make the producer look at once.
async fn obeyed_by_webhooks(mut rig: Rig) {
    looks_rarely(&mut rig);
    let numbers = [rig.label_issue(), rig.label_issue(), rig.label_issue()];
    rig.forge.assign(DEMO, numbers[2], BOT);
    let producer = hearing(&mut rig).await;
    rig.wait("three tasks", |tasks| tasks.len() == 3).await;
    rig.model.hold_at(2);
    let consumer = rig.spawn("consumer", &[]);
    rig.model.wait_for_held(3).await;
    let begun = std::time::Instant::now();
    let stop = rig.forge.say(DEMO, numbers[0], HUMAN, "/agentmine stop");
    rig.forge.close(DEMO, numbers[1]);
    rig.forge.unassign(DEMO, numbers[2], BOT);
    let tasks = rig.wait_ended(3).await;
    assert!(begun.elapsed().as_secs() < 15, "{:?}", begun.elapsed());
    for task in tasks {
        assert_eq!(task.state, STOPPED, "{:?}", task.reason);
    }
    wait_acknowledged(&rig, stop).await;
    rig.model.release();
    end(producer).await;
    end(consumer).await;
}

#[tokio::test]
async fn with_webhooks_people_are_obeyed_within_fifteen_seconds_on_github() {
    obeyed_by_webhooks(github().await).await;
}

#[tokio::test]
async fn with_webhooks_people_are_obeyed_within_fifteen_seconds_on_gitlab() {
    obeyed_by_webhooks(gitlab().await).await;
}

/// The labels of items, likewise.
async fn labels_by_webhooks(mut rig: Rig) {
    looks_rarely(&mut rig);
    let [paused, withdrawn] = [rig.label_issue(), rig.label_issue()];
    let producer = hearing(&mut rig).await;
    rig.wait("two tasks", |tasks| tasks.len() == 2).await;
    rig.model.hold_at(2);
    let consumer = rig.spawn("consumer", &[]);
    rig.model.wait_for_held(2).await;
    let begun = std::time::Instant::now();
    rig.forge.add_label(DEMO, paused, PAUSE);
    for label in rig.forge.labels(DEMO, withdrawn) {
        rig.forge.remove_label(DEMO, withdrawn, &label);
    }
    let state = |tasks: &[Task], number: u64| {
        let task = tasks.iter().find(|task| task.item.number == number);
        task.map(|task| task.state)
    };
    let is_so = |tasks: &[Task]| {
        state(tasks, paused) == Some(TaskState::Paused) && state(tasks, withdrawn) == Some(STOPPED)
    };
    rig.wait("a pause and a stop", is_so).await;
    assert!(begun.elapsed().as_secs() < 15, "{:?}", begun.elapsed());

    let begun = std::time::Instant::now();
    rig.forge.remove_label(DEMO, paused, PAUSE);
    let continues = |tasks: &[Task]| state(tasks, paused) != Some(TaskState::Paused);
    rig.wait("the paused task to continue", continues).await;
    assert!(begun.elapsed().as_secs() < 15, "{:?}", begun.elapsed());
    rig.model.release();
    end(producer).await;
    end(consumer).await;
}

#[tokio::test]
async fn with_webhooks_labels_are_obeyed_within_fifteen_seconds_on_github() {
    labels_by_webhooks(github().await).await;
}

#[tokio::test]
async fn with_webhooks_labels_are_obeyed_within_fifteen_seconds_on_gitlab() {
    labels_by_webhooks(gitlab().await).await;
}

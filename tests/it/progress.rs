//! The progress comment while a session works, on both forges.

use agentmine_domain::TaskState;
use agentmine_tests::forge::{BOT, CommentView, DEMO, HUMAN, Write};
use agentmine_trackers::FLEET_MARKER;

use crate::rig::{PATIENCE, REQUEST, Rig, assert_done, assert_done_at_attempt, solves_demo};

async fn github() -> Rig {
    Rig::local(solves_demo()).await
}

async fn gitlab() -> Rig {
    Rig::local_gitlab(solves_demo()).await
}

/// The one comment of the bot on an item.
fn comment(rig: &Rig, number: u64) -> Option<CommentView> {
    let comments = rig.forge.comments(DEMO, number).into_iter();
    let mut ours = comments.filter(|it| it.author == BOT);
    let first = ours.next();
    assert_eq!(ours.next(), None, "a second comment");
    first
}

async fn wait_for(rig: &Rig, number: u64, text: &str) {
    let is_so = |_: &_| comment(rig, number).is_some_and(|it| it.body.contains(text));
    rig.forge.wait_until(text, PATIENCE, is_so).await;
}

async fn shows(mut rig: Rig, name: &str) {
    rig.config["consumer"]["progress_seconds"] = 2.into();
    let number = rig.produce_issue().await;
    rig.model.hold_at(2);
    let consumer = rig.spawn("consumer", &[]);
    rig.model.wait_for_held(1).await;
    wait_for(&rig, number, "- [ ] **Work on the request**").await;
    let shown = comment(&rig, number).unwrap().body;
    for part in [
        "AgentMine is working on this.",
        "- [x] Prepare the sandbox",
        "- [ ] Check the pushed commit",
        &format!("- [ ] Open the {name}"),
        "So far: less than a minute, ",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    rig.model.release();
    rig.model.hold_at(3);
    wait_for(&rig, number, "3 tool calls").await;
    rig.model.release();
    let task = rig.wait_ended(1).await.remove(0);
    assert_done(&task);
    consumer.terminate();
    assert!(consumer.end().await.0.success());
    let end = comment(&rig, number).unwrap();
    assert!(
        end.body.contains(&format!("opened a {name}")),
        "{}",
        end.body
    );
    assert!(!end.body.contains("- [ ]"), "{}", end.body);
    let edits = rig.forge.writes().into_iter().filter(|write| {
        let is_edit = write.method == "PATCH" || write.method == "PUT";
        let text = write.body["body"].as_str().unwrap_or_default();
        is_edit && text.contains("- [ ]")
    });
    let times: Vec<_> = edits.map(|write| write.at).collect();
    assert!(times.len() >= 2, "{times:?}");
    for pair in times.windows(2) {
        let apart = pair[1] - pair[0];
        assert!(apart.num_milliseconds() >= 1900, "{apart}");
    }
}

#[tokio::test]
async fn one_comment_shows_the_progress_and_is_edited_rarely_on_github() {
    shows(github().await, "pull request").await;
}

#[tokio::test]
async fn one_comment_shows_the_progress_and_is_edited_rarely_on_gitlab() {
    shows(gitlab().await, "merge request").await;
}

/// The sum of what the sessions cost, as people read it.
async fn recorded(rig: &Rig) -> String {
    let sessions = rig.sessions().await;
    let micros: u64 = sessions.iter().map(|it| it.usage.cost_micros).sum();
    let cents = (micros + 5_000) / 10_000;
    assert!(cents > 100, "{cents}");
    format!("${}.{:02}", cents / 100, cents % 100)
}

/// The model has prices: the comment and the result name the cost that is recorded, at each moment.
async fn names_the_recorded_cost(mut rig: Rig) {
    rig.config["consumer"]["progress_seconds"] = 1.into();
    for (key, price) in [
        ("input_price", 311),
        ("cached_input_price", 97),
        ("output_price", 1777),
    ] {
        rig.config["model"][key] = price.into();
    }
    let number = rig.produce_issue().await;
    rig.model.hold_at(3);
    let consumer = rig.spawn("consumer", &[]);
    rig.model.wait_for_held(1).await;
    let first = recorded(&rig).await;
    wait_for(&rig, number, &format!(", {first}.")).await;
    rig.model.release();
    assert_done(&rig.wait_ended(1).await[0]);
    consumer.terminate();
    assert!(consumer.end().await.0.success());
    let all = recorded(&rig).await;
    assert_ne!(all, first);
    let pull = rig.forge.pulls(DEMO).remove(0);
    assert!(
        pull.body.contains(&format!(", {all}.</sub>")),
        "{all}: {}",
        pull.body
    );
    // A person who asks gets the same figure.
    rig.forge.say(DEMO, number, HUMAN, "/agentmine status");
    rig.produce().await;
    wait_for(&rig, number, &format!(", {all}.")).await;
}

#[tokio::test]
async fn the_cost_in_the_comment_and_the_pull_request_is_that_which_is_recorded_on_github() {
    names_the_recorded_cost(github().await).await;
}

#[tokio::test]
async fn the_cost_in_the_comment_and_the_merge_request_is_that_which_is_recorded_on_gitlab() {
    names_the_recorded_cost(gitlab().await).await;
}

/// Killed before and after an edit, and before and after the comment was created.
async fn survives_kills(mut rig: Rig) {
    rig.config["consumer"]["progress_seconds"] = 1.into();
    let number = rig.produce_issue().await;
    // Before the call that edits: one that a kill interrupts is not made again by this script.
    rig.model.hold_at(1);
    for point in [
        "tracker.comment_create.before",
        "tracker.comment_create.after",
        "tracker.comment_edit.before",
        // The first edit is that of the session that begins.
        "tracker.comment_edit.after",
    ] {
        let kill = format!("{point}=kill@2");
        let creates = point.starts_with("tracker.comment_create");
        let kill = if creates {
            format!("{point}=kill")
        } else {
            kill
        };
        let (status, log) = rig.spawn_failing("consumer", &kill).end().await;
        assert!(!status.success(), "{point}: {log}");
        let is_there = comment(&rig, number).is_some();
        assert_eq!(
            is_there,
            point != "tracker.comment_create.before",
            "{point}"
        );
        rig.config["consumer"]["max_attempts"] = 6.into();
    }
    rig.model.release();
    let consumer = rig.spawn("consumer", &[]);
    let task = rig.wait_ended(1).await.remove(0);
    assert_done_at_attempt(&task, 5);
    consumer.terminate();
    assert!(consumer.end().await.0.success());
    let end = comment(&rig, number).unwrap().body;
    assert!(end.contains("with the measured results"), "{end}");
}

#[tokio::test]
async fn a_worker_killed_around_an_edit_leaves_one_comment_on_github() {
    survives_kills(github().await).await;
}

#[tokio::test]
async fn a_worker_killed_around_an_edit_leaves_one_comment_on_gitlab() {
    survives_kills(gitlab().await).await;
}

/// Killed before and after the removal of a second comment, as two writers leave it who were first at the same time.
async fn removes_a_second_comment(mut rig: Rig) {
    rig.config["consumer"]["max_attempts"] = 6.into();
    let number = rig.produce_issue().await;
    rig.killed_at("consumer", &["tracker.comment_create.after"])
        .await;
    let first = comment(&rig, number).unwrap();
    rig.forge.say(DEMO, number, BOT, &first.body);
    let ours = || {
        let comments = rig.forge.comments(DEMO, number).into_iter();
        comments.filter(|it| it.author == BOT).count()
    };
    for (point, left) in [("before", 2), ("after", 1)] {
        let point = format!("tracker.comment_delete.{point}");
        rig.killed_at("consumer", &[&point]).await;
        assert_eq!(ours(), left, "{point}");
    }
    let consumer = rig.spawn("consumer", &[]);
    assert_done_at_attempt(&rig.wait_ended(1).await[0], 4);
    consumer.terminate();
    assert!(consumer.end().await.0.success());
    let end = comment(&rig, number).unwrap();
    assert_eq!(end.id, first.id, "the first one stays");
    assert!(end.body.contains("with the measured results"), "{end:?}");
    let is_removal = |it: &Write| {
        let of_comment = it.path.contains("/comments/") || it.path.contains("/notes/");
        it.method == "DELETE" && of_comment && it.status == 204
    };
    let writes = rig.forge.writes();
    assert_eq!(writes.iter().filter(|it| is_removal(it)).count(), 1);
}

#[tokio::test]
async fn a_worker_killed_around_the_removal_of_a_second_comment_leaves_one_on_github() {
    removes_a_second_comment(github().await).await;
}

#[tokio::test]
async fn a_worker_killed_around_the_removal_of_a_second_comment_leaves_one_on_gitlab() {
    removes_a_second_comment(gitlab().await).await;
}

/// A pause is reported, and so is its end.
async fn reports_a_pause(mut rig: Rig) {
    rig.config["consumer"]["progress_seconds"] = 1.into();
    let number = rig.produce_issue().await;
    rig.model.hold_at(2);
    let consumer = rig.spawn("consumer", &[]);
    rig.model.wait_for_held(1).await;
    rig.forge.say(DEMO, number, HUMAN, "/agentmine pause");
    rig.produce().await;
    rig.wait("a pause", |t| t[0].state == TaskState::Paused)
        .await;
    let reported = format!("AgentMine is paused: {HUMAN} wrote `/agentmine pause`. The comment");
    wait_for(&rig, number, &reported).await;
    rig.forge.say(DEMO, number, HUMAN, "/agentmine resume");
    rig.model.release();
    rig.produce().await;
    assert_done(&rig.wait_ended(1).await[0]);
    wait_for(&rig, number, "with the measured results").await;
    consumer.terminate();
    assert!(consumer.end().await.0.success());
}

#[tokio::test]
async fn a_pause_is_shown_with_its_reason_on_github() {
    reports_a_pause(github().await).await;
}

#[tokio::test]
async fn a_pause_is_shown_with_its_reason_on_gitlab() {
    reports_a_pause(gitlab().await).await;
}

/// The bot's account was changed while the task waited. What the former one wrote may not be edited.
async fn former_account(mut rig: Rig, forge: &str) {
    rig.config["trackers"][forge]["former_logins"] = serde_json::json!(["old-bot"]);
    let number = rig.produce_issue().await;
    let task = rig.task().await;
    let old = format!(
        "AgentMine is working on this.\n\n<!-- {FLEET_MARKER}{}:progress -->",
        task.id
    );
    rig.forge.say(DEMO, number, "old-bot", &old);
    rig.consume().await;
    assert_done(&rig.task().await);
    let end = comment(&rig, number).unwrap().body;
    assert!(end.contains("with the measured results"), "{end}");
    let comments = rig.forge.comments(DEMO, number);
    assert_eq!(
        (comments[0].author.as_str(), &comments[0].body),
        ("old-bot", &old)
    );
    // It is the fleet's own, and nothing for the model.
    let requests = rig.model.requests();
    assert!(
        !requests[0]
            .body
            .to_string()
            .contains("AgentMine is working")
    );
}

#[tokio::test]
async fn a_former_account_keeps_its_comment_on_github() {
    former_account(github().await, "github").await;
}

#[tokio::test]
async fn a_former_account_keeps_its_comment_on_gitlab() {
    former_account(gitlab().await, "gitlab").await;
}

/// A marker of the comment on an item, of a task that no database knows.
const UNKNOWN: &str =
    "Working.\n\n<!-- agentmine:task=7f0c2c2e-3f0e-4b5e-9a55-1a3f1d9a7b11:progress -->";

/// The item is labelled again and again. People and another fleet's bot copied the marker; workers die around the first
/// edit of the next task.
async fn shares_one_comment(mut rig: Rig) {
    rig.config["consumer"]["max_attempts"] = 5.into();
    let number = rig.produce_issue().await;
    for other in [HUMAN, "other-bot"] {
        rig.forge.say(DEMO, number, other, UNKNOWN);
    }
    let others = || {
        let mut all = rig.forge.comments(DEMO, number);
        all.retain(|it| it.author != BOT);
        all.iter().map(|it| it.body.clone()).collect::<Vec<_>>()
    };
    rig.consume().await;
    let first = comment(&rig, number).unwrap();
    assert!(!first.body.contains("Earlier"), "{}", first.body);

    rig.forge.add_label(DEMO, number, REQUEST);
    rig.produce().await;
    let points = ["tracker.comment_edit.before", "tracker.comment_edit.after"];
    rig.killed_at("consumer", &points).await;
    let consumer = rig.spawn("consumer", &[]);
    let tasks = rig.wait_ended(2).await;
    tasks.iter().for_each(|task| assert!(task.reason.is_none()));
    consumer.terminate();
    assert!(consumer.end().await.0.success());
    let pulls = rig.forge.pulls(DEMO);
    let second = comment(&rig, number).unwrap();
    assert_eq!(second.id, first.id, "the same comment");
    let text = &second.body;
    assert!(text.contains("AgentMine opened a "), "{text}");
    let url = tasks.iter().find(|it| it.number.0 == 1).unwrap();
    let url = url.pull_request_url.as_ref().unwrap();
    let line = format!("<summary>Earlier</summary>\n\n- Task 1: done, {url}\n\n</details>");
    assert!(text.contains(&line), "{text}");
    assert_eq!(pulls.len(), 2);

    // A person removed it.
    rig.forge.delete_comments(DEMO, number, BOT);
    rig.forge.add_label(DEMO, number, REQUEST);
    rig.produce().await;
    rig.consume().await;
    let text = comment(&rig, number).unwrap().body;
    assert!(text.contains("- Task 2: done, "), "{text}");
    assert_eq!(others(), [UNKNOWN, UNKNOWN]);
}

#[tokio::test]
async fn the_tasks_of_an_item_share_one_comment_on_github() {
    shares_one_comment(github().await).await;
}

#[tokio::test]
async fn the_tasks_of_an_item_share_one_comment_on_gitlab() {
    shares_one_comment(gitlab().await).await;
}

/// The comment is there, and the database knows nothing of its task.
async fn found_after_a_restore(mut rig: Rig, forge: &str) {
    let number = rig.produce_issue().await;
    let lost = rig.forge.say(DEMO, number, BOT, UNKNOWN);
    rig.consume().await;
    let text = comment(&rig, number).unwrap();
    assert_eq!(text.id, lost);
    assert!(text.body.contains("AgentMine opened a "), "{}", text.body);

    // The bot has another account now, and may not edit what the former one wrote: that stays.
    rig.config["trackers"][forge]["former_logins"] = serde_json::json!(["old-bot"]);
    rig.forge.delete_comments(DEMO, number, BOT);
    rig.forge.say(DEMO, number, "old-bot", UNKNOWN);
    rig.forge.add_label(DEMO, number, REQUEST);
    rig.produce().await;
    rig.consume().await;
    let text = comment(&rig, number).unwrap().body;
    assert!(text.contains("- Task 1: done, "), "{text}");
    assert_eq!(rig.forge.comments(DEMO, number)[0].body, UNKNOWN);
}

#[tokio::test]
async fn the_comment_of_a_lost_task_is_found_on_github() {
    found_after_a_restore(github().await, "github").await;
}

#[tokio::test]
async fn the_comment_of_a_lost_task_is_found_on_gitlab() {
    found_after_a_restore(gitlab().await, "gitlab").await;
}

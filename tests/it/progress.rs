//! The progress comment while a session works, on both forges.

use agentmine_domain::TaskState;
use agentmine_tests::forge::{BOT, CommentView, DEMO, HUMAN};
use agentmine_trackers::FLEET_MARKER;

use crate::rig::{PATIENCE, Rig, assert_done, assert_done_at_attempt, solves_demo};

async fn github() -> Rig {
    Rig::local(solves_demo()).await
}

async fn gitlab() -> Rig {
    let mut rig = Rig::on_gitlab(solves_demo()).await;
    rig.config["command_executor"]["backend"] = "local".into();
    rig
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

/// Killed before and after an edit, and before and after the comment was created.
async fn survives_kills(mut rig: Rig) {
    rig.config["consumer"]["progress_seconds"] = 1.into();
    let number = rig.produce_issue().await;
    rig.model.hold_at(2);
    for point in [
        "tracker.comment_create.after",
        "tracker.comment_edit.before",
        // The first edit is that of the session that begins.
        "tracker.comment_edit.after",
    ] {
        let kill = format!("{point}=kill@2");
        let kill = match point {
            "tracker.comment_create.after" => format!("{point}=kill"),
            _ => kill,
        };
        let (status, log) = rig.spawn_failing("consumer", &kill).end().await;
        assert!(!status.success(), "{point}: {log}");
        assert!(comment(&rig, number).is_some(), "{point}");
        rig.config["consumer"]["max_attempts"] = 5.into();
    }
    rig.model.release();
    let consumer = rig.spawn("consumer", &[]);
    let task = rig.wait_ended(1).await.remove(0);
    assert_done_at_attempt(&task, 4);
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

/// A pause is reported, and so is its end.
async fn tells_of_a_pause(mut rig: Rig) {
    rig.config["consumer"]["progress_seconds"] = 1.into();
    let number = rig.produce_issue().await;
    rig.model.hold_at(2);
    let consumer = rig.spawn("consumer", &[]);
    rig.model.wait_for_held(1).await;
    rig.forge.say(DEMO, number, HUMAN, "/agentmine pause");
    rig.produce().await;
    rig.wait("a pause", |t| t[0].state == TaskState::Paused)
        .await;
    let told = format!("AgentMine is paused: {HUMAN} wrote `/agentmine pause`. The comment");
    wait_for(&rig, number, &told).await;
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
    tells_of_a_pause(github().await).await;
}

#[tokio::test]
async fn a_pause_is_shown_with_its_reason_on_gitlab() {
    tells_of_a_pause(gitlab().await).await;
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

//! GitLab's quick actions in what the model writes: lines such as `/close` in a reply to a discussion, in a merge request's
//! title or text, and in a code block that is left open. The forge runs them wherever somebody writes them.

use agentmine_tests::forge::{BOT, DEMO, HUMAN};
use agentmine_tests::model::{Scenario, Script, commit_and_push, edit_replace, say, shell};
use serde_json::json;

use crate::rig::{REQUEST, Rig, assert_done};
use crate::rounds::{counted, rounds};

/// Lines that are all actions, with which a text of the model ends. The last block is left open.
const ACTIONS: &str =
    "/close\n/merge\n  /label ~x\n/title stolen\n````text\n```\n/close\n/label ~x";

/// A text of the model that is hostile, and then says something.
fn hostile(text: &str) -> String {
    format!("/close\n{text}\n\n{ACTIONS}")
}

/// Solves the sample issue, and does what a review asks for.
fn script() -> Script {
    let round = Scenario::new("round 1")
        .when("this is round 1 on it")
        .find("first", r"thread (T\w+), on greet.sh:1")
        .replies([
            shell("echo '# more' >> greet.sh"),
            commit_and_push("/close"),
            say(&hostile(&format!(
                "I did it.\n\n{{first}}: /close\n{ACTIONS}"
            ))),
        ]);
    let solves = Scenario::new("solves the sample").replies([
        edit_replace("greet.sh", "name=\"\"", "name=\"${1:-world}\""),
        commit_and_push("/merge"),
        say(&hostile("It greets.")),
    ]);
    Script::new().scenario(round).scenario(solves)
}

async fn gitlab() -> Rig {
    Rig::local_gitlab(script()).await
}

#[tokio::test]
async fn the_forge_runs_an_action_in_a_reply_to_a_discussion() {
    let rig = gitlab().await;
    rig.forge.commit(DEMO, "theirs", "main", |dir| {
        std::fs::write(dir.join("theirs.txt"), "x\n").unwrap();
    });
    let number = rig.forge.add_pull(DEMO, "theirs", "main", "Do it", &[]);
    rig.forge
        .add_line_comment(DEMO, number, ("theirs.txt", 1), "Rename it.");
    let root = rig.forge.thread_ids(DEMO, number)[0];
    let path = format!(
        "projects/{}/merge_requests/{}/discussions/{root:040x}/notes",
        rig.forge.repo_id(DEMO),
        rig.forge.iid(DEMO, number)
    );
    let authority = std::fs::read(rig.forge.authority().unwrap()).unwrap();
    let trusted = reqwest::Certificate::from_pem(&authority).unwrap();
    let client = reqwest::Client::builder().tls_certs_merge([trusted]);
    let url = rig.forge.gitlab_url().join(&path).unwrap();
    let reply = client.build().unwrap().post(url);
    let reply = reply.header("PRIVATE-TOKEN", rig.forge.human_token());
    let body = json!({ "body": "Done.\n/close\n/label ~x" });
    let reply = reply.json(&body).send().await.unwrap();
    assert!(reply.status().is_success(), "{}", reply.status());
    let ran = [format!("{HUMAN} /close"), format!("{HUMAN} /label ~x")];
    assert_eq!(rig.forge.quick_actions(), ran);
    assert!(!rig.forge.is_open(DEMO, number));
    assert_eq!(rig.forge.labels(DEMO, number), ["x"]);
}

#[tokio::test]
async fn no_line_of_the_model_runs_as_an_action_in_a_merge_request_or_in_a_reply() {
    let rig = gitlab().await;
    let issue = rig.forge.add_issue(DEMO, "/close", ACTIONS, &[REQUEST]);
    let (mut rig, pull) = opened_of(rig, issue).await;
    rig.forge
        .add_line_comment(DEMO, pull, ("greet.sh", 1), "Rename it.");
    rig.forge
        .add_review_as(DEMO, pull, HUMAN, "CHANGES_REQUESTED", "One thing.");
    counted(&mut rig, "begun", "requests").await;
    rig.consume().await;
    assert_done(&rounds(&rig).await[0]);

    let threads = rig.forge.line_threads(DEMO, pull);
    let replies = threads[0].0.iter().filter(|(author, _)| author == BOT);
    let replies: Vec<&str> = replies.map(|(_, text)| text.as_str()).collect();
    // The text is there, and nothing of it ran.
    assert!(
        replies.len() == 1 && replies[0].contains("close"),
        "{replies:?}"
    );
    let ours: Vec<String> = rig.forge.quick_actions();
    assert_eq!(ours, Vec::<String>::new());
    for number in [issue, pull] {
        assert!(rig.forge.is_open(DEMO, number), "{number}");
        assert_eq!(rig.forge.labels(DEMO, number), ["coding agent done"]);
    }
    let shown = rig.forge.pulls(DEMO).remove(0);
    assert_ne!(shown.title, "stolen");
    assert!(shown.body.contains("It greets."), "{}", shown.body);
}

/// The merge request of an issue.
async fn opened_of(mut rig: Rig, issue: u64) -> (Rig, u64) {
    rig.config["rounds"]["settle_seconds"] = 0.into();
    rig.produce().await;
    rig.consume().await;
    let task = rig.task().await;
    assert_eq!(task.item.number, issue);
    assert_done(&task);
    let number = rig.forge.pulls(DEMO)[0].number;
    (rig, number)
}

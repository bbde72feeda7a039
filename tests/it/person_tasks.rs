//! Tasks that people make for a repository of the fleet.

use agentmine_domain::{EndState, TaskState};
use agentmine_tests::forge::{DEMO, DEMO_BODY, DEMO_TITLE};
use serde_json::{Value, json};

use crate::item_faults::end;
use crate::queued_items::is_recorded;
use crate::rig::{Rig, assert_done, codes, on_both_forges, solves_demo};

const ADD: [&str; 5] = ["task", "add", DEMO_TITLE, "--description", DEMO_BODY];

fn made(rig: &Rig, more: &[&str]) -> Value {
    let (out, _) = rig.agentmine(&[&ADD[..], more, &["--json"]].concat(), 0);
    serde_json::from_str(&out).unwrap()
}

/// The story of an issue without an issue.
async fn a_task_for_a_repository_becomes_a_pull_request(rig: Rig) {
    // It has the number that the task gets.
    let issue = rig.forge.add_issue(DEMO, "Another", "Not this.", &[]);
    let task = made(&rig, &["--repository", DEMO]);
    assert_eq!((&task["id"], issue), (&json!(1), 1));
    assert_eq!(
        (&task["repository"], &task["item"]),
        (&json!(DEMO), &Value::Null)
    );
    let why = rig.why("1", 0);
    assert_eq!(codes(&why), ["no_free_worker", "requested"]);
    assert_eq!(why["environment"]["notes"], json!([]), "{why:#}");
    // The status is what the fleet makes of it.
    let (_, error) = rig.agentmine(&["task", "update", "1", "--status", "done"], 6);
    assert!(error.contains("what the fleet makes of it"), "{error}");

    rig.consume().await;
    let task = rig.task().await;
    assert_done(&task);
    let pulls = rig.forge.pulls(DEMO);
    assert_eq!(pulls.len(), 1);
    let pull = &pulls[0];
    assert_eq!(
        (pull.title.as_str(), &pull.head),
        (DEMO_TITLE, &task.branch())
    );
    assert!(pull.head.starts_with("agentmine/task-1-"), "{}", pull.head);
    let body = &pull.body;
    assert!(
        body.starts_with("For AgentMine task 1, which a person created."),
        "{body}"
    );
    assert!(
        body.contains("It should print") && !body.contains("#1"),
        "{body}"
    );
    let prompt = &rig.model.requests()[0].body["messages"][1]["content"];
    let prompt = prompt.as_str().unwrap();
    assert!(
        prompt.contains("Task 1 of octo/demo, opened by a person:"),
        "{prompt}"
    );
    assert!(!prompt.contains("#1"), "{prompt}");
    // Nothing is written to an issue.
    assert!(rig.forge.labels(DEMO, issue).is_empty());
    assert!(rig.forge.comments(DEMO, issue).is_empty());
    for write in rig.forge.writes() {
        let path = &write.path;
        assert!(
            path.contains("pulls") || path.contains("merge_requests"),
            "{path}"
        );
    }
    // Its end is final: another attempt is another task.
    let (out, _) = rig.agentmine(&["task", "retry", "1", "--json"], 0);
    let again: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (&again["id"], &again["description"]),
        (&json!(2), &json!(DEMO_BODY))
    );
    assert_eq!(again["repository"], DEMO);
}

async fn a_task_for_a_repository_is_paused_resumed_and_cancelled_like_an_issue(rig: Rig) {
    // It has the number that the task gets, and shows nothing of it.
    let issue = rig.forge.add_issue(DEMO, "Another", "Not this.", &[]);
    assert_eq!(issue, 1);
    made(
        &rig,
        &["--repository", &format!("{}{DEMO}", rig.forge.html_url())],
    );
    rig.agentmine(&["task", "pause", "1"], 0);
    rig.consume().await;
    assert_eq!(rig.task().await.state, TaskState::Paused);
    rig.agentmine(&["task", "resume", "1"], 0);
    assert_eq!(rig.task().await.state, TaskState::Queued);
    rig.agentmine(&["task", "cancel", "1"], 0);
    let consumer = rig.spawn("consumer", &[]);
    is_recorded(&rig, "label", "key = 'stopped' AND done_at IS NOT NULL").await;
    end(consumer).await;
    assert_eq!(rig.task().await.state, TaskState::Ended(EndState::Stopped));
    assert!(rig.forge.writes().is_empty(), "{:?}", rig.forge.writes());
}

async fn a_repository_or_agent_that_the_fleet_does_not_have_is_refused(rig: Rig) {
    rig.forge
        .add_repo("octo/other", agentmine_tests::forge::write_demo);
    for (more, code, words) in [
        (&["octo/other"][..], 3, "octo/other is not a repository"),
        (&["octo/nothing"], 5, "octo/nothing was not found"),
        (
            &["https://elsewhere.example/a/b"],
            3,
            "no configured tracker has a repository",
        ),
        (
            &[DEMO, "--agent", "nobody"],
            5,
            "there is no agent \"nobody\"",
        ),
    ] {
        let args = [&ADD[..], &["--repository"], more].concat();
        let (_, error) = rig.agentmine(&args, code);
        assert!(error.contains(words) && error.contains("hint: "), "{error}");
    }
    assert!(rig.tasks().await.is_empty());
    rig.forge.commit(DEMO, "main", "main", |dir| {
        let folder = dir.join(".agentmine/agents");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("fix.yaml"), "description: Fixes\n").unwrap();
    });
    assert_eq!(
        made(&rig, &["--repository", DEMO, "--agent", "fix"])["agent"],
        "fix"
    );
}

on_both_forges! { solves_demo() =>
    a_task_for_a_repository_becomes_a_pull_request,
    a_task_for_a_repository_is_paused_resumed_and_cancelled_like_an_issue,
    a_repository_or_agent_that_the_fleet_does_not_have_is_refused,
}

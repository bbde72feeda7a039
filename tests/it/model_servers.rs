//! What real model servers do: llama.cpp's server, vLLM, proxies, providers under load.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use agentmine_domain::{EndState, Task, TaskState};
use agentmine_tests::forge::DEMO;
use agentmine_tests::model::{
    Api, Fault, Grammar, Refusal, Scenario, Script, ScriptedModel, call, commit_and_push,
    edit_replace, edit_view, loading, overflows, say, shell, string_code, web_page,
};
use serde_json::json;

use crate::rig::{Rig, assert_done, assert_done_at_attempt, binary, solves_demo};

#[tokio::test]
async fn a_server_that_enforces_the_order_of_schemas_lets_the_model_edit() {
    let insert = json!({
        "command": "insert",
        "path": "{project}/README.md",
        "insert_line": 0,
        "new_str": "Greets.",
    });
    let scenario = Scenario::new("constrained by a grammar").replies([
        edit_view("greet.sh"),
        edit_replace("greet.sh", "name=\"\"", "name=\"${1:-world}\""),
        call("text_editor", insert),
        shell("sh test.sh"),
        commit_and_push("Greet the person named"),
        say("Done."),
    ]);
    let rig = Rig::local(Script::from(scenario).grammar(Grammar::Enforced)).await;
    rig.produce_issue().await;
    rig.consume().await;
    let task = rig.task().await;
    let failed: Vec<_> = rig.results(&task).await;
    let failed: Vec<_> = failed.iter().filter(|(_, it)| it.is_error).collect();
    assert!(failed.is_empty(), "{failed:#?}");
    assert_eq!(task.state, TaskState::Ended(EndState::Done));
}

/// Runs `agentmine run` without a terminal, with these settings of the model. Returns what it shows, and
/// how long that took. It is killed after `limit`.
async fn run_alone(model: &ScriptedModel, settings: &str, limit: Duration) -> (String, Duration) {
    let home = tempfile::tempdir().unwrap();
    let repo = home.path().join("mine");
    std::fs::create_dir(&repo).unwrap();
    agentmine_tests::forge::write_demo(&repo);
    git(&repo, &["init", "-q", "-b", "main"]);
    git(&repo, &["add", "."]);
    git(
        &repo,
        &[
            "-c",
            "user.name=a",
            "-c",
            "user.email=a@b",
            "commit",
            "-qm",
            "first",
        ],
    );
    let issue = home.path().join("issue.md");
    std::fs::write(&issue, "# greet.sh greets nobody\n\nIt should greet.\n").unwrap();
    let config = home.path().join("config.yaml");
    std::fs::write(&config, format!("model: {{{settings}}}\n")).unwrap();
    let begun = Instant::now();
    let command = tokio::process::Command::new(binary("agentmine"))
        .arg("--config")
        .arg(&config)
        .args([
            "run",
            "--model",
            "scripted",
            "--base-url",
            &model.base_url(),
            "--repo",
        ])
        .arg(&repo)
        .arg("--issue")
        .arg(&issue)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", home.path())
        .kill_on_drop(true)
        .stdout(std::fs::File::create(home.path().join("out")).unwrap())
        .stderr(std::fs::File::create(home.path().join("err")).unwrap())
        .spawn();
    let _ = tokio::time::timeout(limit, command.unwrap().wait()).await;
    let text = |name| std::fs::read_to_string(home.path().join(name)).unwrap();
    (text("out") + &text("err"), begun.elapsed())
}

fn git(repo: &Path, args: &[&str]) {
    let status = Command::new("git").arg("-C").arg(repo).args(args).status();
    assert!(status.unwrap().success());
}

#[tokio::test]
async fn a_server_that_loads_its_model_is_waited_for_and_the_waiting_is_shown() {
    // Five tries would be over long before the model is loaded.
    let script = Script::from(solves_demo()).fault_first(loading(), 6);
    let model = ScriptedModel::start(script).await;
    let (shown, took) = run_alone(&model, "", Duration::from_secs(100)).await;
    for part in [
        "is not available: status 503",
        "Loading model",
        "Done: task #1",
    ] {
        assert!(shown.contains(part), "{part} is not shown:\n{shown}");
    }
    assert!(took > Duration::from_secs(7), "{took:?}");
}

#[tokio::test]
async fn a_server_that_sends_no_reply_is_reported_while_it_is_waited_for() {
    for (fault, what) in [
        (Fault::Hang, "has not answered"),
        (Fault::Comments, "sends keep-alive comments, but no reply"),
    ] {
        let script = Script::from(solves_demo()).fault_first(fault, 1);
        let model = ScriptedModel::start(script).await;
        let settings = "waiting_notice_seconds: 1, first_byte_timeout_seconds: 3";
        let (shown, _) = run_alone(&model, settings, Duration::from_secs(100)).await;
        for part in [
            "still waiting for the model (1 s)",
            what,
            "hint: check model.base_url",
        ] {
            assert!(shown.contains(part), "{part} is not shown:\n{shown}");
        }
        assert!(shown.contains("Done: task #1"), "{shown}");
    }
}

#[tokio::test]
async fn a_web_page_at_the_address_of_the_model_is_reported_at_once() {
    let script = Script::from(solves_demo()).fault_first(web_page(), usize::MAX);
    let model = ScriptedModel::start(script).await;
    let (shown, _) = run_alone(&model, "", Duration::from_secs(60)).await;
    for part in [
        "a web page titled \"Open WebUI\"",
        "hint: check model.base_url",
    ] {
        assert!(shown.contains(part), "{part} is not shown:\n{shown}");
    }
    assert_eq!(model.requests().len(), 1);
}

#[tokio::test]
async fn a_maintenance_page_in_place_of_the_model_api_ends_no_running_task() {
    let scenario = Scenario::new("maintained").replies([
        edit_replace("greet.sh", "name=\"\"", "name=\"${1:-world}\""),
        commit_and_push("Greet the person named"),
        say("Done."),
    ]);
    // More pages than one session has patience for.
    let scenario = scenario.fault_at(2, web_page(), 8);
    let mut rig = Rig::local(scenario).await;
    rig.config["model"]["retry_seconds"] = 2.into();
    rig.config["model"]["max_tries"] = 2.into();
    rig.produce_issue().await;
    let consumer = rig.spawn("consumer", &[]);
    let task = rig.wait_ended(1).await.remove(0);
    assert_done_at_attempt(&task, 1);
    let sessions = rig.sessions().await;
    assert!(sessions.len() > 1, "{sessions:#?}");
    let reason = sessions.last().unwrap().reason.clone().unwrap_or_default();
    assert!(
        reason.contains("a web page titled \"Open WebUI\" instead of a reply"),
        "{reason}"
    );
    consumer.terminate();
    assert!(consumer.end().await.0.success());
}

#[tokio::test]
async fn an_overflow_ends_with_what_was_done_measured_and_names_the_sizes() {
    let (_, fault) = overflows().swap_remove(3);
    let scenario = Scenario::new("overflows").replies([
        edit_replace("greet.sh", "name=\"\"", "name=\"${1:-world}\""),
        commit_and_push("Greet the person named"),
        shell("cat README.md"),
    ]);
    let rig = Rig::local(scenario.fault_at(3, fault, usize::MAX)).await;
    rig.produce_issue().await;
    rig.consume().await;
    let task = rig.task().await;
    assert_done(&task);
    let body = rig.forge.pulls(DEMO)[0].body.clone();
    for part in ["9120 tokens", "8192", "| `sh test.sh` | 0 |"] {
        assert!(body.contains(part), "{part} is not in {body}");
    }
    for part in ["budget ran out", "litellm.", "{\"error\""] {
        assert!(!body.contains(part), "{part} is in {body}");
    }
}

/// The account is refused in the middle of the work: the task waits for a person, and continues where it was.
#[tokio::test]
async fn a_refused_account_pauses_the_task_which_continues_with_its_work() {
    let exceeded =
        r#"{"error":{"message":"You exceeded your current quota.","code":"insufficient_quota"}}"#;
    let refusal = Refusal {
        status: 429,
        headers: vec![("content-type", "application/json".into())],
        body: exceeded.into(),
    };
    for (fault, words) in [
        (
            string_code(),
            ["no key is set (401)", "hint: set OPENAI_API_KEY"],
        ),
        (
            Fault::Refusal(refusal),
            ["no credit or quota left (429)", "hint: add credit"],
        ),
    ] {
        let mut rig = Rig::local(solves_demo().fault_at(1, fault, 1)).await;
        let number = rig.produce_issue().await;
        rig.consume().await;
        let task = rig.task().await;
        assert_eq!(task.state, TaskState::Paused, "{:?}", task.reason);
        let comment = rig.forge.comments(DEMO, number)[0].body.clone();
        for part in words {
            assert!(comment.contains(part), "{part} is not in {comment}");
        }
        assert_eq!(rig.model.requests().len(), 2);
        // A producer that starts tries each of them.
        rig.config["producer"]["interval_seconds"] = 1.into();
        let producer = rig.spawn("producer", &[]);
        let is_queued = |tasks: &[Task]| tasks[0].state == TaskState::Queued;
        rig.wait("the task to be queued", is_queued).await;
        rig.consume().await;
        let task = rig.task().await;
        assert_done_at_attempt(&task, 1);
        // The first call is not asked for again.
        let turns: Vec<usize> = rig.model.requests().iter().map(|it| it.turn).collect();
        assert_eq!(turns[..3], [0, 1, 1]);
        producer.terminate();
        assert!(producer.end().await.0.success());
    }
}

/// DeepSeek and Gemini refuse a conversation without what the model thought. It outlives the worker.
#[tokio::test]
async fn a_model_that_thinks_gets_its_thoughts_back_also_from_the_next_worker() {
    for stream in [true, false] {
        let mut rig = Rig::local(Script::from(solves_demo()).thinking()).await;
        rig.config["model"]["stream"] = stream.into();
        rig.produce_issue().await;
        rig.model.hold_at(2);
        let first = rig.spawn("consumer", &[]);
        rig.model.wait_for_held(1).await;
        first.kill_nine();
        rig.model.release();
        let second = rig.spawn("consumer", &[]);
        let task = rig.wait_ended(1).await.remove(0);
        assert_done(&task);
        second.terminate();
        let (_, log) = second.end().await;
        assert!(!log.contains("in a simpler form"), "{log}");
        assert_eq!(rig.sessions().await.len(), 2);
    }
}

/// Claude: each step reads the conversation before it from the cache, and the model gets its thoughts back.
#[tokio::test]
async fn a_task_is_done_over_anthropic_messages() {
    let key = "sk-ant-0123456789";
    let mut rig = Rig::local(Script::from(solves_demo()).thinking().key(key)).await;
    rig.config["model"]["provider"] = "anthropic".into();
    rig.config["model"]["api_key"] = key.into();
    rig.produce_issue().await;
    rig.consume().await;
    let task = rig.task().await;
    assert_done(&task);
    assert_eq!(rig.forge.pulls(DEMO).len(), 1);
    let requests = rig.model.requests();
    assert_eq!(requests.len(), 5);
    assert!(requests.iter().all(|it| it.api == Api::Messages));
    let request = &requests[1].body;
    let mark = json!({ "type": "ephemeral" });
    let system = request["system"].as_array().unwrap().last().unwrap();
    assert_eq!(system["cache_control"], mark);
    let turns = request["messages"].as_array().unwrap();
    let [.., opening, reply, results] = turns.as_slice() else {
        panic!("{request:#}");
    };
    assert_eq!(reply["content"][0]["type"], "thinking");
    assert_eq!(results["content"][0]["type"], "tool_result");
    assert_eq!(
        results["content"][0]["tool_use_id"],
        reply["content"][1]["id"]
    );
    for turn in [opening, results] {
        let last = turn["content"].as_array().unwrap().last().unwrap();
        assert_eq!(last["cache_control"], mark, "{turn:#}");
    }
}

#[tokio::test]
async fn a_connection_cut_in_mid_reply_is_tried_again_and_nothing_runs_twice() {
    let rig = Rig::local(solves_demo().fault_at(1, Fault::BreakOff, 2)).await;
    rig.produce_issue().await;
    rig.consume().await;
    let task = rig.task().await;
    assert_done(&task);
    assert_eq!(rig.results(&task).await.len(), 4);
    assert_eq!(rig.model.requests().len(), 7);
}

//! A labelled issue becomes a pull request, whatever happens on the way.

use std::time::Instant;

use agentmine_domain::{EndState, SessionEnd, StepKind, TaskState};
use agentmine_tests::forge::DEMO;
use agentmine_tests::model::{Fault, Scenario, commit_and_push, edit_replace, say, shell};

use crate::endpoint::{free_address, get};
use crate::rig::{REQUEST, Rig, assert_done, containers, on_both_forges, solves_demo};

#[tokio::test]
async fn issue_becomes_pull_request() {
    let rig = Rig::new(solves_demo()).await;
    let number = rig.forge.add_issue(
        DEMO,
        "greet.sh greets nobody",
        "It should greet.",
        &[REQUEST, "bug"],
    );
    rig.produce().await;
    assert_eq!(
        rig.forge.labels(DEMO, number),
        ["bug", "coding agent processing"]
    );
    rig.consume().await;

    let task = rig.task().await;
    assert_done(&task);
    let pulls = rig.forge.pulls(DEMO);
    assert_eq!(pulls.len(), 1);
    let pull = &pulls[0];
    assert_eq!(
        (pull.head.as_str(), pull.base.as_str(), pull.draft),
        (task.branch().as_str(), "main", false)
    );
    assert!(
        pull.body.contains(&format!("Closes #{number}")),
        "{}",
        pull.body
    );
    assert!(pull.body.contains("| `sh test.sh` | 0 |"), "{}", pull.body);
    assert!(
        rig.forge
            .file_at(DEMO, &pull.head, "greet.sh")
            .unwrap()
            .contains("${1:-world}")
    );

    assert_eq!(rig.forge.labels(DEMO, number), ["bug", "coding agent done"]);
    let comments = rig.forge.comments(DEMO, number);
    assert_eq!(comments.len(), 1, "{comments:#?}");
    assert!(comments[0].body.contains(&pull.url), "{}", comments[0].body);

    let sessions = rig.sessions().await;
    assert_eq!(sessions.len(), 1);
    assert_eq!(sessions[0].end, Some(SessionEnd::Done));
    assert_eq!(
        (sessions[0].usage.model_calls, sessions[0].usage.tool_calls),
        (5, 4)
    );
    let steps = rig.steps(&task).await;
    assert_eq!(
        steps
            .iter()
            .filter(|s| s.kind == StepKind::ToolResult)
            .count(),
        4
    );
    assert!(
        steps
            .iter()
            .enumerate()
            .all(|(i, s)| s.seq.0 == i as i64 + 1),
        "the journal has gaps"
    );
    assert_eq!(containers(&[task]).await, Vec::<String>::new());
}

async fn a_second_scan_of_the_same_label_creates_no_second_task(rig: Rig) {
    let number = rig.produce_issue().await;
    // As seen by a scan that began before the label changed.
    rig.produce().await;
    assert_eq!(rig.tasks().await.len(), 1);
    rig.consume().await;
    rig.produce().await;
    assert_eq!(rig.tasks().await.len(), 1);
    // Requested again by a person, it is a new task with a new branch and pull request.
    rig.forge.remove_label(DEMO, number, "coding agent done");
    rig.forge.add_label(DEMO, number, REQUEST);
    rig.produce().await;
    rig.consume().await;
    assert_eq!(rig.wait_ended(2).await.len(), 2);
    assert_eq!(rig.forge.pulls(DEMO).len(), 2);
}

async fn twenty_issues_give_twenty_pull_requests(mut rig: Rig) {
    // A machine whose disk is stalled for some seconds takes no task from anybody.
    rig.config["consumer"]["heartbeat_loss_seconds"] = 40.into();
    rig.config["consumer"]["lease_seconds"] = 60.into();
    for n in 1..=20 {
        rig.forge.add_issue(
            DEMO,
            &format!("greet.sh greets nobody ({n})"),
            "It should greet.",
            &[REQUEST],
        );
    }
    let producers = [rig.spawn("producer", &[]), rig.spawn("producer", &[])];
    let consumers = [
        rig.spawn("consumer", &[]),
        rig.spawn("consumer", &[]),
        rig.spawn("consumer", &[]),
    ];
    let tasks = rig.wait_ended(20).await;
    for task in &tasks {
        assert_done(task);
    }
    let mut logs = String::new();
    for process in producers.into_iter().chain(consumers) {
        process.terminate();
        let (status, log) = process.end().await;
        assert!(status.success(), "{status}\n{log}");
        logs.push_str(&log);
    }
    let pulls = rig.forge.pulls(DEMO);
    assert_eq!(pulls.len(), 20);
    let heads: std::collections::BTreeSet<_> = pulls.iter().map(|p| p.head.clone()).collect();
    assert_eq!(heads.len(), 20);
    let all = rig.tasks().await;
    assert_eq!(all.len(), 20, "{all:#?}");
    let sessions = rig.sessions().await;
    for task in &tasks {
        let own: Vec<_> = sessions.iter().filter(|s| s.task == task.id).collect();
        let id = task.id.to_string();
        let said: Vec<_> = logs.lines().filter(|line| line.contains(&id)).collect();
        assert_eq!(own.len(), 1, "{own:#?}\n{said:#?}");
        assert_eq!(own[0].end, Some(SessionEnd::Done), "{said:#?}");
    }
    assert_eq!(containers(&tasks).await, Vec::<String>::new());
}

#[tokio::test]
async fn twenty_issues_two_producers_three_consumers_give_twenty_pull_requests_on_github() {
    twenty_issues_give_twenty_pull_requests(Rig::new(solves_demo()).await).await;
}

#[tokio::test]
async fn twenty_issues_two_producers_three_consumers_give_twenty_merge_requests_on_gitlab() {
    twenty_issues_give_twenty_pull_requests(Rig::local_gitlab(solves_demo()).await).await;
}

#[tokio::test]
async fn killed_consumer_loses_nothing() {
    let rig = Rig::new(solves_demo()).await;
    for n in 1..=3 {
        rig.forge.add_issue(
            DEMO,
            &format!("greet.sh greets nobody ({n})"),
            "It should greet.",
            &[REQUEST],
        );
    }
    // Every task is held after its file was edited and before anything is pushed.
    rig.model.hold_at(2);
    let mut rig = rig;
    rig.config["consumer"]["concurrency"] = 1.into();
    rig.produce().await;
    let victim = rig.spawn("consumer", &[]);
    let others = [rig.spawn("consumer", &[]), rig.spawn("consumer", &[])];
    rig.model.wait_for_held(3).await;
    victim.kill_nine();
    victim.end().await;
    rig.model.release();
    let tasks = rig.wait_ended(3).await;
    for task in &tasks {
        assert_eq!(
            task.state,
            TaskState::Ended(EndState::Done),
            "{:?}\n{}",
            task.reason,
            rig.transcript(task).await
        );
    }
    assert_eq!(rig.forge.pulls(DEMO).len(), 3);
    let sessions = rig.sessions().await;
    assert_eq!(sessions.len(), 4);
    assert_eq!(
        sessions
            .iter()
            .filter(|s| s.end == Some(SessionEnd::Expired))
            .count(),
        1
    );
    // The second worker continued where the first was: the edit was not repeated.
    let resumed = tasks.iter().find(|t| t.attempt == 2).unwrap();
    let results = rig.results(resumed).await;
    let edits = results
        .iter()
        .filter(|(_, result)| result.name == "text_editor");
    assert_eq!(edits.count(), 1);
    rig.wait_no_containers(&tasks).await;
    for process in others {
        process.terminate();
        let (status, log) = process.end().await;
        assert!(status.success(), "{status}\n{log}");
    }
}

#[tokio::test]
async fn consumer_drains_on_sigterm() {
    let mut rig = Rig::new(solves_demo()).await;
    rig.produce_issue().await;
    rig.model.hold_at(3);
    let address = free_address();
    rig.config["http"] = serde_json::json!({ "listen": address });
    let consumer = rig.spawn("consumer", &[]);
    rig.config.as_object_mut().unwrap().remove("http");
    rig.model.wait_for_held(1).await;
    assert_eq!(get(&address, "/live").await.0, 200);
    let (status, ready) = get(&address, "/ready").await;
    assert_eq!(status, 200, "{ready}");
    let (_, metrics) = get(&address, "/metrics").await;
    for part in [
        "# HELP agentmine_sessions_running",
        "agentmine_sessions_running 1",
        "agentmine_claims_total",
    ] {
        assert!(metrics.contains(part), "{part} is not in {metrics}");
    }
    consumer.terminate();
    // It takes no more work while it finishes its tasks, and reports that it is not ready.
    while get(&address, "/ready").await.0 != 503 {
        tokio::task::yield_now().await;
    }
    rig.forge.add_issue(
        DEMO,
        "greet.sh greets nobody (2)",
        "It should greet.",
        &[REQUEST],
    );
    rig.produce().await;
    rig.model.release();
    let (status, log) = consumer.end().await;
    assert!(status.success(), "{status}\n{log}");
    let tasks = rig.tasks().await;
    let states: Vec<_> = tasks.iter().map(|t| t.state).collect();
    assert_eq!(
        states,
        [TaskState::Queued, TaskState::Ended(EndState::Done)],
        "{log}"
    );
    assert_eq!(tasks[0].attempt, 0);
}

#[tokio::test]
async fn a_task_still_running_at_the_drain_deadline_is_given_back_and_does_not_count() {
    let mut rig = Rig::new(solves_demo()).await;
    rig.config["consumer"]["drain_seconds"] = 1.into();
    rig.produce_issue().await;
    rig.model.hold_at(3);
    let consumer = rig.spawn("consumer", &[]);
    rig.model.wait_for_held(1).await;
    consumer.terminate();
    let (status, log) = consumer.end().await;
    assert!(status.success(), "{status}\n{log}");
    let task = rig.task().await;
    assert_eq!((task.state, task.attempt), (TaskState::Queued, 0), "{log}");
    assert_eq!(
        containers(std::slice::from_ref(&task)).await,
        Vec::<String>::new()
    );
    rig.model.release();
    rig.consume().await;
    assert_eq!(rig.task().await.state, TaskState::Ended(EndState::Done));
    assert_eq!(rig.forge.pulls(DEMO).len(), 1);
}

#[tokio::test]
async fn an_idle_consumer_ends_at_once_and_a_busy_one_hands_its_work_over_in_time() {
    agentmine_runtime::tls::install_default_provider();
    let mut rig = Rig::local(solves_demo()).await;
    // The default.
    let consumer = rig.config["consumer"].as_object_mut().unwrap();
    consumer.remove("drain_seconds");
    let address = free_address();
    rig.config["http"] = serde_json::json!({ "listen": address });
    let idle = rig.spawn("consumer", &[]);
    let url = format!("http://{address}/ready");
    while !reqwest::get(&url).await.is_ok_and(|it| it.status() == 200) {
        tokio::task::yield_now().await;
    }
    let begun = Instant::now();
    idle.terminate();
    assert!(idle.end().await.0.success());
    assert!(begun.elapsed().as_secs_f64() < 2.0, "{:?}", begun.elapsed());

    rig.config.as_object_mut().unwrap().remove("http");
    let (title, body) = ("greet.sh greets nobody", "It should greet.");
    rig.forge.add_issue(DEMO, title, body, &[REQUEST]);
    rig.produce().await;
    rig.model.hold_at(3);
    let busy = rig.spawn("consumer", &[]);
    rig.model.wait_for_held(1).await;
    let other = rig.spawn("consumer", &[]);
    let begun = Instant::now();
    busy.terminate();
    let (status, log) = busy.end().await;
    assert!(status.success(), "{status}\n{log}");
    assert!(begun.elapsed().as_secs() < 25, "{:?}", begun.elapsed());
    // The call that the first consumer did not finish, made by the other one.
    let begun = Instant::now();
    rig.model.wait_for_requests(4).await;
    assert!(begun.elapsed().as_secs() < 5, "{:?}", begun.elapsed());
    rig.model.release();
    let task = rig.wait_ended(1).await.remove(0);
    assert_eq!(
        (task.state, task.attempt),
        (TaskState::Ended(EndState::Done), 1)
    );
    other.terminate();
    assert!(other.end().await.0.success());
}

#[tokio::test]
async fn failing_checks_are_returned_to_the_model_with_their_output() {
    let scenario = Scenario::new("too early").replies([
        edit_replace("greet.sh", "name=\"\"", "name=\"$1\""),
        commit_and_push("Greet the argument"),
        say("Done."),
        edit_replace("greet.sh", "name=\"$1\"", "name=\"${1:-world}\""),
        commit_and_push("Greet the world, too"),
        say("Now it is done."),
    ]);
    let rig = Rig::local(scenario).await;
    rig.produce_issue().await;
    rig.consume().await;
    let task = rig.task().await;
    assert_done(&task);
    let transcript = rig.transcript(&task).await;
    assert!(
        transcript.contains("`sh test.sh` failed with exit code 1"),
        "{transcript}"
    );
    assert!(!rig.forge.pulls(DEMO)[0].draft);
}

/// On GitLab alone: `rebases` has a push of the worker's to GitHub.
#[tokio::test]
async fn uncommitted_work_is_committed_and_pushed_by_the_worker() {
    let scenario = Scenario::new("forgets git").replies([
        edit_replace("greet.sh", "name=\"\"", "name=\"${1:-world}\""),
        say("Done."),
    ]);
    let rig = Rig::local_gitlab(scenario).await;
    rig.produce_issue().await;
    rig.consume().await;
    assert_eq!(rig.task().await.state, TaskState::Ended(EndState::Done));
    assert_eq!(rig.forge.pulls(DEMO).len(), 1);
}

async fn a_labelled_pull_request_is_worked_on_in_its_branch(rig: Rig) {
    rig.forge.commit(DEMO, "feature", "main", |dir| {
        std::fs::write(dir.join("more.txt"), "more\n").unwrap()
    });
    rig.forge.commit(DEMO, "main", "main", |dir| {
        std::fs::write(dir.join("other.txt"), "other\n").unwrap()
    });
    let number = rig
        .forge
        .add_pull(DEMO, "feature", "main", "Add more", &[REQUEST]);
    rig.produce().await;
    rig.consume().await;
    let task = rig.task().await;
    assert_done(&task);
    assert_eq!(
        rig.forge.pulls(DEMO).len(),
        1,
        "a second pull request was opened"
    );
    assert!(
        rig.forge
            .file_at(DEMO, "feature", "greet.sh")
            .unwrap()
            .contains("${1:-world}")
    );
    assert!(rig.forge.file_at(DEMO, "feature", "more.txt").is_some());
    assert!(
        rig.forge.comments(DEMO, number)[0]
            .body
            .contains("sh test.sh")
    );
}

async fn a_task_is_stopped_and_paused_on_request(rig: Rig) {
    let number = rig.produce_issue().await;
    rig.model.hold_at(2);
    let consumer = rig.spawn("consumer", &[]);
    rig.model.wait_for_held(1).await;
    let task = rig.task().await;
    assert!(rig.store.request_pause(task.id, "lunch").await.unwrap());
    rig.wait("a pause", |t| t[0].state == TaskState::Paused)
        .await;
    assert_eq!(rig.forge.labels(DEMO, number), ["coding agent paused"]);
    assert!(rig.store.resume(task.id).await.unwrap());
    // The second session sends the same request, and is held again.
    rig.model.wait_for_requests(4).await;
    assert!(
        rig.store
            .request_stop(task.id, "no longer wanted")
            .await
            .unwrap()
    );
    rig.wait_ended(1).await;
    assert_eq!(rig.task().await.state, TaskState::Ended(EndState::Stopped));
    assert_eq!(rig.forge.labels(DEMO, number), ["coding agent stopped"]);
    assert!(rig.forge.pulls(DEMO).is_empty());
    consumer.terminate();
    assert!(consumer.end().await.0.success());
}

async fn tasks_are_found_and_done_while_the_broker_is_down(mut rig: Rig) {
    // Nothing listens on the discard port.
    rig.config["queue"]["url"] = "amqp://guest:guest@127.0.0.1:9/%2f".into();
    rig.label_issue();
    let (status, log) = rig.spawn("producer", &["--once"]).end().await;
    assert!(
        !status.success(),
        "a producer that could not announce did not report it"
    );
    assert!(log.contains("could not be announced"), "{log}");
    assert_eq!(rig.tasks().await.len(), 1, "the task was lost");
    rig.consume().await;
    assert_eq!(rig.task().await.state, TaskState::Ended(EndState::Done));
    assert_eq!(rig.forge.pulls(DEMO).len(), 1);
}

#[tokio::test]
async fn a_denied_command_is_reported_to_the_model() {
    let scenario =
        Scenario::new("asks for root").replies([shell("sudo id"), say("I cannot do this.")]);
    let rig = Rig::local(scenario).await;
    rig.produce_issue().await;
    rig.consume().await;
    let task = rig.task().await;
    assert!(
        rig.transcript(&task)
            .await
            .contains("`sudo` may not be run here")
    );
    assert_eq!(task.state, TaskState::Ended(EndState::Failed));
}

impl Rig {
    /// Waits until no container of these tasks is left: the sweep removes a killed worker's.
    async fn wait_no_containers(&self, tasks: &[agentmine_domain::Task]) {
        let begun = std::time::Instant::now();
        while !containers(tasks).await.is_empty() {
            assert!(
                begun.elapsed() < crate::rig::PATIENCE,
                "left: {:?}",
                containers(tasks).await
            );
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    }
}

#[tokio::test]
async fn a_resumed_session_shows_its_own_usage_beside_that_of_its_task() {
    let mut rig = Rig::local(solves_demo().fault_at(2, Fault::Status(503, None), 1)).await;
    rig.config["model"]["max_tries"] = 1.into();
    rig.produce_issue().await;
    let consumer = rig.spawn("consumer", &[]);
    rig.wait_ended(1).await;
    consumer.terminate();
    consumer.end().await;
    let sessions = rig.sessions().await;
    let counts: Vec<_> = sessions
        .iter()
        .map(|session| (session.usage.model_calls, session.usage.tool_calls))
        .collect();
    assert_eq!(counts, [(3, 2), (2, 2)], "newest first");
    let show = async |id: String| {
        let mut command = rig.program("agentmine");
        let output = command.args(["session", "show", &id]).output();
        String::from_utf8_lossy(&output.await.unwrap().stdout).into_owned()
    };
    let resumed = show(sessions[0].id.to_string()).await;
    for part in [
        "used     3 model calls, 2 tool calls",
        "task     5 model calls, 4 tool calls",
        "in all of its sessions",
        &format!("before   session {} of worker ", sessions[1].id),
        "gave the task back: an external service is unavailable",
        "s after that session ended",
        "restored the conversation of 2 model calls; the project's files as of step ",
    ] {
        assert!(resumed.contains(part), "{part} is not shown:\n{resumed}");
    }
    let first = show(sessions[1].id.to_string()).await;
    let after = format!("after    session {} of worker ", sessions[0].id);
    assert!(first.contains(&after), "{first}");
    assert!(!first.contains("before   "), "{first}");
}

on_both_forges! { solves_demo() =>
    a_second_scan_of_the_same_label_creates_no_second_task,
    a_labelled_pull_request_is_worked_on_in_its_branch,
    a_task_is_stopped_and_paused_on_request,
    tasks_are_found_and_done_while_the_broker_is_down,
}

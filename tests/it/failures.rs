//! The failure paths of the specification: spec 000 §12 and spec 001 §8.

use agentmine_domain::{EndState, SessionEnd, TaskState};
use agentmine_tests::forge::{DEMO, Fault as ForgeFault};
use agentmine_tests::model::{
    Scenario, commit_and_push, edit_create, edit_replace, edit_view, say, shell,
};

use crate::forges::Request;
use crate::rig::{Process, Rig, assert_done, binary, on_both_forges, solves_demo};

fn comments_on(rig: &Rig, number: u64) -> String {
    let comments = rig.forge.comments(DEMO, number);
    assert_eq!(comments.len(), 1, "{comments:#?}");
    comments[0].body.clone()
}

/// A repository asks for an image that the operator allows.
async fn asks_for_image(image: &str) -> (Rig, u64) {
    let mut rig = Rig::new(solves_demo()).await;
    rig.forge.commit(DEMO, "main", "main", |dir| {
        let file = format!("image: {image}\n");
        std::fs::write(dir.join(".agentmine/config.yaml"), file).unwrap();
    });
    let number = rig.produce_issue().await;
    rig.config["command_executor"]["docker"]["allowed_images"] = serde_json::json!([image]);
    rig.consume().await;
    (rig, number)
}

#[tokio::test]
async fn a_container_that_cannot_be_created_ends_the_task_with_a_comment() {
    // The engine refuses it without a registry: a name has no capital letters.
    let (rig, number) = asks_for_image("agentmine-no-such-Image:1").await;
    let task = rig.task().await;
    assert_eq!(task.state, TaskState::Ended(EndState::Failed));
    assert_eq!(rig.forge.labels(DEMO, number), ["coding agent failed"]);
    assert!(
        comments_on(&rig, number).contains("the sandbox could not be created"),
        "{}",
        comments_on(&rig, number)
    );
}

#[tokio::test]
async fn an_image_whose_registry_is_away_is_waited_for() {
    // Nothing listens there.
    let (rig, _) = asks_for_image("127.0.0.1:1/agentmine-no-such-image:1").await;
    let task = rig.task().await;
    assert_eq!((task.state, task.attempt), (TaskState::Queued, 0));
    let reason = rig.sessions().await[0].reason.clone().unwrap_or_default();
    assert!(reason.contains("could not be pulled"), "{reason}");
}

#[tokio::test]
async fn a_missing_image_is_reported_before_any_work_begins() {
    let mut rig = Rig::new(solves_demo()).await;
    rig.produce_issue().await;
    rig.config["command_executor"]["docker"]["base_image"] = "agentmine-no-such-image:1".into();
    let (status, log) = rig.spawn("consumer", &["--once"]).end().await;
    assert!(!status.success());
    assert!(
        log.contains("agentmine-no-such-image:1") && log.contains("docker/executor-default"),
        "{log}"
    );
    assert_eq!(
        rig.task().await.state,
        TaskState::Queued,
        "the task was lost"
    );
}

/// A token that git refuses pauses the task, and a token that works continues it in the same attempt.
async fn a_clone_that_is_refused_pauses_the_task_until_the_credentials_are_accepted(rig: Rig) {
    let number = rig.produce_issue().await;
    let refused = ForgeFault::on("GET", "/octo/demo.git/info/refs");
    rig.forge.inject(refused.times(usize::MAX).status(403));
    rig.consume().await;
    let task = rig.task().await;
    assert!(task.waits_for_credentials(), "{task:?}");
    assert_eq!(task.attempt, 0);
    let comments = comments_on(&rig, number);
    assert!(
        comments.contains("could not be cloned") && comments.contains("credentials"),
        "{comments}"
    );
    assert_eq!(rig.forge.labels(DEMO, number), ["coding agent paused"]);
    continues(&rig).await;
}

/// An API that refuses the token: nothing can be written meanwhile.
async fn pauses_and_continues(mut rig: Rig, faults: &[ForgeFault], said: &str) {
    rig.config["consumer"]["lease_seconds"] = 10.into();
    rig.produce_issue().await;
    for fault in faults {
        rig.forge.inject(fault.clone().times(usize::MAX));
    }
    rig.consume().await;
    let task = rig.task().await;
    assert!(task.waits_for_credentials(), "{task:?}");
    assert_eq!(task.attempt, 0);
    let reason = task.reason.clone().unwrap_or_default();
    assert!(reason.contains(said), "{reason}");
    continues(&rig).await;
}

/// One that has expired, and one that lacks a permission.
#[tokio::test]
async fn an_expired_or_weak_token_pauses_its_task_names_what_is_missing_and_costs_no_attempt_on_github()
 {
    let expired = ForgeFault::on("*", "/repos/octo/demo").status(401);
    pauses_and_continues(Rig::local(solves_demo()).await, &[expired], "401").await;
    let weak = ForgeFault::on("POST", "/repos/octo/demo")
        .status(403)
        .header("x-accepted-github-permissions", "issues=write")
        .body("{\"message\":\"Resource not accessible by personal access token\"}");
    let said = "needs the permission issues=write";
    pauses_and_continues(Rig::local(solves_demo()).await, &[weak], said).await;
}

/// One that was revoked, and one with a scope that is too small.
#[tokio::test]
async fn an_expired_or_weak_token_pauses_its_task_names_what_is_missing_and_costs_no_attempt_on_gitlab()
 {
    let expired = ForgeFault::on("*", "/api/v4/projects/").status(401);
    pauses_and_continues(Rig::local_gitlab(solves_demo()).await, &[expired], "401").await;
    let weak = ["POST", "PUT"].map(|method| {
        let fault = ForgeFault::on(method, "/api/v4/projects/").status(403);
        fault.body("{\"error\":\"insufficient_scope\",\"error_description\":\"The request requires higher privileges than provided by the access token.\",\"scope\":\"api\"}")
    });
    pauses_and_continues(Rig::local_gitlab(solves_demo()).await, &weak, "`api`").await;
}

/// The credentials are accepted again; a producer notices, and the task is done in its first attempt.
async fn continues(rig: &Rig) {
    rig.forge.heal();
    rig.produce().await;
    rig.consume().await;
    let task = rig.task().await;
    assert_done(&task);
    assert_eq!(task.attempt, 1);
    let labels = rig.forge.labels(DEMO, task.item.number);
    assert_eq!(labels, ["coding agent done"]);
}

#[tokio::test]
async fn an_editor_that_does_not_start_is_reported_and_the_session_continues_without_it() {
    let scenario = Scenario::new("without an editor").replies([
        edit_view("greet.sh"),
        shell("sed -i 's/name=\"\"/name=\"${1:-world}\"/' greet.sh && sh test.sh"),
        commit_and_push("Greet the person named"),
        say("Done."),
    ]);
    let mut rig = Rig::local(scenario).await;
    rig.config["text_editor_mcp"]["mcp_server"]["name"] = "text-editor".into();
    rig.config["text_editor_mcp"]["mcp_server"]["command"] = serde_json::json!(["no-such-editor"]);
    let number = rig.produce_issue().await;
    rig.model.hold_at(1);
    let consumer = rig.spawn("consumer", &["--once"]);
    rig.model.wait_for_held(1).await;
    let comments = comments_on(&rig, number);
    assert!(comments.contains("continues without it"), "{comments}");
    rig.model.release();
    let (status, log) = consumer.end().await;
    assert!(status.success(), "{log}");
    let task = rig.task().await;
    assert_done(&task);
    let comments = comments_on(&rig, number);
    for part in [
        "The text editor cannot be used",
        "no-such-editor",
        "opened a pull request",
    ] {
        assert!(comments.contains(part), "{part}: {comments}");
    }
    let transcript = rig.transcript(&task).await;
    assert!(transcript.contains("there is no tool"), "{transcript}");
    let tools = rig.model.requests()[0].body["tools"].clone();
    assert!(!tools.to_string().contains("text_editor"), "{tools}");
}

#[tokio::test]
async fn a_tool_error_goes_to_the_model_and_the_session_continues() {
    let scenario = Scenario::new("clumsy").replies([
        edit_view("absent.txt"),
        edit_replace("greet.sh", "no such text", "x"),
        edit_create("greet.sh", "x"),
        shell("no-such-program --help"),
        edit_replace("greet.sh", "name=\"\"", "name=\"${1:-world}\""),
        commit_and_push("Greet the person named"),
        say("Done."),
    ]);
    let rig = Rig::local(scenario).await;
    rig.produce_issue().await;
    rig.consume().await;
    let task = rig.task().await;
    assert_done(&task);
    let results = rig.results(&task).await;
    let failed = results.iter().filter(|(_, result)| result.is_error);
    assert_eq!(failed.count(), 3);
    assert!(
        rig.transcript(&task)
            .await
            .contains("\\\"exit_code\\\":127")
    );
}

#[tokio::test]
async fn a_command_over_its_time_limit_is_killed_and_reported() {
    let mut rig = Rig::local(
        Scenario::new("waits").replies([shell("sleep 600 & sleep 600"), say("I cannot.")]),
    )
    .await;
    rig.config["command_executor"]["execution"]["timeout_seconds"] = 1.into();
    rig.produce_issue().await;
    rig.consume().await;
    let task = rig.task().await;
    assert!(
        rig.transcript(&task)
            .await
            .contains("exceeded its time limit")
    );
}

/// Before a model is paid for.
async fn a_token_that_may_only_read_pauses_the_task_before_the_work(rig: Rig) {
    let number = rig.produce_issue().await;
    let push = ForgeFault::on("GET", "/octo/demo.git/info/refs?service=git-receive-pack");
    rig.forge.inject(push.times(usize::MAX).status(403));
    rig.consume().await;
    let task = rig.task().await;
    assert!(task.waits_for_credentials(), "{task:?}");
    assert!(rig.model.requests().is_empty());
    let comments = comments_on(&rig, number);
    assert!(comments.contains("git push"), "{comments}");
    continues(&rig).await;
}

async fn credentials_that_expire_before_the_push_pause_the_task_with_a_comment(rig: Rig) {
    let number = rig.produce_issue().await;
    let push = ForgeFault::on("POST", "/octo/demo.git/git-receive-pack");
    rig.forge.inject(push.times(usize::MAX).status(401));
    rig.consume().await;
    let task = rig.task().await;
    assert!(task.waits_for_credentials(), "{task:?}");
    let comments = comments_on(&rig, number);
    assert!(comments.contains("credentials"), "{comments}");
    assert!(rig.forge.pulls(DEMO).is_empty());
}

/// The command changes a file, commits and pushes.
async fn a_commit_whose_push_was_refused_outlasts_the_pause(rig: Rig) {
    rig.produce_issue().await;
    let push = ForgeFault::on("POST", "/octo/demo.git/git-receive-pack");
    rig.forge.inject(push.times(usize::MAX).status(401));
    rig.consume().await;
    let task = rig.task().await;
    assert!(task.waits_for_credentials(), "{task:?}");
    continues(&rig).await;
    let branch = rig.task().await.branch();
    let greet = rig.forge.file_at(DEMO, &branch, "greet.sh").unwrap();
    assert!(greet.contains("${1:-world}"), "{greet}");
}

fn works_in_one_command() -> Scenario {
    Scenario::new("works in one command").replies([
        shell(
            "sed -i 's/name=\"\"/name=\"${1:-world}\"/' greet.sh && git commit -qam 'Greet the person named' && \
             git push origin HEAD:refs/heads/{branch}",
        ),
        say("Done."),
    ])
}

#[tokio::test]
async fn a_conflict_is_resolved_by_the_model() {
    let scenario = Scenario::new("meets a conflict").replies([
        edit_replace("greet.sh", "name=\"\"", "name=\"${1:-world}\""),
        commit_and_push("Greet the person named"),
        // Here a person pushes to the same branch.
        shell("echo more >> README.md"),
        commit_and_push("Say more"),
        shell("git pull -q --rebase origin {branch} && git push -q origin HEAD:refs/heads/{branch}; git log --oneline -4"),
        say("Done."),
    ]);
    let rig = Rig::local(scenario).await;
    rig.produce_issue().await;
    rig.model.hold_at(2);
    let consumer = rig.spawn("consumer", &["--once"]);
    rig.model.wait_for_held(1).await;
    let branch = rig.task().await.branch();
    rig.forge.commit(DEMO, &branch, &branch, |dir| {
        std::fs::write(dir.join("human.txt"), "mine\n").unwrap()
    });
    rig.model.release();
    let (status, log) = consumer.end().await;
    assert!(status.success(), "{log}");
    let task = rig.task().await;
    assert_done(&task);
    assert_eq!(
        rig.forge.file_at(DEMO, &branch, "human.txt").as_deref(),
        Some("mine\n"),
        "a person's push was overwritten"
    );
    let readme = rig.forge.file_at(DEMO, &branch, "README.md").unwrap();
    assert!(readme.contains("more"), "{}", rig.transcript(&task).await);
}

#[tokio::test]
async fn an_outage_costs_no_attempt_and_fails_the_task_when_it_lasts_too_long() {
    let mut rig = Rig::local(solves_demo()).await;
    rig.config["model"]["base_url"] = "http://127.0.0.1:9/v1".into();
    rig.config["model"]["max_tries"] = 1.into();
    rig.config["consumer"]["max_attempts"] = 1.into();
    rig.config["consumer"]["outage_seconds"] = 2.into();
    let number = rig.produce_issue().await;
    let consumer = rig.spawn("consumer", &[]);
    rig.wait_ended(1).await;
    consumer.terminate();
    consumer.end().await;
    let task = rig.task().await;
    assert_eq!(
        (task.state, task.attempt),
        (TaskState::Ended(EndState::Failed), 1)
    );
    let comments = comments_on(&rig, number);
    for part in ["model API is unavailable", "127.0.0.1:9", "outage_seconds"] {
        assert!(comments.contains(part), "{part} is not in {comments}");
    }
    let ends: Vec<_> = rig.sessions().await.iter().map(|s| s.end).collect();
    let (failed, released) = ends.split_first().unwrap();
    assert_eq!(*failed, Some(SessionEnd::Failed));
    assert!(
        !released.is_empty()
            && released
                .iter()
                .all(|end| *end == Some(SessionEnd::Released)),
        "{ends:?}"
    );
}

async fn a_lost_response_does_not_open_a_second_pull_request(rig: Rig) {
    rig.produce_issue().await;
    rig.forge
        .inject(rig.fault_of(Request::OpenPull).answer_lost());
    let consumer = rig.spawn("consumer", &[]);
    rig.wait_ended(1).await;
    consumer.terminate();
    consumer.end().await;
    assert_eq!(
        rig.task().await.state,
        TaskState::Ended(EndState::Done),
        "{:?}",
        rig.task().await.reason
    );
    assert_eq!(rig.forge.faults_left(), 0);
    assert_eq!(rig.forge.pulls(DEMO).len(), 1);
    let sessions = rig.sessions().await;
    assert_eq!(sessions.len(), 1, "it is looked up at once: {sessions:#?}");
}

#[tokio::test]
async fn every_fault_of_a_configuration_is_reported_at_once_with_exit_code_3() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.yaml");
    std::fs::write(&path, "command_executor:\n  enabeld: true\nconsumer:\n  concurrency: none\nqueue:\n  url: http://x\n").unwrap();
    for program in ["producer", "consumer"] {
        let process = Process::spawn(
            tokio::process::Command::new(binary(program))
                .arg("--config")
                .arg(&path),
        );
        let (status, log) = process.end().await;
        assert_eq!(status.code(), Some(3), "{log}");
        for part in [
            "enabeld",
            "`enabled`",
            "concurrency",
            "queue.url",
            "config.yaml:2",
            "config.yaml:4",
        ] {
            assert!(log.contains(part), "{part} is not reported:\n{log}");
        }
    }
}

async fn an_unreported_end_is_reported_by_the_sweep(rig: Rig) {
    let number = rig.produce_issue().await;
    // Every write of the last step fails: the comment that links the pull request, the label.
    rig.model.hold_at(4);
    let consumer = rig.spawn("consumer", &[]);
    rig.model.wait_for_held(1).await;
    for method in ["PATCH", "POST", "PUT", "DELETE"] {
        let write = ForgeFault::on(method, "*/issues/*").times(usize::MAX);
        rig.forge.inject(write.status(500));
    }
    rig.model.release();
    rig.wait_ended(1).await;
    assert_eq!(
        rig.task().await.state,
        TaskState::Ended(EndState::Done),
        "an open pull request was called a failure"
    );
    consumer.wait_for("was not reported").await;
    rig.forge.heal();
    let url = rig.task().await.pull_request_url.unwrap();
    rig.forge
        .wait_until("the end is reported", crate::rig::PATIENCE, |forge| {
            forge.labels(DEMO, number) == ["coding agent done"]
                && forge.comments(DEMO, number)[0].body.contains(&url)
        })
        .await;
    consumer.terminate();
    assert!(consumer.end().await.0.success());
    assert_eq!(rig.forge.pulls(DEMO).len(), 1);
}

#[tokio::test]
async fn a_stop_requested_while_the_task_waits_is_reported_too() {
    let rig = Rig::local(solves_demo()).await;
    let number = rig.produce_issue().await;
    let task = rig.task().await;
    assert!(
        rig.store
            .request_stop(task.id, "no longer wanted")
            .await
            .unwrap()
    );
    let consumer = rig.spawn("consumer", &[]);
    rig.forge
        .wait_until("the stop is reported", crate::rig::PATIENCE, |forge| {
            forge.labels(DEMO, number) == ["coding agent stopped"]
        })
        .await;
    consumer.terminate();
    assert!(consumer.end().await.0.success());
    assert!(rig.sessions().await.is_empty());
}

#[tokio::test]
async fn an_absent_broker_and_a_wrong_password_are_reported_once_within_five_seconds() {
    let wrong = crate::rig::amqp_url().replace("guest:guest", "guest:hunter2");
    for (url, place, cause) in [
        (
            "amqp://guest:hunter2@127.0.0.1:9/%2f",
            "127.0.0.1:9",
            "refused",
        ),
        (
            wrong.as_str(),
            "127.0.0.1:",
            "refused the user or the password",
        ),
    ] {
        let mut rig = Rig::local(solves_demo()).await;
        rig.config["queue"]["url"] = url.into();
        for (program, ready) in [("producer", "scanned"), ("consumer", "consumer ready")] {
            let begun = std::time::Instant::now();
            let process = rig.spawn(program, &[]);
            while ![ready, "the queue is unavailable"]
                .iter()
                .all(|part| process.log().contains(part))
            {
                assert!(
                    begun.elapsed().as_secs() < 5,
                    "{program}: {}",
                    process.log()
                );
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
            if program == "consumer" {
                // Its work continues, and the broker is asked many times meanwhile.
                one_issue_announced_later(&rig).await;
                rig.wait_ended(1).await;
            }
            process.terminate();
            let (status, log) = process.end().await;
            assert!(status.success(), "{status}\n{log}");
            let reports_broker = |line: &&str| line.contains("broker") && !line.contains("DEBUG");
            let lines: Vec<&str> = log.lines().filter(reports_broker).collect();
            assert_eq!(lines.len(), 1, "{program}: {log}");
            assert!(
                lines[0].contains(place) && lines[0].contains(cause),
                "{}",
                lines[0]
            );
            assert!(!log.contains("hunter2"), "{log}");
        }
    }
}

/// A task whose wake-up cannot be published yet. The producer fails because of that, unless a consumer has already found the task.
async fn one_issue_announced_later(rig: &Rig) {
    rig.label_issue();
    let (_, log) = rig.spawn("producer", &["--once"]).end().await;
    assert!(log.contains("announced=0"), "{log}");
}

#[tokio::test]
async fn a_section_that_cannot_work_ends_a_process_with_the_code_of_the_configuration() {
    let mut rig = Rig::local(solves_demo()).await;
    rig.config["queue"]["url"] = "amqp://u:hunter2@h:99999/x".into();
    for program in ["producer", "consumer"] {
        let (status, log) = rig.spawn(program, &["--once"]).end().await;
        assert_eq!(status.code(), Some(3), "{program}: {log}");
        assert!(
            log.contains("queue.url") && !log.contains("hunter2"),
            "{log}"
        );
    }
}

#[tokio::test]
async fn the_consumers_log_names_the_mcp_entry_that_is_skipped_and_why() {
    let mut rig = Rig::local(solves_demo()).await;
    let file = rig.folder.path().join("mcp_config.json");
    let entries = "{\"mcpServers\": {\n  \"Bad Name\": {\"command\": [\"x\"]},\n  \"gone\": {\"command\": [\"/no/such/program\"]}\n}}";
    std::fs::write(&file, entries).unwrap();
    rig.config["mcp"] = serde_json::json!({ "config_file": file });
    rig.produce_issue().await;
    let log = rig.consume().await;
    let warned = |part: &str| {
        let mut lines = log.lines();
        assert!(
            lines.any(|line| line.contains("WARN") && line.contains(part)),
            "{part}: {log}"
        );
    };
    warned("mcp_config.json:2");
    warned("gone");
}

/// The first worker dies after its push. The second one cannot find out whether there is a branch.
#[tokio::test]
async fn a_failed_look_for_pushed_work_is_not_taken_for_none() {
    let rig = Rig::local(solves_demo()).await;
    rig.produce_issue().await;
    rig.model.hold_at(4);
    let first = rig.spawn("consumer", &[]);
    rig.model.wait_for_held(1).await;
    first.kill_nine();
    first.end().await;
    let pushed = rig.forge.pushes(DEMO);
    assert_eq!(pushed.len(), 1, "{pushed:?}");
    // The clone passes.
    let look = ForgeFault::on("GET", "/octo/demo.git/info/refs").after(1);
    rig.forge.inject(look.status(404));
    rig.model.release();
    let second = rig.spawn("consumer", &[]);
    rig.wait_ended(1).await;
    second.terminate();
    let (_, log) = second.end().await;
    let task = rig.task().await;
    assert_eq!(
        task.state,
        TaskState::Ended(EndState::Done),
        "{:?}\n{log}",
        task.reason
    );
    let sessions = rig.sessions().await;
    let failed = &sessions[sessions.len() - 2];
    assert_eq!(failed.end, Some(SessionEnd::Released), "{sessions:#?}");
    let reason = failed.reason.as_deref().unwrap_or_default();
    assert!(reason.contains("ls-remote"), "{reason}");
}

on_both_forges! { solves_demo() =>
    a_clone_that_is_refused_pauses_the_task_until_the_credentials_are_accepted,
    a_token_that_may_only_read_pauses_the_task_before_the_work,
    credentials_that_expire_before_the_push_pause_the_task_with_a_comment,
    a_lost_response_does_not_open_a_second_pull_request,
    an_unreported_end_is_reported_by_the_sweep,
}

on_both_forges! { works_in_one_command() => a_commit_whose_push_was_refused_outlasts_the_pause }

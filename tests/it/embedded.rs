//! The whole fleet in one process, as a newcomer runs it.

use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use agentmine_domain::{NewTask, Priority, WakeUp, WorkerId};
use agentmine_runtime::config::{LocalTrackerConfig, Secret, StoreConfig};
use agentmine_runtime::permit::{BootInstant, Permit};
use agentmine_store::{Attempt, Enqueued, LeaseEnd, Publish};
use agentmine_tests::model::{Scenario, ScriptedModel, call, commit_and_push, edit_replace, say};
use agentmine_tests::on_disk;
use agentmine_trackers::Tracker as _;
use agentmine_trackers::local::LocalTracker;

use crate::rig::{binary, solves_demo};

fn agentmine(state: &Path, args: &[&str]) -> Output {
    Command::new(binary("agentmine"))
        .args(args)
        .current_dir(state)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", state)
        .output()
        .unwrap()
}

fn text(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

#[test]
fn demo_ends_within_ten_seconds_with_a_branch_a_diff_and_a_transcript() {
    let home = tempfile::tempdir().unwrap();
    let begun = Instant::now();
    let output = agentmine(home.path(), &["demo"]);
    let took = begun.elapsed();
    let shown = text(&output);
    assert!(output.status.success(), "{shown}");
    assert!(took < Duration::from_secs(10), "{took:?}");
    for part in [
        "sh ./test.sh",
        "exit code 0",
        "+printf",
        "branch",
        "session show 1",
        "model calls",
    ] {
        assert!(shown.contains(part), "{part} is not shown:\n{shown}");
    }
    let transcript = text(&agentmine(home.path(), &["session", "show", "1", "--full"]));
    for part in [
        "FAIL: 'Rust, in five minutes!'",
        "all cases pass",
        "str_replace",
        "commit ",
    ] {
        assert!(
            transcript.contains(part),
            "{part} is not in the transcript:\n{transcript}"
        );
    }
    let calls = |text: &str| {
        let line = text.lines().find(|line| line.contains(" model calls, "));
        let counts = line.unwrap().split(", ").map(ToOwned::to_owned);
        let counts: Vec<String> = counts.filter(|part| part.contains(" calls")).collect();
        counts.join(", ").replace("used     ", "")
    };
    assert!(
        calls(&shown).ends_with(&calls(&transcript))
            || calls(&transcript).ends_with(&calls(&shown)),
        "`run` and `session show` count differently:\n{shown}\n{transcript}"
    );
    let tasks = text(&agentmine(home.path(), &["task", "list"]));
    assert!(tasks.contains("done"), "{tasks}");
}

/// The demo reads no variable of a database; the command that it names runs in the same shell.
#[test]
fn the_command_that_the_demo_names_shows_its_transcript_whatever_database_the_environment_names() {
    let home = tempfile::tempdir().unwrap();
    let shell = |line: &str| {
        let output = Command::new("sh")
            .args(["-c", line])
            .current_dir(home.path())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", home.path())
            .env("AGENTMINE_STORE_URL", "sqlite:other.db")
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", text(&output));
        text(&output)
    };
    let shown = shell(&format!("{} demo", binary("agentmine").display()));
    let mut lines = shown.lines();
    let command = lines.find_map(|line| line.strip_prefix("transcript   "));
    let transcript = shell(command.expect("the command is named"));
    assert!(transcript.contains("all cases pass"), "{transcript}");
}

/// The demo with this script as the first bubblewrap on the path.
fn demo_with_bubblewrap(script: &str) -> std::process::Output {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("bin");
    std::fs::create_dir(&folder).unwrap();
    let bwrap = folder.join("bwrap");
    std::fs::write(&bwrap, script).unwrap();
    std::fs::set_permissions(&bwrap, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    Command::new(binary("agentmine"))
        .arg("demo")
        .current_dir(home.path())
        .env_clear()
        .env("PATH", path)
        .env("HOME", home.path())
        .output()
        .unwrap()
}

#[test]
fn demo_works_in_the_weaker_jail_and_reports_it() {
    let output = demo_with_bubblewrap("#!/bin/sh\nexit 1\n");
    let shown = text(&output);
    assert!(output.status.success(), "{shown}");
    assert!(shown.contains("weaker"), "{shown}");
    assert!(shown.contains("exit code 0"), "{shown}");
}

/// Ubuntu 22.04 has 0.6.1, RHEL 9 has 0.4.1.
#[test]
fn demo_has_the_jail_with_namespaces_with_an_older_bubblewrap() {
    let older = "#!/bin/sh\nfor option; do case $option in --) break ;; --size|--clearenv)\n\
                 echo \"bwrap: Unknown option $option\" >&2; exit 1 ;; esac; done\nexec /usr/bin/bwrap \"$@\"\n";
    let output = demo_with_bubblewrap(older);
    let shown = text(&output);
    assert!(output.status.success(), "{shown}");
    let words: Vec<&str> = shown.split_whitespace().collect();
    let words = words.join(" ");
    assert!(!words.contains("bubblewrap does not work"), "{shown}");
    assert!(shown.contains("exit code 0"), "{shown}");
}

#[test]
fn an_empty_issue_is_refused_before_a_model_call() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("empty.md"), "\n").unwrap();
    let output = agentmine(
        home.path(),
        &[
            "run",
            "--repo",
            ".",
            "--issue",
            "empty.md",
            "--base-url",
            "http://127.0.0.1:9/v1",
        ],
    );
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
    assert!(text(&output).contains("is empty"), "{}", text(&output));
}

#[test]
fn config_check_reports_what_keeps_a_fleet_from_starting() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(
        home.path().join("config.yaml"),
        "trackers: {github: {repositories: [a/b]}}\n",
    )
    .unwrap();
    let output = agentmine(home.path(), &["config", "check"]);
    let shown = text(&output);
    assert_eq!(output.status.code(), Some(3), "{shown}");
    for part in ["GITHUB_PERSONAL_ACCESS_TOKEN", "OPENAI_API_KEY"] {
        assert!(shown.contains(part), "{part} is not reported: {shown}");
    }
}

#[test]
fn config_check_reports_faults_of_trackers_beside_variables_that_are_not_set() {
    let home = tempfile::tempdir().unwrap();
    let write = |text: &str| std::fs::write(home.path().join("config.yaml"), text).unwrap();
    write(
        "trackers:\n  github: {webhook_secret: '${ABSENT_SECRET}', repositories: [a/b]}\nmodel:\n  headers: {x: '${ABSENT_HEADER}'}\nstore:\n  url: mysql://h/x\n",
    );
    let output = agentmine(home.path(), &["config", "check"]);
    let shown = text(&output);
    assert_eq!(output.status.code(), Some(3), "{shown}");
    for part in [
        "ABSENT_SECRET",
        "GITHUB_PERSONAL_ACCESS_TOKEN",
        "ABSENT_HEADER",
        "the configuration has 3 faults",
    ] {
        assert!(shown.contains(part), "{part} is not reported: {shown}");
    }
    assert_eq!(shown.matches("store.url").count(), 1, "{shown}");
    // Nothing is known of a file that cannot be read.
    write("trackers: [\n");
    let shown = text(&agentmine(home.path(), &["config", "check"]));
    assert!(!shown.contains("no tracker is configured"), "{shown}");
}

#[test]
fn a_mistyped_variable_is_reported_on_stderr_and_by_doctor() {
    let home = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| {
        Command::new(binary("agentmine"))
            .args(args)
            .current_dir(home.path())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", home.path())
            .env("AGENTMINE_STOR_URL", "sqlite:hunter2.db")
            .output()
            .unwrap()
    };
    let listed = run(&["config", "show", "--json"]);
    let warning = String::from_utf8_lossy(&listed.stderr).into_owned();
    let expected = "warning: the environment variable AGENTMINE_STOR_URL is set";
    assert!(warning.starts_with(expected), "{warning}");
    assert_eq!(warning.matches("AGENTMINE_STORE_URL").count(), 1);
    assert!(!text(&listed).contains("hunter2"), "{warning}");
    let _: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
    let doctor = text(&run(&["doctor", "--timeout", "3"]));
    assert_eq!(doctor.matches("AGENTMINE_STOR_URL").count(), 1, "{doctor}");
}

#[test]
fn a_url_that_no_store_can_have_is_a_fault_of_the_configuration() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(
        home.path().join("config.yaml"),
        "store: {url: 'postgres://u:hunter2/x@h/db'}\n",
    )
    .unwrap();
    let output = agentmine(home.path(), &["task", "list"]);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output));
    assert!(!text(&output).contains("hunter2"), "{}", text(&output));
}

#[test]
fn config_check_refuses_a_fleet_whose_model_has_no_tool() {
    let home = tempfile::tempdir().unwrap();
    let check = |editor: bool| {
        let tracker = "trackers: {local: {repository: ., issues: .}}";
        let tools = format!("text_editor_mcp: {{enabled: {editor}}}");
        std::fs::write(
            home.path().join("config.yaml"),
            format!("{tracker}\n{tools}\n"),
        )
        .unwrap();
        text(&agentmine(home.path(), &["config", "check"]))
    };
    let refusal = "command_executor.enabled and text_editor_mcp.enabled are both false";
    assert!(check(false).contains(refusal), "{}", check(false));
    assert!(!check(true).contains(refusal), "{}", check(true));
}

/// Runs the fleet on a repository `mine` for `issue.md`, both in the home folder.
async fn run_on_own_repository(home: &Path, scenario: Scenario) -> Output {
    let model = ScriptedModel::start(scenario).await;
    let (repo, issue) = (home.join("mine"), home.join("issue.md"));
    demo_repository(&repo);
    std::fs::write(&issue, "# greet.sh greets nobody\n\nIt should greet.\n").unwrap();
    let (url, state) = (model.base_url(), home.to_owned());
    let (repo_arg, issue_arg) = (
        repo.to_str().unwrap().to_owned(),
        issue.to_str().unwrap().to_owned(),
    );
    tokio::task::spawn_blocking(move || {
        agentmine(
            &state,
            &[
                "run",
                "--repo",
                &repo_arg,
                "--issue",
                &issue_arg,
                "--base-url",
                &url,
                "--model",
                "scripted",
            ],
        )
    })
    .await
    .unwrap()
}

#[tokio::test]
async fn run_shows_why_a_call_failed_and_which_tools_there_are() {
    let home = tempfile::tempdir().unwrap();
    let scenario = Scenario::new("clumsy").replies([
        call("no_such_tool", serde_json::json!({})),
        edit_replace("greet.sh", "name=\"\"", "name=\"${1:-world}\""),
        commit_and_push("Greet the person named"),
        say("Done."),
    ]);
    let shown = text(&run_on_own_repository(home.path(), scenario).await);
    let expected = "there is no tool \"no_such_tool\". Available tools: command-executor_execute_command, propose_memory, text_editor";
    assert!(shown.contains(expected), "{shown}");
}

#[tokio::test]
async fn run_works_on_the_users_own_repository_with_a_configured_model() {
    let home = tempfile::tempdir().unwrap();
    let output = run_on_own_repository(home.path(), solves_demo()).await;
    let (repo, issue) = (home.path().join("mine"), home.path().join("issue.md"));
    let shown = text(&output);
    assert!(output.status.success(), "{shown}");
    assert!(shown.contains("Done: task #1"), "{shown}");
    let branches = Command::new("git")
        .arg("-C")
        .arg(&repo)
        .args(["branch", "--list", "agentmine/*"])
        .output()
        .unwrap();
    assert!(
        String::from_utf8_lossy(&branches.stdout).contains("agentmine/issue-"),
        "{shown}"
    );
    // The user's files, branch and issue are unchanged.
    let status = Command::new("git")
        .arg("-C")
        .arg(&repo)
        .args(["status", "--porcelain"])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&status.stdout), "");
    assert_eq!(
        std::fs::read_to_string(&issue).unwrap(),
        "# greet.sh greets nobody\n\nIt should greet.\n"
    );
}

/// The store that `./config.yaml` names has no such session.
#[tokio::test]
async fn the_command_for_the_transcript_works_beside_a_configuration_that_run_does_not_read() {
    let home = tempfile::tempdir().unwrap();
    let config = "store: {url: 'sqlite:other.db'}\n";
    std::fs::write(home.path().join("config.yaml"), config).unwrap();
    let shown = text(&run_on_own_repository(home.path(), solves_demo()).await);
    let mut lines = shown.lines();
    let command = lines.find_map(|line| line.strip_prefix("transcript "));
    let output = Command::new("sh")
        .args(["-c", command.expect(&shown)])
        .current_dir(home.path())
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", home.path())
        .output()
        .unwrap();
    let transcript = text(&output);
    assert!(output.status.success(), "{transcript}");
    assert!(transcript.contains("session 1 of task #1"), "{transcript}");
}

#[tokio::test]
async fn a_partial_result_is_visible_in_lists_and_status_words_are_the_same() {
    let scenario = Scenario::new("breaks the check").replies([
        edit_replace("greet.sh", "name=\"\"", "name=\"nobody\""),
        commit_and_push("Greet nobody"),
        say("Done."),
        say("It is done."),
        say("It is done, really."),
        say("Believe me."),
    ]);
    let model = ScriptedModel::start(scenario).await;
    let home = tempfile::tempdir().unwrap();
    let repo = home.path().join("mine");
    demo_repository(&repo);
    let title = "greet.sh greets nobody, although its manual and its tests both say that it should";
    std::fs::write(
        home.path().join("issue.md"),
        format!("# {title}\n\nIt should greet.\n"),
    )
    .unwrap();
    let args = [
        "run".to_owned(),
        "--repo=mine".into(),
        "--issue=issue.md".into(),
        format!("--base-url={}", model.base_url()),
    ];
    let shown = agentmine_in(home.path(), args).await;
    assert!(shown.contains("Partial result of task #1"), "{shown}");
    let list = |more: &[&str]| {
        let args = [&["task", "list"], more].concat();
        text(&agentmine(home.path(), &args))
    };
    let table = list(&["--status", "done"]);
    let words: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(words[..3], ["1", "done", "partial"], "{table}");
    // In a pipe nothing is cut.
    assert!(table.contains(title), "{table}");
    let json: serde_json::Value = serde_json::from_str(&list(&["--json"])).unwrap();
    assert_eq!(
        (&json[0]["status"], &json[0]["detail"]),
        (&"done".into(), &"partial".into())
    );
    let shown = text(&agentmine(home.path(), &["task", "show", "1"]));
    assert!(shown.contains("status    done (partial)"), "{shown}");
}

/// The queue of a process that has ended: what it took is gone.
struct GoneQueue;

#[async_trait::async_trait]
impl Publish for GoneQueue {
    async fn publish(&self, _: &WakeUp) -> Result<(), String> {
        Ok(())
    }
}

#[tokio::test]
async fn running_again_starts_at_once_and_says_what_happened() {
    let model = ScriptedModel::start(solves_demo()).await;
    let home = tempfile::tempdir().unwrap();
    let repo = home.path().join("mine");
    demo_repository(&repo);
    let issues = repo.join(".agentmine/issues");
    std::fs::create_dir_all(&issues).unwrap();
    std::fs::write(
        issues.join("1.md"),
        "---\nlabels: [coding agent]\n---\n# greet.sh greets nobody\n\nIt should greet.\n",
    )
    .unwrap();
    // An attempt that an outage ended a moment ago, and whose task waits for ten minutes.
    let state = home.path().join(".local/state/agentmine");
    std::fs::create_dir_all(&state).unwrap();
    let store = agentmine_store::connect(&StoreConfig {
        url: Secret::new(format!("sqlite:{}", state.join("agentmine.db").display())),
        max_connections: 1,
        ..StoreConfig::default()
    })
    .await
    .unwrap();
    let tracker = LocalTracker::new(&LocalTrackerConfig {
        repository: repo.clone(),
        issues: None,
    })
    .unwrap();
    let found = tracker.candidates("coding agent").await.unwrap().remove(0);
    let new = NewTask {
        item: found.item,
        trigger: found.trigger,
        title: found.title,
        url: found.url,
        priority: Priority::Medium,
    };
    let (Enqueued::Created(task) | Enqueued::Known(task)) = store.enqueue(&new).await.unwrap();
    // Its wake-up was published to the queue of the process that is gone.
    assert_eq!(store.relay_outbox(9, &GoneQueue).await.unwrap(), 1);
    let (worker, lease) = (WorkerId("w".into()), Duration::from_secs(60));
    let claim = store.claim(task.id, &worker, uuid::Uuid::new_v4(), lease, 3);
    let lease = claim.await.unwrap().unwrap().lease;
    let end = LeaseEnd::Release {
        reason: "the model API was away".into(),
        delay: Duration::from_secs(600),
        attempt: Attempt::Refunded,
    };
    store.end_lease(&lease, &end).await.unwrap();
    store.close().await;
    let (add, remove) = (["coding agent processing".into()], ["coding agent".into()]);
    let permit = Permit::of(BootInstant::now(), std::time::Duration::from_secs(600));
    let moved = tracker.set_labels(&task.item, &add, &remove, &permit);
    moved.await.unwrap();

    let args = [
        "run".to_owned(),
        "--repo=mine".into(),
        format!("--base-url={}", model.base_url()),
    ];
    let shown = agentmine_in(home.path(), args).await;
    let said = "Task #1 continues at once. Its last attempt was released at 20";
    assert!(shown.contains(said), "{shown}");
    assert!(shown.contains(": the model API was away"), "{shown}");
    assert!(shown.contains("Done: task #1"), "{shown}");
}

/// A file system of its own for a jail takes the disk limit's space from the machine.
#[tokio::test]
async fn the_jail_of_a_killed_process_is_removed_by_one_that_does_not_know_its_task() {
    let scenario = solves_demo();
    let model = ScriptedModel::start(scenario).await;
    let home = on_disk::folder().unwrap();
    demo_repository(&home.path().join("mine"));
    let issue = "# greet.sh greets nobody\n\nIt should greet.\n";
    std::fs::write(home.path().join("issue.md"), issue).unwrap();
    model.hold_when("greet.sh greets nobody", 1);
    let mut killed = Command::new(binary("agentmine"))
        .args(["run", "--repo=mine", "--issue=issue.md"])
        .arg(format!("--base-url={}", model.base_url()))
        .current_dir(home.path())
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", home.path())
        .spawn()
        .unwrap();
    model.wait_for_held(1).await;
    killed.kill().unwrap();
    killed.wait().unwrap();
    let state = home.path().join(".local/state/agentmine");
    let left = || {
        let folders = std::fs::read_dir(state.join("sandboxes")).unwrap();
        let names = folders.map(|it| it.unwrap().file_name().into_string().unwrap());
        let mut left: Vec<_> = names
            .filter(|it| it.starts_with("coding-agent-exec-"))
            .collect();
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let of_here = |line: &&str| line.contains(state.to_str().unwrap());
        left.extend(mounts.lines().filter(of_here).map(str::to_owned));
        left
    };
    assert!(!left().is_empty());
    // The next one has another database.
    for file in std::fs::read_dir(&state).unwrap() {
        let path = file.unwrap().path();
        if path.to_string_lossy().contains("agentmine.db") {
            std::fs::remove_file(path).unwrap();
        }
    }
    let shown = agentmine_in(home.path(), ["demo".to_owned()]).await;
    assert!(shown.contains("exit code 0"), "{shown}");
    assert_eq!(left(), [""; 0], "{shown}");
}

#[test]
fn an_issue_that_cannot_be_worked_on_is_refused_with_the_reason() {
    let home = tempfile::tempdir().unwrap();
    let repo = home.path().join("mine");
    demo_repository(&repo);
    let run = |issue: &str| {
        std::fs::write(home.path().join("issue.md"), issue).unwrap();
        let args = [
            "run",
            "--repo=mine",
            "--issue=issue.md",
            "--base-url=http://127.0.0.1:9/v1",
        ];
        let output = agentmine(home.path(), &args);
        (output.status.code(), text(&output))
    };
    let (code, shown) = run("---\nstate: closed\n---\n# Greet\n");
    assert_eq!(code, Some(6), "{shown}");
    assert!(
        shown.contains("issue.md is closed") && shown.contains("hint:"),
        "{shown}"
    );
    let (code, shown) = run("---\nlabels: [a\n---\n# Greet\n");
    assert_eq!(code, Some(2), "{shown}");
    assert!(shown.contains("issue.md:"), "{shown}");

    // In the folder of issues, and beside a file that is not committed.
    let issues = repo.join(".agentmine/issues");
    std::fs::create_dir_all(&issues).unwrap();
    std::fs::write(issues.join("1.md"), "---\nlabels: [a\n---\n# Greet\n").unwrap();
    std::fs::write(repo.join("greet.sh"), "# changed\n").unwrap();
    let args = ["run", "--repo=mine", "--base-url=http://127.0.0.1:9/v1"];
    let output = agentmine(home.path(), &args);
    let shown = text(&output);
    assert_eq!(output.status.code(), Some(2), "{shown}");
    assert!(
        shown.contains("warning: an issue is skipped") && shown.contains("1.md:"),
        "{shown}"
    );
    assert!(
        shown.contains("1 file is not committed (greet.sh)"),
        "{shown}"
    );
}

#[test]
fn config_check_opens_what_the_processes_open_and_names_the_places() {
    let home = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(home.path().join(name), text).unwrap();
    std::fs::create_dir(home.path().join(".agentmine")).unwrap();
    write(
        ".agentmine/mcp_config.json",
        "{\"mcpServers\": {\n  \"Bad Name\": {\"command\": [\"x\"]}\n}}",
    );
    write(
        "config.yaml",
        "store:\n  url: postgres://u:hunter2@h:port/db\nqueue:\n  url: amqp://u:hunter2@h:99999/x\ntrackers:\n  github: {repositories: [a/b]}\n",
    );
    let output = agentmine(home.path(), &["config", "check"]);
    let shown = text(&output);
    assert_eq!(output.status.code(), Some(3), "{shown}");
    for part in [
        "config.yaml:2:",
        "store.url",
        "config.yaml:4:",
        "queue.url",
        "config.yaml:6:",
        "GITHUB_PERSONAL_ACCESS_TOKEN",
        "mcp_config.json:2",
        "OPENAI_API_KEY",
    ] {
        assert!(shown.contains(part), "{part} is not reported: {shown}");
    }
    assert!(!shown.contains("hunter2"), "{shown}");

    let output = Command::new(binary("agentmine"))
        .args(["config", "check"])
        .env_clear()
        .env("HOME", home.path())
        .env("AGENTMINE_LOG", "verbose")
        .output()
        .unwrap();
    let shown = text(&output);
    assert_eq!(output.status.code(), Some(3), "{shown}");
    assert!(
        shown.contains("AGENTMINE_LOG") && shown.contains("`verbose`"),
        "{shown}"
    );
}

#[test]
fn a_system_without_authorities_is_named_wherever_a_server_must_be_verified() {
    let home = tempfile::tempdir().unwrap();
    let check = |text: &str| {
        std::fs::write(home.path().join("config.yaml"), text).unwrap();
        let output = Command::new(binary("agentmine"))
            .args(["config", "check"])
            .current_dir(home.path())
            .env_clear()
            .env("HOME", home.path())
            .env("SSL_CERT_FILE", home.path().join("none.pem"))
            .env("SSL_CERT_DIR", home.path().join("none"))
            .env("OPENAI_API_KEY", "key")
            .env("GITHUB_PERSONAL_ACCESS_TOKEN", "token")
            .output()
            .unwrap();
        (output.status.code(), self::text(&output))
    };
    let (code, shown) = check(
        "trackers:\n  github: {repositories: [a/b]}\nmodel:\n  base_url: https://model.example/v1\n",
    );
    assert_eq!(code, Some(3), "{shown}");
    let found = shown.matches("this system has no certificates of authorities");
    assert_eq!(found.count(), 2, "{shown}");
    for part in [
        "config.yaml:2:",
        "config.yaml:4:",
        "none.pem",
        "ca-certificates",
    ] {
        assert!(shown.contains(part), "{part} is not reported: {shown}");
    }

    // Without TLS there is nothing to verify.
    let (code, shown) = check(
        "trackers:\n  github: {api_url: \"http://127.0.0.1:9\", repositories: [a/b]}\nmodel:\n  base_url: http://127.0.0.1:9/v1\n",
    );
    assert_eq!(code, Some(0), "{shown}");
}

/// Runs the program to its end and returns what it printed.
async fn agentmine_in(state: &Path, args: impl IntoIterator<Item = String>) -> String {
    let (state, args) = (state.to_owned(), args.into_iter().collect::<Vec<_>>());
    let run = move || {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        text(&agentmine(&state, &args))
    };
    tokio::task::spawn_blocking(run).await.unwrap()
}

/// A repository with the sample project and one commit.
pub(crate) fn demo_repository(repo: &Path) {
    std::fs::create_dir(repo).unwrap();
    agentmine_tests::forge::write_demo(repo);
    let author = ["-c", "user.name=a", "-c", "user.email=a@b"];
    let commit = [&author[..], &["commit", "-qm", "first"]].concat();
    for args in [&["init", "-q", "-b", "main"][..], &["add", "."], &commit] {
        let git = Command::new("git").arg("-C").arg(repo).args(args).status();
        assert!(git.unwrap().success());
    }
}

#[test]
fn missing_things_are_reported_with_their_exit_code() {
    let home = tempfile::tempdir().unwrap();
    for (args, code, part) in [
        (&["session", "show", "9"][..], 5, "there is no session 9"),
        (&["session", "show", "nine"], 2, "is not a session id"),
        (
            &["task", "list", "--status", "later"],
            2,
            "expected open, in_progress",
        ),
        (
            &[
                "run",
                "--repo",
                "/no/such/repo",
                "--base-url",
                "http://127.0.0.1:9/v1",
            ],
            5,
            "cannot be opened",
        ),
    ] {
        let output = agentmine(home.path(), args);
        let shown = text(&output);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {shown}");
        assert!(
            shown.contains(part) && shown.contains("hint:"),
            "{args:?}: {shown}"
        );
    }
}

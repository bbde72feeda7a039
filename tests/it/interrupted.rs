//! The signals that end a fleet as they really come: a terminal signals the whole process group, and a service manager
//! every process. Both give the task back, and cost it no attempt.

use std::path::Path;
use std::process::Stdio;

use agentmine_process::{descendants, signal_group};
use agentmine_tests::model::{Scenario, ScriptedModel, commit_and_push, edit_replace, say, shell};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

use crate::embedded::demo_repository;
use crate::rig::{PATIENCE, binary};

/// More often than a task may be tried.
const INTERRUPTIONS: usize = 4;

#[tokio::test]
async fn ctrl_c_in_a_terminal_costs_the_task_no_attempt() {
    let ctrl_c = |worker| assert!(signal_group(worker, libc::SIGINT));
    let shown = interrupted_again_and_again(ctrl_c).await;
    // The worker itself has removed the sandboxes.
    assert!(!shown.contains("gone"), "{shown}");
}

#[tokio::test]
async fn a_service_manager_that_ends_every_process_costs_the_task_no_attempt() {
    interrupted_again_and_again(|worker| {
        for process in descendants(worker) {
            process.signal(libc::SIGTERM);
        }
        signal(worker, libc::SIGTERM);
    })
    .await;
}

#[tokio::test]
async fn an_interrupted_demo_does_not_promise_to_continue() {
    let ctrl_c = |demo| assert!(signal_group(demo, libc::SIGINT));
    let interrupt: (&str, &dyn Fn(i32)) = ("disk  ", &ctrl_c);
    let (mut shown, mut code) = (String::new(), None);
    for _ in 0..INTERRUPTIONS {
        let home = tempfile::tempdir().unwrap();
        (shown, code) = command(home.path(), &["demo"], Some(interrupt)).await;
        // It takes a second, and may be done before the signal.
        if !shown.contains("Done: task #1") {
            break;
        }
    }
    assert_eq!(code, Some(1), "{shown}");
    assert!(shown.contains("interrupted"), "{shown}");
    assert!(!shown.contains("continues with the task"), "{shown}");
    assert!(!shown.contains("to continue"), "{shown}");
}

/// Runs a task that is interrupted in each of its first calls, and then finishes. Returns what was printed before that.
async fn interrupted_again_and_again(interrupt: fn(i32)) -> String {
    let home = tempfile::tempdir().unwrap();
    let waits =
        (0..INTERRUPTIONS).map(|n| say(&format!("Waiting, part {n}.")).and(shell("sleep 600")));
    let scenario = Scenario::new("patient").replies(waits.chain([
        edit_replace("greet.sh", "name=\"\"", "name=\"${1:-world}\""),
        commit_and_push("Greet the person named"),
        say("Done."),
    ]));
    let model = ScriptedModel::start(scenario).await;
    demo_repository(&home.path().join("mine"));
    let issue = "# greet.sh greets nobody\n\nIt should greet.\n";
    std::fs::write(home.path().join("issue.md"), issue).unwrap();
    let mut all = String::new();
    for n in 0..INTERRUPTIONS {
        let part = format!("Waiting, part {n}.");
        let interrupt: (&str, &dyn Fn(i32)) = (&part, &interrupt);
        let shown = run(home.path(), &model, Some(interrupt)).await;
        assert!(
            shown.contains("it was stopped with Ctrl-C or a signal"),
            "{shown}"
        );
        assert!(!shown.contains("retried"), "{shown}");
        all.push_str(&shown);
    }
    let shown = run(home.path(), &model, None).await;
    assert!(shown.contains("Done: task #1"), "{shown}");
    all
}

/// What `agentmine run` prints until it ends, in a process group of its own as in a terminal. Once it has printed the text, it
/// is interrupted.
async fn run(
    home: &Path,
    model: &ScriptedModel,
    interrupt: Option<(&str, &dyn Fn(i32))>,
) -> String {
    let url = model.base_url();
    let run = ["run", "--repo", "mine", "--issue", "issue.md"];
    let model = ["--base-url", &url, "--model", "scripted"];
    let (shown, _) = command(home, &[&run[..], &model].concat(), interrupt).await;
    shown
}

/// What a command prints until it ends, and its exit code.
async fn command(
    home: &Path,
    args: &[&str],
    mut interrupt: Option<(&str, &dyn Fn(i32))>,
) -> (String, Option<i32>) {
    let mut child = Command::new(binary("agentmine"))
        .args(args)
        .current_dir(home)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", home)
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let pid = i32::try_from(child.id().unwrap()).unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut shown = String::new();
    let reading = async {
        while let Some(line) = lines.next_line().await.unwrap() {
            shown.push_str(&line);
            shown.push('\n');
            if let Some((_, signal)) = interrupt.take_if(|(text, _)| line.contains(*text)) {
                signal(pid);
            }
        }
    };
    let ended = tokio::time::timeout(PATIENCE, reading).await;
    assert!(ended.is_ok(), "it does not end:\n{shown}");
    let left = child.wait_with_output().await.unwrap();
    let shown = shown + &String::from_utf8_lossy(&left.stderr);
    (shown, left.status.code())
}

fn signal(pid: i32, signal: i32) {
    // SAFETY: `kill` takes two numbers and touches no memory of this program.
    assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
}

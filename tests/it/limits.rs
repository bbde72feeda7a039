//! Results that exceed a limit: the task fails at once, or without what is too large. Commands that a rule refuses.

use std::time::{Duration, Instant};

use agentmine_domain::{EndState, TaskState};
use agentmine_tests::forge::DEMO;
use agentmine_tests::model::{Scenario, say, shell};
use serde_json::json;

use crate::rig::Rig;

/// To read the file takes minutes, and no push may be that large.
#[tokio::test]
async fn a_file_of_gigabytes_that_nobody_committed_is_skipped_and_named() {
    let script = "truncate -s 8G 'a large hole.bin' && mkdir sub && truncate -s 1G sub/-x && \
                  truncate -s 1G ignored.o && echo '*.o' > .gitignore";
    let rig = Rig::local(Scenario::new("holes").replies([shell(script), say("Done.")])).await;
    rig.produce_issue().await;
    let begun = Instant::now();
    let log = rig.consume().await;
    let pulls = rig.forge.pulls(DEMO);
    assert_eq!(pulls.len(), 1, "{log}");
    let body = &pulls[0].body;
    assert!(
        body.contains("more than 50 MiB or cannot be read: a large hole.bin, sub/-x."),
        "{body}"
    );
    assert!(body.contains("| `.gitignore` |"), "{body}");
    assert!(!body.contains("ignored.o"), "{body}");
    assert!(
        begun.elapsed() < Duration::from_secs(60),
        "{:?}",
        begun.elapsed()
    );
}

#[tokio::test]
async fn a_command_that_a_rule_refuses_is_not_run_and_the_model_learns_why() {
    let lines = [
        "touch denied.txt; sh -c 'git push --mirror origin'",
        "touch asked.txt; env A=1 uname --all",
        "echo allowed > allowed.txt; uname -s -r",
        "tool=touch; tool2=$(printf %s touch); $tool one.txt; $(printf touch) two.txt; sh -c \"$tool2 three.txt\"",
    ];
    let replies = lines.map(shell).into_iter().chain([say("Done.")]);
    let mut rig = Rig::local(Scenario::new("rules").replies(replies)).await;
    rig.config["command_executor"]["execution"] = json!({
        "denied_commands": ["git push --mirror"],
        "ask_commands": ["uname"],
        "allowed_commands": ["uname -s"],
    });
    rig.produce_issue().await;
    let log = rig.consume().await;
    let transcript = rig.transcript(&rig.task().await).await;
    for reported in [
        "`git` may not be run here: the operator's rule",
        "git push --mirror",
        "The command was not run: the operator's rule",
        "and nobody is available to ask. Reach the goal without it",
        "command_executor.execution.ask_commands",
    ] {
        assert!(
            transcript.contains(reported),
            "{reported}: {transcript}\n{log}"
        );
    }
    let pulls = rig.forge.pulls(DEMO);
    assert_eq!(pulls.len(), 1, "{log}");
    let body = &pulls[0].body;
    for ran in ["allowed.txt", "one.txt", "two.txt", "three.txt"] {
        assert!(body.contains(&format!("| `{ran}` |")), "{ran}: {body}");
    }
    for refused in ["denied.txt", "asked.txt"] {
        assert!(!body.contains(refused), "{refused}: {body}");
    }
}

/// The model fills its disk, reads the error of the program that did, deletes the file, and continues.
async fn a_full_disk_can_be_freed(mut rig: Rig) {
    rig.config["command_executor"]["docker"]["resources"] = json!({ "disk_limit": "64m" });
    rig.produce_issue().await;
    let log = rig.consume().await;
    let results = rig.results(&rig.task().await).await;
    let full = format!("{:?}", results[0].1);
    assert!(full.contains("No space left on device"), "{full}\n{log}");
    let pulls = rig.forge.pulls(DEMO);
    assert_eq!(pulls.len(), 1, "{log}");
    assert!(log.contains("held by the kernel"), "{log}");
}

fn fills_its_disk() -> Scenario {
    Scenario::new("full disk").replies([
        shell("head -c 100M /dev/zero > big"),
        shell("rm big && echo fine > fine.txt && git add fine.txt && git commit -q -m Fine"),
        say("Done."),
    ])
}

#[tokio::test]
async fn a_full_disk_is_an_error_that_the_model_can_fix_in_a_container() {
    a_full_disk_can_be_freed(Rig::new(fills_its_disk()).await).await;
}

#[tokio::test]
async fn a_full_disk_is_an_error_that_the_model_can_fix_in_a_jail() {
    a_full_disk_can_be_freed(Rig::local(fills_its_disk()).await).await;
}

/// Ten trees in each of ten trees, and so on: 45 objects, and ten thousand million files.
const TREES_IN_TREES: &str = r#"
blob=$(echo x | git hash-object -w --stdin)
tree=$(for n in 0 1 2 3 4 5 6 7 8 9; do printf '100644 blob %s\tf%d\n' $blob $n; done | git mktree)
for level in 1 2 3 4 5 6 7 8 9; do
    tree=$(for n in 0 1 2 3 4 5 6 7 8 9; do printf '040000 tree %s\td%d\n' $tree $n; done | git mktree)
done"#;

/// A folder in a folder, and so on: deeper than git reads.
const DEEP_TREE: &str = r#"
tree=$(echo x | git hash-object -w --stdin | sed 's/^/100644 blob /; s/$/\tf/' | git mktree)
n=0
while [ $n -lt 3000 ]; do
    tree=$(printf '040000 tree %s\td\n' $tree | git mktree)
    n=$((n + 1))
done"#;

/// The largest resident set that a process has had so far, in bytes.
fn peak_memory(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let kilobytes = line.unwrap().split_whitespace().nth(1).unwrap();
    kilobytes.parse::<u64>().unwrap() * 1024
}

/// Pushes a commit of this tree. The work is not done again: it would be the same, at the same cost.
async fn fails_its_task_at_once(tree: &str) {
    let push = "git -c core.maxTreeDepth=9999 push origin $(git commit-tree $tree -p HEAD -m Bomb):refs/heads/{branch}";
    let said = std::iter::repeat_n("Done.", 8).map(say);
    let work = [shell(&format!("{tree}\n{push}"))];
    let mut rig = Rig::local(Scenario::new("a bomb").replies(work.into_iter().chain(said))).await;
    rig.config["consumer"]["concurrency"] = 1.into();
    rig.produce_issue().await;
    let consumer = rig.spawn("consumer", &[]);
    let before = peak_memory(consumer.pid());
    let tasks = rig.wait_ended(1).await;
    let after = peak_memory(consumer.pid());
    consumer.terminate();
    let (_, log) = consumer.end().await;
    let reason = tasks[0].reason.clone().unwrap_or_default();
    assert_eq!(tasks[0].state, TaskState::Ended(EndState::Failed), "{log}");
    assert_eq!(tasks[0].attempt, 1, "{reason}\n{log}");
    assert_eq!(rig.sessions().await.len(), 1);
    assert_eq!(rig.forge.pulls(DEMO).len(), 0, "{reason}");
    assert!(reason.contains("a push was refused: "), "{reason}");
    let more = after.saturating_sub(before) >> 20;
    assert!(more < 100, "{more} MiB more");
}

#[tokio::test]
async fn a_small_push_of_ten_thousand_million_files_fails_its_task_at_once() {
    fails_its_task_at_once(TREES_IN_TREES).await;
}

#[tokio::test]
async fn a_push_of_folders_deeper_than_git_reads_fails_its_task_at_once() {
    fails_its_task_at_once(DEEP_TREE).await;
}

#[tokio::test]
async fn a_push_over_the_limit_is_refused_and_its_task_is_not_tried_again() {
    let script = "head -c 3000000 /dev/urandom > noise.bin && git add noise.bin && \
                  git commit -q -m Noise && git push origin HEAD:refs/heads/{branch}";
    let said = std::iter::repeat_n("Done.", 8).map(say);
    let work = [shell(script)];
    let mut rig = Rig::local(Scenario::new("noise").replies(work.into_iter().chain(said))).await;
    rig.config["command_executor"]["docker"] =
        json!({ "network": { "push": { "max_size": "1m" } } });
    rig.produce_issue().await;
    let log = rig.consume().await;
    let task = rig.task().await;
    assert_eq!(task.state, TaskState::Ended(EndState::Failed), "{log}");
    let reason = task.reason.clone().unwrap_or_default();
    assert_eq!(
        (task.attempt, rig.sessions().await.len()),
        (1, 1),
        "{reason}"
    );
    assert!(
        reason.contains("1048576") || reason.contains("1 MiB"),
        "{reason}"
    );
    assert_eq!(rig.forge.pulls(DEMO).len(), 0);
}

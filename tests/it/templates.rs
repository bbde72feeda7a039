//! Workspaces that begin as a copy of an earlier clone.

use agentmine_tests::forge::DEMO;
use agentmine_tests::model::{Scenario, commit_and_push, edit_replace, say, shell};

use crate::endpoint::get;
use crate::rig::{Rig, assert_done};

/// Looks at the clone, leaves something behind, and solves the sample.
fn looks_and_leaves_something() -> Scenario {
    let look = "cat .git/config; git reflog; git status --porcelain; git tag; git branch -a; ls -A . .. ../tmp/home; git fetch -q && echo fetched";
    let leave = "echo left > left-behind; git stash -q -u; echo left > ../tmp/home/left-behind; git config left.behind yes; mkdir -p ../more";
    Scenario::new("looks at its clone").replies([
        shell(look),
        shell(leave),
        edit_replace("greet.sh", "name=\"\"", "name=\"${1:-world}\""),
        commit_and_push("Greet the person named"),
        say("Greets."),
    ])
}

/// How many clones came from `from`.
async fn clones(address: &str, from: &str) -> u64 {
    let (_, metrics) = get(address, "/metrics").await;
    let series = format!("agentmine_clones_total{{from=\"{from}\"}} ");
    let mut lines = metrics.lines();
    let value = lines.find_map(|line| line.strip_prefix(&series));
    value.expect("it is counted").trim().parse().unwrap()
}

/// What the task saw of its clone, and the URL of the session's remote in it.
async fn seen(rig: &Rig, number: usize) -> (String, String) {
    // The newest comes first.
    let task = rig.tasks().await.into_iter().rev().nth(number).unwrap();
    let (_, first) = rig.results(&task).await.remove(0);
    let (text, _) = first.text.split_once("\"duration_ms\"").unwrap();
    let text = text.replace(&task.branch(), "WORK");
    let begin = text.find("http://127.0.0.1:").expect("the remote's URL");
    let end = begin + text[begin..].find("/repo.git").unwrap();
    let url = text[begin..end].to_owned();
    assert!(text.contains("fetched"), "{text}");
    (text.replace(&url, "URL"), url)
}

async fn a_later_clone_is_a_copy_until_the_host_has_something_else(mut rig: Rig) {
    rig.config["consumer"]["concurrency"] = 1.into();
    let (consumer, metrics) = rig.measured_consumer().await;
    let counts = async || {
        let (copies, clones) = (clones(&metrics, "template"), clones(&metrics, "repository"));
        (copies.await, clones.await)
    };
    rig.produce_issue().await;
    rig.wait_ended(1).await;
    // The clone on which the result was checked was a copy of the agent's.
    assert_eq!(counts().await, (1, 1));
    rig.produce_issue().await;
    rig.wait_ended(2).await;
    assert_eq!(counts().await, (3, 1));
    let ((first, of_first), (second, of_second)) = (seen(&rig, 0).await, seen(&rig, 1).await);
    assert_ne!(of_first, of_second);
    assert_eq!(first, second);
    assert!(
        !second.contains(&of_first) && !second.contains("left"),
        "{second}"
    );

    rig.forge.commit(DEMO, "main", "main", |folder| {
        std::fs::write(folder.join("new-file"), "new").unwrap();
    });
    rig.produce_issue().await;
    rig.wait_ended(3).await;
    assert_eq!(counts().await, (4, 2));
    let (third, _) = seen(&rig, 2).await;
    assert!(
        third.contains("new-file") && !second.contains("new-file"),
        "{third}"
    );
    for task in rig.tasks().await {
        assert_done(&task);
    }
    consumer.terminate();
    assert!(consumer.end().await.0.success());
}

#[tokio::test]
async fn in_docker_a_later_clone_is_a_copy_until_the_host_has_something_else() {
    let rig = Rig::new(looks_and_leaves_something()).await;
    a_later_clone_is_a_copy_until_the_host_has_something_else(rig).await;
}

#[tokio::test]
async fn in_the_jail_a_later_clone_is_a_copy_until_the_host_has_something_else() {
    let rig = Rig::local_gitlab(looks_and_leaves_something()).await;
    a_later_clone_is_a_copy_until_the_host_has_something_else(rig).await;
}

#[tokio::test]
async fn without_templates_each_sandbox_clones() {
    let mut rig = Rig::local(looks_and_leaves_something()).await;
    rig.config["consumer"]["mirrors"]["templates"] = false.into();
    let (consumer, metrics) = rig.measured_consumer().await;
    rig.produce_issue().await;
    rig.wait_ended(1).await;
    assert_eq!(clones(&metrics, "repository").await, 2);
    assert_eq!(clones(&metrics, "template").await, 0);
    consumer.terminate();
    consumer.end().await;
}

/// A fresh clone has changes that nobody made, which git finds since it has just written the files; not in a copy.
#[tokio::test]
async fn what_git_would_convert_stays_as_it_is_stored_in_a_copy_too() {
    let script = Scenario::new("appends a line").replies([
        shell("printf 'three\\r\\n' >> plain.cs; git add --all; git diff --cached --numstat"),
        commit_and_push("Append a line"),
        say("Appended."),
    ]);
    let mut rig = Rig::local(script).await;
    for (name, content) in [
        ("plain.cs", "one\r\ntwo\r\n"),
        (".gitattributes", "*.cs text\n"),
    ] {
        rig.forge.commit(DEMO, "main", "main", |folder| {
            std::fs::write(folder.join(name), content).unwrap();
        });
    }
    let (consumer, metrics) = rig.measured_consumer().await;
    for count in 1..=2 {
        rig.produce_issue().await;
        rig.wait_ended(count).await;
    }
    assert!(clones(&metrics, "template").await >= 2);
    for task in rig.tasks().await {
        let (_, first) = rig.results(&task).await.remove(0);
        assert!(first.text.contains("1\\t0\\tplain.cs"), "{}", first.text);
    }
    consumer.terminate();
    consumer.end().await;
}

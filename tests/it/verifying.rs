//! How a result is verified while everything else continues.

use std::process::Command;
use std::time::{Duration, Instant};

use agentmine_domain::Task;
use agentmine_tests::forge::{DEMO, Fault, Forge};
use agentmine_tests::model::{Scenario, commit_and_push, edit_replace, say, shell};
use serde_json::json;

use crate::rig::{Rig, assert_done, containers};

/// Time limit for what the consumer does by itself.
const PATIENCE: Duration = Duration::from_secs(60);

/// Leaves the commit and the push to the worker.
fn leaves_its_work_uncommitted() -> Scenario {
    Scenario::new("leaves its work").replies([
        shell("sh test.sh"),
        edit_replace("greet.sh", "name=\"\"", "name=\"${1:-world}\""),
        say("`greet.sh` now greets its argument."),
    ])
}

/// Waits for the sandbox for the checks, and returns its name.
async fn verifying(task: &Task) -> String {
    let begun = Instant::now();
    loop {
        let names = containers(std::slice::from_ref(task)).await;
        if let Some(name) = names.iter().find(|name| name.ends_with("-verify")) {
            return name.clone();
        }
        assert!(begun.elapsed() < PATIENCE, "{names:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The fresh sandbox comes from the host alone, so it need not wait for the push; what is checked in it is what was
/// pushed.
#[tokio::test]
async fn the_sandbox_for_the_checks_is_made_ready_while_the_work_is_pushed() {
    let rig = Rig::new(leaves_its_work_uncommitted()).await;
    rig.produce_issue().await;
    let push = Fault::on("POST", "/octo/demo.git/git-receive-pack");
    rig.forge.inject(push.delay(Duration::from_secs(8)));
    let consumer = rig.spawn("consumer", &["--once"]);
    let task = rig.task().await;
    verifying(&task).await;
    let branch = task.branch();
    assert_eq!(
        rig.forge.file_at(DEMO, &branch, "greet.sh"),
        None,
        "it was pushed before"
    );
    let (status, log) = consumer.end().await;
    assert!(status.success(), "{log}");
    let task = rig.task().await;
    assert_done(&task);
    let pulls = rig.forge.pulls(DEMO);
    assert!(
        pulls[0].body.contains("| `sh test.sh` | 0 |"),
        "{}",
        pulls[0].body
    );
    let pushed = rig.forge.file_at(DEMO, &pulls[0].head, "greet.sh").unwrap();
    assert!(pushed.contains("${1:-world}"), "{pushed}");
    assert_eq!(containers(&[task]).await, Vec::<String>::new());
}

/// While the model still thinks. If that sandbox ends before it is used, the checks get another one.
#[tokio::test]
async fn the_sandbox_for_the_checks_is_made_when_the_agent_pushes_and_again_if_it_ends() {
    let rig = Rig::new(Scenario::new("pushes its work").replies([
        edit_replace("greet.sh", "name=\"\"", "name=\"${1:-world}\""),
        commit_and_push("Greet the argument"),
        say("`greet.sh` now greets its argument."),
    ]))
    .await;
    rig.produce_issue().await;
    rig.model.hold_at(2);
    let consumer = rig.spawn("consumer", &["--once"]);
    let task = rig.task().await;
    let name = verifying(&task).await;
    let ended = Command::new("docker")
        .args(["rm", "--force", &name])
        .output();
    let ended = ended.unwrap();
    assert!(ended.status.success(), "{ended:?}");
    rig.model.release();
    let (status, log) = consumer.end().await;
    assert!(status.success(), "{log}");
    let task = rig.task().await;
    assert_done(&task);
    let pulls = rig.forge.pulls(DEMO);
    let body = &pulls[0].body;
    assert!(body.contains("| `sh test.sh` | 0 |"), "{body}");
    assert_eq!(containers(&[task]).await, Vec::<String>::new());
}

/// The sandbox is started beside the gateway's checks of a push. One that they refuse is usually followed by another.
#[tokio::test]
async fn a_refused_push_makes_the_sandbox_for_the_checks_of_the_next_one() {
    let rig = Rig::new(Scenario::new("pushes to another branch first").replies([
        edit_replace("greet.sh", "name=\"\"", "name=\"${1:-world}\""),
        shell("git commit -qam 'Greet the argument' && git push origin HEAD:refs/heads/other"),
        commit_and_push("Greet the argument"),
        say("`greet.sh` now greets its argument."),
    ]))
    .await;
    rig.produce_issue().await;
    rig.model.hold_at(2);
    let consumer = rig.spawn("consumer", &["--once"]);
    let task = rig.task().await;
    let name = verifying(&task).await;
    rig.model.release();
    rig.model.hold_at(3);
    rig.model.wait_for_held(1).await;
    assert_eq!(verifying(&task).await, name);
    rig.model.release();
    let (status, log) = consumer.end().await;
    assert!(status.success(), "{log}");
    let task = rig.task().await;
    assert_done(&task);
    assert_eq!(rig.forge.file_at(DEMO, "other", "greet.sh"), None);
    let body = &rig.forge.pulls(DEMO)[0].body;
    assert!(body.contains("| `sh test.sh` | 0 |"), "{body}");
    assert_eq!(containers(&[task]).await, Vec::<String>::new());
}

/// How many requests for a pack or a list of branches clones and fetches have sent.
fn requests_to_fetch(forge: &Forge) -> usize {
    let requests = forge.requests();
    let fetches = requests
        .iter()
        .filter(|seen| seen.method == "POST" && seen.target.ends_with("/git-upload-pack"));
    fetches.count()
}

/// While the model still thinks, so that the measurement does not wait for it; what is pushed after that is fetched as well.
#[tokio::test]
async fn what_the_agent_pushes_is_fetched_at_once_and_a_later_push_after_it() {
    let mut rig = Rig::local(Scenario::new("pushes its work twice").replies([
        edit_replace("greet.sh", "name=\"\"", "name=\"${1:-world}\""),
        commit_and_push("Greet the argument"),
        shell("echo more > more"),
        commit_and_push("Say more"),
        say("`greet.sh` now greets its argument."),
    ]))
    .await;
    rig.config["agent"] =
        json!({ "checks": ["sh test.sh && test -f more && git diff --quiet @{upstream}"] });
    // A copy of the agent's clone would need fewer requests.
    rig.config["consumer"]["mirrors"]["templates"] = false.into();
    rig.produce_issue().await;
    rig.model.hold_at(1);
    let consumer = rig.spawn("consumer", &["--once"]);
    rig.model.wait_for_held(1).await;
    let before = requests_to_fetch(&rig.forge);
    rig.model.release();
    rig.model.hold_at(2);
    // A clone asks for the branches and for a pack, a fetch by the commit's id for a pack alone.
    let is_fetched = |forge: &Forge| requests_to_fetch(forge) >= before + 3;
    rig.forge
        .wait_until("it is cloned and fetched", PATIENCE, is_fetched)
        .await;
    rig.model.release();
    let (status, log) = consumer.end().await;
    assert!(status.success(), "{log}");
    let task = rig.task().await;
    assert_done(&task);
    let body = &rig.forge.pulls(DEMO)[0].body;
    assert!(body.contains("test -f more"), "{body}");
}

//! What a sandbox can reach and contain, and what it cannot.

use agentmine_tests::forge::DEMO;
use agentmine_tests::model::{Answer, Scenario, say, shell};

use crate::rig::{Rig, assert_done};

/// The sample's solution, after other calls.
fn first(calls: Vec<Answer>) -> Scenario {
    use agentmine_tests::model::{commit_and_push, edit_replace};
    Scenario::new("looks around first").replies(calls.into_iter().chain([
        edit_replace("greet.sh", "name=\"\"", "name=\"${1:-world}\""),
        commit_and_push("Greet the person named"),
        say("Done."),
    ]))
}

#[tokio::test]
async fn push_to_another_branch_is_refused() {
    let scenario = first(vec![
        shell("git commit -q --allow-empty -m elsewhere && git push origin HEAD:refs/heads/main"),
        shell("git push origin HEAD:refs/heads/other"),
        shell("git push origin HEAD:refs/tags/v1"),
        shell("git push origin HEAD:refs/heads/{branch} HEAD:refs/heads/other"),
        shell("git push origin :refs/heads/main"),
    ]);
    let rig = Rig::new(scenario).await;
    let before = rig.forge.branch_sha(DEMO, "main");
    rig.produce_issue().await;
    rig.consume().await;
    let task = rig.task().await;
    assert_done(&task);
    assert_eq!(rig.forge.branch_sha(DEMO, "main"), before);
    assert_eq!(rig.forge.branches(DEMO), [task.branch(), "main".to_owned()]);
    let results = rig.results(&task).await;
    let pushes: Vec<&str> = results
        .iter()
        .filter(|(_, result)| result.name == "command-executor_execute_command")
        .map(|(_, result)| result.text.as_str())
        .collect();
    assert_eq!(pushes.len(), 6);
    for refused in &pushes[..5] {
        assert!(!refused.contains("\"exit_code\":0"), "{refused}");
    }
    assert!(pushes[5].contains("\"exit_code\":0"), "{}", pushes[5]);
}

#[tokio::test]
async fn sandbox_has_no_network_but_the_gateway() {
    let scenario = first(vec![
        shell("ls /sys/class/net; cat /proc/net/route; echo end-of-list"),
        // The host's own services: the broker on loopback, and anything at a bridge's address.
        shell(
            "for a in 127.0.0.1:56729 127.0.0.1:54329 172.17.0.1:22 10.0.0.1:80 1.1.1.1:443; do \
             timeout 3 bash -c \"exec 3<>/dev/tcp/${a%:*}/${a#*:}\" 2>/dev/null && echo REACHED-$a || echo closed-$a; done",
        ),
        shell("getent hosts example.com && echo RESOLVED || echo no-name"),
        shell(
            "curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:56729/ ; curl -s -x $HTTP_PROXY --noproxy '' -w '%{http_code}' http://127.0.0.1:56729/",
        ),
        shell(
            "curl -s -x $HTTP_PROXY -w 'meta-%{http_code}' http://169.254.169.254/latest/meta-data/",
        ),
        shell(
            "curl -s -x $HTTP_PROXY -w 'private-%{http_code}' http://10.0.0.1/; curl -s -x $HTTPS_PROXY -w 'connect-%{http_connect}' https://192.168.0.1/",
        ),
    ]);
    let rig = Rig::new(scenario).await;
    rig.produce_issue().await;
    rig.consume().await;
    let task = rig.task().await;
    assert_done(&task);
    let out: Vec<String> = rig
        .results(&task)
        .await
        .iter()
        .filter(|(_, result)| result.name == "command-executor_execute_command")
        .filter_map(|(_, result)| serde_json::from_str::<serde_json::Value>(&result.text).ok())
        .map(|v| v["stdout"].as_str().unwrap_or_default().to_owned())
        .collect();
    assert!(
        out[0].starts_with("lo\n") && out[0].lines().count() <= 3,
        "{}",
        out[0]
    );
    assert!(
        !out[1].contains("REACHED") && out[1].matches("closed").count() == 5,
        "{}",
        out[1]
    );
    assert!(out[2].contains("no-name"), "{}", out[2]);
    assert!(
        out[3].starts_with("000") && out[3].contains("403"),
        "{}",
        out[3]
    );
    assert!(out[4].contains("meta-403"), "{}", out[4]);
    assert!(
        out[5].contains("private-403") && out[5].contains("connect-403"),
        "{}",
        out[5]
    );
    let body = &rig.forge.pulls(DEMO)[0].body;
    assert!(
        body.contains("169.254.169.254:80") && body.contains("refused"),
        "{body}"
    );
}

#[tokio::test]
async fn checks_are_read_before_the_agent_begins_and_not_from_its_commits() {
    let scenario = Scenario::new("grades itself").replies([
        shell(
            "echo 'checks: [\"true\"]' > .agentmine/config.yaml && echo '# better' >> greet.sh && \
             git add -A && git commit -qm better && git push -q origin HEAD:refs/heads/{branch}",
        ),
        say("Done, all checks pass."),
    ]);
    let mut rig = Rig::local(scenario).await;
    rig.config["agent"]["max_rounds"] = 1.into();
    rig.produce_issue().await;
    rig.consume().await;
    let pull = &rig.forge.pulls(DEMO)[0];
    assert!(pull.draft, "{}", pull.body);
    assert!(
        pull.body
            .contains("| `sh test.sh` | 1, as on the base commit |"),
        "{}",
        pull.body
    );
    assert!(
        pull.body
            .contains("| `.agentmine/config.yaml` | AgentMine |"),
        "{}",
        pull.body
    );
}

#[tokio::test]
async fn a_background_process_cannot_push_after_the_measurement() {
    use agentmine_tests::model::{commit_and_push, edit_replace};
    let scenario = Scenario::new("pushes behind its back").replies([
        edit_replace("greet.sh", "name=\"\"", "name=\"${1:-world}\""),
        commit_and_push("Greet the person named"),
        // Tries to push something else, repeatedly.
        shell(
            "cp -r . ../tmp/evil && cd ../tmp/evil && git commit -q --allow-empty -m evil && \
             (setsid sh -c 'sleep 1; while ! git push -q origin HEAD:refs/heads/{branch}; do sleep 0.05; done' >/dev/null 2>&1 &)",
        ),
        say("Done."),
    ]);
    let mut rig = Rig::new(scenario).await;
    // The measurement takes longer than the pusher waits.
    rig.config["agent"]["checks"] = serde_json::json!(["sh test.sh && sleep 2"]);
    rig.produce_issue().await;
    rig.consume().await;
    let task = rig.task().await;
    assert_done(&task);
    let pull = &rig.forge.pulls(DEMO)[0];
    assert!(
        pull.body.contains(&format!("Commit `{}`", pull.head_sha)),
        "the pull request reports on a commit that is not its head: {} {}",
        pull.head_sha,
        pull.body
    );
}

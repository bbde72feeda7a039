//! Everyday repositories: a label becomes a pull request whose checks ran on a fresh clone.

use std::collections::BTreeSet;

use agentmine_domain::{EndState, TaskState};
use agentmine_tests::forge::DEMO;
use agentmine_tests::model::{Scenario, commit_and_push, edit_create, say, shell};
use agentmine_tests::projects::{self, Everyday};
use agentmine_tests::registry::Registry;
use serde_json::json;

use crate::rig::{REQUEST, Rig, image};

/// Where a test's tasks run.
enum Sandbox {
    Docker(String),
    Jail,
}

/// Fixes one repository, and returns the pull request's body and the transcript.
async fn fixed(project: &Everyday, registry: &Registry, sandbox: Sandbox) -> (String, String) {
    let mut rig = match sandbox {
        Sandbox::Docker(image) => {
            let mut rig = Rig::new(project.scenario()).await;
            rig.config["command_executor"]["docker"]["base_image"] = image.into();
            rig
        }
        Sandbox::Jail => Rig::local(project.scenario()).await,
    };
    // Compilers need more than the little of the other stories.
    rig.config["command_executor"]["docker"]["resources"]["memory_limit"] = "2g".into();
    rig.config["command_executor"]["docker"]["resources"]["disk_limit"] = "4g".into();
    rig.config["command_executor"]["docker"]["network"] =
        json!({ "allowed_private": [registry.address()] });
    if let Some(authorization) = registry.authorization() {
        rig.config["command_executor"]["docker"]["network"]["registry_credentials"] =
            json!([{ "host": registry.address(), "authorization": authorization }]);
    }
    let name = project.full_name();
    rig.config["trackers"]["github"]["repositories"] = json!([name]);
    rig.forge.add_repo(&name, |_| {});
    project.write(&rig.forge.git_dir(&name), registry);
    rig.forge.add_issue(
        &name,
        "It greets nobody",
        "It should greet by name.",
        &[REQUEST],
    );
    rig.produce().await;
    match registry.authority() {
        // As an operator makes a worker trust a registry of their own.
        Some(authority) => {
            let authority = authority.to_str().unwrap();
            rig.consume_with(("SSL_CERT_FILE", authority)).await;
        }
        None => {
            rig.consume().await;
        }
    }
    let task = rig.task().await;
    let transcript = rig.transcript(&task).await;
    assert_eq!(
        task.state,
        TaskState::Ended(EndState::Done),
        "{:?}\n{transcript}",
        task.reason
    );
    let pulls = rig.forge.pulls(&name);
    assert_eq!(pulls.len(), 1);
    assert!(!pulls[0].draft, "{}\n{transcript}", pulls[0].body);
    (pulls[0].body.clone(), transcript)
}

async fn is_fixed(project: &Everyday, sandbox: Sandbox) {
    let registry = Registry::start().await;
    is_fixed_from(project, &registry, sandbox).await;
}

async fn is_fixed_from(project: &Everyday, registry: &Registry, sandbox: Sandbox) {
    let (body, transcript) = fixed(project, registry, sandbox).await;
    assert!(
        body.contains(&format!("| `{}` | 0 |", project.check)),
        "{body}\n{transcript}"
    );
    assert!(!transcript.contains("set-up failed"), "{transcript}");
    assert!(!transcript.contains("was skipped"), "{transcript}");
    // Nothing that an installer left is part of the change.
    let files = body
        .lines()
        .skip_while(|l| !l.starts_with("| file |"))
        .skip(2);
    let files: Vec<&str> = files.take_while(|l| l.starts_with('|')).collect();
    assert_eq!(files.len(), 1, "{files:#?}");
    let requests = registry.requests();
    assert!(
        requests
            .iter()
            .any(|path| path.starts_with(project.requests))
            || project.requests.is_empty(),
        "{requests:#?}"
    );
}

/// From a registry that demands credentials, which the gateway adds.
async fn in_jail(project: &Everyday) {
    let registry = Registry::start_with_credentials().await;
    is_fixed_from(project, &registry, Sandbox::Jail).await;
}

/// The same over TLS, which ends in the gateway: what the sandbox trusts is the session's own authority.
async fn over_tls_in_jail(project: &Everyday) {
    let registry = Registry::start_over_tls().await;
    is_fixed_from(project, &registry, Sandbox::Jail).await;
}

async fn over_tls_in_docker(project: &Everyday) {
    let registry = Registry::start_over_tls().await;
    is_fixed_from(project, &registry, Sandbox::Docker(image())).await;
}

async fn in_docker(project: &Everyday) {
    is_fixed(project, Sandbox::Docker(image())).await;
}

/// With an image whose package managers use the registry, as an operator with a mirror makes one.
async fn with_mirror(project: &Everyday) {
    let registry = Registry::start().await;
    let name = format!(
        "agentmine-test-mirror:{}",
        registry.address().replace(':', "-")
    );
    let file = format!(
        "FROM {}\n{}",
        image(),
        registry.fill(
            "ENV PIP_INDEX_URL={URL}/simple PIP_TRUSTED_HOST={HOST} GOPROXY={URL}/go GONOSUMDB=*\n"
        )
    );
    docker_build(&name, &file);
    is_fixed_from(project, &registry, Sandbox::Docker(name.clone())).await;
    docker(&["rmi", &name]);
}

fn docker_build(name: &str, file: &str) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("Dockerfile"), file).unwrap();
    docker(&[
        "build",
        "--quiet",
        "--tag",
        name,
        folder.path().to_str().unwrap(),
    ]);
}

fn docker(args: &[&str]) {
    let done = std::process::Command::new("docker")
        .args(args)
        .env("DOCKER_BUILDKIT", "0")
        .output()
        .unwrap();
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
}

macro_rules! everyday {
    ($($(#[$attribute:meta])* $test:ident: $fixed:ident($project:path),)*) => {
        $(
            $(#[$attribute])*
            #[tokio::test]
            async fn $test() {
                $fixed(&$project).await;
            }
        )*
    };
}

everyday! {
    workspace_of_npm_in_docker: in_docker(projects::NPM_WORKSPACE),
    workspace_of_pnpm_in_docker: in_docker(projects::PNPM_WORKSPACE),
    workspace_of_uv_in_docker: in_docker(projects::UV_WORKSPACE),
    workspace_of_go_in_docker: with_mirror(projects::GO_WORK),
    workspace_of_cargo_in_docker: in_docker(projects::CARGO_WORKSPACE),
    modules_of_maven_in_docker: in_docker(projects::MAVEN_MODULES),
    python_with_requirements_in_docker: in_docker(projects::PIP),
    python_with_requirements_in_the_jail: in_jail(projects::PIP),
    python_with_pyproject_in_docker: with_mirror(projects::PYPROJECT),
    python_with_uv_in_docker: in_docker(projects::UV),
    python_with_poetry_in_docker: in_docker(projects::POETRY),
    node_with_npm_in_docker: in_docker(projects::NPM),
    node_with_npm_in_the_jail: in_jail(projects::NPM),
    node_with_pnpm_in_docker: in_docker(projects::PNPM),
    node_with_yarn_in_docker: in_docker(projects::YARN),
    go_module_in_docker: with_mirror(projects::GO),
    go_module_in_the_jail: in_jail(projects::GO_WORKSPACE),
    rust_with_cargo_in_docker: in_docker(projects::CARGO),
    ruby_with_bundler_in_docker: in_docker(projects::BUNDLER),
    java_with_maven_in_docker: in_docker(projects::MAVEN),
    #[ignore = "Maven keeps a core busy for most of a minute (tests/README.md)"]
    java_with_maven_in_the_jail: in_jail(projects::MAVEN),
    #[ignore = "Maven keeps a core busy for most of a minute (tests/README.md)"]
    java_with_maven_over_tls_in_docker: over_tls_in_docker(projects::MAVEN),
    java_with_maven_over_tls_in_the_jail: over_tls_in_jail(projects::MAVEN),
    node_with_npm_over_tls_in_docker: over_tls_in_docker(projects::NPM),
    python_with_requirements_over_tls_in_docker: over_tls_in_docker(projects::PIP),
    java_with_gradle_in_the_jail: in_jail(projects::GRADLE),
    c_with_make_in_docker: in_docker(projects::MAKE),
    c_with_make_in_the_jail: in_jail(projects::MAKE),
}

#[tokio::test]
async fn the_projects_of_a_monorepo_are_each_installed_and_checked() {
    let registry = Registry::start().await;
    let (body, transcript) = fixed(&projects::MONOREPO, &registry, Sandbox::Docker(image())).await;
    for check in [projects::MONOREPO.check, "cd web && npm test --silent"] {
        assert!(
            body.contains(&format!("| `{check}` | 0 |")),
            "{body}\n{transcript}"
        );
    }
    let requests = registry.requests();
    for package in ["/files/greetings", "/greetings/-/"] {
        assert!(
            requests.iter().any(|path| path.starts_with(package)),
            "{requests:#?}"
        );
    }
}

/// A repository with a trivial change to make, and settings for its rig.
async fn changed(
    files: &[(&str, &str)],
    scenario: Scenario,
    adjust: impl FnOnce(&mut serde_json::Value),
) -> (Rig, String, String) {
    let mut rig = Rig::local(scenario).await;
    adjust(&mut rig.config);
    rig.forge.commit(DEMO, "main", "main", |dir| {
        std::fs::remove_dir_all(dir.join(".agentmine")).unwrap();
        std::fs::remove_file(dir.join("test.sh")).unwrap();
        for (path, text) in files {
            let path = dir.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
    });
    rig.forge
        .add_issue(DEMO, "A note is missing", "Add a note.", &[REQUEST]);
    rig.produce().await;
    rig.consume().await;
    let transcript = rig.transcript(&rig.task().await).await;
    let pulls = rig.forge.pulls(DEMO);
    assert_eq!(pulls.len(), 1, "{transcript}");
    let body = pulls[0].body.clone();
    (rig, body, transcript)
}

fn adds_a_note() -> Scenario {
    Scenario::new("adds a note").replies([
        edit_create("note.txt", "a note\n"),
        commit_and_push("Add a note"),
        say("I added the note."),
        say("The failure is not part of the task."),
    ])
}

#[tokio::test]
async fn an_installer_whose_program_is_missing_is_skipped_with_a_note() {
    let registry = Registry::start().await;
    let sandbox = Sandbox::Docker(image());
    let (body, transcript) = fixed(&projects::GRADLE, &registry, sandbox).await;
    for text in [&body, &transcript] {
        assert!(
            text.contains("was skipped: `gradle` is not in the image"),
            "{text}"
        );
        assert!(
            text.contains("command_executor.docker.base_image"),
            "{text}"
        );
    }
    assert!(!transcript.contains("set-up failed"), "{transcript}");
    // Its guessed check cannot start, which is not a failure of the work.
    assert!(
        body.contains("not run: the program is not in the sandbox"),
        "{body}"
    );
    assert!(body.contains("`checks:`"), "{body}");
}

#[tokio::test]
async fn what_a_clone_lacks_is_in_the_prompt_and_in_the_pull_request() {
    let pointer = format!(
        "version https://git-lfs.github.com/spec/v1\noid sha256:{:064}\nsize 9\n",
        7
    );
    let files = [
        (".gitattributes", "*.bin filter=lfs -text\n"),
        ("a.bin", pointer.as_str()),
    ];
    let (rig, body, _) = changed(&files, adds_a_note(), |_| ()).await;
    let lacks = "1 file is in Git LFS: ";
    assert!(body.contains(lacks), "{body}");
    let requests = rig.model.requests();
    let prompts: Vec<String> = requests.iter().map(|it| it.body.to_string()).collect();
    assert!(prompts[0].contains(lacks), "{prompts:?}");
}

#[tokio::test]
async fn a_guessed_check_that_cannot_start_costs_no_round() {
    let (rig, body, _) = changed(
        &[(
            "package.json",
            r#"{"scripts":{"test":"no-such-program-anywhere"}}"#,
        )],
        adds_a_note(),
        |_| (),
    )
    .await;
    assert!(!rig.forge.pulls(DEMO)[0].draft, "{body}");
    assert_eq!(rig.sessions().await[0].usage.model_calls, 3);
    assert!(body.contains("| `npm test --silent` | not run: "), "{body}");
}

#[tokio::test]
async fn a_guessed_check_that_fails_on_the_base_commit_is_reported_as_failing_before() {
    let test = (
        "test.sh",
        "echo 'FAIL: the network is unreachable'; exit 1\n",
    );
    let (rig, body, transcript) = changed(&[test], adds_a_note(), |_| ()).await;
    assert!(!rig.forge.pulls(DEMO)[0].draft, "{body}");
    assert!(
        body.contains("| `sh ./test.sh` | 1, as without this work |"),
        "{body}"
    );
    // The model was asked once whether it belongs to the task.
    assert_eq!(rig.sessions().await[0].usage.model_calls, 4);
    assert!(
        transcript.contains("same way on the base commit"),
        "{transcript}"
    );
}

/// How often a check ran on the agent's commit that fails in the same way on the base commit, after this set-up.
async fn runs_after(set_up: &str) -> usize {
    let test = (
        "test.sh",
        "echo 'FAIL: the network is unreachable'; echo \"run $(date +%s%N)\"; exit 1\n",
    );
    let set_up = format!("setup: [\"{set_up}\"]\n");
    let files = [test, (".agentmine/config.yaml", set_up.as_str())];
    let (rig, body, transcript) = changed(&files, adds_a_note(), |_| ()).await;
    assert!(body.contains("| 1, as without this work |"), "{body}");
    assert_eq!(rig.sessions().await[0].usage.model_calls, 4);
    let runs = regex::Regex::new("run [0-9]{12,}").unwrap();
    let runs: BTreeSet<&str> = runs.find_iter(&transcript).map(|it| it.as_str()).collect();
    runs.len()
}

/// A suite that takes minutes would take them again, with the same end.
#[tokio::test]
async fn a_commit_that_fails_as_the_base_commit_is_not_checked_again() {
    assert_eq!(runs_after("true").await, 1);
}

/// What the set-up needs may be there now.
#[tokio::test]
async fn a_commit_whose_set_up_failed_is_checked_again() {
    assert_eq!(runs_after("exit 9").await, 2);
}

#[tokio::test]
async fn a_named_check_that_fails_on_the_base_commit_still_counts() {
    let test = (
        "test.sh",
        "echo 'FAIL: the network is unreachable'; exit 1\n",
    );
    let (rig, body, _) = changed(&[test], adds_a_note(), |config| {
        config["agent"] = json!({ "checks": ["sh ./test.sh"], "max_rounds": 2 });
    })
    .await;
    assert!(rig.forge.pulls(DEMO)[0].draft, "{body}");
    assert!(body.contains("1, as without this work"), "{body}");
}

#[tokio::test]
async fn a_failed_set_up_does_not_make_a_result_with_green_checks_partial() {
    let settings = (
        ".agentmine/config.yaml",
        "setup: [\"echo 'no such mirror' >&2; exit 9\"]\nchecks: [\"test -e note.txt\"]\n",
    );
    let (rig, body, transcript) = changed(&[settings], adds_a_note(), |_| ()).await;
    assert!(!rig.forge.pulls(DEMO)[0].draft, "{body}");
    assert!(
        body.contains("| set-up: `echo 'no such mirror' >&2; exit 9` | 9, as without this work |"),
        "{body}"
    );
    assert!(transcript.contains("set-up failed"), "{transcript}");
}

/// Requests a host that is refused, for ever, as npm does with its registry if it has more to download than
/// connections.
const SPIN: (&str, &str) = (
    "spin.py",
    r#"
import os, socket
proxy = os.environ["HTTPS_PROXY"].rpartition("/")[2].split(":")
request = b"CONNECT 10.0.0.1:443 HTTP/1.1\r\nHost: 10.0.0.1:443\r\n\r\n"
while True:
    with socket.create_connection((proxy[0], int(proxy[1]))) as connection:
        connection.sendall(request)
        connection.recv(1000)
"#,
);

#[tokio::test]
async fn a_set_up_that_requests_a_host_in_vain_for_ever_is_ended() {
    let settings = (
        ".agentmine/config.yaml",
        "setup: [\"python3 spin.py\"]\nchecks: [\"test -e note.txt\"]\n",
    );
    let (rig, body, transcript) = changed(&[settings, SPIN], adds_a_note(), |_| ()).await;
    assert!(!rig.forge.pulls(DEMO)[0].draft, "{body}");
    let ended = "ended after 300 requests in vain: web requests to 10.0.0.1:443 were refused";
    assert!(transcript.contains(ended), "{transcript}");
    assert!(body.contains("| 137, as without this work |"), "{body}");
}

#[tokio::test]
async fn a_set_up_that_the_change_breaks_is_work_to_do_where_no_check_passed() {
    let settings = (
        ".agentmine/config.yaml",
        "setup: [\"test ! -e note.txt || { echo 'the note is in the way'; exit 9; }\"]\n",
    );
    let (rig, body, transcript) = changed(&[settings], adds_a_note(), |_| ()).await;
    assert!(rig.forge.pulls(DEMO)[0].draft, "{body}");
    assert!(body.contains("` | 9 |"), "{body}");
    assert!(
        transcript.contains("the note is in the way"),
        "{transcript}"
    );
}

#[tokio::test]
async fn what_the_set_up_leaves_is_not_part_of_the_change() {
    let settings = (
        ".agentmine/config.yaml",
        "setup: [\"echo built > 'odd [name] 1'; mkdir -p out many && echo o > out/o; cd many; i=0; while [ $i -lt 600 ]; do echo > $i; i=$((i+1)); done; cd ..; echo changed >> greet.sh\"]\nchecks: [\"test -e note.txt\"]\n",
    );
    let scenario = Scenario::new("adds a note").replies([
        edit_create("note.txt", "a note\n"),
        // Beside what the set-up left.
        edit_create("out/result.txt", "a result\n"),
        commit_and_push("Add a note"),
        say("I added the note."),
    ]);
    let (rig, _, transcript) = changed(&[settings], scenario, |_| ()).await;
    let head = &rig.forge.pulls(DEMO)[0].head;
    assert_eq!(
        rig.forge.file_at(DEMO, head, "note.txt").unwrap(),
        "a note\n"
    );
    assert_eq!(
        rig.forge.file_at(DEMO, head, "odd [name] 1"),
        None,
        "{transcript}"
    );
    assert_eq!(rig.forge.file_at(DEMO, head, "out/o"), None);
    assert_eq!(
        rig.forge.file_at(DEMO, head, "out/result.txt").unwrap(),
        "a result\n"
    );
    assert_eq!(rig.forge.file_at(DEMO, head, "many/1"), None);
    assert!(
        transcript.contains("`many/` (more than 500 files) is excluded from commits"),
        "{transcript}"
    );
    assert_eq!(
        rig.forge.file_at(DEMO, head, "greet.sh"),
        rig.forge.file_at(DEMO, "main", "greet.sh")
    );
}

#[tokio::test]
async fn the_measurement_clones_as_the_agents_clone_was_made() {
    let check = "test \"$(git describe --tags --abbrev=0)\" = v1.0 && test $(git rev-list --count HEAD) -gt 10 && git rev-parse -q --verify origin/main";
    let mut rig = Rig::local(adds_a_note()).await;
    for n in 0..12 {
        rig.forge.commit(DEMO, "main", "main", |dir| {
            std::fs::write(dir.join("count"), n.to_string()).unwrap();
        });
    }
    let tagged = std::process::Command::new("git")
        .arg("-C")
        .arg(rig.forge.git_dir(DEMO))
        .args(["tag", "v1.0", "main~3"])
        .status();
    assert!(tagged.unwrap().success());
    rig.config["command_executor"]["clone"] = json!({ "shallow": false });
    rig.config["agent"] = json!({ "checks": [check] });
    rig.forge
        .add_issue(DEMO, "A note is missing", "Add a note.", &[REQUEST]);
    rig.produce().await;
    rig.consume().await;
    let task = rig.task().await;
    let transcript = rig.transcript(&task).await;
    assert_eq!(
        task.state,
        TaskState::Ended(EndState::Done),
        "{:?}\n{transcript}",
        task.reason
    );
}

/// The measurement's clone has between `least` and `most` commits after the agent has made `made` of them. In the meantime `moves` moves
/// the target branch.
async fn is_measured_with(made: usize, least: usize, most: usize, moves: impl FnOnce(&Rig)) {
    let commits = format!(
        "for n in $(seq {made}); do echo $n > note.txt && git add note.txt && git commit -qm \"Note $n\"; done && git push -q origin HEAD"
    );
    let scenario = Scenario::new("notes").replies([shell(&commits), say("I added the note.")]);
    let mut rig = Rig::local(scenario).await;
    let folder = rig.forge.git_dir(DEMO);
    let mut stream = String::from("reset refs/heads/main\nfrom refs/heads/main^0\n\n");
    for n in 0..80 {
        let committer = "committer Ada <ada@example.com> 1700000000 +0000";
        stream.push_str(&format!(
            "commit refs/heads/main\n{committer}\ndata 1\n.\nM 100644 inline count\ndata {}\n{n}\n",
            n.to_string().len()
        ));
    }
    projects::import(&folder, &stream);
    let check = format!(
        "n=$(git rev-list --count HEAD) && echo $n commits && test $n -ge {least} && test $n -le {most}"
    );
    rig.config["agent"] = json!({ "checks": [check] });
    rig.forge
        .add_issue(DEMO, "A note is missing", "Add a note.", &[REQUEST]);
    rig.produce().await;
    rig.model.hold_at(0);
    let consumer = rig.spawn("consumer", &["--once"]);
    rig.model.wait_for_held(1).await;
    moves(&rig);
    rig.model.release();
    let (status, log) = consumer.end().await;
    assert!(status.success(), "{log}");
    let task = rig.task().await;
    let transcript = rig.transcript(&task).await;
    assert!(
        rig.forge.pulls(DEMO)[0].body.contains("| 0 |"),
        "{transcript}"
    );
    assert!(!transcript.contains("It is not done yet"), "{transcript}");
}

/// A depth of 50 would be most of a large repository whose history has many merges.
#[tokio::test]
async fn the_measurement_fetches_the_work_and_little_of_the_history_below_it() {
    is_measured_with(1, 2, 3, |_| ()).await;
    is_measured_with(7, 8, 11, |_| ()).await;
}

#[tokio::test]
async fn the_measurement_fetches_all_of_the_work_however_many_commits_it_has() {
    is_measured_with(30, 31, 51, |_| ()).await;
}

#[tokio::test]
async fn the_measurement_fetches_the_work_after_the_target_branch_has_moved() {
    is_measured_with(1, 2, 3, |rig| {
        for n in 0..3 {
            rig.forge.commit(DEMO, "main", "main", |dir| {
                std::fs::write(dir.join("moved"), n.to_string()).unwrap();
            });
        }
    })
    .await;
}

#[tokio::test]
async fn an_image_that_is_not_allowed_is_reported() {
    let settings = (
        ".agentmine/config.yaml",
        "image: example.com/ours:1\nchecks: [\"test -e note.txt\"]\n",
    );
    let (_, body, transcript) = changed(&[settings], adds_a_note(), |config| {
        config["command_executor"]["backend"] = "docker".into();
    })
    .await;
    for text in [&body, &transcript] {
        assert!(text.contains("example.com/ours:1"), "{text}");
        assert!(text.contains("allowed_images"), "{text}");
    }
}

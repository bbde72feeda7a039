//! Secrets in files that are replaced while the programs run, as Kubernetes replaces mounted ones.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use agentmine_domain::TaskState;
use agentmine_tests::encrypted::Encrypted;
use agentmine_tests::model::{Scenario, commit_and_push, edit_replace, say, shell};
use serde_json::json;
use sqlx::Connection as _;
use tokio::process::Command;

use crate::apps::{app, key_in};
use crate::rig::{PATIENCE, Process, Rig, amqp_url, assert_done, binary, solves_demo};
use crate::webhooks::{listen, of_github, post};

const REPLACED: &str = "the new value is used from now on";
const UNREADABLE: &str = "the file of a secret cannot be read";
const FIRST_KEY: &str = "first-model-key-canary";
const SECOND_KEY: &str = "second-model-key-canary";

/// A mounted secret: each file is a link through `..data`, a link that is exchanged with its target.
struct Mounted(PathBuf);

impl Mounted {
    fn new(folder: &Path, files: &[(&str, &str)]) -> Self {
        let mounted = Self(folder.join("secret"));
        std::fs::create_dir(&mounted.0).unwrap();
        mounted.publish("..1", files);
        for (name, _) in files {
            std::os::unix::fs::symlink(format!("..data/{name}"), mounted.at(name)).unwrap();
        }
        mounted
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn publish(&self, version: &str, files: &[(&str, &str)]) {
        std::fs::create_dir(self.at(version)).unwrap();
        for (name, content) in files {
            std::fs::write(self.at(version).join(name), format!("{content}\n")).unwrap();
        }
        std::os::unix::fs::symlink(version, self.at("..data_tmp")).unwrap();
        std::fs::rename(self.at("..data_tmp"), self.at("..data")).unwrap();
    }

    fn take_away(&self) {
        std::fs::remove_file(self.at("..data")).unwrap();
    }
}

/// Starts a program whose secrets are in these files, by variable.
fn spawn(rig: &Rig, program: &str, files: &[(&str, PathBuf)]) -> Process {
    let mut command = Command::new(binary(program));
    command.arg("--config").arg(rig.config_file());
    for (variable, path) in files {
        command.env(variable, path);
        command.env_remove(variable.trim_end_matches("_FILE"));
    }
    Process::spawn(&mut command)
}

/// Waits until each program has logged a text so often.
async fn logged(programs: &[&Process], text: &str, times: usize) {
    let begun = Instant::now();
    for program in programs {
        while program.log().matches(text).count() < times {
            assert!(begun.elapsed() < PATIENCE, "{text}: {}", program.log());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

#[tokio::test]
async fn a_token_and_a_key_that_are_replaced_in_their_files_are_used_without_a_restart() {
    let script = Scenario::new("repeats both keys").replies([
        shell(&format!("echo {FIRST_KEY} {SECOND_KEY}")),
        edit_replace("greet.sh", "name=\"\"", "name=\"${1:-world}\""),
        commit_and_push("Greet the person named"),
        say(&format!(
            "`greet.sh` greets. The keys: {FIRST_KEY} {SECOND_KEY}."
        )),
    ]);
    let rig = Rig::local(script).await;
    let first = [("token", rig.forge.token()), ("key", FIRST_KEY)];
    let mounted = Mounted::new(rig.folder.path(), &first);
    let files = [
        ("GITHUB_PERSONAL_ACCESS_TOKEN_FILE", mounted.at("token")),
        ("OPENAI_API_KEY_FILE", mounted.at("key")),
    ];
    let programs = ["producer", "consumer"].map(|program| spawn(&rig, program, &files));
    let [producer, consumer] = [&programs[0], &programs[1]];
    rig.label_issue();
    assert_done(&rig.wait_ended(1).await[0]);

    // For a while there is nothing: the former values stay, and the log says so once for each file.
    mounted.take_away();
    logged(&[producer, consumer], UNREADABLE, 2).await;
    let rotated = rig.forge.add_client("");
    mounted.publish("..2", &[("token", &rotated), ("key", SECOND_KEY)]);
    logged(&[producer, consumer], REPLACED, 2).await;
    rig.forge.revoke(rig.forge.token());
    rig.label_issue();
    let tasks = rig.wait_ended(2).await;
    let requests = rig.model.requests();
    let mut second = None;
    for task in &tasks {
        assert_done(task);
        let transcript = rig.transcript(task).await;
        assert!(!transcript.contains(FIRST_KEY), "{transcript}");
        if task.number.0 == tasks.iter().map(|task| task.number.0).max().unwrap() {
            assert!(!transcript.contains(SECOND_KEY), "{transcript}");
            second = Some(transcript);
        }
    }
    assert!(second.unwrap().contains("***"));
    let keys: Vec<&str> = requests
        .iter()
        .map(|request| request.headers["authorization"].to_str().unwrap())
        .collect();
    assert_eq!(keys[0], format!("Bearer {FIRST_KEY}"));
    assert_eq!(keys[keys.len() - 1], format!("Bearer {SECOND_KEY}"));
    for program in programs {
        program.terminate();
        let (status, log) = program.end().await;
        assert!(status.success(), "{log}");
        assert_eq!(log.matches(UNREADABLE).count(), 2, "{log}");
        for secret in [FIRST_KEY, SECOND_KEY, rig.forge.token(), &rotated] {
            assert!(!log.contains(secret), "{log}");
        }
    }
}

/// The token of a server with a name is in a file whose variable the operator chose. On GitLab alone: the token of the test
/// above is one of GitHub.
#[tokio::test]
async fn a_token_of_a_named_server_that_is_replaced_in_its_file_is_used_without_a_restart() {
    let mut rig = Rig::local_gitlab(solves_demo()).await;
    let mut section = rig.tracker().take();
    section["token"] = "${OTHER_TOKEN}".into();
    rig.config["trackers"] = json!({ "more": { "gitlab": { "other": section } } });
    let mounted = Mounted::new(rig.folder.path(), &[("token", rig.forge.token())]);
    let files = [("OTHER_TOKEN_FILE", mounted.at("token"))];
    let programs = ["producer", "consumer"].map(|program| spawn(&rig, program, &files));
    rig.label_issue();
    assert_done(&rig.wait_ended(1).await[0]);

    let rotated = rig.forge.add_client("");
    mounted.publish("..2", &[("token", &rotated)]);
    logged(&[&programs[0], &programs[1]], REPLACED, 1).await;
    rig.forge.revoke(rig.forge.token());
    rig.label_issue();
    rig.wait_ended(2).await.iter().for_each(assert_done);
    for program in programs {
        program.terminate();
        let (status, log) = program.end().await;
        assert!(status.success(), "{log}");
        for secret in [rig.forge.token(), &rotated] {
            assert!(!log.contains(secret), "{log}");
        }
    }
}

#[tokio::test]
async fn a_password_of_the_database_that_is_replaced_is_used_at_the_next_connection() {
    let services = Encrypted::start().await.unwrap();
    let mut rig = Rig::local(solves_demo()).await;
    let with = |url: &str| {
        let authority = services.authority.display();
        format!("{url}?sslmode=verify-full&sslrootcert={authority}")
    };
    let store = rig.config["store"].as_object_mut().unwrap();
    store.remove("url");
    let first = with(&services.store_url);
    let mounted = Mounted::new(rig.folder.path(), &[("url", &first)]);
    let files = [
        ("AGENTMINE_STORE_URL_FILE", mounted.at("url")),
        ("GITHUB_PERSONAL_ACCESS_TOKEN_FILE", {
            let token = rig.folder.path().join("token");
            std::fs::write(&token, rig.forge.token()).unwrap();
            token
        }),
    ];
    let producer = spawn(&rig, "producer", &files);
    let consumer = spawn(&rig, "consumer", &files);
    rig.model.hold_at(2);
    rig.label_issue();
    rig.model.wait_for_held(1).await;

    // First the database, then the file, as an operator does it. Connections that are open stay; these are ended.
    let mut own = sqlx::PgConnection::connect(&first).await.unwrap();
    let password = "canary-of-the-new-password";
    let change = format!("ALTER ROLE fleet PASSWORD '{password}'");
    sqlx::query(sqlx::AssertSqlSafe(change))
        .execute(&mut own)
        .await
        .unwrap();
    let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
               WHERE pid <> pg_backend_pid() AND application_name = 'agentmine'";
    sqlx::query(cut).execute(&mut own).await.unwrap();
    logged(&[&consumer], "password authentication failed", 1).await;
    let second = with(
        &services
            .store_url
            .replace(&services.store_password, password),
    );
    mounted.publish("..2", &[("url", &second)]);
    logged(&[&producer, &consumer], REPLACED, 1).await;
    rig.model.release();

    let config = serde_json::from_value(json!({ "url": second })).unwrap();
    let store = agentmine_store::connect(&config).await.unwrap();
    let ended = async |count: usize| {
        let begun = Instant::now();
        loop {
            let tasks = store.tasks(&Default::default()).await.unwrap();
            let is_over = |state| matches!(state, TaskState::Ended(_));
            if tasks.len() == count && tasks.iter().all(|task| is_over(task.state)) {
                return tasks;
            }
            assert!(begun.elapsed() < PATIENCE, "{tasks:#?} {}", consumer.log());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    ended(1).await.iter().for_each(assert_done);
    rig.label_issue();
    ended(2).await.iter().for_each(assert_done);
    for program in [producer, consumer] {
        program.terminate();
        let (status, log) = program.end().await;
        assert!(status.success(), "{log}");
        assert!(!log.contains(password), "{log}");
        assert!(!log.contains(&services.store_password), "{log}");
    }
}

#[tokio::test]
async fn a_password_of_the_broker_that_is_corrected_in_its_file_is_used_at_the_next_connection() {
    let mut rig = Rig::local(solves_demo()).await;
    let queue = rig.config["queue"].as_object_mut().unwrap();
    queue.remove("url");
    let right = amqp_url();
    let wrong = right.replace(":guest@", ":a-wrong-canary@");
    assert_ne!(right, wrong);
    let mounted = Mounted::new(rig.folder.path(), &[("url", &wrong)]);
    let token = rig.folder.path().join("token");
    std::fs::write(&token, rig.forge.token()).unwrap();
    let files = [
        ("AGENTMINE_QUEUE_URL_FILE", mounted.at("url")),
        ("GITHUB_PERSONAL_ACCESS_TOKEN_FILE", token),
    ];
    let producer = spawn(&rig, "producer", &files);
    producer.wait_for("refused the user or the password").await;
    mounted.publish("..2", &[("url", &right)]);
    logged(&[&producer], REPLACED, 1).await;
    // Its announcement needs the broker.
    rig.label_issue();
    producer.wait_for("connected to the broker again").await;
    producer.terminate();
    let (status, log) = producer.end().await;
    assert!(status.success(), "{log}");
    assert!(!log.contains("a-wrong-canary"), "{log}");
}

#[tokio::test]
async fn a_key_of_an_app_that_is_replaced_in_its_file_signs_from_then_on() {
    let mut rig = Rig::local(solves_demo()).await;
    let [first, second] = ["first", "second"].map(|name| {
        let folder = rig.folder.path().join(name);
        std::fs::create_dir(&folder).unwrap();
        key_in(&folder)
    });
    let text = |key: &Path| std::fs::read_to_string(key).unwrap();
    rig.forge.add_app(app(&first));
    let mounted = Mounted::new(rig.folder.path(), &[("app.pem", &text(&first))]);
    rig.config["trackers"]["github"]["app"] =
        json!({ "id": 4711, "key_file": mounted.at("app.pem") });
    let programs = ["producer", "consumer"].map(|program| spawn(&rig, program, &[]));
    let [producer, consumer] = [&programs[0], &programs[1]];
    rig.label_issue();
    assert_done(&rig.wait_ended(1).await[0]);

    // GitHub takes both keys until the operator deletes the former one.
    mounted.publish("..2", &[("app.pem", &text(&second))]);
    logged(&[producer, consumer], REPLACED, 1).await;
    rig.forge.change_apps(|apps| apps[0] = app(&second));
    rig.label_issue();
    rig.wait_ended(2).await.iter().for_each(assert_done);
    for program in programs {
        program.terminate();
        let (status, log) = program.end().await;
        assert!(status.success(), "{log}");
        assert!(!log.contains("PRIVATE KEY"), "{log}");
    }
}

#[tokio::test]
async fn a_secret_of_webhooks_that_is_replaced_in_its_file_is_the_only_one_that_counts() {
    const FIRST: &str = "first canary of a webhook";
    const SECOND: &str = "second canary of a webhook";
    let mut rig = Rig::local(solves_demo()).await;
    let url = format!("{}/github", listen(&mut rig));
    let first = [("token", rig.forge.token()), ("secret", FIRST)];
    let mounted = Mounted::new(rig.folder.path(), &first);
    let files = [
        ("GITHUB_PERSONAL_ACCESS_TOKEN_FILE", mounted.at("token")),
        ("GITHUB_WEBHOOK_SECRET_FILE", mounted.at("secret")),
    ];
    let producer = spawn(&rig, "producer", &files);
    producer.wait_for("scanned").await;
    let deliver = async |secret: &str, delivery: &str| {
        let body = crate::webhooks::body();
        let signature = of_github(secret, &body).await;
        let headers = [
            ("x-hub-signature-256", signature.as_str()),
            ("x-github-delivery", delivery),
        ];
        post(&url, &headers, &body).await
    };
    assert_eq!(deliver(FIRST, "1").await, 202);
    assert_eq!(deliver(SECOND, "2").await, 401);

    let second = [("token", rig.forge.token()), ("secret", SECOND)];
    mounted.publish("..2", &second);
    logged(&[&producer], REPLACED, 1).await;
    assert_eq!(deliver(FIRST, "3").await, 401);
    assert_eq!(deliver(SECOND, "4").await, 202);
    producer.terminate();
    let (status, log) = producer.end().await;
    assert!(status.success(), "{log}");
    assert!(!log.contains(FIRST) && !log.contains(SECOND), "{log}");
}

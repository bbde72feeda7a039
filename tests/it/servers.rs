//! Several servers of a kind: what has the same name on two of them is not the same.

use std::time::{Duration, Instant};

use agentmine_domain::{ItemRef, Task, TaskState};
use agentmine_tests::forge::{DEMO, Fault, Forge, HUMAN, Hook, write_demo};
use serde_json::json;

use crate::rig::{PATIENCE, REQUEST, Rig, assert_done, solves_demo};
use crate::webhooks::{of_github, post, producer};

const SECRET: &str = "canary of the first";
const OTHER: &str = "canary of the second";

/// A second forge with the same repository, and its section, which gets its token from the variable `OTHER_TOKEN`.
async fn second(rig: &mut Rig, kind: &str, forge: Forge) -> Forge {
    forge.add_repo(DEMO, write_demo);
    let (api_url, places) = match kind {
        "github" => (forge.api_url(), "repositories"),
        _ => (forge.gitlab_url(), "projects"),
    };
    let mut section = json!({ "api_url": api_url, "token": "${OTHER_TOKEN}" });
    section[places] = json!([DEMO]);
    if let Some(authority) = forge.authority() {
        section["ca_file"] = json!(authority);
    }
    rig.config["trackers"]["more"] = json!({ kind: { "other": section } });
    forge
}

fn issue(forge: &Forge) -> u64 {
    let (title, text) = ("greet.sh greets nobody", "It should greet.");
    forge.add_issue(DEMO, title, text, &[REQUEST])
}

/// The same repository and number on both: two tasks, each with its pull request where its item is.
async fn are_two_tasks(mut rig: Rig, kind: &str, forge: Forge) {
    let other = second(&mut rig, kind, forge).await;
    let number = issue(&rig.forge);
    assert_eq!(issue(&other), number);
    let token = ("OTHER_TOKEN", other.token());
    let producer = rig.spawn_with("producer", token);
    rig.wait("two tasks", |tasks| tasks.len() == 2).await;
    let consumer = rig.spawn_with("consumer", token);
    let tasks = rig.wait_ended(2).await;
    for process in [producer, consumer] {
        process.terminate();
        let (status, log) = process.end().await;
        assert!(status.success(), "{log}");
        assert!(!log.contains(other.token()) && !log.contains(rig.forge.token()));
    }
    let items: Vec<&ItemRef> = tasks.iter().map(|task| &task.item).collect();
    assert_eq!(items[0].repo_path, items[1].repo_path);
    assert_ne!(items[0].host, items[1].host);
    tasks.iter().for_each(assert_done);
    for forge in [&rig.forge, &other] {
        let port = forge.api_url().port().unwrap().to_string();
        let task = tasks.iter().find(|task| task.item.host.ends_with(&port));
        let pulls = forge.pulls(DEMO);
        assert_eq!(pulls.len(), 1, "{port}");
        assert_eq!(pulls[0].head, task.unwrap().branch());
        assert_eq!(forge.labels(DEMO, number), ["coding agent done"]);
        assert_eq!(forge.leaks(), Vec::<String>::new());
        // Git asks without credentials first; no other request had those of the other server.
        let requests = forge.requests();
        let refused = requests.iter().filter(|it| it.status == 401);
        let refused: Vec<_> = refused
            .filter(|it| it.target.starts_with("/api/"))
            .collect();
        assert!(refused.is_empty(), "{refused:?}");
    }
}

#[tokio::test]
async fn items_with_the_same_name_on_two_hosts_are_two_tasks_on_github() {
    are_two_tasks(
        Rig::local(solves_demo()).await,
        "github",
        Forge::start().await,
    )
    .await;
}

#[tokio::test]
async fn items_with_the_same_name_on_two_hosts_are_two_tasks_on_gitlab() {
    are_two_tasks(
        Rig::local_gitlab(solves_demo()).await,
        "gitlab",
        Forge::start_tls().await,
    )
    .await;
}

/// The header that shows that a delivery knows the secret.
async fn proof(kind: &str, secret: &str, body: &str) -> (&'static str, String) {
    match kind {
        "github" => ("x-hub-signature-256", of_github(secret, body).await),
        _ => ("x-gitlab-token", secret.to_owned()),
    }
}

/// Each server has an address and a separate secret, and its deliveries point at its repositories alone.
async fn a_webhook_is_followed_on_its_server_alone(mut rig: Rig, kind: &str, forge: Forge) {
    let other = second(&mut rig, kind, forge).await;
    let key = match kind {
        "github" => "webhook_secret",
        _ => "webhook_secret_token",
    };
    rig.tracker()[key] = SECRET.into();
    let section = &mut rig.config["trackers"]["more"][kind]["other"];
    section[key] = OTHER.into();
    section["token"] = other.token().into();
    let (producer, url) = producer(&mut rig).await;
    let number = issue(&other);
    let lists = |forge: &Forge| {
        let requests = forge.requests();
        let lists = requests.iter().filter(|it| it.target.contains("/issues?"));
        lists.count()
    };
    let is_scanned = |forge: &Forge| lists(forge) > 0;
    rig.forge
        .wait_until("the first scan", PATIENCE, is_scanned)
        .await;
    let before = lists(&rig.forge);
    let body = json!({
        "repository": { "id": 1, "full_name": DEMO },
        "project": { "id": 1, "path_with_namespace": DEMO },
    });
    let body = body.to_string();
    let send = async |place: &str, secret: &str| {
        let (header, proof) = proof(kind, secret, &body).await;
        let url = format!("{url}/{kind}{place}");
        post(&url, &[(header, proof.as_str())], &body).await
    };
    assert_eq!(send("/other", SECRET).await, 401);
    assert_eq!(send("", OTHER).await, 401);
    assert_eq!(send("/absent", OTHER).await, 401);
    let url = format!("{url}/{kind}/other");
    other.add_hook(match kind {
        "github" => Hook::github(&url, OTHER),
        _ => Hook::gitlab(&url, OTHER),
    });
    other.add_comment(DEMO, number, HUMAN, "Soon, please.");
    let tasks = rig.wait("the task", |tasks| tasks.len() == 1).await;
    assert!(
        tasks[0]
            .item
            .host
            .ends_with(&other.api_url().port().unwrap().to_string())
    );
    assert_eq!(lists(&rig.forge), before);
    producer.terminate();
    let (status, log) = producer.end().await;
    assert!(status.success(), "{log}");
    assert!(!log.contains("canary"), "{log}");
}

#[tokio::test]
async fn a_webhook_of_a_named_server_is_followed_on_that_server_alone_on_github() {
    let rig = Rig::local(solves_demo()).await;
    a_webhook_is_followed_on_its_server_alone(rig, "github", Forge::start().await).await;
}

#[tokio::test]
async fn a_webhook_of_a_named_server_is_followed_on_that_server_alone_on_gitlab() {
    let rig = Rig::local_gitlab(solves_demo()).await;
    a_webhook_is_followed_on_its_server_alone(rig, "gitlab", Forge::start_tls().await).await;
}

/// What is wrong with a named server is said of its section, not of the one without a name.
async fn is_named_in_messages(mut rig: Rig, kind: &str, forge: Forge, places: &str) {
    let other = second(&mut rig, kind, forge).await;
    let key = format!("trackers.more.{kind}.other");
    let section = &mut rig.config["trackers"]["more"][kind]["other"];
    section["token"] = "not-the-token".into();
    let (out, _) = rig.agentmine(&["doctor", "--json"], 1);
    let hint = format!("set {key}.token to a");
    assert!(out.contains(&hint), "{hint}: {out}");
    let section = &mut rig.config["trackers"]["more"][kind]["other"];
    section["token"] = other.token().into();
    section[places] = json!(["octo/absent"]);
    let (out, _) = rig.agentmine(&["doctor", "--json"], 1);
    let hint = format!("correct {key}.{places}");
    assert!(out.contains(&hint), "{hint}: {out}");
    assert!(!out.contains(&format!("trackers.{kind}.")), "{out}");
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_name_the_section_of_a_named_server_on_github() {
    let rig = Rig::local(solves_demo()).await;
    is_named_in_messages(rig, "github", Forge::start().await, "repositories").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_name_the_section_of_a_named_server_on_gitlab() {
    let rig = Rig::local_gitlab(solves_demo()).await;
    is_named_in_messages(rig, "gitlab", Forge::start_tls().await, "projects").await;
}

/// The first server takes every request and answers none; what is requested on the other one is begun all the same, and so are
/// commands there.
async fn a_silent_server(mut rig: Rig, kind: &str, forge: Forge) {
    let other = second(&mut rig, kind, forge).await;
    let silent = Fault::on("GET", "/").delay(Duration::from_secs(600));
    rig.forge.inject(silent.times(10_000));
    let began = Instant::now();
    let producer = rig.spawn_with("producer", ("OTHER_TOKEN", other.token()));
    let number = issue(&other);
    let queued = |tasks: &[Task]| tasks.iter().any(|task| task.card.waits_for.is_none());
    rig.wait("the task to be admitted", queued).await;
    other.say(DEMO, number, HUMAN, "/agentmine stop");
    let stopped = |tasks: &[Task]| matches!(tasks[0].state, TaskState::Ended(_));
    rig.wait("the task to be stopped", stopped).await;
    // A request that is not answered is given up after 30 s, and tried four times.
    let took = began.elapsed();
    assert!(took < Duration::from_secs(28), "{took:?}");
    producer.kill_nine();
    producer.end().await;
}

#[tokio::test]
async fn a_server_that_does_not_answer_delays_no_other_one_on_github() {
    a_silent_server(
        Rig::local(solves_demo()).await,
        "github",
        Forge::start().await,
    )
    .await;
}

#[tokio::test]
async fn a_server_that_does_not_answer_delays_no_other_one_on_gitlab() {
    a_silent_server(
        Rig::local_gitlab(solves_demo()).await,
        "gitlab",
        Forge::start_tls().await,
    )
    .await;
}

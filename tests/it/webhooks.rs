//! Webhooks: deliveries that others signed start work at once, and nothing else does.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use agentmine_runtime::config::{self, Sources};
use agentmine_tests::forge::{DEMO, Forge, HUMAN, Hook, Sent};
use chrono::Utc;
use serde_json::{Value, json};

use crate::endpoint::{free_address, get};
use crate::forge_clients::node;
use crate::rig::{PATIENCE, Process, REQUEST, Rig, solves_demo};

const SECRET: &str = "canary of a webhook's secret";
const TOKEN: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYo=";

/// Lets the producer listen, and returns where. The scan is so rare that only a webhook can start anything.
pub(crate) fn listen(rig: &mut Rig) -> String {
    let address = free_address();
    rig.config["producer"] = json!({ "interval_seconds": 3600, "webhooks": { "listen": address } });
    format!("http://{address}/webhooks")
}

pub(crate) async fn producer(rig: &mut Rig) -> (Process, String) {
    let url = listen(rig);
    let producer = rig.spawn("producer", &[]);
    producer.wait_for("scanned").await;
    (producer, url)
}

/// Configures a producer whose scans are an hour apart, and returns the webhook that is to be registered for it.
pub(crate) fn hook(rig: &mut Rig) -> Hook {
    let url = listen(rig);
    let trackers = &mut rig.config["trackers"];
    match trackers["github"].is_object() {
        true => {
            trackers["github"]["webhook_secret"] = SECRET.into();
            Hook::github(&format!("{url}/github"), SECRET)
        }
        false => {
            trackers["gitlab"]["webhook_signing_token"] = TOKEN.into();
            Hook::gitlab_signed(&format!("{url}/gitlab"), TOKEN)
        }
    }
}

/// A producer whose scans are an hour apart, to which the rig's forge delivers what happens from now on.
pub(crate) async fn hearing(rig: &mut Rig) -> Process {
    let hook = hook(rig);
    let producer = rig.spawn("producer", &[]);
    producer.wait_for("scanned").await;
    rig.forge.add_hook(hook);
    producer
}

fn client() -> reqwest::Client {
    agentmine_runtime::tls::install_default_provider();
    reqwest::Client::new()
}

pub(crate) async fn post(url: &str, headers: &[(&str, &str)], body: &str) -> u16 {
    let mut request = client().post(url).body(body.to_owned());
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.send().await.unwrap().status().as_u16()
}

/// What GitHub sends when a label was added, as far as anything is read of it.
pub(crate) fn body() -> String {
    json!({ "action": "labeled", "repository": { "id": 1, "full_name": DEMO } }).to_string()
}

pub(crate) async fn of_github(secret: &str, body: &str) -> String {
    node("sign.mjs", &["github", secret, body], "/dev/null".as_ref())
        .await
        .unwrap()
}

fn lists(rig: &Rig) -> usize {
    let seen = rig.forge.requests();
    let is_list = |target: &str| target.contains("/issues?") && target.contains("coding+agent&");
    seen.iter().filter(|it| is_list(&it.target)).count()
}

#[tokio::test]
async fn a_load_balancer_sees_that_deliveries_are_received() {
    let mut rig = Rig::local(solves_demo()).await;
    rig.config["trackers"]["github"]["webhook_secret"] = SECRET.into();
    let (producer, url) = producer(&mut rig).await;
    let address = url.strip_prefix("http://").unwrap();
    let address = address.strip_suffix("/webhooks").unwrap();
    assert_eq!(get(address, "/").await, (200, "ok\n".to_owned()));
    producer.terminate();
    let (status, log) = producer.end().await;
    assert!(status.success(), "{log}");
}

#[tokio::test]
async fn a_label_starts_work_at_once_by_a_delivery_that_github_signed() {
    let mut rig = Rig::local(solves_demo()).await;
    rig.config["trackers"]["github"]["webhook_secret"] = SECRET.into();
    let (producer, url) = producer(&mut rig).await;
    let url = format!("{url}/github");
    let number = rig.label_issue();
    let before = lists(&rig);
    let body = body();
    // Forged, unsigned, of another body, and too large.
    let forged = of_github("another", &body).await;
    let genuine = of_github(SECRET, &body).await;
    let signed = |signature: &'static str| {
        [
            ("x-hub-signature-256", signature),
            ("x-github-delivery", "1"),
        ]
    };
    let (forged, genuine): (&'static str, &'static str) = (forged.leak(), genuine.leak());
    assert_eq!(post(&url, &signed(forged), &body).await, 401);
    assert_eq!(post(&url, &[], &body).await, 401);
    assert_eq!(post(&url, &signed(genuine), "{}").await, 401);
    // The connection may be closed before all of it was sent.
    let large = client().post(&url).body("x".repeat((25 << 20) + 1));
    let answer = large.send().await;
    assert!(answer.is_err() || answer.is_ok_and(|it| it.status() == 413));
    assert_eq!((rig.tasks().await.len(), lists(&rig)), (0, before));

    rig.forge.add_hook(Hook::github(&url, SECRET));
    let begun = Instant::now();
    rig.forge.add_comment(DEMO, number, HUMAN, "Soon, please.");
    rig.wait("the task", |tasks| tasks.len() == 1).await;
    assert!(
        begun.elapsed() < Duration::from_secs(15),
        "{:?}",
        begun.elapsed()
    );

    // The same delivery again, as a person asks for it and as a thief sends it, and a flood under other ids, which GitHub
    // does not sign.
    let delivery = rig.forge.deliveries().remove(0);
    assert_eq!(delivery.event, "issue_comment");
    rig.forge.redeliver(&delivery.id);
    let again = [Sent::Answered(202), Sent::Answered(200)];
    let is_known = |forge: &Forge| forge.deliveries()[0].attempts == again;
    rig.forge
        .wait_until("it is known", PATIENCE, is_known)
        .await;
    let header = |name: &str| {
        let mut all = delivery.headers.iter();
        let (_, value) = all.find(|(own, _)| own == name).unwrap();
        value.as_str()
    };
    let after = lists(&rig);
    for n in 0..100 {
        let id = match n {
            1 => delivery.id.clone(),
            n => n.to_string(),
        };
        let headers = [
            ("x-hub-signature-256", header("X-Hub-Signature-256")),
            ("x-github-delivery", id.as_str()),
        ];
        let expected = if n == 1 { 200 } else { 202 };
        assert_eq!(post(&url, &headers, &delivery.text).await, expected);
    }
    tokio::time::sleep(Duration::from_secs(6)).await;
    let flooded = lists(&rig) - after;
    let looks = 1 + begun.elapsed().as_secs() as usize / 5;
    assert!(
        flooded <= looks,
        "{flooded} lists, expected {looks} at most"
    );
    producer.terminate();
    let (status, log) = producer.end().await;
    assert!(status.success(), "{log}");
    assert!(!log.contains(SECRET), "{log}");
}

/// The content type that GitHub's form for a new webhook proposes.
#[tokio::test]
async fn a_label_starts_work_at_once_by_a_delivery_in_a_form() {
    let mut rig = Rig::local(solves_demo()).await;
    rig.config["trackers"]["github"]["webhook_secret"] = SECRET.into();
    let (producer, url) = producer(&mut rig).await;
    let url = format!("{url}/github");
    let mut form = url::form_urlencoded::Serializer::new(String::new());
    let form = form.append_pair("payload", &body()).finish();
    let kind = ("content-type", "application/x-www-form-urlencoded");
    // The signature is of the form, not of what is in it.
    let inner = of_github(SECRET, &body()).await;
    let forged = [kind, ("x-hub-signature-256", inner.as_str())];
    assert_eq!(post(&url, &forged, &form).await, 401);
    rig.forge.add_hook(Hook::github_form(&url, SECRET));
    rig.label_issue();
    rig.wait("the task", |tasks| tasks.len() == 1).await;
    producer.terminate();
    assert!(producer.end().await.0.success());
}

#[tokio::test]
async fn a_label_starts_work_at_once_by_a_delivery_that_gitlab_signed() {
    let mut rig = Rig::on_gitlab(solves_demo()).await;
    rig.config["command_executor"]["backend"] = "local".into();
    rig.config["trackers"]["gitlab"]["webhook_signing_token"] = TOKEN.into();
    rig.config["trackers"]["gitlab"]["webhook_secret_token"] = SECRET.into();
    let (producer, url) = producer(&mut rig).await;
    let url = format!("{url}/gitlab");
    let number = rig.label_issue();
    let body =
        json!({ "object_kind": "issue", "project": { "id": 1, "path_with_namespace": DEMO } });
    let body = body.to_string();
    let now = Utc::now().timestamp();
    let send = async |id: &str, sent: i64, token: &str, text: &str| {
        let time = sent.to_string();
        let args = ["gitlab", token, id, time.as_str(), body.as_str()];
        let signature = node("sign.mjs", &args, "/dev/null".as_ref()).await.unwrap();
        let headers = [
            ("webhook-id", id),
            ("webhook-timestamp", time.as_str()),
            ("webhook-signature", signature.as_str()),
        ];
        post(&url, &headers, text).await
    };
    assert_eq!(send("a", now - 400, TOKEN, &body).await, 401);
    assert_eq!(send("a", now + 400, TOKEN, &body).await, 401);
    assert_eq!(
        send("a", now, "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", &body).await,
        401
    );
    assert_eq!(send("a", now, TOKEN, "{}").await, 401);
    assert_eq!(
        post(&url, &[("x-gitlab-token", "canary")], &body).await,
        401
    );
    assert_eq!(rig.tasks().await.len(), 0);
    rig.forge.add_hook(Hook::gitlab_signed(&url, TOKEN));
    rig.forge.add_comment(DEMO, number, HUMAN, "Soon, please.");
    rig.wait("the task", |tasks| tasks.len() == 1).await;
    let delivery = rig.forge.deliveries().remove(0);
    rig.forge.redeliver(&delivery.id);
    let again = [Sent::Answered(202), Sent::Answered(200)];
    let is_known = |forge: &Forge| forge.deliveries()[0].attempts == again;
    rig.forge
        .wait_until("it is known", PATIENCE, is_known)
        .await;
    assert_eq!(post(&url, &[("x-gitlab-token", SECRET)], &body).await, 202);
    // The texts of an issue, before and after a change.
    let text = "long ".repeat(1 << 20);
    let texts = json!({ "previous": text, "current": text });
    let body = json!({ "project": { "id": 1, "path_with_namespace": DEMO }, "changes": texts });
    let body = body.to_string();
    assert_eq!(post(&url, &[("x-gitlab-token", SECRET)], &body).await, 202);
    producer.terminate();
    assert!(producer.end().await.0.success());
}

/// The repository has another name since it was scanned: its webhooks name it by that, and by the id that it keeps.
#[tokio::test]
async fn a_webhook_of_a_renamed_repository_starts_work_at_once_on_github() {
    let mut rig = Rig::local(solves_demo()).await;
    rig.config["trackers"]["github"]["webhook_secret"] = SECRET.into();
    rig.label_issue();
    let (producer, url) = producer(&mut rig).await;
    let url = format!("{url}/github");
    let id = rename(&rig);
    // A new name alone is nothing that is scanned.
    let body = json!({ "repository": { "id": id + 1000, "full_name": RENAMED } });
    let signature = of_github(SECRET, &body.to_string()).await;
    let headers = [("x-hub-signature-256", signature.as_str())];
    assert_eq!(post(&url, &headers, &body.to_string()).await, 202);
    rig.forge.add_hook(Hook::github(&url, SECRET));
    is_at_work(&rig, producer).await;
}

/// The same on GitLab.
#[tokio::test]
async fn a_webhook_of_a_renamed_project_starts_work_at_once_on_gitlab() {
    let mut rig = Rig::on_gitlab(solves_demo()).await;
    rig.config["command_executor"]["backend"] = "local".into();
    rig.config["trackers"]["gitlab"]["webhook_secret_token"] = SECRET.into();
    rig.label_issue();
    let (producer, url) = producer(&mut rig).await;
    let url = format!("{url}/gitlab");
    let id = rename(&rig);
    let body = json!({ "project": { "id": id + 1000, "path_with_namespace": RENAMED } });
    let headers = [("x-gitlab-token", SECRET)];
    assert_eq!(post(&url, &headers, &body.to_string()).await, 202);
    rig.forge.add_hook(Hook::gitlab(&url, SECRET));
    is_at_work(&rig, producer).await;
}

/// Bodies that nobody here wrote: GitHub's examples of every delivery that the documentation asks for.
#[tokio::test]
async fn each_example_of_github_points_to_its_repository() {
    let mut rig = Rig::local(solves_demo()).await;
    rig.config["trackers"]["github"]["webhook_secret"] = SECRET.into();
    let metrics = free_address();
    rig.config["http"] = json!({ "listen": metrics });
    let (producer, url) = producer(&mut rig).await;
    let url = format!("{url}/github");
    let id = rig.forge.repo_id(DEMO).to_string();
    let args = [SECRET, DEMO, id.as_str()];
    let printed = node("deliveries.mjs", &args, "/dev/null".as_ref()).await;
    let mut events = BTreeMap::new();
    for (n, line) in printed.unwrap().lines().enumerate() {
        let delivery: Value = serde_json::from_str(line).unwrap();
        let text = |field: &str| delivery[field].as_str().unwrap().to_owned();
        let (event, body) = (text("event"), text("body"));
        let headers = [
            ("content-type", "application/json"),
            ("x-github-event", &event),
            ("x-github-delivery", &n.to_string()),
            ("x-hub-signature-256", &text("signature")),
        ];
        assert_eq!(post(&url, &headers, &body).await, 202, "{event}: {body}");
        *events.entry(event).or_insert(0) += 1;
    }
    assert_eq!(events.len(), 7, "{events:?}");
    let (_, counted) = get(&metrics, "/metrics").await;
    let count = |outcome: &str| {
        let name = format!("agentmine_webhooks_total{{forge=\"github\",outcome=\"{outcome}\"}} ");
        let line = counted.lines().find_map(|line| line.strip_prefix(&name));
        line.unwrap().parse::<u64>().unwrap()
    };
    let all: u64 = events.values().sum();
    assert_eq!((count("accepted"), count("ignored")), (all, 0));
    producer.terminate();
    assert!(producer.end().await.0.success());
}

/// What is done by a request that a delivery caused, and that repeats its `X-Gitlab-Event-UUID`, has the same in all of its
/// deliveries.
#[tokio::test]
async fn deliveries_with_the_same_event_uuid_are_each_followed_on_gitlab() {
    let mut rig = Rig::on_gitlab(solves_demo()).await;
    rig.config["command_executor"]["backend"] = "local".into();
    rig.config["trackers"]["gitlab"]["webhook_secret_token"] = SECRET.into();
    let (producer, url) = producer(&mut rig).await;
    rig.forge
        .add_hook(Hook::gitlab(&format!("{url}/gitlab"), SECRET));
    let number = rig.forge.add_issue(DEMO, "Greet", "It should greet.", &[]);
    let authority = std::fs::read(rig.forge.authority().unwrap()).unwrap();
    let authority = reqwest::Certificate::from_pem(&authority).unwrap();
    agentmine_runtime::tls::install_default_provider();
    let client = reqwest::Client::builder().add_root_certificate(authority);
    let client = client.build().unwrap();
    let id = rig.forge.repo_id(DEMO);
    let path = format!("projects/{id}/issues/{number}");
    for change in [
        json!({ "title": "Greet us" }),
        json!({ "add_labels": REQUEST }),
    ] {
        let request = client.put(rig.forge.gitlab_url().join(&path).unwrap());
        let request = request.header(
            "x-gitlab-event-uuid",
            "13792a34-cac6-4fda-95a8-c58e00a3954e",
        );
        let request = request.bearer_auth(rig.forge.human_token()).json(&change);
        assert!(request.send().await.unwrap().status().is_success());
    }
    rig.forge.deliveries_sent().await;
    // The fleet's own changes are later ones.
    let mut deliveries = rig.forge.deliveries();
    deliveries.truncate(3);
    let taken = vec![Sent::Answered(202)];
    assert!(
        deliveries.iter().all(|it| it.attempts == taken),
        "{deliveries:?}"
    );
    rig.wait("the task", |tasks| tasks.len() == 1).await;
    // It has its own id, by which a repetition is known.
    rig.forge.redeliver(&deliveries[2].id);
    let again = [Sent::Answered(202), Sent::Answered(200)];
    let is_known = |forge: &Forge| forge.deliveries()[2].attempts == again;
    rig.forge
        .wait_until("it is known", PATIENCE, is_known)
        .await;
    producer.terminate();
    assert!(producer.end().await.0.success());
}

/// On older servers, GitLab's deliveries about jobs have no path of the project, only its id.
#[tokio::test]
async fn a_delivery_about_a_job_points_to_its_project_by_the_id() {
    let mut rig = Rig::on_gitlab(solves_demo()).await;
    rig.config["command_executor"]["backend"] = "local".into();
    rig.config["trackers"]["gitlab"]["webhook_secret_token"] = SECRET.into();
    rig.label_issue();
    let (producer, url) = producer(&mut rig).await;
    rig.label_issue();
    let id = rig.forge.repo_id(DEMO);
    let deliver = async |id: u64| {
        let body = json!({ "object_kind": "build", "build_status": "failed", "project_id": id, "project_name": "Octo / Demo" });
        let headers = [("x-gitlab-token", SECRET), ("x-gitlab-event", "Job Hook")];
        post(&format!("{url}/gitlab"), &headers, &body.to_string()).await
    };
    assert_eq!(deliver(id + 1000).await, 202);
    assert_eq!(deliver(id).await, 202);
    rig.wait("the second task", |tasks| tasks.len() == 2).await;
    producer.terminate();
    assert!(producer.end().await.0.success());
}

const RENAMED: &str = "octo/renamed";

/// A person renames the repository. Returns its id.
fn rename(rig: &Rig) -> u64 {
    let id = rig.forge.repo_id(DEMO);
    rig.forge.rename_repo(DEMO, RENAMED);
    id
}

/// A person asks for work in the renamed repository, and it begins at once.
async fn is_at_work(rig: &Rig, producer: Process) {
    let text = "It should greet.";
    rig.forge.add_issue(RENAMED, "Greet", text, &[REQUEST]);
    rig.wait("the task", |tasks| tasks.len() == 2).await;
    let labelled = |forge: &Forge| forge.labels(RENAMED, 2) == ["coding agent processing"];
    let waits = rig.forge.wait_until("its label", PATIENCE, labelled);
    waits.await;
    producer.terminate();
    let (status, log) = producer.end().await;
    assert!(status.success(), "{log}");
}

#[test]
fn empty_secrets_and_a_listener_without_any_are_refused() {
    let check = |github: &str, gitlab: &str| {
        let text = format!(
            "producer: {{webhooks: {{listen: '127.0.0.1:1'}}}}\ntrackers:\n  github: {{repositories: [a/b]{github}}}\n  gitlab: {{projects: [a/b]{gitlab}}}\n"
        );
        let loaded = config::load(&Sources::from_text("c.yaml", text));
        loaded
            .map(drop)
            .map_err(|errors| errors.to_string())
            .err()
            .unwrap_or_default()
    };
    assert_eq!(check(", webhook_secret: s", ""), "");
    assert!(check("", "").contains("producer.webhooks.listen"));
    for (github, gitlab, key) in [
        (
            ", webhook_secret: ' '",
            "",
            "trackers.github.webhook_secret",
        ),
        (
            "",
            ", webhook_secret_token: ''",
            "trackers.gitlab.webhook_secret_token",
        ),
        (
            "",
            ", webhook_signing_token: whsec_x",
            "trackers.gitlab.webhook_signing_token",
        ),
    ] {
        let faults = check(github, gitlab);
        assert!(
            faults.contains(key) && faults.contains("c.yaml:"),
            "{faults}"
        );
    }
}

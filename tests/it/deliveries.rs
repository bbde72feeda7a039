//! The deliveries of the fake forge itself: each change is one, in the shapes that GitHub publishes and GitLab documents, and
//! signed so that libraries of others verify them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use agentmine_tests::forge::{
    BOT, DEMO, Delivery, Forge, HUMAN, Hook, Order, Sending, Sent, write_demo,
};
use axum::http::{HeaderMap, StatusCode};
use serde_json::{Value, json};

use crate::forge_clients::node;
use crate::rig::REQUEST;

const SECRET: &str = "canary of a webhook's secret";
const TOKEN: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYo=";
const OTHER: &str = "octo/other";

/// One request as it arrived.
#[derive(Clone)]
struct Arrived {
    headers: HeaderMap,
    text: String,
}

impl Arrived {
    fn header(&self, name: &str) -> &str {
        self.headers[name].to_str().unwrap()
    }
}

/// Keeps what arrives, and answers with a status.
struct Receiver {
    url: String,
    arrived: Arc<Mutex<Vec<Arrived>>>,
}

impl Receiver {
    async fn start(status: StatusCode) -> Self {
        let arrived = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&arrived);
        let keep = move |headers: HeaderMap, text: String| {
            kept.lock().unwrap().push(Arrived { headers, text });
            std::future::ready(status)
        };
        let app = axum::Router::new().fallback(keep);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { url, arrived }
    }

    fn arrived(&self) -> Vec<Arrived> {
        self.arrived.lock().unwrap().clone()
    }

    /// How often each event arrived, after the libraries of others verified all signatures, and the bodies of GitHub.
    async fn verified(&self, forge: &str, secret: &str, event: &str) -> BTreeMap<String, u64> {
        let lines = self.arrived().into_iter().map(|it| {
            let headers = it.headers.iter();
            let headers: Vec<_> = headers
                .map(|(name, value)| (name.as_str(), value.to_str().unwrap()))
                .collect();
            json!({ "event": it.header(event), "headers": headers, "text": it.text }).to_string()
        });
        let lines: Vec<String> = lines.collect();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("deliveries");
        std::fs::write(&file, lines.join("\n")).unwrap();
        let args = [forge, secret, file.to_str().unwrap()];
        let counted = node("hooks.mjs", &args, "/dev/null".as_ref()).await;
        serde_json::from_str(&counted.unwrap()).unwrap()
    }
}

/// A person's client of one of the APIs.
struct Api<'f> {
    forge: &'f Forge,
    base: url::Url,
}

impl Api<'_> {
    /// The answer to a request, which succeeds.
    async fn send(&self, method: &str, path: &str, body: Value) -> Value {
        agentmine_runtime::tls::install_default_provider();
        let client = reqwest::Client::new();
        let url = self.base.join(path).unwrap();
        let request = client.request(method.parse().unwrap(), url);
        let answer = request.bearer_auth(self.forge.human_token()).json(&body);
        let answer = answer.send().await.unwrap();
        assert!(answer.status().is_success(), "{method} {path}: {answer:?}");
        serde_json::from_str(&answer.text().await.unwrap()).unwrap_or_default()
    }
}

fn counts(expected: &[(&str, u64)]) -> BTreeMap<String, u64> {
    let expected = expected.iter();
    expected.map(|(name, n)| ((*name).to_owned(), *n)).collect()
}

/// A forge with the sample repository and a receiver of what happens there.
async fn world(hook: impl Fn(&str) -> Hook) -> (Forge, Receiver) {
    let forge = Forge::start().await;
    forge.add_repo(DEMO, write_demo);
    forge.add_repo(OTHER, write_demo);
    let receiver = Receiver::start(StatusCode::OK).await;
    // What was there before is no news.
    forge.add_issue(DEMO, "Old", "", &[REQUEST]);
    forge.add_hook(hook(&receiver.url));
    (forge, receiver)
}

fn add_branch(forge: &Forge, branch: &str, from: &str) -> String {
    forge.commit(DEMO, branch, from, |dir| {
        std::fs::write(dir.join("more.txt"), format!("{branch} from {from}\n")).unwrap();
    });
    forge.branch_sha(DEMO, branch).unwrap()
}

/// An issue of GitHub, by people and by both of its APIs.
async fn talk_on_github(forge: &Forge) {
    let api = Api {
        forge,
        base: forge.api_url(),
    };
    let number = forge.add_issue(DEMO, "Greet", "Please.", &[REQUEST]);
    let issue = format!("repos/{DEMO}/issues/{number}");
    let id = api.send("GET", &issue, Value::Null).await["id"].clone();
    let comments = format!("{issue}/comments");
    let comment = api.send("POST", &comments, json!({ "body": "a" })).await["id"].clone();
    let comment = format!("repos/{DEMO}/issues/comments/{comment}");
    api.send("PATCH", &comment, json!({ "body": "b" })).await;
    api.send("DELETE", &comment, Value::Null).await;
    let query = "mutation CommentCreate($input:AddCommentInput!){addComment(input: $input){commentEdge{node{url}}}}";
    let variables = json!({ "input": { "subjectId": format!("I_{id}"), "body": "c" } });
    let asked = json!({ "query": query, "variables": variables });
    api.send("POST", "/api/graphql", asked).await;
    forge.edit_text_as(DEMO, number, "Now.", BOT);
    forge.edit_title_as(DEMO, number, "Greet us", HUMAN);
    forge.assign(DEMO, number, HUMAN);
    forge.unassign(DEMO, number, HUMAN);
    forge.lock(DEMO, number);
    forge.close(DEMO, number);
    api.send("PATCH", &issue, json!({ "state": "open" })).await;
    // A change of the same second, and one of nothing.
    forge.in_the_same_second(DEMO, number, || forge.remove_label(DEMO, number, REQUEST));
    forge.remove_label(DEMO, number, REQUEST);
    let moved = forge.add_issue(DEMO, "Move me", "", &[]);
    forge.add_comment(DEMO, moved, HUMAN, "It is in the wrong place.");
    forge.move_issue(DEMO, moved, OTHER);
    let deleted = forge.add_issue(DEMO, "Delete me", "", &[]);
    forge.delete_issue(DEMO, deleted);
}

/// The same of pull requests.
async fn review_on_github(forge: &Forge) {
    let api = Api {
        forge,
        base: forge.api_url(),
    };
    add_branch(forge, "feature", "main");
    let number = forge.add_pull(DEMO, "feature", "main", "Add more", &[]);
    forge.add_label(DEMO, number, REQUEST);
    forge.edit_title_as(DEMO, number, "Add some", HUMAN);
    let head = add_branch(forge, "feature", "feature");
    forge.add_comment(DEMO, number, HUMAN, "Nice.");
    forge.add_review(DEMO, number, "CHANGES_REQUESTED", "Please.");
    let line = forge.say_on_line(DEMO, number, HUMAN, "Rename it.");
    forge.reply_in_thread(DEMO, number, line, "To what?");
    forge.add_job(DEMO, &head, "test", "pending", "");
    forge.add_job(DEMO, &head, "test", "failure", "it failed");
    forge.add_status(DEMO, &head, "their/service", "success");
    forge.merge(DEMO, number);
    add_branch(forge, "other", "main");
    let draft = json!({ "title": "More", "head": "other", "base": "main", "draft": true });
    let pulls = format!("repos/{DEMO}/pulls");
    let id = api.send("POST", &pulls, draft).await["node_id"].clone();
    let query = "mutation($pull:ID!){markPullRequestReadyForReview(input:{pullRequestId:$pull}){pullRequest{id}}}";
    let asked = json!({ "query": query, "variables": { "pull": id } });
    api.send("POST", "/api/graphql", asked).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_change_on_github_is_one_delivery_that_its_own_schema_allows() {
    let (forge, receiver) = world(|url| Hook::github(url, SECRET)).await;
    talk_on_github(&forge).await;
    review_on_github(&forge).await;
    forge.deliveries_sent().await;
    let expected = counts(&[
        ("check_run$completed", 1),
        ("check_run$created", 1),
        ("issue_comment$created", 4),
        ("issue_comment$deleted", 1),
        ("issue_comment$edited", 1),
        ("issues$assigned", 1),
        ("issues$closed", 1),
        ("issues$deleted", 1),
        ("issues$edited", 2),
        ("issues$labeled", 1),
        ("issues$locked", 1),
        ("issues$opened", 4),
        ("issues$reopened", 1),
        ("issues$transferred", 1),
        ("issues$unassigned", 1),
        ("issues$unlabeled", 1),
        ("pull_request$closed", 1),
        ("pull_request$edited", 1),
        ("pull_request$labeled", 1),
        ("pull_request$opened", 2),
        ("pull_request$ready_for_review", 1),
        ("pull_request$synchronize", 1),
        ("pull_request_review$submitted", 1),
        ("pull_request_review_comment$created", 2),
        ("status$event", 1),
    ]);
    let counted = receiver.verified("github", SECRET, "x-github-event").await;
    assert_eq!(counted, expected);
    let arrived = receiver.arrived();
    let ids: std::collections::BTreeSet<&str> = arrived
        .iter()
        .map(|it| it.header("x-github-delivery"))
        .collect();
    assert_eq!(ids.len(), arrived.len(), "each has an id of its own");
    for it in &arrived {
        assert_eq!(it.header("content-type"), "application/json");
        assert!(it.header("user-agent").starts_with("GitHub-Hookshot/"));
        uuid::Uuid::parse_str(it.header("x-github-delivery")).unwrap();
    }
    // Who did it: the author of a comment, who edited, who sent a request.
    let senders = |event: &str, action: &str| -> Vec<String> {
        let all = forge.deliveries().into_iter();
        let all = all.filter(|it| it.event == event && it.body["action"] == action);
        all.map(|it| it.body["sender"]["login"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(senders("issues", "edited"), [BOT, HUMAN]);
    assert_eq!(senders("issues", "reopened"), [HUMAN]);
    let moved = forge.deliveries().into_iter();
    let mut moved = moved.filter(|it| it.body["action"] == "transferred");
    let moved = moved.next().unwrap().body;
    assert_eq!(moved["repository"]["full_name"], DEMO);
    assert_eq!(moved["changes"]["new_repository"]["full_name"], OTHER);
}

/// The same of GitLab, an issue.
async fn talk_on_gitlab(forge: &Forge) {
    let api = Api {
        forge,
        base: forge.gitlab_url(),
    };
    let number = forge.add_issue(DEMO, "Greet", "Please.", &[REQUEST]);
    let issue = format!("projects/{}/issues/{number}", forge.repo_id(DEMO));
    let change = json!({ "title": "Greet us", "add_labels": "bug,feature" });
    api.send("PUT", &issue, change).await;
    let notes = format!("{issue}/notes");
    let text = json!({ "body": "a\n/label ~help" });
    let note = api.send("POST", &notes, text).await["id"].clone();
    let note = format!("{notes}/{note}");
    api.send("PUT", &note, json!({ "body": "b" })).await;
    api.send("DELETE", &note, Value::Null).await;
    api.send("PUT", &issue, json!({ "state_event": "close" }))
        .await;
    api.send("PUT", &issue, json!({ "state_event": "reopen" }))
        .await;
    forge.make_confidential(DEMO, number);
    forge.add_comment(DEMO, number, HUMAN, "Only for us.");
}

/// A merge request.
fn review_on_gitlab(forge: &Forge) {
    add_branch(forge, "feature", "main");
    let number = forge.add_pull(DEMO, "feature", "main", "Add more", &[REQUEST]);
    let head = add_branch(forge, "feature", "feature");
    forge.add_review(DEMO, number, "CHANGES_REQUESTED", "Please.");
    // GitLab notes this one itself, and delivers nothing.
    forge.add_review(DEMO, number, "CHANGES_REQUESTED", "");
    forge.add_review(DEMO, number, "APPROVED", "");
    let line = forge.say_on_line(DEMO, number, HUMAN, "Rename it.");
    forge.reply_in_thread(DEMO, number, line, "To what?");
    forge.add_job(DEMO, &head, "test", "failure", "it failed");
    forge.add_status(DEMO, &head, "their/service", "success");
    let newest = add_branch(forge, "feature", "feature");
    forge.add_invalid_pipeline(DEMO, &newest, "jobs: unknown key");
    forge.merge(DEMO, number);
}

/// The fields that GitLab's documentation shows in each body (doc/user/project/integrations/webhook_events.md), and among
/// them those of `object_attributes`.
const DOCUMENTED: [(&str, &[&str], &[&str]); 5] = [
    (
        "issue",
        &[
            "event_type",
            "user",
            "project",
            "object_attributes",
            "repository",
            "labels",
            "changes",
        ],
        &[
            "id",
            "iid",
            "title",
            "assignee_ids",
            "author_id",
            "project_id",
            "created_at",
            "updated_at",
            "description",
            "state_id",
            "confidential",
            "discussion_locked",
            "moved_to_id",
            "type",
            "url",
            "state",
            "action",
            "labels",
        ],
    ),
    (
        "note",
        &[
            "event_type",
            "user",
            "project_id",
            "project",
            "repository",
            "object_attributes",
        ],
        &[
            "id",
            "note",
            "noteable_type",
            "noteable_id",
            "author_id",
            "created_at",
            "updated_at",
            "project_id",
            "system",
            "action",
            "url",
        ],
    ),
    (
        "merge_request",
        &[
            "event_type",
            "user",
            "project",
            "repository",
            "object_attributes",
            "labels",
            "changes",
        ],
        &[
            "id",
            "iid",
            "target_branch",
            "source_branch",
            "source_project_id",
            "target_project_id",
            "author_id",
            "title",
            "state",
            "draft",
            "merge_status",
            "detailed_merge_status",
            "source",
            "target",
            "last_commit",
            "labels",
            "url",
            "action",
        ],
    ),
    (
        "pipeline",
        &[
            "object_attributes",
            "merge_request",
            "user",
            "project",
            "commit",
            "builds",
        ],
        &[
            "id",
            "iid",
            "name",
            "ref",
            "tag",
            "sha",
            "before_sha",
            "source",
            "status",
            "stages",
            "created_at",
            "finished_at",
            "duration",
            "variables",
            "url",
        ],
    ),
    (
        "build",
        &[
            "ref",
            "tag",
            "before_sha",
            "sha",
            "build_id",
            "build_name",
            "build_stage",
            "build_status",
            "build_failure_reason",
            "build_allow_failure",
            "retries_count",
            "pipeline_id",
            "project_id",
            "project_name",
            "user",
            "commit",
            "repository",
            "project",
            "runner",
            "environment",
        ],
        &[],
    ),
];

fn is_as_documented(body: &Value, id: u64) {
    let kind = body["object_kind"].as_str().unwrap();
    let found = DOCUMENTED.iter().find(|(name, ..)| *name == kind);
    let (_, fields, attributes) = found.unwrap();
    for field in *fields {
        assert!(body.get(field).is_some(), "{kind} without {field}: {body}");
    }
    for field in *attributes {
        let shown = body["object_attributes"].get(field);
        assert!(shown.is_some(), "{kind} without {field}: {body}");
    }
    assert_eq!(body["project"]["id"], id, "{body}");
    assert_eq!(body["project"]["path_with_namespace"], DEMO, "{body}");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_change_on_gitlab_is_one_delivery_with_the_documented_fields() {
    let (forge, receiver) = world(|url| Hook::gitlab_signed(url, TOKEN)).await;
    talk_on_gitlab(&forge).await;
    review_on_gitlab(&forge);
    forge.deliveries_sent().await;
    let expected = counts(&[
        ("Confidential Issue Hook", 1),
        ("Confidential Note Hook", 1),
        // Opened, edited with labels, labelled by a quick action, closed, reopened.
        ("Issue Hook", 5),
        ("Job Hook", 1),
        // Opened, two pushes, approved, merged.
        ("Merge Request Hook", 5),
        // Written and edited on the issue; a review, a line and a reply.
        ("Note Hook", 5),
        ("Pipeline Hook", 3),
    ]);
    let counted = receiver.verified("gitlab", TOKEN, "x-gitlab-event").await;
    assert_eq!(counted, expected);
    let id = forge.repo_id(DEMO);
    for delivery in forge.deliveries() {
        is_as_documented(&delivery.body, id);
    }
    for it in receiver.arrived() {
        assert_eq!(it.header("idempotency-key"), it.header("webhook-id"));
        assert!(!it.header("x-gitlab-instance").is_empty());
        assert!(!it.headers.contains_key("x-gitlab-token"));
        for name in ["x-gitlab-event-uuid", "x-gitlab-webhook-uuid", "webhook-id"] {
            uuid::Uuid::parse_str(it.header(name)).unwrap();
        }
    }
    let updates = forge.deliveries().into_iter();
    let mut updates = updates.filter(|it| it.body["object_attributes"]["action"] == "update");
    let changes = updates.next().unwrap().body["changes"].clone();
    assert_eq!(changes["title"]["previous"], "Greet");
    assert_eq!(
        changes["labels"]["current"].as_array().map(Vec::len),
        Some(3)
    );
}

/// What became of all attempts.
fn attempts(forge: &Forge) -> Vec<Vec<Sent>> {
    let all = forge.deliveries().into_iter();
    all.map(|delivery| delivery.attempts).collect()
}

#[tokio::test]
async fn failed_deliveries_are_kept_and_gitlab_disables_their_hook() {
    let refused = Receiver::start(StatusCode::INTERNAL_SERVER_ERROR).await;
    let failed = || vec![Sent::Answered(500)];
    for (hook, last) in [
        (Hook::github(&refused.url, SECRET), failed()),
        (Hook::gitlab(&refused.url, SECRET), vec![Sent::Disabled]),
    ] {
        let forge = Forge::start().await;
        forge.add_repo(DEMO, write_demo);
        forge.add_hook(hook);
        for _ in 0..5 {
            forge.add_issue(DEMO, "Greet", "", &[]);
            forge.deliveries_sent().await;
        }
        let mut expected = vec![failed(); 4];
        expected.push(last);
        assert_eq!(attempts(&forge), expected);
        assert!(!forge.deliveries().iter().any(Delivery::arrived));
    }
    assert_eq!(refused.arrived().len(), 9);
    assert_eq!(refused.arrived()[8].header("x-gitlab-token"), SECRET);
}

#[tokio::test]
async fn deliveries_come_twice_late_and_out_of_order_when_a_test_says_so() {
    let (forge, receiver) = world(|url| Hook::github(url, SECRET)).await;
    forge.send_deliveries(Sending::Held);
    let numbers = ["First", "Second"].map(|title| forge.add_issue(DEMO, title, "", &[]));
    assert_eq!(attempts(&forge), [vec![], vec![]]);
    forge.release_deliveries(Order::Reversed);
    forge.deliveries_sent().await;
    let seen = || -> Vec<u64> {
        let all = receiver.arrived().into_iter();
        let body = |it: Arrived| serde_json::from_str::<Value>(&it.text).unwrap();
        all.map(|it| body(it)["issue"]["number"].as_u64().unwrap())
            .collect()
    };
    assert_eq!(seen(), [numbers[1], numbers[0]]);
    forge.send_deliveries(Sending::Twice);
    forge.close(DEMO, numbers[0]);
    let half = std::time::Duration::from_millis(500);
    forge.send_deliveries(Sending::Late(half));
    let begun = std::time::Instant::now();
    forge.close(DEMO, numbers[1]);
    forge.deliveries_sent().await;
    assert!(begun.elapsed() >= half, "{:?}", begun.elapsed());
    assert_eq!(seen()[2..], [numbers[0], numbers[0], numbers[1]]);
    let arrived = receiver.arrived();
    let id = |at: usize| arrived[at].header("x-github-delivery");
    assert_eq!(id(2), id(3), "a repetition has the same id");
}

//! `task why` of an item that has no task, and what a task would be worked on with.

use agentmine_tests::forge::{DEMO, DEMO_BODY, Fault};
use serde_json::{Value, json};

use crate::rig::{REQUEST, Rig, codes, solves_demo};

/// A repository that the token sees, and no scan reads.
const OTHER: &str = "octo/other";

fn name(repo: &str, number: u64) -> String {
    format!("{repo}#{number}")
}

#[track_caller]
fn says(why: &Value, words: &str) {
    let reasons = why["reasons"].to_string();
    assert!(reasons.contains(words), "{words}: {why:#}");
}

/// Everything that keeps an item from being taken, on one forge.
async fn each_reason(rig: Rig) {
    let forge = &rig.forge;
    forge.add_repo(OTHER, agentmine_tests::forge::write_demo);
    forge.set_permission(DEMO, "trixie", "triage");
    let issue = |labels: &[&str]| forge.add_issue(DEMO, "greet", DEMO_BODY, labels);
    let (plain, done, asked) = (issue(&[]), issue(&["coding agent done"]), issue(&[REQUEST]));
    let by_trixie = issue(&[]);
    forge.add_label_as(DEMO, by_trixie, REQUEST, "trixie");
    let closed = issue(&[REQUEST]);
    forge.close(DEMO, closed);
    let foreign = forge.add_issue(OTHER, "greet", DEMO_BODY, &[REQUEST]);

    let why = rig.why(&name(DEMO, plain), 0);
    assert_eq!(codes(&why), ["no_label"]);
    assert_eq!(
        (&why["status"], &why["id"]),
        (&json!("no_task"), &Value::Null)
    );
    says(&why, "`coding agent`, which requests work");
    let why = rig.why(&name(DEMO, done), 0);
    assert_eq!(codes(&why), ["no_label"]);
    says(&why, "It carries `coding agent done`");
    assert_eq!(codes(&rig.why(&name(DEMO, asked), 0)), ["next_scan"]);
    let why = rig.why(&name(DEMO, by_trixie), 0);
    assert_eq!(codes(&why), ["not_allowed"]);
    says(&why, "trixie added the label and may not start work");
    assert_eq!(codes(&rig.why(&name(DEMO, closed), 0)), ["closed"]);
    let why = rig.why(&name(OTHER, foreign), 0);
    assert_eq!(codes(&why), ["not_scanned"]);
    says(&why, "octo/other is not a repository");

    // By its address, as it is copied from a browser.
    let list = match rig.config["trackers"].get("gitlab") {
        Some(_) => "-/issues",
        None => "issues",
    };
    let address = format!("{}{DEMO}/{list}/{plain}?focus=1#top", forge.html_url());
    assert_eq!(codes(&rig.why(&address, 0)), ["no_label"]);
    let elsewhere = rig.why("https://elsewhere.example/octo/demo/issues/1", 0);
    assert_eq!(codes(&elsewhere), ["no_tracker"]);
    assert_eq!(elsewhere["environment"], Value::Null);
    for missing in [name(DEMO, 999), "octo/nothing#1".to_owned()] {
        let error = rig.why(&missing, 5).to_string();
        assert!(error.contains("was not found on git"), "{error}");
    }
    forge.inject(Fault::on("*", "/").status(503).times(50));
    let why = rig.why(&name(DEMO, plain), 0);
    assert_eq!(codes(&why), ["tracker_unavailable"]);
    forge.heal();

    // Taken, worked on, and over: the label that asked for it is answered.
    rig.produce().await;
    let task = rig
        .tasks()
        .await
        .into_iter()
        .find(|it| it.item.number == asked);
    let task = task.unwrap();
    let why = rig.why(&name(DEMO, asked), 0);
    assert_eq!(codes(&why), ["no_free_worker", "requested"]);
    assert_eq!(why["id"], task.number.0);
    rig.agentmine(&["task", "cancel", &task.number.to_string()], 0);
    let why = rig.why(&name(DEMO, asked), 0);
    assert_eq!(codes(&why)[1..], ["cancelled"]);
    assert!(["answered", "no_label"].contains(&codes(&why)[0]), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn why_says_what_keeps_an_item_from_being_taken_on_github() {
    each_reason(Rig::new(solves_demo()).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn why_says_what_keeps_an_item_from_being_taken_on_gitlab() {
    each_reason(Rig::on_gitlab(solves_demo()).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn why_says_what_a_task_would_be_worked_on_with() {
    let mut rig = Rig::new(solves_demo()).await;
    let docker = &mut rig.config["command_executor"]["docker"];
    docker["allowed_images"] = json!(["registry.example/ok/*"]);
    docker["network"] = json!({ "whitelist_mode": true, "allowed_domains": ["preset:npm"] });
    rig.config["model"]["input_price"] = 3.into();
    rig.config["model"]["output_price"] = 15.into();
    rig.config["agent"] = json!({ "folder": rig.folder.path(), "max_cost_usd": 2.5 });
    let operators = "description: Fixes\nmodel: dear\nlimits: {max_steps: 40}\n";
    std::fs::write(rig.folder.path().join("fix.yaml"), operators).unwrap();
    rig.forge.commit(DEMO, "main", "main", |dir| {
        let folder = dir.join(".agentmine/agents");
        std::fs::create_dir_all(&folder).unwrap();
        let own = "description: Ours\nmodel: dearer\nlimits: {max_steps: 7, max_rounds: 9}\n\
                   environment: {image: registry.example/ok/rust}\n\
                   definition_of_done: [{name: lint, command: make lint}]\n";
        std::fs::write(folder.join("fix.yaml"), own).unwrap();
    });
    rig.produce_issue().await;
    let task = rig.task().await.number.to_string();
    rig.agentmine(&["task", "update", &task, "--agent", "fix"], 0);
    let environment = &rig.why(&task, 0)["environment"];
    for (field, expected) in [
        ("agent", json!("fix")),
        ("model", json!("dear")),
        ("sandbox", json!("docker")),
        ("image", json!("registry.example/ok/rust")),
        ("network", json!("listed")),
        ("allowedDomains", json!(["preset:npm"])),
        ("checks", json!(["lint"])),
    ] {
        assert_eq!(environment[field], expected, "{field}: {environment:#}");
    }
    let limits = &environment["limits"];
    assert_eq!(limits["memory"], 512 << 20, "{limits}");
    assert_eq!(limits["maxSteps"], 7, "{limits}");
    assert_eq!(limits["maxRounds"], 3, "{limits}");
    assert_eq!(limits["maxCostUsd"], 2.5, "{limits}");
    let notes = environment["notes"].to_string();
    assert!(notes.contains("dearer"), "{notes}");

    // For people.
    let (shown, _) = rig.agentmine(&["task", "why", &task], 0);
    for line in [
        "it would be worked on with",
        "  agent    fix, model dear",
        "  sandbox  a Docker container of registry.example/ok/rust",
        "  network  its repository, and preset:npm",
        "  checks   lint, beside the project's own",
    ] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    // What cannot be read is omitted, and said.
    rig.forge.inject(Fault::on("*", "/").status(503).times(50));
    let environment = &rig.why(&task, 0)["environment"];
    assert_eq!(
        environment["image"],
        rig.config["command_executor"]["docker"]["base_image"]
    );
    let notes = environment["notes"].to_string();
    assert!(notes.contains("repository's files are ignored"), "{notes}");
}

//! The dashboard issue of a repository, on both forges: opened once, rewritten when something changed.

use agentmine_domain::TaskState;
use agentmine_tests::forge::{BOT, DEMO, Forge, HUMAN, IssueView};

use crate::rig::{PATIENCE, REQUEST, Rig, codes, solves_demo};

/// The story on GitHub.
async fn github() -> Rig {
    let mut rig = Rig::local(solves_demo()).await;
    rig.config["trackers"]["github"]["dashboard_issue"] = true.into();
    rig
}

/// The same on GitLab.
async fn gitlab() -> Rig {
    let mut rig = Rig::on_gitlab(solves_demo()).await;
    rig.config["command_executor"]["backend"] = "local".into();
    rig.config["trackers"]["gitlab"]["dashboard_issue"] = true.into();
    rig
}

/// The bot's issues.
fn dashboards(forge: &Forge) -> Vec<IssueView> {
    forge.issues_of(DEMO, BOT)
}

/// The only one.
#[track_caller]
fn dashboard(rig: &Rig) -> IssueView {
    let all = dashboards(&rig.forge);
    let [one] = all.as_slice() else {
        panic!("{all:#?}");
    };
    assert_eq!(one.title, "AgentMine dashboard");
    one.clone()
}

/// The requests that wrote the text of an issue.
fn edits(rig: &Rig, number: u64) -> usize {
    let end = format!("/issues/{number}");
    let of_text =
        |body: &serde_json::Value| body["body"].is_string() || body["description"].is_string();
    let writes = rig.forge.writes().into_iter();
    let edits = writes.filter(|it| it.path.ends_with(&end) && of_text(&it.body));
    edits.count()
}

/// The half minute between two texts is over, and so is the time of a killed holder.
async fn let_it_be_written(rig: &Rig) {
    let sql = "UPDATE dashboards SET written_at = written_at - interval '31 s', held_until = now() - interval '1 s'";
    sqlx::query(sql).execute(&rig.sql().await).await.unwrap();
}

/// A task at work, one that waits for its turn, and a request of somebody who may not start work.
async fn shows(mut rig: Rig) {
    rig.config["capacity"]["running_tasks"] = 1.into();
    rig.forge.set_permission(DEMO, "remy", "read");
    let first = rig.label_issue();
    let title = "/close `this` @octo <!-- agentmine:dashboard 9 --> #1";
    let second = rig.forge.add_issue(DEMO, title, "It should.", &[REQUEST]);
    let third = rig.forge.add_issue(DEMO, "Also this", "It should.", &[]);
    rig.forge.add_label_as(DEMO, third, REQUEST, "remy");
    rig.model.hold_at(2);
    let producer = rig.spawn("producer", &[]);
    let consumer = rig.spawn("consumer", &[]);
    rig.model.wait_for_held(1).await;
    producer.terminate();
    let (status, log) = producer.end().await;
    assert!(status.success(), "{log}");
    let_it_be_written(&rig).await;
    rig.produce().await;

    let shown = dashboard(&rig);
    let part = |from: &str, to: &str| {
        let (_, rest) = shown
            .body
            .split_once(from)
            .unwrap_or_else(|| panic!("{from}: {}", shown.body));
        rest.split(to).next().unwrap_or_default().to_owned()
    };
    let working = part("### At work (1)", "###");
    assert!(
        working.contains(&format!("[#{first}](")) && working.contains("`working`"),
        "{working}"
    );
    let waiting = part("### Waiting (1)", "###");
    assert!(waiting.contains(&format!("[#{second}](")), "{waiting}");
    assert!(
        waiting.contains("`capacity`: It waits for its turn: "),
        "{waiting}"
    );
    let held = part("### Held requests (1)", "\0");
    assert!(held.contains(&format!("[#{third}](")), "{held}");
    assert!(
        held.contains("`not_allowed`: remy added the label and may not start work"),
        "{held}"
    );
    // As `task why` says it.
    let why = rig.why("2", 0);
    assert_eq!(codes(&why)[0], "capacity");
    let sentence = why["reasons"][0]["message"].as_str().unwrap();
    assert!(waiting.contains(sentence), "{sentence}\n{waiting}");
    // The text of a title has no effect.
    assert_eq!(
        shown.body.matches("<!-- agentmine:dashboard ").count(),
        2,
        "one is in a code span: {}",
        shown.body
    );
    assert!(waiting.contains("`/close 'this' @octo"), "{waiting}");
    assert_eq!(rig.forge.quick_actions(), Vec::<String>::new());

    // It is not written without a change.
    let written = edits(&rig, shown.number);
    let_it_be_written(&rig).await;
    rig.produce().await;
    assert_eq!(edits(&rig, shown.number), written);

    // A change is written, but not within the half minute.
    rig.model.release();
    let tasks = rig
        .wait("the first end", |t| {
            t.iter().any(|it| matches!(it.state, TaskState::Ended(_)))
        })
        .await;
    let ended = tasks
        .iter()
        .find(|it| matches!(it.state, TaskState::Ended(_)))
        .unwrap();
    crate::rig::assert_done(ended);
    consumer.terminate();
    consumer.end().await;
    sqlx::query("UPDATE dashboards SET written_at = now()")
        .execute(&rig.sql().await)
        .await
        .unwrap();
    rig.produce().await;
    assert_eq!(edits(&rig, shown.number), written);
    let_it_be_written(&rig).await;
    rig.produce().await;
    assert_eq!(edits(&rig, shown.number), written + 1);
    let now = dashboard(&rig);
    assert!(
        !now.body.contains(&format!("[#{first}](")),
        "it is done: {}",
        now.body
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_dashboard_shows_what_works_what_waits_and_why_on_github() {
    shows(github().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_dashboard_shows_what_works_what_waits_and_why_on_gitlab() {
    shows(gitlab().await).await;
}

/// The producer dies around everything that it does for the dashboard.
async fn survives_kills(rig: Rig) {
    rig.label_issue();
    for point in [
        "store.claim_dashboard.before",
        "store.claim_dashboard.after",
        "store.begin_dashboard_text.before",
        "store.begin_dashboard_text.after",
        "tracker.issue_create.before",
        "tracker.issue_create.after",
        "store.found_dashboard.before",
        "store.found_dashboard.after",
    ] {
        rig.killed_at("producer", &[point]).await;
        let_it_be_written(&rig).await;
    }
    rig.produce().await;
    let shown = dashboard(&rig);
    assert!(shown.body.contains("### Waiting (1)"), "{}", shown.body);
    for point in [
        "tracker.issue_edit.before",
        "tracker.issue_edit.after",
        "store.dashboard_shows.before",
        "store.dashboard_shows.after",
        "store.release_dashboard.before",
        "store.release_dashboard.after",
    ] {
        rig.label_issue();
        let_it_be_written(&rig).await;
        rig.killed_at("producer", &[point]).await;
    }
    let_it_be_written(&rig).await;
    rig.produce().await;
    let shown = dashboard(&rig);
    assert!(shown.body.contains("### Waiting (7)"), "{}", shown.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_producer_killed_around_the_dashboard_opens_one_on_github() {
    survives_kills(github().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_producer_killed_around_the_dashboard_opens_one_on_gitlab() {
    survives_kills(gitlab().await).await;
}

/// Two producers open one, and a person who closes it is done with it. It is never a task.
async fn is_one_and_may_be_closed(rig: Rig) {
    rig.label_issue();
    let producers = [rig.spawn("producer", &[]), rig.spawn("producer", &[])];
    rig.forge
        .wait_until("there is a dashboard", PATIENCE, |forge| {
            !dashboards(forge).is_empty()
        })
        .await;
    let shown = dashboard(&rig);
    rig.forge.add_label(DEMO, shown.number, REQUEST);
    let next = rig.label_issue();
    rig.wait("the next task", |tasks| {
        tasks.iter().any(|it| it.item.number == next)
    })
    .await;
    for producer in producers {
        producer.terminate();
        let (status, log) = producer.end().await;
        assert!(status.success(), "{log}");
    }
    assert_eq!(edits(&rig, shown.number), 0, "within half a minute");
    rig.produce().await;
    let numbers: Vec<u64> = rig.tasks().await.iter().map(|it| it.item.number).collect();
    assert!(!numbers.contains(&shown.number), "{numbers:?}");
    let why = rig.why(&format!("{DEMO}#{}", shown.number), 0);
    assert_eq!(codes(&why)[0], "refused", "{why}");

    rig.forge.close(DEMO, shown.number);
    let_it_be_written(&rig).await;
    rig.produce().await;
    assert_eq!(edits(&rig, shown.number), 0);
    assert_eq!(dashboard(&rig).body, shown.body);
    // Nor if the record is lost.
    let forget = "DELETE FROM dashboards";
    sqlx::query(forget).execute(&rig.sql().await).await.unwrap();
    rig.produce().await;
    rig.produce().await;
    assert_eq!(
        dashboard(&rig),
        IssueView {
            open: false,
            ..shown
        }
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn two_producers_keep_one_dashboard_and_a_closed_one_stays_closed_on_github() {
    is_one_and_may_be_closed(github().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_producers_keep_one_dashboard_and_a_closed_one_stays_closed_on_gitlab() {
    is_one_and_may_be_closed(gitlab().await).await;
}

/// What somebody who may not start work writes into an issue of their own is not taken for the dashboard.
#[tokio::test(flavor = "multi_thread")]
async fn an_issue_of_somebody_else_with_the_marker_is_not_the_dashboard() {
    let rig = github().await;
    let text = "<!-- agentmine:dashboard 1 -->\nmine";
    let foreign = rig.forge.add_issue(DEMO, "AgentMine dashboard", text, &[]);
    rig.label_issue();
    rig.produce().await;
    assert_ne!(dashboard(&rig).number, foreign);
    let own = rig.forge.issues_of(DEMO, HUMAN);
    assert_eq!(own[0].body, text);
}

/// An issue that became confidential is counted, and not named.
#[tokio::test(flavor = "multi_thread")]
async fn a_confidential_issue_is_not_named_on_the_dashboard() {
    let rig = gitlab().await;
    let number = rig
        .forge
        .add_issue(DEMO, "a secret title", "It should.", &[REQUEST]);
    rig.produce().await;
    let shown = dashboard(&rig);
    assert!(shown.body.contains("a secret title"), "{}", shown.body);
    rig.forge.make_confidential(DEMO, number);
    let_it_be_written(&rig).await;
    rig.produce().await;
    let body = dashboard(&rig).body;
    assert!(!body.contains("a secret title"), "{body}");
    assert!(
        body.contains("1 task on a confidential issue is not shown."),
        "{body}"
    );
}

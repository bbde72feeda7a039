//! The database is restored to an earlier time while producer and consumer continue running.

use std::collections::BTreeSet;
use std::process::Command;

use agentmine_domain::{EndState, Phase, Task, TaskState};
use agentmine_tests::forge::DEMO;
use agentmine_tests::model::{Scenario, Script, commit_and_push, edit_create, say, shell};
use serde_json::Value;

use crate::database::with_database;
use crate::rig::{REQUEST, Rig, assert_done, postgres_url};

fn tool(program: &str, args: &[&str]) {
    let done = Command::new(program).args(args).output();
    let done = done.unwrap_or_else(|error| panic!("{program}: {error}; run tests/run"));
    let shown = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{program} {args:?}: {shown}");
}

fn sql(statement: &str) {
    let server = postgres_url();
    tool(
        "psql",
        &[&server, "-q", "-v", "ON_ERROR_STOP=1", "-c", statement],
    );
}

fn adds(title: &str, file: &str) -> Scenario {
    Scenario::new(title).when(title).replies([
        shell("ls"),
        edit_create(&format!("/workspace/project/{file}"), "new\n"),
        commit_and_push("Add a file"),
        say("The file is there."),
    ])
}

/// The issues, each with the file that its task adds.
const TITLES: [(&str, &str); 4] = [
    ("Known alpha", "alpha.txt"),
    ("Later beta", "beta.txt"),
    ("Lost gamma", "gamma.txt"),
    ("Long delta", "delta.txt"),
];

fn script() -> Script {
    let titles = TITLES.iter();
    titles.fold(Script::new(), |script, (title, file)| {
        script.scenario(adds(title, file))
    })
}

fn at_work(title: &str) -> impl Fn(&[Task]) -> bool {
    let running = TaskState::Leased(Phase::Running);
    move |tasks| {
        let mut tasks = tasks.iter();
        tasks.any(|task| task.title == title && task.state == running)
    }
}

fn over(title: &str) -> impl Fn(&[Task]) -> bool {
    move |tasks| {
        let mut tasks = tasks.iter();
        tasks.any(|task| task.title == title && matches!(task.state, TaskState::Ended(_)))
    }
}

/// Puts the dump in the place of the rig's database, under the connections of its clients.
fn put_back(url: &str, dump: &str) -> String {
    let name = url.rsplit_once('/').unwrap().1.to_owned();
    let (restored, lost) = (format!("{name}r"), format!("{name}l"));
    sql(&format!("CREATE DATABASE {restored}"));
    let into = with_database(&postgres_url(), &restored);
    tool("pg_restore", &["--dbname", &into, dump]);
    sql(&format!("ALTER DATABASE {name} ALLOW_CONNECTIONS false"));
    sql(&format!(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
    ));
    sql(&format!("ALTER DATABASE {name} RENAME TO {lost}"));
    sql(&format!("ALTER DATABASE {restored} RENAME TO {name}"));
    lost
}

/// `agentmine store restored`, with what it prints as JSON.
fn store_restored(rig: &Rig) -> Value {
    let (out, _) = rig.agentmine(&["store", "restored", "--yes", "--json"], 0);
    serde_json::from_str(&out).unwrap()
}

/// At the restored time, alpha and delta are at work. Alpha ends after it, delta is still at work when the database is restored.
/// Beta begins and ends in between. Gamma begins after the restored time, and is at work at the restore: its worker holds a
/// lease of a task that the restored database does not know.
async fn nothing_is_doubled_or_stale(mut rig: Rig, restored: Restored) {
    rig.config["consumer"]["concurrency"] = 4.into();
    if restored == Restored::BeforeAnyLeaseIsOver {
        rig.config["consumer"]["lease_seconds"] = 120.into();
    }
    let issue = |title: &str| rig.forge.add_issue(DEMO, title, "Do it.", &[REQUEST]);
    rig.model.hold_when("Known alpha", 1);
    rig.model.hold_when("Long delta", 1);
    let (alpha, delta) = (issue("Known alpha"), issue("Long delta"));
    let producer = rig.spawn("producer", &[]);
    let consumer = rig.spawn("consumer", &[]);
    rig.wait("alpha to be at work", at_work("Known alpha"))
        .await;
    rig.wait("delta to be at work", at_work("Long delta")).await;

    let folder = tempfile::tempdir().unwrap();
    let dump = folder.path().join("dump").display().to_string();
    let url = rig.config["store"]["url"].as_str().unwrap().to_owned();
    tool("pg_dump", &["--format=custom", "--file", &dump, &url]);

    rig.model.release();
    rig.model.hold_when("Long delta", 2);
    rig.model.hold_when("Lost gamma", 2);
    rig.wait("alpha to end", over("Known alpha")).await;
    let beta = issue("Later beta");
    rig.wait("beta to end", over("Later beta")).await;
    let gamma = issue("Lost gamma");
    rig.model.hold_when("Known alpha", 1);
    rig.wait("gamma to be at work", at_work("Lost gamma")).await;
    let is_done = |number| rig.forge.labels(DEMO, number) == ["coding agent done"];
    rig.wait("their ends to be reported", |_| {
        is_done(alpha) && is_done(beta)
    })
    .await;
    let comments = |number| rig.forge.comments(DEMO, number).len();
    let before = [alpha, beta].map(comments);
    let unknown = rig.wait("gamma", at_work("Lost gamma")).await;
    let unknown = unknown.into_iter().find(|it| it.title == "Lost gamma");
    let unknown = unknown.unwrap().branch();

    let lost = put_back(&url, &dump);
    if restored == Restored::AfterTheLeasesWereTaken {
        // A worker has alpha again, under an epoch that a worker of the lost time may have held as well. Delta's own worker
        // may be in time to renew its lease.
        let again = |task: &Task| task.title == "Known alpha" && task.epoch.0 > 1;
        rig.wait("alpha to be taken over", |tasks| {
            at_work("Known alpha")(tasks) && tasks.iter().any(again)
        })
        .await;
    }
    let answer = store_restored(&rig);
    assert_eq!(answer["lifted"], 2, "{answer}");
    let taken = answer["taken"].as_array().unwrap().len();
    match restored {
        Restored::BeforeAnyLeaseIsOver => assert_eq!(taken, 2, "{answer}"),
        Restored::AfterTheLeasesWereTaken => assert!(taken >= 1, "{answer}"),
    }
    // The replies that the workers of gamma and delta wait for arrive now, so that they would continue.
    rig.model.release();

    let tasks = rig
        .wait("alpha and delta to end", |tasks| {
            over("Known alpha")(tasks) && over("Long delta")(tasks)
        })
        .await;
    assert_eq!(tasks.len(), 2, "{tasks:#?}");
    for task in &tasks {
        assert_done(task);
        assert!(task.epoch.0 > 1_000_000, "{task:#?}");
    }
    rig.wait("their ends to be reported", |_| {
        is_done(alpha) && is_done(delta)
    })
    .await;
    // Nothing of gamma's worker arrived. Whether another fleet works on the item nobody can know, so it is left for a day, or
    // until a person requests it again.
    assert!(!rig.forge.branches(DEMO).contains(&unknown), "a stale push");
    assert_eq!(rig.forge.pulls(DEMO).len(), 3);
    rig.forge.add_label(DEMO, gamma, REQUEST);
    rig.wait("gamma to be done again", over("Lost gamma")).await;
    rig.wait("its end to be reported", |_| is_done(gamma)).await;

    let pulls = rig.forge.pulls(DEMO);
    let files: BTreeSet<&str> = TITLES.iter().map(|(_, file)| *file).collect();
    let added = |file: &&str| {
        let holding = pulls.iter();
        holding
            .filter(|pull| rig.forge.file_at(DEMO, &pull.head, file).is_some())
            .count()
    };
    assert_eq!(pulls.len(), 4, "{pulls:#?}");
    assert!(files.iter().all(|file| added(file) == 1), "{pulls:#?}");
    assert!(!rig.forge.branches(DEMO).contains(&unknown), "a stale push");
    assert_eq!([alpha, beta].map(comments), before, "a comment is doubled");
    let tasks = rig.tasks().await;
    assert_eq!(tasks.len(), 3, "beta is not made again: {tasks:#?}");
    let done = TaskState::Ended(EndState::Done);
    assert!(tasks.iter().all(|it| it.state == done), "{tasks:#?}");
    for process in [producer, consumer] {
        process.terminate();
        let (status, log) = process.end().await;
        assert!(status.success(), "{log}");
    }
    sql(&format!("DROP DATABASE {lost} WITH (FORCE)"));
}

/// When `store restored` is called.
#[derive(PartialEq)]
enum Restored {
    BeforeAnyLeaseIsOver,
    AfterTheLeasesWereTaken,
}

#[tokio::test]
async fn after_a_restore_under_running_workers_nothing_is_doubled_and_nothing_stale_is_written() {
    let rig = Rig::local(script()).await;
    nothing_is_doubled_or_stale(rig, Restored::BeforeAnyLeaseIsOver).await;
}

/// On GitLab alone: each of the two takes long.
#[tokio::test]
async fn after_a_restore_whose_leases_were_taken_over_first_nothing_is_doubled_either() {
    let rig = Rig::local_gitlab(script()).await;
    nothing_is_doubled_or_stale(rig, Restored::AfterTheLeasesWereTaken).await;
}

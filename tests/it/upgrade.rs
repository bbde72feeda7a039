//! Programs of two versions at once, as during a deploy. The statements of the previous version are tested in
//! `agentmine-store` (`contract/upgrade.rs`), with every run; here its programs are.

use std::path::PathBuf;

use agentmine_domain::{EndState, Task, TaskState};
use agentmine_tests::forge::DEMO;
use tokio::process::Command;

use crate::rig::{Process, Rig, solves_demo};

/// A program of the previous version.
fn previous(rig: &Rig, program: &str, args: &[&str]) -> Process {
    let folder = std::env::var_os("AGENTMINE_TEST_PREVIOUS")
        .expect("AGENTMINE_TEST_PREVIOUS names the folder of the previous version's programs");
    // A key that a version does not know is a fault. These came later, and stand for their defaults.
    let mut config = rig.config.clone();
    config.as_object_mut().unwrap().remove("capacity");
    let file = rig.folder.path().join("previous.yaml");
    std::fs::write(&file, config.to_string()).unwrap();
    Process::spawn(
        Command::new(PathBuf::from(folder).join(program))
            .arg("--config")
            .arg(&file)
            .args(args)
            .env("GITHUB_PERSONAL_ACCESS_TOKEN", rig.forge.token()),
    )
}

fn at_work(tasks: &[Task]) -> Vec<&Task> {
    let at_work = tasks.iter();
    at_work
        .filter(|task| matches!(task.state, TaskState::Leased(_)))
        .collect()
}

#[tokio::test]
#[ignore = "needs the programs of the previous version: see tests/README.md"]
async fn a_fleet_of_two_versions_loses_and_doubles_nothing() {
    const TASKS: usize = 16;
    let rig = Rig::local(solves_demo()).await;
    for n in 0..TASKS {
        let title = format!("greet.sh greets nobody ({n})");
        let request = ["coding agent"];
        rig.forge
            .add_issue(DEMO, &title, "It should greet.", &request);
    }
    // The schema is this version's; half of the tasks are announced by the previous one.
    let (status, log) = previous(&rig, "producer", &["--once"]).end().await;
    assert!(status.success(), "{log}");
    let old = previous(&rig, "consumer", &[]);
    rig.wait("the previous version to work", |tasks| {
        !at_work(tasks).is_empty()
    })
    .await;
    let new = rig.spawn("consumer", &[]);
    let ended = |count| {
        move |tasks: &[Task]| {
            let ended = tasks.iter();
            ended
                .filter(|t| matches!(t.state, TaskState::Ended(_)))
                .count()
                >= count
        }
    };
    rig.wait("both versions to work", ended(3)).await;
    // Its tasks are taken over by this version.
    old.kill_nine();
    rig.wait("takeovers", ended(6)).await;
    // A rollback: this version hands its tasks over to the previous one.
    let old = previous(&rig, "consumer", &[]);
    new.terminate();
    let (status, log) = new.end().await;
    assert!(status.success(), "{log}");
    let tasks = rig.wait_ended(TASKS).await;
    let is_reported =
        |task: &Task| rig.forge.labels(DEMO, task.item.number) == ["coding agent done"];
    rig.wait("every end to be reported", |tasks| {
        tasks.iter().all(is_reported)
    })
    .await;
    old.terminate();
    let (_, log) = old.end().await;
    for task in &tasks {
        let number = task.item.number;
        let done = TaskState::Ended(EndState::Done);
        assert_eq!(task.state, done, "#{number}: {:?}\n{log}", task.reason);
        assert_eq!(rig.forge.comments(DEMO, number).len(), 1, "#{number}");
    }
    assert_eq!(rig.forge.pulls(DEMO).len(), TASKS);
}

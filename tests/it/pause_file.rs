//! The pause file: while it exists, the workers of its machine take no new task.

use agentmine_domain::TaskState;
use agentmine_tests::forge::DEMO;

use crate::rig::{Rig, assert_done, binary, codes, on_both_forges, solves_demo};

async fn a_pause_file_keeps_workers_from_taking_tasks_until_it_is_removed(mut rig: Rig) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pause");
    rig.config["consumer"]["pause_file"] = file.to_str().unwrap().into();
    rig.produce_issue().await;
    rig.model.hold_at(2);
    let consumer = rig.spawn("consumer", &[]);
    rig.model.wait_for_held(1).await;
    std::fs::write(&file, "").unwrap();
    rig.model.release();
    // What is at work continues to its end.
    assert_done(&rig.wait_ended(1).await[0]);
    consumer.logged("the pause file exists").await;

    let number = rig.produce_issue().await;
    rig.consume().await;
    assert_eq!(rig.tasks().await[0].state, TaskState::Queued);
    let why = rig.why(&format!("{DEMO}#{}", rig.shown(number)), 0);
    assert!(codes(&why).contains(&"pause_file"), "{why:#}");
    // Whatever else it finds on this machine.
    let doctor = std::process::Command::new(binary("agentmine"))
        .arg("--config")
        .arg(rig.config_file())
        .args(["doctor", "--json"])
        .output()
        .unwrap();
    let findings = String::from_utf8_lossy(&doctor.stdout);
    assert!(
        findings.contains("(consumer.pause_file) exists"),
        "{findings}"
    );

    std::fs::remove_file(&file).unwrap();
    consumer.logged("the pause file was removed").await;
    assert_done(&rig.wait_ended(2).await[0]);
    consumer.terminate();
    let (status, log) = consumer.end().await;
    assert!(status.success(), "{log}");
}

on_both_forges! { solves_demo() =>
    a_pause_file_keeps_workers_from_taking_tasks_until_it_is_removed,
}

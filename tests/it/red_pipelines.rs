//! Pipelines of GitLab whose jobs are not among those of the head: child pipelines, pipelines for merged results, and
//! pipelines without a job.

use agentmine_tests::forge::DEMO;

use crate::rig::{Rig, assert_done};
use crate::rounds::{counted, head, newest_prompt, opened, rounds, script};

#[tokio::test]
async fn the_log_of_a_job_in_a_child_pipeline_is_what_a_round_is_for() {
    let (mut rig, pull) = opened(Rig::local_gitlab(script()).await).await;
    let head = head(&rig, &pull);
    let job = |name: &str, state: &str, log: &str| {
        rig.forge
            .add_child_job(DEMO, &head, "services", (name, state), log);
    };
    job("build", "success", "built");
    job("test", "failure", "expected Hello, got Bye");
    rig.forge
        .add_job(DEMO, &head, "lint", "failure", "unused name");
    counted(&mut rig, "begun", "checks").await;
    rig.consume().await;
    assert_done(&rounds(&rig).await[0]);
    let prompt = newest_prompt(&rig);
    for part in [
        "`services / test`",
        "> expected Hello, got Bye",
        "`lint`",
        "> unused name",
    ] {
        assert!(prompt.contains(part), "{part} is not in {prompt}");
    }
    // Neither the job that only began the pipeline, nor what passed.
    for part in ["`services`", "services / build"] {
        assert!(!prompt.contains(part), "{part} is in {prompt}");
    }
}

#[tokio::test]
async fn a_child_pipeline_that_runs_is_waited_for() {
    let (rig, pull) = opened(Rig::local_gitlab(script()).await).await;
    let head = head(&rig, &pull);
    rig.forge
        .add_job(DEMO, &head, "lint", "failure", "unused name");
    rig.forge
        .add_child_job(DEMO, &head, "services", ("test", "pending"), "");
    rig.produce().await;
    assert!(rounds(&rig).await.is_empty());
}

/// The commit of a merged result is another than the head, and no longer counts once the head has moved.
#[tokio::test]
async fn a_job_on_the_merged_result_is_a_check_of_the_head_that_was_merged() {
    let (mut rig, pull) = opened(Rig::local_gitlab(script()).await).await;
    let merged = rig.forge.merged_result(DEMO, pull.number);
    rig.forge
        .add_job(DEMO, &merged, "test", "failure", "expected Hello, got Bye");
    counted(&mut rig, "begun", "checks").await;
    rig.consume().await;
    let tasks = rounds(&rig).await;
    assert_done(&tasks[0]);
    let prompt = newest_prompt(&rig);
    assert!(prompt.contains("> expected Hello, got Bye"), "{prompt}");
    assert_ne!(head(&rig, &pull), pull.head_sha);
    rig.produce().await;
    rig.produce().await;
    assert_eq!(rounds(&rig).await.len(), 1);
    let comments = rig.forge.comments(DEMO, pull.number);
    let ended = comments
        .iter()
        .any(|it| it.body.contains("failed in the same way"));
    assert!(!ended, "that of the former head counts: {comments:#?}");
}

/// The configuration of its pipeline is invalid, so no job says what is wrong: the round is for what GitLab says of it. The
/// same failure after the round ends the rounds.
#[tokio::test]
async fn a_pipeline_that_fails_without_a_job_is_what_a_round_is_for_and_the_same_again_ends_them() {
    let (mut rig, pull) = opened(Rig::local_gitlab(script()).await).await;
    let errors = "jobs:lint config contains unknown keys: scrpt";
    rig.forge
        .add_invalid_pipeline(DEMO, &head(&rig, &pull), errors);
    counted(&mut rig, "begun", "checks").await;
    rig.consume().await;
    assert_done(&rounds(&rig).await[0]);
    let prompt = newest_prompt(&rig);
    for part in ["`pipeline`", "its configuration is invalid", errors] {
        assert!(prompt.contains(part), "{part} is not in {prompt}");
    }

    rig.forge
        .add_invalid_pipeline(DEMO, &head(&rig, &pull), errors);
    counted(&mut rig, "ended", "same_failure").await;
    assert_eq!(rounds(&rig).await.len(), 1);
    let comments = rig.forge.comments(DEMO, pull.number);
    let ended = comments
        .iter()
        .find(|it| it.body.contains("no further work"));
    let ended = &ended.expect("the end is reported").body;
    assert!(ended.contains("pipeline"), "{ended}");
}

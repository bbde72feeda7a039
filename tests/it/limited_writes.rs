//! A forge that limits the rate of writes: they are waited out and made once, and cost no attempt.

use std::time::{Duration, Instant};

use agentmine_tests::forge::{BOT, DEMO, Fault};

use crate::rig::{Rig, assert_done_at_attempt, solves_demo};

/// The wait that the forge asks for.
const WAIT: &str = "2";

/// What GitHub says where many writes come at once.
fn secondary(fault: Fault) -> Fault {
    let said = "{\"message\":\"You have exceeded a secondary rate limit. Please wait.\"}";
    fault.status(403).body(said).header("retry-after", WAIT)
}

fn too_many(fault: Fault) -> Fault {
    fault.status(429).header("retry-after", WAIT)
}

/// Each kind of write is refused once, of the comment also its edit.
async fn is_waited_out(rig: Rig, writes: &[(&str, &str)], limited: fn(Fault) -> Fault) {
    let number = rig.label_issue();
    for (method, pattern) in writes {
        rig.forge.inject(limited(Fault::on(method, pattern)));
    }
    let begun = Instant::now();
    rig.produce().await;
    rig.consume().await;
    assert_eq!(rig.forge.faults_left(), 0, "all of them were met");
    assert!(begun.elapsed() >= Duration::from_secs(2));
    assert_done_at_attempt(&rig.task().await, 1);
    assert_eq!(rig.forge.labels(DEMO, number), ["coding agent done"]);
    assert_eq!(rig.forge.pulls(DEMO).len(), 1);
    let comments = rig.forge.comments(DEMO, number).into_iter();
    assert_eq!(comments.filter(|it| it.author == BOT).count(), 1);
    // Nothing that was refused was tried again before its time.
    let refused = rig.forge.requests().into_iter();
    let refused = refused.filter(|it| it.status == 403 || it.status == 429);
    assert_eq!(refused.count(), writes.len());
}

const ON_GITHUB: [(&str, &str); 5] = [
    ("POST", "/issues/*/comments$"),
    ("PATCH", "/issues/comments/"),
    ("POST", "/issues/*/labels$"),
    ("DELETE", "/labels/"),
    ("POST", "/pulls$"),
];

const ON_GITLAB: [(&str, &str); 4] = [
    ("POST", "/issues/*/notes$"),
    ("PUT", "/notes/"),
    ("PUT", "/issues/*"),
    ("POST", "/merge_requests$"),
];

#[tokio::test]
async fn a_limit_of_writes_is_waited_out_and_nothing_is_doubled_on_github() {
    is_waited_out(Rig::local(solves_demo()).await, &ON_GITHUB, too_many).await;
}

#[tokio::test]
async fn githubs_secondary_limit_of_writes_is_waited_out_and_nothing_is_doubled() {
    is_waited_out(Rig::local(solves_demo()).await, &ON_GITHUB, secondary).await;
}

#[tokio::test]
async fn a_limit_of_writes_is_waited_out_and_nothing_is_doubled_on_gitlab() {
    let mut rig = Rig::on_gitlab(solves_demo()).await;
    rig.config["command_executor"]["backend"] = "local".into();
    is_waited_out(rig, &ON_GITLAB, too_many).await;
}

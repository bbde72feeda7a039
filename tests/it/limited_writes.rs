//! A forge that limits the rate of writes, or fails before or after them: they are waited out or looked up, made once, and cost
//! no attempt.

use agentmine_tests::forge::{BOT, DEMO, Fault, HUMAN, Reaction, Seen, Write};

use crate::item_faults::gitlab;
use crate::rig::{Rig, assert_done_at_attempt, solves_demo};
use crate::rounds::{counted, opened, rounds, script};

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
    rig.produce().await;
    rig.consume().await;
    assert_eq!(rig.forge.faults_left(), 0, "all of them were met");
    assert_done_at_attempt(&rig.task().await, 1);
    assert_eq!(rig.forge.labels(DEMO, number), ["coding agent done"]);
    assert_eq!(rig.forge.pulls(DEMO).len(), 1);
    let comments = rig.forge.comments(DEMO, number).into_iter();
    assert_eq!(comments.filter(|it| it.author == BOT).count(), 1);
    // Nothing that was refused was tried again before its time.
    let requests = rig.forge.requests();
    let is_refused = |it: &&Seen| it.status == 403 || it.status == 429;
    let refused: Vec<&Seen> = requests.iter().filter(is_refused).collect();
    assert_eq!(refused.len(), writes.len());
    for first in refused {
        let place = (&first.method, &first.target);
        let mut later = requests.iter().filter(|it| it.at > first.at);
        let again = later.find(|it| (&it.method, &it.target) == place);
        let waited = again.expect("it is tried again").at - first.at;
        assert!(waited.num_milliseconds() >= 1900, "{place:?}: {waited}");
    }
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
    is_waited_out(gitlab().await, &ON_GITLAB, too_many).await;
}

/// A write is refused with a time, then fails before anything is done, then after.
fn each_fails_thrice(rig: &Rig, writes: &[(&str, &str)]) {
    for (method, pattern) in writes {
        let on = || Fault::on(method, pattern);
        rig.forge.inject(too_many(on()));
        rig.forge.inject(on().status(502));
        rig.forge.inject(on().done_but_status(502));
    }
}

/// The writes of a command and of a round with its threads, and the removal of the branch, each fail thrice.
async fn the_writes_of_a_round_happen_once(
    rig: Rig,
    writes: &[(&str, &str)],
    removal: (&str, &str),
) {
    let (mut rig, pull) = opened(rig).await;
    let number = pull.number;
    rig.config["rounds"]["resolve_threads"] = true.into();
    each_fails_thrice(&rig, writes);
    rig.forge
        .add_line_comment(DEMO, number, ("greet.sh", 1), "Rename it.");
    rig.forge
        .add_review_as(DEMO, number, HUMAN, "CHANGES_REQUESTED", "One thing.");
    let command = rig.forge.say(DEMO, number, HUMAN, "/agentmine status");
    counted(&mut rig, "begun", "requests").await;
    rig.produce().await;
    rig.consume().await;
    assert_eq!(rig.forge.faults_left(), 0, "all of them were met");
    let tasks = rounds(&rig).await;
    assert_eq!(tasks.len(), 1);
    assert_done_at_attempt(&tasks[0], 1);
    let (thread, resolved) = rig.forge.line_threads(DEMO, number).remove(0);
    let replies = thread.iter().filter(|(author, _)| author == BOT);
    assert_eq!(replies.count(), 1, "{thread:?}");
    assert!(resolved, "{thread:?}");
    assert_eq!(rig.forge.labels(DEMO, number), ["coding agent done"]);
    let reacted = |it: &&Reaction| it.comment == command && it.login == BOT;
    assert_eq!(rig.forge.reactions().iter().filter(reacted).count(), 1);

    each_fails_thrice(&rig, &[removal]);
    rig.forge.merge(DEMO, number);
    rig.produce().await;
    assert_eq!(rig.forge.faults_left(), 0, "all of them were met");
    assert_eq!(rig.forge.branch_sha(DEMO, &pull.head), None);
    let is_one = |it: &&Write| it.method == removal.0 && it.path.contains(&pull.head);
    let writes = rig.forge.writes();
    let removed = writes.iter().filter(is_one).filter(|it| it.status == 204);
    assert_eq!(removed.count(), 1, "{writes:#?}");
}

#[tokio::test]
async fn writes_of_a_round_that_fail_are_made_once_on_github() {
    let writes = [
        ("POST", "/comments/*/replies"),
        ("POST", "/graphql*resolveReviewThread"),
        ("POST", "/issues/*/labels$"),
        ("DELETE", "/issues/*/labels/"),
        ("POST", "/reactions"),
    ];
    let removal = ("DELETE", "/git/refs/heads/");
    let rig = Rig::local(script()).await;
    the_writes_of_a_round_happen_once(rig, &writes, removal).await;
}

#[tokio::test]
async fn writes_of_a_round_that_fail_are_made_once_on_gitlab() {
    let writes = [
        ("POST", "/discussions/*/notes"),
        ("PUT", "/discussions/"),
        ("PUT", "/merge_requests/"),
        ("POST", "/award_emoji"),
    ];
    let removal = ("DELETE", "/repository/branches/");
    let rig = Rig::local_gitlab(script()).await;
    the_writes_of_a_round_happen_once(rig, &writes, removal).await;
}

/// The draft that is opened at the beginning, its result, and that it is ready.
async fn the_writes_of_a_draft_happen_once(mut rig: Rig, writes: &[(&str, &str)]) {
    rig.config["issue_to_mr_conversion"]["enabled"] = true.into();
    each_fails_thrice(&rig, writes);
    rig.produce_issue().await;
    rig.consume().await;
    assert_eq!(rig.forge.faults_left(), 0, "all of them were met");
    assert_done_at_attempt(&rig.task().await, 1);
    let pulls = rig.forge.pulls(DEMO);
    let [pull] = pulls.as_slice() else {
        panic!("{pulls:#?}");
    };
    assert!(pull.open && !pull.draft, "{pull:#?}");
    assert!(pull.body.contains("now greets"), "{pull:#?}");
}

#[tokio::test]
async fn writes_of_a_draft_that_fail_are_made_once_on_github() {
    let writes = [
        ("POST", "/pulls$"),
        ("PATCH", "/pulls/"),
        ("POST", "/graphql*markPullRequestReadyForReview"),
    ];
    the_writes_of_a_draft_happen_once(Rig::local(solves_demo()).await, &writes).await;
}

#[tokio::test]
async fn writes_of_a_draft_that_fail_are_made_once_on_gitlab() {
    let writes = [("POST", "/merge_requests$"), ("PUT", "/merge_requests/")];
    the_writes_of_a_draft_happen_once(gitlab().await, &writes).await;
}

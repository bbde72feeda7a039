//! What people do to items, repositories, branches and pull requests while the fleet works on them, on both forges.

use std::time::Duration;

use agentmine_domain::{EndState, Task, TaskState};
use agentmine_tests::forge::{BOT, DEMO, Fault, HUMAN, PullView};
use serde_json::json;

use crate::rig::{PATIENCE, Process, REQUEST, Rig, assert_done, solves_demo};

const PROCESSING: &str = "coding agent processing";
pub(crate) const STOPPED: TaskState = TaskState::Ended(EndState::Stopped);
const OTHER: &str = "octo/other";

async fn github() -> Rig {
    Rig::local(solves_demo()).await
}

pub(crate) async fn gitlab() -> Rig {
    Rig::local_gitlab(solves_demo()).await
}

/// A session that has pushed its work and waits for the model's last words.
pub(crate) async fn pushed(rig: &Rig) -> (u64, Process) {
    let number = rig.produce_issue().await;
    rig.model.hold_at(4);
    let consumer = rig.spawn("consumer", &[]);
    rig.model.wait_for_held(1).await;
    (number, consumer)
}

pub(crate) async fn end(process: Process) {
    process.terminate();
    let (status, log) = process.end().await;
    assert!(status.success(), "{log}");
}

/// The only task, once it is over.
pub(crate) async fn over(rig: &Rig) -> Task {
    rig.wait_ended(1).await.remove(0)
}

pub(crate) fn said(rig: &Rig, repo: &str, number: u64) -> String {
    let comments = rig.forge.comments(repo, number).into_iter();
    let ours = comments.filter(|it| it.author == BOT);
    ours.map(|it| it.body).collect()
}

/// Somebody does something to the item: the session stops with the reason, its work stays on its branch, and there is no
/// pull request. `reported` is where people read it.
pub(crate) async fn stops(
    rig: Rig,
    does: impl Fn(&Rig, u64),
    reason: &str,
    reported: Option<&str>,
) {
    rig.forge.add_repo_without_git(OTHER);
    let (number, consumer) = pushed(&rig).await;
    does(&rig, number);
    let task = over(&rig).await;
    assert_eq!(task.state, STOPPED, "{:?}", task.reason);
    assert_eq!(task.reason.as_deref(), Some(reason));
    let work = rig.forge.file_at(DEMO, &task.branch(), "greet.sh");
    assert!(work.unwrap().contains("${1:-world}"), "the work stays");
    assert!(rig.forge.pulls(DEMO).is_empty());
    if let Some(repo) = reported {
        let number = if repo == OTHER { 1 } else { number };
        let is_reported = |_: &_| said(&rig, repo, number).contains(reason);
        rig.forge
            .wait_until("it is reported", PATIENCE, is_reported)
            .await;
        let said = said(&rig, repo, number);
        assert!(said.contains(&task.branch()), "{said}");
    }
    rig.model.release();
    end(consumer).await;
    rig.produce().await;
    assert_eq!(rig.tasks().await.len(), 1);
}

fn removes(rig: &Rig, number: u64) {
    rig.forge.remove_label(DEMO, number, PROCESSING);
}

fn renames(rig: &Rig, _: u64) {
    rig.forge.rename_label(DEMO, PROCESSING, "robot at work");
}

fn closes(rig: &Rig, number: u64) {
    rig.forge.close(DEMO, number);
}

fn locks(rig: &Rig, number: u64) {
    rig.forge.lock(DEMO, number);
}

fn moves(rig: &Rig, number: u64) {
    rig.forge.move_issue(DEMO, number, OTHER);
}

const REMOVED: &str = "the label `coding agent processing` was removed";
const CLOSED: &str = "the item was closed";
const LOCKED: &str = "the conversation was locked";

#[tokio::test]
async fn a_removed_label_stops_the_session_on_github() {
    stops(github().await, removes, REMOVED, Some(DEMO)).await;
}

#[tokio::test]
async fn a_removed_label_stops_the_session_on_gitlab() {
    stops(gitlab().await, removes, REMOVED, Some(DEMO)).await;
}

#[tokio::test]
async fn a_renamed_label_stops_the_session_on_github() {
    stops(github().await, renames, REMOVED, Some(DEMO)).await;
}

#[tokio::test]
async fn a_renamed_label_stops_the_session_on_gitlab() {
    stops(gitlab().await, renames, REMOVED, Some(DEMO)).await;
}

#[tokio::test]
async fn a_closed_item_stops_the_session_on_github() {
    stops(github().await, closes, CLOSED, Some(DEMO)).await;
}

#[tokio::test]
async fn a_closed_item_stops_the_session_on_gitlab() {
    stops(gitlab().await, closes, CLOSED, Some(DEMO)).await;
}

#[tokio::test]
async fn a_locked_conversation_stops_the_session_on_github() {
    stops(github().await, locks, LOCKED, Some(DEMO)).await;
}

#[tokio::test]
async fn a_locked_conversation_stops_the_session_on_gitlab() {
    stops(gitlab().await, locks, LOCKED, Some(DEMO)).await;
}

const MOVED: &str = "the item was moved to another repository";

/// It is reported where the issue is now, without the name of the repository that it came from.
#[tokio::test]
async fn a_transferred_issue_stops_the_session_on_github() {
    stops(github().await, moves, MOVED, Some(OTHER)).await;
}

/// The new place is one that is scanned: it has the label too.
#[tokio::test]
async fn a_transferred_issue_shows_its_stop_in_a_configured_repository_on_github() {
    let mut rig = github().await;
    rig.config["trackers"]["github"]["repositories"] = json!([DEMO, OTHER]);
    rig.forge.add_repo_without_git(OTHER);
    let (number, consumer) = pushed(&rig).await;
    moves(&rig, number);
    assert_eq!(over(&rig).await.reason.as_deref(), Some(MOVED));
    let is_shown = |_: &_| rig.forge.labels(OTHER, 1) == ["coding agent stopped"];
    rig.forge
        .wait_until("the label says so", PATIENCE, is_shown)
        .await;
    let comments = rig.forge.comments(OTHER, 1);
    let [comment] = comments.as_slice() else {
        panic!("one comment: {comments:#?}");
    };
    assert!(comment.body.contains(MOVED), "{}", comment.body);
    assert!(!comment.body.contains(DEMO), "{}", comment.body);
    rig.model.release();
    end(consumer).await;
}

/// Nothing is written to a repository that nobody gave the fleet, that more people can read, or that the token may only read.
async fn says_nothing_there(there: &str, prepare: impl Fn(&Rig), why: &str) {
    let rig = github().await;
    rig.forge.add_repo_without_git(there);
    prepare(&rig);
    let (number, consumer) = pushed(&rig).await;
    rig.forge.move_issue(DEMO, number, there);
    let moved = rig.forge.comments(there, 1);
    let task = over(&rig).await;
    assert_eq!(task.reason.as_deref(), Some(MOVED));
    consumer.logged(why).await;
    rig.model.release();
    end(consumer).await;
    rig.produce().await;
    assert_eq!(rig.forge.comments(there, 1), moved);
    let written: Vec<_> = rig.forge.writes().into_iter().collect();
    let there = written.iter().filter(|it| it.path.contains(there));
    assert_eq!(there.count(), 0, "{written:#?}");
    let recorded = "SELECT count(*) FROM effects WHERE result LIKE '%' || $1 || '%'";
    let recorded = sqlx::query_scalar::<_, i64>(recorded).bind(why);
    assert_eq!(recorded.fetch_one(&rig.sql().await).await.unwrap(), 1);
}

#[tokio::test]
async fn nothing_is_written_where_an_issue_of_another_owner_is_now_on_github() {
    let why = "is of another owner, and is not configured";
    says_nothing_there("stranger/other", |_| {}, why).await;
}

#[tokio::test]
async fn nothing_is_written_where_a_transferred_issue_is_more_public_on_github() {
    let public = |rig: &Rig| rig.forge.publish(OTHER, true);
    says_nothing_there(OTHER, public, "can be read by more people").await;
}

#[tokio::test]
async fn nothing_is_written_where_the_token_may_only_read_a_transferred_issue_on_github() {
    let readable = |rig: &Rig| rig.forge.set_permission(OTHER, BOT, "read");
    says_nothing_there(OTHER, readable, "may not be written to with this token").await;
}

#[tokio::test]
async fn a_moved_issue_stops_the_session_on_gitlab() {
    let reason = "the item was moved to another project";
    stops(gitlab().await, moves, reason, Some(DEMO)).await;
}

/// GitHub says that there was an issue.
#[tokio::test]
async fn a_deleted_issue_stops_the_session_on_github() {
    let deletes = |rig: &Rig, number| rig.forge.delete_issue(DEMO, number);
    stops(github().await, deletes, "the item was deleted", None).await;
}

/// GitLab does not say whether there was an issue: it counts as deleted once it was not found for a while. What is gone is
/// left alone from then on.
#[tokio::test]
async fn a_deleted_issue_stops_the_session_on_gitlab() {
    let mut rig = gitlab().await;
    rig.config["consumer"]["item_gone_seconds"] = 2.into();
    let (number, consumer) = pushed(&rig).await;
    rig.forge.delete_issue(DEMO, number);
    let task = over(&rig).await;
    assert_eq!(task.state, STOPPED, "{:?}", task.reason);
    let reason = task.reason.clone().unwrap_or_default();
    assert!(reason.ends_with("no longer exists"), "{reason}");
    let work = rig.forge.file_at(DEMO, &task.branch(), "greet.sh");
    assert!(work.unwrap().contains("${1:-world}"), "the work stays");
    assert!(rig.forge.pulls(DEMO).is_empty());
    rig.model.release();
    end(consumer).await;
    // Its end is reported as far as that goes, and nobody tries again.
    rig.consume().await;
    let writes = rig.forge.writes().len();
    rig.produce().await;
    rig.consume().await;
    rig.produce().await;
    assert_eq!(
        rig.forge.writes().len(),
        writes,
        "{:#?}",
        rig.forge.writes()
    );
    assert_eq!(rig.tasks().await.len(), 1);
}

/// The forge refuses all comments with this status.
fn refuses_comments(rig: &Rig, status: u16) {
    let writes = [
        ("POST", "/issues/*/comments"),
        ("PATCH", "/issues/comments/"),
        ("POST", "/issues/*/notes"),
        ("PUT", "/issues/*/notes/"),
    ];
    for (method, pattern) in writes {
        let refused = Fault::on(method, pattern).times(usize::MAX);
        rig.forge.inject(refused.status(status));
    }
}

/// The item takes no comments any more: the work continues to its pull request, the label says so, and nothing is tried for
/// ever.
async fn takes_no_comments(rig: Rig, status: u16) {
    let (number, consumer) = pushed(&rig).await;
    let before = said(&rig, DEMO, number);
    refuses_comments(&rig, status);
    rig.model.release();
    assert_done(&over(&rig).await);
    rig.forge
        .wait_until("the label says so", PATIENCE, |forge| {
            forge.labels(DEMO, number) == ["coding agent done"]
        })
        .await;
    end(consumer).await;
    assert_eq!(rig.forge.pulls(DEMO).len(), 1);
    assert_eq!(said(&rig, DEMO, number), before);
    let refused = || {
        let requests = rig.forge.requests().into_iter();
        requests.filter(|it| it.status == status).count()
    };
    let tries = refused();
    assert!((1..=2).contains(&tries), "{tries}");
    // The second look at the end of a task.
    let later = "UPDATE tasks SET updated_at = updated_at - interval '1 hour'";
    sqlx::query(later).execute(&rig.sql().await).await.unwrap();
    for _ in 0..2 {
        rig.consume().await;
    }
    assert!(refused() <= tries + 1, "{}", refused());
}

#[tokio::test]
async fn work_on_an_item_without_comments_continues_on_github() {
    takes_no_comments(github().await, 403).await;
}

#[tokio::test]
async fn work_on_an_item_without_comments_continues_on_gitlab() {
    takes_no_comments(gitlab().await, 403).await;
}

#[tokio::test]
async fn work_on_an_item_whose_comments_are_gone_continues_on_github() {
    takes_no_comments(github().await, 410).await;
}

#[tokio::test]
async fn work_on_an_item_whose_comments_are_gone_continues_on_gitlab() {
    takes_no_comments(gitlab().await, 410).await;
}

/// The item takes no comment from the beginning, and the credentials allow everything else: it is worked on as others are, and
/// the label shows the end.
async fn takes_no_first_comment(mut rig: Rig, status: u16) {
    rig.config["consumer"]["progress_seconds"] = 1.into();
    let number = rig.produce_issue().await;
    refuses_comments(&rig, status);
    rig.model.hold_at(4);
    let consumer = rig.spawn("consumer", &[]);
    rig.model.wait_for_held(1).await;
    assert_eq!(rig.forge.labels(DEMO, number), [PROCESSING]);
    // That nothing more is tried is no event.
    tokio::time::sleep(Duration::from_secs(5)).await;
    rig.model.release();
    assert_done(&over(&rig).await);
    rig.forge
        .wait_until("the label says so", PATIENCE, |forge| {
            forge.labels(DEMO, number) == ["coding agent done"]
        })
        .await;
    end(consumer).await;
    assert_eq!(rig.forge.pulls(DEMO).len(), 1);
    assert_eq!(said(&rig, DEMO, number), "");
    let requests = rig.forge.requests().into_iter();
    let tries = requests.filter(|it| it.status == status).count();
    // At the beginning, for the progress, and at the end.
    assert!((2..=4).contains(&tries), "{tries}");
}

#[tokio::test]
async fn an_item_without_comments_is_worked_on_on_github() {
    takes_no_first_comment(github().await, 403).await;
}

#[tokio::test]
async fn an_item_without_comments_is_worked_on_on_gitlab() {
    takes_no_first_comment(gitlab().await, 403).await;
}

#[tokio::test]
async fn an_item_whose_comments_are_gone_is_worked_on_on_github() {
    takes_no_first_comment(github().await, 410).await;
}

#[tokio::test]
async fn an_item_whose_comments_are_gone_is_worked_on_on_gitlab() {
    takes_no_first_comment(gitlab().await, 410).await;
}

/// The repository is renamed while a session works: its pull request is opened under the new name.
async fn follows_a_rename(rig: Rig) {
    let (number, consumer) = pushed(&rig).await;
    rig.forge.rename_repo(DEMO, "octo/renamed");
    rig.model.release();
    assert_done(&over(&rig).await);
    assert_eq!(rig.forge.pulls("octo/renamed").len(), 1);
    let labels = rig.forge.labels("octo/renamed", number);
    assert_eq!(labels, ["coding agent done"]);
    end(consumer).await;
}

#[tokio::test]
async fn a_renamed_repository_is_followed_by_a_session_on_github() {
    follows_a_rename(github().await).await;
}

#[tokio::test]
async fn a_renamed_project_is_followed_by_a_session_on_gitlab() {
    follows_a_rename(gitlab().await).await;
}

/// The task waits with its reason, and continues once the repository is as it was.
async fn pauses(rig: Rig, does: fn(&Rig, bool), reason: &str, between: impl AsyncFn(&Rig)) {
    let (_, consumer) = pushed(&rig).await;
    does(&rig, true);
    rig.model.release();
    let tasks = rig
        .wait("a pause", |tasks| tasks[0].state == TaskState::Paused)
        .await;
    let why = tasks[0].reason.clone().unwrap_or_default();
    assert!(why.contains(reason), "{why}");
    assert_eq!(tasks[0].attempt, 0, "it costs no attempt");
    between(&rig).await;
    does(&rig, false);
    rig.produce().await;
    assert_done(&over(&rig).await);
    assert_eq!(rig.forge.pulls(DEMO).len(), 1);
    end(consumer).await;
}

/// A producer begins while the repository can only be read, and leaves the task as it is.
async fn nobody_tries(rig: &Rig) {
    rig.produce().await;
    assert_eq!(rig.task().await.state, TaskState::Paused);
}

/// A producer that scans nothing else ends.
async fn nothing(_: &Rig) {}

fn archives(rig: &Rig, on: bool) {
    rig.forge.archive(DEMO, on);
}

fn hides(rig: &Rig, on: bool) {
    rig.forge.hide(DEMO, on);
}

#[tokio::test]
async fn an_archived_repository_pauses_the_task_on_github() {
    pauses(
        github().await,
        archives,
        "octo/demo is archived",
        nobody_tries,
    )
    .await;
}

#[tokio::test]
async fn an_archived_project_pauses_the_task_on_gitlab() {
    pauses(
        gitlab().await,
        archives,
        "octo/demo is archived",
        nobody_tries,
    )
    .await;
}

#[tokio::test]
async fn a_hidden_repository_pauses_the_task_on_github() {
    pauses(github().await, hides, "hidden", nothing).await;
}

#[tokio::test]
async fn a_hidden_project_pauses_the_task_on_gitlab() {
    pauses(gitlab().await, hides, "hidden", nothing).await;
}

/// A person removes or replaces the branch that a session has pushed to.
async fn leaves_the_branch(rig: Rig, does: impl Fn(&Rig, &str) -> Option<String>, reason: &str) {
    let (number, consumer) = pushed(&rig).await;
    let branch = rig.task().await.branch();
    let theirs = does(&rig, &branch);
    rig.model.release();
    let task = over(&rig).await;
    assert_eq!(task.state, STOPPED, "{:?}", task.reason);
    assert_eq!(rig.forge.branch_sha(DEMO, &branch), theirs);
    assert!(rig.forge.pulls(DEMO).is_empty());
    let is_reported = |_: &_| said(&rig, DEMO, number).contains(reason);
    rig.forge
        .wait_until("it is reported", PATIENCE, is_reported)
        .await;
    end(consumer).await;
}

fn removes_it(rig: &Rig, branch: &str) -> Option<String> {
    rig.forge.remove_branch(DEMO, branch);
    None
}

/// The same between the session that pushed and the one that takes over.
async fn leaves_it_after_a_takeover(rig: Rig) {
    let (number, consumer) = pushed(&rig).await;
    let branch = rig.task().await.branch();
    consumer.kill_nine();
    removes_it(&rig, &branch);
    rig.model.release();
    let consumer = rig.spawn("consumer", &[]);
    let task = over(&rig).await;
    assert_eq!(task.state, STOPPED, "{:?}", task.reason);
    assert_eq!(rig.forge.branch_sha(DEMO, &branch), None);
    assert!(rig.forge.pulls(DEMO).is_empty());
    let is_reported = |_: &_| said(&rig, DEMO, number).contains("somebody deleted the branch");
    rig.forge
        .wait_until("it is reported", PATIENCE, is_reported)
        .await;
    end(consumer).await;
}

#[tokio::test]
async fn a_branch_that_a_person_removed_is_not_brought_back_after_a_takeover_on_github() {
    leaves_it_after_a_takeover(github().await).await;
}

#[tokio::test]
async fn a_branch_that_a_person_removed_is_not_brought_back_after_a_takeover_on_gitlab() {
    leaves_it_after_a_takeover(gitlab().await).await;
}

/// A forge removes the branch of what it merges; the worker died before it recorded the pull request.
async fn reports_what_was_merged_meanwhile(rig: Rig) {
    rig.produce_issue().await;
    rig.killed_at("consumer", &["tracker.pull_request_create.after"])
        .await;
    let pull = rig.forge.pulls(DEMO).remove(0);
    rig.forge.merge(DEMO, pull.number);
    rig.forge.remove_branch(DEMO, &pull.head);
    let consumer = rig.spawn("consumer", &[]);
    let task = over(&rig).await;
    assert_done(&task);
    assert!(task.pull_request_url.is_some());
    assert_eq!(rig.forge.branch_sha(DEMO, &pull.head), None);
    assert_eq!(rig.forge.pulls(DEMO).len(), 1);
    end(consumer).await;
}

#[tokio::test]
async fn what_was_merged_and_removed_before_a_takeover_is_done_on_github() {
    reports_what_was_merged_meanwhile(github().await).await;
}

#[tokio::test]
async fn what_was_merged_and_removed_before_a_takeover_is_done_on_gitlab() {
    reports_what_was_merged_meanwhile(gitlab().await).await;
}

fn replaces_it(rig: &Rig, branch: &str) -> Option<String> {
    Some(rig.forge.replace_branch(DEMO, branch))
}

#[tokio::test]
async fn a_branch_that_a_person_removed_is_not_brought_back_on_github() {
    leaves_the_branch(github().await, removes_it, "somebody deleted the branch").await;
}

#[tokio::test]
async fn a_branch_that_a_person_removed_is_not_brought_back_on_gitlab() {
    leaves_the_branch(gitlab().await, removes_it, "somebody deleted the branch").await;
}

#[tokio::test]
async fn a_branch_that_a_person_replaced_is_not_overwritten_on_github() {
    leaves_the_branch(github().await, replaces_it, "somebody replaced the work").await;
}

#[tokio::test]
async fn a_branch_that_a_person_replaced_is_not_overwritten_on_gitlab() {
    leaves_the_branch(gitlab().await, replaces_it, "somebody replaced the work").await;
}

/// The pull request of a task that is done.
async fn opened(rig: &Rig) -> (u64, PullView) {
    let number = rig.produce_issue().await;
    rig.consume().await;
    assert_done(&rig.task().await);
    (number, rig.forge.pulls(DEMO).remove(0))
}

async fn closed_for_good(rig: Rig) {
    let (number, pull) = opened(&rig).await;
    rig.forge.close(DEMO, pull.number);
    rig.forge
        .say(DEMO, pull.number, HUMAN, "@agentmine-bot do it again");
    rig.produce().await;
    rig.produce().await;
    assert_eq!(rig.tasks().await.len(), 1, "no round");
    assert_eq!(rig.forge.branch_sha(DEMO, &pull.head), Some(pull.head_sha));
    rig.forge.add_label(DEMO, number, REQUEST);
    rig.produce().await;
    rig.consume().await;
    assert_eq!(rig.forge.pulls(DEMO).len(), 2, "labelled again");
}

#[tokio::test]
async fn a_closed_pull_request_gets_no_round_and_no_second_one_until_labelled_anew_on_github() {
    closed_for_good(github().await).await;
}

#[tokio::test]
async fn a_closed_merge_request_gets_no_round_and_no_second_one_until_labelled_anew_on_gitlab() {
    closed_for_good(gitlab().await).await;
}

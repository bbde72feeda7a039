//! AgentMine's one comment on an item.

use std::time::Duration;

use agentmine_domain::{EffectKey, EndState, NewTask, Phase, Task};
use agentmine_store::{Attempt, Enqueued, LeaseEnd};
use chrono::Utc;

use super::forge::{Posted, comment, unavailable};
use super::world::{NONE, World, done, finish, pull_item, requested_by, second_round};
use crate::{EffectError, Effects, Pushers, ReportedCommit};

const NOTICE: &str = "\n\n<!-- agentmine:notice -->\n";

/// The section of these earlier tasks.
fn folded(lines: &str) -> String {
    format!(
        "\n\n<!-- agentmine:earlier -->\n<details><summary>Earlier</summary>\n\n{lines}\n\n</details>"
    )
}

/// A later task of an item.
async fn next_of(world: &World, new: &NewTask, trigger: &str) -> Task {
    let new = NewTask {
        trigger: trigger.into(),
        ..new.clone()
    };
    let Enqueued::Created(task) = world.store.enqueue(&new).await.unwrap() else {
        panic!("it is known");
    };
    task
}

#[tokio::test]
async fn the_comment_is_edited_in_place() {
    let world = World::new().await;
    let effects = world.session(world.claim().await);
    effects.comment("first").await.unwrap();
    effects.comment("second").await.unwrap();
    assert_eq!(world.comment(), "second");
}

#[tokio::test]
async fn the_comment_on_the_editor_survives_the_end() {
    let world = World::new().await;
    let effects = world.session(world.claim().await);
    effects.editor_comment("no editor").await.unwrap();
    effects.comment("done").await.unwrap();
    let text = world.comment();
    assert_eq!(text, "done\n\n<!-- agentmine:notice -->\nno editor");
    // An answer is below it, and each is there once.
    effects.answer("An answer.").await.unwrap();
    effects.answer("Another one.").await.unwrap();
    let notice = "\n\n<!-- agentmine:notice -->\n";
    assert_eq!(world.comment(), format!("{text}{notice}Another one."));
}

/// Whatever the order of their writes.
#[tokio::test]
async fn the_tasks_of_an_item_share_one_comment_that_shows_the_newest() {
    let world = World::new().await;
    let effects = world.session(world.claim().await);
    effects.comment("first").await.unwrap();
    let lease = effects.lease.clone().unwrap();
    world.store.end_lease(&lease, &done(None)).await.unwrap();
    let later = world.reconciler_of(world.later_task().await);
    let earlier = world.reconciler().await;
    // The later task has said nothing yet.
    earlier.comment("first again").await.unwrap();
    assert_eq!(world.comment(), "first again");
    later.comment("second").await.unwrap();
    let folded = "\n\n<!-- agentmine:earlier -->\n<details><summary>Earlier</summary>\n\n- Task 1: done, https://forge.example/pull/21\n\n</details>";
    assert_eq!(world.comment(), format!("second{folded}"));
    earlier.comment("late").await.unwrap();
    assert_eq!(world.comment(), format!("second{folded}"));
    // What a person asked about the earlier task is answered all the same.
    earlier.answer("It is done.").await.unwrap();
    let answer = "\n\n<!-- agentmine:notice -->\nAbout task 1: It is done.";
    assert_eq!(world.comment(), format!("second{answer}{folded}"));
}

/// Some are on their lines, and the others are not counted.
#[tokio::test]
async fn the_earlier_tasks_of_an_item_are_bounded() {
    for (earlier, below) in [
        (20, "- Task 1: stopped"),
        (21, "- Task 2: stopped\n- and earlier ones"),
        (24, "- Task 5: stopped\n- and earlier ones"),
    ] {
        let world = World::new().await;
        let mut task = world.task.clone();
        for at in 0..earlier {
            world.store.request_stop(task.id, "enough").await.unwrap();
            task = next_of(&world, &requested_by(""), &format!("again-{at}")).await;
        }
        world.reconciler_of(task).comment("newest").await.unwrap();
        let shown = earlier.min(20);
        let rest = (1..shown).map(|at| format!("- Task {}: stopped\n", earlier + 1 - at));
        let lines: String = rest.collect();
        let text = format!("newest{}", folded(&format!("{lines}{below}")));
        assert_eq!(world.comment(), text);
    }
}

/// How each earlier task ended, and where its result is.
#[tokio::test]
async fn an_earlier_task_is_one_line() {
    for (end, line) in [
        (done(None), "done, https://forge.example/pull/21"),
        (
            done(Some("partial: the check failed")),
            "a partial result, https://forge.example/pull/21",
        ),
        (finish(EndState::Failed, "no disk"), "failed"),
        (finish(EndState::Stopped, "enough"), "stopped"),
    ] {
        let world = World::new().await;
        world.end(end).await;
        let later = world.reconciler_of(world.later_task().await);
        later.comment("Later.").await.unwrap();
        let text = format!("Later.{}", folded(&format!("- Task 1: {line}")));
        assert_eq!(world.comment(), text);
    }
}

/// Of a round the commit is its result.
#[tokio::test]
async fn an_earlier_round_is_one_line_with_its_commit() {
    let world = World::of(&second_round()).await;
    let effects = world.session(world.claim().await);
    let result = ReportedCommit {
        commit: "abc123".into(),
        pushers: Pushers::Us,
        heard: None,
    };
    effects.pushed_result(&result, None).await.unwrap();
    let lease = effects.lease.clone().unwrap();
    world.store.end_lease(&lease, &done(None)).await.unwrap();
    // This one left nothing.
    let second = next_of(&world, &second_round(), "round-3").await;
    world.store.request_stop(second.id, "enough").await.unwrap();
    // A person asked for it.
    let third = next_of(&world, &second_round(), "event-9").await;
    world.store.request_stop(third.id, "enough").await.unwrap();
    let newest = next_of(&world, &second_round(), "round-4").await;
    let newest = world.reconciler_of(newest);
    newest.comment("Newest.").await.unwrap();
    let lines = "- Task 3: stopped\n- Round 3 (task 2): stopped\n- Round 2 (task 1): done, abc123";
    let text = format!("Newest.{}", folded(lines));
    assert_eq!(world.comments_on("pull_request 21"), [text]);
}

/// Every forge has a limit.
#[tokio::test]
async fn a_long_comment_is_cut_and_what_is_below_it_is_not() {
    let world = World::new().await;
    let effects = world.session(world.claim().await);
    effects.answer("An answer.").await.unwrap();
    effects.comment(&"x".repeat(60_000)).await.unwrap();
    let text = format!("{}…{NOTICE}An answer.", "x".repeat(55_000));
    assert!(world.comment() == text, "{}", world.comment().len());
}

/// The answers were lost, or the forge was away.
#[tokio::test]
async fn a_comment_whose_answer_was_lost_is_there_once() {
    let world = World::new().await;
    let effects = world.session(world.claim().await);
    world.tracker.forge().lost.push("write_comment");
    effects.comment("first").await.unwrap_err();
    effects.comment("first").await.unwrap();
    assert_eq!(world.comment(), "first");
    // An answer to a person that could not be written is written by the next edit.
    world.tracker.forge().refusals.push(unavailable());
    effects.answer("An answer.").await.unwrap_err();
    effects.comment("second").await.unwrap();
    assert_eq!(world.comment(), format!("second{NOTICE}An answer."));
}

/// Nobody has written on the item yet.
#[tokio::test]
async fn the_first_answer_says_what_it_is_about() {
    let world = World::new().await;
    let effects = world.reconciler().await;
    effects.answer("There is no such command.").await.unwrap();
    assert_eq!(
        world.comment(),
        format!(
            "AgentMine tracks this as task 1.\n\n<sub>AgentMine, session none yet</sub>{NOTICE}There is no such command."
        )
    );
}

/// A person may quote the marker, and another fleet has its own comment.
#[tokio::test]
async fn an_answer_goes_below_our_own_comment_alone() {
    let world = World::new().await;
    let effects = world.reconciler().await;
    let mark = |name: &str| format!("<!-- agentmine:task={}:{name} -->", world.task.id);
    let now = Utc::now();
    world.tracker.forge().found = vec![
        comment(
            true,
            &format!("Transferred.\n\n{}", mark("transferred")),
            now,
        ),
        comment(false, &format!("Quoted.\n\n{}", mark("progress")), now),
    ];
    effects.answer("An answer.").await.unwrap();
    let text = "AgentMine tracks this as task 1.\n\n<sub>AgentMine, session none yet</sub>";
    assert_eq!(world.comment(), format!("{text}{NOTICE}An answer."));
    world.tracker.forge().found = vec![
        comment(true, &format!("Ours.\n\n{}", mark("progress")), now),
        comment(false, &format!("Quoted.\n\n{}", mark("progress")), now),
    ];
    effects.answer("Another one.").await.unwrap();
    assert_eq!(world.comment(), format!("Ours.{NOTICE}Another one."));
}

/// What an answer says of how far a task is goes with the first edit after that has changed.
#[tokio::test]
async fn an_answer_that_says_how_far_the_task_is_lasts_as_long_as_that() {
    let said = format!("text{NOTICE}It waits.");
    let world = World::waiting().await;
    let effects = world.reconciler().await;
    effects.comment("text").await.unwrap();
    effects.answer_with_state("It waits.").await.unwrap();
    effects.comment("text").await.unwrap();
    assert_eq!(world.comment(), said);
    // It is queued now.
    assert!(world.store.admit_at_once(world.task.id).await.unwrap());
    effects.comment("text").await.unwrap();
    assert_eq!(world.comment(), "text");

    let world = World::new().await;
    let effects = world.reconciler().await;
    effects.comment("text").await.unwrap();
    effects.answer_with_state("It waits.").await.unwrap();
    effects.comment("text").await.unwrap();
    assert_eq!(world.comment(), said);
    let session = world.session(world.claim().await);
    session.comment("text").await.unwrap();
    assert_eq!(world.comment(), "text", "it is at work now");

    session.answer_with_state("It is at work.").await.unwrap();
    let at_work = format!("text{NOTICE}It is at work.");
    assert_eq!(world.comment(), at_work);
    let lease = session.lease.clone().unwrap();
    let phase = world.store.set_phase(&lease, Phase::Running);
    phase.await.unwrap();
    session.comment("text").await.unwrap();
    assert_eq!(world.comment(), at_work, "it still is");
    let phase = world.store.set_phase(&lease, Phase::Reporting);
    phase.await.unwrap();
    session.comment("text").await.unwrap();
    assert_eq!(world.comment(), "text", "its end is about to be shown");
}

/// Nobody has edited the comment since: what is replaced there is what was recorded.
#[tokio::test]
async fn a_new_answer_replaces_one_that_is_no_longer_so() {
    let world = World::new().await;
    let effects = world.reconciler().await;
    effects.comment("text").await.unwrap();
    effects.editor_comment("No editor.").await.unwrap();
    effects.answer_with_state("It waits.").await.unwrap();
    let editor = format!("text{NOTICE}No editor.");
    assert_eq!(world.comment(), format!("{editor}{NOTICE}It waits."));
    let session = world.session(world.claim().await);
    session.answer_with_state("It is at work.").await.unwrap();
    assert_eq!(world.comment(), format!("{editor}{NOTICE}It is at work."));
    // An edit has removed the one that is recorded.
    let lease = session.lease.clone().unwrap();
    let phase = world.store.set_phase(&lease, Phase::Reporting);
    phase.await.unwrap();
    session.comment("text").await.unwrap();
    assert_eq!(world.comment(), editor);
    session.answer("An answer.").await.unwrap();
    assert_eq!(world.comment(), format!("{editor}{NOTICE}An answer."));
}

/// The edit that shows the end would keep an answer that says the end is about to be shown.
#[tokio::test]
async fn an_answer_that_the_end_is_about_to_be_shown_is_not_written() {
    let world = World::new().await;
    let claim = world.claim().await;
    let phase = world.store.set_phase(&claim.lease, Phase::Reporting);
    phase.await.unwrap();
    let effects = world.reconciler().await;
    effects.answer_with_state("It is reported.").await.unwrap();
    let text = "AgentMine tracks this as task 1.\n\n<sub>AgentMine, session none yet</sub>";
    assert_eq!(world.comment(), text);
}

/// The newer task has the comment. What it says of the older one lasts as long as that one is so.
#[tokio::test]
async fn an_answer_about_an_older_task_is_in_the_comment_of_the_newer_one() {
    let world = World::new().await;
    world.end(finish(EndState::Failed, "no disk")).await;
    let older = world.reconciler().await;
    let newer = world.reconciler_of(world.later_task().await);
    newer.comment("Newer.").await.unwrap();
    older.answer_with_state("It failed.").await.unwrap();
    let earlier = folded("- Task 1: failed");
    let said = format!("Newer.{NOTICE}About task 1: It failed.{earlier}");
    assert_eq!(world.comment(), said);
    newer.comment("Newer.").await.unwrap();
    assert_eq!(world.comment(), said);
    // Its pull request is found.
    let url = "https://forge.example/pull/21";
    let found = world.store.found_result(world.task.id, url, None);
    assert!(found.await.unwrap().is_some());
    newer.comment("Newer.").await.unwrap();
    let earlier = folded("- Task 1: done, https://forge.example/pull/21");
    assert_eq!(
        world.comment(),
        format!("Newer.{NOTICE}About task 1: It failed.{earlier}"),
        "it is over as it was"
    );
}

/// A task that is given back and begun again is as far as it was.
#[tokio::test]
async fn an_answer_lasts_while_a_task_is_queued_again() {
    let world = World::new().await;
    let release = LeaseEnd::Release {
        reason: "drain".into(),
        delay: Duration::ZERO,
        attempt: Attempt::Refunded,
    };
    let effects = world.reconciler().await;
    effects.answer_with_state("It is queued.").await.unwrap();
    let said = world.comment();
    assert!(said.ends_with("It is queued."), "{said}");
    world.end(release).await;
    let base = said.split(NOTICE).next().unwrap();
    effects.comment(base).await.unwrap();
    assert_eq!(world.comment(), said);
}

/// A person writes on the pull request that the task opened.
#[tokio::test]
async fn an_answer_is_where_the_person_asked() {
    let world = World::new().await;
    let effects = world.reconciler().await;
    effects
        .answer_on(&pull_item(), "It is done.")
        .await
        .unwrap();
    let posted = Posted {
        on: "pull_request 21".into(),
        marker: format!("<!-- agentmine:task={}:progress -->", world.task.id),
        body: "It is done.\n\n<sub>AgentMine, session none yet</sub>".into(),
    };
    assert_eq!(world.tracker.forge().comments, [posted]);
    // It replaces the one before it.
    effects.answer_on(&pull_item(), "It is.").await.unwrap();
    assert_eq!(
        world.comments_on("pull_request 21"),
        ["It is.\n\n<sub>AgentMine, session none yet</sub>"]
    );
    assert_eq!(world.comments_on("issue 7"), NONE);
    effects
        .answer_on(&world.task.item, "It is done.")
        .await
        .unwrap();
    assert_eq!(
        world.comments_on("issue 7"),
        [format!(
            "AgentMine tracks this as task 1.\n\n<sub>AgentMine, session none yet</sub>{NOTICE}It is done."
        )]
    );
    // The first round takes the comment over, and keeps the answer to the next question.
    let Enqueued::Created(round) = world.store.enqueue(&second_round()).await.unwrap() else {
        panic!("it is known");
    };
    let round = world.reconciler_of(round);
    round.comment("Round.").await.unwrap();
    assert_eq!(world.comments_on("pull_request 21"), ["Round."]);
    effects
        .answer_on(&pull_item(), "It is done.")
        .await
        .unwrap();
    let answer = format!("Round.{NOTICE}It is done.\n\n<sub>AgentMine, session none yet</sub>");
    assert_eq!(world.comments_on("pull_request 21"), [answer.as_str()]);
    round.comment("Round.").await.unwrap();
    assert_eq!(world.comments_on("pull_request 21"), [answer]);
}

/// There is no item on which anybody could read it.
#[tokio::test]
async fn a_task_without_an_item_has_no_comment() {
    let world = World::of_person().await;
    let effects = world.reconciler().await;
    effects.comment("text").await.unwrap();
    effects.answer("An answer.").await.unwrap();
    assert_eq!(world.requests(), NONE);
    let key = EffectKey::answer();
    let recorded = world.store.effect(world.task.id, &key).await.unwrap();
    assert!(recorded.is_some());
}

#[tokio::test]
async fn a_notice_that_cannot_be_read_is_an_error_that_names_it() {
    let world = World::new().await;
    let effects: Effects = world.reconciler().await;
    effects.done(&EffectKey::answer(), &7).await.unwrap();
    let unreadable = effects.comment("text").await.unwrap_err();
    assert!(matches!(unreadable, EffectError::Record { .. }));
    let shown = unreadable.to_string();
    let begin = "the record of comment answer cannot be read: ";
    assert!(shown.starts_with(begin), "{shown}");
    // Where the notice is another task's, nothing is recorded.
    effects.done(&EffectKey::answer(), &()).await.unwrap();
    effects.comment("text").await.unwrap();
    assert_eq!(world.comment(), "text");
}

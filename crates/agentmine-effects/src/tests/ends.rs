//! Reports of ends, by sessions and by sweeps: which requests are made, and what people read.

use std::time::Duration;

use agentmine_domain::{
    EffectKey, EndState, NewTask, TrackerKind, credentials_reason, pause_label_reason,
};
use agentmine_runtime::config::Labels;
use agentmine_runtime::permit::BootInstant;
use agentmine_store::{Enqueued, LeaseEnd};
use agentmine_trackers::{NewPullRequest, TrackerError};

use super::forge::{not_found, refused, unauthorized, unavailable};
use super::world::{MINUTE, NONE, World, done, finish, in_time, ours, pause, pull, second_round};
use crate::{EffectError, Effects, EndReport, work_comment};

/// The pull requests that are watched for further rounds, by the numbers of their tasks.
async fn watched(world: &World) -> Vec<i64> {
    let watched = world
        .store
        .watched_pulls(TrackerKind::GitHub, "forge.example");
    let tasks = watched.await.unwrap();
    tasks.iter().map(|task| task.number.0).collect()
}

#[tokio::test]
async fn each_end_is_reported_with_its_comment_and_label() {
    let unexplained = LeaseEnd::Finish {
        state: EndState::Failed,
        reason: None,
        pull_request_url: None,
    };
    for (end, label, text) in [
        (
            done(None),
            "coding agent done",
            "AgentMine opened a pull request with the measured results: https://forge.example/pull/21",
        ),
        (
            done(Some("partial: the check failed")),
            "coding agent done",
            "AgentMine opened a pull request with **a partial result**: https://forge.example/pull/21\n\n\
             Not done:\n\n```text\nthe check failed\n```",
        ),
        (
            finish(EndState::Failed, "no disk"),
            "coding agent failed",
            "AgentMine could not finish this task:\n\n```text\nno disk\n```",
        ),
        (
            unexplained,
            "coding agent failed",
            "AgentMine could not finish this task:\n\n```text\nno reason is recorded\n```",
        ),
        (
            finish(EndState::Stopped, "enough."),
            "coding agent stopped",
            "AgentMine stopped: enough. Anything that was pushed is on the branch `BRANCH`. \
             Add the label `coding agent` to queue it again.",
        ),
    ] {
        let world = World::new().await;
        world.end(end.clone()).await;
        // Nobody looks for a pull request that no attempt began to open.
        world.tracker.forge().hides_pulls = true;
        let report = world.report_end().await.unwrap();
        assert_eq!(report, EndReport::Written);
        let text = text.replace("BRANCH", &world.task.branch());
        let text = format!("{text}\n\n<sub>AgentMine, session ended</sub>");
        assert_eq!(world.comment(), text);
        assert_eq!(world.labels(), ["bug", label]);
        let expected = [
            "write_comment issue 7".to_owned(),
            format!("set_labels issue 7: {label}"),
        ];
        assert_eq!(world.requests(), expected);
        let left = world.unreported().await;
        assert_eq!(left, [], "nothing is left to report");
        let is_done = matches!(
            &end,
            LeaseEnd::Finish {
                state: EndState::Done,
                ..
            }
        );
        assert_eq!(watched(&world).await.len(), usize::from(is_done));
    }
}

/// Of an earlier version, or of a client of a person.
#[tokio::test]
async fn a_result_without_a_pull_request_is_shown_by_its_label() {
    let world = World::new().await;
    world.end(finish(EndState::Done, "")).await;
    world.reconciler().await.report_state().await.unwrap();
    assert_eq!(world.requests(), ["set_labels issue 7: coding agent done"]);
    assert_eq!(world.unreported().await, []);
}

#[tokio::test]
async fn a_pause_is_reported_by_its_label_and_a_queued_task_is_not_reported() {
    let world = World::new().await;
    let queued = world.report_end_for(MINUTE).await.unwrap();
    assert_eq!((queued, world.writes()), (EndReport::NotOurs, 0));
    world.end(pause()).await;
    world.report_end().await.unwrap();
    assert_eq!(world.labels(), ["bug", &Labels::default().paused]);
    assert!(world.tracker.forge().comments.is_empty());
}

#[tokio::test]
async fn a_pause_by_a_session_is_reported_with_why_and_how_to_continue() {
    for (reason, text) in [
        (
            " lunch. ".to_owned(),
            "AgentMine is paused: lunch. The comment `/agentmine resume` or the label `coding agent` continues it.",
        ),
        (
            "see #7".to_owned(),
            "AgentMine is paused: see #\u{200b}7. The comment `/agentmine resume` or the label `coding agent` continues it.",
        ),
        (
            pause_label_reason("on `hold`"),
            "AgentMine is paused while this has the label `on 'hold'`.",
        ),
    ] {
        let world = World::new().await;
        let effects = world.session(world.claim().await);
        effects.report_paused(&reason, "3").await.unwrap();
        let text = format!("{text}\n\n<sub>AgentMine, session 3</sub>");
        assert_eq!(world.comment(), text);
        assert_eq!(world.labels(), ["bug", "coding agent paused"]);
    }
}

#[tokio::test]
async fn refused_credentials_are_reported_as_far_as_they_allow_it() {
    let world = World::new().await;
    let effects = world.session(world.claim().await);
    effects.report_refused(" 401: expired ", "3").await.unwrap();
    assert_eq!(
        world.comment(),
        "AgentMine is paused here because a service refused its account or credentials. It continues on its own once they are accepted:\n\n\
         ```text\n401: expired\n```\n\n<sub>AgentMine, session 3</sub>"
    );
    assert_eq!(world.labels(), ["bug", "coding agent paused"]);

    let world = World::new().await;
    let effects = world.session(world.claim().await);
    world.tracker.forge().refusals.push(unauthorized());
    let reason = credentials_reason("401");
    effects.report_refused(&reason, "3").await.unwrap_err();
    assert_eq!(world.requests(), ["write_comment issue 7"]);
}

/// Its conversation is locked, or its comments are switched off.
#[tokio::test]
async fn an_item_that_takes_no_comment_takes_a_label() {
    let forbidden = TrackerError::Forbidden {
        tracker: TrackerKind::GitHub,
        detail: "403".into(),
        hint: "allow it".into(),
    };
    for refusal in [refused(), not_found(), forbidden] {
        let world = World::new().await;
        let effects = world.session(world.claim().await);
        world.tracker.forge().refusals.push(refusal);
        effects.report_failed("no disk", "1").await.unwrap();
        assert_eq!(world.labels(), ["bug", "coding agent failed"]);
        assert_eq!(world.comments_on("issue 7"), NONE);
    }
    for error in [unavailable(), unauthorized()] {
        let world = World::new().await;
        let effects = world.session(world.claim().await);
        world.tracker.forge().refusals.push(error);
        effects.report_failed("no disk", "1").await.unwrap_err();
        assert_eq!(world.requests(), ["write_comment issue 7"]);
    }
}

#[tokio::test]
async fn a_refused_report_is_given_up_and_a_temporary_failure_is_retried() {
    for (error, is_retried) in [
        (refused(), false),
        (not_found(), false),
        (unavailable(), true),
        // A token is renewed.
        (unauthorized(), true),
    ] {
        let world = World::new().await;
        world.end(finish(EndState::Failed, "no disk")).await;
        let shown = error.to_string();
        world.tracker.forge().faults.push(("set_labels", error));
        let report = world.reconciler().await.report_state().await;
        assert_eq!(report.is_err(), is_retried, "{shown}");
        let left = world.unreported().await;
        assert_eq!(left.len(), usize::from(is_retried), "{shown}");
        // The comment was written before the label.
        world.reconciler().await.report_state().await.unwrap();
        let comments = world.comments_on("issue 7");
        assert_eq!(comments.len(), 1, "{comments:?}");
        let expected = match is_retried {
            true => vec!["bug", "coding agent failed"],
            false => vec!["coding agent", "bug"],
        };
        assert_eq!(world.labels(), expected, "{shown}");
        assert_eq!(world.unreported().await, []);
    }
}

/// The answers were lost: everything was written.
#[tokio::test]
async fn a_report_whose_answers_were_lost_is_there_once() {
    let world = World::new().await;
    world.end(finish(EndState::Stopped, "enough")).await;
    for lost in ["write_comment", "set_labels"] {
        world.tracker.forge().lost.push(lost);
        let report = world.reconciler().await.report_state().await;
        report.unwrap_err();
    }
    world.reconciler().await.report_state().await.unwrap();
    assert!(world.comment().starts_with("AgentMine stopped: enough."));
    assert_eq!(world.labels(), ["bug", "coding agent stopped"]);
    let labelled = world.requests();
    let labelled = labelled.iter().filter(|it| it.starts_with("set_labels"));
    assert_eq!(labelled.count(), 1);
}

#[tokio::test]
async fn a_long_reason_is_truncated_in_the_comment() {
    let world = World::new().await;
    world
        .end(finish(EndState::Failed, &"x".repeat(20_000)))
        .await;
    world.report_end().await.unwrap();
    assert_eq!(
        world.comment(),
        format!(
            "AgentMine could not finish this task:\n\n```text\n{}…\n```\n\n<sub>AgentMine, session ended</sub>",
            "x".repeat(8_000)
        )
    );
}

#[tokio::test]
async fn an_end_is_reported_by_one_of_many_processes() {
    let world = World::new().await;
    world.end(finish(EndState::Failed, "no disk")).await;
    let reports = (0..8).map(|_| world.report_end_for(MINUTE));
    let reports = futures::future::join_all(reports).await;
    let written = reports
        .into_iter()
        .filter(|report| matches!(report, Ok(EndReport::Written)));
    assert_eq!(written.count(), 1);
    assert_eq!(world.writes(), 2, "one comment and one label");
}

#[tokio::test]
async fn a_report_that_was_listed_before_another_process_wrote_it_is_not_written_again() {
    let world = World::new().await;
    world.end(finish(EndState::Failed, "no disk")).await;
    world.report_end().await.unwrap();
    let writes = world.writes();
    world.report_end().await.unwrap();
    assert_eq!(world.writes(), writes);
}

/// A request that is under way when the permit lapses still has time to arrive before another process has the report.
#[tokio::test]
async fn the_permit_of_a_report_lapses_before_another_process_can_have_it() {
    let hold = Duration::from_millis(400);
    let world = World::new().await;
    world.end(finish(EndState::Failed, "no disk")).await;
    let begun = BootInstant::now();
    let claim = world.reporter(hold).claim(&world.row().await).await;
    let effects = claim.unwrap().unwrap();
    tokio::select! {
        biased;
        () = effects.permit.lapsed() => {}
        () = tokio::time::sleep(hold) => panic!("it lasts for longer than the report"),
    }
    assert!(begun.elapsed() >= hold / 2, "{:?}", begun.elapsed());
    assert_eq!(world.unreported().await.len(), 1);
}

#[tokio::test]
async fn a_stop_says_where_the_work_is() {
    let stopped = async |world: &World, effects: &Effects| {
        effects.report_stopped("enough", "1").await.unwrap();
        assert_eq!(world.labels(), ["bug", "coding agent stopped"]);
        world.comments_on("issue 7").concat()
    };
    let end = "Add the label `coding agent` to queue it again.\n\n<sub>AgentMine, session 1</sub>";
    for is_open in [true, false] {
        let world = World::new().await;
        let effects = world.session(world.claim().await);
        let branch = world.task.branch();
        let new = NewPullRequest {
            head: branch.clone(),
            ..pull("one")
        };
        effects
            .pull_request(&new, &ours("commit-1"), None)
            .await
            .unwrap();
        world.tracker.forge().pulls[0].0.open = is_open;
        let work = match is_open {
            true => "Its pull request stays open: https://forge.example/pull/21.".to_owned(),
            false => format!("Anything that was pushed is on the branch `{branch}`."),
        };
        let text = format!("AgentMine stopped: enough. {work} {end}");
        assert_eq!(stopped(&world, &effects).await, text);
        // It has a result, and the pull request says so.
        assert_eq!(world.comments_on("pull_request 21"), NONE);
    }
    // Of a pull request nobody asks where its work is.
    let world = World::of(&second_round()).await;
    let effects = world.session(world.claim().await);
    effects.report_stopped("enough", "1").await.unwrap();
    let text = format!("AgentMine stopped: enough. {end}");
    assert_eq!(world.comments_on("pull_request 21"), [text]);
}

/// The session recorded another name for it.
#[tokio::test]
async fn a_stop_names_the_branch_that_was_recorded() {
    let world = World::new().await;
    let effects = world.session(world.claim().await);
    let effects = effects.on_branch("fix/7-greet".into());
    effects.report_stopped("enough", "1").await.unwrap();
    let text = world.comment();
    assert!(text.contains("is on the branch `fix/7-greet`."), "{text}");
    assert_eq!(world.labels(), ["bug", "coding agent stopped"]);
}

#[tokio::test]
async fn the_result_of_a_task_without_an_item_is_written_nowhere_and_its_pull_request_is_watched() {
    let world = World::of_person().await;
    world.end(done(None)).await;
    world.reconciler().await.report_state().await.unwrap();
    assert_eq!(world.requests(), NONE);
    assert_eq!(watched(&world).await, [world.task.number.0]);
    assert_eq!(world.unreported().await, []);
}

/// An earlier comment of the same task is no result, unless its item is a pull request.
#[tokio::test]
async fn the_result_of_an_issue_replaces_whatever_its_comment_says() {
    let world = World::new().await;
    let effects = world.session(world.claim().await);
    effects.report_paused("lunch", "1").await.unwrap();
    let url = "https://forge.example/pull/21";
    effects.report_done(url, None, "2").await.unwrap();
    assert_eq!(
        world.comment(),
        "AgentMine opened a pull request with the measured results: https://forge.example/pull/21\n\n\
         <sub>AgentMine, session 2</sub>"
    );
}

/// It holds the whole evidence, which a sentence must not replace.
#[tokio::test]
async fn the_evidence_on_a_pull_request_is_not_replaced_by_its_report() {
    let url = "https://forge.example/pull/21";
    let world = World::of(&second_round()).await;
    let effects = world.session(world.claim().await);
    effects.comment("The evidence.").await.unwrap();
    effects.report_done(url, None, "1").await.unwrap();
    assert_eq!(world.comments_on("pull_request 21"), ["The evidence."]);
    assert_eq!(world.labels(), ["bug", "coding agent done"]);
    // A pull request that a task works on is watched by the task that opened it.
    assert!(watched(&world).await.is_empty());

    // A session that was at work died before it wrote the evidence.
    let world = World::of(&second_round()).await;
    let effects = world.session(world.claim().await);
    let work = work_comment(1, "1");
    effects.comment(&work).await.unwrap();
    let missing = Some("the check failed");
    effects.report_done(url, missing, "1").await.unwrap();
    assert_eq!(
        world.comments_on("pull_request 21"),
        [
            "AgentMine pushed its work to this pull request's branch, with **a partial result**.\n\nNot done:\n\n\
          ```text\nthe check failed\n```\n\n<sub>AgentMine, session 1</sub>"
        ]
    );
}

/// The comment shows the task before it.
#[tokio::test]
async fn the_evidence_of_an_earlier_round_is_not_taken_for_that_of_a_later_one() {
    let world = World::of(&second_round()).await;
    let claim = world.claim().await;
    let lease = claim.lease.clone();
    let earlier = world.session(claim);
    earlier.comment("The evidence.").await.unwrap();
    world.store.end_lease(&lease, &done(None)).await.unwrap();
    let new = NewTask {
        trigger: "round-3".into(),
        ..second_round()
    };
    let Enqueued::Created(later) = world.store.enqueue(&new).await.unwrap() else {
        panic!("it is known");
    };
    let later = world.session(world.claim_of(&later).await);
    let url = "https://forge.example/pull/21";
    later.report_done(url, None, "2").await.unwrap();
    assert_eq!(
        world.comments_on("pull_request 21"),
        [
            "AgentMine pushed its work to this pull request's branch, with the measured results.\n\n\
          <sub>AgentMine, session 2</sub>\n\n<!-- agentmine:earlier -->\n<details><summary>Earlier</summary>\n\n\
          - Round 2 (task 1): done\n\n</details>"
        ]
    );
}

/// An error of the forge in between leaves the label as it was: nobody reads of an end that the item does not show.
#[tokio::test]
async fn the_label_of_a_result_is_set_after_everything_else() {
    let world = World::new().await;
    let effects = world.session(world.claim().await);
    let key = EffectKey::pull_request_draft(&world.task.branch());
    effects.begin(&key).await.unwrap();
    world.tracker.forge().hides_pulls = true;
    let url = "https://forge.example/pull/21";
    let report = effects.report_done(url, None, "1").await;
    assert!(matches!(report, Err(EffectError::Tracker(_))), "{report:?}");
    assert_eq!(world.requests(), NONE);
    world.tracker.forge().hides_pulls = false;
    in_time(effects.report_done(url, None, "1")).await.unwrap();
    assert_eq!(world.labels(), ["bug", "coding agent done"]);
}

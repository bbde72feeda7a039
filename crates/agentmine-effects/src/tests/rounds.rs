//! Replies to the threads of reviews, and the end of the rounds on a pull request.

use agentmine_domain::{EffectKey, Round, RoundCause, RoundResult, ThreadAnswer};
use agentmine_store::Enqueued;

use super::forge::{Reply, refused, unauthorized, unavailable};
use super::world::{NONE, World, done, pull_item, requested_by, second_round};
use crate::Effects;

fn answer(thread: &str, text: &str) -> ThreadAnswer {
    ThreadAnswer {
        thread: thread.into(),
        text: text.into(),
    }
}

/// A session of the second round, with what is recorded of it.
async fn answered(resolve: bool) -> (World, Effects) {
    let world = World::of(&second_round()).await;
    let effects = world.session(world.claim().await);
    let lease = effects.lease.clone().unwrap();
    for (number, text) in [(1, "Of the first round."), (2, "Renamed.")] {
        let round = Round {
            pull: pull_item(),
            number,
            origin: world.task.id,
            head: "abc".into(),
            cause: RoundCause::default(),
            result: None,
        };
        world.store.begin_round(&round).await.unwrap();
        let mut answers = vec![answer("t1", text)];
        if number == 2 {
            answers.push(answer("t2", "It stays."));
        }
        let result = RoundResult {
            answers,
            resolve,
            ..RoundResult::default()
        };
        let recorded = world.store.round_result(&lease, number, &result);
        recorded.await.unwrap();
    }
    (world, effects)
}

fn replies(world: &World) -> Vec<Reply> {
    world.tracker.forge().replies.clone()
}

fn reply(world: &World, thread: &str, body: &str) -> Reply {
    Reply {
        thread: thread.into(),
        marker: format!("agentmine:task={}:thread-{thread}", world.task.id),
        body: body.into(),
    }
}

#[tokio::test]
async fn each_thread_of_a_round_gets_its_reply_once() {
    for resolve in [false, true] {
        let (world, effects) = answered(resolve).await;
        let url = "https://forge.example/pull/21";
        effects.report_done(url, None, "1").await.unwrap();
        let expected = [
            reply(&world, "t1", "Renamed."),
            reply(&world, "t2", "It stays."),
        ];
        assert_eq!(replies(&world), expected);
        let of_threads = |requests: Vec<String>| -> Vec<String> {
            let is_of_thread = |it: &String| it.contains("thread");
            requests.into_iter().filter(is_of_thread).collect()
        };
        let requests = of_threads(world.requests());
        let expected: &[&str] = match resolve {
            true => &[
                "reply_to_thread pull_request 21, t1",
                "resolve_thread pull_request 21, t1",
                "reply_to_thread pull_request 21, t2",
                "resolve_thread pull_request 21, t2",
            ],
            false => &[
                "reply_to_thread pull_request 21, t1",
                "reply_to_thread pull_request 21, t2",
            ],
        };
        assert_eq!(requests, expected);
        effects.answer_threads().await.unwrap();
        assert_eq!(world.requests(), NONE);
    }
}

/// A thread is resolved after its reply alone, and what was done before an error is not done twice.
#[tokio::test]
async fn a_reply_whose_answer_was_lost_is_there_once() {
    let (world, effects) = answered(true).await;
    world.tracker.forge().lost.push("reply_to_thread");
    effects.answer_threads().await.unwrap_err();
    assert_eq!(world.requests(), ["reply_to_thread pull_request 21, t1"]);
    world.tracker.forge().lost.push("resolve_thread");
    effects.answer_threads().await.unwrap_err();
    effects.answer_threads().await.unwrap();
    assert_eq!(replies(&world).len(), 2);
}

/// The comment that began it was deleted, or the conversation is locked.
#[tokio::test]
async fn a_thread_that_takes_no_reply_keeps_none_from_the_others() {
    for error in [refused(), unauthorized()] {
        let (world, effects) = answered(true).await;
        world.tracker.forge().refusals.push(error);
        effects.answer_threads().await.unwrap();
        assert_eq!(replies(&world), [reply(&world, "t2", "It stays.")]);
        assert_eq!(
            world.requests(),
            [
                "reply_to_thread pull_request 21, t1",
                "reply_to_thread pull_request 21, t2",
                "resolve_thread pull_request 21, t2"
            ]
        );
    }
    let (world, effects) = answered(true).await;
    world.tracker.forge().refusals.push(unavailable());
    effects.answer_threads().await.unwrap_err();
    effects.answer_threads().await.unwrap();
    assert_eq!(replies(&world).len(), 2);
}

/// A task on an issue is no round, and a round may have no answers.
#[tokio::test]
async fn without_answers_no_thread_gets_a_reply() {
    let world = World::new().await;
    world.reconciler().await.answer_threads().await.unwrap();
    assert_eq!(world.requests(), NONE);
    let world = World::of(&second_round()).await;
    world.reconciler().await.answer_threads().await.unwrap();
    assert_eq!(world.requests(), NONE);
}

const END: &str = "AgentMine does no further work on this pull request on its own: it has made 5 rounds. To continue, add the \
                   label `coding agent` to this pull request.\n\n<sub>AgentMine, session ended</sub>";

#[tokio::test]
async fn the_end_of_the_rounds_is_said_on_the_pull_request_once() {
    let world = World::new().await;
    world.end(done(None)).await;
    let effects = world.reconciler().await;
    world.tracker.forge().refusals.push(unavailable());
    let end = effects
        .end_rounds(&pull_item(), "it has made 5 rounds.")
        .await;
    end.unwrap_err();
    for _ in 0..2 {
        let end = effects
            .end_rounds(&pull_item(), "it has made 5 rounds.")
            .await;
        end.unwrap();
    }
    assert_eq!(world.comments_on("pull_request 21"), [END]);
    assert_eq!(world.comments_on("issue 7"), NONE);
    assert_eq!(world.requests().len(), 2, "the first one failed");
}

/// Its conversation is locked. The rounds end all the same.
#[tokio::test]
async fn a_pull_request_that_takes_no_comment_has_no_further_rounds_either() {
    for error in [refused(), unauthorized()] {
        let world = World::new().await;
        world.end(done(None)).await;
        let effects = world.reconciler().await;
        world.tracker.forge().refusals.push(error);
        for _ in 0..2 {
            let end = effects
                .end_rounds(&pull_item(), "it has made 5 rounds")
                .await;
            end.unwrap();
        }
        assert_eq!(world.requests(), ["write_comment pull_request 21"]);
    }
}

/// The pull request has a comment of the last round, which says its result. The end of the rounds is below it.
#[tokio::test]
async fn the_end_of_the_rounds_is_below_the_result_of_the_last_one() {
    let world = World::of(&second_round()).await;
    let round = world.session(world.claim().await);
    round.comment("The evidence.").await.unwrap();
    let lease = round.lease.clone().unwrap();
    world.store.end_lease(&lease, &done(None)).await.unwrap();
    let origin = world.store.enqueue(&requested_by("event-1")).await;
    let (Enqueued::Created(origin) | Enqueued::Known(origin)) = origin.unwrap();
    let effects = world.reconciler_of(origin);
    for _ in 0..2 {
        let end = effects
            .end_rounds(&pull_item(), "it has made 5 rounds")
            .await;
        end.unwrap();
    }
    let text = format!("The evidence.\n\n<!-- agentmine:notice -->\n{END}");
    assert_eq!(world.comments_on("pull_request 21"), [text.as_str()]);
    // A later edit by the round keeps it.
    let round = world.reconciler().await;
    round.comment("The evidence.").await.unwrap();
    assert_eq!(world.comments_on("pull_request 21"), [text]);
    let key = EffectKey::rounds_comment();
    let recorded = world.store.effect(world.task.id, &key).await.unwrap();
    assert!(recorded.is_some(), "with the task that has the comment");
}

//! Sessions that continue another one, and conversations that a model API refuses.

use agentmine_domain::{Epoch, Step, StepKind, Usage};
use agentmine_llm::{LlmError, Message};

use super::world::{Run, bad, calls, says};
use crate::journal::{Entry, decode_all};
use crate::*;

#[tokio::test]
async fn a_resumed_session_continues_and_reports_the_interrupted_call_to_the_model() {
    let first = Run::of(vec![calls(&["1", "2"]), says("never sent")]);
    first.go().await.unwrap();
    // Killed between the two calls: the second has no result.
    let steps: Vec<Step> = first.journal.steps().into_iter().take(5).collect();
    let second = Run::of(vec![says("done")]);
    let outcome = second.resume(&steps).await.unwrap();
    assert!(
        second.tools.called.lock().unwrap().is_empty(),
        "a call was run again"
    );
    let asked = &second.model.asked()[0];
    assert_eq!(
        asked[..4],
        first.model.asked()[1][..4],
        "the prefix changed"
    );
    let Message::Tool {
        call_id,
        text,
        is_error,
        ..
    } = &asked[asked.len() - 2]
    else {
        panic!()
    };
    assert!(call_id == "2" && *is_error && text.contains("outcome unknown"));
    assert!(matches!(asked.last(), Some(Message::User { text }) if text.contains("replaced")));
    assert_eq!(
        outcome.usage.model_calls, 2,
        "the usage of the first session counts"
    );
}

/// What a strict API refuses, as the scripted model of the story tests does: a call without a result, or a
/// result without a call.
fn is_in_order(messages: &[Message]) -> bool {
    let mut open: Vec<&str> = Vec::new();
    for message in messages {
        match message {
            Message::Tool { call_id, .. } => {
                let Some(at) = open.iter().position(|id| id == call_id) else {
                    return false;
                };
                open.remove(at);
            }
            _ if !open.is_empty() => return false,
            Message::Assistant(reply) => open.extend(reply.calls.iter().map(|c| c.id.as_str())),
            Message::System { .. } | Message::User { .. } => {}
        }
    }
    open.is_empty()
}

/// Old versions recorded a step twice if the outcome of its commit was unknown.
#[tokio::test]
async fn a_step_that_an_old_journal_holds_twice_is_read_once() {
    let first = Run::of(vec![calls(&["1", "2"]), says("never sent")]);
    first.go().await.unwrap();
    let steps = first.journal.steps();
    let killed: Vec<Step> = steps.into_iter().take(5).collect();
    let expected = Run::of(vec![says("done")]);
    let outcome = expected.resume(&killed).await.unwrap();
    for twice in 0..killed.len() {
        let mut steps = killed.clone();
        steps.insert(twice, killed[twice].clone());
        let second = Run::of(vec![says("done")]);
        assert_eq!(
            second.resume(&steps).await.unwrap(),
            outcome,
            "step {twice}"
        );
        assert_eq!(second.model.asked(), expected.model.asked(), "step {twice}");
        assert!(is_in_order(&second.model.asked()[0]), "step {twice}");
    }
}

#[tokio::test]
async fn a_journal_without_a_result_or_a_call_is_continued_in_order() {
    let first = Run::of(vec![calls(&["1", "2"]), calls(&["3"]), says("never sent")]);
    first.go().await.unwrap();
    let steps = first.journal.steps();
    for lost in 3..steps.len() - 3 {
        let mut steps = steps[..steps.len() - 3].to_vec();
        steps.remove(lost);
        let second = Run::of(vec![says("done")]);
        second.resume(&steps).await.unwrap();
        assert!(is_in_order(&second.model.asked()[0]), "without step {lost}");
    }
}

fn malformed() -> LlmError {
    LlmError::Refused {
        status: 400,
        body: "roles must alternate".into(),
    }
}

#[tokio::test]
async fn a_refused_conversation_is_sent_again_in_a_simpler_form() {
    let first = Run::of(vec![calls(&["1"]), says("never sent")]);
    first.go().await.unwrap();
    // Killed twice after the notice to the resumed model.
    let mut steps: Vec<Step> = first.journal.steps().into_iter().take(5).collect();
    for epoch in [2, 3] {
        let notice = Entry::from(Prompt::user("the worker was replaced"));
        steps.push(Step {
            epoch: Epoch(epoch),
            kind: notice.kind(),
            payload: notice.encode().unwrap(),
            ..steps[0].clone()
        });
    }
    let second = Run::of(vec![]);
    let replies = [Err(malformed()), Ok(calls(&["1"])), Ok(says("done"))];
    second.model.replies.lock().unwrap().extend(replies);
    second.resume(&steps).await.unwrap();
    let asked = second.model.asked();
    let [as_it_was, simple, later] = asked.as_slice() else {
        panic!("{} requests", asked.len());
    };
    let roles_alternate = |messages: &[Message]| {
        let kind = std::mem::discriminant;
        messages
            .windows(2)
            .all(|pair| kind(&pair[0]) != kind(&pair[1]))
    };
    assert!(!roles_alternate(as_it_was) && roles_alternate(simple));
    assert!(is_in_order(simple) && is_in_order(later));
    assert_eq!(later[..simple.len()], simple[..], "the prefix changed");
    let notes = second.journal.kinds();
    assert!(notes.contains(&StepKind::Note), "{notes:?}");
}

/// Some refuse an empty reply, and one without its reasoning too; others refuse the reasoning.
#[tokio::test]
async fn a_refused_conversation_keeps_its_reasoning_until_it_is_refused_again() {
    let thinks = || {
        let mut reply = calls(&["1"]);
        let thoughts = ("reasoning_content".to_owned(), "So".into());
        reply.extra.extend([thoughts]);
        reply
    };
    for refusals in [1, 2] {
        let run = Run::of(vec![thinks(), says("")]);
        let refused = (0..refusals).map(|_| Err(malformed()));
        let replies = refused.chain([Ok(says("done"))]);
        run.model.replies.lock().unwrap().extend(replies);
        run.go().await.unwrap();
        let last = run.model.asked().pop().unwrap();
        let has = |reply| last.contains(&Message::Assistant(reply));
        assert!(is_in_order(&last) && !has(says("")), "{last:?}");
        assert_eq!(has(thinks()), refusals == 1, "{last:?}");
        // Mistral wants one between a result and a user message.
        assert_eq!(has(says("Understood.")), refusals == 2, "{last:?}");
    }
}

#[tokio::test]
async fn only_a_conversation_that_was_accepted_before_is_refused_for_its_form() {
    let begun = Run::of(vec![calls(&["1"])]);
    // Once as it is, and once in a simpler form.
    let refusals = [Err(malformed()), Err(malformed())];
    begun.model.replies.lock().unwrap().extend(refusals);
    let error = begun.go().await.unwrap_err();
    assert!(matches!(error, AgentError::Conversation(_)), "{error:?}");
    let opening = Run::of(vec![]);
    opening
        .model
        .replies
        .lock()
        .unwrap()
        .push_back(Err(malformed()));
    let error = opening.go().await.unwrap_err();
    assert!(matches!(error, AgentError::Model(_)), "{error:?}");
}

#[tokio::test]
async fn a_session_resumed_after_the_final_message_measures_without_a_model_call() {
    let first = Run::of(vec![says("done")]);
    first.go().await.unwrap();
    let steps = first.journal.steps();
    let second = Run::of(Vec::new());
    let outcome = second.resume(&steps).await.unwrap();
    assert_eq!(
        (outcome.last_message.as_str(), outcome.missing),
        ("done", None)
    );
}

#[tokio::test]
async fn a_call_as_text_before_a_kill_is_no_final_message() {
    let first = Run::of(vec![says("<tool_call>\n{}"), says("never sent")]);
    first.go().await.unwrap();
    // Killed before the model was informed.
    let steps: Vec<Step> = first.journal.steps().into_iter().take(4).collect();
    assert_eq!(steps[3].kind, StepKind::ModelReply);
    let second = Run::of(vec![calls(&["1"]), says("done")]);
    assert_eq!(second.resume(&steps).await.unwrap().last_message, "done");
    assert_eq!(second.model.asked().len(), 2);
}

/// Otherwise each session after an outage of the forge would pay for the same rounds.
#[tokio::test]
async fn a_result_that_could_not_be_reported_is_not_worked_on_again() {
    let mut first = Run::of(vec![says("done"), says("fixed"), says("fixed again")]);
    first.facts = vec![bad()];
    let outcome = first.go().await.unwrap();
    assert_eq!((outcome.rounds, outcome.missing.is_some()), (3, true));
    let mut second = Run::of(vec![says("never sent")]);
    second.facts = vec![bad()];
    let again = second.resume(&first.journal.steps()).await.unwrap();
    assert_eq!(again, outcome);
    assert!(second.model.asked().is_empty());
    // Killed during the second round, it has one more.
    let steps: Vec<Step> = first.journal.steps().into_iter().take(7).collect();
    let replies = ["fixed", "fixed again", "never sent"].map(says);
    let mut second = Run::of(replies.into());
    second.facts = vec![bad()];
    let again = second.resume(&steps).await.unwrap();
    assert_eq!((again.rounds, again.missing.is_some()), (3, true));
}

#[tokio::test]
async fn work_that_was_stopped_with_a_result_stays_stopped() {
    let mut first = Run::of(vec![calls(&["1"]), calls(&["2"])]);
    first.budget.steps = 2;
    let outcome = first.go().await.unwrap();
    assert!(outcome.missing.is_some());
    let second = Run::of(vec![says("never sent")]);
    let again = second.resume(&first.journal.steps()).await.unwrap();
    assert_eq!(again, outcome);
    assert!(second.model.asked().is_empty());
    // Without a result, whoever asks again wants it worked on.
    let mut first = Run::of(vec![calls(&["1"]), calls(&["2"])]);
    first.budget.steps = 2;
    first.facts = vec![Facts::default()];
    first.go().await.unwrap();
    let second = Run::of(vec![says("done")]);
    let again = second.resume(&first.journal.steps()).await.unwrap();
    assert_eq!(again.missing, None);
}

#[tokio::test]
async fn a_session_killed_between_the_opening_prompts_still_sends_the_task() {
    let first = Run::of(vec![says("done")]);
    first.go().await.unwrap();
    let second = Run::of(vec![says("done")]);
    let steps = first.journal.steps();
    let has_task = |steps| History::replay(&decode_all(steps).unwrap()).0.has_task();
    assert!(!has_task(&steps[..1]) && has_task(&steps[..2]));
    second.resume(&steps[..1]).await.unwrap();
    assert_eq!(second.model.asked()[0], first.model.asked()[0]);
}

#[test]
fn use_of_the_model_by_tools_is_restored_on_resume() {
    let used = Usage {
        model_calls: 1,
        output_tokens: 5,
        ..Usage::default()
    };
    let entry = Entry::ModelUse {
        text: "a server called the model".into(),
        usage: used,
    };
    let (history, usage) = History::replay(&[entry]);
    assert!(history.messages().is_empty());
    assert_eq!(usage, used);
}

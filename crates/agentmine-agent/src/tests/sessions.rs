//! Runs of the loop: replies, tool calls, limits, rounds, and what people write meanwhile.

use agentmine_domain::{StepKind, Usage};
use agentmine_llm::{
    Credentials, LlmError, Message, ModelReply, Overflow, RequestCost, Stop, ToolCall,
};

use super::world::{End, Run, bad, calls, ended, good, remark, says};
use crate::journal::{Entry, decode_all, given_remarks};
use crate::*;

#[tokio::test]
async fn several_calls_in_one_reply_run_in_order_and_each_is_journaled_before_the_next() {
    let run = Run::of(vec![calls(&["1", "2"]), says("done")]);
    let outcome = run.go().await.unwrap();
    assert_eq!(*run.tools.called.lock().unwrap(), ["1", "2"]);
    assert_eq!(outcome.missing, None);
    assert_eq!(outcome.last_message, "done");
    assert_eq!(
        (outcome.usage.model_calls, outcome.usage.tool_calls),
        (2, 2)
    );
    use StepKind::*;
    assert_eq!(
        run.journal.kinds(),
        [
            Prompt, Prompt, Phase, ModelReply, ToolResult, ToolResult, ModelReply, Phase, Fact
        ]
    );
}

#[tokio::test]
async fn nothing_runs_when_the_reply_could_not_be_journaled() {
    let mut run = Run::of(vec![calls(&["1"])]);
    run.journal.refuse_after = Some(3);
    assert_eq!(ended(&run).await, End("lease lost"));
    assert!(run.tools.called.lock().unwrap().is_empty());
}

#[tokio::test]
async fn failing_checks_are_returned_to_the_model_with_their_output() {
    let mut run = Run::of(vec![says("done"), says("fixed")]);
    run.facts = vec![bad(), good()];
    let outcome = run.go().await.unwrap();
    assert_eq!((outcome.missing, outcome.rounds), (None, 2));
    let Message::User { text } = run.model.asked()[1].last().unwrap().clone() else {
        panic!()
    };
    assert!(
        text.contains("`make test` failed with exit code 2") && text.contains("boom"),
        "{text}"
    );
}

#[tokio::test]
async fn an_empty_reply_is_retried_and_three_are_stuck() {
    let run = Run::of(vec![says(""), says("done")]);
    assert_eq!(run.go().await.unwrap().missing, None);
    let run = Run::of(vec![says(""), says(" "), says("")]);
    let missing = run.go().await.unwrap().missing.unwrap();
    assert!(
        missing.contains("3 empty or truncated replies"),
        "{missing}"
    );
}

#[tokio::test]
async fn calls_of_a_truncated_reply_get_an_error_and_are_not_run() {
    let cut = ModelReply {
        stop: Stop::Length,
        ..calls(&["1"])
    };
    let run = Run::of(vec![cut, says("done")]);
    run.go().await.unwrap();
    assert!(run.tools.called.lock().unwrap().is_empty());
    let second = run.model.asked()[1].clone();
    assert!(
        second
            .iter()
            .any(|m| matches!(m, Message::Tool { call_id, is_error: true, .. } if call_id == "1"))
    );
}

#[tokio::test]
async fn a_reply_that_a_content_filter_ended_is_neither_run_nor_the_end_of_the_work() {
    let filtered = |reply: ModelReply| ModelReply {
        stop: Stop::Filtered,
        ..reply
    };
    let replies = vec![
        filtered(says("I now")),
        filtered(calls(&["1"])),
        says("done"),
    ];
    let run = Run::of(replies);
    let outcome = run.go().await.unwrap();
    assert_eq!(outcome.missing, None);
    assert_eq!(outcome.last_message, "done");
    assert!(run.tools.called.lock().unwrap().is_empty());
    let results = run.model.asked()[2].clone();
    let is_refusal = |message: &Message| matches!(message, Message::Tool { text, is_error: true, .. } if text.contains("content filter"));
    assert!(results.iter().any(is_refusal), "{results:?}");
    let run = Run::of((0..3).map(|_| filtered(says("I now"))).collect());
    let missing = run.go().await.unwrap().missing.unwrap();
    assert!(missing.contains("content filter"), "{missing}");
}

#[tokio::test]
async fn replies_that_are_always_cut_off_name_the_setting() {
    let cut = || ModelReply {
        stop: Stop::Length,
        ..says("I now")
    };
    let run = Run::of(vec![cut(), cut(), cut()]);
    let missing = run.go().await.unwrap().missing.unwrap();
    assert!(missing.contains("model.max_output_tokens"), "{missing}");
}

/// A reply with these calls, each the same.
fn same(count: usize) -> ModelReply {
    let call = |n| ToolCall {
        id: format!("x{n}"),
        name: "t".into(),
        arguments: "{}".into(),
        ..ToolCall::default()
    };
    ModelReply {
        calls: (0..count).map(call).collect(),
        ..calls(&[])
    }
}

/// The texts of the user messages after the task, in the newest request.
fn sent(run: &Run) -> Vec<String> {
    let texts = run.model.asked().pop().unwrap().into_iter();
    let texts = texts.filter_map(|message| match message {
        Message::User { text } => Some(text),
        _ => None,
    });
    texts.skip(1).collect()
}

#[tokio::test]
async fn a_call_that_repeats_is_warned_of_and_one_more_is_stuck() {
    let run = Run::of(vec![same(1), same(1), same(1), same(1)]);
    let missing = run.go().await.unwrap().missing.unwrap();
    let expected = "the agent was stuck: t was called 4 times with the same result";
    assert!(missing.starts_with(expected), "{missing}");
    let sent = sent(&run);
    assert_eq!(sent.len(), 1);
    assert!(sent[0].starts_with("t was called 3 times"), "{}", sent[0]);
}

#[tokio::test]
async fn a_model_that_does_something_else_after_the_warning_continues() {
    let run = Run::of(vec![
        same(1),
        same(1),
        same(1),
        calls(&["other"]),
        same(1),
        says("done"),
    ]);
    let outcome = run.go().await.unwrap();
    assert_eq!((outcome.missing, &*outcome.last_message), (None, "done"));
}

#[tokio::test]
async fn of_the_same_calls_in_one_reply_three_run_and_the_others_get_an_error() {
    let run = Run::of(vec![same(5), says("done")]);
    assert_eq!(run.go().await.unwrap().missing, None);
    assert_eq!(*run.tools.called.lock().unwrap(), ["x0", "x1", "x2"]);
    let refused = |message: &&Message| matches!(message, Message::Tool { text, is_error: true, .. } if text.starts_with("not run"));
    let asked = run.model.asked().pop().unwrap();
    assert_eq!(asked.iter().filter(refused).count(), 2);
    assert!(matches!(asked.last(), Some(Message::User { .. })));
}

#[tokio::test]
async fn a_call_as_text_is_not_the_end_of_the_work() {
    let as_text = || says("Let me look.\n<tool_call>\n{\"name\": \"t\"}\n</tool_call>");
    let run = Run::of(vec![as_text(), calls(&["1"]), says("done")]);
    let outcome = run.go().await.unwrap();
    assert_eq!((outcome.missing, outcome.rounds), (None, 1));
    let sent = sent(&run);
    assert!(
        sent[0].contains("a tool call written as text"),
        "{}",
        sent[0]
    );
    let run = Run::of(vec![as_text(), as_text(), as_text()]);
    let missing = run.go().await.unwrap().missing.unwrap();
    assert!(missing.contains("--tool-call-parser"), "{missing}");
}

#[tokio::test]
async fn thoughts_in_a_reply_are_no_last_message() {
    let thinks = says("<think>\nIs it done?\n</think>\n");
    let run = Run::of(vec![thinks, says("<think>\nYes.\n</think>\n\nI fixed it.")]);
    assert_eq!(run.go().await.unwrap().last_message, "I fixed it.");
    let sent = sent(&run);
    assert!(sent[0].starts_with("Your reply was empty"), "{}", sent[0]);
    // Nor are they the newest text of one that was stopped.
    let thinking = ModelReply {
        text: "<think>\nWhat now?\n</think>".into(),
        ..calls(&["1"])
    };
    let mut run = Run::of(vec![thinking]);
    run.budget.steps = 1;
    assert_eq!(run.go().await.unwrap().last_message, "");
}

#[tokio::test]
async fn the_model_is_warned_once_before_a_limit() {
    let numbers: Vec<String> = (0..11).map(|n| n.to_string()).collect();
    let mut replies: Vec<ModelReply> = numbers.iter().map(|n| calls(&[n.as_str()])).collect();
    replies.push(says("done"));
    let mut run = Run::of(replies);
    run.budget.steps = 12;
    run.go().await.unwrap();
    let sent = sent(&run);
    assert_eq!(sent.len(), 1, "{sent:?}");
    let expected = "A limit of this task is near: 11 of 12 model calls used.";
    assert!(sent[0].starts_with(expected), "{}", sent[0]);
    let mut run = Run::of(vec![calls(&["1"]), calls(&["2"]), says("done")]);
    run.budget.tokens = Some(24);
    run.go().await.unwrap();
    let sent = self::sent(&run);
    assert!(sent[0].contains("22 tokens used of 24"), "{sent:?}");
    // What earlier sessions worked counts.
    let mut run = Run::of(vec![says("done")]);
    run.worked = run.budget.wall_time * 19 / 20;
    run.go().await.unwrap();
    let sent = self::sent(&run);
    assert!(sent[0].contains("57 of 60 s"), "{sent:?}");
}

#[tokio::test]
async fn a_question_without_a_change_is_not_pressed_for_one() {
    let mut run = Run::of(vec![says("No change is needed."), says("None, because …")]);
    run.facts = vec![Facts::default(), good()];
    run.go().await.unwrap();
    let sent = sent(&run);
    assert!(
        sent[0].contains("If nothing has to be changed"),
        "{}",
        sent[0]
    );
}

#[tokio::test]
async fn limits_are_checked_before_each_model_call() {
    let mut run = Run::of(vec![calls(&["1"]), calls(&["2"])]);
    run.budget.steps = 2;
    let outcome = run.go().await.unwrap();
    assert_eq!(run.model.asked().len(), 2);
    assert!(outcome.missing.unwrap().contains("2 model calls"));
}

#[tokio::test(start_paused = true)]
async fn the_time_limit_holds_for_many_calls_of_one_reply() {
    let mut run = Run::of(vec![calls(&["1", "2", "3", "4"])]);
    run.tools.takes = run.budget.wall_time * 2 / 3;
    let missing = run.go().await.unwrap().missing.unwrap();
    assert!(missing.contains("60 s of wall time"), "{missing}");
    assert_eq!(*run.tools.called.lock().unwrap(), ["1", "2"]);
    let mut resumed = Run::of(vec![calls(&["1", "2"])]);
    resumed.tools.takes = run.tools.takes;
    resumed.worked = run.budget.wall_time / 2;
    resumed.go().await.unwrap();
    assert_eq!(*resumed.tools.called.lock().unwrap(), ["1"]);
    // A conversation is refused in which a call has no result.
    let kinds = run.journal.kinds();
    let results = kinds.iter().filter(|kind| **kind == StepKind::ToolResult);
    assert_eq!(results.count(), 4);
}

#[tokio::test]
async fn a_stop_request_ends_the_session_before_the_model_is_called() {
    let mut run = Run::of(vec![says("never")]);
    run.journal.interrupt = Some(End("stop"));
    assert_eq!(ended(&run).await, End("stop"));
    assert!(run.model.asked().is_empty());
}

#[tokio::test]
async fn a_workers_error_in_a_tool_ends_the_session() {
    let mut run = Run::of(vec![calls(&["1"])]);
    run.tools.fault = Some(End("sandbox gone"));
    assert_eq!(ended(&run).await, End("sandbox gone"));
}

#[tokio::test]
async fn a_failed_model_call_ends_the_session_with_its_error() {
    let run = Run::of(Vec::new());
    run.model
        .replies
        .lock()
        .unwrap()
        .push_back(Err(LlmError::Protocol("nonsense".into())));
    let error = run.go().await.unwrap_err();
    assert!(
        matches!(error, AgentError::Model(LlmError::Protocol(_))),
        "{error}"
    );
}

#[tokio::test]
async fn what_replies_that_broke_off_may_have_cost_is_recorded_before_the_session_ends() {
    let each = Usage {
        model_calls: 1,
        input_tokens: 1000,
        ..Usage::default()
    };
    let unavailable = LlmError::Unavailable {
        tries: 5,
        detail: "the reply broke off".into(),
        until: None,
    };
    // The key was revoked between two tries.
    let revoked = LlmError::Unauthorized {
        status: 401,
        body: "revoked".into(),
        credentials: Credentials::Sent,
        variable: "OPENAI_API_KEY",
    };
    for error in [unavailable, revoked] {
        let mut run = Run::of(Vec::new());
        run.model.failed = Some(RequestCost::Reply);
        run.model.estimate = each;
        run.model.replies.lock().unwrap().push_back(Err(error));
        run.go().await.unwrap_err();
        let used: Vec<Usage> = decode_all(&run.journal.steps())
            .unwrap()
            .iter()
            .map(Entry::usage)
            .filter(|it| *it != Usage::default())
            .collect();
        assert_eq!(used, [each]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_a_session_does_not_wait_for_is_counted_before_it_ends() {
    let estimate = Usage {
        model_calls: 1,
        input_tokens: 700,
        cost_micros: 70,
        ..Usage::default()
    };
    let mut run = Run::of(Vec::new());
    run.model.hangs = true;
    run.model.estimate = estimate;
    run.journal.interrupt = Some(End("drain"));
    let used = |run: &Run| {
        let mut sum = Usage::default();
        for entry in decode_all(&run.journal.steps()).unwrap() {
            sum += entry.usage();
        }
        sum
    };
    assert_eq!(ended(&run).await, End("drain"));
    assert_eq!(used(&run), Usage::default(), "nothing was sent yet");
    run.journal.interrupt_after = std::time::Duration::from_secs(1);
    assert_eq!(ended(&run).await, End("drain"));
    assert_eq!(run.model.asked().len(), 1);
    assert_eq!(used(&run), estimate);
    let mut sum = estimate;
    for (cost, expected) in [
        (RequestCost::Nothing, Usage::default()),
        (RequestCost::Unknown, estimate),
        (RequestCost::Reply, estimate),
    ] {
        run.model.failed = Some(cost);
        assert_eq!(ended(&run).await, End("drain"));
        sum += expected;
        assert_eq!(used(&run), sum, "{cost:?}");
    }
}

#[tokio::test]
async fn the_conversation_is_append_only_for_prompt_caching() {
    let run = Run::of(vec![calls(&["1"]), calls(&["2"]), says(""), says("done")]);
    run.go().await.unwrap();
    for pair in run.model.asked().windows(2) {
        assert_eq!(pair[0][..], pair[1][..pair[0].len()]);
    }
}

#[tokio::test]
async fn a_full_context_ends_with_the_work_so_far() {
    let run = Run::of(vec![calls(&["1"])]);
    let full = LlmError::ContextTooLong(Overflow {
        prompt: Some(9120),
        window: Some(8192),
        text: "{}".into(),
    });
    run.model.replies.lock().unwrap().push_back(Err(full));
    let missing = run.go().await.unwrap().missing.unwrap();
    // No result is longer than what would stand for it.
    assert_eq!(run.model.asked().len(), 2);
    assert!(
        missing.starts_with("the conversation is too long for the model: it has 9120 tokens, and the model's window has 8192"),
        "{missing}"
    );
}

/// A session that resumes the conversation sends the same.
#[tokio::test]
async fn a_full_context_continues_without_the_oldest_results() {
    let mut run = Run::of(["1", "2", "3", "4", "5"].map(|id| calls(&[id])).into());
    run.tools.result = Some("line\n".repeat(100));
    let full = || Err(LlmError::ContextTooLong(Overflow::default()));
    let later = [full(), full(), Ok(calls(&["6"])), Ok(says("done"))];
    run.model.replies.lock().unwrap().extend(later);
    assert_eq!(run.go().await.unwrap().missing, None);
    let asked = run.model.asked();
    let is_omitted = |message: &Message| match message {
        Message::Tool { text, .. } => Some(text.starts_with("omitted, since")),
        Message::System { .. } | Message::User { .. } | Message::Assistant(_) => None,
    };
    let omitted = |at: usize| -> Vec<bool> { asked[at].iter().filter_map(is_omitted).collect() };
    assert_eq!(omitted(5), [false; 5]);
    assert_eq!(omitted(6), [true, true, true, false, false]);
    // The newest result stays.
    assert_eq!(omitted(7), [true, true, true, true, false]);
    assert_eq!(omitted(8), [true, true, true, true, false, false]);
    for (before, after) in asked[5].iter().zip(&asked[7]) {
        assert!(
            before == after || is_omitted(after) == Some(true),
            "{after:?}"
        );
    }

    let entries = decode_all(&run.journal.steps()).unwrap();
    let (replayed, _) = History::replay(&entries);
    assert_eq!(replayed.messages()[..asked[8].len()], asked[8]);
}

/// Some servers say it in a word. Others say that the output limit was reached, whatever the model is asked to do then.
#[tokio::test]
async fn a_reply_without_room_continues_without_the_oldest_results() {
    let cut = |stop| ModelReply {
        stop,
        ..says(match stop {
            // While it thinks.
            Stop::Length => "",
            _ => "I now",
        })
    };
    for stops in [vec![Stop::WindowFull], vec![Stop::Length; 3]] {
        let mut run = Run::of(["1", "2", "3"].map(|id| calls(&[id])).into());
        run.tools.result = Some("line\n".repeat(100));
        let later = stops.iter().map(|stop| Ok(cut(*stop)));
        let later = later.chain([Ok(says("done"))]);
        run.model.replies.lock().unwrap().extend(later);
        assert_eq!(run.go().await.unwrap().missing, None, "{stops:?}");
        let asked = run.model.asked();
        let omitted = asked.last().unwrap().iter().filter(|message| {
            matches!(message, Message::Tool { text, .. } if text.starts_with("omitted, since"))
        });
        assert_eq!(omitted.count(), 2, "{stops:?}");
        let entries = decode_all(&run.journal.steps()).unwrap();
        let (replayed, _) = History::replay(&entries);
        let last = asked.last().unwrap();
        assert_eq!(replayed.messages()[..last.len()], last[..]);
    }
    let run = Run::of(vec![cut(Stop::WindowFull)]);
    let missing = run.go().await.unwrap().missing.unwrap();
    assert!(missing.starts_with("the conversation fills"), "{missing}");
    // Once, and not where the model writes more than it may.
    for (text, replies) in [("", 6), ("I now", 3)] {
        let mut run = Run::of(["1", "2", "3"].map(|id| calls(&[id])).into());
        run.tools.result = Some("line\n".repeat(100));
        let long = ModelReply {
            stop: Stop::Length,
            ..says(text)
        };
        let later = std::iter::repeat_n(long, replies).map(Ok);
        run.model.replies.lock().unwrap().extend(later);
        let missing = run.go().await.unwrap().missing.unwrap();
        assert!(missing.contains("model.max_output_tokens"), "{missing}");
        assert_eq!(run.model.asked().len(), 3 + replies);
    }
}

/// One model call may have many results.
#[tokio::test]
async fn where_the_newest_results_alone_are_too_long_all_but_the_last_are_omitted() {
    let mut run = Run::of(vec![calls(&["1", "2", "3"])]);
    run.tools.result = Some("line\n".repeat(100));
    let full = || Err(LlmError::ContextTooLong(Overflow::default()));
    let later = [full(), full(), full()];
    run.model.replies.lock().unwrap().extend(later);
    let missing = run.go().await.unwrap().missing.unwrap();
    assert!(
        missing.starts_with("the conversation is too long"),
        "{missing}"
    );
    let asked = run.model.asked();
    let last = asked.last().unwrap();
    let texts = last.iter().filter_map(|message| match message {
        Message::Tool { text, .. } => Some(text.starts_with("omitted, since")),
        Message::System { .. } | Message::User { .. } | Message::Assistant(_) => None,
    });
    assert_eq!(texts.collect::<Vec<_>>(), [true, true, false]);
}

#[tokio::test]
async fn a_server_that_silently_drops_the_beginning_ends_with_the_work_so_far() {
    let mut run = Run::of(vec![
        calls(&["1"]),
        calls(&["2"]),
        calls(&["3"]),
        calls(&["4"]),
    ]);
    run.model.input_tokens = 4096;
    run.tools.result = Some("line\n".repeat(8 * 1024));
    let missing = run.go().await.unwrap().missing.unwrap();
    assert!(
        missing.starts_with(
            "the model's server does not read the whole conversation: it counted 4096 input tokens"
        ),
        "{missing}"
    );
    // The calls of a reply to half a conversation are not run.
    assert_eq!(*run.tools.called.lock().unwrap(), ["1", "2", "3"]);
}

#[test]
fn a_guessed_check_that_cannot_run_does_not_count() {
    let mut facts = bad();
    facts.checks[0].standing = Standing::NotRun("not found".into());
    assert_eq!(missing(&facts), None);
}

#[tokio::test]
async fn tools_are_refreshed_only_before_each_model_call() {
    let run = Run::of(vec![calls(&["1", "2"]), says("done")]);
    run.go().await.unwrap();
    let offered = run.model.offered.lock().unwrap().clone();
    assert_eq!(offered, ["tool_1", "tool_2"]);
}

#[tokio::test]
async fn use_of_the_model_by_tools_counts_against_the_budget() {
    let mut run = Run::of(vec![calls(&["1"]), says("never sent")]);
    run.tools.uses = Usage {
        model_calls: 1,
        cost_micros: 700,
        ..Usage::default()
    };
    run.budget.cost_micros = Some(700);
    let outcome = run.go().await.unwrap();
    assert_eq!(outcome.usage.cost_micros, 700);
    assert_eq!(outcome.usage.model_calls, 2);
    assert!(outcome.missing.unwrap().contains("spent"));
}

#[tokio::test]
async fn empty_and_truncated_replies_get_different_prompts() {
    let cut = ModelReply {
        stop: Stop::Length,
        ..calls(&["1"])
    };
    let run = Run::of(vec![says(" "), cut, says("done")]);
    run.go().await.unwrap();
    let last = run.model.asked().pop().unwrap();
    let prompts: Vec<&str> = last
        .iter()
        .filter_map(|message| match message {
            Message::User { text } => Some(text.as_str()),
            _ => None,
        })
        .skip(1)
        .collect();
    assert!(
        prompts[0].starts_with("Your reply was empty"),
        "{prompts:?}"
    );
    assert!(
        prompts[1].starts_with("Your reply was cut off"),
        "{prompts:?}"
    );
    assert!(run.tools.called.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_run_that_ran_out_of_budget_keeps_the_newest_text_of_the_model() {
    let talking = ModelReply {
        text: "Half of it is done.".into(),
        ..calls(&["1"])
    };
    let mut run = Run::of(vec![talking, calls(&["2"])]);
    run.budget.steps = 2;
    let outcome = run.go().await.unwrap();
    assert_eq!(outcome.last_message, "Half of it is done.");
}

#[tokio::test]
async fn what_people_write_meanwhile_is_recorded_and_given_before_the_next_model_call() {
    let run = Run::of(vec![calls(&["1"]), says("done"), says("done again")]);
    // At the first model call, at the second one, and at the end of the turn.
    let posts = [
        vec![],
        vec![remark("7", "Use a constant. <!-- evil -->")],
        vec![remark("8", "And a test.")],
    ];
    *run.inbox.0.lock().unwrap() = posts.into();
    let outcome = run.go().await.unwrap();
    assert_eq!(outcome.last_message, "done again");
    let entries = decode_all(&run.journal.steps()).unwrap();
    let given = given_remarks(&entries).unwrap();
    assert_eq!(given.into_iter().collect::<Vec<_>>(), ["7", "8"]);
    let texts: Vec<String> = entries
        .iter()
        .filter_map(|entry| match entry {
            Entry::Prompt { text, .. } if text.contains("while you work") => Some(text.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(texts.len(), 2);
    assert!(texts[0].contains("> Use a constant."), "{}", texts[0]);
    assert!(!texts[0].contains("evil"), "{}", texts[0]);
    // A takeover finds them in the conversation.
    let (history, _) = History::replay(&entries);
    let of_people = history
        .messages()
        .iter()
        .filter(|it| matches!(it, Message::User { text } if text.contains("while you work")));
    assert_eq!(of_people.count(), 2);
}

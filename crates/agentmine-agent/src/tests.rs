//! Tests of the loop through its public interface: a scripted model, and tools and a journal in memory.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

use agentmine_domain::{Budget, Epoch, Seq, Step, StepKind, Usage};
use agentmine_llm::{
    Delta, LlmError, Message, Model, ModelReply, ModelRequest, Overflow, Stop, ToolCall, ToolSpec,
};
use async_trait::async_trait;
use serde_json::json;
use tokio::sync::mpsc::UnboundedSender;

use crate::journal::{Entry, decode_all};
use crate::*;

/// Replies in order, and records the requests.
struct Scripted {
    replies: Mutex<VecDeque<Result<ModelReply, LlmError>>>,
    asked: Mutex<Vec<Vec<Message>>>,
    offered: Mutex<Vec<String>>,
}

impl Scripted {
    fn new(replies: Vec<ModelReply>) -> Self {
        Self {
            replies: Mutex::new(replies.into_iter().map(Ok).collect()),
            asked: Mutex::default(),
            offered: Mutex::default(),
        }
    }

    fn asked(&self) -> Vec<Vec<Message>> {
        self.asked.lock().unwrap().clone()
    }
}

#[async_trait]
impl Model for Scripted {
    fn name(&self) -> &str {
        "scripted"
    }

    async fn reply(
        &self,
        request: ModelRequest<'_>,
        _: Option<&UnboundedSender<Delta>>,
    ) -> Result<(ModelReply, Usage), LlmError> {
        self.asked.lock().unwrap().push(request.messages.to_vec());
        let offered = request.tools.iter().map(|tool| tool.name.clone());
        self.offered.lock().unwrap().extend(offered);
        let reply = self
            .replies
            .lock()
            .unwrap()
            .pop_front()
            .expect("the script has no more replies")?;
        Ok((
            reply,
            Usage {
                input_tokens: 10,
                output_tokens: 1,
                ..Usage::default()
            },
        ))
    }
}

/// Returns `ok` or the configured fault, and records the calls.
#[derive(Default)]
struct Bench {
    called: Mutex<Vec<String>>,
    fault: Option<End>,
    /// The use of the model by each call.
    uses: Usage,
    refreshed: Mutex<u32>,
    used: Mutex<Usage>,
}

#[async_trait]
impl Tools<End> for Bench {
    async fn refresh(&self) -> Result<(), End> {
        *self.refreshed.lock().unwrap() += 1;
        Ok(())
    }

    fn specs(&self) -> Vec<ToolSpec> {
        let count = *self.refreshed.lock().unwrap();
        vec![ToolSpec {
            name: format!("tool_{count}"),
            description: String::new(),
            input_schema: json!({}),
        }]
    }

    fn take_usage(&self) -> Usage {
        std::mem::take(&mut self.used.lock().unwrap())
    }

    async fn call(&self, call: &ToolCall) -> Result<ToolResult, End> {
        *self.used.lock().unwrap() += self.uses;
        self.called.lock().unwrap().push(call.id.clone());
        match &self.fault {
            Some(fault) => Err(fault.clone()),
            None => Ok(ToolResult {
                text: "ok".into(),
                is_error: false,
            }),
        }
    }
}

/// How a session of these tests ends early.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
struct End(&'static str);

/// Keeps steps in their stored form, like the worker's journal.
#[derive(Default)]
struct Memory {
    steps: Mutex<Vec<Step>>,
    interrupt: Option<End>,
    refuse_after: Option<usize>,
}

impl Memory {
    fn steps(&self) -> Vec<Step> {
        self.steps.lock().unwrap().clone()
    }

    fn kinds(&self) -> Vec<StepKind> {
        self.steps().iter().map(|s| s.kind).collect()
    }
}

#[async_trait]
impl Journal<End> for Memory {
    async fn record(&self, entry: Entry, duration: Duration) -> Result<(), End> {
        let mut steps = self.steps.lock().unwrap();
        if self.refuse_after.is_some_and(|n| steps.len() >= n) {
            return Err(End("lease lost"));
        }
        let seq = Seq(steps.len() as i64 + 1);
        steps.push(Step {
            seq,
            epoch: Epoch(1),
            kind: entry.kind(),
            payload: entry.encode().unwrap(),
            duration_ms: duration.as_millis() as u64,
            at: chrono::Utc::now(),
        });
        Ok(())
    }

    async fn interrupted(&self) -> End {
        match &self.interrupt {
            Some(end) => end.clone(),
            None => std::future::pending().await,
        }
    }
}

/// Returns facts in order, and then the last ones repeatedly.
struct Measured(Mutex<VecDeque<Facts>>);

#[async_trait]
impl Gather<End> for Measured {
    async fn facts(&self) -> Result<Facts, End> {
        let mut facts = self.0.lock().unwrap();
        Ok(if facts.len() > 1 {
            facts.pop_front().unwrap()
        } else {
            facts[0].clone()
        })
    }
}

fn good() -> Facts {
    Facts {
        head: Some("abc".into()),
        files: vec![ChangedFile {
            path: "a".into(),
            added: Some(1),
            removed: Some(0),
        }],
        ..Facts::default()
    }
}

fn bad() -> Facts {
    let check = Check {
        command: "make test".into(),
        exit_code: 2,
        output: "boom".into(),
        duration_ms: 1,
        standing: Standing::Ran,
    };
    Facts {
        checks: vec![check],
        ..good()
    }
}

fn calls(ids: &[&str]) -> ModelReply {
    let calls = ids.iter().map(|id| ToolCall {
        id: (*id).into(),
        name: "t".into(),
        arguments: format!("{{\"n\":\"{id}\"}}"),
    });
    ModelReply {
        text: String::new(),
        calls: calls.collect(),
        stop: Stop::ToolCalls,
    }
}

fn says(text: &str) -> ModelReply {
    ModelReply {
        text: text.into(),
        calls: Vec::new(),
        stop: Stop::EndTurn,
    }
}

struct Run {
    model: Scripted,
    tools: Bench,
    journal: Memory,
    facts: Vec<Facts>,
    budget: Budget,
    inbox: Post,
}

/// What is there at each look, in order.
#[derive(Default)]
struct Post(Mutex<std::collections::VecDeque<Vec<crate::Remark>>>);

#[async_trait]
impl Inbox for Post {
    async fn take(&self) -> Vec<crate::Remark> {
        self.0.lock().unwrap().pop_front().unwrap_or_default()
    }
}

fn remark(id: &str, text: &str) -> crate::Remark {
    crate::Remark {
        id: id.into(),
        author: "mona".into(),
        at: chrono::DateTime::UNIX_EPOCH,
        about: None,
        text: text.into(),
    }
}

impl Run {
    fn of(replies: Vec<ModelReply>) -> Self {
        Self {
            model: Scripted::new(replies),
            tools: Bench::default(),
            journal: Memory::default(),
            facts: vec![good()],
            budget: Budget {
                steps: 50,
                tokens: None,
                cost_micros: None,
                wall_time: Duration::from_secs(60),
            },
            inbox: Post::default(),
        }
    }

    async fn go(&self) -> Result<RunOutcome, AgentError<End>> {
        self.resume(&[]).await
    }

    async fn resume(&self, steps: &[Step]) -> Result<RunOutcome, AgentError<End>> {
        let brief = Brief {
            title: "T".into(),
            body: "B".into(),
            name: "Issue #1".into(),
            repository: "o/r".into(),
            author: "a".into(),
            discussion: crate::Discussion::none(),
            round: None,
            agent_prompt: String::new(),
            repository_prompt: String::new(),
            memory: String::new(),
            branch: "b".into(),
            workspace: "/workspace".into(),
            command_timeout: Some(10),
            refused_commands: Vec::new(),
            allowed_commands: Vec::new(),
            text_editor: TextEditor::Offered,
        };
        let agent = AgentRun {
            model: &self.model,
            tools: &self.tools,
            journal: &self.journal,
            gather: &Measured(Mutex::new(self.facts.clone().into())),
            inbox: &self.inbox,
            limits: RunLimits::new(self.budget),
            max_rounds: 3,
            brief: &brief,
            resumed: "the worker was replaced",
            watch: None,
        };
        let (history, usage) = History::replay(&decode_all(steps).unwrap());
        agent.run(history, usage).await
    }
}

async fn ended(run: &Run) -> End {
    match run.go().await {
        Err(AgentError::Worker(end)) => end,
        other => panic!("{other:?}"),
    }
}

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
async fn after_the_last_round_the_result_is_partial_and_says_so() {
    let mut run = Run::of(vec![says("1"), says("2"), says("3")]);
    run.facts = vec![bad()];
    let outcome = run.go().await.unwrap();
    assert!(outcome.missing.clone().unwrap().contains("exit code 2"));
    let text = pull_request("T", issue(1), "9", &outcome);
    assert!(text.draft && text.body.contains("Partial result") && text.body.starts_with("For #1"));
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
async fn the_same_call_with_the_same_result_three_times_is_stuck() {
    let same = || ModelReply {
        calls: vec![ToolCall {
            id: "x".into(),
            name: "t".into(),
            arguments: "{}".into(),
        }],
        ..calls(&[])
    };
    let run = Run::of(vec![same(), same(), same()]);
    let missing = run.go().await.unwrap().missing.unwrap();
    assert!(missing.contains("stuck"), "{missing}");
}

#[tokio::test]
async fn limits_are_checked_before_each_model_call() {
    let mut run = Run::of(vec![calls(&["1"]), calls(&["2"])]);
    run.budget.steps = 2;
    let outcome = run.go().await.unwrap();
    assert_eq!(run.model.asked().len(), 2);
    assert!(outcome.missing.unwrap().contains("2 model calls"));
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
async fn the_conversation_is_append_only_for_prompt_caching() {
    let run = Run::of(vec![calls(&["1"]), calls(&["2"]), says(""), says("done")]);
    run.go().await.unwrap();
    for pair in run.model.asked().windows(2) {
        assert_eq!(pair[0][..], pair[1][..pair[0].len()]);
    }
}

/// An issue without a text.
fn issue(number: u64) -> Asked<'static> {
    Asked::Issue { number, text: "" }
}

#[test]
fn text_of_the_model_cannot_close_issues_mention_people_or_forge_markers() {
    let outcome = RunOutcome {
        facts: good(),
        missing: None,
        last_message: "Fixes #99 @maintainer <!-- agentmine:task --> ![x](y) closes https://x/y/issues/3\n## Heading"
            .into(),
        usage: Usage::default(),
        rounds: 1,
    };
    let body = pull_request("T", issue(7), "1", &outcome).body;
    assert!(
        !body.contains("#99")
            && !body.contains("@maintainer")
            && !body.contains("<!--")
            && !body.contains("![x]")
            && !body.contains("/issues/"),
        "{body}"
    );
    assert!(
        body.contains("Closes #7") && body.contains("\n## Heading"),
        "{body}"
    );
}

#[test]
fn output_in_a_pull_request_cannot_leave_its_code_block() {
    let outcome = RunOutcome {
        facts: bad(),
        missing: Some("```\n@org/team Fixes #1\n````".into()),
        last_message: String::new(),
        usage: Usage::default(),
        rounds: 1,
    };
    let body = pull_request("T", issue(7), "1", &outcome).body;
    assert!(body.contains("`````text\n```\n@org/team"), "{body}");
    let measured = body.find("### Measured").unwrap();
    assert!(measured < body.find("### Not done").unwrap());
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
    assert!(
        missing.starts_with("the conversation is too long for the model: it has 9120 tokens, and the model's window has 8192"),
        "{missing}"
    );
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

#[test]
fn a_pull_request_separates_the_facts_from_the_text_of_the_model() {
    let web = |host: &str, refused: Option<&str>| WebRequest {
        host: host.into(),
        count: 2,
        refused: refused.map(str::to_owned),
    };
    let file = |path: &str, lines: Option<u64>| ChangedFile {
        path: path.into(),
        added: lines,
        removed: lines,
    };
    let mut unrunnable = bad().checks.remove(0);
    unrunnable.standing = Standing::NotRun("not found".into());
    let outcome = RunOutcome {
        facts: Facts {
            head: Some("abc".into()),
            base: "def".into(),
            files: vec![file("src/a|b.rs", Some(3)), file("logo.png", None)],
            checks: vec![bad().checks.remove(0), unrunnable],
            checks_from: "guessed".into(),
            protected: vec!["code ownership: CODEOWNERS".into(), "old.yml".into()],
            web: vec![web("a:443", None), web("b:80", Some("private"))],
            web_dropped: 4,
            ..Facts::default()
        },
        missing: Some("- make failed".into()),
        last_message: "I tried.".into(),
        usage: Usage {
            model_calls: 1,
            tool_calls: 2,
            input_tokens: 3,
            cached_tokens: 4,
            output_tokens: 5,
            cost_micros: 6,
        },
        rounds: 1,
    };
    let text = pull_request(
        "  Fix it ",
        Asked::Issue {
            number: 7,
            text: "It fails:\n\n```\n$ make\n```\n",
        },
        "12",
        &outcome,
    );
    assert_eq!((text.title.as_str(), text.draft), ("Fix it", true));
    insta::assert_snapshot!(text.body);
}

#[test]
fn refused_pushes_and_refused_hosts_are_in_the_pull_request() {
    let web = |host: &str, count, refused: Option<&str>| WebRequest {
        host: host.into(),
        count,
        refused: refused.map(str::to_owned),
    };
    let mut facts = Facts {
        refused_pushes: vec!["a secret: private-key in a.pem @everyone".into()],
        ..good()
    };
    facts.add_web(
        (0..60)
            .map(|n| web(&format!("h{n}:443"), 100, None))
            .collect(),
    );
    facts.add_web(vec![
        web("h7:443", 5, None),
        web("evil:443", 1, Some("private")),
    ]);
    assert_eq!(facts.web.len(), 61);
    let outcome = RunOutcome {
        facts,
        missing: None,
        last_message: String::new(),
        usage: Usage::default(),
        rounds: 1,
    };
    let body = pull_request("T", issue(7), "1", &outcome).body;
    let (_, table) = body.split_once("| host | requests").unwrap();
    let rows: Vec<&str> = table.lines().skip(2).take(2).collect();
    assert_eq!(
        rows,
        [
            "| `evil:443` | 1 | refused: private |",
            "| `h7:443` | 105 | allowed |"
        ]
    );
    assert!(
        body.contains("Pushes were refused:**\n\n- a secret: private-key in a.pem"),
        "{body}"
    );
    assert!(!body.contains(" @everyone"), "{body}");
}

#[test]
fn long_lists_in_a_pull_request_are_truncated_and_counted() {
    let files = (0..53).map(|n| ChangedFile {
        path: format!("f{n}"),
        added: Some(1),
        removed: Some(0),
    });
    let web = (0..52).map(|n| WebRequest {
        host: format!("h{n}:443"),
        count: 1,
        refused: None,
    });
    let outcome = RunOutcome {
        facts: Facts {
            files: files.collect(),
            web: web.collect(),
            ..good()
        },
        missing: None,
        last_message: "w".repeat(9_000),
        usage: Usage::default(),
        rounds: 1,
    };
    let text = pull_request(&"t".repeat(300), issue(7), "1", &outcome);
    assert_eq!(text.title.chars().count(), 201);
    assert!(!text.draft && text.body.starts_with("Closes #7"));
    assert!(text.body.contains("| … and 3 more"), "{}", text.body);
    assert!(text.body.contains("\n… and 2 more"), "{}", text.body);
    assert!(text.body.contains("No checks are known"));
    assert!(!text.body.contains("Changed files that control"));
    assert!(!text.body.contains(&"w".repeat(8_001)));
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

#[test]
fn lists_of_exactly_the_maximum_length_are_not_truncated() {
    let file = |n: u32| ChangedFile {
        path: format!("f{n}"),
        added: Some(1),
        removed: Some(0),
    };
    let web = |n: u32| WebRequest {
        host: format!("h{n}:443"),
        count: 1,
        refused: None,
    };
    let outcome = RunOutcome {
        facts: Facts {
            files: (0..50).map(file).collect(),
            web: (0..50).map(web).collect(),
            ..good()
        },
        missing: None,
        last_message: String::new(),
        usage: Usage::default(),
        rounds: 1,
    };
    let body = pull_request("T", issue(7), "1", &outcome).body;
    assert!(
        body.contains("`f49`") && body.contains("`h49:443`"),
        "{body}"
    );
    assert!(!body.contains(" more"), "{body}");
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
    let given = crate::journal::given_remarks(&entries).unwrap();
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
    let of_people = history.messages().iter().filter(
        |it| matches!(it, agentmine_llm::Message::User { text } if text.contains("while you work")),
    );
    assert_eq!(of_people.count(), 2);
}

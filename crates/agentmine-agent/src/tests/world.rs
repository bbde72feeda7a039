//! A scripted model, and tools, a journal and an inbox in memory.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agentmine_domain::{Budget, Epoch, Seq, Step, StepKind, Usage};
use agentmine_llm::{
    Delta, LlmError, Message, Model, ModelReply, ModelRequest, RequestCost, Stop, ToolCall,
    ToolSpec,
};
use async_trait::async_trait;
use serde_json::json;
use tokio::sync::mpsc::UnboundedSender;

use crate::journal::{Entry, decode_all};
use crate::*;

/// Replies in order, and records the requests.
pub(super) struct Scripted {
    pub(super) replies: Mutex<VecDeque<Result<ModelReply, LlmError>>>,
    asked: Mutex<Vec<Vec<Message>>>,
    pub(super) offered: Mutex<Vec<String>>,
    /// Input tokens of each call.
    pub(super) input_tokens: u64,
    /// Never replies.
    pub(super) hangs: bool,
    /// The cost of a first try that failed, if it hangs before the next.
    pub(super) failed: Option<RequestCost>,
    /// The estimate for each request.
    pub(super) estimate: Usage,
}

impl Scripted {
    fn new(replies: Vec<ModelReply>) -> Self {
        Self {
            replies: Mutex::new(replies.into_iter().map(Ok).collect()),
            asked: Mutex::default(),
            offered: Mutex::default(),
            input_tokens: 10,
            hangs: false,
            failed: None,
            estimate: Usage::default(),
        }
    }

    pub(super) fn asked(&self) -> Vec<Vec<Message>> {
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
        if let Some(cost) = self.failed {
            request.state.sent();
            request.state.failed(cost);
        }
        if self.hangs {
            return std::future::pending().await;
        }
        let reply = self
            .replies
            .lock()
            .unwrap()
            .pop_front()
            .expect("the script has no more replies")?;
        Ok((
            reply,
            Usage {
                input_tokens: self.input_tokens,
                output_tokens: 1,
                ..Usage::default()
            },
        ))
    }

    fn estimate(&self, _: &ModelRequest<'_>) -> Usage {
        self.estimate
    }
}

/// Returns `ok` or the configured fault, and records the calls.
#[derive(Default)]
pub(super) struct Bench {
    pub(super) called: Mutex<Vec<String>>,
    pub(super) fault: Option<End>,
    /// The use of the model by each call.
    pub(super) uses: Usage,
    /// The result of each call, in place of `ok`.
    pub(super) result: Option<String>,
    /// How long each call takes.
    pub(super) takes: Duration,
    refreshed: Mutex<u32>,
    used: Mutex<Usage>,
}

#[async_trait]
impl Tools<End> for Bench {
    async fn refresh(&self) -> Result<(), End> {
        *self.refreshed.lock().unwrap() += 1;
        Ok(())
    }

    fn specs(&self) -> Arc<[ToolSpec]> {
        let count = *self.refreshed.lock().unwrap();
        [ToolSpec {
            name: format!("tool_{count}"),
            description: String::new(),
            input_schema: json!({}),
        }]
        .into()
    }

    fn take_usage(&self) -> Usage {
        std::mem::take(&mut self.used.lock().unwrap())
    }

    async fn call(&self, call: &ToolCall) -> Result<ToolResult, End> {
        *self.used.lock().unwrap() += self.uses;
        self.called.lock().unwrap().push(call.id.clone());
        if !self.takes.is_zero() {
            tokio::time::sleep(self.takes).await;
        }
        match &self.fault {
            Some(fault) => Err(fault.clone()),
            None => Ok(ToolResult {
                text: self.result.clone().unwrap_or_else(|| "ok".into()),
                is_error: false,
            }),
        }
    }
}

/// How a session of these tests ends early.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct End(pub(super) &'static str);

/// Keeps steps in their stored form, like the worker's journal.
#[derive(Default)]
pub(super) struct Memory {
    steps: Mutex<Vec<Step>>,
    pub(super) interrupt: Option<End>,
    /// How long after it began to wait.
    pub(super) interrupt_after: Duration,
    pub(super) refuse_after: Option<usize>,
}

impl Memory {
    pub(super) fn steps(&self) -> Vec<Step> {
        self.steps.lock().unwrap().clone()
    }

    pub(super) fn kinds(&self) -> Vec<StepKind> {
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
            Some(end) if self.interrupt_after.is_zero() => end.clone(),
            Some(end) => {
                tokio::time::sleep(self.interrupt_after).await;
                end.clone()
            }
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

pub(super) fn good() -> Facts {
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

pub(super) fn bad() -> Facts {
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

pub(super) fn calls(ids: &[&str]) -> ModelReply {
    let calls = ids.iter().map(|id| ToolCall {
        id: (*id).into(),
        name: "t".into(),
        arguments: format!("{{\"n\":\"{id}\"}}"),
        ..ToolCall::default()
    });
    ModelReply {
        text: String::new(),
        calls: calls.collect(),
        stop: Stop::ToolCalls,
        ..ModelReply::default()
    }
}

pub(super) fn says(text: &str) -> ModelReply {
    ModelReply {
        text: text.into(),
        calls: Vec::new(),
        stop: Stop::EndTurn,
        ..ModelReply::default()
    }
}

pub(super) struct Run {
    pub(super) model: Scripted,
    pub(super) tools: Bench,
    pub(super) journal: Memory,
    pub(super) facts: Vec<Facts>,
    pub(super) budget: Budget,
    /// How long earlier sessions worked.
    pub(super) worked: Duration,
    pub(super) inbox: Post,
}

/// What is there at each look, in order.
#[derive(Default)]
pub(super) struct Post(pub(super) Mutex<VecDeque<Vec<Remark>>>);

#[async_trait]
impl Inbox for Post {
    async fn take(&self) -> Vec<Remark> {
        self.0.lock().unwrap().pop_front().unwrap_or_default()
    }
}

pub(super) fn remark(id: &str, text: &str) -> Remark {
    Remark {
        id: id.into(),
        author: "mona".into(),
        at: chrono::DateTime::UNIX_EPOCH,
        about: None,
        text: text.into(),
    }
}

impl Run {
    pub(super) fn of(replies: Vec<ModelReply>) -> Self {
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
            worked: Duration::ZERO,
            inbox: Post::default(),
        }
    }

    pub(super) async fn go(&self) -> Result<RunOutcome, AgentError<End>> {
        self.resume(&[]).await
    }

    pub(super) async fn resume(&self, steps: &[Step]) -> Result<RunOutcome, AgentError<End>> {
        let brief = Brief {
            title: "T".into(),
            body: "B".into(),
            name: "Issue #1".into(),
            repository: "o/r".into(),
            author: "a".into(),
            discussion: Discussion::none(),
            round: None,
            agent_prompt: String::new(),
            repository_prompt: String::new(),
            absent: Vec::new(),
            memory: String::new(),
            branch: "b".into(),
            workspace: "/workspace".into(),
            command_tool: "command-executor_execute_command".into(),
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
            worked: self.worked,
            max_rounds: 3,
            brief: &brief,
            resumed: "the worker was replaced",
            watch: None,
        };
        let (history, usage) = History::replay(&decode_all(steps).unwrap());
        agent.run(history, usage).await
    }
}

pub(super) async fn ended(run: &Run) -> End {
    match run.go().await {
        Err(AgentError::Worker(end)) => end,
        other => panic!("{other:?}"),
    }
}

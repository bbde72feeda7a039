//! The loop's own time for one step: a model call, a tool call, and the journal's records of both.
//!
//! Model and tools answer at once, so the time from one request to the next is overhead. It is
//! measured with a journal in memory, and in a whole consumer (its real journal, tools and lease, and a
//! sandbox that does nothing) with each store. The floor for a store is the same writes alone.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use agentmine_agent::journal::{CallResult, Entry};
use agentmine_agent::{
    AgentRun, Brief, ChangedFile, Facts, Gather, History, Journal, NoInbox, RunLimits, TextEditor,
    ToolResult, Tools,
};
use agentmine_domain::{Budget, Lease, StepPayload, Usage, WorkerId};
use agentmine_llm::{Delta, LlmError, Model, ModelReply, ModelRequest, Stop, ToolCall, ToolSpec};
use agentmine_store::{NewStep, Store};
use anyhow::{Context as _, ensure};
use async_trait::async_trait;
use serde_json::json;
use tokio::sync::mpsc::UnboundedSender;
use uuid::Uuid;

use crate::fleet::{Database, Fleet, executor, work};
use crate::still::StillBackend;
use crate::table::{Samples, Table};

const TOOL: &str = "command-executor_execute_command";
/// A typical result.
const RESULT: &str = "test result: ok. 12 passed; 0 failed; 0 ignored; finished in 0.31s\n";

pub(crate) async fn run(steps: u32, postgres: Option<&str>) -> anyhow::Result<()> {
    let mut table = Table::new("a step of the loop");
    table.row("journal in memory", &in_memory(steps).await?);
    over_store(&mut table, "SQLite", None, steps).await?;
    if let Some(server) = postgres {
        let database = Database::new(server);
        let url = database.url()?;
        let measured = over_store(&mut table, "Postgres", Some(&url), steps).await;
        database.drop().await?;
        measured?;
    }
    table.print("under 2 ms, model and tool time excluded")?;
    Ok(())
}

/// A consumer over SQLite.
pub(crate) async fn over_sqlite(steps: u32) -> anyhow::Result<Table> {
    let mut table = Table::new("a step of the loop");
    over_store(&mut table, "SQLite", None, steps).await?;
    Ok(table)
}

/// The loop alone.
async fn in_memory(steps: u32) -> anyhow::Result<Samples> {
    let model = AtOnce::new(steps);
    let journal = InMemory::default();
    let agent = AgentRun {
        model: &model,
        tools: &Nothing,
        journal: &journal,
        gather: &Measured,
        inbox: &NoInbox,
        limits: RunLimits::new(Budget {
            steps: u32::MAX,
            tokens: None,
            cost_micros: None,
            wall_time: Duration::from_secs(3600),
        }),
        worked: Duration::ZERO,
        max_rounds: 1,
        brief: &brief(),
        resumed: "",
        watch: None,
    };
    agent.run(History::default(), Usage::default()).await?;
    Ok(model.steps())
}

/// A whole consumer with a store, and then the same writes to the store alone.
async fn over_store(
    table: &mut Table,
    name: &str,
    url: Option<&str>,
    steps: u32,
) -> anyhow::Result<()> {
    let mut fleet = Fleet::new(url).await?;
    fleet.config.command_executor = executor(crate::Backend::Local);
    fleet.config.text_editor_mcp.enabled = false;
    // The first time warms the caches.
    store_alone(&fleet, steps / 5).await?;
    let alone = store_alone(&fleet, steps).await?;
    fleet.enqueue().await?;
    let model = Arc::new(AtOnce::new(steps));
    let deps = fleet
        .deps(Arc::new(StillBackend), model.clone(), None)
        .await?;
    let sessions = work(deps).await;
    let measured = model.steps();
    ensure!(
        sessions == 1 && measured.len() == steps as usize,
        "{sessions} sessions ran, with {} steps",
        measured.len()
    );
    fleet.store.close().await;
    table.row(&format!("{name}: its writes alone"), &alone);
    table.against(
        &format!("{name}: a consumer over it, writes included"),
        &measured,
        &alone,
    );
    Ok(())
}

/// The writes of a step: the reply, its cost, the result.
pub(crate) async fn store_alone(fleet: &Fleet, steps: u32) -> anyhow::Result<Samples> {
    let task = fleet.enqueue().await?;
    let worker = WorkerId("bench".into());
    let claim = fleet
        .store
        .claim(task, &worker, Uuid::new_v4(), Duration::from_secs(3600), 1)
        .await?
        .context("a fresh task cannot be claimed")?;
    tokio::spawn(write_steps(Arc::clone(&fleet.store), claim.lease, steps)).await?
}

async fn write_steps(store: Arc<dyn Store>, lease: Lease, steps: u32) -> anyhow::Result<Samples> {
    let mut samples = Samples::default();
    for n in 0..steps {
        let usage = Usage {
            model_calls: n,
            ..Usage::default()
        };
        let reply = Entry::ModelReply {
            reply: reply(n),
            usage,
        };
        let result = Entry::ToolResult {
            result: CallResult {
                call_id: format!("call_{n}"),
                name: TOOL.into(),
                text: result(n),
                is_error: false,
            },
        };
        let began = Instant::now();
        store
            .append_step_with_usage(&lease, &step(&reply)?, "bench", &usage)
            .await?;
        store.append_step(&lease, &step(&result)?).await?;
        samples.push(began.elapsed());
    }
    Ok(samples)
}

fn step(entry: &Entry) -> anyhow::Result<NewStep> {
    Ok(NewStep::new(entry.kind(), entry.encode()?, 0))
}

fn reply(n: u32) -> ModelReply {
    ModelReply {
        text: "I run the tests again.".into(),
        calls: vec![ToolCall {
            id: format!("call_{n}"),
            name: TOOL.into(),
            arguments: json!({ "command": format!("cargo test --workspace # {n}") }).to_string(),
            ..ToolCall::default()
        }],
        stop: Stop::ToolCalls,
        ..ModelReply::default()
    }
}

fn result(n: u32) -> String {
    format!("{n} {}", RESULT.repeat(8))
}

/// A model that requests one call after another, and records when it gets a request.
struct AtOnce {
    steps: u32,
    asked: Mutex<Vec<Instant>>,
}

impl AtOnce {
    fn new(steps: u32) -> Self {
        Self {
            steps,
            asked: Mutex::default(),
        }
    }

    /// The times between requests, up to the one that was answered without a call.
    fn steps(&self) -> Samples {
        let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let steps = asked.windows(2).take(self.steps as usize);
        steps.map(|pair| pair[1] - pair[0]).collect()
    }
}

#[async_trait]
impl Model for AtOnce {
    fn name(&self) -> &str {
        "bench"
    }

    async fn reply(
        &self,
        _request: ModelRequest<'_>,
        _watch: Option<&UnboundedSender<Delta>>,
    ) -> Result<(ModelReply, Usage), LlmError> {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.push(Instant::now());
        let n = u32::try_from(asked.len()).unwrap_or(u32::MAX);
        let reply = if n <= self.steps {
            reply(n)
        } else {
            ModelReply {
                text: "Done.".into(),
                ..ModelReply::default()
            }
        };
        Ok((reply, Usage::default()))
    }
}

/// A tool that returns at once.
struct Nothing;

#[async_trait]
impl Tools<serde_json::Error> for Nothing {
    fn specs(&self) -> Arc<[ToolSpec]> {
        [ToolSpec {
            name: TOOL.into(),
            description: "Run a shell command.".into(),
            input_schema: json!({ "type": "object" }),
        }]
        .into()
    }

    async fn call(&self, call: &ToolCall) -> Result<ToolResult, serde_json::Error> {
        Ok(ToolResult {
            text: format!("{} {}", call.id, RESULT.repeat(8)),
            is_error: false,
        })
    }
}

/// Encodes an entry to the same JSON that a store would get.
#[derive(Default)]
struct InMemory(Mutex<Vec<StepPayload>>);

#[async_trait]
impl Journal<serde_json::Error> for InMemory {
    async fn record(&self, entry: Entry, _: Duration) -> Result<(), serde_json::Error> {
        let mut steps = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        steps.push(entry.encode()?);
        Ok(())
    }

    async fn interrupted(&self) -> serde_json::Error {
        std::future::pending().await
    }
}

/// A result that passes.
struct Measured;

#[async_trait]
impl Gather<serde_json::Error> for Measured {
    async fn facts(&self) -> Result<Facts, serde_json::Error> {
        Ok(Facts {
            head: Some("0123456".into()),
            files: vec![ChangedFile {
                path: "a".into(),
                added: Some(1),
                removed: Some(0),
            }],
            ..Facts::default()
        })
    }
}

fn brief() -> Brief {
    Brief {
        title: "An issue".into(),
        body: "Do it.".into(),
        name: "Issue #1".into(),
        repository: "octo/demo".into(),
        author: "mona".into(),
        discussion: agentmine_agent::Discussion::none(),
        round: None,
        agent_prompt: String::new(),
        repository_prompt: String::new(),
        absent: Vec::new(),
        memory: String::new(),
        branch: "agentmine/issue-1".into(),
        workspace: "/workspace".into(),
        command_tool: TOOL.into(),
        command_timeout: Some(1800),
        refused_commands: Vec::new(),
        allowed_commands: Vec::new(),
        text_editor: TextEditor::Absent,
    }
}

//! What the queue, the store and a session's own work cost a fleet: the tasks of `bench fleet` by the real consumer, with
//! its sessions, journal, effects and tracker. Sandbox and model answer at once, so nothing is pushed, and each task
//! ends with a report that there is nothing to propose.

use std::sync::Arc;
use std::time::{Duration, Instant};

use agentmine_consumer::ConsumerMode;
use agentmine_domain::{NewTask, Priority, Usage};
use agentmine_effects::announce;
use agentmine_llm::{Delta, LlmError, Message, Model, ModelReply, ModelRequest, Stop, ToolCall};
use agentmine_runtime::config::Secret;
use agentmine_runtime::shutdown::Shutdown;
use agentmine_tests::forge::DEMO;
use anyhow::ensure;
use async_trait::async_trait;
use serde_json::json;
use sqlx::{Connection as _, PgConnection};
use tokio::sync::mpsc::UnboundedSender;
use uuid::Uuid;

use crate::Backend;
use crate::fleet::{Database, Fleet, executor};
use crate::queue::{Ran, Servers, Used, remove_queues};
use crate::still::StillBackend;

/// Calls of each task: with the replies to them and the last one, about the steps of a slot in `bench fleet`.
const CALLS: usize = 2;

pub(crate) async fn run(servers: &Servers, tasks: u32, slots: usize) -> anyhow::Result<Ran> {
    let database = Database::new(&servers.postgres);
    let ran = run_on(servers, &database, tasks, slots).await;
    database.drop().await?;
    ran
}

async fn run_on(
    servers: &Servers,
    database: &Database,
    tasks: u32,
    slots: usize,
) -> anyhow::Result<Ran> {
    let mut fleet = Fleet::new(Some(&database.url()?)).await?;
    fleet.config.command_executor = executor(Backend::Local);
    fleet.config.text_editor_mcp.enabled = false;
    fleet.config.consumer.concurrency = slots;
    fleet.config.queue.url = Secret::new(&servers.amqp);
    fleet.config.queue.prefix = format!("bench-{}", Uuid::new_v4().simple());
    let queue = agentmine_queue::connect(&fleet.config.queue)?;
    let new = items(&fleet, tasks).await?;
    let before = Used::of(database).await?;
    let began = Instant::now();
    for new in &new {
        fleet.store.enqueue(new).await?;
    }
    let enqueued = f64::from(tasks) / began.elapsed().as_secs_f64();
    while announce(fleet.store.as_ref(), queue.as_ref()).await? > 0 {}
    let deps = fleet.deps(Arc::new(StillBackend), Arc::new(Few), None);
    let mut deps = Arc::unwrap_or_clone(deps.await?);
    deps.queue = Arc::clone(&queue);
    let began = Instant::now();
    let stop = Shutdown::new(Duration::from_secs(1));
    let sessions = agentmine_consumer::run(Arc::new(deps), ConsumerMode::Once, stop).await;
    let took = began.elapsed();
    ensure!(sessions == u64::from(tasks), "{sessions} sessions ran");
    all_ended(database).await?;
    fleet.store.close().await;
    // The statistics of a connection are written when it ends.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let used = Used::of(database).await?;
    remove_queues(queue.as_ref(), &servers.amqp).await?;
    queue.close().await;
    Ok(Ran {
        enqueued,
        ended: f64::from(tasks) / took.as_secs_f64(),
        ..Ran::between(&before, &used, tasks)
    })
}

/// Issues on the forge, as the tracker lists them.
async fn items(fleet: &Fleet, tasks: u32) -> anyhow::Result<Vec<NewTask>> {
    let label = fleet.config.labels.request.as_str();
    for n in 0..tasks {
        fleet
            .forge
            .add_issue(DEMO, &format!("Issue {n}"), "Do it.", &[label]);
    }
    let found = fleet.tracker.candidates(label).await?;
    ensure!(
        found.len() == tasks as usize,
        "{} items are listed",
        found.len()
    );
    let new = found.into_iter().map(|found| NewTask {
        item: found.item,
        trigger: found.trigger,
        title: found.title,
        url: found.url,
        priority: Priority::Medium,
    });
    Ok(new.collect())
}

async fn all_ended(database: &Database) -> anyhow::Result<()> {
    let mut connection = PgConnection::connect(&database.url()?).await?;
    let open = "SELECT count(*) FROM tasks WHERE state IN ('queued', 'leased', 'paused')";
    let open: i64 = sqlx::query_scalar(open).fetch_one(&mut connection).await?;
    ensure!(open == 0, "{open} tasks have not ended");
    Ok(())
}

/// A model that requests [`CALLS`] commands and is done.
struct Few;

#[async_trait]
impl Model for Few {
    fn name(&self) -> &str {
        "bench"
    }

    async fn reply(
        &self,
        request: ModelRequest<'_>,
        _watch: Option<&UnboundedSender<Delta>>,
    ) -> Result<(ModelReply, Usage), LlmError> {
        let results = request.messages.iter();
        let results = results.filter(|message| matches!(message, Message::Tool { .. }));
        let n = results.count();
        if n == CALLS {
            let done = ModelReply {
                text: "There is nothing to change.".into(),
                ..ModelReply::default()
            };
            return Ok((done, Usage::default()));
        }
        let call = ToolCall {
            id: format!("call_{n}"),
            name: "command-executor_execute_command".into(),
            arguments: json!({ "command": format!(": {n}") }).to_string(),
            ..ToolCall::default()
        };
        let reply = ModelReply {
            text: "A step. ".repeat(60),
            calls: vec![call],
            stop: Stop::ToolCalls,
            ..ModelReply::default()
        };
        Ok((reply, Usage::default()))
    }
}

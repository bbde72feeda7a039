//! Verification: from the model's last reply to the facts, without the time that the project's checks ran.
//!
//! The agent has committed and pushed its work, and the model takes a while (`--reply`) to say so. The floor is creating and starting a container (or a jail) and cloning
//! into it with nothing else, which a fresh clone in a fresh sandbox costs at least. The two take turns.

use std::sync::Arc;
use std::time::{Duration, Instant};

use agentmine_consumer::{ConsumerMode, Progress};
use agentmine_domain::Usage;
use agentmine_llm::{Delta, LlmError, Message, Model, ModelReply, ModelRequest, Stop, ToolCall};
use agentmine_runtime::shutdown::Shutdown;
use agentmine_sandbox::from_config;
use anyhow::{Context as _, ensure};
use async_trait::async_trait;
use bollard::Docker;
use serde_json::json;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout;

use crate::Backend;
use crate::fleet::{Fleet, executor};
use crate::plain;
use crate::table::{Samples, Table};

/// Time limit for one task.
const PATIENCE: Duration = Duration::from_secs(120);
/// After which time a pool of sandboxes is full again.
const FILLING: Duration = Duration::from_secs(4);
const WORK: &str = "sed -i 's/name=\"\"/name=\"${1:-world}\"/' greet.sh && git commit -qam 'Greet the person named' \
     && git push -q origin HEAD";

pub(crate) async fn run(
    backend: Backend,
    rounds: u32,
    warm: usize,
    reply: Duration,
) -> anyhow::Result<()> {
    let mut fleet = Fleet::new(None).await?;
    fleet.config.consumer.warm_sandboxes = warm;
    fleet.config.command_executor = executor(backend);
    let sandboxes = from_config(&fleet.config.command_executor).await?;
    sandboxes.check().await?;
    let (watch, mut progress) = unbounded_channel();
    let deps = fleet
        .deps(sandboxes, Arc::new(Works { reply }), Some(watch))
        .await?;
    let stop = Shutdown::new(Duration::from_secs(5));
    let consumer = tokio::spawn(agentmine_consumer::run(
        deps,
        ConsumerMode::Continuous,
        stop.clone(),
    ));
    let (mut floor, mut ours) = (Samples::default(), Samples::default());
    let mut measured = Ok(());
    // The first round warms the caches.
    for round in 0..=rounds {
        if warm > 0 {
            tokio::time::sleep(FILLING).await;
        }
        match one_round(&fleet, backend, &mut progress).await {
            Ok((alone, took)) if round > 0 => {
                floor.push(alone);
                ours.push(took);
            }
            Ok(_) => {}
            Err(error) => {
                measured = Err(error);
                break;
            }
        }
    }
    stop.drain();
    consumer.await?;
    measured?;
    let mut table = Table::new("verification beside its checks");
    table.row("create, start and clone alone", &floor);
    table.against(
        "from the last reply to the facts, without the checks",
        &ours,
        &floor,
    );
    table.print("under 250 ms")?;
    Ok(())
}

async fn one_round(
    fleet: &Fleet,
    backend: Backend,
    progress: &mut UnboundedReceiver<Progress>,
) -> anyhow::Result<(Duration, Duration)> {
    let alone = match backend {
        Backend::Docker => plain::docker(&Docker::connect_with_defaults()?, &fleet.forge).await?,
        Backend::Local => plain::bubblewrap(&fleet.forge).await?,
    };
    fleet.enqueue().await?;
    let mut replied = Instant::now();
    let mut took = None;
    loop {
        let next = timeout(PATIENCE, progress.recv()).await?;
        match next.context("the consumer ended")? {
            Progress::Reply { .. } => replied = Instant::now(),
            Progress::Facts(facts) => {
                let [check] = facts.checks.as_slice() else {
                    anyhow::bail!("the checks: {:?}", facts.checks);
                };
                ensure!(check.exit_code == 0, "the check failed: {}", check.output);
                let ran = Duration::from_millis(check.duration_ms);
                took = Some(replied.elapsed().saturating_sub(ran));
            }
            Progress::Ended { reason, .. } => {
                let took = took.with_context(|| format!("nothing was measured: {reason:?}"))?;
                return Ok((alone.start + alone.clone, took));
            }
            _ => {}
        }
    }
}

/// A model that has the work done, committed and pushed by one command, and then has nothing to add.
struct Works {
    /// How long it takes for that.
    reply: Duration,
}

#[async_trait]
impl Model for Works {
    fn name(&self) -> &str {
        "bench"
    }

    async fn reply(
        &self,
        request: ModelRequest<'_>,
        _watch: Option<&UnboundedSender<Delta>>,
    ) -> Result<(ModelReply, Usage), LlmError> {
        let has_worked = request
            .messages
            .iter()
            .any(|message| matches!(message, Message::Assistant(_)));
        let reply = match has_worked {
            false => ModelReply {
                text: String::new(),
                calls: vec![ToolCall {
                    id: "call_1".into(),
                    name: "command-executor_execute_command".into(),
                    arguments: json!({ "command": WORK }).to_string(),
                    ..ToolCall::default()
                }],
                stop: Stop::ToolCalls,
                ..ModelReply::default()
            },
            true => {
                tokio::time::sleep(self.reply).await;
                ModelReply {
                    text: "Done.".into(),
                    ..ModelReply::default()
                }
            }
        };
        Ok((reply, Usage::default()))
    }
}

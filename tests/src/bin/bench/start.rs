//! From the claim of a task to the first request to the model, in a running consumer, compared with
//! creating a container and cloning into it with nothing else.
//!
//! The two take turns. The time includes requests to the tracker (the item, its labels, a comment),
//! which the forge in this process answers at once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use agentmine_consumer::{ConsumerMode, Progress};
use agentmine_domain::Usage;
use agentmine_llm::{Delta, LlmError, Model, ModelReply, ModelRequest};
use agentmine_runtime::shutdown::Shutdown;
use agentmine_sandbox::from_config;
use agentmine_tests::forge::Fault;
use anyhow::Context as _;
use async_trait::async_trait;
use bollard::Docker;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout;

use crate::Backend;
use crate::fleet::{Fleet, executor};
use crate::plain::{self, Plain};
use crate::step::write_files_of;
use crate::table::{Samples, Table};
use crate::timed::{Clock, Spent, Timed};

/// After which time a pool of sandboxes is full again.
const FILLING: Duration = Duration::from_secs(4);
/// How late a host on a slow line answers.
const LATENCY: Duration = Duration::from_millis(50);
/// Time limit for one task.
const PATIENCE: Duration = Duration::from_secs(120);

/// What is started.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Setup {
    /// Number of tasks
    #[arg(long, default_value_t = 10)]
    rounds: u32,
    /// Files of the repository; 0 is the sample
    #[arg(long, default_value_t = 0)]
    files: u32,
    /// Random digits in each of these files, in bytes
    #[arg(long, default_value_t = 0)]
    bytes: usize,
    /// Bytes a second of the line to the host, which then also answers each request 50 ms late; 0 is loopback
    #[arg(long, default_value_t = 0)]
    line: u32,
    /// Sandboxes that are started ahead of the tasks
    #[arg(long, default_value_t = 0)]
    warm: usize,
    /// Whether later tasks are cloned from a mirror
    #[arg(long, action = clap::ArgAction::Set, default_value_t = true)]
    mirrors: bool,
    /// Whether later clones are copies of the first one
    #[arg(long, action = clap::ArgAction::Set, default_value_t = true)]
    templates: bool,
}

pub(crate) async fn run(backend: Backend, setup: &Setup) -> anyhow::Result<()> {
    let &Setup {
        rounds,
        files,
        bytes,
        line,
        warm,
        mirrors,
        templates,
    } = setup;
    let mut fleet = match files {
        0 => Fleet::new(None).await?,
        files => Fleet::with(None, move |folder| write_files_of(folder, files, bytes)).await?,
    };
    if line > 0 {
        let slow = Fault::on("*", "/").times(usize::MAX).slow(LATENCY, line);
        fleet.forge.inject(slow);
    }
    fleet.config.consumer.mirrors.enabled = mirrors;
    fleet.config.consumer.mirrors.templates = templates;
    fleet.config.consumer.warm_sandboxes = warm;
    fleet.config.command_executor = executor(backend);
    let sandboxes = from_config(&fleet.config.command_executor).await?;
    sandboxes.check().await?;
    let clock = Clock::default();
    let sandboxes = Arc::new(Timed {
        inner: sandboxes,
        clock: clock.clone(),
    });
    let (asked, mut first_request) = unbounded_channel();
    let (watch, mut progress) = unbounded_channel();
    let deps = fleet
        .deps(sandboxes, Arc::new(Noting(asked)), Some(watch))
        .await?;
    let stop = Shutdown::new(Duration::from_secs(5));
    let consumer = tokio::spawn(agentmine_consumer::run(
        deps,
        ConsumerMode::Continuous,
        stop.clone(),
    ));
    let mut parts = Parts::default();
    let mut measured = Ok(());
    // The first round warms the caches.
    for round in 0..=rounds {
        if warm > 0 {
            tokio::time::sleep(FILLING).await;
        }
        let done = one_round(&fleet, backend, &mut progress, &mut first_request).await;
        let spent = clock.take();
        match done {
            Ok((_, ours)) if round == 0 => {
                parts.first.push(ours);
                if mirrors {
                    fleet.until_mirrored().await?;
                }
            }
            Ok((alone, ours)) => parts.push(&alone, ours, spent),
            Err(error) => {
                measured = Err(error);
                break;
            }
        }
    }
    stop.drain();
    consumer.await?;
    measured?;
    parts.print(backend)?;
    Ok(())
}

#[derive(Default)]
struct Parts {
    first: Samples,
    start: Samples,
    start_on_host: Samples,
    clone: Samples,
    both: Samples,
    ours: Samples,
    our_start: Samples,
    our_clone: Samples,
    our_calls: Samples,
    our_rest: Samples,
}

impl Parts {
    fn push(&mut self, alone: &Plain, ours: Duration, spent: Spent) {
        self.start.push(alone.start);
        self.start_on_host.push(alone.start_on_host);
        self.clone.push(alone.clone);
        self.both.push(alone.start + alone.clone);
        self.ours.push(ours);
        let Spent {
            start,
            clone,
            other,
        } = spent;
        self.our_start.push(start);
        self.our_clone.push(clone);
        self.our_calls.push(other);
        // Negative where parts ran concurrently.
        self.our_rest
            .push(ours.saturating_sub(start + clone + other));
    }

    fn print(&self, backend: Backend) -> std::io::Result<()> {
        let mut table = Table::new("the start of a task");
        match backend {
            Backend::Docker => {
                table.row("create and start, no network", &self.start);
                table.row("create and start, host's network", &self.start_on_host);
                table.row("git clone by exec", &self.clone);
                table.row("create and start, no network, and clone", &self.both);
            }
            Backend::Local => table.row("git clone under bubblewrap alone", &self.both),
        }
        table.row("claim to first model call, first task", &self.first);
        table.against("claim to first model call", &self.ours, &self.both);
        table.row("  of it: making the sandbox", &self.our_start);
        table.row("  of it: git clone", &self.our_clone);
        table.row("  of it: other calls of the sandbox", &self.our_calls);
        table.row("  of it: tracker, store, editor", &self.our_rest);
        table.print("within 1.15x")
    }
}

async fn one_round(
    fleet: &Fleet,
    backend: Backend,
    progress: &mut UnboundedReceiver<Progress>,
    first_request: &mut UnboundedReceiver<Instant>,
) -> anyhow::Result<(Plain, Duration)> {
    let alone = match backend {
        Backend::Docker => plain::docker(&Docker::connect_with_defaults()?, &fleet.forge).await?,
        Backend::Local => plain::bubblewrap(&fleet.forge).await?,
    };
    fleet.enqueue().await?;
    let claimed = loop {
        match timeout(PATIENCE, progress.recv()).await? {
            Some(Progress::Began { .. }) => break Instant::now(),
            Some(_) => {}
            None => anyhow::bail!("the consumer ended"),
        }
    };
    // If something fails before the first request, the session ends without one.
    let reason = loop {
        match timeout(PATIENCE, progress.recv()).await? {
            Some(Progress::Ended { reason, .. }) => break reason.unwrap_or_default(),
            Some(_) => {}
            None => anyhow::bail!("the consumer ended"),
        }
    };
    let asked = first_request.try_recv();
    let asked = asked.with_context(|| format!("the model got no request: {reason}"))?;
    Ok((alone, asked - claimed))
}

/// A model that records when it gets a request, and returns an error.
struct Noting(UnboundedSender<Instant>);

#[async_trait]
impl Model for Noting {
    fn name(&self) -> &str {
        "bench"
    }

    async fn reply(
        &self,
        _request: ModelRequest<'_>,
        _watch: Option<&UnboundedSender<Delta>>,
    ) -> Result<(ModelReply, Usage), LlmError> {
        // Only at the end of the benchmark is there no receiver.
        let _ = self.0.send(Instant::now());
        Err(LlmError::Refused {
            status: 400,
            body: "this is a benchmark".into(),
        })
    }
}

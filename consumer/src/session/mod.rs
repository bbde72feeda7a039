//! One session: prepare, run the agent, report, close the lease, remove the sandbox.
//!
//! Whatever goes wrong inside is handled here, once: a panic too. How a session ended decides what
//! the tracker is told and what becomes of the row; with the lease gone, nothing is told and
//! nothing is written, and only the sandbox is removed.

pub(crate) mod close;
pub(crate) mod context;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use agentmine_agent::{
    Brief, Halt, History, Journal as _, Limits, Outcome, Record, Session, TextEditor,
    progress_comment,
};
use agentmine_domain::{Budget, ItemKind, Phase, Task, TaskLabel, Usage};
use agentmine_runtime::config::Config;
use agentmine_runtime::shutdown::Shutdown;
use agentmine_store::Claim;
use agentmine_trackers::{Item, Tracker};
use futures::FutureExt as _;
use tracing::Instrument as _;

use crate::Deps;
use crate::prepare::{Prepared, prepare};
use crate::record::checkpoint::Checkpoints;
use crate::record::live::Progress;
use crate::report::effects::tracker_halt;
use crate::report::{Report, report};
use crate::run::command::CommandTool;
use crate::run::redacting_model::Discreet;
use crate::run::servers::Servers;
use crate::run::tools::FleetTools;
use crate::session::close::{close, halt_name, panic_text, refuse_foreign};
use crate::session::context::{Context, context};
use crate::verify::measure::Measurer;

/// Runs the session of a claim to its end, whatever that is.
pub(crate) async fn run(deps: Arc<Deps>, claim: Claim, stop: Shutdown) {
    let span = tracing::info_span!(
        "session",
        task.id = %claim.task.id,
        task.number = %claim.task.number,
        session.id = %claim.lease.session,
        epoch = %claim.lease.epoch,
    );
    metrics::gauge!("agentmine_sessions_running").increment(1.0);
    run_in_span(deps, claim, stop).instrument(span).await;
    metrics::gauge!("agentmine_sessions_running").decrement(1.0);
}

async fn run_in_span(deps: Arc<Deps>, claim: Claim, stop: Shutdown) {
    let begun = Instant::now();
    tracing::info!(attempt = claim.task.attempt, item = %claim.task.item, "session began");
    let Some(tracker) = tracker_of(&deps, &claim.task) else {
        refuse_foreign(&deps, &claim).await;
        return;
    };
    let ctx = context(deps, claim, tracker, stop);
    ctx.journal.tell(Progress::Began {
        task: Box::new(ctx.task.clone()),
        session: ctx.lease.session,
    });
    let end = match AssertUnwindSafe(work(&ctx)).catch_unwind().await {
        Ok(end) => end,
        Err(panic) => Err(Halt::Retry(format!(
            "the worker panicked: {}",
            panic_text(&*panic)
        ))),
    };
    // The agent's processes end before the row says that the task is over.
    ctx.end_all().await;
    let name = match &end {
        Ok(_) => "done",
        Err(halt) => halt_name(halt),
    };
    close(&ctx, end).await;
    metrics::histogram!("agentmine_session_duration_seconds").record(begun.elapsed().as_secs_f64());
    tracing::info!(
        end = name,
        duration_ms = begun.elapsed().as_millis() as u64,
        "session ended"
    );
}

/// The story of a session.
async fn work(ctx: &Context) -> Result<Report, Halt> {
    ctx.journal
        .record(Record::Phase(Phase::Preparing), 0)
        .await?;
    let item = until_halted(ctx, async {
        ctx.effects
            .tracker
            .item(&ctx.task.item)
            .await
            .map_err(tracker_halt)
    })
    .await?;
    if !item.open {
        return Err(Halt::Cancelled(
            "the item was closed before the work began".into(),
        ));
    }
    until_halted(ctx, announce(ctx, &item)).await?;
    let steps = ctx
        .journal
        .unless_halted(|| ctx.deps.store.steps(ctx.task.id))
        .await?;
    let start = steps
        .iter()
        .rev()
        .find_map(|step| serde_json::from_value(step.payload["start"].clone()).ok());
    let (history, usage) = History::replay(&steps).map_err(|e| Halt::Failed(e.to_string()))?;
    *ctx.journal.usage.lock().await = usage;
    let checkpoints = ctx
        .journal
        .unless_halted(|| ctx.deps.store.checkpoints(ctx.task.id))
        .await?;
    let prepared = until_halted(ctx, prepare(ctx, &item, start, checkpoints)).await?;
    let measurer = Measurer {
        ctx,
        prepared: &prepared,
        title: &item.title,
    };
    let outcome = agent(ctx, &item, &prepared, &measurer, history, usage).await?;
    ctx.journal
        .record(Record::Phase(Phase::Reporting), 0)
        .await?;
    until_halted(ctx, report(ctx, &item, &prepared, &measurer, &outcome)).await
}

async fn until_halted<T>(
    ctx: &Context,
    work: impl Future<Output = Result<T, Halt>>,
) -> Result<T, Halt> {
    tokio::select! {
        biased;
        halt = ctx.keeper.halted() => Err(halt),
        done = work => done,
    }
}

/// Tells the item that work is under way.
async fn announce(ctx: &Context, item: &Item) -> Result<(), Halt> {
    let labels = &ctx.deps.config.labels;
    if !item.labels.contains(&labels.processing) || item.labels.contains(&labels.request) {
        ctx.effects.label(TaskLabel::Processing).await?;
    }
    let text = match ctx.task.attempt {
        0 | 1 => "AgentMine is working on this.".to_owned(),
        n => format!("AgentMine is working on this (attempt {n})."),
    };
    ctx.effects
        .comment(&progress_comment(&text, &ctx.session_name()))
        .await
}

/// Runs the agent in a prepared sandbox.
async fn agent(
    ctx: &Context,
    item: &Item,
    prepared: &Prepared,
    measurer: &Measurer<'_>,
    history: History,
    usage: Usage,
) -> Result<Outcome, Halt> {
    let sandbox = Arc::clone(&prepared.workspace.sandbox);
    let config = &ctx.deps.config;
    let servers = until_halted(ctx, Servers::start(ctx, prepared)).await?;
    let servers = ctx.attend(servers).await;
    let checkpoints = Checkpoints::new(
        Arc::clone(&sandbox),
        Arc::clone(&ctx.deps.store),
        ctx.lease.clone(),
        prepared.restored.as_ref().map(|r| r.commit.clone()),
        prepared.restored.as_ref().map_or(0, |r| r.total),
    );
    let brief = brief(
        ctx,
        item,
        prepared,
        if servers.editor().is_some() {
            TextEditor::Offered
        } else {
            TextEditor::Absent
        },
    );
    let tools = FleetTools {
        ctx,
        sandbox,
        command: CommandTool::of(&config.command_executor),
        servers,
        gateway: prepared.workspace.gateway.clone(),
        checkpoints,
        noted: Default::default(),
    };
    let journal = Arc::clone(&ctx.journal);
    let model = Discreet {
        model: Arc::clone(&ctx.deps.model),
        clean: Arc::new(move |text| journal.without_secrets(text)),
    };
    let session = Session {
        model: &model,
        tools: &tools,
        journal: ctx.journal.as_ref(),
        gather: measurer,
        limits: Limits::new(budget(config)),
        max_rounds: config.agent.max_rounds,
        brief: &brief,
        resumed: &resumed_with(prepared),
        watch: None,
    };
    agentmine_agent::run(&session, history, usage).await
}

/// What the model is told where another worker was before.
fn resumed_with(prepared: &Prepared) -> String {
    let files = match prepared.restored {
        Some(_) => "The project's files are as they were after the last call that changed them.",
        None => {
            "The project's files are those of the branch as it is on the remote; anything that was not pushed is gone."
        }
    };
    format!(
        "The worker was replaced and the sandbox is a new one. {files} What was outside of the project's folder is gone: \
         installed packages, running processes, temporary files. Look at the state of things, then go on."
    )
}

fn brief(ctx: &Context, item: &Item, prepared: &Prepared, text_editor: TextEditor) -> Brief {
    let executor = &ctx.deps.config.command_executor;
    Brief {
        title: item.title.clone(),
        body: item.body.clone(),
        kind: match ctx.task.item.kind {
            ItemKind::Issue => "Issue".into(),
            ItemKind::PullRequest => "Pull request".into(),
        },
        number: ctx.task.item.number,
        repository: item.item.repo_path.clone(),
        author: item.author.clone(),
        branch: prepared.branches.work.clone(),
        workspace: prepared.workspace.sandbox.workspace_root().to_owned(),
        command_timeout: executor
            .enabled
            .then_some(executor.execution.timeout_seconds),
        denied_commands: executor.execution.denied_commands.clone(),
        text_editor,
    }
}

pub(crate) fn tracker_of(deps: &Deps, task: &Task) -> Option<Arc<dyn Tracker>> {
    deps.trackers.iter().find(|t| t.serves(&task.item)).cloned()
}

pub(crate) fn budget(config: &Config) -> Budget {
    let agent = &config.agent;
    Budget {
        steps: agent.max_steps,
        tokens: agent.max_tokens,
        cost_micros: agent.max_cost_usd.map(|usd| (usd * 1e6) as u64),
        wall_time: Duration::from_secs(agent.max_minutes * 60),
    }
}

//! One session: prepare, run the agent, report, close the lease, remove the sandbox.
//!
//! Whatever goes wrong inside is handled here, once: a panic too. How a session ended decides what
//! the tracker is told and what becomes of the row; with the lease gone, nothing is told and
//! nothing is written, and only the sandbox is removed.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use agentmine_agent::{
    Brief, Halt, History, Journal as _, Limits, Outcome, Record, Session, TextEditor,
    progress_comment, pull_request,
};
use agentmine_domain::{Budget, EndState, ItemKind, Lease, Phase, Seq, Task, Usage};
use agentmine_runtime::config::{Config, Secret};
use agentmine_runtime::shutdown::Shutdown;
use agentmine_sandbox::Sandbox;
use agentmine_store::{Claim, Close};
use agentmine_trackers::{Item, NewPullRequest, Tracker};
use futures::FutureExt as _;
use tokio::sync::Mutex;
use tracing::Instrument as _;

use crate::Deps;
use crate::checkpoint::Checkpoints;
use crate::effects::{Effects, Label, store_halt, tracker_halt};
use crate::journal::SessionJournal;
use crate::lease::{Keeper, Rhythm};
use crate::measure::Measurer;
use crate::prepare::{Prepared, prepare, start_editor};
use crate::progress::Progress;
use crate::tools::FleetTools;

/// What all parts of one session share.
pub(crate) struct Context {
    pub(crate) deps: Arc<Deps>,
    pub(crate) task: Task,
    pub(crate) lease: Lease,
    pub(crate) keeper: Arc<Keeper>,
    pub(crate) journal: Arc<SessionJournal>,
    pub(crate) effects: Effects,
    sandboxes: Mutex<Vec<Arc<dyn Sandbox>>>,
}

/// How a session ended well.
struct Report {
    url: Option<String>,
    missing: Option<String>,
}

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
    ctx.remove_sandboxes().await;
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

fn context(deps: Arc<Deps>, claim: Claim, tracker: Arc<dyn Tracker>, stop: Shutdown) -> Context {
    let Claim { task, lease } = claim;
    let config = &deps.config.consumer;
    let rhythm = Rhythm {
        every: Duration::from_secs(config.heartbeat_seconds),
        extend: Duration::from_secs(config.lease_seconds),
        silence: Duration::from_secs(config.heartbeat_loss_seconds),
    };
    let keeper = Arc::new(Keeper::start(
        Arc::clone(&deps.heartbeat),
        lease.clone(),
        rhythm,
        stop.killed(),
    ));
    let journal = SessionJournal {
        store: Arc::clone(&deps.store),
        lease: lease.clone(),
        keeper: Arc::clone(&keeper),
        model: deps.model.name().to_owned(),
        secrets: secrets(&deps.config),
        usage: Mutex::new(Usage::default()),
        newest: Mutex::new(Seq(0)),
        watch: deps.watch.clone(),
    };
    let effects = Effects {
        store: Arc::clone(&deps.store),
        tracker,
        labels: deps.config.labels.clone(),
        task: task.clone(),
        lease: Some(lease.clone()),
    };
    Context {
        deps,
        task,
        lease,
        keeper,
        journal: Arc::new(journal),
        effects,
        sandboxes: Mutex::default(),
    }
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
        ctx.effects.label(Label::Processing).await?;
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
    let mut editor = None;
    if config.text_editor_mcp.enabled {
        match start_editor(ctx, sandbox.as_ref()).await {
            Ok(client) => editor = Some(client),
            Err(reason) => go_on_without_editor(ctx, &reason).await?,
        }
    }
    let checkpoints = Checkpoints::new(
        Arc::clone(&sandbox),
        Arc::clone(&ctx.deps.store),
        ctx.lease.clone(),
        prepared.restored.as_ref().map(|r| r.commit.clone()),
        prepared.restored.as_ref().map_or(0, |r| r.total),
    );
    let executor = &config.command_executor;
    let brief = brief(
        ctx,
        item,
        prepared,
        if editor.is_some() {
            TextEditor::Offered
        } else {
            TextEditor::Absent
        },
    );
    let tools = FleetTools {
        sandbox,
        editor,
        command_tool: executor
            .enabled
            .then(|| format!("{}_execute_command", executor.mcp_server.name)),
        execution: executor.execution.clone(),
        gateway: prepared.workspace.gateway.clone(),
        journal: Arc::clone(&ctx.journal),
        checkpoints,
    };
    let session = Session {
        model: ctx.deps.model.as_ref(),
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

/// seeds/000 §12.1.1: recorded, told on the item, and the session goes on.
async fn go_on_without_editor(ctx: &Context, reason: &str) -> Result<(), Halt> {
    tracing::warn!(reason, "the text editor did not start");
    ctx.note(&format!(
        "the text editor did not start; the session goes on without it: {reason}"
    ))
    .await?;
    let text = format!(
        "AgentMine is working on this, without its text editor, which did not start:\n\n```\n{}\n```",
        reason.replace("```", "'''")
    );
    ctx.effects
        .comment(&progress_comment(&text, &ctx.session_name()))
        .await
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

/// Opens the pull request and tells the item. Once it is open the result is decided: what then
/// cannot be told on the item is owed to it, and told by the sweep.
async fn report(
    ctx: &Context,
    item: &Item,
    prepared: &Prepared,
    measurer: &Measurer<'_>,
    outcome: &Outcome,
) -> Result<Report, Halt> {
    let Some(head) = &outcome.facts.head else {
        let why = outcome
            .missing
            .clone()
            .unwrap_or_else(|| "nothing was pushed".into());
        let said = outcome.words.trim();
        let words = if said.is_empty() {
            String::new()
        } else {
            format!("\nThe agent said:\n{said:.1500}")
        };
        return Err(Halt::Failed(format!("no result: {why}{words}")));
    };
    if !measurer.still_at(head).await? {
        return Err(Halt::Retry("the branch moved after it was measured".into()));
    }
    let text = pull_request(
        &item.title,
        ctx.task.item.number,
        &ctx.session_name(),
        outcome,
    );
    let missing = outcome.missing.clone();
    if !prepared.branches.opens_pull_request {
        ctx.effects
            .comment(&progress_comment(&text.body, &ctx.session_name()))
            .await?;
        let told = ctx.effects.label(Label::Done).await;
        return decided(
            told,
            Report {
                url: Some(item.url.clone()),
                missing,
            },
        );
    }
    let new = NewPullRequest {
        head: prepared.branches.work.clone(),
        base: prepared.branches.target.clone(),
        title: text.title,
        body: text.body,
        draft: text.draft,
    };
    let pull = ctx.effects.pull_request(&new, head).await?;
    let told = ctx
        .effects
        .tell_done(&pull.url, missing.as_deref(), &ctx.session_name())
        .await;
    decided(
        told,
        Report {
            url: Some(pull.url),
            missing,
        },
    )
}

fn decided(told: Result<(), Halt>, report: Report) -> Result<Report, Halt> {
    match told {
        Err(Halt::LeaseLost) => Err(Halt::LeaseLost),
        Err(halt) => {
            tracing::warn!(%halt, "the item was not told of the result; the sweep will");
            Ok(report)
        }
        Ok(()) => Ok(report),
    }
}

/// Tells the tracker how it ended and closes the lease. A failure here leaves the lease to run out;
/// the next attempt then finds the effects that were done.
async fn close(ctx: &Context, end: Result<Report, Halt>) {
    let last_attempt = ctx.task.attempt >= ctx.deps.config.consumer.max_attempts;
    let (close, told) = match end {
        Ok(report) => {
            let close = Close::End {
                state: EndState::Done,
                reason: report.missing.map(|m| format!("partial: {m}")),
                pull_request_url: report.url,
            };
            (close, Ok(()))
        }
        Err(Halt::LeaseLost) => {
            tracing::warn!("the lease is lost; nothing more is written");
            return;
        }
        Err(Halt::Draining) => (
            Close::Release {
                reason: "the worker was told to end".into(),
                delay: Duration::ZERO,
                counts: false,
            },
            Ok(()),
        ),
        Err(Halt::Cancelled(reason)) => (
            end_as(EndState::Stopped, &reason),
            ctx.effects.tell_stopped(&reason, &ctx.session_name()).await,
        ),
        Err(Halt::Paused(reason)) => (
            Close::Pause { reason },
            ctx.effects.label(Label::Paused).await,
        ),
        Err(Halt::Retry(reason)) if !last_attempt => {
            tracing::warn!(
                reason,
                attempt = ctx.task.attempt,
                "the session failed and will be tried again"
            );
            let _ = ctx
                .note(&format!(
                    "the session ended and will be tried again: {reason}"
                ))
                .await;
            (
                Close::Release {
                    reason,
                    delay: retry_delay(ctx),
                    counts: true,
                },
                Ok(()),
            )
        }
        Err(Halt::Retry(reason) | Halt::Failed(reason)) => {
            tracing::error!(reason, "the task failed");
            let _ = ctx.note(&format!("the task failed: {reason}")).await;
            (
                end_as(EndState::Failed, &reason),
                ctx.effects.tell_failed(&reason, &ctx.session_name()).await,
            )
        }
    };
    if let Err(halt) = told {
        tracing::warn!(%halt, "the tracker was not told how the task ended; the sweep will");
    }
    let (end, reason) = match &close {
        Close::End { state, reason, .. } => (Some(*state), reason.clone()),
        Close::Release { reason, .. } | Close::Pause { reason } => (None, Some(reason.clone())),
    };
    if let Err(error) = ctx
        .journal
        .unless_halted(|| ctx.deps.store.close_lease(&ctx.lease, &close))
        .await
    {
        tracing::error!(%error, "the lease could not be closed and will run out");
    }
    let task = ctx
        .deps
        .store
        .task(ctx.task.id)
        .await
        .ok()
        .flatten()
        .unwrap_or_else(|| ctx.task.clone());
    ctx.journal.tell(Progress::Ended {
        task: Box::new(task),
        end,
        reason,
    });
}

fn end_as(state: EndState, reason: &str) -> Close {
    Close::End {
        state,
        reason: Some(reason.to_owned()),
        pull_request_url: None,
    }
}

impl Context {
    /// As people see it: `12`.
    pub(crate) fn session_name(&self) -> String {
        self.lease.session.to_string()
    }

    /// Takes a sandbox into this session's care.
    pub(crate) async fn adopt(&self, sandbox: Arc<dyn Sandbox>) {
        self.keeper.watch_over(Arc::clone(&sandbox)).await;
        self.sandboxes.lock().await.push(sandbox);
    }

    /// Removes one sandbox now.
    pub(crate) async fn discard(&self, name: &str) {
        let found = {
            let mut all = self.sandboxes.lock().await;
            all.iter()
                .position(|s| s.name() == name)
                .map(|at| all.remove(at))
        };
        if let Some(sandbox) = found {
            self.remove(sandbox).await;
        }
    }

    async fn remove_sandboxes(&self) {
        let all = std::mem::take(&mut *self.sandboxes.lock().await);
        for sandbox in all {
            self.remove(sandbox).await;
        }
    }

    /// seeds/001 §8.1: three tries are the backend's; what is left then is the sweep's.
    async fn remove(&self, sandbox: Arc<dyn Sandbox>) {
        self.keeper.forget(sandbox.name()).await;
        if let Err(error) = sandbox.remove().await {
            metrics::counter!("agentmine_sandboxes_left_total").increment(1);
            tracing::warn!(sandbox.name = sandbox.name(), %error, "the sandbox was not removed; the sweep will try again");
            if !self.keeper.lost() {
                let _ = self
                    .note(&format!(
                        "the sandbox {} was not removed: {error}",
                        sandbox.name()
                    ))
                    .await;
            }
        }
    }
}

/// A task of a tracker that this process is not configured for goes back; another may have it.
async fn refuse_foreign(deps: &Deps, claim: &Claim) {
    let item = &claim.task.item;
    let reason = format!(
        "no tracker {} at {} is configured in this consumer",
        item.tracker, item.host
    );
    tracing::warn!(reason, "the task is given back");
    let close = Close::Release {
        reason,
        delay: Duration::from_secs(30),
        counts: true,
    };
    if let Err(error) = deps.store.close_lease(&claim.lease, &close).await {
        tracing::error!(error = %store_halt(error), "the lease could not be closed and will run out");
    }
}

pub(crate) fn tracker_of(deps: &Deps, task: &Task) -> Option<Arc<dyn Tracker>> {
    deps.trackers.iter().find(|t| t.serves(&task.item)).cloned()
}

fn budget(config: &Config) -> Budget {
    let agent = &config.agent;
    Budget {
        steps: agent.max_steps,
        tokens: agent.max_tokens,
        cost_micros: agent.max_cost_usd.map(|usd| (usd * 1e6) as u64),
        wall_time: Duration::from_secs(agent.max_minutes * 60),
    }
}

/// The worker's own secrets, none of which may be written down.
fn secrets(config: &Config) -> Vec<Secret> {
    let github = config
        .trackers
        .github
        .as_ref()
        .and_then(|g| g.token.clone());
    github
        .into_iter()
        .chain(config.model.api_key.clone())
        .chain(config.model.headers.values().cloned())
        .collect()
}

fn retry_delay(ctx: &Context) -> Duration {
    let ladder = &ctx.deps.config.queue.retry_seconds;
    let step = (ctx.task.attempt.max(1) as usize - 1).min(ladder.len().saturating_sub(1));
    Duration::from_secs(ladder.get(step).copied().unwrap_or(5))
}

fn halt_name(halt: &Halt) -> &'static str {
    match halt {
        Halt::Cancelled(_) => "stopped",
        Halt::Paused(_) => "paused",
        Halt::LeaseLost => "lease_lost",
        Halt::Draining => "drained",
        Halt::Retry(_) => "retry",
        Halt::Failed(_) => "failed",
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|s| (*s).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".into())
}

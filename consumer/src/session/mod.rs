//! One session: prepare, run the agent, report, close the lease, remove the sandboxes.
//!
//! Every error, including a panic, is handled once, here: [`verdict`] decides what it means for the
//! task, [`close`] reports that and closes the lease. After the lease is lost nothing is reported or
//! written; only the sandboxes are removed.

pub(crate) mod cause;
pub(crate) mod close;
pub(crate) mod context;
pub(crate) mod deps;
mod gate;
mod outage;
mod progress;
mod verdict;
pub(crate) mod withdrawal;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use agentmine_agent::journal::{Entry, decode_all, given_remarks, hidden_in_prompt};
use agentmine_agent::{Discussion, GivenMemory, History, hidden_text, time_worked};
use agentmine_domain::{AskedBy, Phase, TaskLabel, TrackerKind, Usage};
use agentmine_effects::{held_comment, work_comment};
use agentmine_llm::Model;
use agentmine_runtime::config::has_label;
use agentmine_runtime::shutdown::Shutdown;
use agentmine_sandbox::SandboxError;
use agentmine_trackers::{Item, TrackerError, objection_to_text_of};
use futures::FutureExt as _;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use crate::claim::claimed::Claimed;
use crate::error::{Interrupt, SessionError, WorkspaceError};
use crate::metrics::{count_lost_lease, count_result};
use crate::prepare::{discussion, draft, memory, name_branch, prepare, round};
use crate::record::live::Progress;
use crate::record::trace::{self, TracedModel};
use crate::report::{Report, report, report_earlier, report_ended};
use crate::run::agent;
use crate::verify::checks::CheckRunner;
use crate::verify::measure::Measurer;
use cause::Cause;
use close::{Ending, close, refuse_foreign};
use context::SessionContext;
use deps::ConsumerDeps;
use outage::Outage;
use verdict::{is_of_credentials, verdict};
use withdrawal::gone_after;

/// Runs the session of a claim until it ends.
pub(crate) async fn run(deps: Arc<ConsumerDeps>, claimed: Claimed, stop: Shutdown) {
    let claim = &claimed.claim;
    let span = tracing::info_span!(
        "session",
        task.id = %claim.task.id,
        task.number = %claim.task.number,
        session.id = %claim.lease.session,
        epoch = %claim.lease.epoch,
        trace.id = trace::of_session(&claim.lease).trace_id(),
    );
    metrics::gauge!("agentmine_sessions_running").increment(1.0);
    Box::pin(run_in_span(deps, claimed, stop))
        .instrument(span)
        .await;
    metrics::gauge!("agentmine_sessions_running").decrement(1.0);
}

async fn run_in_span(deps: Arc<ConsumerDeps>, claimed: Claimed, stop: Shutdown) {
    let claim = &claimed.claim;
    let begun = Instant::now();
    let mut span = trace::session(claim, deps.config.model.provider);
    tracing::info!(attempt = claim.task.attempt, item = %claim.task.item, "session began");
    let Some(tracker) = deps.tracker_of(&claim.task) else {
        refuse_foreign(&deps, claim).await;
        return;
    };
    let ctx = SessionContext::new(deps, claimed, tracker, stop);
    ctx.live.show(Progress::Began {
        task: Box::new(ctx.task.clone()),
        session: ctx.lease.session,
    });
    let (ctx, worked) = stages(ctx).await;
    let (ending, caused) = match worked {
        Ok(report) => (Ending::Result(report), Cause::None),
        Err(error) => {
            if error.is_lease_lost() {
                count_lost_lease(ctx.heartbeat.certainty().permit().check().is_ok());
            }
            let error = cause(&ctx, error).await;
            (Ending::Error(verdict(&error)), Cause::of(&error))
        }
    };
    // The agent's processes end before the row is closed.
    ctx.remove_sandboxes().await;
    let end = ending.as_str();
    span.set("agentmine.session.end", end);
    if caused != Cause::None {
        span.fail(caused.as_str());
    }
    if let Some(closed) = close(&ctx, ending).await {
        count_result(&closed, caused);
    }
    metrics::histogram!("agentmine_session_duration_seconds").record(begun.elapsed().as_secs_f64());
    tracing::info!(
        end,
        duration_ms = begun.elapsed().as_millis() as u64,
        "session ended"
    );
}

/// All stages. From the second one on, the task has its branch.
async fn stages(ctx: SessionContext) -> (SessionContext, Result<Report, SessionError>) {
    if ctx.only_reports() {
        let reported = caught(Box::pin(report_only(&ctx))).await;
        return (ctx, reported);
    }
    match caught(Box::pin(begin(&ctx))).await {
        Ok((begun, branch)) => {
            let ctx = ctx.on_branch(branch);
            let worked = caught(Box::pin(work(&ctx, &begun))).await;
            (ctx, worked)
        }
        Err(error) => (ctx, Err(error)),
    }
}

/// A stage whose panic is an error of the session, as any other.
async fn caught<T>(
    stage: impl Future<Output = Result<T, SessionError>>,
) -> Result<T, SessionError> {
    let ended = AssertUnwindSafe(stage).catch_unwind().await;
    ended.unwrap_or_else(|panic| Err(SessionError::panicked(&*panic)))
}

/// What an error comes from, where something else knows more. A sandbox also ends when its engine does, which is not the
/// task's fault where it happens once.
async fn cause(ctx: &SessionContext, error: SessionError) -> SessionError {
    if let SessionError::Interrupted(Interrupt::Stopped(_) | Interrupt::Paused(_)) = error {
        return requested(ctx, error).await;
    }
    // A service manager and a terminal signal all processes, and without them no stage continues.
    if error.may_be_of_a_lost_process() && ctx.drains().await {
        return Interrupt::Draining.into();
    }
    let (tracker, item) = (ctx.effects.tracker(), &ctx.task.item);
    // The look at the item has the tracker ask for the repository again.
    if error.is_not_found()
        && let Err(TrackerError::NotFound { .. }) = tracker.item(item).await
        && let Some(hidden) = withdrawal::hidden(tracker, item).await
    {
        return hidden.into();
    }
    // A git host and a forge may say no more than that they refuse.
    if is_of_credentials(&error)
        && let Err(archived @ TrackerError::Archived { .. }) = tracker.repository(item).await
    {
        return archived.into();
    }
    let of_sandbox = matches!(
        error,
        SessionError::SandboxGone(_)
            | SessionError::Freeze(SandboxError::Gone(_))
            | SessionError::Workspace(
                WorkspaceError::Start(SandboxError::Gone(_))
                    | WorkspaceError::Command(SandboxError::Gone(_))
            )
    );
    match of_sandbox {
        true => match ctx.engine_answers().await {
            Err(away) => away,
            Ok(()) if ctx.freezer.any_ended_from_outside().await => {
                let why = error.to_string();
                SessionError::EngineGone(SandboxError::Unavailable(why))
            }
            Ok(()) => error,
        },
        false => error,
    }
}

/// A request to stop or pause, with the reason that is in the row.
async fn requested(ctx: &SessionContext, error: SessionError) -> SessionError {
    let reason = ctx.deps.store.request_reason(ctx.task.id).await;
    let Some(reason) = reason.ok().flatten() else {
        return error;
    };
    match error {
        SessionError::Interrupted(Interrupt::Stopped(_)) => Interrupt::Stopped(reason).into(),
        SessionError::Interrupted(Interrupt::Paused(_)) => Interrupt::Paused(reason).into(),
        other => other,
    }
}

/// What is settled before the work.
struct Announced {
    item: Item,
    entries: Vec<Entry>,
    /// How long earlier sessions worked.
    worked: Duration,
    /// What the session has used so far.
    used: Usage,
}

/// Announces the work, and names the branch if the task has none: `None` if it keeps what it has.
async fn begin(ctx: &SessionContext) -> Result<(Announced, Option<String>), SessionError> {
    ctx.begin(Phase::Preparing).await?;
    let heartbeat = &ctx.heartbeat;
    let item = heartbeat.unless_interrupted(wanted_item(ctx)).await?;
    heartbeat.unless_interrupted(announce(ctx, &item)).await?;
    let store = &ctx.deps.store;
    let steps = heartbeat.patiently(|| store.steps(ctx.task.id)).await?;
    let entries = decode_all(&steps)?;
    let worked = time_worked(&steps)?;
    let named = name_branch(ctx, &item, &entries);
    let named = heartbeat.unless_interrupted(named).await?;
    let (branch, used) = named.map_or_else(Default::default, |it| (Some(it.branch), it.used));
    let begun = Announced {
        item,
        entries,
        worked,
        used,
    };
    Ok((begun, branch))
}

/// The work, for as long as people want it.
async fn work(ctx: &SessionContext, begun: &Announced) -> Result<Report, SessionError> {
    let ends = CancellationToken::new();
    let work = async {
        let done = tokio::select! {
            report = work_on(ctx, begun) => report,
            never = withdrawal::watch(ctx, &begun.item) => match never {},
        };
        ends.cancel();
        done
    };
    let (done, ()) = tokio::join!(work, progress::watch(ctx, &ends));
    done
}

/// The story of the claim that a task has beyond its last attempt, since an attempt began to open its pull
/// request.
async fn report_only(ctx: &SessionContext) -> Result<Report, SessionError> {
    ctx.begin(Phase::Reporting).await?;
    let earlier = report_earlier(ctx, None);
    match ctx.heartbeat.unless_interrupted(earlier).await? {
        Some(report) => Ok(report),
        None => Err(SessionError::NoResult(format!(
            "gave up after {} attempts; the {} was not opened",
            ctx.deps.config.consumer.max_attempts,
            ctx.task.item.tracker.pull_request()
        ))),
    }
}

/// The story from the announced item to the report.
async fn work_on(ctx: &SessionContext, begun: &Announced) -> Result<Report, SessionError> {
    let Announced {
        item,
        entries,
        worked,
        used: own,
    } = begun;
    let heartbeat = &ctx.heartbeat;
    let store = &ctx.deps.store;
    let (history, earlier) = History::replay(entries);
    let mut round = heartbeat.unless_interrupted(round(ctx, item)).await?;
    let checkpoints = heartbeat
        .patiently(|| store.checkpoints(ctx.task.id))
        .await?;
    // What people wrote is read while the sandbox is prepared, which does not depend on it.
    let told = async {
        match history.has_task() {
            // The conversation contains both.
            true => Ok((Discussion::none(), GivenMemory::default())),
            false => Ok((discussion(ctx).await?, memory(ctx).await?)),
        }
    };
    let prepared = Box::pin(prepare(ctx, item, round.as_ref(), entries, checkpoints));
    let both = async { tokio::try_join!(told, prepared) };
    let ((mut discussion, memory), prepared) = match heartbeat.unless_interrupted(both).await {
        Err(deleted @ SessionError::BranchDeleted(_)) => {
            let ended = Box::pin(report_ended(ctx, deleted));
            return heartbeat.unless_interrupted(ended).await;
        }
        prepared => prepared?,
    };
    if let Some(round) = round.as_mut().filter(|_| !history.has_task()) {
        round.name_threads(&mut discussion);
    }
    let given = match history.has_task() {
        true => given_remarks(entries),
        false => Some(discussion.remarks.iter().map(|it| it.id.clone()).collect()),
    };
    let hidden = hidden_in_prompt(entries)
        .unwrap_or_else(|| hidden_text(&item.title, &item.body, &discussion));
    let begun = heartbeat
        .unless_interrupted(draft::begin(ctx, item, &prepared))
        .await?;
    let model = ctx.deps.model(&prepared.agent);
    let model = model.map_err(SessionError::Agent)?;
    let model: Arc<dyn Model> = Arc::new(TracedModel {
        model,
        provider: ctx.deps.config.model.provider,
        session: trace::of_session(&ctx.lease),
    });
    let recorder = Arc::new(ctx.recorder(earlier, *own, model.name()));
    let measurer = Measurer {
        ctx,
        prepared: &prepared,
        title: &item.title,
        hidden: hidden.note(),
        may_only_answer: round
            .as_ref()
            .is_some_and(|work| work.round.cause.may_only_answer()),
        solves_conflict: round.as_ref().is_some_and(|work| work.round.cause.conflict),
        checks: CheckRunner::new(ctx, &prepared),
    };
    let work = agent::Work {
        ctx,
        item,
        prepared: &prepared,
        measurer: &measurer,
        discussion,
        round: round.as_ref(),
        given,
        memory: memory.text,
        worked: *worked,
        model,
        recorder,
    };
    let mut used = earlier;
    used += *own;
    let outcome = work.run(history, used).await?;
    ctx.progress.close().await;
    ctx.begin(Phase::Reporting).await?;
    heartbeat
        .unless_interrupted(report(
            ctx,
            item,
            &prepared,
            &measurer,
            round.as_ref(),
            begun,
            &outcome,
        ))
        .await
}

/// The item, unless people withdrew the work while the task was queued.
async fn wanted_item(ctx: &SessionContext) -> Result<Item, SessionError> {
    let tracker = ctx.effects.tracker();
    let item = item_now(ctx).await?;
    let labels = &ctx.deps.config.labels;
    if item.open
        && let Some(pause) = withdrawal::paused(&item, labels)
    {
        return Err(pause.into());
    }
    if withdrawal::withdrawn(tracker, &item, labels, &[]).is_none() {
        return confirmed(ctx, item).await;
    }
    let store = &ctx.deps.store;
    let names = || store.label_names(ctx.task.id);
    let earlier = ctx.heartbeat.patiently(names).await?;
    // The label may have been set since the item was read.
    let item = item_now(ctx).await?;
    // Until the label of a task that no label asked for was set, nobody can have removed it.
    let was_labelled =
        AskedBy::of(&ctx.task.trigger) == AskedBy::Label || earlier.contains(&labels.processing);
    match withdrawal::withdrawn(tracker, &item, labels, &earlier) {
        Some(_) if item.open && !was_labelled => confirmed(ctx, item).await,
        None => confirmed(ctx, item).await,
        Some(reason) => Err(Interrupt::Stopped(format!("{reason} before the work began")).into()),
    }
}

async fn item_now(ctx: &SessionContext) -> Result<Item, SessionError> {
    match ctx.effects.tracker().item(&ctx.task.item).await {
        Err(error) => Err(missing(ctx, error).await),
        Ok(item) => Ok(item),
    }
}

/// The item, if nobody who may not start work changed its text since the work was requested. Else the task is paused,
/// until somebody who may start work adds the label again.
async fn confirmed(ctx: &SessionContext, item: Item) -> Result<Item, SessionError> {
    let (tracker, task) = (ctx.effects.tracker(), &ctx.task);
    let Some(objection) = objection_to_text_of(tracker, task).await? else {
        return Ok(item);
    };
    let label = &ctx.deps.config.labels.request;
    let session = ctx.session_name();
    ctx.comment_if_taken(&held_comment(&objection.message, label, &session))
        .await?;
    Err(Interrupt::Paused(objection.message).into())
}

/// An item of a forge that cannot be found is waited for like one whose forge is away, until it counts as gone.
async fn missing(ctx: &SessionContext, error: TrackerError) -> SessionError {
    if let TrackerError::NotFound { .. } = error
        && let Some(hidden) = withdrawal::hidden(ctx.effects.tracker(), &ctx.task.item).await
    {
        return hidden.into();
    }
    match error {
        TrackerError::NotFound { tracker, what }
            if tracker != TrackerKind::Local && Outage::of(ctx).await.age() < gone_after(ctx) =>
        {
            TrackerError::Unavailable {
                tracker,
                detail: format!("{what} was not found"),
                until: None,
            }
            .into()
        }
        error => error.into(),
    }
}

/// Reports on the item that work has started.
async fn announce(ctx: &SessionContext, item: &Item) -> Result<(), SessionError> {
    let labels = &ctx.deps.config.labels;
    let shows = |name: &str| has_label(&item.labels, name);
    if !shows(&labels.processing) || shows(&labels.request) {
        let label = || ctx.effects.label(TaskLabel::Processing);
        ctx.heartbeat.patiently(label).await?;
    }
    ctx.comment_if_taken(&work_comment(ctx.task.attempt, &ctx.session_name()))
        .await
}

//! Opens the pull request for a measured result, and reports on the item.

mod round;

use agentmine_agent::{Asked, RunOutcome, pull_request, pull_request_comment};
use agentmine_domain::ItemKind;
use agentmine_effects::{Pushers, ReportedCommit};
use agentmine_trackers::{Item, PullRequest};

use crate::error::{Interrupt, SessionError};
use crate::prepare::draft::Begun;
use crate::prepare::{Prepared, RoundWork};
use crate::session::context::SessionContext;
use crate::session::withdrawal::may_be_published;
use crate::verify::measure::Measurer;

/// What a session with a result reported.
pub(crate) struct Report {
    pub(crate) url: Option<String>,
    pub(crate) missing: Option<String>,
}

/// Opens the pull request and reports on the item. Once it is open, the outcome is decided: if the
/// report then fails, the sweep repeats it.
pub(crate) async fn report(
    ctx: &SessionContext,
    item: &Item,
    prepared: &Prepared,
    measurer: &Measurer<'_>,
    round: Option<&RoundWork>,
    begun: Begun,
    outcome: &RunOutcome,
) -> Result<Report, SessionError> {
    let Some(head) = &outcome.facts.head else {
        return Err(no_result(outcome));
    };
    let changes = outcome.facts.has_changes();
    if begun == Begun::WithPullRequest && !changes {
        // Only the empty commit is on the branch.
        return Err(no_result(outcome));
    }
    if !measurer.still_at(head).await? {
        return Err(SessionError::BranchMoved);
    }
    let session = ctx.session_name();
    let (url, reported) = if prepared.branches.opens_pull_request {
        may_be_published(ctx).await?;
        let number = ctx.task.item.number;
        let request = ctx.redactor.redact(item.body.clone());
        let text = request.as_str();
        let asked = match ctx.task.item.kind {
            ItemKind::Issue | ItemKind::PullRequest => Asked::Issue { number, text },
            ItemKind::Task => Asked::Task { number, text },
        };
        let text = pull_request(&item.title, asked, &session, outcome);
        let new = prepared.branches.pull_request(text);
        let missing = outcome.missing.as_deref();
        let result = ReportedCommit {
            commit: head.clone(),
            pushers: Pushers::of(measurer.others_pushed(head)),
            heard: None,
        };
        let open = || ctx.effects.pull_request(&new, &result, missing);
        let pull = ctx.heartbeat.patiently(open).await?;
        if pull.is_rejected() {
            return Err(rejected(ctx, &pull));
        }
        if pull.was_merged_without(head) {
            return Err(merged_before(ctx, &pull, &prepared.branches.work));
        }
        let url = pull.url;
        let report = || ctx.effects.report_done(&url, missing, &session);
        let reported = ctx.heartbeat.patiently(report).await;
        (url, reported)
    } else {
        // A merge of a moment ago does not have what was pushed after it.
        may_be_published(ctx).await?;
        let missing = outcome.missing.as_deref();
        let mut shown = outcome.clone();
        if let Some(work) = round {
            shown.last_message = round::record_answers(ctx, work, head, outcome).await?;
            round::begin_completion(ctx, head, outcome).await?;
        }
        let is_on_theirs = round.is_some_and(|work| work.round.head != prepared.began_at());
        let pushers = Pushers::of(is_on_theirs || measurer.others_pushed(head));
        let result = ReportedCommit {
            commit: head.clone(),
            pushers,
            // A round has them in its own result.
            heard: match round {
                Some(_) => None,
                None => round::heard(ctx).await?,
            },
        };
        let pushed = || ctx.effects.pushed_result(&result, missing);
        ctx.heartbeat.patiently(pushed).await?;
        let name = ctx.task.item.tracker.pull_request();
        let because = match round {
            Some(work) => {
                let done = measurer.solution(head).await?;
                Some(work.because(prepared.solution(), done))
            }
            None => None,
        };
        let text = pull_request_comment(name, because.as_deref(), &session, &shown);
        ctx.comment_if_taken(&text).await?;
        let url = item.url.clone();
        // The comment is there, so what is left are the replies and the label.
        let report = || ctx.effects.report_done(&url, missing, &session);
        let reported = ctx.heartbeat.patiently(report).await;
        (url, reported)
    };
    let report = Report {
        url: Some(url),
        missing: outcome.missing.clone(),
    };
    decided(reported, report)
}

/// Reports the pull request that an earlier attempt opened, and does nothing else. `failure` is why the work was
/// not continued; `None` if nobody tried to. Returns `None` if there is no such pull request. One that a person closed
/// ends the task as stopped, and so does one that was merged before the result was pushed.
pub(crate) async fn report_earlier(
    ctx: &SessionContext,
    failure: Option<&str>,
) -> Result<Option<Report>, SessionError> {
    let find = || ctx.effects.earlier_pull_request();
    let Some(earlier) = ctx.heartbeat.patiently(find).await? else {
        return Ok(None);
    };
    if earlier.pull.is_rejected() {
        return Err(rejected(ctx, &earlier.pull));
    }
    if earlier.was_merged_before() {
        return Err(merged_before(ctx, &earlier.pull, &ctx.task.branch()));
    }
    let url = earlier.pull.url.clone();
    let missing = earlier.missing_after(failure);
    let session = ctx.session_name();
    let report = || ctx.effects.report_done(&url, missing.as_deref(), &session);
    let reported = ctx.heartbeat.patiently(report).await;
    let report = Report {
        url: Some(url.clone()),
        missing: missing.clone(),
    };
    decided(reported, report).map(Some)
}

/// The branch of an earlier attempt is gone, as after a merge: reports its pull request if that was merged. Otherwise the task
/// ends as stopped.
pub(crate) async fn report_ended(
    ctx: &SessionContext,
    deleted: SessionError,
) -> Result<Report, SessionError> {
    let (tracker, task) = (ctx.effects.tracker(), &ctx.task);
    let found = tracker
        .find_pull_request(&task.item, &task.branch())
        .await?;
    match found {
        Some(pull) if pull.is_rejected() => Err(rejected(ctx, &pull)),
        Some(pull) if pull.merged => match report_earlier(ctx, None).await? {
            Some(report) => Ok(report),
            None => {
                let name = task.item.tracker.pull_request();
                let why = format!("somebody merged the {name} {}", pull.number);
                Err(Interrupt::Stopped(why).into())
            }
        },
        Some(_) | None => Err(Interrupt::Stopped(deleted.to_string()).into()),
    }
}

/// A person closed the pull request of an earlier attempt: nobody wants the work, until somebody requests it again.
fn rejected(ctx: &SessionContext, pull: &PullRequest) -> SessionError {
    let name = ctx.task.item.tracker.pull_request();
    // The number and not the URL: a reason is untrusted text, so links in it are broken in the comment.
    Interrupt::Stopped(format!("somebody closed the {name} {}", pull.number)).into()
}

/// A person merged the pull request during the work: the rest is on its branch, and only a person knows whether it is
/// wanted.
fn merged_before(ctx: &SessionContext, pull: &PullRequest, branch: &str) -> SessionError {
    let name = ctx.task.item.tracker.pull_request();
    let number = pull.number;
    Interrupt::Stopped(format!(
        "somebody merged the {name} {number} before the work was done. What was pushed after that is on the branch {branch} and \
         in no {name}"
    ))
    .into()
}

/// The error for a session that pushed nothing: the reason, with the agent's last message.
fn no_result(outcome: &RunOutcome) -> SessionError {
    let missing = outcome.missing.as_deref();
    let why = missing.unwrap_or("nothing was pushed");
    match outcome.last_message.trim() {
        "" => SessionError::NoResult(why.to_owned()),
        message => SessionError::NoResult(format!(
            "{why}\nLast message of the agent:\n{message:.1500}"
        )),
    }
}

/// Once the pull request is open, only a lost lease changes how the session ended.
fn decided(reported: Result<(), SessionError>, report: Report) -> Result<Report, SessionError> {
    match reported {
        Ok(()) => Ok(report),
        Err(error) if error.is_lease_lost() => Err(Interrupt::LeaseLost.into()),
        Err(error) => {
            tracing::warn!(%error, "the result was not reported on the item; the sweep will report it");
            Ok(report)
        }
    }
}

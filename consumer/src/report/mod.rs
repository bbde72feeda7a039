//! From a measured result to a pull request that reports it.

use agentmine_agent::{RunOutcome, pull_request};
use agentmine_domain::TaskLabel;
use agentmine_effects::progress_comment;
use agentmine_trackers::{Item, NewPullRequest};

use crate::error::{Interrupt, SessionError};
use crate::prepare::Prepared;
use crate::session::context::SessionContext;
use crate::verify::measure::Measurer;

/// How a session ended well.
pub(crate) struct Report {
    pub(crate) url: Option<String>,
    pub(crate) missing: Option<String>,
}

/// Opens the pull request and reports on the item. Once it is open the result is decided: a report that
/// fails then is left to the sweep.
pub(crate) async fn report(
    ctx: &SessionContext,
    item: &Item,
    prepared: &Prepared,
    measurer: &Measurer<'_>,
    outcome: &RunOutcome,
) -> Result<Report, SessionError> {
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
        return Err(SessionError::NoResult(format!("{why}{words}")));
    };
    if !measurer.still_at(head).await? {
        return Err(SessionError::BranchMoved);
    }
    let text = pull_request(
        &item.title,
        ctx.task.item.number,
        &ctx.session_name(),
        outcome,
    );
    let missing = outcome.missing.clone();
    if !prepared.branches.opens_pull_request {
        ctx.comment(&progress_comment(&text.body, &ctx.session_name()))
            .await?;
        let label = || ctx.effects.label(TaskLabel::Done);
        let reported = ctx.heartbeat.patiently(label).await;
        return decided(
            reported,
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
    let open = || ctx.effects.pull_request(&new, head);
    let pull = ctx.heartbeat.patiently(open).await?;
    let session = ctx.session_name();
    let report = || {
        let missing = missing.as_deref();
        ctx.effects.report_done(&pull.url, missing, &session)
    };
    let reported = ctx.heartbeat.patiently(report).await;
    decided(
        reported,
        Report {
            url: Some(pull.url),
            missing,
        },
    )
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

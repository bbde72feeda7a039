//! From a measured result to a pull request that tells of it.

pub(crate) mod effects;

use agentmine_agent::{Halt, Outcome, progress_comment, pull_request};
use agentmine_domain::TaskLabel;
use agentmine_trackers::{Item, NewPullRequest};

use crate::prepare::Prepared;
use crate::session::context::Context;
use crate::verify::measure::Measurer;

/// How a session ended well.
pub(crate) struct Report {
    pub(crate) url: Option<String>,
    pub(crate) missing: Option<String>,
}

/// Opens the pull request and tells the item. Once it is open the result is decided: what then
/// cannot be told on the item is owed to it, and told by the sweep.
pub(crate) async fn report(
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
        let told = ctx.effects.label(TaskLabel::Done).await;
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

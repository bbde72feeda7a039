//! The progress comment while a session works: the phase, what is done and what comes, and what was used.
//!
//! What it shows is read from the store, so a worker that takes over continues with it. Guaranteed: it is edited once in
//! `consumer.progress_seconds` at most, and no edit is under way when the session reports. What the comment says at the
//! beginning and at the end is not up to this module.

use std::time::Duration;

use agentmine_domain::{ItemKind, TaskState};
use agentmine_effects::{EffectError, may_be_of_comments, working_comment};
use chrono::Utc;
use tokio_util::sync::CancellationToken;

use super::context::SessionContext;

/// A tracker that takes longer for one edit gets the next one.
const LIMIT: Duration = Duration::from_secs(10);

/// Edits the comment again and again, until the session ends or reports.
pub(super) async fn watch(ctx: &SessionContext, ends: &CancellationToken) {
    if ctx.task.item.kind == ItemKind::Task {
        return;
    }
    let period = Duration::from_secs(ctx.deps.config.consumer.progress_seconds);
    let mut shown = None;
    while ends
        .run_until_cancelled(tokio::time::sleep(period))
        .await
        .is_some()
    {
        let Some(_open) = ctx.progress.while_open().await else {
            return;
        };
        match tokio::time::timeout(LIMIT, edit(ctx, &mut shown)).await {
            Ok(Ok(())) => {}
            Ok(Err(EffectError::Tracker(error))) if may_be_of_comments(&error) => {
                tracing::debug!(%error, "the item accepts no comments; no progress is shown");
                return;
            }
            Ok(Err(error)) => tracing::debug!(%error, "the progress could not be shown"),
            Err(_) => tracing::debug!("the tracker took too long to show the progress"),
        }
    }
}

async fn edit(ctx: &SessionContext, shown: &mut Option<String>) -> Result<(), EffectError> {
    let (store, id) = (&ctx.deps.store, ctx.task.id);
    let Some(task) = store.task(id).await? else {
        return Ok(());
    };
    let TaskState::Leased(phase) = task.state else {
        return Ok(());
    };
    let sessions = store.sessions(Some(id), 0).await?;
    let name = ctx.session_name();
    let text = working_comment(&task, phase, &sessions, (&name, Utc::now()));
    if shown.as_ref() == Some(&text) {
        return Ok(());
    }
    ctx.effects.comment(&text).await?;
    *shown = Some(text);
    Ok(())
}

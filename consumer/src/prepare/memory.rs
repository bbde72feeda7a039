//! What people recorded about the project, for the model: exactly what `agentmine memory preview` shows.
//!
//! It is read from the store alone. The files in a repository's `.agentmine/memory/` are not: a model can open them like
//! any other file, and they become memory when a person imports them.

use std::path::PathBuf;

use agentmine_agent::{GivenMemory, given_memory};
use agentmine_domain::{MemoryStatus, ProjectName, TrackerKind};
use agentmine_store::MemoryFilter;
use agentmine_trackers::{GitSource, Repository};
use chrono::Utc;

use crate::error::SessionError;
use crate::session::context::SessionContext;

/// Reads the active memory of the task's project, and records which of it the model is given.
pub(crate) async fn memory(ctx: &SessionContext) -> Result<GivenMemory, SessionError> {
    let limit = ctx.deps.config.memory.limit();
    if limit == 0 {
        return Ok(GivenMemory::default());
    }
    let project = project(ctx).await;
    let active = MemoryFilter {
        status: Some(MemoryStatus::Active),
        ..MemoryFilter::default()
    };
    let store = &ctx.deps.store;
    let records = ctx
        .heartbeat
        .patiently(|| store.memory(&project, &active))
        .await?;
    let redact = |text| ctx.redactor.redact(text);
    let given = given_memory(&records, Utc::now(), limit, &redact);
    if let Some(note) = given.note() {
        ctx.note(&note).await?;
    }
    Ok(given)
}

/// The name of the task's project. A local repository whose remote cannot be read is named by its folder.
pub(crate) async fn project(ctx: &SessionContext) -> ProjectName {
    let item = &ctx.task.item;
    match item.tracker {
        TrackerKind::GitHub | TrackerKind::GitLab => {
            ProjectName::of_forge(&item.host, &item.repo_path)
        }
        TrackerKind::Local => {
            // The item of a task that a person made names no folder.
            let folder = match ctx.effects.tracker().repository(item).await {
                Ok(Repository {
                    source: GitSource::Path(folder),
                    ..
                }) => folder,
                Ok(_) | Err(_) => PathBuf::from(&item.repo_path),
            };
            let named = folder.clone();
            let reading = tokio::task::spawn_blocking(move || agentmine_git::origin(&folder));
            match reading.await {
                Ok(Ok(origin)) => ProjectName::of_folder(&origin.main, origin.remote.as_deref()),
                Ok(Err(_)) | Err(_) => ProjectName::of_folder(&named, None),
            }
        }
    }
}

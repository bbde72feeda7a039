//! The repository's own `.agentmine/mcp_config.json`, as it is at the commit that the work begins from.
//!
//! It is read through git and before the agent begins, never from files that an agent may have
//! changed: what a push of the agent's own adds to the file starts nothing in its next session.

use agentmine_mcp::config::{MAX_FILE, PROJECT_FILE, RepositoryFile};

use super::workspace::Workspace;
use crate::error::{SessionError, WorkspaceError};
use crate::session::context::SessionContext;

/// Whether the commit is known to be in the clone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Base {
    /// It is what was cloned.
    Cloned,
    /// It was recorded by an earlier session, and the branch may have moved on.
    Recorded,
}

/// Reads the file at `commit`; `None` where there is none, or servers of repositories are not wanted.
pub(super) async fn repository_file(
    ctx: &SessionContext,
    workspace: &Workspace,
    commit: &str,
    base: Base,
) -> Result<Option<RepositoryFile>, SessionError> {
    let config = &ctx.deps.config.mcp;
    if !config.enabled || !config.repository_servers {
        return Ok(None);
    }
    if base == Base::Recorded && !fetched(workspace, commit).await? {
        ctx.note(&format!(
            "the repository's own MCP servers are not started: the commit that the work began from cannot be had any more: {commit:.40}"
        ))
        .await?;
        return Ok(None);
    }
    let object = format!("{commit}:{PROJECT_FILE}");
    let done = workspace.git(&["cat-file", "blob", &object]).await?;
    if done.exit_code != 0 {
        return Ok(None);
    }
    if done.truncated || done.stdout.len() > MAX_FILE {
        ctx.note(&format!(
            "the repository's own MCP servers are not started: {PROJECT_FILE} has over {MAX_FILE} bytes"
        ))
        .await?;
        return Ok(None);
    }
    Ok(Some(RepositoryFile {
        shown: PROJECT_FILE.into(),
        text: String::from_utf8_lossy(&done.stdout).into_owned(),
    }))
}

/// Whether the commit is there, or can be had.
async fn fetched(workspace: &Workspace, commit: &str) -> Result<bool, WorkspaceError> {
    let there = format!("{commit}^{{commit}}");
    if workspace.git(&["cat-file", "-e", &there]).await?.exit_code == 0 {
        return Ok(true);
    }
    let fetch = [
        "fetch",
        "--quiet",
        "--no-tags",
        "--depth=1",
        "origin",
        commit,
    ];
    Ok(workspace.git(&fetch).await?.exit_code == 0)
}

//! The repository's `.agentmine/mcp_config.json` at the base commit, or, for work on an existing pull request, at that of its target
//! branch (`Start::rules`).
//!
//! It is read through git before the agent begins, never from files that an agent may have changed:
//! servers that the agent adds to the file and pushes are not started in its next session.

use agentmine_mcp::config::{MAX_FILE, PROJECT_FILE, RepositoryFile};

use super::workspace::{FileAt, Workspace};
use crate::error::{SessionError, WorkspaceError};
use crate::session::context::SessionContext;

/// Where the commit of the file comes from, and so whether the clone is sure to contain it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Base {
    /// It was just fetched.
    Cloned,
    /// It was recorded by an earlier session; the branch may have moved since.
    Recorded,
}

/// Reads the file at `commit`. `None` if it does not exist, or if repository-configured servers are
/// disabled.
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
            "repository-configured MCP servers are not started: the commit that has their file is no longer available: {commit:.40}"
        ))
        .await?;
        return Ok(None);
    }
    let text = match workspace.file_at(commit, PROJECT_FILE).await? {
        FileAt::Missing => return Ok(None),
        FileAt::Content(file) if file.len() <= MAX_FILE => file,
        FileAt::Content(_) | FileAt::TooLarge => {
            ctx.note(&format!(
                "repository-configured MCP servers are not started: {PROJECT_FILE} is larger than {MAX_FILE} bytes"
            ))
            .await?;
            return Ok(None);
        }
    };
    Ok(Some(RepositoryFile {
        shown: PROJECT_FILE.into(),
        text: String::from_utf8_lossy(&text).into_owned(),
    }))
}

/// Whether the clone contains the commit, which is fetched if necessary.
async fn fetched(workspace: &Workspace, commit: &str) -> Result<bool, WorkspaceError> {
    let object = format!("{commit}^{{commit}}");
    if workspace.git(&["cat-file", "-e", &object]).await?.exit_code == 0 {
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
    let done = workspace.git(&fetch).await?;
    workspace.reached("git fetch", &done)?;
    Ok(done.exit_code == 0)
}

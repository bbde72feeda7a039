//! From a claimed task to a sandbox in which the agent can begin (spec 001 §4, §5).

mod branches;
mod clone;
mod image;
mod project;
mod servers_file;
pub(crate) mod traffic;
pub(crate) mod workspace;

use std::sync::Arc;
use std::time::{Duration, Instant};

use agentmine_agent::{Project, Start};
use agentmine_domain::Lease;
use agentmine_gateway::{Gateway, GatewayConfig, GitAccess, PushFence, Upstream};
use agentmine_mcp::config::RepositoryFile;
use agentmine_sandbox::{SandboxError, SandboxRole, SandboxSpec};
use agentmine_store::{Checkpoint, Store};
use agentmine_trackers::{GitSource, Item};
use async_trait::async_trait;

use crate::error::SessionError;
use crate::record::checkpoint::unpack;
use crate::session::context::SessionContext;
use branches::WorkBranches;
use clone::clone;
use image::chosen_image;
use servers_file::{Base, repository_file};
use workspace::{Workspace, said};

/// Most bytes of one push.
const MAX_PUSH: u64 = 512 * 1024 * 1024;
/// All of the set-up.
pub(crate) const SETUP_TIMEOUT: Duration = Duration::from_secs(1800);

/// A sandbox in which the agent can begin.
pub(crate) struct Prepared {
    pub(crate) workspace: Workspace,
    pub(crate) project: Project,
    pub(crate) branches: WorkBranches,
    pub(crate) base: String,
    pub(crate) upstream: Upstream,
    pub(crate) image: Option<String>,
    /// The snapshot that the files were restored to.
    pub(crate) restored: Option<Restored>,
    /// The repository's own MCP servers, as of `base`.
    pub(crate) repository_servers: Option<RepositoryFile>,
}

/// A snapshot that the files were put back to.
#[derive(Debug, Clone)]
pub(crate) struct Restored {
    /// The snapshot commit.
    pub(crate) commit: String,
    /// Bytes of all bundles that it took.
    pub(crate) total: usize,
}

/// The store decides before each push.
struct LeaseFence {
    store: Arc<dyn Store>,
    lease: Lease,
}

#[async_trait]
impl PushFence for LeaseFence {
    async fn check(&self) -> Result<(), String> {
        self.store
            .check(&self.lease)
            .await
            .map_err(|e| e.to_string())
    }
}

/// Makes the sandbox, clones, installs, restores.
pub(crate) async fn prepare(
    ctx: &SessionContext,
    item: &Item,
    recorded: Option<Start>,
    checkpoints: Vec<Checkpoint>,
) -> Result<Prepared, SessionError> {
    let repository = ctx.effects.tracker().repository(&ctx.task.item).await?;
    let branches = WorkBranches::of(&ctx.task, item, &repository);
    branches.check(&repository)?;
    let upstream = upstream(repository.source.clone());
    let image = chosen_image(ctx, branches.start()).await?;
    let gateway = Gateway::new(GatewayConfig {
        git: GitAccess::ReadWrite {
            upstream: upstream.clone(),
            branch: branches.work.clone(),
            max_push_bytes: MAX_PUSH,
            fence: Arc::new(LeaseFence {
                store: Arc::clone(&ctx.deps.store),
                lease: ctx.lease.clone(),
            }),
        },
        network: ctx.deps.config.command_executor.docker.network.clone(),
    })
    .map_err(SessionError::Gateway)?;
    let spec = SandboxSpec {
        task: ctx.task.id,
        epoch: ctx.lease.epoch,
        role: SandboxRole::Main,
        image: image.clone(),
    };
    let workspace = Workspace::start(ctx.deps.backend.as_ref(), &spec, gateway).await?;
    ctx.freezer.add(Arc::clone(&workspace.sandbox)).await;
    for warning in workspace.sandbox.warnings() {
        ctx.note(&warning).await?;
    }
    let resumes = !checkpoints.is_empty();
    let cloned = clone(ctx, &workspace, &branches, recorded.clone(), resumes).await?;
    let place = match recorded {
        Some(recorded) if recorded.base == cloned.base => Base::Recorded,
        _ => Base::Cloned,
    };
    let Start { base, project } = cloned;
    // Before the agent's files are there: nothing of its own decides what is read.
    let repository_servers = repository_file(ctx, &workspace, &base, place).await?;
    let restored = restore(ctx, &workspace, checkpoints).await?;
    install(ctx, &workspace, &project).await?;
    Ok(Prepared {
        workspace,
        project,
        branches,
        base,
        upstream,
        image,
        restored,
        repository_servers,
    })
}

/// Where the gateway takes the repository from.
fn upstream(source: GitSource) -> Upstream {
    match source {
        GitSource::Http {
            url,
            user,
            password,
        } => Upstream::Http {
            url,
            user,
            password,
        },
        GitSource::Path(path) => Upstream::Path(path),
    }
}

/// Puts the files of the newest checkpoint back.
async fn restore(
    ctx: &SessionContext,
    workspace: &Workspace,
    checkpoints: Vec<Checkpoint>,
) -> Result<Option<Restored>, SessionError> {
    let Some(last) = checkpoints.last() else {
        return Ok(None);
    };
    let (commit, seq) = (last.commit.clone(), last.seq);
    let bundles = checkpoints
        .iter()
        .map(|c| unpack(&c.bundle))
        .collect::<anyhow::Result<Vec<_>>>()
        .map_err(SessionError::Checkpoint)?;
    let total = bundles.iter().map(Vec::len).sum();
    match workspace.sandbox.restore(bundles, &commit).await {
        Ok(()) => {
            ctx.note(&format!("resumed: the files are those of step {seq}"))
                .await?;
            Ok(Some(Restored { commit, total }))
        }
        Err(SandboxError::Failed(reason)) => {
            ctx.note(&format!(
                "resumed without the files of step {seq}: {reason}"
            ))
            .await?;
            Ok(None)
        }
        Err(error) => Err(SessionError::SandboxGone(error.to_string())),
    }
}

/// Installs dependencies. A failure is noted and not fatal: the agent may fix it.
async fn install(
    ctx: &SessionContext,
    workspace: &Workspace,
    project: &Project,
) -> Result<(), SessionError> {
    let begun = Instant::now();
    for line in &project.setup {
        let left = SETUP_TIMEOUT.saturating_sub(begun.elapsed());
        if left.is_zero() {
            return ctx
                .note(&format!("set-up: no time was left for `{line}`"))
                .await;
        }
        let done = workspace.shell(line, left, 16 * 1024).await?;
        let note = if done.exit_code == 0 {
            format!("set-up: `{line}` in {} ms", done.duration.as_millis())
        } else {
            format!("set-up failed: `{line}`: {}", said(&done))
        };
        ctx.note(&note).await?;
    }
    Ok(())
}

//! Prepares the sandbox for a claimed task: clone, dependencies, restored files (spec 001 §4, §5).

mod agent;
mod branches;
pub(crate) mod clone;
mod conversion;
mod discussion;
pub(crate) mod draft;
mod image;
pub(crate) mod install;
pub(crate) mod memory;
mod naming;
mod project;
mod round;
mod servers_file;
pub(crate) mod templates;
pub(crate) mod traffic;
mod upstream;
pub(crate) mod workspace;

use std::sync::Arc;

use agentmine_agent::journal::{Entry, newest_start};
use agentmine_agent::{Project, Resumed, Solution, Start, Unsaved};
use agentmine_domain::Lease;
use agentmine_effects::{PushRecord, is_final};
use agentmine_gateway::facts::BareRepo;
use agentmine_gateway::{GatewayConfig, GitAccess, PushFence, Upstream};
use agentmine_mcp::config::RepositoryFile;
use agentmine_runtime::config::{BackendKind, EffectiveAgent};
use agentmine_runtime::failpoint::around;
use agentmine_runtime::permit::Permit;
use agentmine_sandbox::{SandboxError, SandboxRole, SandboxSpec};
use agentmine_store::{Checkpoint, Store};
use agentmine_trackers::{GitSource, Item, Repository};
use async_trait::async_trait;

use crate::error::{SessionError, WorkspaceError};
use crate::record::checkpoint::unpack;
use crate::session::context::SessionContext;
use branches::WorkBranches;
use clone::clone;
pub(crate) use discussion::{Remarks, discussion, remarks};
use image::chosen_image;
use install::install;
pub(crate) use memory::memory;
pub(crate) use naming::name_branch;
pub(crate) use round::{RoundWork, round};
use servers_file::{Base, repository_file};
use upstream::upstream;
use workspace::Workspace;

/// A sandbox that is ready for the agent.
pub(crate) struct Prepared {
    pub(crate) workspace: Workspace,
    pub(crate) project: Project,
    /// The agent that the task names.
    pub(crate) agent: EffectiveAgent,
    pub(crate) branches: WorkBranches,
    pub(crate) base: String,
    /// The commit of the work branch that a rebase onto `base` replaces.
    pub(crate) rebases: Option<String>,
    pub(crate) upstream: Upstream,
    pub(crate) image: Option<String>,
    /// The snapshot that the files were restored from.
    pub(crate) restored: Option<Restored>,
    /// The repository's MCP configuration file, as its rules say (`Start::rules`).
    pub(crate) repository_servers: Option<RepositoryFile>,
}

impl Prepared {
    /// The commit that the work branch was at when the work began.
    pub(crate) fn began_at(&self) -> &str {
        self.rebases.as_deref().unwrap_or(&self.base)
    }

    /// How a conflict with the target branch is solved.
    pub(crate) fn solution(&self) -> Solution {
        match self.rebases {
            Some(_) => Solution::Rebase,
            None => Solution::Merge,
        }
    }
}

/// A snapshot that the files were restored from.
#[derive(Debug, Clone)]
pub(crate) struct Restored {
    /// The snapshot commit.
    pub(crate) commit: String,
    /// Total size in bytes of its bundles.
    pub(crate) total: usize,
    /// What earlier sessions did not save.
    pub(crate) unsaved: Vec<Unsaved>,
}

/// Checks the lease before each push, in the store and by the worker's own clock.
struct LeaseFence {
    store: Arc<dyn Store>,
    lease: Lease,
    permit: Permit,
    pushed: Arc<PushRecord>,
}

#[async_trait]
impl PushFence for LeaseFence {
    async fn check(&self) -> Result<(), String> {
        self.store
            .check(&self.lease)
            .await
            .map_err(|e| e.to_string())?;
        self.check_clock()
    }

    fn check_clock(&self) -> Result<(), String> {
        self.permit.check().map_err(|e| e.to_string())
    }

    fn accepted(&self) {
        // The answer to the push does not wait for it.
        let pushed = Arc::clone(&self.pushed);
        tokio::spawn(async move { pushed.note().await });
    }
}

/// Takes the session's sandbox or starts one, clones, restores the files of a checkpoint, and installs dependencies. `entries` are those of the
/// earlier sessions.
pub(crate) async fn prepare(
    ctx: &SessionContext,
    item: &Item,
    round: Option<&RoundWork>,
    entries: &[Entry],
    checkpoints: Vec<Checkpoint>,
) -> Result<Prepared, SessionError> {
    let recorded = newest_start(entries).cloned();
    let repository = ctx.effects.tracker().repository(&ctx.task.item).await?;
    let branches = WorkBranches::of(&ctx.task, item, &repository);
    branches.check(&repository)?;
    refuse_below_another(&branches, &repository).await?;
    // None of these requests to the tracker needs the answer of another.
    let ((), co_author, agent) = tokio::try_join!(
        refuse_protected(ctx, &branches.work),
        co_author(ctx),
        agent::agent(ctx, branches.rules()),
    )?;
    let upstream = upstream(repository.source.clone());
    let image = match image_of(ctx, &agent).await? {
        Some(image) => Some(image),
        None => chosen_image(ctx, branches.rules()).await?,
    };
    let network = ctx.deps.config.command_executor.docker.network.clone();
    let gateway = GatewayConfig {
        git: GitAccess::ReadWrite {
            upstream: upstream.clone(),
            branch: branches.work.clone(),
            max_push_bytes: network.push.max_size.bytes(),
            fence: Arc::new(LeaseFence {
                store: Arc::clone(&ctx.deps.store),
                lease: ctx.lease.clone(),
                permit: ctx.heartbeat.certainty().permit().clone(),
                pushed: Arc::new(ctx.effects.push_record()),
            }),
        },
        network,
    };
    let spec = SandboxSpec {
        task: ctx.task.id,
        epoch: ctx.lease.epoch,
        role: SandboxRole::Main,
        image: image.clone(),
        template: clone::template(ctx, &branches, image.as_deref()),
    };
    let sandbox = ctx
        .early
        .take_or_start(ctx.deps.backend.as_ref(), &spec)
        .await
        .map_err(WorkspaceError::Start)?;
    // Nothing may keep a template that nobody uses any longer.
    drop(spec);
    let workspace = Workspace::of(sandbox, gateway, ctx.mirrors.as_ref()).await?;
    ctx.freezer.add(Arc::clone(&workspace.sandbox)).await;
    for warning in workspace.sandbox.warnings() {
        ctx.note(&warning).await?;
    }
    let resumes = !checkpoints.is_empty();
    let cloned = clone(
        ctx,
        &workspace,
        &branches,
        clone::Settings {
            image: image.as_deref(),
            done: agent::done_checks(&agent),
            co_author: co_author.as_deref(),
            rebases: round.and_then(|round| round.rebases(ctx.deps.config.rounds.base_conflict)),
        },
        recorded.clone(),
        resumes,
    )
    .await?;
    let origin = match recorded {
        Some(recorded) if recorded.base == cloned.base => Base::Recorded,
        _ => Base::Cloned,
    };
    let Start {
        base,
        rebases,
        rules,
        project,
    } = cloned;
    let rules = rules.as_deref().unwrap_or(&base);
    let rest = async {
        // Read before the agent's files are restored, so that they cannot influence it.
        let servers = repository_file(ctx, &workspace, rules, origin).await?;
        let restored = restore(ctx, &workspace, entries, checkpoints).await?;
        install(ctx, &workspace, &project).await?;
        Ok::<_, SessionError>((servers, restored))
    };
    let (rest, ()) = tokio::join!(rest, workspace.gateway.try_credentials());
    // With a token that may only read, the clone succeeds, and only the push after the work would fail.
    workspace.authorized("git push")?;
    let (repository_servers, restored) = rest?;
    Ok(Prepared {
        workspace,
        project,
        agent,
        branches,
        base,
        rebases,
        upstream,
        image,
        restored,
        repository_servers,
    })
}

/// Fails if the forge would refuse every push to the work branch, before the clone and the first model call.
async fn refuse_protected(ctx: &SessionContext, branch: &str) -> Result<(), SessionError> {
    let tracker = ctx.effects.tracker();
    match tracker.push_objection(&ctx.task.item, branch).await? {
        None => Ok(()),
        Some(why) => Err(SessionError::ProtectedBranch {
            branch: branch.to_owned(),
            why,
        }),
    }
}

/// Fails if the repository on this machine has a branch above the work branch. On a host this costs a request; there the
/// gateway names the branch when the work is pushed.
async fn refuse_below_another(
    branches: &WorkBranches,
    repository: &Repository,
) -> Result<(), SessionError> {
    let source = match &repository.source {
        source @ GitSource::Path(_) => source.clone(),
        GitSource::Http { .. } => return Ok(()),
    };
    let bare = BareRepo::new(upstream(source)).map_err(SessionError::BareRepo)?;
    match naming::branch_above(&bare, &branches.work).await? {
        None => Ok(()),
        Some(other) => Err(SessionError::BranchInTheWay {
            branch: branches.work.clone(),
            other: other.to_owned(),
        }),
    }
}

/// The person who requested the work, as `NAME <ADDRESS>`, if the configuration asks for it.
async fn co_author(ctx: &SessionContext) -> Result<Option<String>, SessionError> {
    if !ctx.deps.config.agent.co_author_requester {
        return Ok(None);
    }
    let (tracker, task) = (ctx.effects.tracker(), &ctx.task);
    let trigger = task.answered_trigger.as_ref().unwrap_or(&task.trigger);
    let requested = tracker.requested(&task.item, trigger).await?;
    let Some(person) = requested.and_then(|it| it.by).filter(|it| !it.is_program()) else {
        return Ok(None);
    };
    match tracker.noreply(&person).await {
        Err(error) if is_final(&error) => {
            let note = format!("the person who requested the work is not a co-author: {error}");
            ctx.note(&note).await.map(|()| None)
        }
        named => Ok(named?),
    }
}

/// The image that the agent names. The jail has none.
async fn image_of(
    ctx: &SessionContext,
    agent: &EffectiveAgent,
) -> Result<Option<String>, SessionError> {
    let Some(image) = &agent.image else {
        return Ok(None);
    };
    match ctx.deps.config.command_executor.backend {
        BackendKind::Docker => Ok(Some(image.clone())),
        BackendKind::Local => {
            let note = format!(
                "agent {}: the image {image:.100} is not used: the local jail uses no image",
                agent.name
            );
            ctx.note(&note).await?;
            Ok(None)
        }
    }
}

/// Restores the files of the newest checkpoint.
async fn restore(
    ctx: &SessionContext,
    workspace: &Workspace,
    entries: &[Entry],
    checkpoints: Vec<Checkpoint>,
) -> Result<Option<Restored>, SessionError> {
    let Some(last) = checkpoints.last() else {
        return Ok(None);
    };
    let (commit, seq) = (last.commit.clone(), last.seq);
    let bundles = checkpoints
        .iter()
        .map(|c| unpack(&c.bundle))
        .collect::<Result<Vec<_>, _>>()
        .map_err(SessionError::Checkpoint)?;
    let total = bundles.iter().map(Vec::len).sum();
    let restored = workspace.sandbox.restore(bundles, &commit);
    match around("checkpoint.restore", restored).await {
        Ok(()) => {
            ctx.record(Resumed::With(seq).entry()).await?;
            Ok(Some(Restored {
                commit,
                total,
                unsaved: Unsaved::after(seq, entries),
            }))
        }
        Err(SandboxError::Failed(reason)) => {
            ctx.record(Resumed::Without(seq, reason).entry()).await?;
            Ok(None)
        }
        Err(error) => Err(SessionError::SandboxGone(error.to_string())),
    }
}

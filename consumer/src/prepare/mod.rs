//! From a claimed task to a sandbox in which the agent can begin (spec 001 §4, §5).

pub(crate) mod project;
pub(crate) mod traffic;
pub(crate) mod workspace;

use std::sync::Arc;
use std::time::{Duration, Instant};

use agentmine_agent::{Halt, Journal as _, Record};
use agentmine_gateway::{Gateway, GatewayConfig, GitAccess, PushFence, Upstream};
use agentmine_mcp::config::RepositoryFile;
use agentmine_sandbox::SandboxSpec;
use agentmine_store::{Checkpoint, Store};
use agentmine_trackers::{GitSource, Item, Repository};
use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::prepare::project::{PROJECT_FILE, Project, ProjectFile, inspect};
use crate::prepare::workspace::{Workspace, said};
use crate::record::checkpoint::unpack;
use crate::run::servers::{Base, repository_file};
use crate::session::context::Context;

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

/// Which branch is worked on, and which it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WorkBranches {
    /// The one branch that may be pushed to.
    pub(crate) work: String,
    /// Where a pull request would go.
    pub(crate) target: String,
    /// Whether a pull request has to be opened; not for a task that is one.
    pub(crate) opens_pull_request: bool,
}

impl WorkBranches {
    /// An issue gets a branch of its own from the default branch; a pull request is worked on where
    /// it is.
    pub(crate) fn of(task: &agentmine_domain::Task, item: &Item, repository: &Repository) -> Self {
        match &item.branches {
            Some(branches) => Self {
                work: branches.source.clone(),
                target: branches.target.clone(),
                opens_pull_request: false,
            },
            None => Self {
                work: task.branch(),
                target: repository.default_branch.clone(),
                opens_pull_request: true,
            },
        }
    }

    /// The branch that others build on is never worked on, whatever a tracker says.
    fn check(&self, repository: &Repository) -> Result<(), Halt> {
        if self.work == repository.default_branch || self.work == self.target {
            return Err(Halt::Failed(format!(
                "the work would go to the branch {:?} itself; expected a branch of its own",
                self.work
            )));
        }
        Ok(())
    }

    /// Where the clone starts.
    fn start(&self) -> &str {
        if self.opens_pull_request {
            &self.target
        } else {
            &self.work
        }
    }
}

/// What was settled before the agent began: what its work is measured from and by. Recorded, so that
/// no later attempt takes it from what the agent has pushed meanwhile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Start {
    /// The commit that the work begins from.
    pub(crate) base: String,
    /// How the repository is set up and checked.
    pub(crate) project: Project,
}

/// The store decides before each push.
struct LeaseFence {
    store: Arc<dyn Store>,
    lease: agentmine_domain::Lease,
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
    ctx: &Context,
    item: &Item,
    recorded: Option<Start>,
    checkpoints: Vec<Checkpoint>,
) -> Result<Prepared, Halt> {
    let repository = ctx
        .effects
        .tracker
        .repository(&ctx.task.item)
        .await
        .map_err(crate::report::effects::tracker_halt)?;
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
    .map_err(|e| Halt::Failed(format!("the gateway could not be set up: {e:#}")))?;
    let spec = SandboxSpec {
        task: ctx.task.id,
        epoch: ctx.lease.epoch,
        role: "main".into(),
        image: image.clone(),
    };
    let workspace = Workspace::start(ctx.deps.backend.as_ref(), &spec, gateway).await?;
    ctx.adopt(Arc::clone(&workspace.sandbox)).await;
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

/// The image that the repository asks for, if the operator allows it.
async fn chosen_image(ctx: &Context, branch: &str) -> Result<Option<String>, Halt> {
    let allowed = &ctx.deps.config.command_executor.docker.allowed_images;
    if allowed.is_empty() {
        return Ok(None);
    }
    let text = ctx
        .effects
        .tracker
        .file(&ctx.task.item, branch, PROJECT_FILE)
        .await
        .map_err(crate::report::effects::tracker_halt)?;
    let Some(image) = text
        .and_then(|t| ProjectFile::parse(&t).ok())
        .and_then(|f| f.image)
    else {
        return Ok(None);
    };
    let fits = allowed
        .iter()
        .any(|pattern| match pattern.strip_suffix('*') {
            Some(prefix) => image.starts_with(prefix),
            None => *pattern == image,
        });
    if fits {
        return Ok(Some(image));
    }
    ctx.note(&format!("the repository asks for an image that command_executor.docker.allowed_images does not name; the configured one is used: {image:.100}")).await?;
    Ok(None)
}

/// Clones, checks the work branch out, and settles the start: the recorded one where an earlier
/// attempt's work is gone on with, else what the clone says before that work is fetched.
async fn clone(
    ctx: &Context,
    workspace: &Workspace,
    branches: &WorkBranches,
    recorded: Option<Start>,
    resumes: bool,
) -> Result<Start, Halt> {
    let config = &ctx.deps.config;
    let options = &config.command_executor.clone;
    let depth = options.shallow.then_some(options.depth);
    workspace
        .clone_branch(branches.start(), depth, &settings(&config.agent))
        .await?;
    let pushed =
        branches.opens_pull_request && fetch_pushed(ctx, workspace, &branches.work, depth).await?;
    let goes_on = resumes || pushed || !branches.opens_pull_request;
    let start = match recorded.filter(|_| goes_on) {
        Some(start) => start,
        None => {
            let install = options.auto_install_deps;
            let project = inspect(workspace, &config.agent.checks, install).await?;
            let base = workspace.git_ok(&["rev-parse", "HEAD"]).await?;
            let start = Start { base, project };
            ctx.journal.record_start(&start).await?;
            start
        }
    };
    if let Some(warning) = &start.project.warning {
        ctx.note(warning).await?;
    }
    if branches.opens_pull_request {
        workspace
            .git_ok(&["checkout", "--quiet", "-b", &branches.work])
            .await?;
        if pushed {
            let remote = format!("refs/remotes/origin/{}", branches.work);
            workspace
                .git_ok(&["reset", "--quiet", "--hard", &remote])
                .await?;
        }
    } else {
        reach_merge_base(workspace, &branches.target, options.shallow).await?;
    }
    Ok(start)
}

/// What git is told for all of the agent's work in the clone.
fn settings(agent: &agentmine_runtime::config::Agent) -> Vec<String> {
    vec![
        format!("user.name={}", agent.git_user_name),
        format!("user.email={}", agent.git_user_email),
        "push.default=current".into(),
        "pull.rebase=true".into(),
        "gc.auto=0".into(),
    ]
}

/// An earlier attempt may have pushed already: the work goes on from there, not beside it.
async fn fetch_pushed(
    ctx: &Context,
    workspace: &Workspace,
    branch: &str,
    depth: Option<u32>,
) -> Result<bool, Halt> {
    if ctx.task.epoch.0 <= 1 {
        return Ok(false);
    }
    let refspec = format!("+refs/heads/{branch}:refs/remotes/origin/{branch}");
    let depth = depth.map(|d| format!("--depth={}", d.max(1) + 50));
    let mut args = vec!["fetch", "--quiet", "--no-tags"];
    args.extend(depth.as_deref());
    args.extend(["origin", refspec.as_str()]);
    Ok(workspace.git(&args).await?.exit_code == 0)
}

/// For a pull request: the target branch is fetched, deep enough that the merge base is there, so
/// that the difference can be looked at (spec 001 §4.2). Unrelated histories have none.
async fn reach_merge_base(workspace: &Workspace, target: &str, shallow: bool) -> Result<(), Halt> {
    let refspec = format!("+refs/heads/{target}:refs/remotes/origin/{target}");
    let remote = format!("refs/remotes/origin/{target}");
    let depth = if shallow { "--depth=1" } else { "--no-auto-gc" };
    workspace
        .git_ok(&["fetch", "--quiet", "--no-tags", depth, "origin", &refspec])
        .await?;
    for deepen in ["--deepen=50", "--deepen=500", "--unshallow"] {
        let found = workspace.git(&["merge-base", &remote, "HEAD"]).await?;
        if found.exit_code == 0 || !shallow {
            return Ok(());
        }
        // Both branches; deepening fails, without harm, where nothing is shallow any more.
        workspace
            .git(&[
                "fetch",
                "--quiet",
                "--no-tags",
                deepen,
                "origin",
                "HEAD",
                &refspec,
            ])
            .await?;
    }
    Ok(())
}

/// Puts the files of the newest checkpoint back.
async fn restore(
    ctx: &Context,
    workspace: &Workspace,
    checkpoints: Vec<Checkpoint>,
) -> Result<Option<Restored>, Halt> {
    let Some(last) = checkpoints.last() else {
        return Ok(None);
    };
    let (commit, seq) = (last.commit.clone(), last.seq);
    let bundles = checkpoints
        .iter()
        .map(|c| unpack(&c.bundle))
        .collect::<anyhow::Result<Vec<_>>>()
        .map_err(|e| Halt::Failed(format!("a checkpoint cannot be read: {e:#}")))?;
    let total = bundles.iter().map(Vec::len).sum();
    match workspace.sandbox.restore(bundles, &commit).await {
        Ok(()) => {
            ctx.note(&format!("resumed: the files are those of step {seq}"))
                .await?;
            Ok(Some(Restored { commit, total }))
        }
        Err(agentmine_sandbox::SandboxError::Failed(reason)) => {
            ctx.note(&format!(
                "resumed without the files of step {seq}: {reason}"
            ))
            .await?;
            Ok(None)
        }
        Err(error) => Err(Halt::Retry(error.to_string())),
    }
}

/// Installs dependencies. A failure is told, not fatal: the agent may mend it.
async fn install(ctx: &Context, workspace: &Workspace, project: &Project) -> Result<(), Halt> {
    let begun = Instant::now();
    for line in &project.setup {
        let left = SETUP_TIMEOUT.saturating_sub(begun.elapsed());
        if left.is_zero() {
            return ctx
                .note(&format!("set-up: no time was left for `{line}`"))
                .await;
        }
        let done = workspace.shell(line, left, 16 * 1024).await?;
        let told = if done.exit_code == 0 {
            format!("set-up: `{line}` in {} ms", done.duration.as_millis())
        } else {
            format!("set-up failed: `{line}`: {}", said(&done))
        };
        ctx.note(&told).await?;
    }
    Ok(())
}

impl Context {
    /// A line for whoever reads the transcript.
    pub(crate) async fn note(&self, text: &str) -> Result<(), Halt> {
        self.journal.record(Record::Note(text), 0).await
    }
}

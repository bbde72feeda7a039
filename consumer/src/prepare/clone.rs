//! Clones the repository and checks out the work branch.

use std::time::Duration;

use agentmine_agent::journal::Entry;
use agentmine_agent::{DoneCheck, Start};
use agentmine_gateway::{BranchBefore, CloneRefs, Rewrite};
use agentmine_runtime::config::Agent;
use agentmine_sandbox::WorkspaceTemplate;

use super::branches::WorkBranches;
use super::conversion::Converted;
use super::project::{Operator, inspect};
use super::templates::{CloneKind, WorkspaceTemplates};
use super::workspace::{Workspace, output_tail};
use crate::error::{SessionError, WorkspaceError};
use crate::session::context::SessionContext;

/// Time limit for writing a hook.
const HOOK_TIMEOUT: Duration = Duration::from_secs(60);

/// What is settled before the clone.
pub(super) struct Settings<'a> {
    /// The image that was chosen; `None` for the configured one.
    pub(super) image: Option<&'a str>,
    /// The agent's definition of done.
    pub(super) done: Vec<DoneCheck>,
    /// Whom every commit names as co-author, as `NAME <ADDRESS>`.
    pub(super) co_author: Option<&'a str>,
    /// The commit of the work branch that a rebase may replace.
    pub(super) rebases: Option<&'a str>,
}

/// Clones, checks out the work branch, and determines the start: the recorded one if the work of an
/// earlier attempt is continued, otherwise the one read from the clone before that work is fetched. On an existing pull
/// request, what its branch declares does not count, but what its target does (`WorkBranches::rules`).
pub(super) async fn clone(
    ctx: &SessionContext,
    workspace: &Workspace,
    branches: &WorkBranches,
    settled: Settings<'_>,
    recorded: Option<Start>,
    resumes: bool,
) -> Result<Start, SessionError> {
    let config = &ctx.deps.config;
    let ClonedStart { depth, converted } =
        clone_start(ctx, workspace, branches, settled.image).await?;
    if let Some(co_author) = settled.co_author {
        name_co_author(workspace, co_author).await?;
    }
    let base = recorded.as_ref().map_or("HEAD", |start| &start.base);
    let pushed = branches.opens_pull_request
        && fetch_pushed(ctx, workspace, &branches.work, depth, base).await?;
    let is_there = pushed || !branches.opens_pull_request;
    // A person who removes the branch meanwhile does not want it back, and one who pushes to it takes it over.
    let before = match is_there {
        // A push of the session before this one may still arrive.
        true if ctx.task.epoch.0 > 1 && ctx.effects.was_pushed().await? => BranchBefore::Present,
        true => BranchBefore::At(workspace.git_ok(&["rev-parse", &fetched(branches)]).await?),
        false => BranchBefore::Absent,
    };
    workspace.gateway.branch_was(before).await;
    let continues = resumes || pushed || !branches.opens_pull_request;
    if !branches.opens_pull_request {
        reach_merge_base(workspace, &branches.target, depth.is_some()).await?;
    }
    let start = match recorded.filter(|_| continues) {
        Some(start) => start,
        None => {
            let rebases = match settled.rebases {
                Some(head) if is_at(workspace, head).await? => {
                    check_out_target(workspace, branches).await?;
                    Some(head.to_owned())
                }
                Some(_) | None => None,
            };
            let rules = match branches.opens_pull_request || rebases.is_some() {
                // The commit that is checked out is one of the target branch.
                true => None,
                false => Some(target_commit(workspace, branches).await?),
            };
            let operator = Operator {
                executor: &config.command_executor,
                checks: &config.agent.checks,
                image: settled.image,
                rules: rules.as_deref(),
            };
            let (mut project, base) = tokio::try_join!(
                inspect(workspace, &operator),
                workspace.git_ok(&["rev-parse", "HEAD"])
            )?;
            project.done = settled.done;
            if rebases.is_some() {
                workspace.git_ok(&["checkout", "--quiet", "-"]).await?;
            }
            let start = Start {
                base,
                rebases,
                rules,
                project,
            };
            let entry = Entry::Start {
                start: start.clone(),
            };
            ctx.record(entry).await?;
            start
        }
    };
    for note in start.project.warning.iter().chain(&start.project.notes) {
        ctx.note(note).await?;
    }
    if branches.opens_pull_request {
        workspace.gateway.require_start(&start.base).await;
        workspace
            .git_ok(&["checkout", "--quiet", "-b", &branches.work])
            .await?;
        if pushed {
            let remote = remote_ref(&branches.work);
            workspace
                .git_ok(&["reset", "--quiet", "--hard", &remote])
                .await?;
        }
    }
    // After a takeover the branch may be at what was pushed in its place, to which pushes only add.
    if let Some(head) = start.rebases.as_deref()
        && settled.rebases == Some(head)
        && is_at(workspace, head).await?
    {
        let rewrite = Rewrite {
            head: head.to_owned(),
            onto: start.base.clone(),
        };
        workspace.gateway.allow_rewrite(rewrite).await;
    }
    let known = converted.is_some();
    if let Some(converted) = converted {
        converted.keep_as_stored(workspace).await?;
    }
    // Other files are checked out by now.
    if (pushed || !known)
        && let Some(converted) = Converted::find(workspace).await?
    {
        converted.keep_as_stored(workspace).await?;
    }
    Ok(start)
}

/// What was fetched as the work branch.
fn fetched(branches: &WorkBranches) -> String {
    match branches.opens_pull_request {
        true => remote_ref(&branches.work),
        false => "HEAD".to_owned(),
    }
}

async fn is_at(workspace: &Workspace, commit: &str) -> Result<bool, SessionError> {
    Ok(workspace.git_ok(&["rev-parse", "HEAD"]).await? == commit)
}

/// Checks out what the work branch is to be rebased onto: it decides the checks, and is the base commit.
async fn check_out_target(
    workspace: &Workspace,
    branches: &WorkBranches,
) -> Result<(), SessionError> {
    let remote = remote_ref(&branches.target);
    workspace
        .git_ok(&["checkout", "--quiet", "--detach", &remote])
        .await?;
    Ok(())
}

/// The newest commit of the target branch, as it was fetched.
async fn target_commit(
    workspace: &Workspace,
    branches: &WorkBranches,
) -> Result<String, WorkspaceError> {
    let remote = remote_ref(&branches.target);
    workspace.git_ok(&["rev-parse", &remote]).await
}

/// Why clones fail, in `agentmine_clone_failures_total`.
pub(crate) const CLONE_FAILURES: [&str; 4] = ["host_away", "unauthorized", "missing", "other"];

fn count_failed_clone(error: &WorkspaceError) {
    let [host_away, unauthorized, missing, other] = CLONE_FAILURES;
    let cause = match error {
        WorkspaceError::HostAway { .. } => host_away,
        WorkspaceError::Unauthorized { .. } | WorkspaceError::Refused { .. } => unauthorized,
        WorkspaceError::NoSuchBranch { .. } => missing,
        WorkspaceError::Start(_)
        | WorkspaceError::Gateway(_)
        | WorkspaceError::Command(_)
        | WorkspaceError::Git { .. }
        | WorkspaceError::Clone { .. } => other,
    };
    metrics::counter!("agentmine_clone_failures_total", "cause" => cause).increment(1);
}

/// Adds the trailer to the message of every commit that is made in the clone. A repository that has its own hooks
/// (`core.hooksPath`) replaces this one.
async fn name_co_author(workspace: &Workspace, co_author: &str) -> Result<(), SessionError> {
    // `Tracker::noreply` lets nothing through that a shell would read.
    let script = format!(
        "set -e\nhooks=$(git rev-parse --git-path hooks)\nmkdir -p \"$hooks\"\ncat > \"$hooks/prepare-commit-msg\" <<'END'\n#!/bin/sh\nexec git interpret-trailers --in-place --if-exists addIfDifferent --trailer 'Co-authored-by: {co_author}' \"$1\"\nEND\nchmod 755 \"$hooks/prepare-commit-msg\"\n"
    );
    let done = workspace.script(&script, HOOK_TIMEOUT).await?;
    match done.exit_code {
        0 => Ok(()),
        _ => Err(WorkspaceError::Git {
            command: "rev-parse".into(),
            output: output_tail(&done),
        }
        .into()),
    }
}

/// Where clones come from, in `agentmine_clones_total`.
pub(crate) const CLONES_FROM: [&str; 2] = ["template", "repository"];

/// The templates and what they are looked up by, for a clone that can be the copy of an earlier one.
fn templates<'a>(
    ctx: &'a SessionContext,
    branches: &WorkBranches,
    image: Option<&str>,
) -> Option<(&'a WorkspaceTemplates, CloneKind)> {
    let config = &ctx.deps.config;
    let base_image = &config.command_executor.docker.base_image;
    let templates = ctx.deps.kept_templates()?;
    // The branch of a pull request moves with each push.
    branches.opens_pull_request.then_some(())?;
    let kind = CloneKind {
        repository: ctx.task.item.repository(),
        image: image.filter(|it| it != base_image).map(str::to_owned),
        branch: branches.start().to_owned(),
        depth: depth(ctx)?,
        settings: settings(&config.agent),
    };
    Some((templates, kind))
}

/// What the workspace of a sandbox of this task may begin as.
pub(crate) fn template(
    ctx: &SessionContext,
    branches: &WorkBranches,
    image: Option<&str>,
) -> Option<WorkspaceTemplate> {
    let (templates, kind) = templates(ctx, branches, image)?;
    templates.of(&kind)
}

/// The number of commits in a clone; `None` for all of them.
fn depth(ctx: &SessionContext) -> Option<u32> {
    let options = &ctx.deps.config.command_executor.clone;
    options.shallow.then_some(options.depth.max(1))
}

/// A clone of the branch that the work starts from.
struct ClonedStart {
    depth: Option<u32>,
    /// `None` if nobody has looked yet.
    converted: Option<Converted>,
}

/// Clones the branch that the work starts from. The same for the agent and for the measurement, so that a check sees the same
/// history, tags and branches.
async fn clone_start(
    ctx: &SessionContext,
    workspace: &Workspace,
    branches: &WorkBranches,
    image: Option<&str>,
) -> Result<ClonedStart, SessionError> {
    let [copy, repository] = CLONES_FROM;
    let count = |from| metrics::counter!("agentmine_clones_total", "from" => from).increment(1);
    let depth = depth(ctx);
    let wanted = match templates(ctx, branches, image) {
        Some((_, kind)) if workspace.sandbox.has_own_volume() => {
            let refs = kind.refs(workspace).await;
            refs.map(|refs| (kind, refs))
        }
        Some(_) | None => None,
    };
    let templates = &ctx.deps.templates;
    let converted = match templates.take_over(workspace, wanted.as_ref()).await? {
        Some(converted) => {
            count(copy);
            Some(converted)
        }
        None => {
            let settings = settings(&ctx.deps.config.agent);
            let cloned = workspace.clone_branch(branches.start(), depth, &settings);
            cloned.await.inspect_err(count_failed_clone)?;
            count(repository);
            match wanted {
                Some(clone) => save(ctx, workspace, clone).await?,
                None => None,
            }
        }
    };
    workspace.sandbox.end_saving();
    Ok(ClonedStart { depth, converted })
}

/// Makes a fresh clone the template of later ones.
async fn save(
    ctx: &SessionContext,
    workspace: &Workspace,
    clone: (CloneKind, CloneRefs),
) -> Result<Option<Converted>, WorkspaceError> {
    let converted = Converted::find(workspace).await?;
    if let Some(converted) = &converted {
        let max_bytes = ctx.deps.config.consumer.mirrors.max_size.bytes();
        let templates = &ctx.deps.templates;
        templates
            .save(workspace, clone, converted, max_bytes)
            .await?;
    }
    Ok(converted)
}

/// Which commit to clone for the measurement.
#[derive(Debug, Clone, Copy)]
pub(crate) enum CloneOf<'a> {
    /// The pushed commit, which must be the newest of the work branch.
    Result(&'a str),
    /// A commit that the result is compared with: the one that the work began from, or one of the target branch.
    Base(&'a str),
}

/// A clone of the branch that the work starts from, in which no commit is checked out for the measurement yet.
#[derive(Debug)]
pub(crate) struct StartCloned {
    depth: Option<u32>,
    /// The commit that the work began from.
    base: String,
    /// The commit that was fetched as the work branch.
    result: Option<String>,
}

impl StartCloned {
    /// As the agent's own clone was made, in a sandbox of this image; the work began from `base`.
    pub(crate) async fn make(
        ctx: &SessionContext,
        workspace: &Workspace,
        (branches, image): (&WorkBranches, Option<&str>),
        base: &str,
    ) -> Result<Self, SessionError> {
        let ClonedStart {
            depth,
            converted: _,
        } = clone_start(ctx, workspace, branches, image).await?;
        Ok(Self {
            depth,
            base: base.to_owned(),
            result: None,
        })
    }

    /// Fetches the commit `head` of the work branch as that branch, unless that was done before.
    pub(crate) async fn fetch_result(
        &mut self,
        workspace: &Workspace,
        work: &str,
        head: &str,
    ) -> Result<(), SessionError> {
        if self.result.as_deref() != Some(head) {
            // By its id, for which git need not ask what branches there are.
            self.fetch(workspace, head, work).await?;
            self.result = Some(head.to_owned());
        }
        Ok(())
    }

    /// The same by the branch's name, since some hosts do not send a commit that is requested by its id.
    async fn fetch_branch(
        &self,
        workspace: &Workspace,
        work: &str,
        head: &str,
    ) -> Result<(), SessionError> {
        let name = format!("refs/heads/{work}");
        self.fetch(workspace, &name, work).await?;
        match workspace.git_ok(&["rev-parse", &remote_ref(work)]).await? == head {
            true => Ok(()),
            false => Err(SessionError::BranchMoved),
        }
    }

    async fn fetch(
        &self,
        workspace: &Workspace,
        what: &str,
        work: &str,
    ) -> Result<(), SessionError> {
        fetch_work(workspace, self.depth, what, work, &self.base).await
    }

    /// Checks out a commit in its own clone.
    pub(crate) async fn check_out(
        mut self,
        workspace: &Workspace,
        branches: &WorkBranches,
        commit: CloneOf<'_>,
    ) -> Result<(), SessionError> {
        let WorkBranches { work, target, .. } = branches;
        if !branches.opens_pull_request {
            reach_merge_base(workspace, target, self.depth.is_some()).await?;
        }
        match commit {
            CloneOf::Result(head) if branches.opens_pull_request => {
                match self.fetch_result(workspace, work, head).await {
                    Err(SessionError::Workspace(WorkspaceError::Git { .. })) => {
                        self.fetch_branch(workspace, work, head).await
                    }
                    fetched => fetched,
                }?;
                let remote = remote_ref(work);
                workspace
                    .git_ok(&["checkout", "--quiet", "--force", "-B", work, &remote])
                    .await?;
            }
            CloneOf::Result(head) => {
                if !is_at(workspace, head).await? {
                    return Err(SessionError::BranchMoved);
                }
            }
            CloneOf::Base(base) => {
                if !is_at(workspace, base).await? {
                    let depth = self.depth.map(|depth| format!("--depth={depth}"));
                    let args = fetch_args(depth.as_deref(), base);
                    workspace.git_ok(&args).await?;
                }
                workspace
                    .git_ok(&["checkout", "--quiet", "--force", "--detach", base])
                    .await?;
            }
        }
        Ok(())
    }
}

/// How many commits of the agent's are expected on top of the clone's own depth: the next number is tried if there are more. In
/// a history with many merges a depth of 50 is most of the repository.
const EXPECTED_COMMITS: [u32; 3] = [2, 10, 50];

/// Fetches `what`, a ref or a commit, as the work branch `work`: the commits since `base`, as many as are expected, and as many
/// below them as the clone has.
async fn fetch_work(
    workspace: &Workspace,
    depth: Option<u32>,
    what: &str,
    work: &str,
    base: &str,
) -> Result<(), SessionError> {
    let remote = remote_ref(work);
    let refspec = format!("+{what}:{remote}");
    let Some(depth) = depth else {
        workspace.git_ok(&fetch_args(None, &refspec)).await?;
        return Ok(());
    };
    let since = format!("{base}..{remote}");
    for expected in EXPECTED_COMMITS {
        let depth = format!("--depth={}", depth.saturating_add(expected));
        let args = fetch_args(Some(&depth), &refspec);
        workspace.git_ok(&args).await?;
        // It fails while `base` is not in the clone, and counts more where the two are not connected in it.
        let counted = workspace.git(&["rev-list", "--count", &since]).await?;
        let count = String::from_utf8_lossy(&counted.stdout)
            .trim()
            .parse::<u32>();
        if counted.exit_code == 0 && count.is_ok_and(|count| count <= expected) {
            break;
        }
    }
    Ok(())
}

/// Arguments of git that fetch a ref or a commit without tags.
fn fetch_args<'a>(depth: Option<&'a str>, what: &'a str) -> Vec<&'a str> {
    let mut args = vec!["fetch", "--quiet", "--no-tags"];
    args.extend(depth);
    args.extend(["origin", what]);
    args
}

/// The refspec that fetches a branch to where a clone has it.
fn refspec_of(branch: &str) -> String {
    format!("+refs/heads/{branch}:{}", remote_ref(branch))
}

/// Where a clone has a branch of the remote.
fn remote_ref(branch: &str) -> String {
    format!("refs/remotes/origin/{branch}")
}

/// Git settings of the clone.
fn settings(agent: &Agent) -> Vec<String> {
    vec![
        format!("user.name={}", agent.git_user_name),
        format!("user.email={}", agent.git_user_email),
        "push.default=current".into(),
        "pull.rebase=true".into(),
        "gc.auto=0".into(),
        "maintenance.auto=false".into(),
        // Nothing serves the objects of Git LFS, nor stores new ones. Its filter would fail where its program is missing, and
        // make pointers to nothing where it is not.
        "filter.lfs.process=".into(),
        "filter.lfs.required=false".into(),
    ]
}

/// The exit code of `git ls-remote --exit-code` where the remote has no such ref.
const NO_SUCH_REF: i32 = 2;

/// Fetches what an earlier attempt pushed, so that the work continues from there. Returns whether
/// there was anything.
async fn fetch_pushed(
    ctx: &SessionContext,
    workspace: &Workspace,
    branch: &str,
    depth: Option<u32>,
    base: &str,
) -> Result<bool, SessionError> {
    if ctx.task.epoch.0 <= 1 {
        return Ok(false);
    }
    let name = format!("refs/heads/{branch}");
    let look = ["ls-remote", "--exit-code", "--quiet", "origin", &name];
    let looked = workspace.git(&look).await?;
    workspace.reached("git ls-remote", &looked)?;
    match looked.exit_code {
        0 => {
            fetch_work(workspace, depth, &name, branch, base).await?;
            Ok(true)
        }
        NO_SUCH_REF if ctx.effects.was_pushed().await? => {
            Err(SessionError::BranchDeleted(branch.to_owned()))
        }
        NO_SUCH_REF => Ok(false),
        // Without an answer it is unknown whether there is pushed work.
        _ => Err(WorkspaceError::Git {
            command: "ls-remote".into(),
            output: output_tail(&looked),
        }
        .into()),
    }
}

/// Fetches the target branch of a pull request deeply enough to include the merge base, so that the
/// agent can see the diff (spec 001 §4.2). Unrelated histories have no merge base.
async fn reach_merge_base(
    workspace: &Workspace,
    target: &str,
    shallow: bool,
) -> Result<(), SessionError> {
    let (refspec, remote) = (refspec_of(target), remote_ref(target));
    let depth = if shallow { "--depth=1" } else { "--no-auto-gc" };
    workspace
        .git_ok(&["fetch", "--quiet", "--no-tags", depth, "origin", &refspec])
        .await?;
    // The first step is small for the same reason as in `EXPECTED_COMMITS`.
    for deepen in ["--deepen=8", "--deepen=50", "--deepen=500", "--unshallow"] {
        let found = workspace.git(&["merge-base", &remote, "HEAD"]).await?;
        if found.exit_code == 0 || !shallow {
            return Ok(());
        }
        // Deepens both branches. Fails harmlessly if the clone is no longer shallow.
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

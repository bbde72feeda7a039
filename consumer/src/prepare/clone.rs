//! Clones the repository and checks out the work branch.

use agentmine_agent::Start;
use agentmine_agent::journal::Entry;
use agentmine_runtime::config::Agent;

use super::branches::WorkBranches;
use super::project::inspect;
use super::workspace::Workspace;
use crate::error::SessionError;
use crate::session::context::SessionContext;

/// Clones, checks out the work branch, and determines the start: the recorded one if the work of an
/// earlier attempt is continued, otherwise the one read from the clone before that work is fetched.
pub(super) async fn clone(
    ctx: &SessionContext,
    workspace: &Workspace,
    branches: &WorkBranches,
    recorded: Option<Start>,
    resumes: bool,
) -> Result<Start, SessionError> {
    let config = &ctx.deps.config;
    let options = &config.command_executor.clone;
    let depth = options.shallow.then_some(options.depth);
    workspace
        .clone_branch(branches.start(), depth, &settings(&config.agent))
        .await?;
    let pushed =
        branches.opens_pull_request && fetch_pushed(ctx, workspace, &branches.work, depth).await?;
    let continues = resumes || pushed || !branches.opens_pull_request;
    let start = match recorded.filter(|_| continues) {
        Some(start) => start,
        None => {
            let install = options.auto_install_deps;
            let project = inspect(workspace, &config.agent.checks, install).await?;
            let base = workspace.git_ok(&["rev-parse", "HEAD"]).await?;
            let start = Start { base, project };
            let entry = Entry::Start {
                start: start.clone(),
            };
            ctx.record(entry).await?;
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

/// Git settings of the clone.
fn settings(agent: &Agent) -> Vec<String> {
    vec![
        format!("user.name={}", agent.git_user_name),
        format!("user.email={}", agent.git_user_email),
        "push.default=current".into(),
        "pull.rebase=true".into(),
        "gc.auto=0".into(),
    ]
}

/// Fetches what an earlier attempt pushed, so that the work continues from there. Returns whether
/// there was anything.
async fn fetch_pushed(
    ctx: &SessionContext,
    workspace: &Workspace,
    branch: &str,
    depth: Option<u32>,
) -> Result<bool, SessionError> {
    if ctx.task.epoch.0 <= 1 {
        return Ok(false);
    }
    let refspec = format!("+refs/heads/{branch}:refs/remotes/origin/{branch}");
    let depth = depth.map(|d| format!("--depth={}", d.max(1) + 50));
    let mut args = vec!["fetch", "--quiet", "--no-tags"];
    args.extend(depth.as_deref());
    args.extend(["origin", refspec.as_str()]);
    let done = workspace.git(&args).await?;
    workspace.reached("git fetch", &done)?;
    Ok(done.exit_code == 0)
}

/// Fetches the target branch of a pull request deeply enough to include the merge base, so that the
/// agent can see the diff (spec 001 §4.2). Unrelated histories have no merge base.
async fn reach_merge_base(
    workspace: &Workspace,
    target: &str,
    shallow: bool,
) -> Result<(), SessionError> {
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

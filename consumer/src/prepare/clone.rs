//! The clone of the repository, on the branch that is worked on.

use agentmine_agent::Start;
use agentmine_agent::journal::Entry;
use agentmine_runtime::config::Agent;

use super::branches::WorkBranches;
use super::project::inspect;
use super::workspace::Workspace;
use crate::error::SessionError;
use crate::session::context::SessionContext;

/// Clones, checks the work branch out, and settles the start: the recorded one where an earlier
/// attempt's work is continued, else what the clone shows before that work is fetched.
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
    let goes_on = resumes || pushed || !branches.opens_pull_request;
    let start = match recorded.filter(|_| goes_on) {
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

/// Settings of the clone, for all of the agent's work in it.
fn settings(agent: &Agent) -> Vec<String> {
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
    Ok(workspace.git(&args).await?.exit_code == 0)
}

/// For a pull request: the target branch is fetched, deep enough that the merge base is there, so
/// that the difference can be looked at (spec 001 §4.2). Unrelated histories have none.
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

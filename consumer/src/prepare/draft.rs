//! The pull request that is opened when the work on an issue begins (`issue_to_mr_conversion`).
//!
//! That it is about to be opened is recorded first. Then an empty commit is pushed through the gateway, under the fence
//! of every push, and the pull request is looked up by its branch before it is opened. A session that takes over
//! finds the commit on the branch, and the pull request by the branch. Work whose pull request a person closed, or
//! whose branch a person removed, is stopped: neither is restored.

use agentmine_agent::{PullRequestText, begun_pull_request};
use agentmine_domain::{ItemKind, TrackerKind};
use agentmine_effects::{DraftState, is_final, transferred_comments};
use agentmine_gateway::facts::BareRepo;
use agentmine_trackers::{Comment, Item, PullRequest};

use super::Prepared;
use super::workspace::output_tail;
use crate::error::{Interrupt, SessionError, WorkspaceError};
use crate::session::context::SessionContext;
use crate::session::withdrawal::may_be_published;

/// The message of the empty commit.
const MESSAGE: &str = "Begin the work";

/// Whether the work has a pull request before it has a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Begun {
    WithPullRequest,
    Without,
}

/// Opens the pull request, where the configuration asks for it.
pub(crate) async fn begin(
    ctx: &SessionContext,
    item: &Item,
    prepared: &Prepared,
) -> Result<Begun, SessionError> {
    if ctx.task.item.kind != ItemKind::Issue || !prepared.branches.opens_pull_request {
        return Ok(Begun::Without);
    }
    let of_forge = match ctx.task.item.tracker {
        TrackerKind::GitHub | TrackerKind::GitLab => true,
        TrackerKind::Local => false,
    };
    let is_wanted = of_forge && ctx.deps.config.issue_to_mr_conversion.enabled;
    let state = ctx.heartbeat.patiently(|| ctx.effects.draft()).await?;
    let name = ctx.task.item.tracker.pull_request();
    let pull = match state {
        DraftState::NotBegun | DraftState::Missing { recorded: false } if !is_wanted => {
            return Ok(Begun::Without);
        }
        DraftState::NotBegun | DraftState::Missing { recorded: false } => {
            open(ctx, item, prepared).await?
        }
        DraftState::Missing { recorded: true } => {
            return Err(withdrawn(format!("somebody deleted the {name}")));
        }
        DraftState::Found(pull) if !pull.open => {
            let did = if pull.merged { "merged" } else { "closed" };
            let number = pull.number;
            return Err(withdrawn(format!("somebody {did} the {name} {number}")));
        }
        DraftState::Found(pull) => {
            let work = &prepared.branches.work;
            if head(prepared).await?.is_none() {
                return Err(withdrawn(format!("somebody deleted the branch `{work}`")));
            }
            pull
        }
    };
    transfer_comments(ctx, &pull).await?;
    Ok(Begun::WithPullRequest)
}

fn withdrawn(reason: String) -> SessionError {
    Interrupt::Stopped(reason).into()
}

/// The commit that the branch is at.
async fn head(prepared: &Prepared) -> Result<Option<String>, SessionError> {
    let bare = BareRepo::new(prepared.upstream.clone()).map_err(SessionError::BareRepo)?;
    Ok(bare.resolve(&prepared.branches.work).await?)
}

async fn open(
    ctx: &SessionContext,
    item: &Item,
    prepared: &Prepared,
) -> Result<PullRequest, SessionError> {
    may_be_published(ctx).await?;
    ctx.heartbeat
        .patiently(|| ctx.effects.begin_draft())
        .await?;
    if head(prepared)
        .await?
        .is_none_or(|head| head == prepared.base)
    {
        push_first_commit(prepared).await?;
    }
    let issue = ctx.task.item.number;
    let name = ctx.task.item.tracker.pull_request();
    let text = PullRequestText {
        draft: ctx.deps.config.issue_to_mr_conversion.auto_draft,
        ..begun_pull_request(&item.title, issue, name, &ctx.session_name())
    };
    let new = prepared.branches.pull_request(text);
    let opened = ctx.heartbeat.patiently(|| ctx.effects.open_draft(&new));
    let pull = opened.await?;
    ctx.note(&format!(
        "the {name} {} was opened before the work",
        pull.url
    ))
    .await?;
    Ok(pull)
}

/// Forges open no pull request without a commit. It has the files of the commit before it, whatever was restored since.
async fn push_first_commit(prepared: &Prepared) -> Result<(), SessionError> {
    let workspace = &prepared.workspace;
    let commit = ["commit-tree", "HEAD^{tree}", "-p", "HEAD", "-m", MESSAGE];
    let commit = workspace.git_ok(&commit).await?;
    let refspec = format!("{commit}:refs/heads/{}", prepared.branches.work);
    let pushed = workspace
        .git(&["push", "--quiet", "--no-verify", "origin", &refspec])
        .await?;
    workspace.reached("git push", &pushed)?;
    if pushed.exit_code != 0 {
        return Err(WorkspaceError::Git {
            command: "push".into(),
            output: output_tail(&pushed),
        }
        .into());
    }
    workspace
        .git_ok(&["reset", "--quiet", "--soft", &commit])
        .await?;
    Ok(())
}

/// Posts what people wrote on the issue on the pull request. Comments that only some may read are never read.
async fn transfer_comments(ctx: &SessionContext, pull: &PullRequest) -> Result<(), SessionError> {
    let config = &ctx.deps.config.issue_to_mr_conversion;
    let (effects, heartbeat) = (&ctx.effects, &ctx.heartbeat);
    let done = || effects.comments_are_transferred();
    if !config.transfer_comments || heartbeat.patiently(done).await? {
        return Ok(());
    }
    let mut comments = match effects.tracker().comments(&ctx.task.item).await {
        Ok(comments) => comments,
        Err(error) if is_final(&error) => {
            let note = format!("the comments on the issue cannot be read: {error}");
            return ctx.note(&note).await;
        }
        Err(error) => return Err(error.into()),
    };
    let is_left_out = |it: &Comment| {
        it.is_of_the_fleet() || (config.exclude_bot_comments && it.author.is_program())
    };
    comments.retain(|it| !is_left_out(it));
    let text = transferred_comments(ctx.task.item.number, &comments, &ctx.session_name());
    let text = text.map(|text| ctx.redactor.redact(text));
    let post = || effects.transfer_comments(pull, text.as_deref());
    heartbeat.patiently(post).await
}

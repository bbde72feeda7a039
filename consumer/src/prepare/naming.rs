//! Names the work branch of a task (`agent.branch_pattern`).
//!
//! The name is in the task's row before anything is pushed, and stays: later attempts, look-ups and reports read it there.
//! A session that dies before it is recorded leaves nothing behind. The name is new in its repository: no branch has it, no
//! pull request is or was from it, and no other task has or had it. A person who makes a branch of that name between this
//! look and the first push is not overwritten, since the gateway lets no push through that would.

use std::sync::Arc;
use std::time::{Duration, Instant};

use agentmine_agent::journal::{Entry, newest_start};
use agentmine_agent::{BranchWords, Journal as _, branch_question, branch_words, described_by};
use agentmine_domain::{BranchType, TaskHome, TaskOrigin, Usage, slug};
use agentmine_gateway::facts::{BareRepo, FactsError};
use agentmine_llm::{CallState, Model as _, ModelRequest};
use agentmine_runtime::config::{BranchField, BranchPattern};
use agentmine_store::NamedBranch;
use agentmine_trackers::{Item, TrackerError};
use tokio::time::timeout;

use super::upstream::upstream;
use crate::error::SessionError;
use crate::record::redacting_model::RedactingModel;
use crate::record::trace::{self, TracedModel};
use crate::session::context::SessionContext;

/// How long a model may take for a few words.
const PATIENCE: Duration = Duration::from_secs(60);
/// Names that are tried before the one that follows from the task's id.
const MOST_NAMES: u32 = 20;
/// Longest name of an account in bytes.
const LONGEST_BOT: usize = 39;

/// A name that was recorded.
pub(crate) struct Named {
    pub(crate) branch: String,
    /// What the model was used for it.
    pub(crate) used: Usage,
}

/// Names the branch and records it. `None`: the task has its branch already, or keeps the one that follows from its id.
pub(crate) async fn name_branch(
    ctx: &SessionContext,
    item: &Item,
    entries: &[Entry],
) -> Result<Option<Named>, SessionError> {
    let task = &ctx.task;
    let Some(pattern) = ctx.deps.config.agent.branch_pattern() else {
        return Ok(None);
    };
    // Work trees and clients of people show the branch before a session does.
    if task.named_branch.is_some() || task.home() == TaskHome::People {
        return Ok(None);
    }
    // It works on the branch of a pull request, or began before there was a pattern and may have pushed.
    if item.branches.is_some() || newest_start(entries).is_some() {
        return Ok(None);
    }
    let (words, used) = match pattern.asks_for_words() {
        true => words(ctx, item).await?,
        false => (BranchWords::default(), Usage::default()),
    };
    let name = with_fallbacks(ctx, item, &pattern, words).await?;
    let branch = record(ctx, &name).await?;
    Ok(Some(Named { branch, used }))
}

/// What the model answers, if it does in time. Whatever it answers, work continues.
async fn words(ctx: &SessionContext, item: &Item) -> Result<(BranchWords, Usage), SessionError> {
    let traced = TracedModel {
        model: Arc::clone(&ctx.deps.model),
        provider: ctx.deps.config.model.provider,
        session: trace::of_session(&ctx.lease),
    };
    let model = RedactingModel::new(Arc::new(traced), Arc::clone(&ctx.redactor));
    let messages = branch_question(&item.title, &item.body);
    let request = ModelRequest {
        messages: &messages,
        tools: &[],
        conversation: None,
        state: CallState::default(),
    };
    let begun = Instant::now();
    let reply = timeout(PATIENCE, model.reply(request.clone(), None)).await;
    let (words, used, came) = match reply {
        Ok(Ok((reply, used))) => {
            let words = branch_words(&reply.text);
            let came = match words.kind {
                Some(_) => "the model named the work branch".to_owned(),
                None => "the model's name for the work branch cannot be used".to_owned(),
            };
            let used = Usage {
                model_calls: used.model_calls.max(1),
                ..used
            };
            (words, used, came)
        }
        Ok(Err(error)) => {
            let came = format!("the model did not name the work branch: {error}");
            (BranchWords::default(), request.lost(&model), came)
        }
        Err(_) => {
            let came = format!(
                "the model did not name the work branch within {} s",
                PATIENCE.as_secs()
            );
            (BranchWords::default(), request.abandoned(&model), came)
        }
    };
    let recorder = ctx.recorder(Usage::default(), Usage::default(), model.name());
    let entry = Entry::ModelUse {
        text: came,
        usage: used,
    };
    recorder.record(entry, begun.elapsed()).await?;
    Ok((words, used))
}

/// The name that the words make. Where they are missing, labels and title say something.
async fn with_fallbacks(
    ctx: &SessionContext,
    item: &Item,
    pattern: &BranchPattern,
    words: BranchWords,
) -> Result<String, SessionError> {
    let BranchWords { kind, description } = words;
    let labels = item.labels.iter().map(String::as_str);
    let card = &ctx.task.card;
    let kind = kind
        .or_else(|| BranchType::of_labels(labels))
        .unwrap_or(match card.origin {
            TaskOrigin::Tracker => BranchType::Task,
            TaskOrigin::Person => card.kind.into(),
        });
    let description =
        description.unwrap_or_else(|| described_by(&ctx.redactor.redact(item.title.clone())));
    let bot = slug(&ctx.effects.tracker().login().await?, LONGEST_BOT);
    let bot = match bot.is_empty() {
        true => "agentmine",
        false => &bot,
    };
    Ok(pattern.name(|field| match field {
        BranchField::Type => kind.as_str().to_owned(),
        BranchField::Bot => bot.to_owned(),
        BranchField::Number => ctx.task.item.number.to_string(),
        BranchField::Description => description.clone(),
    }))
}

/// Records the first of these names that is new: itself, and with a number at its end.
async fn record(ctx: &SessionContext, name: &str) -> Result<String, SessionError> {
    let repository = ctx.effects.tracker().repository(&ctx.task.item).await?;
    let bare = BareRepo::new(upstream(repository.source)).map_err(SessionError::BareRepo)?;
    let above = branch_above(&bare, name).await?;
    let mut obstacle = above.map(|above| format!("there is a branch `{above}`"));
    if obstacle.is_none() {
        for number in 1..=MOST_NAMES {
            let name = match number {
                1 => name.to_owned(),
                _ => format!("{name}-{number}"),
            };
            let is_new = name != repository.default_branch
                && bare.resolve(&name).await?.is_none()
                && !has_pull_request(ctx, &name).await?;
            if is_new && let NamedBranch::Recorded(name) = recorded(ctx, &name).await? {
                return Ok(name);
            }
        }
        obstacle = Some(format!("{MOST_NAMES} similar names are in use"));
    }
    let own = ctx.task.branch_of_id();
    let why = obstacle.unwrap_or_default();
    ctx.note(&format!("the work branch is `{own}`, not `{name}`: {why}"))
        .await?;
    match recorded(ctx, &own).await? {
        NamedBranch::Recorded(name) => Ok(name),
        NamedBranch::Taken => Ok(own),
    }
}

/// The branch of the repository that `name` would be below, which git does not allow.
pub(super) async fn branch_above<'a>(
    bare: &BareRepo,
    name: &'a str,
) -> Result<Option<&'a str>, FactsError> {
    for (end, _) in name.match_indices('/') {
        let above = &name[..end];
        if bare.resolve(above).await?.is_some() {
            return Ok(Some(above));
        }
    }
    Ok(None)
}

async fn recorded(ctx: &SessionContext, name: &str) -> Result<NamedBranch, SessionError> {
    let store = &ctx.deps.store;
    ctx.heartbeat
        .patiently(|| store.name_branch(&ctx.lease, name))
        .await
}

/// Whether a pull request is from a branch of this name, or was: it would be taken for the task's own.
async fn has_pull_request(ctx: &SessionContext, name: &str) -> Result<bool, SessionError> {
    let found = ctx
        .effects
        .tracker()
        .find_pull_request(&ctx.task.item, name);
    match found.await {
        Err(TrackerError::NotFound { .. }) => Ok(false),
        found => Ok(found?.is_some()),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use agentmine_gateway::Upstream;

    use super::*;

    #[tokio::test]
    async fn a_branch_above_another_name_is_found() {
        let repository = tempfile::tempdir().unwrap();
        let identity = ["-c", "user.name=t", "-c", "user.email=t@example.invalid"];
        for args in [
            ["init", "-q", "-b", "main"].as_slice(),
            &["commit", "-q", "--allow-empty", "-m", "Start"],
            &["branch", "agentmine"],
        ] {
            let mut git = Command::new("git");
            let git = git.arg("-C").arg(repository.path()).args(identity);
            assert!(git.args(args).status().unwrap().success());
        }
        let bare = BareRepo::new(Upstream::Path(repository.path().to_owned())).unwrap();
        for (name, expected) in [
            ("agentmine/issue-1-x", Some("agentmine")),
            ("agentmine-2/issue-1-x", None),
            ("fix", None),
        ] {
            assert_eq!(branch_above(&bare, name).await.unwrap(), expected, "{name}");
        }
    }
}

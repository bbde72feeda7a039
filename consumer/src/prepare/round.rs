//! What a session needs to know of its task if that is a round on the fleet's own pull request.

use std::collections::BTreeSet;

use agentmine_agent::{Discussion, FailedCheck, Remark, RoundBrief, Solution};
use agentmine_domain::markdown::line;
use agentmine_domain::{RedCheck, Round};
use agentmine_effects::is_final;
use agentmine_gateway::without_secrets;
use agentmine_runtime::config::BaseConflictRule;
use agentmine_trackers::{Item, Thread, TrackerError, objection_to_text_of};

use crate::error::SessionError;
use crate::session::context::SessionContext;

/// Failed checks whose logs are read.
const MAX_LOGS: usize = 10;
/// Lines of the end of a log.
const LINES: usize = 200;
/// Characters of a thread's id in its name.
const NAME: usize = 12;

/// A round that is worked on.
#[derive(Debug, Clone)]
pub(crate) struct RoundWork {
    pub(crate) round: Round,
    /// The threads that wait for an answer.
    threads: Vec<Thread>,
    earlier: Vec<String>,
    request: Option<(String, String)>,
    checks: Vec<FailedCheck>,
    /// The target branch, if it conflicts.
    conflict: Option<String>,
}

/// The round that the task is; `None` if it is none.
pub(crate) async fn round(
    ctx: &SessionContext,
    item: &Item,
) -> Result<Option<RoundWork>, SessionError> {
    let target = item.branches.as_ref().map(|it| it.target.clone());
    let Some(number) = ctx.task.round() else {
        return Ok(None);
    };
    let (store, tracker) = (&ctx.deps.store, ctx.effects.tracker());
    let item = &ctx.task.item;
    let rounds = ctx.heartbeat.patiently(|| store.rounds(item)).await?;
    let (earlier, now): (Vec<Round>, Vec<Round>) =
        rounds.into_iter().partition(|round| round.number < number);
    let Some(round) = now.into_iter().find(|round| round.number == number) else {
        return Ok(None);
    };
    let threads = match tracker.threads(item).await {
        Ok(threads) => threads,
        Err(error) if is_final(&error) => {
            let note = format!("the threads of the review cannot be read: {error}");
            ctx.note(&note).await?;
            Vec::new()
        }
        Err(error) => return Err(error.into()),
    };
    let waits = |thread: &Thread| !thread.resolved && !thread.answered;
    Ok(Some(RoundWork {
        request: request(ctx, &round).await?,
        earlier: earlier
            .into_iter()
            .map(|round| round.result.unwrap_or_default().message)
            .collect(),
        threads: threads.into_iter().filter(waits).collect(),
        checks: checks(ctx, &round.cause.checks).await?,
        conflict: target.filter(|_| round.cause.conflict),
        round,
    }))
}

/// The failed checks with the ends of their logs, which are looked for secrets before they are cut.
async fn checks(ctx: &SessionContext, red: &[RedCheck]) -> Result<Vec<FailedCheck>, SessionError> {
    let tracker = ctx.effects.tracker();
    let mut checks = Vec::new();
    for (at, check) in red.iter().enumerate() {
        let log = match check.log.as_deref().filter(|_| at < MAX_LOGS) {
            Some(log) => match tracker.check_log(&ctx.task.item, log).await {
                Ok(log) => log.unwrap_or_default(),
                Err(error) => {
                    let note = format!(
                        "the log of the check {:.100} cannot be read: {error}",
                        check.name
                    );
                    ctx.note(&note).await?;
                    String::new()
                }
            },
            None => String::new(),
        };
        let log = without_secrets(&ctx.redactor.redact(log));
        let lines: Vec<&str> = log.lines().collect();
        checks.push(FailedCheck {
            name: check.name.clone(),
            summary: ctx.redactor.redact(check.summary.clone()),
            log: lines[lines.len().saturating_sub(LINES)..].join("\n"),
        });
    }
    Ok(checks)
}

/// The issue that the pull request is for. It is skipped if it cannot be read, or if somebody who may not start work has
/// changed its text.
async fn request(
    ctx: &SessionContext,
    round: &Round,
) -> Result<Option<(String, String)>, SessionError> {
    let store = &ctx.deps.store;
    let origin = ctx.heartbeat.patiently(|| store.task(round.origin)).await?;
    let Some(origin) = origin else {
        return Ok(None);
    };
    let read = async {
        let tracker = ctx.effects.tracker();
        let item = tracker.item(&origin.item).await?;
        Ok((item, objection_to_text_of(tracker, &origin).await?))
    };
    match read.await {
        Ok((item, None)) => Ok(Some((item.title, item.body))),
        Ok((_, Some(objection))) => {
            let why = objection.message;
            ctx.note(&format!("the request is ignored: {why}")).await?;
            Ok(None)
        }
        Err(
            TrackerError::NotFound { .. }
            | TrackerError::Forbidden { .. }
            | TrackerError::Confidential { .. },
        ) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

impl RoundWork {
    /// Omits the threads of which the model reads nothing, and names the others in the remarks.
    pub(crate) fn name_threads(&mut self, discussion: &mut Discussion) {
        let heard: BTreeSet<&str> = discussion.remarks.iter().map(|it| it.id.as_str()).collect();
        self.threads
            .retain(|thread| ids(thread).any(|id| heard.contains(&*id)));
        for thread in &self.threads {
            let is_in = |remark: &&mut Remark| ids(thread).any(|id| remark.id == id);
            for remark in discussion.remarks.iter_mut().filter(is_in) {
                let about = remark.about.take();
                let name = format!("thread {}", name(thread));
                remark.about = Some(about.map_or(name.clone(), |about| format!("{name}, {about}")));
            }
        }
    }

    /// The threads with their names, of which the model was given a remark.
    pub(crate) fn named(&self, given: &BTreeSet<String>) -> Vec<(String, &Thread)> {
        let threads = self.threads.iter();
        threads
            .filter(|thread| ids(thread).any(|id| given.contains(&id)))
            .map(|thread| (name(thread), thread))
            .collect()
    }

    /// The commit that a rebase onto the target branch may replace, if the round is to do that.
    pub(crate) fn rebases(&self, rule: BaseConflictRule) -> Option<&str> {
        let rebases = self.conflict.is_some() && rule == BaseConflictRule::Rebase;
        rebases.then_some(self.round.head.as_str())
    }

    /// What requested the round, as a sentence for people, and how a conflict was solved, if that is not what was requested.
    pub(crate) fn because(&self, asked: Solution, done: Solution) -> String {
        let cause = &self.round.cause;
        let mut parts = Vec::new();
        match cause.requests.len() {
            0 => {}
            1 => parts.push("a review or comment".to_owned()),
            many => parts.push(format!("{many} reviews and comments")),
        }
        if !cause.checks.is_empty() {
            let names = cause.checks.iter().take(10);
            let names: Vec<String> = names
                .map(|check| format!("`{}`", line(&check.name, 100).replace('`', "'")))
                .collect();
            let more = cause.checks.len() - names.len();
            let more = (more > 0).then(|| format!(" and {more} more"));
            let more = more.unwrap_or_default();
            parts.push(format!("failed checks ({}{more})", names.join(", ")));
        }
        if let Some(target) = &self.conflict {
            let solved = match (asked, done) {
                (Solution::Merge, _) => "which was to be merged",
                (Solution::Rebase, Solution::Rebase) => "onto which the branch was to be rebased",
                (Solution::Rebase, Solution::Merge) => {
                    "onto which the branch was to be rebased, but which was merged instead"
                }
            };
            parts.push(format!("a conflict with `{target}`, {solved}"));
        }
        format!("Round {} was for {}.", self.round.number, parts.join(", "))
    }

    /// The text that the model gets.
    pub(crate) fn brief(&self, solution: Solution) -> RoundBrief {
        RoundBrief {
            number: self.round.number,
            request: self.request.clone(),
            earlier: self.earlier.clone(),
            checks: self.checks.clone(),
            conflict: self.conflict.clone().map(|target| (target, solution)),
            threads: self.threads.iter().map(name).collect(),
        }
    }
}

/// What a thread is called where the model reads of it: by its id, so that it has the same name after a takeover.
fn name(thread: &Thread) -> String {
    let id: Vec<char> = thread
        .id
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .collect();
    let end: String = id[id.len().saturating_sub(NAME)..].iter().collect();
    format!("T{end}")
}

/// The ids that the comments of a thread may have among all remarks.
fn ids(thread: &Thread) -> impl Iterator<Item = String> {
    let comments = thread.comments.iter();
    comments.flat_map(|id| [id.clone(), format!("line-{id}")])
}

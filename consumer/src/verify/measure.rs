//! Measures the result: what was pushed, what it changes, and whether the project's checks pass on
//! a fresh clone in a fresh sandbox.
//!
//! The agent cannot influence the measurement: its sandbox is frozen meanwhile, so that no process it
//! left running can push again, and the checks run in a sandbox that it never had access to.

use agentmine_agent::{Facts, Gather, Solution, missing};
use agentmine_gateway::facts::BareRepo;
use async_trait::async_trait;

use super::changes::changes;
use super::checks::CheckRunner;
use super::identities::others;
use super::publish::{Published, publish};
use super::web::{refused_pushes, web};
use crate::error::{Interrupt, SessionError};
use crate::prepare::Prepared;
use crate::session::context::SessionContext;

/// Measures the result of one session.
pub(crate) struct Measurer<'a> {
    pub(crate) ctx: &'a SessionContext,
    pub(crate) prepared: &'a Prepared,
    pub(crate) title: &'a str,
    /// What was omitted from the text that people wrote, as a sentence.
    pub(crate) hidden: Option<String>,
    /// Whether a result may be that nothing had to be changed.
    pub(crate) may_only_answer: bool,
    /// Whether the work is to solve a conflict with the target branch.
    pub(crate) solves_conflict: bool,
    pub(crate) checks: CheckRunner<'a>,
}

#[async_trait]
impl Gather<SessionError> for Measurer<'_> {
    async fn facts(&self) -> Result<Facts, SessionError> {
        // The first step of `begin` keeps the checks from making a sandbox of their own.
        let ((), facts) = tokio::join!(self.checks.begin(), self.publish_and_measure());
        self.checks.end().await;
        let facts = facts?;
        // After a sufficient result the sandbox stays frozen; it is released only if work continues.
        if missing(&facts).is_some() {
            self.prepared.workspace.gateway.unseal();
            let freezer = &self.ctx.freezer;
            freezer
                .release(self.name())
                .await
                .map_err(SessionError::Freeze)?;
        }
        Ok(facts)
    }
}

impl Measurer<'_> {
    fn name(&self) -> &str {
        self.prepared.workspace.sandbox.name()
    }

    /// What a reader of the result should know about the set-up and the clone.
    fn notes(&self) -> Vec<String> {
        let project = &self.prepared.project;
        project
            .warning
            .iter()
            .chain(&project.notes)
            .chain(&self.hidden)
            .cloned()
            .chain(project.absent.sentences())
            .collect()
    }

    fn bare(&self) -> Result<BareRepo, SessionError> {
        BareRepo::new(self.prepared.upstream.clone()).map_err(SessionError::BareRepo)
    }

    async fn publish_and_measure(&self) -> Result<Facts, SessionError> {
        let published = self.publish_and_freeze().await?;
        self.measure(published).await
    }

    /// Publishes what is left, after which nothing in the agent's sandbox can change the branch.
    async fn publish_and_freeze(&self) -> Result<Published, SessionError> {
        let published = publish(self.ctx, self.prepared, self.title).await?;
        if let Some(news) = self.prepared.workspace.news() {
            self.ctx.note(&news).await?;
        }
        self.seal_and_freeze().await?;
        Ok(published)
    }

    /// Refuses new pushes, waits for a push in progress, and freezes the agent's sandbox.
    async fn seal_and_freeze(&self) -> Result<(), SessionError> {
        self.prepared.workspace.gateway.seal().await;
        let held = self.ctx.freezer.hold(self.name()).await;
        held.map_err(SessionError::Freeze)
    }

    /// Whether the branch is still at the measured commit. The sandbox cannot move it after this.
    pub(crate) async fn still_at(&self, head: &str) -> Result<bool, SessionError> {
        self.seal_and_freeze().await?;
        let bare = self.bare()?;
        let now = bare.resolve(&self.prepared.branches.work).await?;
        Ok(now.as_deref() == Some(head))
    }

    /// How a conflict with the target branch was solved: a branch that has both the target's commit and its own from before
    /// was not rebased but merged, as where the forge refuses forced pushes.
    pub(crate) async fn solution(&self, head: &str) -> Result<Solution, SessionError> {
        let asked = self.prepared.solution();
        let Some(own) = &self.prepared.rebases else {
            return Ok(asked);
        };
        let bare = self.bare()?;
        let is_merged =
            bare.contains(head, own).await? && bare.contains(head, &self.prepared.base).await?;
        Ok(if is_merged { Solution::Merge } else { asked })
    }

    /// Whether nothing of the task is on the branch, as far as is known: pushes of earlier attempts are not.
    fn pushed_nothing(&self) -> bool {
        let pushed = self.prepared.workspace.gateway.pushed_head();
        pushed.is_none() && self.ctx.task.epoch.0 <= 1
    }

    /// Whether the branch is at a commit of somebody else, or at ours on top of one. Accepted: after a takeover that pushes
    /// nothing, one of somebody else counts as that of an earlier attempt.
    pub(crate) fn others_pushed(&self, head: &str) -> bool {
        let gateway = &self.prepared.workspace.gateway;
        match gateway.pushed_head() {
            Some(ours) => ours != head || gateway.others_pushed(),
            None => self.pushed_nothing() && head != self.prepared.began_at(),
        }
    }

    async fn measure(&self, published: Published) -> Result<Facts, SessionError> {
        let base = self.prepared.base.clone();
        let mut facts = Facts {
            base: base.clone(),
            push_error: published.failure,
            refused_pushes: refused_pushes(&self.prepared.workspace.gateway),
            notes: self.notes().into_iter().chain(published.left_out).collect(),
            ..Facts::default()
        };
        facts.add_web(web(&self.prepared.workspace.gateway));
        let agent = &self.ctx.deps.config.agent;
        let own = (&*agent.git_user_name, &*agent.git_user_email);
        facts
            .notes
            .extend(others(&self.prepared.workspace.gateway.identities(), own));
        let bare = self.bare()?;
        let head = bare.resolve(&self.prepared.branches.work).await?;
        self.check_branch(&bare, head.as_deref()).await?;
        let is_quiet = facts.push_error.is_none() && facts.refused_pushes.is_empty();
        let is_as_it_was = head.as_deref() == Some(&*base) || self.pushed_nothing();
        if self.may_only_answer && is_quiet && is_as_it_was && head.is_some() {
            facts.head = head;
            facts.unchanged = true;
            return Ok(facts);
        }
        let is_new = |head: &String| *head != base && Some(head) != self.prepared.rebases.as_ref();
        let Some(head) = head.filter(is_new) else {
            return Ok(facts);
        };
        if self.others_pushed(&head) {
            let note = "Somebody else pushed to this branch in the meantime; the measured commit includes that push.";
            facts.notes.push(note.to_owned());
        }
        facts.head = Some(head.clone());
        facts.checks_from = self.prepared.project.checks_from.clone();
        // They use nothing of each other: what is read on the worker does not wait until the checks' sandbox is ready.
        let changes = async {
            let changes = changes(&bare, (&base, &head), self.merges()).await;
            changes.map_err(SessionError::from)
        };
        let (changes, checked) =
            tokio::try_join!(changes, self.checks.check(&head, self.merges()))?;
        facts.placeholders = changes.placeholders;
        facts.list_files(changes.files);
        facts.diff_cut = changes.cut;
        facts.merged = changes.merged;
        facts.protected = changes.sensitive;
        facts.checks = checked.checks;
        facts.setup_failures = checked.setup_failures;
        facts.notes.extend(checked.notes);
        facts.add_web(checked.web);
        Ok(facts)
    }

    /// Ends the session if a person removed the branch of a pull request or after our push, or replaced what was
    /// pushed.
    async fn check_branch(&self, bare: &BareRepo, head: Option<&str>) -> Result<(), SessionError> {
        let branches = &self.prepared.branches;
        let branch = &branches.work;
        let ours = self.prepared.workspace.gateway.pushed_head();
        let why = match (head, ours) {
            (None, ours) if ours.is_some() || !branches.opens_pull_request => {
                format!("somebody deleted the branch `{branch}`, and AgentMine does not restore it")
            }
            (None, _) | (Some(_), None) => return Ok(()),
            (Some(head), Some(ours)) => {
                if head == ours || bare.contains(head, &ours).await? {
                    return Ok(());
                }
                format!(
                    "somebody replaced the work on `{branch}`, and AgentMine does not overwrite it"
                )
            }
        };
        Err(Interrupt::Stopped(why).into())
    }

    /// The branch that is merged to solve a conflict.
    fn merges(&self) -> Option<&str> {
        let merges = self.solves_conflict && self.prepared.rebases.is_none();
        merges.then_some(&*self.prepared.branches.target)
    }
}

//! Measures the result: what was pushed, what it changes, and whether the project's checks pass on
//! a fresh clone in a fresh sandbox.
//!
//! The agent cannot influence the measurement: its sandbox is frozen meanwhile, so that no process it
//! left running can push again, and the checks run in a sandbox that it never had access to.

use std::sync::Arc;
use std::time::{Duration, Instant};

use agentmine_agent::{ChangedFile, Check, Facts, Gather, WebRequest, missing, placeholders};
use agentmine_gateway::facts::BareRepo;
use agentmine_gateway::{Gateway, GatewayConfig, GitAccess, TrafficEvent};
use agentmine_sandbox::{SandboxRole, SandboxSpec};
use async_trait::async_trait;

use crate::error::SessionError;
use crate::prepare::workspace::{Workspace, output_tail};
use crate::prepare::{Prepared, SETUP_TIMEOUT};
use crate::record::journal::millis;
use crate::record::redact::{Outputs, Redactor};
use crate::session::context::SessionContext;

/// Bytes of a check's output that are kept: whole lines of its start and its end.
const CHECK_OUTPUT: usize = 6 * 1024;
/// Installed or built files that the worker never commits, even if they are not ignored.
const NEVER_COMMITTED: &str = "':(exclude,glob)**/node_modules/**' ':(exclude,glob)**/__pycache__/**' ':(exclude,glob)**/.venv/**' ':(exclude,glob)**/target/debug/**'";
/// Paths of files that control CI, code ownership or agents.
const PROTECTED: [&str; 8] = [
    ".github/workflows/",
    ".gitlab-ci.yml",
    "CODEOWNERS",
    ".github/CODEOWNERS",
    ".agentmine/",
    "AGENTS.md",
    "CLAUDE.md",
    ".cursorrules",
];

/// Measures the result of one session.
pub(crate) struct Measurer<'a> {
    pub(crate) ctx: &'a SessionContext,
    pub(crate) prepared: &'a Prepared,
    pub(crate) title: &'a str,
}

#[async_trait]
impl Gather<SessionError> for Measurer<'_> {
    async fn facts(&self) -> Result<Facts, SessionError> {
        let push_error = self.publish().await?;
        self.seal_and_freeze().await?;
        let facts = self.measure(push_error).await?;
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

    fn bare(&self) -> Result<BareRepo, SessionError> {
        BareRepo::new(self.prepared.upstream.clone()).map_err(SessionError::BareRepo)
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

    /// Commits uncommitted changes and pushes unpushed commits. Returns the reason if that failed.
    async fn publish(&self) -> Result<Option<String>, SessionError> {
        let workspace = &self.prepared.workspace;
        let message = format!("{:.72}", self.title.replace('\'', ""));
        let commit = format!(
            "if [ -n \"$(git diff --name-only --diff-filter=U)\" ] || [ -e .git/MERGE_HEAD ] || [ -d .git/rebase-merge ] || [ -d .git/rebase-apply ]; then \
             echo 'a merge or rebase is unfinished' >&2; exit 3; fi; \
             git add -A -- . {NEVER_COMMITTED} && {{ git diff --cached --quiet || git commit --quiet --no-verify -m '{message}'; }} && git rev-parse HEAD"
        );
        let done = workspace
            .shell(&commit, Duration::from_secs(300), 16 * 1024)
            .await?;
        if done.exit_code != 0 {
            return Ok(Some(output_tail(&done)));
        }
        let head = String::from_utf8_lossy(&done.stdout).trim().to_owned();
        let pushed = workspace.gateway.pushed_head();
        if pushed.as_deref() == Some(head.as_str())
            || (pushed.is_none() && head == self.prepared.base)
        {
            return Ok(None);
        }
        let refspec = format!("HEAD:refs/heads/{}", self.prepared.branches.work);
        let done = workspace
            .git(&["push", "--quiet", "--no-verify", "origin", &refspec])
            .await?;
        workspace.reached("git push", &done)?;
        Ok((done.exit_code != 0).then(|| output_tail(&done)))
    }

    async fn measure(&self, push_error: Option<String>) -> Result<Facts, SessionError> {
        let base = self.prepared.base.clone();
        let mut facts = Facts {
            base: base.clone(),
            push_error,
            web: web(&self.prepared.workspace.gateway),
            web_dropped: self.prepared.workspace.gateway.dropped_events(),
            ..Facts::default()
        };
        let bare = self.bare()?;
        let head = bare.resolve(&self.prepared.branches.work).await?;
        let Some(head) = head.filter(|head| *head != base) else {
            return Ok(facts);
        };
        facts.head = Some(head.clone());
        bare.fetch(&[base.as_str(), head.as_str()]).await?;
        let diff = bare.diff(&base, &head).await?;
        facts.placeholders = placeholders(diff.added_lines().map(|l| (l.path, l.number, l.text)));
        facts.files = diff
            .files
            .iter()
            .map(|f| ChangedFile {
                path: f.path.clone(),
                added: (!f.binary).then_some(f.added),
                removed: (!f.binary).then_some(f.removed),
            })
            .collect();
        facts.diff_cut = diff.patch_cut;
        let paths = diff
            .files
            .iter()
            .flat_map(|f| f.old_path.iter().chain([&f.path]));
        facts.protected = paths.filter(|p| protected(p)).cloned().collect();
        facts.checks_from = self.prepared.project.checks_from.clone();
        if !self.prepared.project.checks.is_empty() {
            let (checks, web) = self.check(&head).await?;
            facts.checks = checks;
            facts.web.extend(web);
        }
        Ok(facts)
    }

    /// Runs the checks on a fresh clone in a fresh sandbox.
    async fn check(&self, head: &str) -> Result<(Vec<Check>, Vec<WebRequest>), SessionError> {
        let ctx = self.ctx;
        let gateway = Gateway::new(GatewayConfig {
            git: GitAccess::ReadOnly(self.prepared.upstream.clone()),
            network: ctx.deps.config.command_executor.docker.network.clone(),
        })
        .map_err(SessionError::Gateway)?;
        let spec = SandboxSpec {
            task: ctx.task.id,
            epoch: ctx.lease.epoch,
            role: SandboxRole::Verify,
            image: self.prepared.image.clone(),
        };
        let fresh = Workspace::start(ctx.deps.backend.as_ref(), &spec, gateway).await?;
        ctx.freezer.add(Arc::clone(&fresh.sandbox)).await;
        let checks = self.run_checks(&fresh, head).await;
        ctx.discard(fresh.sandbox.name()).await;
        Ok((checks?, web(&fresh.gateway)))
    }

    async fn run_checks(&self, fresh: &Workspace, head: &str) -> Result<Vec<Check>, SessionError> {
        fresh
            .clone_branch(&self.prepared.branches.work, Some(1), &[])
            .await?;
        let cloned = fresh.git_ok(&["rev-parse", "HEAD"]).await?;
        if cloned != head {
            return Err(SessionError::BranchMoved);
        }
        let project = &self.prepared.project;
        let redactor = &self.ctx.redactor;
        let capture = redactor.capture(CHECK_OUTPUT);
        let mut checks = Vec::new();
        let begun = Instant::now();
        for line in &project.setup {
            let left = SETUP_TIMEOUT.saturating_sub(begun.elapsed());
            let done = fresh.shell(line, left, capture).await?;
            if done.exit_code != 0 {
                checks.push(as_check(
                    &format!("set-up: {line}"),
                    &done,
                    project.guessed,
                    redactor,
                ));
            }
        }
        let limit = Duration::from_secs(self.ctx.deps.config.agent.check_timeout_seconds);
        for line in &project.checks {
            let done = fresh.shell(line, limit, capture).await?;
            checks.push(as_check(line, &done, project.guessed, redactor));
        }
        Ok(checks)
    }
}

/// The web requests so far, counted by host and outcome.
fn web(gateway: &Gateway) -> Vec<WebRequest> {
    let mut seen: Vec<WebRequest> = Vec::new();
    for event in gateway.events() {
        let (host, refused) = match event {
            TrafficEvent::WebAllowed { host, port } => (format!("{host}:{port}"), None),
            TrafficEvent::WebBlocked { host, port, reason } => {
                (format!("{host}:{port}"), Some(reason))
            }
            TrafficEvent::Pushed { .. }
            | TrafficEvent::PushRefused { .. }
            | TrafficEvent::AuthRefused { .. } => {
                continue;
            }
        };
        match seen
            .iter_mut()
            .find(|w| w.host == host && w.refused == refused)
        {
            Some(known) => known.count += 1,
            None => seen.push(WebRequest {
                host,
                count: 1,
                refused,
            }),
        }
    }
    seen
}

fn as_check(
    line: &str,
    done: &agentmine_sandbox::CommandResult,
    guessed: bool,
    redactor: &Redactor,
) -> Check {
    let Outputs { stdout, stderr } = redactor.outputs(done, CHECK_OUTPUT, "");
    let mut output = stdout + &stderr;
    if done.timed_out {
        output.push_str("\nkilled: time limit exceeded");
    }
    Check {
        command: line.to_owned(),
        exit_code: done.exit_code,
        output,
        duration_ms: millis(done.duration),
        // The shell's exit codes for "cannot execute" and "not found".
        could_not_run: guessed && matches!(done.exit_code, 126 | 127),
    }
}

fn protected(path: &str) -> bool {
    PROTECTED.iter().any(|p| match p.strip_suffix('/') {
        Some(_) => path.starts_with(p),
        None => path == *p || path.ends_with(&format!("/{p}")),
    })
}

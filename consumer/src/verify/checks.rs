//! Runs the project's checks on a fresh clone in a fresh sandbox that the agent never had access to.
//!
//! If a check or a set-up command fails there, it is run on the base commit as well, in another fresh sandbox:
//! a failure that was there before is reported as such. Where the target branch was merged, other failures are compared
//! with the commit of it that was merged, and one that is the same there is reported as such.
//!
//! The sandbox and the clone that the checks begin with are made as soon as the agent begins a push, or at the latest while its work
//! is published, since both come from the repository's host alone. What the agent pushes is fetched into the clone as soon as the host
//! has it. If the branch is at another commit when the agent's sandbox is frozen, that one is fetched then.
//!
//! A command that ends its sandbox, twice and while the engine answers, counts as failed. The checks after it run in
//! another fresh sandbox.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use agentmine_agent::{Check, CheckFailure, Standing, WebRequest};
use agentmine_domain::markdown::line;
use agentmine_gateway::facts::BareRepo;
use agentmine_gateway::{GatewayConfig, GitAccess};
use agentmine_sandbox::{CommandResult, SandboxError, SandboxRole, SandboxSpec};
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::web::web;
use crate::error::{SessionError, WorkspaceError};
use crate::prepare::Prepared;
use crate::prepare::clone::{self, CloneOf, StartCloned};
use crate::prepare::install::SETUP_TIMEOUT;
use crate::prepare::workspace::Workspace;
use crate::record::journal::millis;
use crate::record::redact::{Outputs, Redactor};
use crate::session::context::SessionContext;

/// Bytes of a check's output that are kept: whole lines of its start and its end.
const CHECK_OUTPUT: usize = 6 * 1024;
/// Bytes of a check's output that are compared with another one.
const COMPARED_OUTPUT: usize = 2 * 1024 * 1024;

/// How long a sandbox waits for the end of the work after a push. An agent that pushes and continues must not hold two.
const READY_FOR: Duration = Duration::from_secs(60);

/// The checks of one session.
pub(crate) struct CheckRunner<'a> {
    ctx: &'a SessionContext,
    prepared: &'a Prepared,
    base: Mutex<Base>,
    /// The same of commits of the target branch that were merged.
    targets: Mutex<BTreeMap<String, Base>>,
    /// Made ahead. Locked while it is made.
    ready: Mutex<Option<Fresh>>,
    settled: Mutex<Option<Settled>>,
    /// Whether the result is measured now, so that a push is the worker's own.
    is_measuring: AtomicBool,
}

/// A fresh sandbox with a clone of the branch that the work started from.
struct Fresh {
    workspace: Workspace,
    cloned: StartCloned,
}

/// What is known of the base commit.
#[derive(Default)]
struct Base {
    /// The checks that were run on it.
    checks: BTreeMap<String, OnBase>,
    /// The set-up commands that failed on it; `None` before they were run.
    setup_failures: Option<BTreeSet<String>>,
    /// Whether it cannot be cloned any more.
    gone: bool,
}

impl Base {
    fn learn(&mut self, mut seen: Checked) {
        let failed = seen.setup_failures.into_iter().map(|setup| setup.command);
        self.setup_failures = Some(failed.collect());
        for check in seen.checks {
            let known = OnBase {
                asked: false,
                failure: seen.failures.remove(&check.command),
                check,
            };
            self.checks.insert(known.check.command.clone(), known);
        }
    }
}

/// The commit without the work that failures are compared with.
#[derive(Clone, Copy)]
enum Reference<'a> {
    /// The one that the work started from.
    Start(&'a str),
    /// That of the target branch that was merged.
    Target(&'a str),
}

impl<'a> Reference<'a> {
    fn commit(self) -> &'a str {
        match self {
            Self::Start(commit) | Self::Target(commit) => commit,
        }
    }

    /// The standing of a failure that is the same on this commit.
    fn still_counts(self) -> Standing {
        match self {
            Self::Start(_) => Standing::FailsOnBase,
            Self::Target(_) => Standing::FailsOnTarget,
        }
    }

    /// The standing of a guessed check that fails in the same way on this commit, once the model was asked about it.
    fn no_longer_counts(self) -> Standing {
        match self {
            Self::Start(_) => Standing::FailedBefore,
            Self::Target(_) => Standing::FailedOnTarget,
        }
    }
}

/// A check on the base commit.
struct OnBase {
    check: Check,
    failure: Option<CheckFailure>,
    /// Whether the model has been asked about a failure that is the same on the base commit.
    asked: bool,
}

/// What one fresh clone showed.
#[derive(Default, Clone)]
pub(super) struct Checked {
    pub(super) checks: Vec<Check>,
    pub(super) setup_failures: Vec<Check>,
    /// How checks failed, by their commands, where that can be compared.
    failures: BTreeMap<String, CheckFailure>,
    pub(super) web: Vec<WebRequest>,
    /// Which checks fail on the target branch.
    pub(super) notes: Vec<String>,
}

impl Checked {
    /// Adds a check that failed without an output of its own.
    fn failed(&mut self, check: Check) {
        let failure = CheckFailure::of(check.exit_code, &check.output);
        self.failures
            .extend(failure.map(|failure| (check.command.clone(), failure)));
        self.checks.push(check);
    }

    /// Whether something failed, and nothing in another way than on a base commit. Then the same commit would fail again,
    /// unless the set-up failed: what that needed may be there later.
    fn fails_as_the_base_commit(&self) -> bool {
        let mut failed = self.checks.iter().filter(|check| check.failed()).peekable();
        self.setup_failures.is_empty()
            && failed.peek().is_some()
            && failed.all(|check| check.standing != Standing::Ran)
    }
}

/// A measurement that the next one of the same commit would only repeat, as where the model explains why it leaves
/// a failure.
struct Settled {
    head: String,
    checked: Checked,
}

impl<'a> CheckRunner<'a> {
    pub(crate) fn new(ctx: &'a SessionContext, prepared: &'a Prepared) -> Self {
        Self {
            ctx,
            prepared,
            base: Mutex::default(),
            targets: Mutex::default(),
            ready: Mutex::default(),
            settled: Mutex::default(),
            is_measuring: AtomicBool::new(false),
        }
    }

    /// Makes a sandbox ready at each push of the agent, for a while.
    pub(crate) async fn get_ready_at_pushes(&self) -> Infallible {
        let gateway = &self.prepared.workspace.gateway;
        let get_ready = || async {
            if !self.is_measuring.load(Ordering::Relaxed) {
                self.get_ready().await;
            }
        };
        at_pushes(|| gateway.pushing(), get_ready, || self.discard_ready()).await
    }

    /// The measurement begins. The sandbox is made ready now if it is not.
    pub(super) async fn begin(&self) {
        self.is_measuring.store(true, Ordering::Relaxed);
        if !self.is_settled().await {
            self.get_ready().await;
        }
    }

    /// The measurement is over.
    pub(super) async fn end(&self) {
        self.discard_ready().await;
        self.is_measuring.store(false, Ordering::Relaxed);
    }

    fn has_something_to_run(&self) -> bool {
        let project = &self.prepared.project;
        !project.checks.is_empty() || !project.setup.is_empty()
    }

    /// Makes the sandbox for the next checks ready. A pull request's own branch changes by what is about to be
    /// published, so it is cloned after that. What fails here is tried again, and reported, when it is needed.
    async fn get_ready(&self) {
        if !self.has_something_to_run() || !self.prepared.branches.opens_pull_request {
            return;
        }
        let mut ready = self.ready.lock().await;
        if let Err(error) = self.fill(&mut ready).await {
            tracing::debug!(%error, "no sandbox for checks could be made ready");
        }
    }

    /// Makes a sandbox with a clone, unless it is there, and fetches the commit that was pushed last into it.
    async fn fill(&self, ready: &mut Option<Fresh>) -> Result<(), SessionError> {
        let Fresh { workspace, cloned } = match ready {
            Some(fresh) => fresh,
            None => ready.insert(self.fresh().await?),
        };
        match self.prepared.workspace.gateway.pushed_head() {
            Some(head) => {
                let work = &self.prepared.branches.work;
                cloned.fetch_result(workspace, work, &head).await
            }
            None => Ok(()),
        }
    }

    /// Gives up what was made ready and not used.
    async fn discard_ready(&self) {
        if let Some(fresh) = self.ready.lock().await.take() {
            self.ctx.discard(fresh.workspace.sandbox.name()).await;
        }
    }

    /// A new sandbox with a clone.
    async fn fresh(&self) -> Result<Fresh, SessionError> {
        let ctx = self.ctx;
        ctx.wait_for_removals().await;
        let (branches, base) = (&self.prepared.branches, &self.prepared.base);
        let image = self.prepared.image.as_deref();
        let gateway = GatewayConfig {
            git: GitAccess::ReadOnly(self.prepared.upstream.clone()),
            network: ctx.deps.config.command_executor.docker.network.clone(),
        };
        let spec = SandboxSpec {
            task: ctx.task.id,
            epoch: ctx.lease.epoch,
            role: SandboxRole::Verify,
            image: self.prepared.image.clone(),
            template: clone::template(ctx, branches, image),
        };
        let backend = ctx.deps.backend.as_ref();
        let workspace = Workspace::start(backend, &spec, gateway, ctx.mirrors.as_ref()).await?;
        drop(spec);
        ctx.freezer.add(Arc::clone(&workspace.sandbox)).await;
        match StartCloned::make(ctx, &workspace, (branches, image), base).await {
            Ok(cloned) => Ok(Fresh { workspace, cloned }),
            Err(error) => {
                ctx.discard(workspace.sandbox.name()).await;
                Err(renamed(error))
            }
        }
    }

    /// Runs the checks on the pushed commit `head`, for which the branch `merges` was to be merged, if one is given.
    pub(super) async fn check(
        &self,
        head: &str,
        merges: Option<&str>,
    ) -> Result<Checked, SessionError> {
        if !self.has_something_to_run() {
            return Ok(Checked::default());
        }
        let known = self.settled.lock().await.take();
        let mut checked = match known.filter(|known| known.head == head) {
            Some(known) => known.checked,
            None => {
                let lines = self.prepared.project.all_checks();
                self.on_fresh_clone(CloneOf::Result(head), &lines).await?
            }
        };
        let of_base = {
            let mut base = self.base.lock().await;
            let start = Reference::Start(&self.prepared.base);
            self.compare(&mut checked, &mut base, start, &BTreeSet::new())
                .await?
        };
        if let Some(target) = merges {
            self.compare_with_target(&mut checked, (target, head), &of_base)
                .await?;
        }
        if checked.fails_as_the_base_commit() {
            *self.settled.lock().await = Some(Settled {
                head: head.to_owned(),
                checked: checked.clone(),
            });
        }
        Ok(checked)
    }

    /// Whether another measurement of what was pushed so far would run nothing.
    async fn is_settled(&self) -> bool {
        let pushed = self.prepared.workspace.gateway.pushed_head();
        let settled = self.settled.lock().await;
        settled.as_ref().map(|it| &it.head) == pushed.as_ref() && pushed.is_some()
    }

    /// Marks the failures that the pushed commit has from the commit of `target` that was merged, and notes which they are.
    /// Those in `of_base` are on the base commit, too.
    async fn compare_with_target(
        &self,
        checked: &mut Checked,
        (target, head): (&str, &str),
        of_base: &BTreeSet<String>,
    ) -> Result<(), SessionError> {
        checked.notes.clear();
        let is_open = |check: &Check| check.failed() && !of_base.contains(&check.command);
        if !checked.checks.iter().any(is_open) {
            return Ok(());
        }
        let bare = BareRepo::new(self.prepared.upstream.clone()).map_err(SessionError::BareRepo)?;
        let Some(merged) = bare.merged(target, (&self.prepared.base, head)).await? else {
            return Ok(());
        };
        let mut targets = self.targets.lock().await;
        let known = targets.entry(merged.clone()).or_default();
        let target = Reference::Target(&merged);
        let failing = self.compare(checked, known, target, of_base).await?;
        let note = |command: &String| {
            let command = line(command, 100).replace('`', "'");
            format!(
                "`{command}` fails in the same way on the commit `{merged}` of the target branch, which was merged."
            )
        };
        checked.notes = failing.iter().map(note).collect();
        Ok(())
    }

    /// Marks the guessed checks that cannot start on `reference` either, of which `base` is known, and the failures that are
    /// the same there; returns these. The checks in `except` are not compared.
    async fn compare(
        &self,
        checked: &mut Checked,
        base: &mut Base,
        reference: Reference<'_>,
        except: &BTreeSet<String>,
    ) -> Result<BTreeSet<String>, SessionError> {
        let is_compared = |check: &Check| check.failed() && !except.contains(&check.command);
        let unknown: Vec<&str> = checked
            .checks
            .iter()
            .filter(|check| is_compared(check) && !base.checks.contains_key(&check.command))
            .map(|check| check.command.as_str())
            .collect();
        let is_new = |setup: &Check| setup.standing == Standing::Ran;
        let asks_set_up =
            base.setup_failures.is_none() && checked.setup_failures.iter().any(is_new);
        if !base.gone && (asks_set_up || !unknown.is_empty()) {
            match self.on_base(reference.commit(), &unknown).await? {
                Some(seen) => base.learn(seen),
                None => base.gone = true,
            }
        }
        for setup in checked.setup_failures.iter_mut().filter(|it| is_new(it)) {
            let known = base.setup_failures.as_ref();
            if known.is_some_and(|failures| failures.contains(&setup.command)) {
                setup.standing = reference.still_counts();
            }
        }
        let mut same = BTreeSet::new();
        let compared = checked.checks.iter_mut();
        for check in compared.filter(|check| is_compared(check)) {
            let Some(known) = base.checks.get_mut(&check.command) else {
                continue;
            };
            // Decided by the base commit: the agent's own commit may be what keeps the check from starting.
            let guessed = self.prepared.project.is_guessed(&check.command);
            if guessed
                && known.check.cannot_start().is_some()
                && let Some(why) = check.cannot_start()
            {
                check.standing = Standing::NotRun(why);
                continue;
            }
            let own = checked.failures.get(&check.command);
            let is_same = |(own, known): (&CheckFailure, &CheckFailure)| own.is_like(known);
            if own.zip(known.failure.as_ref()).is_some_and(is_same) {
                check.standing = match (guessed, known.asked) {
                    (true, true) => reference.no_longer_counts(),
                    (true, false) | (false, _) => reference.still_counts(),
                };
                known.asked = true;
                same.insert(check.command.clone());
            }
        }
        Ok(same)
    }

    /// Runs checks on a base commit; `None` if it cannot be cloned any more.
    async fn on_base(&self, commit: &str, lines: &[&str]) -> Result<Option<Checked>, SessionError> {
        match self.on_fresh_clone(CloneOf::Base(commit), lines).await {
            Ok(checked) => Ok(Some(checked)),
            Err(SessionError::Workspace(
                error @ (WorkspaceError::Git { .. }
                | WorkspaceError::Clone { .. }
                | WorkspaceError::NoSuchBranch { .. }),
            )) => {
                let note = format!("the checks could not be run on the base commit: {error}");
                self.ctx.note(&note).await?;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    async fn on_fresh_clone(
        &self,
        commit: CloneOf<'_>,
        lines: &[&str],
    ) -> Result<Checked, SessionError> {
        let mut checked = Checked::default();
        let mut suspects = Vec::new();
        loop {
            let rest = &lines[checked.checks.len()..];
            let Some(ended) = self.on_one_clone(commit, rest, &mut checked).await? else {
                return Ok(checked);
            };
            self.ctx.engine_answers().await?;
            let Ended {
                command,
                during,
                why,
            } = ended;
            let note = format!("the sandbox ended while `{command}` ran: {why}");
            self.ctx.note(&note).await?;
            // Once may be the engine's doing, which restarted, or that of the connection to it.
            if !suspects.contains(&(command.clone(), during)) {
                suspects.push((command, during));
                continue;
            }
            let failed = Check::ended_sandbox(command, &self.ctx.redactor.redact(why));
            match during {
                Stage::Check => checked.failed(failed),
                Stage::SetUp => {
                    checked.setup_failures = vec![failed];
                    let unreached = rest.iter().map(|line| (*line).to_owned());
                    unreached.for_each(|line| checked.failed(Check::not_reached(line)));
                }
            }
            if checked.checks.len() == lines.len() {
                return Ok(checked);
            }
        }
    }

    /// Runs checks in one fresh sandbox. Returns the command that ended it, if one did.
    async fn on_one_clone(
        &self,
        commit: CloneOf<'_>,
        lines: &[&str],
        checked: &mut Checked,
    ) -> Result<Option<Ended>, SessionError> {
        let fresh = self.at(commit).await?;
        let ended = self.run(&fresh, lines, checked).await;
        self.ctx.discard(fresh.sandbox.name()).await;
        let ended = ended?;
        checked.web.extend(web(&fresh.gateway));
        Ok(ended)
    }

    /// A fresh sandbox at a commit.
    async fn at(&self, commit: CloneOf<'_>) -> Result<Workspace, SessionError> {
        let ready = self.ready.lock().await.take();
        if let Some(fresh) = ready {
            match self.check_out(fresh, commit).await {
                // It may have ended while it waited, with its engine.
                Err(SessionError::Workspace(error)) => {
                    tracing::debug!(%error, "the sandbox that was made ahead is not used");
                }
                done => return done,
            }
        }
        self.check_out(self.fresh().await?, commit).await
    }

    async fn check_out(
        &self,
        fresh: Fresh,
        commit: CloneOf<'_>,
    ) -> Result<Workspace, SessionError> {
        let Fresh { workspace, cloned } = fresh;
        let branches = &self.prepared.branches;
        match cloned.check_out(&workspace, branches, commit).await {
            Ok(()) => Ok(workspace),
            Err(error) => {
                self.ctx.discard(workspace.sandbox.name()).await;
                Err(error)
            }
        }
    }

    async fn run(
        &self,
        fresh: &Workspace,
        lines: &[&str],
        checked: &mut Checked,
    ) -> Result<Option<Ended>, SessionError> {
        let redactor = &self.ctx.redactor;
        let capture = redactor.capture(CHECK_OUTPUT);
        let begun = Instant::now();
        checked.setup_failures.clear();
        for line in &self.prepared.project.setup {
            let left = SETUP_TIMEOUT.saturating_sub(begun.elapsed());
            let done = match fresh.set_up(line, left, capture).await {
                Ok(done) => done,
                Err(error) => return Ended::by(line, Stage::SetUp, error),
            };
            if done.exit_code != 0 {
                checked.setup_failures.push(as_check(line, &done, redactor));
            }
        }
        // As in the agent's own clone, see `prepare::install`. What the set-up left running may end the sandbox now.
        if let Some(last) = self.prepared.project.setup.last()
            && let Err(error) = fresh.git(&["checkout", "--quiet", "--", "."]).await
        {
            return Ended::by(last, Stage::SetUp, error);
        }
        let configured = self.ctx.deps.config.agent.check_timeout_seconds;
        for line in lines {
            let own = self.prepared.project.limit_of(line);
            let limit = Duration::from_secs(own.unwrap_or(configured).min(configured));
            let capture = redactor.capture(COMPARED_OUTPUT);
            match fresh.check(line, limit, capture).await {
                Ok(done) => {
                    let failure = failure(&done, redactor);
                    let compared = failure.map(|failure| ((*line).to_owned(), failure));
                    checked.failures.extend(compared);
                    checked.checks.push(as_check(line, &done, redactor));
                }
                Err(error) => return Ended::by(line, Stage::Check, error),
            }
        }
        Ok(None)
    }
}

/// Gets ready at each push, and gives that up where no other push follows within [`READY_FOR`].
async fn at_pushes<P, R, D>(
    pushing: impl Fn() -> P,
    get_ready: impl Fn() -> R,
    discard: impl Fn() -> D,
) -> Infallible
where
    P: Future<Output = ()>,
    R: Future<Output = ()>,
    D: Future<Output = ()>,
{
    pushing().await;
    loop {
        get_ready().await;
        if timeout(READY_FOR, pushing()).await.is_err() {
            discard().await;
            pushing().await;
        }
    }
}

/// A command during which the sandbox ended.
struct Ended {
    command: String,
    during: Stage,
    why: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    SetUp,
    Check,
}

impl Ended {
    fn by(
        command: &str,
        during: Stage,
        error: WorkspaceError,
    ) -> Result<Option<Self>, SessionError> {
        match error {
            WorkspaceError::Command(SandboxError::Gone(why) | SandboxError::Protocol(why)) => {
                Ok(Some(Self {
                    command: command.to_owned(),
                    during,
                    why,
                }))
            }
            error => Err(error.into()),
        }
    }
}

/// The output of a check, cut to `max` bytes.
fn output(done: &CommandResult, max: usize, redactor: &Redactor) -> String {
    let Outputs { stdout, stderr } = redactor.outputs(done, max, "");
    let mut output = stdout + &stderr;
    if done.timed_out {
        output.push('\n');
        output.push_str(Check::TIMED_OUT);
    }
    output
}

fn failure(done: &CommandResult, redactor: &Redactor) -> Option<CheckFailure> {
    if done.exit_code == 0 {
        return None;
    }
    CheckFailure::of(done.exit_code, &output(done, COMPARED_OUTPUT, redactor))
}

fn as_check(line: &str, done: &CommandResult, redactor: &Redactor) -> Check {
    Check {
        command: line.to_owned(),
        exit_code: done.exit_code,
        output: output(done, CHECK_OUTPUT, redactor),
        duration_ms: millis(done.duration),
        standing: Standing::Ran,
    }
}

/// The branch was there when the task began, so it was renamed or removed meanwhile: another attempt begins with what the
/// repository has then.
fn renamed(error: SessionError) -> SessionError {
    match error {
        SessionError::Workspace(WorkspaceError::NoSuchBranch { branch, output }) => {
            WorkspaceError::Clone { branch, output }.into()
        }
        error => error,
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::Notify;
    use tokio::time::{Instant, sleep};

    use super::*;

    /// After how many seconds something was made ready or given up, if the agent pushes after `pushes` seconds.
    async fn after(pushes: &[u64]) -> Vec<(&'static str, u64)> {
        let accepted = Notify::new();
        let seen = std::sync::Mutex::new(Vec::new());
        let begun = Instant::now();
        let note = |what| {
            seen.lock().unwrap().push((what, begun.elapsed().as_secs()));
            std::future::ready(())
        };
        let agent = async {
            for &at in pushes {
                tokio::time::sleep_until(begun + Duration::from_secs(at)).await;
                accepted.notify_one();
            }
            sleep(3 * READY_FOR).await;
        };
        tokio::select! {
            () = agent => {}
            never = at_pushes(|| accepted.notified(), || note("ready"), || note("given up")) => match never {},
        }
        seen.into_inner().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_made_ready_is_given_up_a_minute_after_the_last_push() {
        assert_eq!(after(&[]).await, []);
        assert_eq!(after(&[5]).await, [("ready", 5), ("given up", 65)]);
        // A push within the minute begins another one, and a later push makes the next one ready.
        let seen = [
            ("ready", 5),
            ("ready", 45),
            ("given up", 105),
            ("ready", 200),
            ("given up", 260),
        ];
        assert_eq!(after(&[5, 45, 200]).await, seen);
    }
}

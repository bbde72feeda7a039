//! Real sandboxes with timed calls, to separate the time that a session spends in its sandbox from the rest.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use agentmine_sandbox::{
    Backend, Command, CommandResult, FoundSandbox, GuestPorts, Outbound, Sandbox, SandboxError,
    SandboxSpec, Snapshot, Spare, StdioEnd, StdioProgram, WorkspaceTemplate,
};
use async_trait::async_trait;

/// Time spent, by kind of call.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Spent {
    /// Creating and starting the sandbox.
    pub(crate) start: Duration,
    /// `git clone`.
    pub(crate) clone: Duration,
    /// Every other call.
    pub(crate) other: Duration,
}

/// The time spent in all sandboxes of a backend.
#[derive(Debug, Clone, Default)]
pub(crate) struct Clock(Arc<Mutex<Spent>>);

impl Clock {
    /// The time spent since the last call of this.
    pub(crate) fn take(&self) -> Spent {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    async fn time<T>(
        &self,
        part: fn(&mut Spent) -> &mut Duration,
        work: impl Future<Output = T>,
    ) -> T {
        let began = Instant::now();
        let done = work.await;
        *part(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner)) += began.elapsed();
        done
    }
}

fn cloning(spent: &mut Spent) -> &mut Duration {
    &mut spent.clone
}

fn other(spent: &mut Spent) -> &mut Duration {
    &mut spent.other
}

/// A timed backend.
pub(crate) struct Timed {
    pub(crate) inner: Arc<dyn Backend>,
    pub(crate) clock: Clock,
}

#[async_trait]
impl Backend for Timed {
    async fn check(&self) -> Result<(), SandboxError> {
        self.inner.check().await
    }
    async fn disk_limit(&self) -> String {
        self.inner.disk_limit().await
    }
    async fn start(&self, spec: &SandboxSpec) -> Result<Box<dyn Sandbox>, SandboxError> {
        let start = self.inner.start(spec);
        let inner = self.clock.time(|spent| &mut spent.start, start).await?;
        Ok(Box::new(TimedSandbox {
            inner,
            clock: self.clock.clone(),
        }))
    }
    async fn start_spare(
        &self,
        template: Option<WorkspaceTemplate>,
    ) -> Result<Box<dyn Spare>, SandboxError> {
        let inner = self.inner.start_spare(template).await?;
        let clock = self.clock.clone();
        Ok(Box::new(TimedSpare { inner, clock }))
    }
    async fn list(&self) -> Result<Vec<FoundSandbox>, SandboxError> {
        self.inner.list().await
    }
    async fn remove(&self, found: &FoundSandbox) -> Result<(), SandboxError> {
        self.inner.remove(found).await
    }
}

struct TimedSpare {
    inner: Box<dyn Spare>,
    clock: Clock,
}

#[async_trait]
impl Spare for TimedSpare {
    fn has_ended(&self) -> bool {
        self.inner.has_ended()
    }
    async fn assign(&mut self, spec: &SandboxSpec) -> Result<(), SandboxError> {
        let assigned = self.inner.assign(spec);
        self.clock.time(|spent| &mut spent.start, assigned).await
    }
    fn into_sandbox(self: Box<Self>) -> Box<dyn Sandbox> {
        let Self { inner, clock } = *self;
        Box::new(TimedSandbox {
            inner: inner.into_sandbox(),
            clock,
        })
    }
    async fn remove(&self) -> Result<(), SandboxError> {
        self.inner.remove().await
    }
}

struct TimedSandbox {
    inner: Box<dyn Sandbox>,
    clock: Clock,
}

#[async_trait]
impl Sandbox for TimedSandbox {
    fn name(&self) -> &str {
        self.inner.name()
    }
    fn ports(&self) -> GuestPorts {
        self.inner.ports()
    }
    fn warnings(&self) -> Vec<String> {
        self.inner.warnings()
    }
    fn workspace_root(&self) -> &str {
        self.inner.workspace_root()
    }
    fn template(&self) -> Option<WorkspaceTemplate> {
        self.inner.template()
    }
    fn has_own_volume(&self) -> bool {
        self.inner.has_own_volume()
    }
    fn end_saving(&self) {
        self.inner.end_saving();
    }
    async fn save_workspace(&self, max: u64) -> Result<Option<WorkspaceTemplate>, SandboxError> {
        let saved = self.inner.save_workspace(max);
        self.clock.time(cloning, saved).await
    }
    async fn run(&self, command: Command) -> Result<CommandResult, SandboxError> {
        let part = if command.argv.iter().any(|part| part == "clone") {
            cloning
        } else {
            other
        };
        self.clock.time(part, self.inner.run(command)).await
    }
    async fn check(&self, command: Command) -> Result<CommandResult, SandboxError> {
        self.clock.time(other, self.inner.check(command)).await
    }
    async fn start_stdio(
        &self,
        argv: Vec<String>,
        env: BTreeMap<String, String>,
    ) -> Result<StdioProgram, SandboxError> {
        self.clock
            .time(other, self.inner.start_stdio(argv, env))
            .await
    }
    async fn stdio_stderr(&self, id: u64) -> Result<String, SandboxError> {
        self.inner.stdio_stderr(id).await
    }
    async fn stdio_ended(&self, id: u64) -> Result<StdioEnd, SandboxError> {
        self.inner.stdio_ended(id).await
    }
    async fn stop_stdio(&self, id: u64, grace: Duration) -> Result<(), SandboxError> {
        self.inner.stop_stdio(id, grace).await
    }
    async fn get_file(&self, path: &str, max: usize) -> Result<Option<Vec<u8>>, SandboxError> {
        self.clock.time(other, self.inner.get_file(path, max)).await
    }
    async fn snapshot(&self, since: Option<&str>, max: usize) -> Result<Snapshot, SandboxError> {
        self.clock
            .time(other, self.inner.snapshot(since, max))
            .await
    }
    async fn restore(&self, bundles: Vec<Vec<u8>>, commit: &str) -> Result<(), SandboxError> {
        self.clock
            .time(other, self.inner.restore(bundles, commit))
            .await
    }
    async fn next_outbound(&self) -> Option<Outbound> {
        self.inner.next_outbound().await
    }
    async fn gone(&self) -> String {
        self.inner.gone().await
    }
    async fn pause(&self) -> Result<(), SandboxError> {
        self.inner.pause().await
    }
    async fn unpause(&self) -> Result<(), SandboxError> {
        self.inner.unpause().await
    }
    async fn remove(&self) -> Result<(), SandboxError> {
        self.inner.remove().await
    }
}

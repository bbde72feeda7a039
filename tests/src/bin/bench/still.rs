//! A sandbox that does nothing and returns at once, so that only the worker's own work is measured.

use std::collections::BTreeMap;
use std::future::pending;
use std::time::Duration;

use agentmine_sandbox::{
    Backend, Command, CommandResult, FoundSandbox, GuestPorts, Outbound, Sandbox, SandboxError,
    SandboxSpec, Snapshot, StdioEnd, StdioProgram,
};
use async_trait::async_trait;

/// The commit that every git command prints.
const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// Creates [`Still`] sandboxes.
pub(crate) struct StillBackend;

#[async_trait]
impl Backend for StillBackend {
    async fn check(&self) -> Result<(), SandboxError> {
        Ok(())
    }
    async fn disk_limit(&self) -> String {
        "none".into()
    }
    async fn start(&self, _spec: &SandboxSpec) -> Result<Box<dyn Sandbox>, SandboxError> {
        Ok(Box::new(Still))
    }
    async fn list(&self) -> Result<Vec<FoundSandbox>, SandboxError> {
        Ok(Vec::new())
    }
    async fn remove(&self, _found: &FoundSandbox) -> Result<(), SandboxError> {
        Ok(())
    }
}

/// Every command succeeds and prints a commit's hash.
struct Still;

#[async_trait]
impl Sandbox for Still {
    fn name(&self) -> &str {
        "still"
    }
    fn ports(&self) -> GuestPorts {
        GuestPorts { git: 1, web: 2 }
    }
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }
    async fn run(&self, _command: Command) -> Result<CommandResult, SandboxError> {
        Ok(CommandResult {
            exit_code: 0,
            stdout: format!("{COMMIT}\n").into_bytes().into(),
            stderr: Vec::new().into(),
            timed_out: false,
            duration: Duration::ZERO,
        })
    }
    async fn check(&self, command: Command) -> Result<CommandResult, SandboxError> {
        self.run(command).await
    }
    async fn start_stdio(
        &self,
        _argv: Vec<String>,
        _env: BTreeMap<String, String>,
    ) -> Result<StdioProgram, SandboxError> {
        Err(SandboxError::Failed("nothing runs here".into()))
    }
    async fn stdio_stderr(&self, _id: u64) -> Result<String, SandboxError> {
        Ok(String::new())
    }
    async fn stdio_ended(&self, _id: u64) -> Result<StdioEnd, SandboxError> {
        pending().await
    }
    async fn stop_stdio(&self, _id: u64, _grace: Duration) -> Result<(), SandboxError> {
        Ok(())
    }
    async fn get_file(&self, _: &str, _: usize) -> Result<Option<Vec<u8>>, SandboxError> {
        Ok(None)
    }
    async fn snapshot(&self, _: Option<&str>, _: usize) -> Result<Snapshot, SandboxError> {
        Ok(Snapshot {
            commit: COMMIT.into(),
            left_out: Vec::new(),
            bundle: None,
        })
    }
    async fn restore(&self, _: Vec<Vec<u8>>, _: &str) -> Result<(), SandboxError> {
        Ok(())
    }
    async fn next_outbound(&self) -> Option<Outbound> {
        pending().await
    }
    async fn gone(&self) -> String {
        pending().await
    }
    async fn pause(&self) -> Result<(), SandboxError> {
        Ok(())
    }
    async fn unpause(&self) -> Result<(), SandboxError> {
        Ok(())
    }
    async fn remove(&self) -> Result<(), SandboxError> {
        Ok(())
    }
}

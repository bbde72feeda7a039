//! The client of the guest: a sandbox of any backend, as its users see it.

mod answer;
mod exchange;
mod frozen;
#[cfg(test)]
mod hostile;
#[cfg(test)]
pub(crate) mod tests;
mod usage;

use std::collections::BTreeMap;
use std::time::Duration;

use agentmine_guest::protocol::{
    GuestRequest, Purpose, STDERR_RING, Started, StdioEnd, write_json,
};
use agentmine_runtime::config::BackendKind;
use async_trait::async_trait;
use serde::de::DeserializeOwned;

use self::answer::{bytes_answer, reply, run_answer, snapshot_answer};
use self::exchange::{ask, no_answer};
pub(crate) use self::frozen::Frozen;
use self::usage::Observed;
pub(crate) use self::usage::register as register_use;
use crate::error::SandboxError;
use crate::sandbox::{
    Command, CommandResult, GuestPorts, Outbound, Sandbox, Snapshot, StdioProgram,
};
use crate::spec::SandboxSpec;
use crate::template::{OwnVolume, WorkspaceTemplate};
use crate::tunnel::Tunnel;
use crate::workspace_path;

/// Time limit of a request that does one small thing.
const SHORT: Duration = Duration::from_secs(60);
/// Time limit of a request that transfers the whole project.
const LONG: Duration = Duration::from_secs(300);
/// How long a command's answer may take beyond the command's own time limit.
const MARGIN: Duration = Duration::from_secs(30);
/// How long the end of a stdio program may take beyond its grace periods.
const STOP_MARGIN: Duration = Duration::from_secs(5);
const MAX_STDIN: usize = 64 * 1024 * 1024;

/// The part of a sandbox that only its backend can do.
#[async_trait]
pub(crate) trait Control: Send + Sync + 'static {
    fn name(&self) -> &str;
    fn warnings(&self) -> Vec<String>;
    /// See [`crate::Spare::assign`].
    async fn assign(&mut self, spec: &SandboxSpec) -> Result<(), SandboxError>;
    async fn pause(&self) -> Result<(), SandboxError>;
    async fn unpause(&self) -> Result<(), SandboxError>;
    async fn remove(&self) -> Result<(), SandboxError>;
    /// See [`Sandbox::ended_from_outside`].
    async fn ended_from_outside(&self) -> bool {
        false
    }
}

/// A running sandbox of any backend.
pub(crate) struct Running<C> {
    pub(crate) control: C,
    pub(crate) tunnel: Tunnel,
    pub(crate) volume: OwnVolume,
    pub(crate) frozen: Frozen,
    /// What it uses is in the metrics as long as this lives.
    pub(crate) _observed: Option<Observed>,
}

impl<C: Control> Running<C> {
    /// One whose guest has just answered.
    pub(crate) fn new(kind: BackendKind, control: C, tunnel: Tunnel, volume: OwnVolume) -> Self {
        Self {
            _observed: Some(Observed::start(kind, tunnel.opener())),
            control,
            tunnel,
            volume,
            frozen: Frozen::default(),
        }
    }

    /// A request that is answered by one frame.
    async fn ask_short<T: DeserializeOwned>(
        &self,
        request: &GuestRequest,
        payload: Vec<Vec<u8>>,
        limit: Duration,
    ) -> Result<T, SandboxError> {
        let answer = |mut reader| async move { reply(&mut reader).await };
        ask(&self.tunnel, &self.frozen, request, payload, limit, answer).await
    }

    async fn run_for(
        &self,
        purpose: Purpose,
        command: Command,
    ) -> Result<CommandResult, SandboxError> {
        let Command {
            argv,
            cwd,
            env,
            stdin,
            timeout,
            max_output,
        } = command;
        if stdin.len() > MAX_STDIN {
            return Err(SandboxError::Failed(format!(
                "stdin is larger than {MAX_STDIN} bytes"
            )));
        }
        let request = GuestRequest::Run {
            argv,
            cwd,
            env,
            stdin_len: stdin.len() as u64,
            timeout_ms: millis(timeout),
            max_output: max_output as u64,
            purpose,
        };
        let limit = timeout.saturating_add(MARGIN);
        ask(
            &self.tunnel,
            &self.frozen,
            &request,
            vec![stdin],
            limit,
            |reader| run_answer(reader, max_output),
        )
        .await
    }

    /// AgentMine's own text editor works under `/workspace`, unless it is given another root.
    fn with_root(&self, mut argv: Vec<String>) -> Vec<String> {
        let root = &self.tunnel.hello.root;
        let program = argv.first().and_then(|program| program.rsplit('/').next());
        if program == Some("mcp-server-text-editor") && root != "/workspace" && argv.len() == 1 {
            argv.extend(["--root".to_owned(), root.clone()]);
        }
        argv
    }
}

#[async_trait]
impl<C: Control> Sandbox for Running<C> {
    fn name(&self) -> &str {
        self.control.name()
    }

    fn ports(&self) -> GuestPorts {
        GuestPorts {
            git: self.tunnel.hello.git_port,
            web: self.tunnel.hello.web_port,
        }
    }

    fn warnings(&self) -> Vec<String> {
        self.control.warnings()
    }

    fn workspace_root(&self) -> &str {
        &self.tunnel.hello.root
    }

    fn template(&self) -> Option<WorkspaceTemplate> {
        self.volume.begun_as()
    }

    fn has_own_volume(&self) -> bool {
        self.volume.exists()
    }

    fn end_saving(&self) {
        self.volume.release();
    }

    async fn save_workspace(
        &self,
        max_bytes: u64,
    ) -> Result<Option<WorkspaceTemplate>, SandboxError> {
        self.volume.save(max_bytes).await
    }

    async fn run(&self, command: Command) -> Result<CommandResult, SandboxError> {
        self.run_for(Purpose::Work, command).await
    }

    async fn check(&self, command: Command) -> Result<CommandResult, SandboxError> {
        self.run_for(Purpose::Evidence, command).await
    }

    async fn start_stdio(
        &self,
        argv: Vec<String>,
        env: BTreeMap<String, String>,
    ) -> Result<StdioProgram, SandboxError> {
        let argv = self.with_root(argv);
        let exchange = async {
            let mut stream = self.tunnel.stream().await?;
            let asked = async {
                write_json(&mut stream, &GuestRequest::Stdio { argv, env }).await?;
                reply::<Started>(&mut stream).await
            };
            let started = asked.await.map_err(|err| self.tunnel.error(&err))?;
            let Started { id } = started.map_err(SandboxError::Failed)?;
            Ok(StdioProgram {
                stream: Box::new(stream),
                id,
            })
        };
        let started = tokio::time::timeout(SHORT, exchange).await;
        started.unwrap_or_else(|_| Err(no_answer(SHORT)))
    }

    async fn stdio_stderr(&self, id: u64) -> Result<String, SandboxError> {
        let request = GuestRequest::StdioStderr { id };
        let bytes = ask(
            &self.tunnel,
            &self.frozen,
            &request,
            Vec::new(),
            SHORT,
            |reader| bytes_answer(reader, STDERR_RING),
        );
        let bytes = bytes.await?.unwrap_or_default();
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    async fn stdio_ended(&self, id: u64) -> Result<StdioEnd, SandboxError> {
        // As long as the program lives: only the tunnel's own end limits it.
        let request = GuestRequest::StdioEnded { id };
        self.ask_short(&request, Vec::new(), Duration::MAX).await
    }

    async fn stop_stdio(&self, id: u64, grace: Duration) -> Result<(), SandboxError> {
        let request = GuestRequest::StdioStop {
            id,
            grace_ms: millis(grace),
        };
        let limit = grace.saturating_mul(3).saturating_add(STOP_MARGIN);
        let _: StdioEnd = self.ask_short(&request, Vec::new(), limit).await?;
        Ok(())
    }

    async fn get_file(&self, path: &str, max: usize) -> Result<Option<Vec<u8>>, SandboxError> {
        workspace_path::check(path)?;
        let request = GuestRequest::GetFile {
            path: path.to_owned(),
            max: max as u64,
        };
        ask(
            &self.tunnel,
            &self.frozen,
            &request,
            Vec::new(),
            SHORT,
            |reader| bytes_answer(reader, max),
        )
        .await
    }

    async fn snapshot(
        &self,
        since: Option<&str>,
        max_bundle: usize,
    ) -> Result<Snapshot, SandboxError> {
        let request = GuestRequest::Snapshot {
            since: since.map(str::to_owned),
            max_bundle: max_bundle as u64,
        };
        ask(
            &self.tunnel,
            &self.frozen,
            &request,
            Vec::new(),
            LONG,
            |reader| snapshot_answer(reader, max_bundle),
        )
        .await
    }

    async fn restore(&self, bundles: Vec<Vec<u8>>, commit: &str) -> Result<(), SandboxError> {
        let request = GuestRequest::Restore {
            commit: commit.to_owned(),
            bundles: bundles.iter().map(|bundle| bundle.len() as u64).collect(),
        };
        self.ask_short(&request, bundles, LONG).await
    }

    async fn next_outbound(&self) -> Option<Outbound> {
        self.tunnel.next_outbound().await
    }

    async fn gone(&self) -> String {
        self.tunnel.ended().await
    }

    async fn ended_from_outside(&self) -> bool {
        let ended = tokio::time::timeout(Duration::from_millis(100), self.tunnel.ended()).await;
        ended.is_ok() && self.control.ended_from_outside().await
    }

    async fn pause(&self) -> Result<(), SandboxError> {
        self.control.pause().await?;
        self.frozen.begins();
        Ok(())
    }

    async fn unpause(&self) -> Result<(), SandboxError> {
        self.control.unpause().await?;
        self.frozen.ends();
        Ok(())
    }

    async fn remove(&self) -> Result<(), SandboxError> {
        self.volume.release();
        self.control.remove().await
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

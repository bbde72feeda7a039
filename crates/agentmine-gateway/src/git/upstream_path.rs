//! The repository on the worker's own disk: git's own server programs, on the user's repository.
//!
//! It is the user's, not the agent's: no working tree of it was ever written by an agent. Its hooks
//! do not run, and what it allows of a push is fixed here whatever its configuration says.

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::Stdio;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, ChildStdout, Command};
use tokio_util::io::ReaderStream;

use super::command::{self, GitHome};
use super::upstream::{MAX_ADVERTISEMENT, MAX_REPORT, Service, UpstreamError, Version};

const ADVERTISE_TIMEOUT: Duration = Duration::from_secs(60);
const PUSH_TIMEOUT: Duration = Duration::from_secs(600);

/// What a push may do, whatever the repository's own configuration says.
const RECEIVE_RULES: [&str; 7] = [
    "core.hooksPath=/dev/null",
    "receive.fsckObjects=true",
    "receive.denyCurrentBranch=refuse",
    "receive.denyDeletes=true",
    "receive.denyNonFastForwards=true",
    "receive.autogc=false",
    "receive.updateServerInfo=false",
];

#[derive(Debug)]
pub(crate) struct PathUpstream {
    path: PathBuf,
    home: Arc<GitHome>,
}

impl PathUpstream {
    pub(crate) fn new(path: &Path) -> anyhow::Result<Self> {
        let path = path
            .canonicalize()
            .with_context(|| format!("the repository {} cannot be opened", path.display()))?;
        let home = Arc::new(GitHome::new(Some(&path))?);
        Ok(Self { path, home })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn command(&self, service: Service, version: Option<Version>) -> Command {
        let mut command = self.home.git();
        for rule in RECEIVE_RULES {
            command.arg("-c").arg(rule);
        }
        command.arg(service.subcommand()).arg("--stateless-rpc");
        if let Some(version) = version {
            command.env("GIT_PROTOCOL", version.text());
        }
        command
    }

    /// The advertisement as `git http-backend` would give it.
    pub(crate) async fn advertise(
        &self,
        service: Service,
        version: Option<Version>,
    ) -> Result<Vec<u8>, UpstreamError> {
        let mut git = self.command(service, version);
        git.arg("--advertise-refs").arg(&self.path);
        let output = command::run(git, ADVERTISE_TIMEOUT, MAX_ADVERTISEMENT)
            .await
            .map_err(|error| UpstreamError::Network(error.to_string()))?;
        if output.cut {
            return Err(UpstreamError::Network("too many refs".into()));
        }
        if !output.status.success() {
            tracing::warn!(stderr = %output.stderr.trim(), "git cannot serve the repository");
            return Err(UpstreamError::NotFound);
        }
        let mut out = Vec::new();
        if version != Some(Version::V2) {
            let line = format!("# service={}\n", service.name());
            super::pktline::data(&mut out, line.as_bytes());
            super::pktline::flush(&mut out);
        }
        out.extend_from_slice(&output.stdout);
        Ok(out)
    }

    /// Starts upload-pack on `body`, which is not compressed.
    pub(crate) fn upload_pack(
        &self,
        body: Bytes,
        version: Option<Version>,
    ) -> Result<ChildOutput, UpstreamError> {
        let mut git = self.command(Service::UploadPack, version);
        git.arg(&self.path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let started = |error: std::io::Error| UpstreamError::Network(error.to_string());
        let mut child = git.spawn().map_err(started)?;
        let (Some(mut stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(UpstreamError::Network("git has no pipes".into()));
        };
        tokio::spawn(async move {
            // A child that has read enough closes its end; what it says then tells the rest.
            let _ = stdin.write_all(&body).await;
        });
        Ok(ChildOutput {
            _child: child,
            _home: self.home.clone(),
            stdout: ReaderStream::with_capacity(stdout, 64 * 1024),
        })
    }

    /// Hands a whole push to receive-pack and returns its answer. `file` stands at its beginning.
    pub(crate) async fn receive_pack(&self, file: std::fs::File) -> Result<Vec<u8>, UpstreamError> {
        let mut git = self.command(Service::ReceivePack, None);
        git.arg(&self.path).stdin(Stdio::from(file));
        let output = command::run(git, PUSH_TIMEOUT, MAX_REPORT)
            .await
            .map_err(|error| UpstreamError::Network(error.to_string()))?;
        if output.cut {
            return Err(UpstreamError::Network("the answer is too long".into()));
        }
        Ok(output.stdout)
    }
}

/// The answer of upload-pack as it comes. Dropping it ends the process.
#[derive(Debug)]
pub(crate) struct ChildOutput {
    _child: Child,
    _home: Arc<GitHome>,
    stdout: ReaderStream<ChildStdout>,
}

impl futures::Stream for ChildOutput {
    type Item = std::io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Pin::new(&mut self.stdout).poll_next(cx)
    }
}

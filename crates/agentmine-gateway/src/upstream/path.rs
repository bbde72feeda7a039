//! A repository on the worker's own disk, served by git's own server programs.
//!
//! Its configuration is not read and its hooks do not run: the programs are given a [`View`] of it, and
//! [`RECEIVE_RULES`] decide what a push may do.

use std::path::Path;
use std::pin::Pin;
use std::process::Stdio;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use agentmine_git::View;
use bytes::Bytes;
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, ChildStdout, Command};
use tokio_util::io::ReaderStream;

use super::error::UpstreamError;
use super::service::{ProtocolVersion, Service};
use crate::GatewayError;
use crate::accepted_faults::ACCEPTED;
use crate::git_process;
use crate::wire::pktline;

const ADVERTISE_TIMEOUT: Duration = Duration::from_secs(60);
const PUSH_TIMEOUT: Duration = Duration::from_secs(600);

/// Configuration of `git receive-pack`.
const RECEIVE_RULES: [&str; 6] = [
    "receive.fsckObjects=true",
    "receive.denyCurrentBranch=refuse",
    "receive.denyDeletes=true",
    "receive.denyNonFastForwards=true",
    "receive.autogc=false",
    "receive.updateServerInfo=false",
];

#[derive(Debug)]
pub(crate) struct PathUpstream {
    view: Arc<View>,
}

impl PathUpstream {
    pub(crate) fn new(path: &Path) -> Result<Self, GatewayError> {
        let view = View::serve(path).map_err(|error| GatewayError::Repository {
            path: path.to_owned(),
            error,
        })?;
        Ok(Self {
            view: Arc::new(view),
        })
    }

    /// What git's own client is to fetch from.
    pub(crate) fn served(&self) -> std::io::Result<&Path> {
        self.view.served()
    }

    pub(crate) fn object_format(&self) -> &'static str {
        self.view.object_format()
    }

    /// The server program for `service` on the repository; `options` go before the repository.
    fn command(
        &self,
        service: Service,
        version: Option<ProtocolVersion>,
        options: &[&str],
    ) -> Result<Command, UpstreamError> {
        let mut command = git_process::command(self.view.server());
        for rule in RECEIVE_RULES {
            command.arg("-c").arg(rule);
        }
        for id in ACCEPTED {
            command.arg("-c").arg(format!("receive.fsck.{id}=ignore"));
        }
        command.arg(service.subcommand()).arg("--stateless-rpc");
        if let Some(version) = version {
            command.env("GIT_PROTOCOL", version.text());
        }
        let folder = self
            .view
            .served()
            .map_err(|error| UpstreamError::Network(error.to_string()))?;
        command.args(options).arg(folder);
        Ok(command)
    }

    /// The list of refs, as `git http-backend` would send it. More than `max_bytes` is an error.
    pub(crate) async fn advertise(
        &self,
        service: Service,
        version: Option<ProtocolVersion>,
        max_bytes: usize,
    ) -> Result<Vec<u8>, UpstreamError> {
        let git = self.command(service, version, &["--advertise-refs"])?;
        let output = git_process::run(git, ADVERTISE_TIMEOUT, max_bytes)
            .await
            .map_err(|error| UpstreamError::Network(error.to_string()))?;
        if output.cut {
            return Err(UpstreamError::Network(
                "the repository has too many refs".into(),
            ));
        }
        if !output.status.success() {
            tracing::warn!(stderr = %output.stderr.trim(), "git cannot serve the repository");
            return Err(UpstreamError::NotFound);
        }
        let mut out = Vec::new();
        if version != Some(ProtocolVersion::V2) {
            let line = format!("# service={}\n", service.name());
            pktline::data(&mut out, line.as_bytes());
            pktline::flush(&mut out);
        }
        out.extend_from_slice(&output.stdout);
        Ok(out)
    }

    /// Starts `git upload-pack` on an uncompressed request.
    pub(crate) fn upload_pack(
        &self,
        body: Bytes,
        version: Option<ProtocolVersion>,
    ) -> Result<ChildOutput, UpstreamError> {
        let mut git = self.command(Service::UploadPack, version, &[])?;
        git.stdin(Stdio::piped()).stdout(Stdio::piped());
        let started = |error: std::io::Error| UpstreamError::Network(error.to_string());
        let mut child = git.spawn().map_err(started)?;
        let (Some(mut stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(UpstreamError::Network(
                "git was started without pipes".into(),
            ));
        };
        tokio::spawn(async move {
            // A child that has read enough closes its end; its output then shows the rest.
            let _ = stdin.write_all(&body).await;
        });
        Ok(ChildOutput {
            _child: child,
            _view: self.view.clone(),
            stdout: ReaderStream::with_capacity(stdout, 64 * 1024),
        })
    }

    /// Runs `git receive-pack` on a whole push and returns its report. `file` is at its beginning.
    pub(crate) async fn receive_pack(
        &self,
        file: std::fs::File,
        max_report: usize,
    ) -> Result<Vec<u8>, UpstreamError> {
        let mut git = self.command(Service::ReceivePack, None, &[])?;
        git.stdin(Stdio::from(file));
        let output = git_process::run(git, PUSH_TIMEOUT, max_report)
            .await
            .map_err(|error| UpstreamError::Network(error.to_string()))?;
        if output.cut {
            return Err(UpstreamError::Network(
                "upstream's response is too large".into(),
            ));
        }
        Ok(output.stdout)
    }
}

/// The output of `git upload-pack` as it arrives. Dropping it kills the process.
#[derive(Debug)]
pub(crate) struct ChildOutput {
    _child: Child,
    _view: Arc<View>,
    stdout: ReaderStream<ChildStdout>,
}

impl futures::Stream for ChildOutput {
    type Item = std::io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Pin::new(&mut self.stdout).poll_next(cx)
    }
}

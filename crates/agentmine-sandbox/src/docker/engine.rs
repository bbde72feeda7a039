//! The engine's API, with a time limit and one more try on every call.

use std::future::Future;
use std::time::Duration;

use agentmine_runtime::config;
use bollard::errors::Error;
use bollard::models::SystemInfo;
use bollard::query_parameters::{
    InspectContainerOptions, RemoveContainerOptions, StopContainerOptions,
};
use bollard::{API_DEFAULT_VERSION, Docker};

use crate::SandboxError;

const DEFAULT_HOST: &str = "unix:///var/run/docker.sock";
const STOP_GRACE_SECONDS: i32 = 10;
const REMOVE_TRIES: u32 = 3;

/// A connection to an engine.
#[derive(Debug, Clone)]
pub(crate) struct Engine {
    docker: Docker,
    host: String,
    limit: Duration,
}

impl Engine {
    /// Connects and agrees on a version of the API.
    pub(crate) async fn connect(config: &config::Docker) -> Result<Self, SandboxError> {
        let host = config
            .host
            .clone()
            .unwrap_or_else(|| DEFAULT_HOST.to_owned());
        let seconds = config.api_timeout_seconds.max(1);
        let unavailable = |err: Error| {
            SandboxError::Unavailable(format!(
                "docker at {host}: {err}. hint: is the engine running, and is \
                 command_executor.docker.host (or DOCKER_HOST) right?"
            ))
        };
        let docker = match host.split_once("://") {
            Some(("unix", _)) => Docker::connect_with_unix(&host, seconds, API_DEFAULT_VERSION),
            Some(("tcp" | "http", _)) => {
                Docker::connect_with_http(&host, seconds, API_DEFAULT_VERSION)
            }
            Some(("ssh", _)) => Docker::connect_with_ssh(&host, seconds, API_DEFAULT_VERSION, None),
            _ => Err(Error::UnsupportedURISchemeError { uri: host.clone() }),
        }
        .map_err(unavailable)?;
        let limit = Duration::from_secs(seconds);
        let negotiated = tokio::time::timeout(limit, docker.negotiate_version()).await;
        let docker = negotiated
            .unwrap_or(Err(Error::RequestTimeoutError))
            .map_err(unavailable)?;
        Ok(Self {
            docker,
            host,
            limit,
        })
    }

    pub(crate) fn docker(&self) -> &Docker {
        &self.docker
    }

    /// Calls the API under the time limit, and once more if it did not answer.
    pub(crate) async fn call<T, F, Fut>(&self, what: &str, attempt: F) -> Result<T, SandboxError>
    where
        F: Fn(Docker) -> Fut,
        Fut: Future<Output = Result<T, Error>>,
    {
        self.try_call(attempt)
            .await
            .map_err(|err| self.error(what, &err))
    }

    async fn try_call<T, F, Fut>(&self, attempt: F) -> Result<T, Error>
    where
        F: Fn(Docker) -> Fut,
        Fut: Future<Output = Result<T, Error>>,
    {
        let once = || async {
            let done = tokio::time::timeout(self.limit, attempt(self.docker.clone())).await;
            done.unwrap_or(Err(Error::RequestTimeoutError))
        };
        match once().await {
            Err(err) if is_transient(&err) => {
                tokio::time::sleep(Duration::from_millis(500)).await;
                once().await
            }
            done => done,
        }
    }

    fn error(&self, what: &str, err: &Error) -> SandboxError {
        match err {
            // The name is taken, or the container is being removed: another worker is at it.
            Error::DockerResponseServerError {
                status_code: 409,
                message,
            } => SandboxError::Unavailable(format!("{what}: {message}")),
            Error::DockerResponseServerError { message, .. } => {
                SandboxError::Refused(format!("{what}: {message}"))
            }
            err => SandboxError::Unavailable(format!("docker at {}, {what}: {err}", self.host)),
        }
    }

    pub(crate) async fn info(&self) -> Result<SystemInfo, SandboxError> {
        self.call("asking what it can do", |docker| async move {
            docker.info().await
        })
        .await
    }

    /// Stops, kills and removes a container with its volumes; none of that name is success.
    pub(crate) async fn remove(&self, name: &str) -> Result<(), SandboxError> {
        let mut last = None;
        for attempt in 0..REMOVE_TRIES {
            tokio::time::sleep(Duration::from_millis(500) * attempt).await;
            match self.remove_once(name).await {
                Ok(()) => return Ok(()),
                Err(err) => last = Some(err),
            }
        }
        metrics::counter!("agentmine_sandbox_removal_failures_total", "backend" => "docker")
            .increment(1);
        let why = last.map_or_else(String::new, |err| err.to_string());
        Err(SandboxError::Unavailable(format!(
            "the container {name} is left behind: {why}"
        )))
    }

    async fn remove_once(&self, name: &str) -> Result<(), Error> {
        let inspected = self
            .try_call(|docker| async move {
                docker
                    .inspect_container(name, None::<InspectContainerOptions>)
                    .await
            })
            .await;
        let state = match inspected {
            Ok(container) => container.state.unwrap_or_default(),
            Err(err) if is_missing(&err) => return Ok(()),
            Err(err) => return Err(err),
        };
        // A paused process does not hear the signal.
        if state.paused == Some(true) {
            let _ = self
                .try_call(|docker| async move { docker.unpause_container(name).await })
                .await;
        }
        if state.running == Some(true) {
            let options = || StopContainerOptions {
                t: Some(STOP_GRACE_SECONDS),
                signal: None,
            };
            // What cannot be stopped is killed by the removal.
            let _ = self
                .try_call(
                    |docker| async move { docker.stop_container(name, Some(options())).await },
                )
                .await;
        }
        let options = || RemoveContainerOptions {
            v: true,
            force: true,
            link: false,
        };
        let removed = self
            .try_call(|docker| async move { docker.remove_container(name, Some(options())).await })
            .await;
        match removed {
            Err(err) if !is_missing(&err) => Err(err),
            _ => Ok(()),
        }
    }
}

fn is_missing(err: &Error) -> bool {
    matches!(
        err,
        Error::DockerResponseServerError {
            status_code: 404,
            ..
        }
    )
}

/// Whether the engine did not answer, as against saying no.
fn is_transient(err: &Error) -> bool {
    match err {
        Error::DockerResponseServerError { status_code, .. } => *status_code == 503,
        Error::RequestTimeoutError
        | Error::HyperResponseError { .. }
        | Error::HyperLegacyError { .. }
        | Error::IOError { .. } => true,
        _ => false,
    }
}

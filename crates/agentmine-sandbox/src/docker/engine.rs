//! The engine's API, with a time limit and one retry on every call.

use std::future::Future;
use std::time::Duration;

use agentmine_runtime::config;
use bollard::errors::Error;
use bollard::models::{ContainerState, SystemInfo};
use bollard::query_parameters::{
    InspectContainerOptions, RemoveContainerOptions, StopContainerOptions,
};
use bollard::{API_DEFAULT_VERSION, Docker};

use super::address::{self, Security};
use super::causes::chain;
use super::ssh::SshRoute;
use super::tls::TlsRoute;
use super::transport::{self, Route};
use crate::error::{SHORTAGES, SandboxError};

const DEFAULT_HOST: &str = "unix:///var/run/docker.sock";
const STOP_GRACE_SECONDS: i32 = 10;
const REMOVE_TRIES: u32 = 3;
/// With the waits between them, 5.6 seconds.
const PAUSE_TRIES: u32 = 8;
/// What runc says when the kernel did not stop all processes in time.
const NOT_FROZEN: &str = "unable to freeze";

/// A connection to an engine.
#[derive(Debug, Clone)]
pub(crate) struct Engine {
    docker: Docker,
    host: String,
    limit: Duration,
}

impl Engine {
    /// Connects and negotiates the version of the API.
    pub(crate) async fn connect(config: &config::Docker) -> Result<Self, SandboxError> {
        let host = config
            .host
            .clone()
            .unwrap_or_else(|| DEFAULT_HOST.to_owned());
        let limit = Duration::from_secs(config.api_timeout_seconds.max(1));
        let seconds = limit.as_secs();
        let unavailable = |err: Error| {
            let why = chain(&err);
            let hint = hint(&host, &why);
            SandboxError::Unavailable(format!("docker at {host}: {why}. hint: {hint}"))
        };
        let docker = match host.split_once("://") {
            Some(("unix", _)) => Docker::connect_with_unix(&host, seconds, API_DEFAULT_VERSION),
            Some(("tcp" | "http", address)) => match address::security(address, config)? {
                Security::Tls(files) => {
                    let route = TlsRoute::new(address, files)?;
                    transport::connect(Route::Tls(route), limit)
                }
                Security::Plain => Docker::connect_with_http(&host, seconds, API_DEFAULT_VERSION),
            },
            Some(("ssh", _)) => {
                let route = SshRoute::new(&host, config.ssh_config.as_ref(), limit)?;
                transport::connect(Route::Ssh(route), limit)
            }
            _ => Err(Error::UnsupportedURISchemeError { uri: host.clone() }),
        }
        .map_err(unavailable)?;
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

    /// Whether it is reached over a Unix socket.
    pub(crate) fn has_socket_here(&self) -> bool {
        self.host.starts_with("unix://")
    }

    pub(crate) fn docker(&self) -> &Docker {
        &self.docker
    }

    /// Calls the API under the time limit, and once more if the engine did not answer.
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
        let once = || self.in_time(attempt(self.docker.clone()));
        match once().await {
            Err(err) if is_transient(&err) => {
                tokio::time::sleep(Duration::from_millis(500)).await;
                once().await
            }
            done => done,
        }
    }

    /// Waits for one answer under the time limit.
    pub(super) async fn in_time<T>(
        &self,
        answer: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let done = tokio::time::timeout(self.limit, answer).await;
        done.unwrap_or(Err(Error::RequestTimeoutError))
    }

    pub(super) fn error(&self, what: &str, err: &Error) -> SandboxError {
        match err {
            // The name is taken, or the container is being removed: another worker is working on it.
            Error::DockerResponseServerError {
                status_code: 409,
                message,
            } => SandboxError::Unavailable(format!("{what}: {message}")),
            Error::DockerResponseServerError {
                status_code,
                message,
            } if is_temporary(*status_code, message) => {
                SandboxError::Unavailable(format!("{what}: {message}"))
            }
            Error::DockerResponseServerError { message, .. } => {
                SandboxError::Refused(format!("{what}: {message}"))
            }
            err => SandboxError::Unavailable(format!(
                "docker at {}, {what}: {}",
                self.host,
                chain(err)
            )),
        }
    }

    pub(crate) async fn info(&self) -> Result<SystemInfo, SandboxError> {
        self.call("reading its capabilities", |docker| async move {
            docker.info().await
        })
        .await
    }

    /// The names and versions of the engine's parts.
    pub(crate) async fn versions(&self) -> Result<Vec<(String, String)>, SandboxError> {
        let answer = self.call("reading its versions", |docker| async move {
            docker.version().await
        });
        let parts = answer.await?.components.unwrap_or_default();
        Ok(parts
            .into_iter()
            .map(|part| (part.name, part.version))
            .collect())
    }

    /// Pauses a container, by its id. On a slow machine the kernel may not stop all of its processes in the time that
    /// runc gives it, most of all while one starts: then runc lets them go on, and leaves another try to its caller
    /// (<https://github.com/opencontainers/runc/pull/4388>).
    pub(super) async fn pause(&self, id: &str) -> Result<(), SandboxError> {
        let mut attempt = 1;
        loop {
            let paused = self.try_call(|docker| async move { docker.pause_container(id).await });
            match paused.await {
                Err(err) if attempt < PAUSE_TRIES && is_not_frozen_yet(&err) => {
                    tokio::time::sleep(Duration::from_millis(200) * attempt).await;
                    attempt += 1;
                }
                done => return done.map_err(|err| self.error("pausing the container", &err)),
            }
        }
    }

    /// Stops, kills and removes a container with its volumes, by its id. It is no error if there is none.
    pub(crate) async fn remove(&self, id: &str) -> Result<(), SandboxError> {
        let mut last = None;
        for attempt in 0..REMOVE_TRIES {
            tokio::time::sleep(Duration::from_millis(500) * attempt).await;
            match self.remove_once(id).await {
                Ok(()) => return Ok(()),
                Err(err) => last = Some(err),
            }
        }
        metrics::counter!("agentmine_sandbox_removal_failures_total", "backend" => "docker")
            .increment(1);
        let why = last.map_or_else(String::new, |err| err.to_string());
        Err(SandboxError::Unavailable(format!(
            "the container {id} could not be removed: {why}"
        )))
    }

    /// Whether a container whose tunnel has ended was not ended by what runs in it: it runs, was removed, or was stopped as an engine
    /// does that is restarted. False if the engine does not answer.
    pub(super) async fn ended_from_outside(&self, id: &str) -> bool {
        match self.state(id).await {
            Ok(state) => is_from_outside(&state),
            Err(err) => is_missing(&err),
        }
    }

    async fn state(&self, id: &str) -> Result<ContainerState, Error> {
        let inspected = self.try_call(|docker| async move {
            docker
                .inspect_container(id, None::<InspectContainerOptions>)
                .await
        });
        Ok(inspected.await?.state.unwrap_or_default())
    }

    async fn remove_once(&self, id: &str) -> Result<(), Error> {
        let state = match self.state(id).await {
            Ok(state) => state,
            Err(err) if is_missing(&err) => return Ok(()),
            Err(err) => return Err(err),
        };
        // A paused process does not receive the signal.
        if state.paused == Some(true) {
            let _ = self
                .try_call(|docker| async move { docker.unpause_container(id).await })
                .await;
        }
        if state.running == Some(true) {
            let options = || StopContainerOptions {
                t: Some(STOP_GRACE_SECONDS),
                signal: None,
            };
            // A container that cannot be stopped is killed by the removal.
            let _ = self
                .try_call(|docker| async move { docker.stop_container(id, Some(options())).await })
                .await;
        }
        let options = || RemoveContainerOptions {
            v: true,
            force: true,
            link: false,
        };
        let removed = self
            .try_call(|docker| async move { docker.remove_container(id, Some(options())).await })
            .await;
        match removed {
            Err(err) if !is_missing(&err) => Err(err),
            _ => Ok(()),
        }
    }
}

fn hint(host: &str, why: &str) -> &'static str {
    match host.split_once("://") {
        Some(("unix", _)) if why.contains("Permission denied") => {
            "let this user use the socket: add the user to the group `docker` and log in again, or use a rootless \
             engine. Access to the socket is equivalent to root"
        }
        Some(("unix", _)) if why.contains("Socket not found") => {
            "start the engine. If `docker version` works, its engine is at another address, which `docker context \
             inspect --format '{{.Endpoints.docker.Host}}'` prints: set command_executor.docker.host (or DOCKER_HOST) to it"
        }
        Some(("ssh", _)) => {
            "check that `ssh` reaches that machine from here, as this user and without a question, and that \
             `docker version` works there"
        }
        _ => {
            "check that the engine is running and that command_executor.docker.host (or DOCKER_HOST) is correct"
        }
    }
}

pub(super) fn is_missing(err: &Error) -> bool {
    matches!(
        err,
        Error::DockerResponseServerError {
            status_code: 404,
            ..
        }
    )
}

fn is_from_outside(state: &ContainerState) -> bool {
    // The guest ends by itself when its connection does, and by SIGTERM.
    let is_stopped = matches!(state.exit_code, Some(0 | 143)) && state.oom_killed != Some(true);
    state.running == Some(true) || is_stopped
}

/// Whether the engine cannot do it now, as opposed to never. It answers 500 to almost everything that is not the
/// request's fault, from a full disk to a containerd that is being restarted, but also to some of what the
/// configuration asks for and the machine does not have: that is known by its text.
fn is_temporary(status: u16, message: &str) -> bool {
    let shortages = [
        // runc, while systemd is restarted or the machine is short of memory.
        "connection reset",
        "transport endpoint",
        "oom-killed",
        "signal: killed",
        "from pipe: eof",
        "deadline exceeded",
        NOT_FROZEN,
    ];
    let refusals = [
        "oci runtime create failed",
        "executable file not found",
        "exec format error",
        "unknown runtime",
        "unknown or invalid runtime",
        "binary not installed",
        "invalid mount",
        "failed to mount local volume",
        "no matching entries in",
        "storage-opt",
        "not supported",
        "not permitted",
        "permission denied",
    ];
    let message = message.to_lowercase();
    let names = |texts: &[&str]| texts.iter().any(|text| message.contains(text));
    let is_short = names(&SHORTAGES) || names(&shortages);
    status == 503 || (status >= 500 && (is_short || !names(&refusals)))
}

fn is_not_frozen_yet(err: &Error) -> bool {
    matches!(err, Error::DockerResponseServerError { message, .. } if message.contains(NOT_FROZEN))
}

/// Whether the engine failed to answer, as opposed to refusing.
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

/// An answer of an engine that a test plays.
#[cfg(test)]
pub(super) fn played_answer(status: u16, body: &str) -> Vec<u8> {
    let length = body.len();
    let kind = "content-type: application/json";
    format!("HTTP/1.1 {status} x\r\n{kind}\r\ncontent-length: {length}\r\n\r\n{body}").into_bytes()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_container_is_ended_from_outside_unless_it_was_killed() {
        let of = |running, exit_code, oom_killed| {
            is_from_outside(&ContainerState {
                running: Some(running),
                exit_code: Some(exit_code),
                oom_killed: Some(oom_killed),
                ..ContainerState::default()
            })
        };
        assert!(of(true, 0, false) && of(false, 0, false) && of(false, 143, false));
        assert!(!of(false, 137, true) && !of(false, 137, false) && !of(false, 143, true));
        assert!(!of(false, 1, false));
    }

    #[test]
    fn an_engine_with_a_full_disk_may_have_room_later() {
        let full = "mkdir /var/lib/docker/overlay2/x: no space left on device";
        assert!(is_temporary(500, full));
        let restarted = "OCI runtime create failed: runc create failed: unable to start unit \"docker-1.scope\": Message \
                         recipient disconnected from message bus without replying";
        assert!(is_temporary(500, restarted));
        let created = "OCI runtime create failed: mkdir /sys/fs/cgroup/x: no space left on device";
        assert!(is_temporary(500, created));
        assert!(is_temporary(503, "starting"));
        assert!(!is_temporary(404, "no such image"));
    }

    #[test]
    fn an_error_inside_the_engine_is_temporary_unless_its_text_shows_a_refusal() {
        for text in [
            r#"connection error: desc = "transport: Error while dialing: dial unix /run/containerd/containerd.sock: connect: connection refused""#,
            "dial unix /run/containerd/containerd.sock: connect: no such file or directory",
            "context deadline exceeded",
            "error creating temporary lease: Unavailable: error reading from server: EOF",
            "",
        ] {
            assert!(is_temporary(500, text), "{text}");
            assert!(!is_temporary(400, text), "{text}");
        }
        for text in [
            "unknown runtime",
            "unknown or invalid runtime name: kata",
            r#"failed to resolve runtime path: runtime "kata" binary not installed "containerd-shim-kata": file does not exist"#,
            "failed to create task for container: failed to create shim task: OCI runtime create failed: runc create failed",
            r#"exec: "/agentmine/guest": executable file not found in $PATH"#,
            "exec /agentmine/guest: exec format error",
            "invalid mount config for type \"volume\": field VolumeOptions must not be specified",
            "--storage-opt is supported only for overlay over xfs with 'pquota' mount option",
            "unable to find user guest: no matching entries in passwd file",
        ] {
            assert!(!is_temporary(500, text), "{text}");
        }
    }

    #[tokio::test]
    async fn a_socket_that_is_not_there_or_not_allowed_is_explained() {
        let folder = tempfile::tempdir().unwrap();
        let config = config::Docker {
            host: Some(format!("unix://{}/none.sock", folder.path().display())),
            ..config::Docker::default()
        };
        let error = Engine::connect(&config).await.err().unwrap().to_string();
        assert!(error.contains("docker context inspect"), "{error}");
        let denied = hint(
            "unix:///var/run/docker.sock",
            "Permission denied (os error 13)",
        );
        assert!(denied.contains("the group `docker`"), "{denied}");
        let refused = hint("tcp://127.0.0.1:2375", "Connection refused (os error 111)");
        assert!(refused.contains("the engine is running"), "{refused}");
    }

    /// An engine with one stopped container, whose first `failures` removals and pauses fail.
    async fn faulty(failures: u32, tries: Arc<AtomicU32>) -> Engine {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let host = format!("tcp://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, failures, Arc::clone(&tries)));
            }
        });
        let config = config::Docker {
            host: Some(host),
            ..config::Docker::default()
        };
        Engine::connect(&config).await.unwrap()
    }

    async fn serve(stream: TcpStream, failures: u32, tries: Arc<AtomicU32>) {
        let (read, mut write) = stream.into_split();
        let mut lines = BufReader::new(read).lines();
        let mut request = String::new();
        while let Ok(Some(line)) = lines.next_line().await {
            if request.is_empty() {
                request = line;
            } else if line.is_empty() {
                let fails = || tries.fetch_add(1, Ordering::SeqCst) < failures;
                let (status, body) = match request.as_str() {
                    r if r.starts_with("DELETE") => match fails() {
                        true => (500, r#"{"message":"device or resource busy"}"#),
                        false => (204, ""),
                    },
                    r if r.contains("/pause") => match fails() {
                        true => (
                            500,
                            r#"{"message":"OCI runtime pause failed: unable to freeze: unknown"}"#,
                        ),
                        false => (204, ""),
                    },
                    r if r.contains("/version") => (200, r#"{"ApiVersion":"1.41"}"#),
                    _ => (200, r#"{"State":{"Running":false}}"#),
                };
                let answer = played_answer(status, body);
                if write.write_all(&answer).await.is_err() {
                    return;
                }
                request.clear();
            }
        }
    }

    #[tokio::test]
    async fn a_removal_is_tried_three_times() {
        let removals = Arc::new(AtomicU32::new(0));
        let engine = faulty(2, Arc::clone(&removals)).await;
        engine.remove("some").await.unwrap();
        assert_eq!(removals.load(Ordering::SeqCst), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_container_that_the_kernel_does_not_freeze_at_once_is_paused_later() {
        let tries = Arc::new(AtomicU32::new(0));
        let engine = faulty(3, Arc::clone(&tries)).await;
        engine.pause("some").await.unwrap();
        assert_eq!(tries.load(Ordering::SeqCst), 4);
        // It is no fault of the task.
        let engine = faulty(99, tries).await;
        let error = engine.pause("some").await.unwrap_err();
        assert!(matches!(error, SandboxError::Unavailable(_)), "{error}");
    }

    #[tokio::test]
    async fn a_removal_that_fails_three_times_names_the_container() {
        let removals = Arc::new(AtomicU32::new(0));
        let engine = faulty(9, Arc::clone(&removals)).await;
        let error = engine.remove("some").await.unwrap_err().to_string();
        assert_eq!(removals.load(Ordering::SeqCst), 3);
        assert!(
            error.contains("some could not be removed") && error.contains("busy"),
            "{error}"
        );
    }
}

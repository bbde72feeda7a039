//! What every backend guarantees, tested on all of them: Docker, and both local jails.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use agentmine_domain::{Epoch, TaskId};
use agentmine_runtime::config::CommandExecutor;

use crate::local::Jail;
use crate::{
    Backend, Command, CommandResult, DockerBackend, FoundSandbox, LocalBackend, Sandbox,
    SandboxError, SandboxRole, SandboxSpec, WorkerState,
};

/// One test for each backend.
macro_rules! contract {
    ($($name:ident),* $(,)?) => {
        mod docker {
            $(#[tokio::test]
            async fn $name() { super::$name(super::bench(super::Kind::Docker).await).await })*
        }
        mod namespaces {
            $(#[tokio::test]
            async fn $name() { super::$name(super::bench(super::Kind::Namespaces).await).await })*
        }
        mod alone {
            $(#[tokio::test]
            async fn $name() { super::$name(super::bench(super::Kind::Alone).await).await })*
        }
    };
}

mod commands;
mod disk;
mod docker;
mod files;
mod forgery;
mod isolation;
mod lifecycle;
mod local;
mod programs;
mod remote;
mod spare;
mod stdio;
mod template;
mod usage;

/// Not the temporary folder: a jail has one of its own, which must not be mistaken for this one.
fn scratch() -> PathBuf {
    let folder = PathBuf::from(env!("OUT_DIR")).join("scratch");
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// A backend under test, with what it keeps alive.
struct Bench {
    backend: Box<dyn Backend>,
    kind: Kind,
    _state: Option<tempfile::TempDir>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Docker,
    Namespaces,
    Alone,
}

fn docker_config() -> CommandExecutor {
    let mut config = CommandExecutor::default();
    config.docker.host = std::env::var("DOCKER_HOST").ok();
    if let Ok(image) = std::env::var("AGENTMINE_TEST_IMAGE") {
        config.docker.base_image = image;
    }
    config
}

async fn bench(kind: Kind) -> Bench {
    if kind == Kind::Docker {
        let backend = DockerBackend::connect(&docker_config()).await;
        let backend = backend.unwrap_or_else(|err| panic!("{err}\nrun tests/run"));
        backend
            .check()
            .await
            .unwrap_or_else(|err| panic!("{err}\nrun tests/run"));
        return Bench {
            backend: Box::new(backend),
            kind,
            _state: None,
        };
    }
    let state = tempfile::tempdir_in(scratch()).unwrap();
    let jail = if kind == Kind::Alone {
        Jail::Alone
    } else {
        Jail::Namespaces
    };
    let backend = LocalBackend::new(&CommandExecutor::default(), state.path()).unwrap();
    let backend = backend.with_jail(jail);
    Bench {
        backend: Box::new(backend),
        kind,
        _state: Some(state),
    }
}

impl Bench {
    async fn start(&self) -> Running {
        Running(self.backend.start(&spec(TaskId::new())).await.unwrap())
    }

    async fn found(&self, name: &str) -> FoundSandbox {
        let all = self.backend.list().await.unwrap();
        all.into_iter().find(|found| found.name == name).unwrap()
    }
}

fn spec(task: TaskId) -> SandboxSpec {
    SandboxSpec {
        task,
        epoch: Epoch(3),
        role: SandboxRole::Main,
        image: None,
        template: None,
    }
}

/// A sandbox that a test removes at its end.
struct Running(Box<dyn Sandbox>);

impl std::ops::Deref for Running {
    type Target = dyn Sandbox;
    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

impl Running {
    async fn shell(&self, line: &str) -> CommandResult {
        self.run(shell(line)).await.unwrap()
    }

    /// Output of a line that must succeed.
    async fn output(&self, line: &str) -> String {
        let result = self.shell(line).await;
        assert_eq!(result.exit_code, 0, "{line}: {}", text(&result.stderr));
        text(&result.stdout).trim().to_owned()
    }

    /// Writes a file into the project.
    async fn write(&self, name: &str, content: &str) {
        let mut command = shell(&format!("cat > {name}"));
        command.stdin = content.into();
        assert_eq!(self.run(command).await.unwrap().exit_code, 0, "{name}");
    }

    async fn until(&self, line: &str) {
        let line = format!("until {line}; do sleep 0.02; done");
        let mut command = shell(&line);
        command.timeout = Duration::from_secs(10);
        assert_eq!(self.run(command).await.unwrap().exit_code, 0, "{line}");
    }
}

fn shell(line: &str) -> Command {
    Command {
        argv: vec!["/bin/bash".into(), "-c".into(), line.into()],
        cwd: "/workspace/project".into(),
        env: BTreeMap::new(),
        stdin: Vec::new(),
        timeout: Duration::from_secs(30),
        max_output: 64 * 1024,
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs the `docker` command line. Returns whether it succeeded, and its output.
fn docker_cli(args: &[&str]) -> (bool, String) {
    let output = std::process::Command::new("docker")
        .args(args)
        .output()
        .unwrap();
    (output.status.success(), text(&output.stdout))
}

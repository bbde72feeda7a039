//! What a sandbox and a clone cost without AgentMine: the engine's API alone, or bubblewrap alone.
//!
//! Both share the host's network, the cheapest there is that reaches the forge.

use std::process::Stdio;
use std::time::{Duration, Instant};

use agentmine_tests::forge::{DEMO, Forge};
use anyhow::{Context as _, ensure};
use base64::Engine as _;
use bollard::Docker;
use bollard::exec::{CreateExecOptions, StartExecResults};
use bollard::models::{ContainerCreateBody, HostConfig};
use bollard::query_parameters::{CreateContainerOptions, RemoveContainerOptions};
use futures::StreamExt as _;

use crate::fleet::image;

/// How long each part took.
pub(crate) struct Plain {
    /// Create and start; nothing where the clone's own process is the jail.
    pub(crate) start: Duration,
    /// `git clone` in it.
    pub(crate) clone: Duration,
}

/// The sample repository, shallow, with the token sent at once.
fn clone_command(forge: &Forge) -> Vec<String> {
    let basic = format!("x-access-token:{}", forge.token());
    let basic = base64::engine::general_purpose::STANDARD.encode(basic);
    let header = format!("http.extraHeader=Authorization: Basic {basic}");
    let url = forge.git_url(DEMO);
    let mut argv: Vec<String> = ["git", "-c", &header, "clone", "--quiet", "--no-tags"]
        .map(ToOwned::to_owned)
        .into();
    argv.extend(["--depth=1", "--branch=main", url.as_str(), "/tmp/project"].map(String::from));
    argv
}

/// Create, start, exec `git clone`. The container is removed behind the clock.
pub(crate) async fn docker(engine: &Docker, forge: &Forge) -> anyhow::Result<Plain> {
    let body = ContainerCreateBody {
        image: Some(image()),
        user: Some("1000:1000".into()),
        entrypoint: Some(vec!["sleep".into(), "infinity".into()]),
        host_config: Some(HostConfig {
            network_mode: Some("host".into()),
            ..HostConfig::default()
        }),
        ..ContainerCreateBody::default()
    };
    let began = Instant::now();
    let created = engine
        .create_container(None::<CreateContainerOptions>, body)
        .await?;
    let measured = start_and_clone(engine, &created.id, forge, began).await;
    let options = RemoveContainerOptions {
        v: true,
        force: true,
        link: false,
    };
    engine.remove_container(&created.id, Some(options)).await?;
    measured
}

async fn start_and_clone(
    engine: &Docker,
    id: &str,
    forge: &Forge,
    began: Instant,
) -> anyhow::Result<Plain> {
    engine.start_container(id, None).await?;
    let start = began.elapsed();
    let options = CreateExecOptions {
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        cmd: Some(clone_command(forge)),
        ..CreateExecOptions::default()
    };
    let exec = engine.create_exec(id, options).await?;
    let mut said = String::new();
    if let StartExecResults::Attached { mut output, .. } = engine.start_exec(&exec.id, None).await?
    {
        while let Some(part) = output.next().await {
            said.push_str(&part?.to_string());
        }
    }
    let clone = began.elapsed() - start;
    let done = engine.inspect_exec(&exec.id).await?;
    ensure!(done.exit_code == Some(0), "the plain clone failed: {said}");
    Ok(Plain { start, clone })
}

/// `git clone` under bubblewrap.
pub(crate) async fn bubblewrap(forge: &Forge) -> anyhow::Result<Plain> {
    let began = Instant::now();
    let output = tokio::process::Command::new("bwrap")
        .args(["--unshare-all", "--share-net", "--die-with-parent"])
        .args(["--ro-bind", "/", "/", "--tmpfs", "/tmp"])
        .args(["--proc", "/proc", "--dev", "/dev", "--"])
        .args(clone_command(forge))
        .stdin(Stdio::null())
        .output()
        .await
        .context("bwrap; run tests/run --services")?;
    let clone = began.elapsed();
    ensure!(
        output.status.success(),
        "the plain clone failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(Plain {
        start: Duration::ZERO,
        clone,
    })
}

//! The cost of a sandbox and a clone without AgentMine: the engine's API alone, or bubblewrap alone.
//!
//! A sandbox has no network, so it is compared with a container without one. The clone needs the forge,
//! so it runs in a second container on the host's network, the cheapest way to reach it.

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
    /// Create and start without a network; zero where the clone's own process is the jail.
    pub(crate) start: Duration,
    /// Create and start on the host's network.
    pub(crate) start_on_host: Duration,
    /// `git clone` in it.
    pub(crate) clone: Duration,
}

/// Clones the sample repository, shallow; the token is sent with the first request.
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

/// Create and start a container without a network and one on the host's; then `git clone` by exec in
/// the latter. Removing the containers is not measured.
pub(crate) async fn docker(engine: &Docker, forge: &Forge) -> anyhow::Result<Plain> {
    let began = Instant::now();
    let alone = create_and_start(engine, "none").await?;
    let start = began.elapsed();
    remove(engine, &alone).await?;
    let began = Instant::now();
    let connected = create_and_start(engine, "host").await?;
    let start_on_host = began.elapsed();
    let began = Instant::now();
    let cloned = exec(engine, &connected, clone_command(forge)).await;
    let clone = began.elapsed();
    remove(engine, &connected).await?;
    cloned?;
    Ok(Plain {
        start,
        start_on_host,
        clone,
    })
}

async fn create_and_start(engine: &Docker, network: &str) -> anyhow::Result<String> {
    let body = ContainerCreateBody {
        image: Some(image()),
        user: Some("1000:1000".into()),
        entrypoint: Some(vec!["sleep".into(), "infinity".into()]),
        host_config: Some(HostConfig {
            network_mode: Some(network.into()),
            ..HostConfig::default()
        }),
        ..ContainerCreateBody::default()
    };
    let options = None::<CreateContainerOptions>;
    let id = engine.create_container(options, body).await?.id;
    if let Err(error) = engine.start_container(&id, None).await {
        remove(engine, &id).await?;
        return Err(error.into());
    }
    Ok(id)
}

async fn remove(engine: &Docker, id: &str) -> anyhow::Result<()> {
    let options = RemoveContainerOptions {
        v: true,
        force: true,
        link: false,
    };
    Ok(engine.remove_container(id, Some(options)).await?)
}

async fn exec(engine: &Docker, id: &str, argv: Vec<String>) -> anyhow::Result<()> {
    let options = CreateExecOptions {
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        cmd: Some(argv),
        ..CreateExecOptions::default()
    };
    let exec = engine.create_exec(id, options).await?;
    let mut text = String::new();
    if let StartExecResults::Attached { mut output, .. } = engine.start_exec(&exec.id, None).await?
    {
        while let Some(part) = output.next().await {
            text.push_str(&part?.to_string());
        }
    }
    let done = engine.inspect_exec(&exec.id).await?;
    ensure!(done.exit_code == Some(0), "the plain clone failed: {text}");
    Ok(())
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
        .context("bwrap is not available; run tests/run --services")?;
    let clone = began.elapsed();
    ensure!(
        output.status.success(),
        "the plain clone failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(Plain {
        start: Duration::ZERO,
        start_on_host: Duration::ZERO,
        clone,
    })
}

//! Git commands of the worker itself: a repository on its own disk whose configuration starts programs.
//!
//! `agentmine run` serves such a repository. Its owner may have copied it from an attacker, with `.git/config`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use agentmine_gateway::facts::BareRepo;
use agentmine_gateway::{Gateway, GatewayConfig, GitAccess, Upstream};
use agentmine_runtime::config::Network;
use anyhow::{Context as _, ensure};
use futures::FutureExt as _;
use tokio::net::TcpListener;

use super::entry::Attack;
use super::family::Family;
use super::fence::Held;
use super::finding::Claim;

/// Keys of git's configuration that start a program, with their values; `COMMAND` is the program.
const KEYS: &[(&str, &str)] = &[
    ("core.alternateRefsCommand", "COMMAND"),
    ("core.fsmonitor", "COMMAND"),
    ("core.hooksPath", "HOOKS"),
    ("core.pager", "COMMAND"),
    ("core.editor", "COMMAND"),
    ("core.sshCommand", "COMMAND"),
    ("core.gitProxy", "COMMAND"),
    ("core.askPass", "COMMAND"),
    ("uploadpack.packObjectsHook", "COMMAND"),
    ("receive.procReceiveRefs", "refs/heads"),
    ("credential.helper", "!COMMAND"),
    ("diff.external", "COMMAND"),
    ("diff.x.textconv", "COMMAND"),
    ("filter.x.smudge", "COMMAND"),
    ("filter.x.clean", "COMMAND"),
    ("filter.x.process", "COMMAND"),
    ("merge.x.driver", "COMMAND"),
    ("gpg.program", "COMMAND"),
    ("gc.recentObjectsHook", "COMMAND"),
    ("trailer.x.command", "COMMAND"),
    ("url.ext::COMMAND .insteadOf", "/"),
    ("remote.origin.uploadpack", "COMMAND"),
    ("include.path", "INCLUDED"),
];

/// One attack for each key.
pub(super) fn attacks() -> Vec<Attack> {
    let of = |(key, _): &(&str, &str)| {
        let name = format!("config_{}", name_of(key));
        let what = format!("A repository on the worker's disk starts a program through {key}");
        // No sandbox takes part.
        Attack::on_worker(
            (Family::WorkerGit, "bubblewrap"),
            &name,
            &what,
            |name, _| attempt(name).boxed_local(),
        )
    };
    KEYS.iter().map(of).collect()
}

fn name_of(key: &str) -> String {
    let plain = key.split("::").next().unwrap_or(key);
    plain.replace('.', "_")
}

async fn attempt(name: String) -> anyhow::Result<Claim> {
    let entry = KEYS
        .iter()
        .find(|(key, _)| name == format!("config_{}", name_of(key)));
    let (key, value) = *entry.context("no such key")?;
    let trap = Trap::set(key, value)?;
    let served = trap.serve().await;
    let marker = trap.path("marker");
    if let Ok(seen) = std::fs::read_to_string(&marker) {
        return Ok(Claim::Succeeded(format!(
            "{key} started a program: {}",
            seen.trim()
        )));
    }
    Ok(match served {
        Ok(()) => Claim::Blocked("fetched, pushed and measured; nothing was started".into()),
        // The hook that the key asks for is not looked for in the repository.
        Err(error) if format!("{error:#}").contains("cannot find hook") => {
            Claim::Blocked("the push was refused for want of the hook".into())
        }
        Err(error) => Claim::Broken(format!("{error:#}")),
    })
}

/// A repository with one dangerous key, as a gateway and the measurement use it.
struct Trap {
    folder: tempfile::TempDir,
}

impl Trap {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A repository with files that use filters, drivers and text conversions, alternates, and hooks.
    fn set(key: &str, value: &str) -> anyhow::Result<Self> {
        let trap = Self {
            folder: tempfile::Builder::new()
                .prefix("agentmine-attacks-")
                .tempdir()?,
        };
        let (repository, other) = (trap.path("repository"), trap.path("other"));
        let command = trap.program("command")?;
        let hooks = trap.path("hooks");
        std::fs::create_dir(&hooks)?;
        for hook in [
            "pre-receive",
            "update",
            "post-receive",
            "post-update",
            "reference-transaction",
            "proc-receive",
            "post-checkout",
        ] {
            std::fs::copy(&command, hooks.join(hook))?;
        }
        for folder in [&other, &repository] {
            std::fs::create_dir(folder)?;
            git(folder, &["init", "-q", "-b", "main"])?;
            std::fs::write(folder.join(".gitattributes"), "* filter=x diff=x merge=x\n")?;
            std::fs::write(folder.join("file"), "one\n")?;
            git(folder, &["add", "-A"])?;
            git(folder, &["commit", "-q", "-m", "Start"])?;
        }
        // What asks for the references of other object stores.
        let alternates = repository.join(".git/objects/info/alternates");
        std::fs::write(
            alternates,
            format!("{}\n", other.join(".git/objects").display()),
        )?;
        let fill = |text: &str| {
            text.replace("COMMAND", &command.display().to_string())
                .replace("HOOKS", &hooks.display().to_string())
                .replace("INCLUDED", &trap.path("included").display().to_string())
        };
        let included = format!(
            "[core]\n\talternateRefsCommand = {0}\n\thooksPath = {1}\n",
            command.display(),
            hooks.display()
        );
        std::fs::write(trap.path("included"), included)?;
        git(&repository, &["config", &fill(key), &fill(value)])?;
        Ok(trap)
    }

    /// A program that leaves a marker.
    fn program(&self, name: &str) -> anyhow::Result<PathBuf> {
        use std::os::unix::fs::PermissionsExt as _;
        let path = self.path(name);
        let text = format!(
            "#!/bin/sh\necho \"$0 $*\" >> {}\n",
            self.path("marker").display()
        );
        std::fs::write(&path, text)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))?;
        Ok(path)
    }

    /// Fetches and pushes through a gateway, and measures what was pushed.
    async fn serve(&self) -> anyhow::Result<()> {
        let upstream = Upstream::Path(self.path("repository"));
        let gateway = Gateway::new(GatewayConfig {
            git: GitAccess::ReadWrite {
                upstream: upstream.clone(),
                branch: "work".into(),
                max_push_bytes: 1 << 20,
                fence: Arc::new(Held),
            },
            network: Network::default(),
        })?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let path = gateway.remote_path().unwrap_or_default();
        let url = format!("http://{}{path}", listener.local_addr()?);
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let gateway = gateway.clone();
                tokio::spawn(async move { gateway.serve_git(stream).await });
            }
        });
        let folder = self.path("clone");
        let pushed = tokio::task::spawn_blocking(move || push(&folder, &url)).await?;
        serving.abort();
        let head = pushed?;
        let facts = BareRepo::new(upstream)?;
        let base = facts.resolve("main").await?.context("no main")?;
        facts.fetch(&[&base, &head]).await?;
        facts.diff(&base, &head).await?;
        Ok(())
    }
}

/// Clones, changes a file and pushes. Returns the commit.
fn push(folder: &Path, url: &str) -> anyhow::Result<String> {
    std::fs::create_dir(folder)?;
    git(folder, &["clone", "-q", url, "."])?;
    git(folder, &["checkout", "-q", "-b", "work"])?;
    std::fs::write(folder.join("file"), "two\n")?;
    git(folder, &["commit", "-q", "-a", "-m", "Change"])?;
    git(folder, &["push", "-q", "origin", "work"])?;
    git(folder, &["rev-parse", "HEAD"])
}

/// Git as a client uses it, with its own configuration.
fn git(folder: &Path, arguments: &[&str]) -> anyhow::Result<String> {
    let output = Command::new("timeout")
        .arg(Duration::from_secs(30).as_secs().to_string())
        .arg("git")
        .args(["-c", "user.name=a", "-c", "user.email=a@example.org"])
        .args(arguments)
        .current_dir(folder)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_TERMINAL_PROMPT", "0")
        .output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "git {arguments:?}: {errors}");
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

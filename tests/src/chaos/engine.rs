//! A Docker engine of the suite's own, which it may kill: with its own containerd, data, sockets and image.
//!
//! Nothing of another engine on the machine is used: neither its containerd, which the two would share
//! otherwise, nor its bridge and firewall rules, nor its configuration. The image is made from the programs of
//! this machine, since a copy of the executor image would take longer than a whole run.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use agentmine_process::Process;
use anyhow::{Context as _, ensure};

use super::services::{Running, START_LIMIT, is_root};
use crate::mounts::unmount;

/// The image of its containers.
const IMAGE: &str = "agentmine-chaos:latest";

/// How long one that was killed is away.
pub(super) const AWAY: Duration = Duration::from_secs(2);

/// Packages whose programs the scripted model and the gateway's git use in a sandbox.
const PACKAGES: &str = "git bash dash coreutils sed grep findutils diffutils";

/// Copies the programs of `PACKAGES` and their libraries to `$1`, and prints them as a tar archive.
const PACK: &str = r#"
set -eu
root=$1; shift
mkdir -p "$root/usr/bin" "$root/usr/lib" "$root/usr/lib64" "$root/etc" "$root/tmp" "$root/run" \
    "$root/proc" "$root/sys" "$root/dev" "$root/opt" "$root/workspace/project" "$root/home/agent"
for folder in bin lib lib64; do ln -s "usr/$folder" "$root/$folder"; done
chown -R 1000:1000 "$root/workspace" "$root/home/agent"
echo 'root:x:0:0::/root:/bin/sh
agent:x:1000:1000::/home/agent:/bin/bash' > "$root/etc/passwd"
dpkg -L "$@" | grep -vE '^/usr/share/(doc|man|locale|lintian|info|bash-completion)' | sort -u |
    while IFS= read -r file; do if [ ! -d "$file" ]; then echo "$file"; fi; done > "$root.files"
xargs ldd < "$root.files" 2>/dev/null | grep -oE '/[^ ]+\.so[^ ]*' | sort -u > "$root.libraries"
tar -C / --hard-dereference -cf - -T "$root.files" 2>/dev/null | tar -C "$root" --keep-directory-symlink -xf -
tar -C / -chf - -T "$root.libraries" 2>/dev/null | tar -C "$root" --keep-directory-symlink -xf -
exec tar -C "$root" -cf - .
"#;

/// What `chaos run --sandbox docker` runs its containers on.
pub(super) enum Engine {
    /// The suite's own.
    Own(Own),
    /// The one of `DOCKER_HOST`, since only root can start another. It can be cut off, and is not killed.
    Shared(PathBuf),
}

impl Engine {
    pub(super) async fn start(folder: &Path) -> anyhow::Result<Self> {
        if is_root() {
            return Ok(Self::Own(Own::start(&folder.join("engine")).await?));
        }
        let host = std::env::var("DOCKER_HOST").unwrap_or_default();
        let socket = host
            .strip_prefix("unix://")
            .unwrap_or("/var/run/docker.sock");
        Ok(Self::Shared(socket.into()))
    }

    /// How to use it.
    pub(super) fn access(&self) -> Access {
        match self {
            Self::Own(own) => Access {
                socket: own.socket(),
                image: IMAGE.to_owned(),
            },
            Self::Shared(socket) => Access {
                socket: socket.clone(),
                image: std::env::var("AGENTMINE_TEST_IMAGE")
                    .unwrap_or_else(|_| "coding-agent-executor:latest".to_owned()),
            },
        }
    }
}

/// What a fleet and the oracle need of an engine.
#[derive(Debug, Clone)]
pub(super) struct Access {
    pub(super) socket: PathBuf,
    /// The image of the containers.
    pub(super) image: String,
}

impl Access {
    /// The output of `docker` with these arguments.
    pub(super) async fn docker(&self, args: &[&str]) -> anyhow::Result<String> {
        let mut command = tokio::process::Command::from(docker(&self.socket));
        let output = command.args(args).output().await?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success(),
            "docker {}: {errors}",
            args.join(" ")
        );
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Whether nobody else uses it, so that everything on it is the fleet's.
    pub(super) fn is_own(&self) -> bool {
        self.image == IMAGE
    }
}

fn docker(socket: &Path) -> Command {
    let mut command = Command::new("docker");
    command
        .env_remove("DOCKER_CONTEXT")
        .env("DOCKER_HOST", format!("unix://{}", socket.display()));
    command
}

/// An engine and its containerd.
pub(super) struct Own {
    folder: PathBuf,
    containerd: Option<Running>,
    dockerd: Option<Running>,
    /// Every other start keeps the containers that outlived the crash, as `live-restore` does; the others end
    /// them, which is an engine's default.
    starts: u32,
}

impl Own {
    async fn start(folder: &Path) -> anyhow::Result<Self> {
        std::fs::create_dir_all(folder)?;
        // Not the machine's own configuration.
        std::fs::write(folder.join("daemon.json"), "{}")?;
        std::fs::write(folder.join("containerd.toml"), containerd_config(folder))?;
        let mut own = Self {
            folder: folder.to_owned(),
            containerd: None,
            dockerd: None,
            starts: 0,
        };
        own.bring_up().await?;
        own.import_image()?;
        Ok(own)
    }

    fn socket(&self) -> PathBuf {
        self.folder.join("docker.sock")
    }

    fn import_image(&self) -> anyhow::Result<()> {
        let root = self.folder.join("image");
        let mut pack = Command::new("bash")
            .args(["-c", PACK, "pack"])
            .arg(&root)
            .args(PACKAGES.split(' '))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let archive = pack.stdout.take().context("a piped stdout")?;
        let imported = docker(&self.socket())
            .args(["import", "--change", "LABEL agentmine.readonly-root=true"])
            .args(["--change", "ENV PATH=/usr/bin", "-", IMAGE])
            .stdin(archive)
            .output()?;
        let errors = String::from_utf8_lossy(&imported.stderr);
        ensure!(
            pack.wait()?.success() && imported.status.success(),
            "the image of the sandboxes cannot be made: {errors}"
        );
        Ok(std::fs::remove_dir_all(root)?)
    }

    /// Starts the engine and waits until it answers.
    pub(super) async fn bring_up(&mut self) -> anyhow::Result<()> {
        let path = |part: &str| self.folder.join(part);
        let containerd = path("containerd.sock");
        let mut command = Command::new("containerd");
        command.arg("--config").arg(path("containerd.toml"));
        self.containerd = Some(Running::start(&mut command, &path("containerd.log"))?);
        let begun = Instant::now();
        while std::os::unix::net::UnixStream::connect(&containerd).is_err() {
            ensure!(begun.elapsed() < START_LIMIT, "containerd does not answer");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        // Of an engine that was killed.
        let _ = std::fs::remove_file(path("docker.pid"));
        // An engine without a bridge removes that of another engine of the machine, unless it cannot see it.
        let mut command = Command::new("unshare");
        command
            .args(["--net", "dockerd", "--config-file"])
            .arg(path("daemon.json"))
            .arg("--host")
            .arg(format!("unix://{}", self.socket().display()))
            .arg("--data-root")
            .arg(path("data"))
            .arg("--exec-root")
            .arg(path("exec"))
            .arg("--pidfile")
            .arg(path("docker.pid"))
            .arg("--containerd")
            .arg(&containerd)
            .args(["--iptables=false", "--bridge=none"]);
        if self.starts % 2 == 1 {
            command.arg("--live-restore");
        }
        self.starts += 1;
        self.dockerd = Some(Running::start(&mut command, &path("dockerd.log"))?);
        while !self.answers() {
            ensure!(
                begun.elapsed() < START_LIMIT,
                "the Docker engine does not answer: see {}",
                path("dockerd.log").display()
            );
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }

    fn answers(&self) -> bool {
        let info = docker(&self.socket()).arg("version").output();
        info.is_ok_and(|output| output.status.success())
    }

    /// As a crash: containers, and the processes that hold them, continue.
    pub(super) fn kill(&mut self) {
        for daemon in [&mut self.dockerd, &mut self.containerd] {
            if let Some(daemon) = daemon.take() {
                daemon.kill_alone();
            }
        }
    }

    /// Removes the containers, so that nothing outlives the engine.
    fn remove_containers(&self) {
        let Ok(listed) = docker(&self.socket()).args(["ps", "-aq"]).output() else {
            return;
        };
        let ids = String::from_utf8_lossy(&listed.stdout).into_owned();
        if !ids.trim().is_empty() {
            let _ = docker(&self.socket())
                .args(["rm", "-fv"])
                .args(ids.split_whitespace())
                .output();
        }
    }
}

impl Own {
    /// Kills the processes that hold containers, and the containers.
    fn kill_shims(&self) {
        let folder = self.folder.display().to_string();
        for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let pid = entry.file_name().to_string_lossy().parse().ok();
            let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            if !String::from_utf8_lossy(&line).contains(&folder) {
                continue;
            }
            for process in pid
                .and_then(Process::of)
                .map(Process::tree)
                .unwrap_or_default()
            {
                process.signal(libc::SIGKILL);
            }
        }
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        self.remove_containers();
        for daemon in [&mut self.dockerd, &mut self.containerd] {
            if let Some(daemon) = daemon.take() {
                daemon.end(Duration::from_secs(15));
            }
        }
        // Of containers that the engine does not know any more, or if it was away.
        self.kill_shims();
        // What an engine that was killed left mounted keeps the folder from being removed.
        unmount(|place| place.starts_with(&self.folder));
    }
}

fn containerd_config(folder: &Path) -> String {
    let path = |part: &str| folder.join(part).display().to_string();
    format!(
        "version = 2\nroot = {:?}\nstate = {:?}\n\
         disabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n\
         [grpc]\naddress = {:?}\n[ttrpc]\naddress = {:?}\n",
        path("containerd"),
        path("containerd.run"),
        path("containerd.sock"),
        path("containerd.ttrpc"),
    )
}

//! What is around a process without a jail: bait, a workspace, a neighbour's, and a home with a secret.

use std::fs;
use std::net::TcpListener;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::ensure;

use crate::attack::bait::{Bait, scratch};
use crate::attack::canaries::Canaries;

const EDITOR: &str = include_str!("../scripts/open_editor.py");

/// Everything that attacks of one process of the suite share.
pub(super) struct Place {
    pub(super) bait: Bait,
    pub(super) canaries: Canaries,
    folder: tempfile::TempDir,
    /// Takes connections as the end of a proxy does.
    web: TcpListener,
    /// The machine's root, for attacks on an inherited descriptor.
    pub(super) root: fs::File,
    _terminal: OwnedFd,
}

impl Place {
    pub(super) fn lay() -> anyhow::Result<Self> {
        let mut canaries = Canaries::of_environment();
        let bait = Bait::lay(&mut canaries)?;
        let folder = tempfile::Builder::new()
            .prefix("agentmine-attacks-")
            .tempdir_in(scratch())?;
        let mut secret = |name: &str| {
            let secret = format!("canary{}", uuid::Uuid::new_v4().simple());
            canaries.add(name, &secret);
            secret
        };
        let inside = folder.path();
        for path in ["workspaces/neighbour/project", "programs", "home"] {
            fs::create_dir_all(inside.join(path))?;
        }
        fs::write(
            inside.join("workspaces/neighbour/project/neighbour"),
            secret("a neighbour's file"),
        )?;
        fs::write(inside.join("home/.netrc"), secret("a file of passwords"))?;
        for (name, program) in [
            ("agentmine-guest", "#!/bin/sh\n"),
            ("mcp-server-text-editor", EDITOR),
        ] {
            let path = inside.join("programs").join(name);
            fs::write(&path, program)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        }
        Ok(Self {
            bait,
            canaries,
            web: TcpListener::bind("127.0.0.1:0")?,
            root: fs::File::open("/")?,
            _terminal: terminal()?,
            folder,
        })
    }

    /// A new workspace.
    pub(super) fn workspace(&self) -> anyhow::Result<PathBuf> {
        let path = self.folder.path().join("workspaces/main");
        for folder in ["project", "tmp"] {
            fs::create_dir_all(path.join(folder))?;
        }
        Ok(path)
    }

    /// Where scripts find all this, and folders for options of `bwrap`.
    pub(super) fn variables(&self, workspace: &Path) -> anyhow::Result<Vec<(String, String)>> {
        let path = |name: &str| self.folder.path().join(name).display().to_string();
        let bait = self.bait.variables().into_iter();
        let mut all: Vec<_> = bait.map(|(name, value)| (name.to_owned(), value)).collect();
        for (name, value) in [
            ("NEIGHBOUR", path("workspaces/neighbour")),
            ("PROGRAMS", path("programs")),
            ("SECRETS_HOME", path("home")),
            ("WEB_PORT", self.web.local_addr()?.port().to_string()),
            ("WORKSPACE_OUTSIDE", workspace.display().to_string()),
        ] {
            all.push((name.to_owned(), value));
        }
        Ok(all)
    }
}

/// Removes a workspace as somebody would who expects nothing. The error is what that stopped at; it is removed in
/// any case.
pub(super) fn remove(workspace: &Path) -> anyhow::Result<Result<(), String>> {
    let careless = fs::remove_dir_all(workspace).map_err(|error| error.to_string());
    if careless.is_err() {
        // Both follow neither links nor deep folders by recursion.
        for program in [&["chmod", "-R", "u+rwx"][..], &["rm", "-rf"]] {
            let mut command = Command::new(program[0]);
            command.args(&program[1..]).arg(workspace);
            command.stderr(Stdio::null()).status()?;
        }
        ensure!(!workspace.exists(), "{} stays", workspace.display());
    }
    Ok(careless)
}

/// The processes that work in a workspace, also in a jail, where it has another path.
pub(super) fn processes_in(workspace: &Path) -> Vec<i32> {
    let identity = |path: &Path| {
        let metadata = fs::metadata(path).ok()?;
        Some((metadata.dev(), metadata.ino()))
    };
    let folders = ["", "project", "tmp"].map(|name| identity(&workspace.join(name)));
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = all.filter_map(|it| it.file_name().to_str()?.parse::<i32>().ok());
    let inside = |process: &i32| {
        let at = identity(Path::new(&format!("/proc/{process}/cwd")));
        at.is_some() && folders.contains(&at)
    };
    numbers.filter(inside).collect()
}

/// A terminal that is open, as a person's would be.
fn terminal() -> anyhow::Result<OwnedFd> {
    // SAFETY: it takes flags alone.
    let opened = unsafe { libc::posix_openpt(libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC) };
    ensure!(opened >= 0, "no terminal");
    // SAFETY: it was just opened, and nothing else has it.
    let terminal = unsafe { OwnedFd::from_raw_fd(opened) };
    // SAFETY: the descriptor is a terminal's.
    let unlocked = unsafe { libc::unlockpt(terminal.as_raw_fd()) };
    ensure!(unlocked == 0, "the terminal stays locked");
    Ok(terminal)
}

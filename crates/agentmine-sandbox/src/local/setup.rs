//! What every jail on this machine is started with.

use std::path::{Path, PathBuf};

use agentmine_runtime::config::CommandExecutor;

use super::etc::Etc;
use super::limits::{Controller, Held, Limits};
use super::php;
use super::toolchains::{self, Toolchains};
use crate::assets::GUEST;
use crate::spec::MAX_IN_MEMORY;

/// What every jail on this machine is started with.
#[derive(Debug)]
pub(super) struct JailSetup {
    /// The folder of the static programs on this machine.
    pub(super) programs: PathBuf,
    /// Upper limit of each temporary folder in the jail, in bytes.
    pub(super) tmp_limit: u64,
    configured: Vec<PathBuf>,
    toolchains: Toolchains,
    pub(super) etc: Etc,
    /// Whether version 2 of cgroups is mounted where programs look for it.
    pub(super) has_unified_groups: bool,
    /// Bytes of the workspace.
    pub(super) disk_limit: u64,
    pub(super) limits: Limits,
}

impl JailSetup {
    pub(super) fn new(config: &CommandExecutor, programs: PathBuf) -> Self {
        let disk_limit = config.docker.resources.disk_limit.bytes();
        let configured = config.local.read_only.clone();
        let toolchains = toolchains::find();
        let mounts = configured.iter().chain(&toolchains.folders);
        let php = php::settings(Path::new("/etc/php"));
        Self {
            etc: Etc::new(Path::new("/etc"), programs.clone(), php, mounts),
            has_unified_groups: Path::new("/sys/fs/cgroup/cgroup.controllers").exists(),
            programs,
            tmp_limit: disk_limit.min(MAX_IN_MEMORY.unsigned_abs()),
            configured,
            toolchains,
            disk_limit,
            limits: Limits::of(config),
        }
    }

    /// Folders of the user's that a jail may read.
    pub(super) fn read_only(&self) -> impl Iterator<Item = &PathBuf> {
        self.configured.iter().chain(&self.toolchains.folders)
    }

    /// The command line of a guest, which watches the limits that nothing else holds.
    pub(super) fn guest_args(&self, confinement: &str, root: &Path, held: &Held) -> Vec<String> {
        let mut args = vec![
            "serve".to_owned(),
            "--confine".into(),
            confinement.into(),
            "--root".into(),
            root.to_string_lossy().into_owned(),
            "--disk-limit".into(),
            if held.disk { 0 } else { self.disk_limit }.to_string(),
            "--max-processes".into(),
            self.limits.processes.to_string(),
            "--path".into(),
            self.toolchains.path(&self.configured),
        ];
        for (controller, flag, limit) in [
            (
                Controller::Processes,
                "--watch-processes",
                self.limits.processes,
            ),
            (Controller::Memory, "--watch-memory", self.limits.memory),
        ] {
            if !held.controllers.contains(&controller) {
                args.extend([flag.to_owned(), limit.to_string()]);
            }
        }
        for (key, value) in &self.toolchains.env {
            args.extend(["--env".to_owned(), format!("{key}={value}")]);
        }
        args
    }

    /// A guest without namespaces, under a supervisor that outlives it.
    pub(super) fn guest_alone(&self, workspace: &Path, held: &Held) -> std::process::Command {
        let mut command = std::process::Command::new(self.programs.join(GUEST));
        command
            .arg("supervise")
            .args(self.guest_args("alone", workspace, held));
        for folder in self.read_only() {
            command.arg("--read-only").arg(folder);
        }
        command.current_dir(workspace);
        command
    }
}

//! Cgroups for jails, in either version of the interface.
//!
//! Groups are made where this process may make them: below its own cgroup, beside it, or (as root) at the top
//! of the hierarchy; in a systemd user session, systemd is asked for a scope. In version 2 a group with processes
//! cannot have limited groups below it, so a worker that is alone in its group (a systemd unit with
//! `Delegate=yes`) moves into one below; nobody else's process is ever moved. A jail enters its group before
//! its program begins, so nothing of it is ever outside.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::hierarchy::{Parent, Version, candidates};
use super::limits::{Controller, Limits};

/// The kernel's period for CPU time, in microseconds.
const PERIOD: u64 = 100_000;
/// The group of a worker that made room for limited groups beside it.
const WORKER: &str = "agentmine-worker";
/// Enters the groups named first, then becomes the program.
const ENTER: &str = r#"n=$1; shift
while [ "$n" -gt 0 ]; do echo 0 > "$1/cgroup.procs" || exit 125; shift; n=$((n-1)); done
exec "$@""#;

/// Where groups are made on this machine, and what they hold.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Cgroups {
    /// Folders in which groups can be made, each with its controllers.
    Folders(Vec<Parent>),
    /// Scopes of the user's systemd.
    Systemd { variables: Vec<(String, String)> },
    /// Nowhere, for this reason.
    None(String),
}

impl Cgroups {
    /// Looks for places, and proves each by a group that is removed again.
    pub(super) fn find(limits: &Limits) -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let mounts = read("/proc/self/mountinfo");
        let own = read("/proc/self/cgroup");
        let mut found: Vec<Parent> = Vec::new();
        let mut why = "this machine has no cgroups".to_owned();
        for candidates in candidates(&mounts, &own) {
            for mut parent in candidates {
                let open = |controller: &Controller| {
                    !found.iter().any(|it| it.controllers.contains(controller))
                };
                parent.controllers.retain(open);
                if parent.controllers.is_empty() {
                    continue;
                }
                match parent.proven(limits) {
                    Ok(parent) => {
                        found.push(parent);
                        break;
                    }
                    Err(error) => why = error,
                }
            }
        }
        let held = |controller| found.iter().any(|it| it.controllers.contains(&controller));
        if Controller::ALL.into_iter().all(held) {
            return Self::Folders(found);
        }
        if let Some(variables) = systemd(limits) {
            return Self::Systemd { variables };
        }
        match found.is_empty() {
            true => Self::None(why),
            false => Self::Folders(found),
        }
    }

    /// What groups made here limit.
    pub(super) fn held(&self) -> Vec<Controller> {
        match self {
            Self::Folders(parents) => {
                let held = parents.iter().flat_map(|parent| parent.controllers.clone());
                held.collect()
            }
            Self::Systemd { .. } => Controller::ALL.to_vec(),
            Self::None(_) => Vec::new(),
        }
    }

    /// Why they do not limit everything.
    pub(super) fn why(&self) -> &str {
        match self {
            Self::Folders(_) => "only some controllers are available",
            Self::Systemd { .. } => "",
            Self::None(why) => why,
        }
    }

    /// Makes the groups of one jail, and returns their folders.
    pub(super) fn make(&self, name: &str, limits: &Limits) -> Result<Vec<PathBuf>, String> {
        let mut folders = Vec::new();
        if let Self::Folders(parents) = self {
            for parent in parents {
                folders.push(parent.folder.join(name));
                if let Err(error) = parent.make(name, limits) {
                    remove(&folders);
                    return Err(error);
                }
            }
        }
        Ok(folders)
    }

    /// The command, started inside of these groups.
    pub(super) fn entered(
        &self,
        folders: &[PathBuf],
        limits: &Limits,
        command: Command,
    ) -> Command {
        let (mut wrapped, variables) = match self {
            Self::None(_) => return command,
            Self::Folders(_) => {
                let mut shell = Command::new("/bin/sh");
                shell.args(["-c", ENTER, "enter-cgroup"]);
                shell.arg(folders.len().to_string());
                shell.args(folders);
                (shell, &[][..])
            }
            Self::Systemd { variables } => (scope(limits), variables.as_slice()),
        };
        wrapped.arg(command.get_program()).args(command.get_args());
        wrapped.env_clear();
        wrapped.envs(variables.iter().map(|(key, value)| (key, value)));
        if let Some(folder) = command.get_current_dir() {
            wrapped.current_dir(folder);
        }
        wrapped
    }
}

impl Parent {
    /// This place with the controllers that work, or why none does.
    fn proven(mut self, limits: &Limits) -> Result<Self, String> {
        let name = format!("agentmine-probe-{}", uuid::Uuid::new_v4().simple());
        if self.version == Version::Two {
            self.delegate();
        }
        let group = self.folder.join(name);
        std::fs::create_dir(&group).map_err(|error| failed(&group, &error))?;
        let mut why = String::new();
        self.controllers.retain(|controller| {
            let limited = limit(&group, self.version, *controller, limits);
            limited.map_err(|error| why = error).is_ok()
        });
        remove(std::slice::from_ref(&group));
        match self.controllers.is_empty() {
            true => Err(why),
            false => Ok(self),
        }
    }

    /// Lets groups below this one have the controllers, unless they have them already. Where that fails, making
    /// the limits fails too.
    fn delegate(&self) {
        let own = std::process::id().to_string();
        let procs = std::fs::read_to_string(self.folder.join("cgroup.procs"));
        if procs.is_ok_and(|procs| procs.trim() == own) {
            let worker = self.folder.join(WORKER);
            let _ = std::fs::create_dir(&worker);
            let _ = std::fs::write(worker.join("cgroup.procs"), own);
        }
        for controller in &self.controllers {
            let enable = format!("+{}", controller.name());
            let _ = std::fs::write(self.folder.join("cgroup.subtree_control"), enable);
        }
    }

    fn make(&self, name: &str, limits: &Limits) -> Result<(), String> {
        let group = self.folder.join(name);
        match std::fs::create_dir(&group) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(failed(&group, &error));
            }
            _ => {}
        }
        let controllers = self.controllers.iter();
        controllers
            .copied()
            .try_for_each(|controller| limit(&group, self.version, controller, limits))
    }
}

/// Removes groups whose processes have ended; what still runs in them is killed.
pub(super) fn remove(folders: &[PathBuf]) {
    for folder in folders {
        for pid in std::fs::read_to_string(folder.join("cgroup.procs"))
            .unwrap_or_default()
            .lines()
            .filter_map(|pid| pid.parse().ok())
        {
            if let Some(process) = agentmine_process::Process::of(pid) {
                process.signal(libc::SIGKILL);
            }
        }
        // One that is still in use stays behind, empty and without effect.
        let _ = std::fs::remove_dir(folder);
    }
}

/// Whether a group is still there.
pub(super) fn is_left(folders: &[PathBuf]) -> bool {
    folders.iter().any(|folder| folder.exists())
}

fn limit(
    group: &Path,
    version: Version,
    controller: Controller,
    limits: &Limits,
) -> Result<(), String> {
    let quota = (limits.cpus * PERIOD as f64).round().max(1_000.0) as u64;
    let memory = limits.memory.to_string();
    let (file, value) = match (version, controller) {
        (Version::One, Controller::Cpu) => ("cpu.cfs_quota_us", quota.to_string()),
        (Version::Two, Controller::Cpu) => ("cpu.max", format!("{quota} {PERIOD}")),
        (Version::One, Controller::Memory) => ("memory.limit_in_bytes", memory.clone()),
        (Version::Two, Controller::Memory) => ("memory.max", memory.clone()),
        (_, Controller::Processes) if limits.processes == 0 => ("pids.max", "max".to_owned()),
        (_, Controller::Processes) => ("pids.max", limits.processes.to_string()),
    };
    let file = group.join(file);
    std::fs::write(&file, value).map_err(|error| failed(&file, &error))?;
    if controller == Controller::Memory {
        // A kernel without accounting of swap does not have the file.
        let (swap, value) = match version {
            Version::One => ("memory.memsw.limit_in_bytes", memory.as_str()),
            Version::Two => ("memory.swap.max", "0"),
        };
        let _ = std::fs::write(group.join(swap), value);
    }
    Ok(())
}

fn failed(path: &Path, error: &io::Error) -> String {
    format!("{}: {error}", path.display())
}

/// The variables with which the user's systemd is reached, if it makes scopes with all limits.
fn systemd(limits: &Limits) -> Option<Vec<(String, String)>> {
    let names = ["XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS"];
    let variables: Vec<(String, String)> = names
        .into_iter()
        .filter_map(|name| Some((name.to_owned(), std::env::var(name).ok()?)))
        .collect();
    if variables.is_empty() {
        return None;
    }
    // systemd accepts limits that nobody enforces, so the scope's own controllers are looked at.
    let script =
        "read -r path < /proc/self/cgroup; cat \"/sys/fs/cgroup${path#0::}/cgroup.controllers\"";
    let mut command = scope(limits);
    command.args(["/bin/sh", "-c", script]).env_clear();
    command.envs(variables.iter().map(|(key, value)| (key, value)));
    let output = command.stdin(std::process::Stdio::null()).output().ok()?;
    let controllers = String::from_utf8_lossy(&output.stdout).into_owned();
    let has = |it: Controller| controllers.split_whitespace().any(|name| name == it.name());
    let all = output.status.success() && Controller::ALL.into_iter().all(has);
    all.then_some(variables)
}

/// Runs what follows in a scope of the user's systemd, as the same process.
fn scope(limits: &Limits) -> Command {
    let mut command = Command::new("/usr/bin/systemd-run");
    command.args(["--user", "--scope", "--quiet", "--collect"]);
    let processes = match limits.processes {
        0 => "infinity".to_owned(),
        processes => processes.to_string(),
    };
    for property in [
        format!("MemoryMax={}", limits.memory),
        "MemorySwapMax=0".to_owned(),
        format!("TasksMax={processes}"),
        format!("CPUQuota={}%", (limits.cpus * 100.0).round().max(1.0)),
    ] {
        command.arg("-p").arg(property);
    }
    command.arg("--");
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_worker_that_is_alone_in_its_group_moves() {
        let own = std::process::id();
        for (procs, moves) in [(format!("{own}\n"), true), (format!("1\n{own}\n"), false)] {
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join("cgroup.procs"), procs).unwrap();
            let parent = Parent {
                folder: folder.path().to_owned(),
                version: Version::Two,
                controllers: vec![Controller::Memory],
            };
            parent.delegate();
            let moved = std::fs::read_to_string(folder.path().join(WORKER).join("cgroup.procs"));
            assert_eq!(moved.ok(), moves.then(|| own.to_string()));
            let enabled = folder.path().join("cgroup.subtree_control");
            assert_eq!(std::fs::read_to_string(enabled).unwrap(), "+memory");
        }
    }

    #[test]
    fn limits_are_written_in_the_words_of_each_version() {
        let folder = tempfile::tempdir().unwrap();
        let limits = Limits {
            cpus: 1.5,
            memory: 1 << 20,
            processes: 7,
        };
        for version in [Version::One, Version::Two] {
            for controller in Controller::ALL {
                limit(folder.path(), version, controller, &limits).unwrap();
            }
        }
        let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
        assert_eq!(read("cpu.max"), "150000 100000");
        assert_eq!(read("cpu.cfs_quota_us"), "150000");
        assert_eq!(read("memory.max"), "1048576");
        assert_eq!(read("memory.swap.max"), "0");
        assert_eq!(read("memory.limit_in_bytes"), "1048576");
        assert_eq!(read("pids.max"), "7");
    }
}

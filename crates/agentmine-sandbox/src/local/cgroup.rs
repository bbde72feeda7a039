//! Cgroups for jails, in either version of the interface.
//!
//! Groups are made where this process may make them: below its own cgroup, or beside it or (as root) at the top
//! of the hierarchy where no systemd manages them; otherwise systemd is asked for a scope. In version 2 a group
//! with processes cannot have limited groups below it, so a worker that is alone in its group (a systemd unit
//! with `Delegate=yes`) moves into one below; nobody else's process is ever moved, and no other group that has
//! processes is changed: the kernel would accept that for some controllers, but then no process could enter the
//! groups below. A jail enters its group before its program begins, so nothing of it is ever outside.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::hierarchy::{Manages, Parent, Version, WORKER, candidates};
use super::limits::{Controller, Limits};
use super::scope::{Scopes, is_delegated, manages_groups};

/// The kernel's period for CPU time, in microseconds.
const PERIOD: u64 = 100_000;
/// Enters the groups named first, then becomes the program. Where threads can enter alone, the shell does: it has no other
/// one, and the kernel need not wait until no thread of the machine starts or ends, which takes 10 ms.
const ENTER: &str = r#"n=$1; shift
while [ "$n" -gt 0 ]; do
    to=$1/tasks; [ -e "$to" ] || to=$1/cgroup.procs
    echo 0 > "$to" || exit 125; shift; n=$((n-1))
done
exec "$@""#;

/// Where groups are made on this machine, and what they hold.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Cgroups {
    /// Folders in which groups can be made, each with its controllers.
    Folders(Vec<Parent>),
    /// Scopes of systemd.
    Scopes(Scopes),
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
        let manages = match manages_groups() {
            true => Manages::Systemd,
            false => Manages::Nobody,
        };
        for places in candidates(&mounts, &own, manages) {
            // A process is in one group of each hierarchy, so one place has to hold all that is possible.
            let mut best: Option<Parent> = None;
            for mut parent in places {
                let open = |controller: &Controller| {
                    !found.iter().any(|it| it.controllers.contains(controller))
                };
                parent.controllers.retain(open);
                if manages == Manages::Systemd
                    && parent.version == Version::Two
                    && !is_delegated(&parent.folder)
                {
                    continue;
                }
                let held = best.as_ref().map_or(0, |best| best.controllers.len());
                if parent.controllers.len() <= held {
                    continue;
                }
                match parent.proven(limits) {
                    Ok(parent) if parent.controllers.len() > held => best = Some(parent),
                    Ok(_) => {}
                    Err(error) => why = error,
                }
            }
            found.extend(best);
        }
        let held = |controller| found.iter().any(|it| it.controllers.contains(&controller));
        if Controller::ALL.into_iter().all(held) {
            return Self::Folders(found);
        }
        if let Some(scopes) = Scopes::find(limits) {
            return Self::Scopes(scopes);
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
            Self::Scopes(_) => Controller::ALL.to_vec(),
            Self::None(_) => Vec::new(),
        }
    }

    /// Why they do not limit everything.
    fn why(&self) -> &str {
        match self {
            Self::Folders(_) => "only some controllers are available",
            Self::Scopes(_) => "",
            Self::None(why) => why,
        }
    }

    /// Which of `limits` do not hold exactly, and what else a person should know of them.
    pub(super) fn warning(&self, limits: &Limits) -> Option<String> {
        match self {
            Self::Scopes(scopes) => scopes.warning(),
            Self::Folders(_) | Self::None(_) => limits.warning(&self.held(), self.why()),
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
        let mut wrapped = match self {
            Self::None(_) => return command,
            Self::Folders(_) => entering(folders),
            Self::Scopes(scopes) => scopes.scope(limits),
        };
        wrapped.arg(command.get_program()).args(command.get_args());
        if let Some(folder) = command.get_current_dir() {
            wrapped.current_dir(folder);
        }
        wrapped
    }
}

/// Runs what follows in these groups, as the same process, without variables.
fn entering(folders: &[PathBuf]) -> Command {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", ENTER, "enter-cgroup"]);
    shell.arg(folders.len().to_string()).args(folders);
    shell.env_clear();
    shell
}

impl Parent {
    /// This place with the controllers that work, or why none does.
    fn proven(mut self, limits: &Limits) -> Result<Self, String> {
        let name = format!("agentmine-probe-{}", uuid::Uuid::new_v4().simple());
        if self.version == Version::Two {
            self.delegate()?;
        }
        let group = self.folder.join(name);
        std::fs::create_dir(&group).map_err(|error| failed(&group, &error))?;
        let mut why = String::new();
        self.controllers.retain(|controller| {
            let limited = limit(&group, self.version, *controller, limits);
            limited.map_err(|error| why = error).is_ok()
        });
        if let Err(error) = can_enter(&group) {
            self.controllers.clear();
            why = error;
        }
        remove(std::slice::from_ref(&group));
        match self.controllers.is_empty() {
            true => Err(why),
            false => Ok(self),
        }
    }

    /// Lets groups below this one have the controllers, unless they have them already.
    fn delegate(&self) -> Result<(), String> {
        let read = |name: &str| std::fs::read_to_string(self.folder.join(name)).unwrap_or_default();
        let enabled = read("cgroup.subtree_control");
        let is_enabled =
            |it: &&Controller| enabled.split_whitespace().any(|name| name == it.name());
        let missing: Vec<String> = self
            .controllers
            .iter()
            .filter(|it| !is_enabled(it))
            .map(|it| format!("+{}", it.name()))
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        let mut ours = vec![std::process::id()];
        if agentmine_process::is_watched() {
            // It only waits for this process.
            ours.push(1);
        }
        let procs = read("cgroup.procs");
        let procs: Vec<u32> = procs.lines().filter_map(|it| it.parse().ok()).collect();
        // Only the root of all groups has no type, and may have processes beside limited groups.
        let is_root = !self.folder.join("cgroup.type").exists();
        if !procs.is_empty() && procs.iter().all(|pid| ours.contains(pid)) {
            let worker = self.folder.join(WORKER);
            let enter = |pid: &u32| std::fs::write(worker.join("cgroup.procs"), pid.to_string());
            let moved =
                std::fs::create_dir_all(&worker).and_then(|()| procs.iter().try_for_each(enter));
            moved.map_err(|error| failed(&worker, &error))?;
        } else if !procs.is_empty() && !is_root {
            return Err(format!(
                "{}: other processes are in it",
                self.folder.display()
            ));
        }
        let control = self.folder.join("cgroup.subtree_control");
        std::fs::write(&control, missing.join(" ")).map_err(|error| failed(&control, &error))
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

/// Whether a process can enter a group, which the kernel refuses for some that take limits.
fn can_enter(group: &Path) -> Result<(), String> {
    let mut shell = entering(&[group.to_owned()]);
    let done = shell.arg("/bin/true").output();
    let done = done.map_err(|error| format!("/bin/sh: {error}"))?;
    match done.status.success() {
        true => Ok(()),
        false => Err(format!(
            "{}: no process can enter it: {}",
            group.display(),
            String::from_utf8_lossy(&done.stderr).trim()
        )),
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
        // `memory.oom.group` stays 0: the group also holds the guest, without which the session ends. Groups for single commands
        // would need one below this for the guest, which neither a container nor a scope of systemd lets it make.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_worker_that_is_alone_in_its_group_moves() {
        let own = std::process::id();
        for (procs, moves) in [(format!("{own}\n"), true), (format!("1\n{own}\n"), false)] {
            let folder = tempfile::tempdir().unwrap();
            let write = |name: &str, text: &str| {
                std::fs::write(folder.path().join(name), text).unwrap();
            };
            write("cgroup.procs", &procs);
            write("cgroup.type", "domain\n");
            write("cgroup.subtree_control", "pids\n");
            let parent = Parent {
                folder: folder.path().to_owned(),
                version: Version::Two,
                controllers: Controller::ALL.to_vec(),
            };
            assert_eq!(parent.delegate().is_ok(), moves);
            let moved = std::fs::read_to_string(folder.path().join(WORKER).join("cgroup.procs"));
            assert_eq!(moved.ok(), moves.then(|| own.to_string()));
            let enabled = folder.path().join("cgroup.subtree_control");
            let expected = if moves { "+cpu +memory" } else { "pids\n" };
            assert_eq!(std::fs::read_to_string(enabled).unwrap(), expected);
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

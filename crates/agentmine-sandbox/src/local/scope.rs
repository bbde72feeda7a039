//! Scopes of systemd: cgroups that it makes on demand, with limits, for a process that is already starting.

use std::path::Path;
use std::process::{Command, Stdio};

use super::limits::{Controller, Limits};
use crate::volume::is_root;

/// The program that makes scopes.
const SYSTEMD_RUN: &str = "/usr/bin/systemd-run";
/// The controllers of the scope that runs it; a machine with version 1 of cgroups prints none.
const CONTROLLERS: &str =
    "read -r path < /proc/self/cgroup; cat \"/sys/fs/cgroup${path#0::}/cgroup.controllers\"";

/// What happens if the processes of a scope exceed their memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OnOom {
    /// The kernel kills one of them, and the others continue.
    Continue,
    /// systemd ends them all: before version 253 it knows no other way for scopes.
    Stop,
}

/// The scopes that systemd makes for this process.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Scopes {
    manager: Manager,
    on_oom: OnOom,
}

/// A systemd that makes scopes for this process.
#[derive(Debug, Clone, PartialEq)]
enum Manager {
    /// The machine's, as root.
    System,
    /// The user's, and the variables with which it is reached.
    User(Vec<(String, String)>),
}

impl Scopes {
    /// Scopes with all limits, if there is a systemd that makes them.
    pub(super) fn find(limits: &Limits) -> Option<Self> {
        let manager = match is_root() && manages_groups() {
            true => Manager::System,
            false => Manager::User(variables()?),
        };
        [OnOom::Continue, OnOom::Stop]
            .map(|on_oom| Self {
                manager: manager.clone(),
                on_oom,
            })
            .into_iter()
            .find(|scopes| scopes.limit_all(limits))
    }

    /// Whether a trial scope has every controller; systemd accepts limits that nobody enforces.
    fn limit_all(&self, limits: &Limits) -> bool {
        let mut command = self.scope(limits);
        command.args(["/bin/sh", "-c", CONTROLLERS]);
        let Ok(output) = command.stdin(Stdio::null()).output() else {
            return false;
        };
        let controllers = String::from_utf8_lossy(&output.stdout).into_owned();
        let has = |it: Controller| controllers.split_whitespace().any(|name| name == it.name());
        output.status.success() && Controller::ALL.into_iter().all(has)
    }

    /// What a person should know of their limits.
    pub(super) fn warning(&self) -> Option<String> {
        match self.on_oom {
            OnOom::Continue => None,
            OnOom::Stop => Some(
                "a sandbox whose processes exceed the memory limit is ended as a whole, since the systemd of this machine is older than version 253"
                    .to_owned(),
            ),
        }
    }

    /// Runs what follows in a scope, as the same process, without variables but those that reach systemd.
    pub(super) fn scope(&self, limits: &Limits) -> Command {
        let mut command = Command::new(SYSTEMD_RUN);
        command.env_clear();
        if let Manager::User(variables) = &self.manager {
            command.arg("--user");
            command.envs(variables.iter().map(|(key, value)| (key, value)));
        }
        command.args(["--scope", "--quiet", "--collect"]);
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
        if self.on_oom == OnOom::Continue {
            command.args(["-p", "OOMPolicy=continue"]);
        }
        command.arg("--");
        command
    }
}

/// Whether systemd manages the groups of this machine, and may change those that it did not delegate
/// (sd_booted(3)).
pub(super) fn manages_groups() -> bool {
    Path::new("/run/systemd/system").is_dir()
}

/// Whether systemd has left a group to the processes in it (`Delegate=` of systemd.resource-control(5)). In any
/// other group it changes the controllers, and ends the whole unit when memory runs out in a part of it.
pub(super) fn is_delegated(group: &Path) -> bool {
    // The first for root alone, the second since version 251.
    ["trusted.delegate", "user.delegate"].iter().any(|name| {
        let mut value = [0; 4];
        let read = rustix::fs::getxattr(group, *name, &mut value);
        read.is_ok_and(|length| value.get(..length) == Some(b"1"))
    })
}

/// The variables of a user session.
fn variables() -> Option<Vec<(String, String)>> {
    let names = ["XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS"];
    let found: Vec<(String, String)> = names
        .into_iter()
        .filter_map(|name| Some((name.to_owned(), std::env::var(name).ok()?)))
        .collect();
    (!found.is_empty()).then_some(found)
}

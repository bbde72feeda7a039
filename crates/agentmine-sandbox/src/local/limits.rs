//! The limits of a jail, and who holds each of them.
//!
//! A cgroup holds them exactly. Where none can be had, the guest watches memory and processes; then CPU time has no
//! limit, and a command can exceed the others for as long as the watch takes to notice.

use agentmine_runtime::config::CommandExecutor;

/// The limits of one jail.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Limits {
    /// CPU cores.
    pub(super) cpus: f64,
    /// Bytes of memory of all processes together, without swap.
    pub(super) memory: u64,
    pub(super) processes: u64,
}

/// What a cgroup can limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Controller {
    Cpu,
    Memory,
    Processes,
}

/// Which limits of a jail the kernel holds, so that its guest need not watch them.
#[derive(Debug, Clone)]
pub(super) struct Held {
    pub(super) controllers: Vec<Controller>,
    /// The size of the workspace.
    pub(super) disk: bool,
}

impl Controller {
    pub(super) const ALL: [Self; 3] = [Self::Cpu, Self::Memory, Self::Processes];

    /// Its name in the kernel.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Processes => "pids",
        }
    }
}

impl Limits {
    pub(super) fn of(config: &CommandExecutor) -> Self {
        let resources = &config.docker.resources;
        Self {
            cpus: resources.cpu_limit,
            memory: resources.memory_limit.bytes(),
            processes: config.docker.pids_limit.max(0).cast_unsigned(),
        }
    }

    /// Which limits hold and which do not, if a cgroup does not hold all of them.
    pub(super) fn warning(&self, held: &[Controller], why: &str) -> Option<String> {
        let exact = |controller| held.contains(&controller);
        if Controller::ALL.into_iter().all(exact) {
            return None;
        }
        let part = |controller, limit: String, otherwise: &str| match exact(controller) {
            true => format!("{limit}, by a cgroup"),
            false => format!("{limit}{otherwise}"),
        };
        let mib = self.memory >> 20;
        let parts = [
            part(
                Controller::Memory,
                format!("memory: {mib} MiB"),
                ", by a check every 0.025 to 0.5 s",
            ),
            part(
                Controller::Processes,
                format!("processes: {}", self.processes),
                ", by a check every 0.5 s",
            ),
            match exact(Controller::Cpu) {
                true => format!("CPU: {} cores, by a cgroup", self.cpus),
                false => "CPU: no limit".to_owned(),
            },
        ];
        Some(format!(
            "the limits of this sandbox are weaker than configured, since no cgroup could be made for all of them ({why}). {}. \
             hint: run as root, in a systemd unit with Delegate=yes, or in a systemd user session; or use Docker",
            parts.join("; ")
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_warning_names_each_limit_and_who_holds_it() {
        let limits = Limits {
            cpus: 1.5,
            memory: 512 << 20,
            processes: 100,
        };
        assert_eq!(limits.warning(&Controller::ALL, ""), None);
        let none = limits.warning(&[], "permission denied").unwrap();
        for part in [
            "(permission denied)",
            "memory: 512 MiB, by a check",
            "processes: 100, by a check",
            "CPU: no limit",
        ] {
            assert!(none.contains(part), "{part}: {none}");
        }
        let some = limits.warning(&[Controller::Processes], "x").unwrap();
        assert!(some.contains("processes: 100, by a cgroup"), "{some}");
    }
}

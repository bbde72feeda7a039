//! Which jail works on this machine, and what a person should know if it is not the strongest one.

use std::path::Path;

use super::bwrap::{self, Release};
use super::cgroup::Cgroups;
use super::limits::Controller;
use crate::error::SandboxError;

const OLDER: &str = "bubblewrap on this machine is older than 0.7 (or setuid), and no cgroup limits memory, so files in \
     /tmp and /dev/shm of a sandbox can take half of the machine's memory each. hint: install bubblewrap 0.7 or newer, not \
     setuid";

/// The two kinds of jail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Jail {
    /// bubblewrap, Landlock, seccomp.
    Namespaces,
    /// Landlock and seccomp.
    Alone,
}

/// The jail that works on this machine.
#[derive(Debug)]
pub(super) struct WorkingJail {
    pub(super) jail: Jail,
    pub(super) bubblewrap: Release,
    /// Why it is not the one with namespaces.
    pub(super) why: String,
}

impl WorkingJail {
    /// What makes a jail weaker where these limits hold.
    pub(super) fn warning(&self, cgroups: &Cgroups) -> Option<String> {
        let Self {
            jail,
            bubblewrap,
            why,
        } = self;
        match (jail, bubblewrap) {
            (Jail::Alone, Release::Older | Release::Current) => Some(format!(
                "this sandbox is weaker than usual: bubblewrap does not work on this machine ({why}), so \
                 commands are confined by Landlock and seccomp only, without namespaces. They can see the machine's \
                 system folders and its list of processes, they reach any address on the two ports of their own proxies, \
                 whatever the web access allows, they cannot use UDP or Unix sockets or listen on a port, and their files \
                 are not under /workspace"
            )),
            (Jail::Namespaces, Release::Older) if !cgroups.held().contains(&Controller::Memory) => {
                Some(OLDER.to_owned())
            }
            (Jail::Namespaces, Release::Older | Release::Current) => None,
        }
    }

    /// The error of a jail that did not start. Without bubblewrap it needs a newer kernel than most machines have, so what
    /// keeps bubblewrap from working is what a person can change.
    pub(super) fn explained(&self, error: SandboxError) -> SandboxError {
        match (self.jail, error) {
            (Jail::Alone, SandboxError::Refused(text)) => {
                let text = text.split(". hint: ").next().unwrap_or_default();
                let why = &self.why;
                SandboxError::Refused(format!(
                    "{text}; and bubblewrap does not work on this machine: {why}. hint: {}, or use Docker",
                    bwrap::remedy(why, Path::new(bwrap::SETTINGS))
                ))
            }
            (Jail::Alone | Jail::Namespaces, error) => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It needs Linux 6.12; Ubuntu 22.04 and 24.04 have older ones.
    #[test]
    fn a_jail_that_the_kernel_refuses_says_why_bubblewrap_is_not_used() {
        let working = WorkingJail {
            jail: Jail::Alone,
            bubblewrap: Release::Current,
            why: "bwrap: No such file or directory (os error 2)".into(),
        };
        let refused = "the jail did not start: this kernel cannot. hint: make bubblewrap work";
        let shown = working.explained(SandboxError::Refused(refused.into()));
        assert_eq!(
            shown.to_string(),
            "the sandbox could not be created: the jail did not start: this kernel cannot; and bubblewrap does not \
             work on this machine: bwrap: No such file or directory (os error 2). hint: install bubblewrap and allow \
             user namespaces, or use Docker"
        );
        let outage = working.explained(SandboxError::Unavailable("full".into()));
        assert!(matches!(outage, SandboxError::Unavailable(_)), "{outage}");
    }

    #[test]
    fn a_weaker_jail_says_why_it_is_weaker() {
        let none = Cgroups::None("none in this test".into());
        let of = |jail, bubblewrap| {
            let working = WorkingJail {
                jail,
                bubblewrap,
                why: "bwrap: setting up uid map: Permission denied".into(),
            };
            working.warning(&none).unwrap_or_default()
        };
        let alone = of(Jail::Alone, Release::Current);
        assert!(alone.contains("(bwrap: setting up uid map"), "{alone}");
        // Landlock knows ports, and no addresses.
        assert!(
            alone.contains("reach any address on the two ports"),
            "{alone}"
        );
        let older = of(Jail::Namespaces, Release::Older);
        assert!(older.contains("hint: install bubblewrap 0.7"), "{older}");
        assert_eq!(of(Jail::Namespaces, Release::Current), "");
    }
}

//! The modes without a tunnel.

use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::args::{Confinement, Options};
use crate::{jail, syscalls};

/// A container's first process: reaps orphans, and exits at once on SIGTERM or SIGINT. It is confined like the
/// guest, so that no process of the container is without the filter.
pub(crate) fn idle() -> Result<()> {
    jail::hide().context("hiding from other processes")?;
    syscalls::install(&Options {
        confinement: Confinement::Container,
        ..Options::default()
    })
    .context("seccomp")?;
    // SAFETY: a zeroed set is a valid argument of sigemptyset, which initialises it; the other calls
    // take that set and a pointer to a local integer.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGCHLD] {
            libc::sigaddset(&raw mut set, signal);
        }
        libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
        loop {
            let mut signal = 0;
            libc::sigwait(&raw const set, &raw mut signal);
            if signal != libc::SIGCHLD {
                return Ok(());
            }
            while libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) > 0 {}
        }
    }
}

/// Runs a guest that has no process namespace, and kills what it leaves behind. This process is outside the
/// jail, where the sandbox's processes cannot signal it.
pub(crate) fn supervise(args: &[String]) -> Result<()> {
    agentmine_process::become_subreaper();
    let own = std::env::current_exe().context("the guest's own path")?;
    let mut child = Command::new(own)
        .args(args)
        .spawn()
        .context("starting the guest")?;
    let status = child.wait();
    agentmine_process::kill_all_descendants();
    if !status.context("waiting for the guest")?.success() {
        bail!("the guest failed");
    }
    Ok(())
}

//! The modes that serve no tunnel.

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use crate::process;

/// A container's main process: collects orphans, ends at once when told to.
pub(crate) fn idle() -> Result<()> {
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

/// Runs a guest that has no process namespace around it, and kills what it leaves behind. It stands
/// outside the jail, where the sandbox's processes cannot signal it.
pub(crate) fn supervise(args: &[String]) -> Result<()> {
    process::become_subreaper();
    let own = std::env::current_exe().context("the guest's own path")?;
    let mut child = Command::new(own)
        .args(args)
        .spawn()
        .context("starting the guest")?;
    let status = child.wait();
    process::kill_all_descendants();
    if !status.context("waiting for the guest")?.success() {
        bail!("the guest failed");
    }
    Ok(())
}

/// Prints the mean time of fork, exec and wait.
pub(crate) fn bench_exec(rounds: u32, argv: &[String]) -> Result<()> {
    let start = Instant::now();
    for _ in 0..rounds {
        let mut command = Command::new(&argv[0]);
        command.args(&argv[1..]);
        // SAFETY: the closure does nothing; it is there so that fork is used and not vfork, as the
        // goal is stated against fork and exec.
        unsafe { command.pre_exec(|| Ok(())) };
        command.output().with_context(|| argv[0].clone())?;
    }
    let mean = start.elapsed() / rounds.max(1);
    writeln!(std::io::stdout(), "{}", mean.as_nanos())?;
    Ok(())
}

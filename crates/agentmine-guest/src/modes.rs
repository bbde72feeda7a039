//! The modes without a tunnel.

use std::process::Command;

use anyhow::{Context as _, Result, bail};

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

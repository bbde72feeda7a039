//! Clients of forges that nobody here wrote, as `tests/services/forge.sh` installed them.

use std::path::{Path, PathBuf};

use tokio::process::Command;

use crate::rig::PATIENCE;

/// The folder of what came from npm.
fn packages() -> PathBuf {
    std::env::var_os("AGENTMINE_TEST_FORGE_NPM")
        .expect("run tests/run")
        .into()
}

/// Runs a script of `it/clients` with the packages at hand; `authority` is trusted. Returns what it printed.
pub(crate) async fn node(script: &str, args: &[&str], authority: &Path) -> Result<String, String> {
    let packages = packages();
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("it/clients")
        .join(script);
    // Packages are looked for from where a module is.
    let place = packages.join(script);
    if !place.exists() {
        let part = packages.join(format!("{script}.{}", std::process::id()));
        std::fs::copy(&source, &part).unwrap();
        std::fs::rename(&part, &place).unwrap();
    }
    let mut command = Command::new("node");
    command
        .arg(&place)
        .args(args)
        .env("NODE_EXTRA_CA_CERTS", authority)
        .kill_on_drop(true);
    let output = tokio::time::timeout(PATIENCE, command.output()).await;
    let output = output.expect("it ends").unwrap();
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

//! Makes the programs of a sandbox trust the certificate authority of its session, through which the gateway
//! reads package registries.
//!
//! The guest sets the variables that name the files for every command (`agentmine-guest/src/environment.rs`).
//! This runs before anything of the repository is in the sandbox.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::error::SandboxError;
use crate::sandbox::{Command, Sandbox};

/// A JVM is started once.
const TIME_LIMIT: Duration = Duration::from_secs(60);
/// Writes the files from the authority's certificate on its standard input.
const SCRIPT: &str = include_str!("trust.sh");

/// Adds a certificate authority, as PEM, to those of the image.
///
/// # Errors
/// If the sandbox fails, or the files cannot be written.
pub async fn trust(sandbox: &dyn Sandbox, authority: &str) -> Result<(), SandboxError> {
    let written = sandbox
        .run(Command {
            argv: ["/bin/sh", "-c", SCRIPT].map(str::to_owned).into(),
            cwd: "/".into(),
            env: BTreeMap::new(),
            stdin: authority.as_bytes().to_vec(),
            timeout: TIME_LIMIT,
            max_output: 4096,
        })
        .await?;
    match written.exit_code {
        0 => Ok(()),
        code => Err(SandboxError::Failed(format!(
            "the certificate authority of the session could not be added to those of the sandbox: exit code {code}: {}",
            String::from_utf8_lossy(&written.stderr).trim()
        ))),
    }
}

//! The folders in which a server may work, as configured.

use std::path::PathBuf;

use anyhow::Context;

/// The folders in which a server may work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowedRoots {
    /// Where relative paths start, and commands run.
    pub start: PathBuf,
    /// Further allowed folders (`--allow-path`).
    pub allowed: Vec<PathBuf>,
}

impl AllowedRoots {
    /// The current folder, and further allowed ones.
    ///
    /// # Errors
    /// When the current folder no longer exists.
    pub fn here(allowed: Vec<PathBuf>) -> anyhow::Result<Self> {
        let start = std::env::current_dir().context("the current folder cannot be found")?;
        Ok(Self { start, allowed })
    }
}

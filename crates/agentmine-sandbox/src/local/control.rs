//! One running jail.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use agentmine_runtime::failpoint::around;
use async_trait::async_trait;
use tokio::process::Child;

use super::process::{continue_tree, kill_tree, stop_tree};
use super::state::{self, Record};
use crate::client::Control;
use crate::error::SandboxError;

/// One running jail.
pub(super) struct LocalControl {
    name: String,
    folder: PathBuf,
    warnings: Vec<String>,
    record: Record,
    /// Killed when dropped; the removal takes it.
    child: Mutex<Option<Child>>,
}

impl LocalControl {
    pub(super) fn new(
        name: String,
        folder: PathBuf,
        warnings: Vec<String>,
        record: Record,
        child: Child,
    ) -> Self {
        Self {
            name,
            folder,
            warnings,
            record,
            child: Mutex::new(Some(child)),
        }
    }
}

#[async_trait]
impl Control for LocalControl {
    fn name(&self) -> &str {
        &self.name
    }

    fn warnings(&self) -> Vec<String> {
        self.warnings.clone()
    }

    async fn pause(&self) -> Result<(), SandboxError> {
        self.record.process.map_or(Ok(()), stop_tree)
    }

    async fn unpause(&self) -> Result<(), SandboxError> {
        if let Some(process) = self.record.process {
            continue_tree(process);
        }
        Ok(())
    }

    async fn remove(&self) -> Result<(), SandboxError> {
        let child = self
            .child
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(process) = self.record.process {
            kill_tree(process).await;
        }
        if let Some(mut child) = child {
            let _ = child.kill().await;
        }
        let removed = state::remove(&self.folder);
        around("sandbox.remove", removed).await
    }
}

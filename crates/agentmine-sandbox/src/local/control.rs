//! One running jail.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use agentmine_runtime::failpoint::around;
use agentmine_runtime::process_lock::ProcessLock;
use async_trait::async_trait;
use tokio::process::Child;

use super::process::{continue_tree, kill_tree, stop_tree};
use super::state::{self, Record};
use crate::client::Control;
use crate::error::SandboxError;
use crate::name::sandbox_name;
use crate::spec::SandboxSpec;

/// One running jail.
pub(super) struct LocalControl {
    name: String,
    folder: PathBuf,
    warnings: Vec<String>,
    record: Record,
    /// Killed when dropped; the removal takes it.
    child: Mutex<Option<Child>>,
    /// While it lives, others see that this worker does.
    _held: Option<ProcessLock>,
}

impl LocalControl {
    pub(super) fn new(
        name: String,
        folder: PathBuf,
        warnings: Vec<String>,
        record: Record,
        child: Child,
        held: Option<ProcessLock>,
    ) -> Self {
        Self {
            name,
            folder,
            warnings,
            record,
            child: Mutex::new(Some(child)),
            _held: held,
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

    async fn assign(&mut self, spec: &SandboxSpec) -> Result<(), SandboxError> {
        let name = sandbox_name(spec);
        let state_dir = self.folder.parent().unwrap_or(&self.folder);
        state::make_way(state_dir, &name, spec.epoch).await?;
        let named = async {
            self.record.name = Some(name.clone());
            self.record.task = Some(spec.task);
            self.record.epoch = Some(spec.epoch);
            self.record.save(&self.folder)
        };
        around("sandbox.assign", named).await?;
        self.name = name;
        Ok(())
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

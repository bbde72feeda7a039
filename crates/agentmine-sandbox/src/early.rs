//! A sandbox that starts while the session announces its work and asks the tracker what it needs to know.
//!
//! It is a spare one ([`Spare`]), so nothing of the task is in it before it is taken. If the task needs another image,
//! or the session ends first, it is removed.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::backend::Backend;
use crate::error::SandboxError;
use crate::role::SandboxRole;
use crate::sandbox::Sandbox;
use crate::spare::{Spare, remove};
use crate::spec::SandboxSpec;
use crate::template::WorkspaceTemplate;

type Starting = JoinHandle<Result<Box<dyn Spare>, SandboxError>>;

/// The sandbox that a session starts ahead, until somebody takes it.
pub struct EarlySandbox {
    image: String,
    starting: Mutex<Option<Starting>>,
}

impl EarlySandbox {
    /// Begins to start one of `image`, which is the backend's configured one, whose workspace begins as the template.
    ///
    /// Must be called within a tokio runtime.
    #[must_use]
    pub fn begin(
        backend: Arc<dyn Backend>,
        image: String,
        template: Option<WorkspaceTemplate>,
    ) -> Self {
        let starting = tokio::spawn(async move { backend.start_spare(template).await });
        Self {
            image,
            starting: Mutex::new(Some(starting)),
        }
    }

    /// For a session that needs no sandbox, or takes it from a pool.
    #[must_use]
    pub fn none() -> Self {
        Self {
            image: String::new(),
            starting: Mutex::new(None),
        }
    }

    /// The sandbox of a task: the one that was started ahead if the task can use it, otherwise a new one.
    ///
    /// # Errors
    /// Those of [`Backend::start`].
    pub async fn take_or_start(
        &self,
        backend: &dyn Backend,
        spec: &SandboxSpec,
    ) -> Result<Box<dyn Sandbox>, SandboxError> {
        let starting = self.starting.lock().await.take();
        let fits = spec.role == SandboxRole::Main
            && spec.image.as_ref().is_none_or(|it| *it == self.image);
        match starting {
            Some(starting) if fits => {
                if let Some(sandbox) = assigned(starting, spec).await {
                    return Ok(sandbox);
                }
            }
            Some(starting) => abandon(starting),
            None => {}
        }
        backend.start(spec).await
    }

    /// Takes out what nobody has taken, once it has started. One that takes longer than `limit` is removed later.
    pub async fn give_up(&self, limit: Duration) -> Option<Box<dyn Sandbox>> {
        let mut starting = self.starting.lock().await.take()?;
        match timeout(limit, &mut starting).await {
            Ok(started) => Some(started.ok()?.ok()?.into_sandbox()),
            Err(_) => {
                abandon(starting);
                None
            }
        }
    }
}

/// The sandbox, given to the task. `None` if it failed to start: the start of another one shows the reason.
async fn assigned(starting: Starting, spec: &SandboxSpec) -> Option<Box<dyn Sandbox>> {
    let unusable = |why: &dyn std::fmt::Display| tracing::debug!(error = %why, "the sandbox that was started ahead cannot be used");
    let mut spare = starting
        .await
        .ok()?
        .inspect_err(|error| unusable(error))
        .ok()?;
    let given = match spare.has_ended() {
        true => Err(SandboxError::Gone("it has ended".into())),
        false => spare.assign(spec).await,
    };
    match given {
        Ok(()) => Some(spare.into_sandbox()),
        Err(error) => {
            unusable(&error);
            tokio::spawn(async move { remove(spare.as_ref()).await });
            None
        }
    }
}

/// Removes a sandbox as soon as it has started.
fn abandon(starting: Starting) {
    tokio::spawn(async move {
        if let Ok(Ok(spare)) = starting.await {
            remove(spare.as_ref()).await;
        }
    });
}

#[cfg(test)]
mod tests;

//! Freezes a session's sandboxes while the result is measured or while the store does not answer.

use std::sync::Arc;

use agentmine_sandbox::{Sandbox, SandboxError};
use tokio::sync::Mutex;

/// The sandboxes of one session.
#[derive(Default)]
pub(crate) struct Freezer(Mutex<State>);

#[derive(Default)]
struct State {
    sandboxes: Vec<(Arc<dyn Sandbox>, Hold)>,
    store_silent: bool,
}

/// Whether a sandbox is frozen because its result is being measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hold {
    Held,
    Free,
}

impl Freezer {
    /// Adds a sandbox.
    pub(crate) async fn add(&self, sandbox: Arc<dyn Sandbox>) {
        self.0.lock().await.sandboxes.push((sandbox, Hold::Free));
    }

    /// Takes out a sandbox that is about to be removed; `None` if there is no such sandbox.
    pub(crate) async fn take(&self, name: &str) -> Option<Arc<dyn Sandbox>> {
        let mut state = self.0.lock().await;
        let at = state.sandboxes.iter().position(|(s, _)| s.name() == name)?;
        Some(state.sandboxes.remove(at).0)
    }

    /// Takes out all sandboxes.
    pub(crate) async fn take_all(&self) -> Vec<Arc<dyn Sandbox>> {
        let all = std::mem::take(&mut self.0.lock().await.sandboxes);
        all.into_iter().map(|(sandbox, _)| sandbox).collect()
    }

    /// Whether one of them is gone for another reason than what ran in it.
    pub(crate) async fn any_ended_from_outside(&self) -> bool {
        let state = self.0.lock().await;
        for (sandbox, _) in &state.sandboxes {
            if sandbox.ended_from_outside().await {
                return true;
            }
        }
        false
    }

    /// Freezes a sandbox until it is released, even if the store answers again meanwhile.
    pub(crate) async fn hold(&self, name: &str) -> Result<(), SandboxError> {
        let mut state = self.0.lock().await;
        let silent = state.store_silent;
        for (sandbox, hold) in state.sandboxes.iter_mut().filter(|(s, _)| s.name() == name) {
            if *hold == Hold::Free && !silent {
                sandbox.pause().await?;
            }
            *hold = Hold::Held;
        }
        Ok(())
    }

    /// Unfreezes a held sandbox, unless the store is silent.
    pub(crate) async fn release(&self, name: &str) -> Result<(), SandboxError> {
        let mut state = self.0.lock().await;
        let silent = state.store_silent;
        for (sandbox, hold) in state.sandboxes.iter_mut().filter(|(s, _)| s.name() == name) {
            if *hold == Hold::Held && !silent {
                sandbox.unpause().await?;
            }
            *hold = Hold::Free;
        }
        Ok(())
    }

    /// The store does not answer: freezes every sandbox that is not held already.
    pub(super) async fn freeze(&self) {
        let mut state = self.0.lock().await;
        state.store_silent = true;
        for sandbox in state.free() {
            if let Err(error) = sandbox.pause().await {
                tracing::warn!(sandbox.name = sandbox.name(), %error, "the sandbox could not be paused");
            }
        }
    }

    /// The store answers again: unfreezes every sandbox that is not held.
    pub(super) async fn thaw(&self) {
        let mut state = self.0.lock().await;
        state.store_silent = false;
        for sandbox in state.free() {
            if let Err(error) = sandbox.unpause().await {
                tracing::warn!(sandbox.name = sandbox.name(), %error, "the sandbox could not be resumed");
            }
        }
    }
}

impl State {
    fn free(&self) -> impl Iterator<Item = &Arc<dyn Sandbox>> {
        let free = self
            .sandboxes
            .iter()
            .filter(|(_, hold)| *hold == Hold::Free);
        free.map(|(sandbox, _)| sandbox)
    }
}

//! The sandboxes of a session, which stand still while their result is measured or the store is silent.

use std::sync::Arc;

use agentmine_sandbox::{Sandbox, SandboxError};
use tokio::sync::Mutex;

/// The sandboxes of one session.
#[derive(Default)]
pub(crate) struct Freezer(Mutex<State>);

#[derive(Default)]
struct State {
    sandboxes: Vec<(Arc<dyn Sandbox>, Hold)>,
    silent: bool,
}

/// Whether the result of a sandbox's work is being measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hold {
    Held,
    Free,
}

impl Freezer {
    /// Takes a sandbox in.
    pub(crate) async fn add(&self, sandbox: Arc<dyn Sandbox>) {
        self.0.lock().await.sandboxes.push((sandbox, Hold::Free));
    }

    /// Lets go of a sandbox that is about to be removed; `None` if it is not here.
    pub(crate) async fn take(&self, name: &str) -> Option<Arc<dyn Sandbox>> {
        let mut state = self.0.lock().await;
        let at = state.sandboxes.iter().position(|(s, _)| s.name() == name)?;
        Some(state.sandboxes.remove(at).0)
    }

    /// Lets go of all.
    pub(crate) async fn take_all(&self) -> Vec<Arc<dyn Sandbox>> {
        let all = std::mem::take(&mut self.0.lock().await.sandboxes);
        all.into_iter().map(|(sandbox, _)| sandbox).collect()
    }

    /// Freezes a sandbox until it is released, whatever the store does meanwhile.
    pub(crate) async fn hold(&self, name: &str) -> Result<(), SandboxError> {
        let mut state = self.0.lock().await;
        let silent = state.silent;
        for (sandbox, hold) in state.sandboxes.iter_mut().filter(|(s, _)| s.name() == name) {
            if *hold == Hold::Free && !silent {
                sandbox.pause().await?;
            }
            *hold = Hold::Held;
        }
        Ok(())
    }

    /// Lets a held sandbox continue, unless the store is silent.
    pub(crate) async fn release(&self, name: &str) -> Result<(), SandboxError> {
        let mut state = self.0.lock().await;
        let silent = state.silent;
        for (sandbox, hold) in state.sandboxes.iter_mut().filter(|(s, _)| s.name() == name) {
            if *hold == Hold::Held && !silent {
                sandbox.unpause().await?;
            }
            *hold = Hold::Free;
        }
        Ok(())
    }

    /// The store is silent: freezes all that is not held already.
    pub(super) async fn freeze(&self) {
        let mut state = self.0.lock().await;
        state.silent = true;
        for sandbox in state.free() {
            if let Err(error) = sandbox.pause().await {
                tracing::warn!(sandbox.name = sandbox.name(), %error, "could not be paused");
            }
        }
    }

    /// The store answers again.
    pub(super) async fn thaw(&self) {
        let mut state = self.0.lock().await;
        state.silent = false;
        for sandbox in state.free() {
            if let Err(error) = sandbox.unpause().await {
                tracing::warn!(sandbox.name = sandbox.name(), %error, "could not be resumed");
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

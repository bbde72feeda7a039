//! What people write on the item while the agent works.
//!
//! The comments are read at the interval of the looks at the item. The journal says which remarks the model was given,
//! so a worker that takes over gives it the others, and none twice. A tracker that does not answer changes nothing.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use agentmine_agent::{Inbox, Remark};

use crate::prepare::{Remarks, remarks};
use crate::session::context::SessionContext;

/// The remarks of one session that the model was not given yet.
pub(super) struct ItemInbox(Mutex<State>);

struct State {
    /// The ids that need not be checked again: given, arrived, or of people who are not heard. `None` until the
    /// first look: an earlier version did not record what it gave, so what is there then counts as given.
    known: Option<BTreeSet<String>>,
    arrived: Vec<Remark>,
}

impl ItemInbox {
    /// `given` are the ids of what the model was given.
    pub(super) fn new(given: Option<BTreeSet<String>>) -> Self {
        Self(Mutex::new(State {
            known: given,
            arrived: Vec::new(),
        }))
    }

    /// Looks at the comments again and again.
    pub(super) async fn watch(&self, ctx: &SessionContext) -> Infallible {
        let period = Duration::from_secs(ctx.deps.config.consumer.item_check_seconds);
        loop {
            let known = self.known();
            match remarks(ctx, &known).await {
                Ok(found) => self.add(found),
                Err(error) => {
                    tracing::debug!(%error, "the comments cannot be checked; the work continues");
                }
            }
            tokio::time::sleep(period).await;
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self) -> BTreeSet<String> {
        self.state().known.clone().unwrap_or_default()
    }

    fn add(&self, Remarks { heard, of_others }: Remarks) {
        let mut state = self.state();
        let is_first = state.known.is_none();
        let known = state.known.get_or_insert_default();
        known.extend(of_others);
        known.extend(heard.iter().map(|remark| remark.id.clone()));
        if !is_first {
            state.arrived.extend(heard);
        }
    }
}

impl Inbox for ItemInbox {
    fn take(&self) -> Vec<Remark> {
        std::mem::take(&mut self.state().arrived)
    }
}

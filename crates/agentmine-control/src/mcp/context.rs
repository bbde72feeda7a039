//! The context of all MCP operations: store, broker, project and fleet.

use std::sync::Arc;

use agentmine_queue::Queue;
use agentmine_runtime::redact::Redactor;
use agentmine_store::Store;

use crate::fleet::Fleet;
use crate::worker::Place;

/// What the operations work with.
#[derive(Clone)]
pub struct Context {
    /// The store.
    pub store: Arc<dyn Store>,
    /// The broker, where there is one.
    pub broker: Option<Arc<dyn Queue>>,
    /// The project that the client works on.
    pub place: Place,
    /// The fleet that the configuration describes.
    pub fleet: Fleet,
    /// What must not get into its memory.
    pub secrets: Arc<Redactor>,
    /// The tokens of memory that an agent is given, unless a call names another number.
    pub memory_tokens: u64,
}

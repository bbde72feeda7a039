//! The operations as an MCP server (spec 003).
//!
//! A failed call is reported in its result, with `isError` and the code in `structuredContent.error`; only an unknown
//! tool or resource, and a store that is away, are errors of the protocol. Nothing but the protocol is written to stdout.
//!
//! The tables in `tools` and `resources` are all that a new operation needs.

mod agents;
mod memory;
mod queue;
mod resources;
mod server;
mod sessions;
mod tasks;
mod tool;
mod watch;
mod workers;

use std::sync::Arc;

use agentmine_queue::Queue;
use agentmine_runtime::redact::Redactor;
use agentmine_store::Store;

use crate::fleet::Fleet;
use crate::worker::Place;
use resources::ResourceKind;
pub use server::{ControlServer, serve_stdio};
pub use tool::ToolDef;

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

/// All tools, in the order in which they are listed.
#[must_use]
pub fn tools() -> Vec<ToolDef> {
    let mut tools = Vec::new();
    tools.extend(tasks::tools());
    tools.extend(workers::tools());
    tools.extend(sessions::tools());
    tools.extend(queue::tools());
    tools.extend(agents::tools());
    tools.extend(memory::tools());
    tools
}

/// All kinds of resources. Tasks are last: there may be many, and a client may read the first part alone.
fn resources() -> Vec<ResourceKind> {
    vec![memory::resource(), agents::resource(), tasks::resource()]
}

//! The operations as an MCP server (spec 003).
//!
//! A failed call is reported in its result, with `isError` and the code in `structuredContent.error`; only an unknown
//! tool or resource, and a store that is away, are errors of the protocol. Nothing but the protocol is written to stdout.
//!
//! The tables in [`tools`] and [`resources`] are all that a new operation needs.

mod resources;
mod server;
mod sessions;
mod tasks;
mod tool;
mod workers;

use std::sync::Arc;

use agentmine_store::Store;

use crate::worker::Place;
use resources::ResourceKind;
pub use server::{ControlServer, serve_stdio};
pub use tool::ToolDef;

/// What the operations work with.
#[derive(Clone)]
pub struct Context {
    /// The store.
    pub store: Arc<dyn Store>,
    /// The project that the client works on, and where work trees are made.
    pub place: Place,
}

/// All tools, in the order in which they are listed.
#[must_use]
pub fn tools() -> Vec<ToolDef> {
    let mut tools = Vec::new();
    tools.extend(tasks::tools());
    tools.extend(workers::tools());
    tools.extend(sessions::tools());
    tools
}

/// All kinds of resources.
fn resources() -> Vec<ResourceKind> {
    vec![tasks::resource()]
}

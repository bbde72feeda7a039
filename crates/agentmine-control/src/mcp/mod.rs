//! The operations as an MCP server (spec 003).
//!
//! A failed call is reported in its result, with `isError` and the code in `structuredContent.error`; only an unknown
//! tool or resource, and a store that is away, are errors of the protocol. Nothing but the protocol is written to stdout.
//!
//! The tables in `tools` and `resources` are all that a new operation needs.

mod agents;
mod context;
mod fitting;
mod memory;
mod queue;
mod resources;
mod server;
mod sessions;
mod tables;
mod tasks;
mod tool;
mod watch;
mod workers;

pub use context::Context;
pub use server::{ControlServer, MAX_LINE, serve};
pub use tables::tools;
pub use tool::ToolDef;

//! What people, editors and orchestrators can do with tasks, sessions, agents and memory.
//!
//! Each operation is a plain function over the store, with one type of error ([`ControlError`]). The command line and the MCP
//! server only translate: arguments into a call, the answer into a table or JSON, the error into an exit code or an
//! MCP code. So no operation can exist in one of them and be missing in the other.

pub mod agents;
mod error;
pub mod fleet;
mod folder;
mod input;
pub mod mcp;
pub mod memory;
mod project;
pub mod queue;
pub mod sessions;
pub mod tasks;
#[cfg(test)]
mod tests;
pub mod view;
pub mod worker;

pub use error::{ControlError, NextAction};
pub use input::find_task;
pub use project::{LocalProject, project};

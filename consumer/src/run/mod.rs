//! Running the agent: its tools, the session's MCP servers, and its model.

mod admission;
pub(crate) mod agent;
mod call;
mod command;
mod inbox;
mod offers;
mod proposal;
mod reply;
pub(crate) mod result;
pub(crate) mod servers;
pub(crate) mod tools;

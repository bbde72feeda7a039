//! What the agent works with: its tools, the MCP servers of the session, and its model.

pub(crate) mod command;
pub(crate) mod policy;
pub(crate) mod redacting_model;
pub(crate) mod servers;
pub(crate) mod tools;

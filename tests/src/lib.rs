//! The simulated parts of the story tests: the forge and the model. Everything else in them is real.
//! `mcp` is shared by the tests of MCP servers.

pub mod forge;
pub mod mcp;
pub mod model;

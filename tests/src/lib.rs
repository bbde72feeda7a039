//! The simulated parts of the story tests: the forge, the model, and package registries with the
//! repositories that use them. Everything else in them is real. `mcp` is shared by the tests of MCP servers.

pub mod attack;
pub mod chaos;
pub mod encrypted;
pub mod forge;
pub mod mcp;
pub mod model;
pub mod mounts;
pub mod on_disk;
pub mod projects;
mod random;
pub mod registry;

//! What the story tests play: the forge and the model. All else in them is real. `mcp` is what tests of
//! MCP servers share.

pub mod forge;
pub mod mcp;
pub mod model;

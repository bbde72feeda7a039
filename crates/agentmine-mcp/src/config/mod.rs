//! The configured servers: `~/.agentmine/mcp_config.json`, then `<project>/.agentmine/mcp_config.json`
//! (spec 002 §2).
//!
//! If both have an entry of one name, the project's replaces the user's as a whole. A missing file is skipped.
//! A faulty entry is reported with file, line and field, and only that entry is skipped. A faulty entry of the
//! project also disables the user's entry of that name, since it was meant to replace it.
//!
//! A project's file belongs to the repository and is hostile: its servers always run in the sandbox, have no
//! `url`, and `${VAR}` in it is never replaced from this process.
//!
//! Two faults invalidate only their key: an invalid `timeoutSeconds` (spec 002 §2.2: the default is used) and an
//! unknown capability. Those, and unknown keys beside `mcpServers`, have no [`ConfigFault::server`](crate::ConfigFault::server).

mod entry;
mod expand;
mod faults;
mod json;
mod load;
mod server;
#[cfg(test)]
mod tests;

pub use load::{MAX_FILE, PROJECT_FILE, load, project_file};
pub use server::{
    Capabilities, Loaded, Origin, Owner, RepositoryFile, ServerConfig, ServerPlace, Transport,
};

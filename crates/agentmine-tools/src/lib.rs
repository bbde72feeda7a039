//! The stdio MCP servers: text editor, `file_read`, `file_write` and `shell_exec`.
//!
//! Each server has one tool, with the name, the parameters and the result that the specification gives
//! it (spec 000, spec 004). [`ToolServer`] is the door for all four: a program picks one and serves it,
//! over its stdin and stdout or, with the feature `http`, over streamable HTTP on a loopback address.
//!
//! ```no_run
//! # async fn run() -> anyhow::Result<()> {
//! use agentmine_tools::{AllowedRoots, ToolServer};
//!
//! let roots = AllowedRoots::here(vec!["/srv/shared".into()])?;
//! ToolServer::FileRead(roots).serve_stdio().await
//! # }
//! ```
//!
//! [`editor`] is the editor without any protocol; the sandbox's static program holds it and nothing
//! else of this crate, so everything that it does not need is behind the feature `servers`.

pub mod editor;
mod gate;
pub mod server;
mod temporary;
mod undeclared;

#[cfg(feature = "servers")]
pub mod cli;
#[cfg(feature = "servers")]
mod file_read;
#[cfg(feature = "servers")]
mod file_write;
#[cfg(feature = "servers")]
mod host;
#[cfg(feature = "http")]
pub mod http;
#[cfg(feature = "servers")]
mod one_tool;
#[cfg(feature = "servers")]
mod paths;
#[cfg(feature = "servers")]
mod shell_exec;
#[cfg(feature = "servers")]
mod sniff;

pub use editor::{EditError, Editor, ToolReply};
#[cfg(feature = "servers")]
pub use host::{AllowedRoots, ShellOptions, ToolServer};
pub use server::TextEditorServer;

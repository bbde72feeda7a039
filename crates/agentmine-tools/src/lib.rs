//! The stdio MCP servers: text editor, `file_read`, `file_write` and `shell_exec`.
//!
//! Each server has one tool, with the name, parameters and result that the specification defines (spec 000,
//! spec 004). [`ToolServer`] starts any of the four: over stdin and stdout or, with the feature `http`, over
//! streamable HTTP on a loopback address.
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
//! [`editor`] is the editor without any protocol. The sandbox's static program contains only the editor and its
//! server, so everything that they do not need is behind the feature `servers`.

pub mod editor;
mod gate;
mod kind;
mod lines;
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
mod roots;
#[cfg(feature = "servers")]
mod shell_exec;
#[cfg(feature = "servers")]
mod sniff;
#[cfg(feature = "servers")]
mod terminated;

pub use editor::{EditError, Editor, ToolReply};
#[cfg(feature = "servers")]
pub use host::ToolServer;
pub use lines::stdio_transport;
#[cfg(feature = "servers")]
pub use roots::AllowedRoots;
pub use server::TextEditorServer;
#[cfg(feature = "servers")]
pub use shell_exec::ShellOptions;

//! The MCP client manager: which servers are configured, where they run, what they offer, and calls to
//! them.
//!
//! Servers are hostile: start, list and call have time limits, lines have a length limit, and a server that
//! ends takes only its own tools with it. What a server writes reaches the model only as text of bounded
//! length, and a log only at the level `debug`, without control characters and secrets.
//!
//! [`config`] reads the files. [`Manager`] starts the servers through a [`Launcher`] for each place, keeps
//! them running and routes calls to them. [`Client`] is one connection; [`WireTable`] gives the tools of all
//! servers names that model APIs accept.

pub mod config;

mod ask;
mod client;
mod error;
mod launch;
mod lock;
mod manager;
mod names;
mod output;
mod process;
mod schema;
mod server;
mod text;
mod types;
mod watch;

#[cfg(test)]
mod tests;

pub use ask::{Answer, Declining, Elicitation, Question, SamplingHandler};
pub use client::{CallOptions, CallProgress, Client, ConnectOptions};
pub use error::{CallFault, ConfigFault, McpError, ProcessFault};
pub use launch::{Launched, Launcher, ServerProcess, ServerStream};
pub use manager::{Catalog, Manager};
pub use names::WireTable;
pub use output::Redact;
pub use process::{ALLOWED_ENV, WorkerLauncher};
pub use server::{
    ClientRoots, Launchers, ManagerPolicy, Notice, NoticeKind, ServerState, ServerStatus, Watch,
};
pub use types::{
    Era, Greeting, McpLimits, Offer, PromptArgument, Resource, ServerPrompt, Tool, ToolOutput,
};

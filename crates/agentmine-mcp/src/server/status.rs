//! The status of a server, for people.

use std::time::Duration;

use crate::config::ServerConfig;
use crate::{Greeting, McpError};

/// The status of a configured server.
#[derive(Debug, Clone)]
pub struct ServerStatus {
    /// Its entry.
    pub config: ServerConfig,
    /// Its state.
    pub state: ServerState,
    /// What it said of itself when it was last connected.
    pub greeting: Option<Greeting>,
    /// From the start of its process (or connection) to its first list of tools, the last time.
    pub started_in: Option<Duration>,
    /// How often it was started again after a crash.
    pub restarts: u32,
    /// Its process on this machine, while it has one.
    pub pid: Option<u32>,
    /// The last of its log messages, as `level: text`; hostile, shortened.
    pub logs: Vec<String>,
}

/// The state of a server.
#[derive(Debug, Clone, PartialEq)]
pub enum ServerState {
    /// Its entry says `enabled: false`.
    Disabled,
    /// It is not started, or no longer, for this reason.
    Withheld(String),
    /// It is being started for the first time.
    Starting,
    /// It is connected, and its lists are read.
    Ready,
    /// It is being started again.
    Restarting {
        /// Why.
        after: McpError,
    },
    /// It did not start, or was given up.
    Failed(McpError),
}

impl ServerState {
    /// One word, as in metrics and on the command line.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Disabled => "disabled",
            Self::Withheld(_) => "withheld",
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Restarting { .. } => "restarting",
            Self::Failed(_) => "failed",
        }
    }
}

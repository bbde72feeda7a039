//! How a server is doing, for people.

use std::time::Duration;

use crate::config::ServerConfig;
use crate::{Greeting, McpError};

/// A configured server and how it is doing.
#[derive(Debug, Clone)]
pub struct ServerStatus {
    /// Its entry.
    pub config: ServerConfig,
    /// What it is doing.
    pub state: ServerState,
    /// Who it said it is, when it was last connected.
    pub greeting: Option<Greeting>,
    /// From the start of its process (or connection) to its first list of tools, the last time.
    pub started_in: Option<Duration>,
    /// How often it was started again after a crash.
    pub restarts: u32,
    /// Its process on this machine, where it has one here and runs.
    pub pid: Option<u32>,
    /// The last of its log messages, as `level: text`; hostile, shortened.
    pub logs: Vec<String>,
}

/// What a server is doing.
#[derive(Debug, Clone, PartialEq)]
pub enum ServerState {
    /// Its entry says `enabled: false`.
    Disabled,
    /// It may not be started, or no longer, for this reason.
    Withheld(String),
    /// It is being started for the first time.
    Starting,
    /// It is connected and listed.
    Ready,
    /// It is being started again.
    Restarting {
        /// What it is started again for.
        after: McpError,
    },
    /// It did not come up, or was given up.
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

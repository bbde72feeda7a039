//! The status of a server and what happened to it, for people.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

use crate::config::ServerConfig;
use crate::lock::lock;
use crate::{Greeting, McpError};

/// Notices that wait to be taken. Then the oldest are dropped.
const MAX_WAITING: usize = 1_000;
/// Characters of a notice, which may contain a server's words.
const MAX_TEXT: usize = 1_000;

/// The status of a configured server.
#[derive(Debug, Clone)]
pub struct ServerStatus {
    /// Its entry.
    pub config: ServerConfig,
    /// Its state.
    pub state: ServerState,
    /// The result of its last handshake.
    pub greeting: Option<Greeting>,
    /// From the last start of its process (or connection) to its first list of tools.
    pub started_in: Option<Duration>,
    /// How often it was restarted after a crash.
    pub restarts: u32,
    /// Its process on this machine, if there is one.
    pub pid: Option<u32>,
    /// Its last log messages, as `level: text`; hostile, shortened.
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
    /// It is connected, and its lists were read.
    Ready,
    /// It is being restarted.
    Restarting {
        /// The reason.
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

/// Something that happened to a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// The server's configured name.
    pub server: String,
    /// What happened.
    pub kind: NoticeKind,
    /// The same as a sentence without control characters; may contain a server's words, shortened.
    pub text: String,
}

/// The kind of a [`Notice`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoticeKind {
    /// It did not start.
    Failed,
    /// It or its connection ended without being asked to.
    Crashed,
    /// It is running again.
    Restarted,
    /// It crashed too often. A process is not restarted; a server with a URL is tried again from time to time.
    GivenUp,
    /// Its offer changed, or the file of its program did.
    Changed,
    /// A tool or a server is skipped, since its name looks like another's.
    Shadowed,
    /// An entry of its offer is skipped, since it is malformed; or the server, since it may not run here.
    LeftOut,
}

/// The notices of a manager.
#[derive(Default)]
pub(crate) struct Notices(Mutex<VecDeque<Notice>>);

impl Notices {
    pub(crate) fn push(&self, server: &str, kind: NoticeKind, text: &str) {
        let plain = text
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .take(MAX_TEXT)
            .collect();
        let mut waiting = lock(&self.0);
        if waiting.len() == MAX_WAITING {
            waiting.pop_front();
        }
        waiting.push_back(Notice {
            server: server.to_owned(),
            kind,
            text: plain,
        });
    }

    pub(crate) fn take(&self) -> Vec<Notice> {
        lock(&self.0).drain(..).collect()
    }
}

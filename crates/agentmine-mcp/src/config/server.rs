//! The configuration of one server.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use agentmine_runtime::config::Secret;
use serde::Serialize;
use url::Url;

use crate::ConfigFault;

/// Who controls a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// The operator's, or the user's own.
    Operator,
    /// The repository's: hostile.
    Repository,
}

/// Where an entry is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The file; for a repository's, its path in the repository. `(built in)` for our own.
    pub file: PathBuf,
    /// Line of the entry, from 1.
    pub line: usize,
    /// Who controls the file.
    pub owner: Owner,
}

/// Where a server runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ServerPlace {
    /// As a process of this machine.
    Worker,
    /// Inside the task's sandbox.
    Sandbox,
}

/// How a server is reached.
#[derive(Clone)]
pub enum Transport {
    /// A process that speaks on stdin and stdout.
    Stdio {
        /// Program and arguments; never empty.
        command: Vec<String>,
        /// Added to the cleared environment, `${VAR}` already replaced.
        env: BTreeMap<String, Secret>,
        /// Where it runs.
        place: ServerPlace,
    },
    /// Streamable HTTP.
    Http {
        /// `http` or `https`.
        url: Url,
        /// Sent with every request, `${VAR}` already replaced.
        headers: BTreeMap<String, Secret>,
    },
}

impl std::fmt::Debug for Transport {
    /// Without the user and the query of a URL: they often contain a key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Stdio {
                command,
                env,
                place,
            } => f
                .debug_struct("Stdio")
                .field("command", command)
                .field("env", env)
                .field("place", place)
                .finish(),
            Self::Http { url, headers } => {
                let at = format!("{}{}", url.origin().ascii_serialization(), url.path());
                f.debug_struct("Http")
                    .field("url", &at)
                    .field("headers", headers)
                    .finish()
            }
        }
    }
}

/// What the client offers to a server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Capabilities {
    /// Roots: the workspace.
    pub roots: bool,
    /// Model calls on the server's behalf.
    pub sampling: bool,
    /// Its log messages are kept.
    pub logging: bool,
}

/// One server.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// `[A-Za-z0-9_-]{1,24}`, without `_` at its ends and without `__`.
    pub name: String,
    /// Where the entry is.
    pub origin: Origin,
    /// How it is reached.
    pub transport: Transport,
    /// Whether it is to be started.
    pub enabled: bool,
    /// What we offer it.
    pub capabilities: Capabilities,
    /// For one request without progress. 30 s if the file has no valid value.
    pub timeout: Duration,
    /// How often it is restarted after a crash; `None`: the policy's number.
    pub max_restarts: Option<u32>,
}

impl ServerConfig {
    /// Where its process runs; `None` for one that is reached by URL.
    #[must_use]
    pub fn place(&self) -> Option<ServerPlace> {
        match &self.transport {
            Transport::Stdio { place, .. } => Some(*place),
            Transport::Http { .. } => None,
        }
    }
}

/// The result of reading the files.
#[derive(Debug, Clone, Default)]
pub struct Loaded {
    /// By name, enabled or not.
    pub servers: BTreeMap<String, ServerConfig>,
    /// In the order of the files and their lines. An entry whose name is the `server` of a fault is not in
    /// `servers`.
    pub faults: Vec<ConfigFault>,
    /// The files that exist, in the order in which they were read.
    pub files: Vec<PathBuf>,
}

/// A project's file.
#[derive(Debug, Clone)]
pub struct RepositoryFile {
    /// As it is shown, e.g. `.agentmine/mcp_config.json`.
    pub shown: PathBuf,
    /// Its content.
    pub text: String,
}

//! The families of attacks: what is attacked.

use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// What is attacked.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Family {
    /// System calls and devices that lead out of a sandbox.
    Escape,
    /// Files, processes and sockets of the machine, and of another task's sandbox.
    Host,
    /// The guest, what it reports, and the worker's end of the tunnel.
    Guest,
    /// Addresses that the sandbox must not reach, with and without the web proxy.
    Network,
    /// The worker's tokens, keys and URLs.
    Credentials,
    /// The one branch of the one repository.
    GitProxy,
    /// Git commands of the worker itself, on hostile repositories.
    WorkerGit,
    /// The tools that read and write files.
    FileTools,
    /// Memory, disk, processes and time.
    Exhaustion,
    /// Text that people, the forge or the model take for more than text.
    Injection,
    /// Connections and listeners that an operator configures.
    Operator,
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        f.pad(value.as_ref().map_or("", |it| it.get_name()))
    }
}

//! The kinds of sandbox that attacks run in.

use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// A kind of sandbox, and the rights of the worker that starts it.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Cell {
    /// A Docker container.
    Docker,
    /// The local jail with bubblewrap, of the user who runs the suite.
    Bubblewrap,
    /// The same, of a user without rights.
    BubblewrapUnprivileged,
    /// The local jail without namespaces, of the user who runs the suite.
    Landlock,
    /// The same, of a user without rights.
    LandlockUnprivileged,
}

impl Cell {
    /// The name of the backend in the scripts: without the worker's rights.
    #[must_use]
    pub fn backend(self) -> &'static str {
        match self {
            Self::Docker => "docker",
            Self::Bubblewrap | Self::BubblewrapUnprivileged => "bubblewrap",
            Self::Landlock | Self::LandlockUnprivileged => "landlock",
        }
    }

    /// Whether the worker runs as a user without rights. That needs root, who can become one.
    #[must_use]
    pub fn is_unprivileged(self) -> bool {
        match self {
            Self::BubblewrapUnprivileged | Self::LandlockUnprivileged => true,
            Self::Docker | Self::Bubblewrap | Self::Landlock => false,
        }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        f.pad(value.as_ref().map_or("", |it| it.get_name()))
    }
}

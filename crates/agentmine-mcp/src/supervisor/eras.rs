//! The era of the protocol that a command was found to speak, for as long as this process runs.
//!
//! Only a hint, which spares the finding out: a command's next version may speak another, and is found
//! out anew.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex};

use crate::config::{Place, ServerConfig, Transport};
use crate::{Era, lock};

/// Commands that are remembered. Past that all is forgotten: repositories may name ever new ones.
const MAX: usize = 1_000;

static KNOWN: LazyLock<Mutex<HashMap<Key, Era>>> = LazyLock::new(Mutex::default);

/// What is started, without whom it is for: its environment is a secret.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Key {
    Worker(Vec<String>),
    Sandbox(Vec<String>),
    Http(String),
}

impl Key {
    pub(super) fn of(server: &ServerConfig) -> Self {
        match &server.transport {
            Transport::Stdio {
                command,
                place: Place::Worker,
                ..
            } => Self::Worker(command.clone()),
            Transport::Stdio {
                command,
                place: Place::Sandbox,
                ..
            } => Self::Sandbox(command.clone()),
            Transport::Http { url, .. } => Self::Http(url.to_string()),
        }
    }

    pub(super) fn era(&self) -> Option<Era> {
        lock(&KNOWN).get(self).copied()
    }

    pub(super) fn remember(self, era: Era) {
        let mut known = lock(&KNOWN);
        if known.len() >= MAX {
            known.clear();
        }
        known.insert(self, era);
    }

    pub(super) fn forget(&self) {
        lock(&KNOWN).remove(self);
    }
}

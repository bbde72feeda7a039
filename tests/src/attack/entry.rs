//! An entry of the catalogue: an attack, and what is expected of it.

use std::time::Duration;

use futures::future::LocalBoxFuture;

use super::cell::Cell;
use super::family::Family;
use super::finding::Claim;

/// Time limit of an attack that names none.
pub(super) const LIMIT: Duration = Duration::from_secs(20);

/// Something that a hostile program does, and what is expected of it besides that it is blocked.
#[derive(Debug, Clone)]
pub struct Attack {
    /// Unique among all attacks.
    pub name: String,
    /// What it attacks.
    pub family: Family,
    /// What the attacker wants, in a few words.
    pub what: String,
    /// Time limit of the whole attack.
    pub limit: Duration,
    /// Whether it runs below the shell of a check.
    pub check: bool,
    /// Whether its sandbox is removed afterwards.
    pub ruins: bool,
    /// What the gateway must have recorded.
    pub recorded: Option<Recorded>,
    /// Options of `docker run` with which it succeeds.
    pub off: Option<String>,
    /// Whether it needs the bait on port 80.
    pub(super) needs_web: bool,
    pub(super) only: Option<String>,
    pub(super) weaker: Option<(String, String)>,
    pub(super) act: Act,
}

/// How an attack is carried out.
#[derive(Debug, Clone)]
pub(super) enum Act {
    /// By a program in the sandbox, for the standard input of Python.
    Script(String),
    /// Against the worker itself, by code of its family.
    Worker(Deed),
}

/// An attack on the worker itself.
pub(super) type Deed = fn(String, Cell) -> LocalBoxFuture<'static, anyhow::Result<Claim>>;

/// A record that people see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recorded {
    /// A refused request to the web.
    Web,
    /// A refused push.
    Push,
}

impl Attack {
    /// Whether it makes sense in this kind of sandbox.
    #[must_use]
    pub fn is_for(&self, cell: Cell) -> bool {
        let only = self.only.as_deref();
        only.is_none_or(|only| only.contains(cell.backend()))
            && !(self.needs_web && cell.is_unprivileged())
    }

    /// Why the kind of sandbox does not promise to block it, if it does not.
    #[must_use]
    pub fn weakness(&self, cell: Cell) -> Option<&str> {
        let (backends, why) = self.weaker.as_ref()?;
        let mut backends = backends.split_whitespace();
        backends.any(|it| it == cell.backend()).then_some(why)
    }

    /// An attack on the worker itself, in the backends where it makes a difference.
    pub(super) fn on_worker(
        (family, backends): (Family, &str),
        name: &str,
        what: &str,
        deed: Deed,
    ) -> Self {
        Self {
            name: name.to_owned(),
            family,
            what: what.to_owned(),
            limit: LIMIT,
            check: false,
            ruins: false,
            recorded: None,
            off: None,
            needs_web: false,
            only: Some(backends.to_owned()),
            weaker: None,
            act: Act::Worker(deed),
        }
    }
}

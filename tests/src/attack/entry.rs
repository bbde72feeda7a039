//! An entry of the catalogue: an attack, and what is expected of it.

use std::time::Duration;

use futures::future::LocalBoxFuture;

use super::cell::Cell;
use super::controls::Lacking;
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
    /// Where else it succeeds, without which control.
    pub(super) without: Vec<Without>,
    /// What it goes through, if the control is not the sandbox's.
    pub(super) through: Option<String>,
    /// Kinds of what lacks a control, and why it is not demonstrated there.
    pub(super) undemonstrated: Vec<(String, String)>,
    /// Whether it needs the bait on port 80.
    pub(super) needs_web: bool,
    pub(super) only: Option<String>,
    pub(super) weaker: Option<(String, String)>,
    pub(super) act: Act,
}

/// A way to take a control away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Without {
    pub(super) kind: String,
    /// Whether only root can.
    pub(super) by_root: bool,
    pub(super) control: String,
    pub(super) options: String,
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
        self.makes_sense_in(cell.backend()) && !(self.needs_web && cell.is_unprivileged())
    }

    /// Whether it makes sense in this backend.
    pub(super) fn makes_sense_in(&self, backend: &str) -> bool {
        let only = self.only.as_deref();
        only.is_none_or(|only| only.contains(backend))
    }

    /// How it succeeds. A process without a jail lacks everything, so no attack names an option for it.
    pub(super) fn without(&self, kind: Lacking) -> Option<Without> {
        let named = self.without.iter().find(|it| it.kind == kind.to_string());
        let control = match kind {
            Lacking::Landlock => "the whole jail",
            Lacking::Editor => "the editor's folder and limits",
            Lacking::Gateway if self.family == Family::GitProxy => "the git proxy's checks",
            Lacking::Gateway => "the web proxy's checks",
            Lacking::Docker | Lacking::Bubblewrap | Lacking::Operator => return named.cloned(),
        };
        Some(named.cloned().unwrap_or_else(|| Without {
            kind: kind.to_string(),
            by_root: false,
            control: control.into(),
            options: String::new(),
        }))
    }

    /// Why it is not demonstrated, if it is not.
    pub(super) fn undemonstrated(&self, kind: Lacking) -> Option<String> {
        let kind = kind.to_string();
        let mut all = self.undemonstrated.iter();
        let (_, why) = all.find(|(kinds, _)| kinds.split_whitespace().any(|it| it == kind))?;
        Some(why.clone())
    }

    /// Why the kind of sandbox does not promise to block it, if it does not.
    #[must_use]
    pub fn weakness(&self, cell: Cell) -> Option<&str> {
        let (backends, why) = self.weaker.as_ref()?;
        let mut named = backends.split_whitespace();
        let whole = cell.to_string();
        named
            .any(|it| it == cell.backend() || it == whole)
            .then_some(why)
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
            without: Vec::new(),
            through: None,
            undemonstrated: Vec::new(),
            needs_web: false,
            only: Some(backends.to_owned()),
            weaker: None,
            act: Act::Worker(deed),
        }
    }
}

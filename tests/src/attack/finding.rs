//! What became of an attack.

use serde::{Deserialize, Serialize};

use super::cell::Cell;
use super::family::Family;

/// How an attack ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It had no effect, and where people should know of it, it was recorded.
    Blocked,
    /// It succeeded where this kind of sandbox does not promise to block it, as the documentation says.
    Weaker,
    /// It succeeded, and the list of known holes names it.
    KnownOpen,
    /// It succeeded.
    Succeeded,
    /// It could not be carried out, since something is missing here. That says nothing.
    NotRun,
    /// It failed for a reason of its own. That says nothing either.
    Broken,
}

/// An attack in a kind of sandbox, and how it ended.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Finding {
    /// The attack's name.
    pub attack: String,
    /// Its family.
    pub family: Family,
    /// Where it ran.
    pub cell: Cell,
    /// How it ended.
    pub verdict: Verdict,
    /// What was seen.
    pub seen: String,
}

impl Finding {
    /// Whether it says something.
    #[must_use]
    pub fn was_carried_out(&self) -> bool {
        !matches!(self.verdict, Verdict::NotRun | Verdict::Broken)
    }
}

/// What a script reports of itself on the last line of its output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Claim {
    Blocked(String),
    Succeeded(String),
    NotRun(String),
    Broken(String),
}

impl Claim {
    /// From the output of a script.
    pub(super) fn of(output: &str, errors: &str) -> Self {
        let line = output
            .lines()
            .rev()
            .find_map(|it| it.strip_prefix("ATTACK "));
        let Some((kind, seen)) = line.map(|line| line.split_once(' ').unwrap_or((line, ""))) else {
            let last = errors
                .lines()
                .last()
                .unwrap_or("it ended without a verdict");
            return Self::Broken(last.to_owned());
        };
        let seen = seen.to_owned();
        match kind {
            "blocked" => Self::Blocked(seen),
            "success" => Self::Succeeded(seen),
            "cannot" => Self::NotRun(seen),
            _ => Self::Broken(seen),
        }
    }
}

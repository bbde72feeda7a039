//! Controls switched off: the same attacks where one is missing, and they must succeed. This shows that each attack
//! can succeed, and that the control is what blocks it.
//!
//! Containers, jails, gateways and editors without the control are the suite's own; nothing of AgentMine is weakened.
//! What would harm the machine runs within limits of its own, or is listed as not demonstrated. A process without a
//! jail lacks all controls of the jail at once: it shows that the attack works, not which part of the jail blocks it.

mod container;
mod gateway;
mod jail;
mod open_gateway;
mod place;
mod table;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::catalogue::all;
use super::entry::{Act, Attack};
use super::family::Family;

pub use jail::Rights;
pub(super) use open_gateway::{OpenGateway, OpenTraffic};
pub use table::Table;

/// What lacks the control.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Lacking {
    /// A container.
    Docker,
    /// A jail of bubblewrap alone.
    Bubblewrap,
    /// A process without a jail.
    Landlock,
    /// An editor without a folder that it stays in.
    Editor,
    /// What operators expose.
    Operator,
    /// A gateway that forwards everything.
    Gateway,
}

impl Lacking {
    /// Whether an attack should succeed there.
    fn concerns(self, attack: &Attack) -> bool {
        match self {
            Self::Docker | Self::Bubblewrap | Self::Landlock => {
                matches!(attack.act, Act::Script(_))
                    && attack.through.is_none()
                    && !matches!(attack.family, Family::GitProxy | Family::FileTools)
                    && attack.makes_sense_in(&self.to_string())
            }
            Self::Editor => attack.family == Family::FileTools,
            Self::Operator => attack.family == Family::Operator,
            Self::Gateway => {
                (attack.through.as_deref() == Some("gateway") || attack.family == Family::GitProxy)
                    && attack.makes_sense_in("bubblewrap")
            }
        }
    }
}

impl std::fmt::Display for Lacking {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let value = self.to_possible_value();
        f.pad(value.as_ref().map_or("", |it| it.get_name()))
    }
}

/// An attack without the control, and what it saw.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Demonstration {
    /// The attack's name.
    pub attack: String,
    /// What lacked the control.
    pub lacking: Lacking,
    /// The control.
    pub control: String,
    /// What became of the attack.
    pub ended: Ended,
}

/// How an attack without the control ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ended {
    /// As it must, with what it achieved.
    Succeeded(String),
    /// Something else blocked it, or it is wrong.
    Failed(String),
    /// It was not carried out, and why. That says nothing.
    NotDemonstrated(String),
}

impl Ended {
    /// Nobody has written down how to take the control away.
    fn unwritten() -> Self {
        Self::NotDemonstrated("no way to take the control away is written for it yet".into())
    }
}

impl Demonstration {
    fn of(attack: &Attack, lacking: Lacking, control: &str, ended: Ended) -> Self {
        Self {
            attack: attack.name.clone(),
            lacking,
            control: control.to_owned(),
            ended,
        }
    }
}

/// Carries attacks out where the control is missing; of `names` alone, if there are any. `program` is the suite's own.
///
/// # Errors
/// When something to attack cannot be started.
pub async fn demonstrate(
    program: &std::path::Path,
    kinds: &[Lacking],
    names: &[String],
) -> anyhow::Result<Vec<Demonstration>> {
    let mut shown = Vec::new();
    for &kind in kinds {
        let mut attacks = Vec::new();
        for attack in concerned(kind, names) {
            match attack.undemonstrated(kind) {
                Some(why) => {
                    let ended = Ended::NotDemonstrated(why);
                    shown.push(Demonstration::of(&attack, kind, "", ended));
                }
                None => attacks.push(attack),
            }
        }
        shown.extend(match kind {
            Lacking::Docker => container::demonstrate(program, &attacks).await?,
            Lacking::Bubblewrap | Lacking::Landlock | Lacking::Editor => {
                jail::demonstrate(program, kind, &attacks).await?
            }
            Lacking::Operator => super::operator::demonstrate(&attacks).await?,
            Lacking::Gateway => gateway::demonstrate(program, &attacks).await?,
        });
    }
    Ok(shown)
}

/// Carries the attacks out in this process and prints each demonstration as a line of JSON.
///
/// # Errors
/// When there is nothing to attack.
pub async fn demonstrate_here(
    kind: Lacking,
    rights: Rights,
    names: &[String],
) -> anyhow::Result<()> {
    match kind {
        Lacking::Docker => container::here(names),
        Lacking::Gateway => gateway::here(names).await,
        Lacking::Bubblewrap | Lacking::Landlock | Lacking::Editor | Lacking::Operator => {
            jail::here(kind, rights, names).await
        }
    }
}

fn concerned(kind: Lacking, names: &[String]) -> Vec<Attack> {
    let mut attacks = all();
    attacks.retain(|it| kind.concerns(it) && (names.is_empty() || names.contains(&it.name)));
    attacks
}

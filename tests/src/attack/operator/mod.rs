//! What an operator exposes: listeners, files, process lists, logs, metrics, and what starts work.
//!
//! The attacker is another user of the machine, a web page in a browser on it, or whoever writes issues and
//! repositories. Each check looks at what was seen of a running fleet, or talks to a listener. The same checks run
//! against a stand-in of the suite that is open on purpose ([`demonstrate`]), where each must succeed.

mod fleet;
mod folder;
mod listener;
mod seen;
mod stand_in;

use anyhow::Context as _;
use futures::FutureExt as _;
use tokio::sync::OnceCell;

use self::seen::{CHECKS, Seen};
use super::controls::{Demonstration, Ended, Lacking};
use super::entry::Attack;
use super::family::Family;
use super::finding::Claim;

/// All attacks of the family.
pub(super) fn attacks() -> Vec<Attack> {
    let seen = CHECKS.iter().map(|&(name, what, _)| (name, what));
    let listeners = listener::ATTACKS
        .iter()
        .map(|&(name, what, _)| (name, what));
    let folders = folder::ATTACKS.iter().map(|&(name, what, _)| (name, what));
    seen.chain(listeners)
        .chain(folders)
        .map(|(name, what)| {
            let mut attack =
                Attack::on_worker((Family::Operator, "bubblewrap"), name, what, |name, _| {
                    attempt(name).boxed_local()
                });
            attack.limit = std::time::Duration::from_secs(240);
            attack
        })
        .collect()
}

static FLEET: OnceCell<Seen> = OnceCell::const_new();

async fn attempt(name: String) -> anyhow::Result<Claim> {
    let found = if let Some((_, _, check)) = folder::ATTACKS.iter().find(|it| it.0 == name) {
        check(folder::Reader::Product).await?
    } else {
        let seen = FLEET.get_or_try_init(fleet::watch).await?;
        look(seen, &name)?
    };
    Ok(match found {
        Some(seen) => Claim::Succeeded(seen),
        None => Claim::Blocked("nothing of it was seen".into()),
    })
}

/// What the attack of this name achieved.
fn look(seen: &Seen, name: &str) -> anyhow::Result<Option<String>> {
    if let Some((_, _, check)) = CHECKS.iter().find(|it| it.0 == name) {
        return Ok(check(seen));
    }
    let achieved = seen.achieved.get(name).context("no such attack")?;
    Ok(achieved.clone())
}

/// Carries the attacks out on something that is open on purpose, where each must succeed.
///
/// # Errors
/// When the stand-in cannot be started.
pub(super) async fn demonstrate(attacks: &[Attack]) -> anyhow::Result<Vec<Demonstration>> {
    let seen = stand_in::watch().await?;
    let mut shown = Vec::new();
    for attack in attacks {
        let found = match folder::ATTACKS.iter().find(|it| it.0 == attack.name) {
            Some((_, _, check)) => check(folder::Reader::Trusting).await?,
            None => look(&seen, &attack.name)?,
        };
        shown.push(Demonstration {
            attack: attack.name.clone(),
            lacking: Lacking::Operator,
            control: "a stand-in that is open on purpose".to_owned(),
            ended: found.map_or_else(
                || Ended::Failed("nothing of it was seen".to_owned()),
                Ended::Succeeded,
            ),
        });
    }
    Ok(shown)
}

//! Sandboxes of AgentMine, jails of bubblewrap, with a gateway that forwards everything.

use std::path::Path;

use super::{Demonstration, Ended, Lacking, concerned, jail};
use crate::attack::arena::{Arena, Way};
use crate::attack::cell::Cell;
use crate::attack::entry::{Act, Attack};
use crate::attack::finding::Claim;

/// Carries attacks out in its own process, which plays the worker.
pub(super) async fn demonstrate(
    program: &Path,
    attacks: &[Attack],
) -> anyhow::Result<Vec<Demonstration>> {
    let names: Vec<_> = attacks.iter().map(|it| it.name.clone()).collect();
    // The bait on port 80 needs the rights that there are.
    jail::apart(program, Lacking::Gateway, jail::Rights::Root, &names).await
}

/// Carries the attacks out in this process and prints each demonstration as a line of JSON.
pub(super) async fn here(names: &[String]) -> anyhow::Result<()> {
    use std::io::Write as _;
    let kind = Lacking::Gateway;
    let mut arena = Arena::open(Cell::Bubblewrap).await?;
    for attack in concerned(kind, names) {
        let (Some(without), Act::Script(program)) = (attack.without(kind), &attack.act) else {
            continue;
        };
        let way = if without.options == "+token" {
            Way::OpenWithTokenInside
        } else {
            Way::Open
        };
        let claimed = async {
            arena.go(way).await?;
            arena.carry_out(&attack, program).await
        };
        let ended = match claimed.await {
            Ok(Claim::Succeeded(seen)) => Ended::Succeeded(seen),
            Ok(Claim::NotRun(why)) => Ended::NotDemonstrated(why),
            Ok(Claim::Blocked(why) | Claim::Broken(why)) => Ended::Failed(why),
            Err(error) => Ended::Failed(format!("{error:#}")),
        };
        let shown = Demonstration::of(&attack, kind, &without.control, ended);
        writeln!(std::io::stdout(), "{}", serde_json::to_string(&shown)?)?;
    }
    arena.close().await
}

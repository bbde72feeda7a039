//! Containers that lack a control, started by `docker run`.

use std::io::Write as _;
use std::process::{Command, Stdio};

use anyhow::Context as _;

use super::{Demonstration, Ended, Lacking};
use crate::attack::arena::argv;
use crate::attack::bait::Bait;
use crate::attack::canaries::Canaries;
use crate::attack::entry::{Act, Attack};
use crate::attack::finding::Claim;

/// What a container of AgentMine has too, unless an attack's own options say otherwise. Without `no-new-privileges`, which
/// no later option takes back.
const PROFILE: &[&str] = &[
    "--network=none",
    "--user=1000:1000",
    "--cap-drop=ALL",
    "--pids-limit=300",
    "--memory=512m",
    "--workdir=/tmp",
    "--env=BACKEND=docker",
    "--env=TMPDIR=/tmp",
];

/// Carries each attack out that names options with which it succeeds.
pub(super) fn demonstrate(attacks: &[Attack]) -> anyhow::Result<Vec<Demonstration>> {
    let mut canaries = Canaries::of_environment();
    let mut bait = Bait::lay(&mut canaries)?;
    let mut shown = Vec::new();
    for attack in attacks {
        let (Some(options), Act::Script(program)) = (&attack.off, &attack.act) else {
            let why = attack.undemonstrated(Lacking::Docker);
            let ended = why.map_or_else(Ended::unwritten, Ended::NotDemonstrated);
            shown.push(Demonstration::of(attack, Lacking::Docker, "", ended));
            continue;
        };
        let (claim, output) = in_container(attack, program, options, &bait)?;
        let ended = match (bait.damage()?, claim, canaries.found_in(&output)) {
            (Some(damage), ..) => Ended::Succeeded(damage),
            (None, Claim::Succeeded(seen), _) => Ended::Succeeded(seen),
            (None, _, Some(found)) => Ended::Succeeded(format!("it got {found}")),
            (None, Claim::Blocked(seen) | Claim::NotRun(seen) | Claim::Broken(seen), None) => {
                Ended::Failed(seen)
            }
        };
        shown.push(Demonstration::of(attack, Lacking::Docker, options, ended));
    }
    Ok(shown)
}

/// What the attack says, and all that it printed.
fn in_container(
    attack: &Attack,
    program: &str,
    options: &str,
    bait: &Bait,
) -> anyhow::Result<(Claim, Vec<u8>)> {
    let image = std::env::var("AGENTMINE_TEST_IMAGE");
    let image = image.unwrap_or_else(|_| "coding-agent-executor:latest".into());
    let mut options = options.to_owned();
    // The engine takes some options only once.
    let named = |option: &str| option.split('=').next().unwrap_or(option).to_owned();
    let given: Vec<String> = options.split_whitespace().map(named).collect();
    let profile = PROFILE
        .iter()
        .filter(|it| !given.contains(&named(it)) || it.starts_with("--cap"));
    let mut command = Command::new("timeout");
    command.arg((attack.limit.as_secs() + 20).to_string());
    command
        .args(["docker", "run", "--rm", "-i", "--init"])
        .args(profile);
    for (name, value) in bait.variables() {
        options = options.replace(&format!("${name}"), &value);
        command.arg(format!("--env={name}={value}"));
    }
    command.args(options.split_whitespace());
    let mut child = command
        .arg(&image)
        .args(argv(attack))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("docker")?;
    // A container that does not start reads nothing.
    let _ = child
        .stdin
        .take()
        .context("stdin")?
        .write_all(program.as_bytes());
    let output = child.wait_with_output()?;
    let claim = Claim::of(
        &String::from_utf8_lossy(&output.stdout),
        &String::from_utf8_lossy(&output.stderr),
    );
    Ok((claim, [output.stdout, output.stderr].concat()))
}

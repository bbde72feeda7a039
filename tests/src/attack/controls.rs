//! Controls switched off: the same attacks in containers that lack one, where they must succeed. This shows that
//! each attack can succeed, and that the control is what blocks it.
//!
//! The containers are the suite's own, started by `docker run`; nothing of AgentMine is weakened.

use std::io::Write as _;
use std::process::{Command, Stdio};

use anyhow::Context as _;

use super::arena::argv;
use super::bait::Bait;
use super::canaries::Canaries;
use super::catalogue::all;
use super::entry::{Act, Attack};
use super::finding::Claim;

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

/// An attack in a container without the control, and what it saw.
#[derive(Debug)]
pub struct Demonstration {
    /// The attack's name.
    pub attack: String,
    /// The options of `docker run` that take the control away.
    pub options: String,
    /// What it achieved; `Err` is why it failed.
    pub succeeded: Result<String, String>,
}

/// Carries out each attack that names options with which it succeeds; of `names` alone, if there are any.
///
/// # Errors
/// When there is no engine.
pub fn demonstrate(names: &[String]) -> anyhow::Result<Vec<Demonstration>> {
    let mut canaries = Canaries::of_environment();
    let mut bait = Bait::lay(&mut canaries)?;
    let mut shown = Vec::new();
    for attack in all() {
        if !names.is_empty() && !names.contains(&attack.name) {
            continue;
        }
        let (Some(options), Act::Script(program)) = (attack.off.clone(), &attack.act) else {
            continue;
        };
        let claim = in_container(&attack, program, &options, &bait)?;
        let damage = bait.damage()?;
        let succeeded = match (claim, damage) {
            (_, Some(damage)) => Ok(damage),
            ((Claim::Succeeded(seen), _), None) => Ok(seen),
            ((Claim::Blocked(seen) | Claim::NotRun(seen) | Claim::Broken(seen), output), None) => {
                canaries
                    .found_in(&output)
                    .map(|found| format!("it got {found}"))
                    .ok_or(seen)
            }
        };
        shown.push(Demonstration {
            attack: attack.name,
            options,
            succeeded,
        });
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

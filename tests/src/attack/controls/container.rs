//! Containers that lack a control, started by `docker run`.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Context as _;

use super::place::Place;
use super::{Demonstration, Ended, Lacking, concerned, jail};
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

/// Carries attacks out in containers that a separate process starts, which plays the worker.
pub(super) async fn demonstrate(
    program: &Path,
    attacks: &[Attack],
) -> anyhow::Result<Vec<Demonstration>> {
    let kind = Lacking::Docker;
    let (written, unwritten): (Vec<_>, Vec<_>) = attacks.iter().partition(|it| it.off.is_some());
    let unwritten = unwritten.into_iter();
    let mut shown: Vec<_> = unwritten
        .map(|it| Demonstration::of(it, kind, "", Ended::unwritten()))
        .collect();
    let names: Vec<_> = written.iter().map(|it| it.name.clone()).collect();
    // The files of the bait are root's, as the user of such a container is.
    shown.extend(jail::apart(program, kind, jail::Rights::Root, &names).await?);
    Ok(shown)
}

/// Carries the attacks out from this process and prints each demonstration as a line of JSON.
pub(super) fn here(names: &[String]) -> anyhow::Result<()> {
    let mut place = Place::lay()?;
    let token = format!("canary{}", uuid::Uuid::new_v4().simple());
    place.canaries.add("a token in its environment", &token);
    for attack in concerned(Lacking::Docker, names) {
        let (Some(options), Act::Script(program)) = (&attack.off, &attack.act) else {
            continue;
        };
        let ended = match in_container(&attack, program, options, &place, &token) {
            Ok((claim, output)) => ended(&mut place, claim, &output)?,
            Err(error) => Ended::Failed(format!("{error:#}")),
        };
        let shown = Demonstration::of(&attack, Lacking::Docker, options, ended);
        writeln!(std::io::stdout(), "{}", serde_json::to_string(&shown)?)?;
    }
    Ok(())
}

fn ended(place: &mut Place, claim: Claim, output: &[u8]) -> anyhow::Result<Ended> {
    let damage = place.bait.damage()?;
    Ok(match (damage, claim, place.canaries.found_in(output)) {
        (Some(damage), ..) => Ended::Succeeded(damage),
        (None, Claim::Succeeded(seen), _) => Ended::Succeeded(seen),
        (None, _, Some(found)) => Ended::Succeeded(format!("it got {found}")),
        (None, Claim::NotRun(why), None) => Ended::NotDemonstrated(why),
        (None, Claim::Blocked(seen) | Claim::Broken(seen), None) => Ended::Failed(seen),
    })
}

/// What the attack says, and all that it printed.
fn in_container(
    attack: &Attack,
    program: &str,
    options: &str,
    place: &Place,
    token: &str,
) -> anyhow::Result<(Claim, Vec<u8>)> {
    let image = std::env::var("AGENTMINE_TEST_IMAGE");
    let image = image.unwrap_or_else(|_| "coding-agent-executor:latest".into());
    // The engine takes some options only once.
    let named = |option: &str| option.split('=').next().unwrap_or(option).to_owned();
    let given: Vec<String> = options.split_whitespace().map(named).collect();
    let profile = PROFILE
        .iter()
        .filter(|it| !given.contains(&named(it)) || repeats(it));
    let mut command = Command::new("timeout");
    command.arg((attack.limit.as_secs() + 20).to_string());
    command
        .args(["docker", "run", "--rm", "-i", "--init"])
        .args(profile);
    let variables = place.variables(&place.workspace()?)?;
    for (name, value) in &variables {
        command.arg(format!("--env={name}={value}"));
    }
    for option in options.split_whitespace() {
        let mut option = option.replace("$TOKEN", token);
        for (name, value) in &variables {
            option = option.replace(&format!("${name}"), value);
        }
        command.arg(option);
    }
    let mut child = command
        .arg(&image)
        .args(jail::line(attack))
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

/// Whether the engine takes an option several times.
fn repeats(option: &str) -> bool {
    ["--cap-drop", "--env"]
        .iter()
        .any(|it| option.starts_with(it))
}

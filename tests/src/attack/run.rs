//! Runs attacks. Each kind of sandbox has its own process, which plays the worker: it may die, and what it
//! finds on its path and in its environment differs.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Stdio;

use anyhow::Context as _;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

use super::arena::Arena;
use super::builds::Built;
use super::canaries::fresh_environment;
use super::catalogue::all;
use super::cell::Cell;
use super::entry::{Act, Attack};
use super::family::Family;
use super::finding::{Claim, Finding, Verdict};
use super::{known_open, registry};

/// Which attacks to run.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// Only these families; all, if there are none.
    pub families: Vec<Family>,
    /// Only attacks of these names; all, if there are none.
    pub names: Vec<String>,
}

impl Selection {
    /// The chosen attacks that make sense in a kind of sandbox.
    #[must_use]
    pub fn of(&self, cell: Cell) -> Vec<Attack> {
        let mut attacks = all();
        attacks.retain(|attack| {
            attack.is_for(cell)
                && (self.families.is_empty() || self.families.contains(&attack.family))
                && (self.names.is_empty() || self.names.contains(&attack.name))
        });
        attacks
    }

    fn arguments(&self) -> Vec<String> {
        let families = self
            .families
            .iter()
            .flat_map(|it| ["--family".into(), it.to_string()]);
        let names = self
            .names
            .iter()
            .flat_map(|it| ["--only".into(), it.clone()]);
        families.chain(names).collect()
    }
}

/// Carries the attacks out in this process and prints each finding as a line of JSON.
///
/// # Errors
/// When no sandbox can be started at all.
pub async fn run_here(cell: Cell, selection: &Selection) -> anyhow::Result<()> {
    let mut arena = Arena::open(cell).await?;
    for attack in selection.of(cell) {
        let claimed = match &attack.act {
            Act::Script(program) => arena.carry_out(&attack, program).await,
            Act::Worker(deed) => deed(attack.name.clone(), cell).await,
        };
        let claim = match claimed {
            Ok(claim) => claim,
            Err(error) => Claim::Broken(format!("{error:#}")),
        };
        print(&finding(&attack, cell, claim))?;
    }
    arena.close().await
}

fn print(finding: &Finding) -> anyhow::Result<()> {
    use std::io::Write as _;
    writeln!(std::io::stdout(), "{}", serde_json::to_string(finding)?)?;
    Ok(())
}

fn finding(attack: &Attack, cell: Cell, claim: Claim) -> Finding {
    let (verdict, seen) = match claim {
        Claim::Blocked(seen) => (Verdict::Blocked, seen),
        Claim::NotRun(seen) => (Verdict::NotRun, seen),
        Claim::Broken(seen) => (Verdict::Broken, seen),
        Claim::Succeeded(seen) => match (
            attack.weakness(cell),
            known_open::reason(&attack.name, cell),
        ) {
            (Some(why), _) => (Verdict::Weaker, format!("{seen} ({why})")),
            (None, Some(why)) => (Verdict::KnownOpen, format!("{seen} ({why})")),
            (None, None) => (Verdict::Succeeded, seen),
        },
    };
    Finding {
        attack: attack.name.clone(),
        family: attack.family,
        cell,
        verdict,
        seen,
    }
}

/// Starts a worker for a kind of sandbox (`program` is the suite's own), which carries the attacks out, and collects what it found. What it
/// died of, if it died, was an attack that succeeded.
///
/// # Errors
/// When the worker cannot be started.
pub async fn run_apart(
    program: &Path,
    cell: Cell,
    selection: &Selection,
) -> anyhow::Result<Vec<Finding>> {
    let folder = tempfile::Builder::new()
        .prefix("agentmine-attacks-")
        .tempdir_in("/var/tmp")?;
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755))?;
    let mut worker = worker(program, cell, folder.path())?
        .arg("cell")
        .arg(cell.to_string())
        .args(selection.arguments())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .context("starting a worker")?;
    let output = worker.stdout.take().context("its output")?;
    let mut lines = BufReader::new(output).lines();
    let mut findings: Vec<Finding> = Vec::new();
    while let Some(line) = lines.next_line().await? {
        findings.push(serde_json::from_str(&line).with_context(|| line.clone())?);
    }
    let status = worker.wait().await?;
    let missing = selection.of(cell).into_iter().skip(findings.len());
    for (at, attack) in missing.enumerate() {
        let claim = if at == 0 && status.code().is_none() {
            Claim::Succeeded(format!("the worker died: {status}"))
        } else {
            Claim::Broken(format!("the worker ended before it: {status}"))
        };
        findings.push(finding(&attack, cell, claim));
    }
    Ok(findings)
}

/// Builds projects in a kind of sandbox, in its own process; those of `only`, or all, if it names none.
///
/// # Errors
/// When the process cannot be started, or does not end well.
pub async fn build_apart(
    program: &Path,
    cell: Cell,
    only: &[String],
) -> anyhow::Result<Vec<Built>> {
    let folder = tempfile::Builder::new()
        .prefix("agentmine-attacks-")
        .tempdir_in("/var/tmp")?;
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755))?;
    let mut worker = worker(program, cell, folder.path())?;
    // It has another home folder than the user whose toolchains are there.
    if let (false, Some(home)) = (cell.is_unprivileged(), std::env::var_os("HOME")) {
        let home = Path::new(&home);
        worker
            .env("CARGO_HOME", home.join(".cargo"))
            .env("RUSTUP_HOME", home.join(".rustup"));
    }
    let done = worker
        .arg("builds-in")
        .arg(cell.to_string())
        .args(only)
        .stderr(Stdio::inherit())
        .output()
        .await?;
    anyhow::ensure!(
        done.status.success(),
        "the builds in {cell}: {}",
        done.status
    );
    let printed = String::from_utf8(done.stdout)?;
    let built = printed.lines().map(serde_json::from_str);
    Ok(built.collect::<Result<_, _>>()?)
}

/// The program as the worker of a kind of sandbox, with secrets in its environment.
fn worker(program: &Path, cell: Cell, folder: &Path) -> anyhow::Result<Command> {
    let state = folder.join("state");
    std::fs::create_dir(&state)?;
    // SAFETY: it only returns a number.
    let root = unsafe { libc::geteuid() } == 0;
    let mut command = if cell.is_unprivileged() && root {
        std::os::unix::fs::chown(&state, Some(65534), Some(65534))?;
        let mut command = Command::new("/usr/bin/setpriv");
        command
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .arg(program);
        command
    } else {
        Command::new(program)
    };
    command
        .env("HOME", &state)
        .env("AGENTMINE_ATTACKS_STATE", &state)
        .envs(fresh_environment())
        .envs(registry::certify(folder)?);
    if cell.backend() == "landlock" {
        let programs = without_bubblewrap(folder)?;
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path =
            std::env::join_paths([programs].into_iter().chain(std::env::split_paths(&path)))?;
        command.env("PATH", path);
    }
    Ok(command)
}

/// A folder for the front of the path, with a `bwrap` that fails as it does without user namespaces.
fn without_bubblewrap(folder: &Path) -> anyhow::Result<std::path::PathBuf> {
    let programs = folder.join("bin");
    std::fs::create_dir(&programs)?;
    let program = programs.join("bwrap");
    std::fs::write(&program, "#!/bin/sh\necho no user namespaces >&2; exit 1\n")?;
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755))?;
    Ok(programs)
}

//! One task of one agent: its process, the model that it asks, and what was measured meanwhile.

use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use tokio::process::{Child, Command};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{interval, sleep};

use super::agents::{Agent, Place};
use super::api::Reply;
use super::server::Asked;
use crate::cycle::{Act, KINDS, edited};
use crate::tree::{Tree, containers};

/// Time limit of one task.
const PATIENCE: Duration = Duration::from_secs(300);
/// How often memory is read.
const LOOK: Duration = Duration::from_millis(20);
/// Of what a failed agent printed, this much is shown.
const SHOWN: usize = 300;

/// What is checked. Reading memory disturbs the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    Nothing,
    Cpu,
    Memory,
}

/// What a task showed.
#[derive(Debug, Default)]
pub(crate) struct Ran {
    /// From the start of the process to the first request.
    pub(crate) start: Duration,
    /// From each reply to the next request.
    pub(crate) steps: Vec<Duration>,
    /// CPU time from the first request to the last.
    pub(crate) cpu: Duration,
    /// The largest proportional set size, in KiB.
    pub(crate) peak: u64,
}

/// Runs an agent through `steps` steps.
pub(crate) async fn run(
    agent: Agent,
    place: &Place,
    mut requests: UnboundedReceiver<Asked>,
    steps: usize,
    look: Look,
) -> anyhow::Result<Ran> {
    let output = place.own.join("output");
    let file = std::fs::File::create(&output)?;
    let before = match agent {
        Agent::Docker if look != Look::Nothing => Some(containers().await?),
        _ => None,
    };
    let mut command = agent.command(place, steps)?;
    command
        .stdin(Stdio::null())
        .stdout(file.try_clone()?)
        .stderr(file)
        .process_group(0)
        .kill_on_drop(true);
    let begun = Instant::now();
    let mut process = Process(command.spawn()?);
    let tree = Tree::new(process.pid()?, before);
    let mut play = Play {
        agent,
        place,
        steps,
        tree,
        look,
        cpu: Vec::new(),
        answered: begun,
        asked: 0,
        ran: Ran::default(),
    };
    let status = tokio::select! {
        status = play.until_ended(&mut process.0, &mut requests) => status,
        () = sleep(PATIENCE) => bail!("it did not end within {PATIENCE:?}: {}", tail(&output)),
    };
    let ran = play.ran;
    let status = status.with_context(|| tail(&output))?;
    ensure!(
        ran.steps.len() == steps,
        "it made {} of {steps} steps and ended, {status}: {}",
        ran.steps.len(),
        tail(&output)
    );
    was_done(agent, place, steps).await?;
    Ok(ran)
}

/// Ended with everything that it started, unless that left its group.
struct Process(Child);

impl Process {
    fn pid(&self) -> anyhow::Result<i32> {
        Ok(self.0.id().context("the process has ended")?.cast_signed())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Ok(pid) = self.pid() {
            // SAFETY: `kill` takes two numbers and touches no memory of this program. The leader is not reaped, so its number,
            // which is also the group's, is not another's.
            unsafe { libc::kill(-pid, libc::SIGKILL) };
        }
    }
}

/// The model's side of a task.
struct Play<'a> {
    agent: Agent,
    place: &'a Place,
    steps: usize,
    tree: Tree,
    look: Look,
    /// At the first request and at the last one.
    cpu: Vec<Duration>,
    answered: Instant,
    asked: usize,
    ran: Ran,
}

impl Play<'_> {
    async fn until_ended(
        &mut self,
        process: &mut Child,
        requests: &mut UnboundedReceiver<Asked>,
    ) -> anyhow::Result<ExitStatus> {
        let mut looks = interval(LOOK);
        loop {
            tokio::select! {
                biased;
                Some(asked) = requests.recv() => self.answer(asked).await?,
                _ = looks.tick(), if self.look == Look::Memory => {
                    self.ran.peak = self.ran.peak.max(self.tree.memory().await?);
                }
                status = process.wait() => return Ok(status?),
            }
        }
    }

    async fn answer(&mut self, asked: Asked) -> anyhow::Result<()> {
        let Asked { at, tools, reply } = asked;
        let n = self.asked;
        self.asked += 1;
        let took = at.saturating_duration_since(self.answered);
        match n {
            0 => self.ran.start = took,
            // AgentMine may ask for a summary after its last step.
            n if n > self.steps => {}
            _ => self.ran.steps.push(took),
        }
        if self.look == Look::Cpu && (n == 0 || n == self.steps) {
            self.cpu.push(self.tree.cpu().await?);
            if let [first, last] = self.cpu.as_slice() {
                self.ran.cpu = last.saturating_sub(*first);
            }
        }
        let answer = if n < self.steps {
            let call = self.agent.call(Act::at(n), &self.place.project);
            ensure!(
                tools.iter().any(|tool| tool == call.tool),
                "it has no tool {}; it has {}",
                call.tool,
                tools.join(", ")
            );
            Reply::Call(call)
        } else {
            Reply::Text("Done.")
        };
        self.answered = Instant::now();
        // If the agent has disconnected, it ends or asks again.
        let _ = reply.send((n, answer));
        Ok(())
    }
}

/// Fails if the last edit is not in its file: an agent whose tools refuse makes quick steps.
async fn was_done(agent: Agent, place: &Place, steps: usize) -> anyhow::Result<()> {
    let Some(last) = (0..steps).rev().find(|n| n % KINDS.len() == 2) else {
        return Ok(());
    };
    let Act::Edit { file, .. } = Act::at(last) else {
        bail!("step {last} is no edit");
    };
    let text = if agent.is_agentmine() {
        let refs = [
            "for-each-ref",
            "--format=%(refname)",
            "--sort=-creatordate",
            "refs/heads",
        ];
        let refs = git(&place.project, &refs).await?;
        let branch = refs.lines().find(|name| *name != "refs/heads/main");
        let branch = branch.context("it made no branch")?;
        git(&place.project, &["show", &format!("{branch}:{file}")]).await?
    } else {
        std::fs::read_to_string(place.project.join(&file))
            .with_context(|| format!("{file} is not there: {}", tail(&place.own.join("output"))))?
    };
    ensure!(
        text.contains(&edited(last)),
        "{file} was not edited: {}",
        tail(&place.own.join("output"))
    );
    Ok(())
}

pub(super) async fn git(folder: &Path, args: &[&str]) -> anyhow::Result<String> {
    let done = Command::new("git")
        .arg("-C")
        .arg(folder)
        .args(args)
        .output()
        .await?;
    ensure!(
        done.status.success(),
        "git {}: {}",
        args.join(" "),
        String::from_utf8_lossy(&done.stderr)
    );
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

/// The end of what an agent printed, in one line.
fn tail(output: &Path) -> String {
    let text = std::fs::read(output).unwrap_or_default();
    let text = &text[text.len().saturating_sub(SHOWN)..];
    String::from_utf8_lossy(text)
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

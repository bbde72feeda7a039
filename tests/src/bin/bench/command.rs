//! A command through the guest, against fork, exec and wait without the tunnel.
//!
//! The floor is a loop of `/bin/sh` in the same sandbox. It forks and executes the command, captures its output,
//! and reads the clock before and after; the cost of reading the clock is subtracted. Samples are means over a
//! batch, since the shell is started for each batch. The two sides take turns, so that both run under the same
//! conditions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use agentmine_sandbox::{Command, Sandbox};
use anyhow::Context as _;

use crate::Backend;
use crate::fleet::sandbox;
use crate::table::{Samples, Table};

const COMMANDS: [(&str, &[&str]); 4] = [
    ("the smallest command", &["/bin/true"]),
    ("a shell line", &["/bin/sh", "-c", "ls / | wc -l"]),
    ("a git command", &["git", "--version"]),
    ("an interpreter", &["python3", "-c", "print(1)"]),
];
/// Runs the arguments after the first as often as the first says, and prints how many nanoseconds all runs
/// took.
const FLOOR: &str = r#"
rounds=$1; shift
a=$(date +%s%N); b=$(date +%s%N); i=0
while [ $i -lt $rounds ]; do out=$("$@" 2>&1); i=$((i + 1)); done
c=$(date +%s%N); echo $((c - b - (b - a)))
"#;
/// Rounds of one side before the other takes its turn.
const BATCH: u32 = 10;

pub(crate) async fn run(backend: Backend, rounds: u32) -> anyhow::Result<()> {
    let table = table(backend, rounds).await?;
    table.print("through the guest within 1.5x")?;
    Ok(())
}

pub(crate) async fn table(backend: Backend, rounds: u32) -> anyhow::Result<Table> {
    let sandbox = sandbox(backend).await?;
    let mut table = Table::new("a command");
    let mut measured = Ok(());
    for (what, argv) in COMMANDS {
        measured = measure(&sandbox, argv, rounds).await.map(|(alone, guest)| {
            table.row(&format!("{what}: fork, exec, wait"), &alone);
            table.against(&format!("{what}: through the guest"), &guest, &alone);
        });
        if measured.is_err() {
            break;
        }
    }
    sandbox.remove().await?;
    measured?;
    Ok(table)
}

async fn measure(
    sandbox: &Arc<dyn Sandbox>,
    argv: &[&str],
    rounds: u32,
) -> anyhow::Result<(Samples, Samples)> {
    let (mut alone, mut guest) = (Samples::default(), Samples::default());
    // The first batch of each side warms the page cache.
    for batch in 0..=rounds.div_ceil(BATCH) {
        let floor = batch_alone(sandbox.as_ref(), argv).await?;
        let ours = tokio::spawn(batch_through(Arc::clone(sandbox), command(argv))).await??;
        if batch > 0 {
            alone.push(floor);
            guest.push(ours);
        }
    }
    Ok((alone, guest))
}

pub(crate) async fn batch_alone(sandbox: &dyn Sandbox, argv: &[&str]) -> anyhow::Result<Duration> {
    let rounds = BATCH.to_string();
    let shell = ["/bin/sh", "-c", FLOOR, "sh", &rounds];
    Ok(printed_nanos(sandbox, &[&shell[..], argv].concat()).await? / BATCH)
}

/// The number of nanoseconds that a command prints. Where others use the machine, reading the clock may have taken
/// longer than what is measured; then it runs again.
pub(crate) async fn printed_nanos(
    sandbox: &dyn Sandbox,
    argv: &[&str],
) -> anyhow::Result<Duration> {
    for _ in 0..20 {
        let done = sandbox.run(command(argv)).await?;
        let nanos: Result<i64, _> = String::from_utf8_lossy(&done.stdout).trim().parse();
        let nanos = nanos.with_context(|| format!("unexpected output of the floor: {done:?}"))?;
        if let Ok(nanos @ 1..) = u64::try_from(nanos) {
            return Ok(Duration::from_nanos(nanos));
        }
    }
    anyhow::bail!("the machine is too busy to measure the floor")
}

async fn batch_through(sandbox: Arc<dyn Sandbox>, command: Command) -> anyhow::Result<Duration> {
    let began = Instant::now();
    for _ in 0..BATCH {
        sandbox.run(command.clone()).await?;
    }
    Ok(began.elapsed() / BATCH)
}

fn command(argv: &[&str]) -> Command {
    Command {
        argv: argv.iter().map(|&part| part.to_owned()).collect(),
        cwd: "/workspace".into(),
        env: BTreeMap::new(),
        stdin: Vec::new(),
        timeout: Duration::from_secs(120),
        max_output: 64 * 1024,
    }
}

//! Measures a command through the guest against fork, exec and wait in the same sandbox.
//!
//! `cargo run --release -p agentmine-sandbox --example guest_overhead -- [docker|local] [rounds]`

use std::collections::BTreeMap;
use std::io::Write as _;
use std::time::{Duration, Instant};

use agentmine_domain::{Epoch, TaskId};
use agentmine_runtime::config::{self, CommandExecutor};
use agentmine_sandbox::{Command, Sandbox, SandboxSpec, from_config};
use anyhow::Context as _;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let mut args = std::env::args().skip(1);
    let mut config = CommandExecutor::default();
    config.docker.host = std::env::var("DOCKER_HOST").ok();
    if args.next().as_deref() == Some("local") {
        config.backend = config::Backend::Local;
    }
    let rounds: u32 = args.next().map_or(Ok(300), |rounds| rounds.parse())?;
    let spec = SandboxSpec {
        task: TaskId::new(),
        epoch: Epoch(0),
        role: "bench".into(),
        image: None,
    };
    let backend = from_config(&config).await?;
    let began = Instant::now();
    let sandbox = backend.start(&spec).await?;
    let start = began.elapsed();
    let measured = measure(&*sandbox, rounds).await;
    sandbox.remove().await?;
    let mut out = std::io::stdout();
    writeln!(out, "start of a sandbox:    {start:?}")?;
    for (what, argv, direct, guest) in measured? {
        let ratio = guest.as_secs_f64() / direct.as_secs_f64();
        writeln!(out, "{what} ({argv})")?;
        writeln!(out, "  fork, exec and wait: {direct:?}")?;
        writeln!(out, "  through the guest:   {guest:?}   {ratio:.2}x")?;
    }
    Ok(())
}

type Row = (&'static str, String, Duration, Duration);

async fn measure(sandbox: &dyn Sandbox, rounds: u32) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (what, argv) in [
        ("the smallest command", vec!["/bin/true"]),
        ("a shell line", vec!["/bin/sh", "-c", "ls / | wc -l"]),
        ("a git command", vec!["git", "--version"]),
        ("an interpreter", vec!["python3", "-c", "print(1)"]),
    ] {
        let rounds = if what == "an interpreter" {
            rounds / 5
        } else {
            rounds
        };
        let mut bench = vec![
            "agentmine-guest".to_owned(),
            "bench-exec".into(),
            rounds.to_string(),
        ];
        bench.extend(argv.iter().map(|&part| part.to_owned()));
        let direct = sandbox.run(command(bench)).await?;
        let nanos = String::from_utf8_lossy(&direct.stdout);
        let nanos = nanos
            .trim()
            .parse()
            .with_context(|| format!("bench-exec said {direct:?}"))?;
        let ours: Vec<String> = argv.iter().map(|&part| part.to_owned()).collect();
        let began = Instant::now();
        for _ in 0..rounds {
            sandbox.run(command(ours.clone())).await?;
        }
        let guest = began.elapsed() / rounds.max(1);
        rows.push((what, argv.join(" "), Duration::from_nanos(nanos), guest));
    }
    Ok(rows)
}

fn command(argv: Vec<String>) -> Command {
    Command {
        argv,
        cwd: "/workspace/project".into(),
        env: BTreeMap::new(),
        stdin: Vec::new(),
        timeout: Duration::from_secs(120),
        max_output: 64 * 1024,
    }
}
